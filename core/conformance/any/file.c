/* The shared object: its exports, its dependencies, loading and unloading. */
#include "conformance/any/any.h"

#include "plugin/elf.h"
#include "plugin/internal.h"
#include "plugin/trust.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

void tsr_any_loads(struct tsr_conformance_case *c)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_plugin_loaded *l = NULL;
    bool                      is_plugin;
    if (tsr_plugin_load(&l, c->path, &is_plugin, &e.err) != TSR_OK)
        tsr_conformance_rule_fail(c, "%s", e.text);
    if (l->n == 0)
        tsr_conformance_rule_fail(c,
                                  "%s: its %s of kind \"%.80s\", which this host does not know; "
                                  "tessera/plugin.h has the kinds",
                                  c->path,
                                  l->plugin.n_components == 1
                                      ? "component is"
                                      : "components are, the first of them,",
                                  l->plugin.n_components ? (*l->plugin.components)->kind : "");
    tsr_plugin_loaded_free(l);
}

void *tsr_any_open(struct tsr_conformance_case *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_plugin_path_trusted(c->path, &e.err) != TSR_OK) /* do not run its code here either */
        tsr_conformance_rule_skip(c, "the host does not take a file from there; `loads` says why");
    void *h = dlopen(c->path, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        const char *why = dlerror();
        tsr_conformance_rule_skip(c, "it does not load: %s", why ? why : "no reason given");
    }
    return h;
}

/* The dynamic symbols as the loader sees them. */
struct symbols {
    const Elf64_Sym *sym;
    const char      *str;
    uint64_t         n;
};

static uint64_t count_gnu(const uint32_t *h)
{
    uint32_t        buckets = h[0], first = h[1], bloom = h[2], last = 0;
    const uint32_t *bucket = h + 4 + (uint64_t)bloom * 2;
    for (uint32_t i = 0; i < buckets; i++)
        if (bucket[i] > last)
            last = bucket[i];
    if (last < first) /* nothing exported: the undefined ones end where the hashed would begin */
        return first;
    const uint32_t *chain = bucket + buckets;
    while (!(chain[last - first] & 1))
        last++;
    return (uint64_t)last + 1;
}

static struct symbols symbols_of(struct tsr_conformance_case *c)
{
    struct symbols   s = { 0 };
    struct link_map *map = NULL;
    const uint32_t  *hash = NULL, *gnu = NULL;
    if (dlinfo(tsr_any_open(c), RTLD_DI_LINKMAP, &map) != 0 || !map)
        tsr_conformance_rule_skip(c, "the loader does not show its dynamic section");
    for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        const void *p = (const void *)(uintptr_t)d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB)
            s.sym = p;
        else if (d->d_tag == DT_STRTAB)
            s.str = p;
        else if (d->d_tag == DT_HASH)
            hash = p;
        else if (d->d_tag == DT_GNU_HASH)
            gnu = p;
    }
    if (!s.sym || !s.str || (!hash && !gnu))
        tsr_conformance_rule_skip(c, "it has no table of dynamic symbols");
    s.n = hash ? hash[1] : count_gnu(gnu);
    return s;
}

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* What compilers and linkers add. */
static bool toolchains(const char *name)
{
    static const char *const own[] = { "__asan_",     "__tsan_", "__ubsan_",    "__odr_asan",
                                       "__sanitizer", "_edata",  "__bss_start", "_end",
                                       "_init",       "_fini" };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (starts(name, own[i]))
            return true;
    return false;
}

static bool descriptors(const char *name)
{
    static const char prefix[] = "tsr_plugin_v";
    return starts(name, prefix) &&
           strspn(name + sizeof prefix - 1, "0123456789") == strlen(name) - (sizeof prefix - 1);
}

void tsr_any_one_symbol(struct tsr_conformance_case *c)
{
    struct symbols s = symbols_of(c);
    char           list[400] = "";
    uint64_t       found = 0;
    for (uint64_t i = 1; i < s.n; i++) {
        unsigned    bind = ELF64_ST_BIND(s.sym[i].st_info);
        unsigned    vis = ELF64_ST_VISIBILITY(s.sym[i].st_other);
        const char *name = s.str + s.sym[i].st_name;
        if (s.sym[i].st_shndx == SHN_UNDEF || s.sym[i].st_shndx == SHN_ABS || bind == STB_LOCAL ||
            (vis != STV_DEFAULT && vis != STV_PROTECTED) || descriptors(name) || toolchains(name))
            continue;
        size_t at = strlen(list);
        (void)snprintf(list + at, sizeof list - at, "%s%.60s", found++ ? ", " : "", name);
    }
    if (found)
        tsr_conformance_rule_fail(
            c,
            "it exports %llu symbol%s too many: %s; compile with -fvisibility=hidden and "
            "link with a version script",
            (unsigned long long)found, found == 1 ? "" : "s", list);
}

void tsr_any_no_host_symbols(struct tsr_conformance_case *c)
{
    struct symbols s = symbols_of(c);
    for (uint64_t i = 1; i < s.n; i++) {
        const char *name = s.str + s.sym[i].st_name;
        if (s.sym[i].st_shndx == SHN_UNDEF && starts(name, "tsr_"))
            tsr_conformance_rule_fail(
                c, "it asks for %.80s; link with -Wl,-z,defs to find such references", name);
    }
}

void tsr_any_load_100(struct tsr_conformance_case *c)
{
    unsigned char first[TSR_PLUGIN_HEAD] = { 0 }, now[TSR_PLUGIN_HEAD];
    for (int i = 0; i < 100; i++) {
        void       *h = i == 0 ? tsr_any_open(c) : dlopen(c->path, RTLD_NOW | RTLD_LOCAL);
        const void *p = h ? dlsym(h, "tsr_plugin_v1") : NULL;
        const char *why = p ? NULL : dlerror();
        if (!p && i == 0)
            tsr_conformance_rule_skip(c, "it has no tsr_plugin_v1");
        if (!p)
            tsr_conformance_rule_fail(c, "load %d of 100 fails: %s", i + 1,
                                      why ? why : "no reason given");
        memcpy(now, p, sizeof now); /* no address is in it */
        if (i == 0)
            memcpy(first, now, sizeof first);
        if (memcmp(first, now, sizeof now) != 0)
            tsr_conformance_rule_fail(c, "load %d of 100 gives another descriptor than the first",
                                      i + 1);
        if (dlclose(h) != 0)
            tsr_conformance_rule_fail(c, "unload %d of 100 fails", i + 1);
    }
}

static bool is_mapped(const char *path)
{
    char   *line = NULL;
    size_t  cap = 0, n = strlen(path);
    bool    found = false;
    ssize_t got;
    FILE   *maps = fopen("/proc/self/maps", "r");
    while (maps && (got = getline(&line, &cap, maps)) > 0)
        found |= (size_t)got > n && strncmp(line + got - 1 - n, path, n) == 0;
    free(line);
    if (maps)
        (void)fclose(maps);
    return found;
}

void tsr_any_unloads(struct tsr_conformance_case *c)
{
    void *h = tsr_any_open(c);
    if (!is_mapped(c->path))
        tsr_conformance_rule_skip(c, "this system does not show what is mapped");
    (void)dlclose(h);
    if (is_mapped(c->path))
        tsr_conformance_rule_fail(
            c, "it stays mapped after dlclose() (a C++ plugin needs -fno-gnu-unique; "
               "thread-local destructors and -z nodelete do it too)");
}
