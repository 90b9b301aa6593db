/* Code that runs when the file is loaded, before any of it is checked. */
#include "conformance/any/any.h"

#include "base/file.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SECTIONS 4096u
#define MAX_BYTES    (UINT64_C(64) << 20)

/* The file's full symbol table, which says what a function is called; a stripped file has none. */
struct names {
    Elf64_Sym *sym;
    char      *str;
    uint64_t   n, str_bytes;
};

static bool read_block(struct tsr_conformance_case *c, const struct tsr_file *f, uint64_t offset,
                       uint64_t bytes, void **out)
{
    uint64_t end;
    if (bytes == 0 || bytes > MAX_BYTES || !tsr_add(offset, bytes, &end) || end > f->size)
        return false;
    *out = tsr_conformance_rule_memory(c, bytes + 1);
    return tsr_file_read(f, offset, *out, bytes, NULL) == TSR_OK;
}

static struct names read_names(struct tsr_conformance_case *c)
{
    struct names    s = { 0 };
    struct tsr_file f;
    Elf64_Ehdr     *h = NULL;
    Elf64_Shdr     *sh = NULL;
    if (tsr_file_open(&f, c->path, NULL) != TSR_OK)
        tsr_conformance_rule_skip(c, "the file cannot be read");
    if (read_block(c, &f, 0, sizeof *h, (void **)&h) && h->e_shentsize == sizeof *sh &&
        h->e_shnum <= MAX_SECTIONS &&
        read_block(c, &f, h->e_shoff, h->e_shnum * sizeof *sh, (void **)&sh))
        for (unsigned i = 0; i < h->e_shnum; i++)
            if (sh[i].sh_type == SHT_SYMTAB && sh[i].sh_link < h->e_shnum &&
                read_block(c, &f, sh[i].sh_offset, sh[i].sh_size, (void **)&s.sym) &&
                read_block(c, &f, sh[sh[i].sh_link].sh_offset, sh[sh[i].sh_link].sh_size,
                           (void **)&s.str)) {
                s.n = sh[i].sh_size / sizeof *s.sym;
                s.str_bytes = sh[sh[i].sh_link].sh_size;
            }
    tsr_file_close(&f);
    return s;
}

static const char *name_of(const struct names *s, uint64_t address)
{
    for (uint64_t i = 0; i < s->n; i++)
        if (s->sym[i].st_value == address && ELF64_ST_TYPE(s->sym[i].st_info) == STT_FUNC &&
            s->sym[i].st_name < s->str_bytes && s->str[s->sym[i].st_name])
            return s->str + s->sym[i].st_name;
    return NULL;
}

/* Every shared object has the first; the others come with a run-time library that is linked in:
 * libgcc's processor detection, libstdc++'s emergency memory and streams, sanitizers. */
static bool toolchains(const char *name)
{
    static const char *const own[] = { "frame_dummy",           "__cpu_indicator_init",
                                       "init_have_lse_atomics", "_GLOBAL__sub_I__ZN9__gnu_cxx",
                                       "_GLOBAL__sub_I__ZNSt",  "_GLOBAL__sub_I__ZSt",
                                       "asan.module_ctor",      "tsan.module_ctor",
                                       "_sub_I_00099_",         "__sancov",
                                       "sancov.module_ctor",    "__ubsan" };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strncmp(name, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

void tsr_any_no_constructors(struct tsr_conformance_case *c)
{
    struct link_map *map = NULL;
    uint64_t         array = 0, bytes = 0, init = 0;
    if (dlinfo(tsr_any_open(c), RTLD_DI_LINKMAP, &map) != 0 || !map)
        tsr_conformance_rule_skip(c, "the loader does not show its dynamic section");
    for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_INIT_ARRAY)
            array = d->d_un.d_ptr;
        else if (d->d_tag == DT_INIT)
            init = d->d_un.d_ptr;
        else if (d->d_tag == DT_INIT_ARRAYSZ)
            bytes = d->d_un.d_val;
    }
    struct names s = read_names(c);
    const char  *first = init ? name_of(&s, init) : NULL;
    if (first && strcmp(first, "_init") != 0)
        tsr_conformance_rule_fail(
            c, "%.80s() runs when the file is loaded (-Wl,-init); do its work in create()", first);
    if (!array)
        return;
    const uintptr_t *f = (const uintptr_t *)(map->l_addr + array);
    uint64_t         n = bytes / sizeof *f;
    for (uint64_t i = 0; i < n; i++) {
        const char *name = name_of(&s, f[i] - map->l_addr);
        if (name && !toolchains(name))
            tsr_conformance_rule_fail(
                c,
                "%.80s() runs when the file is loaded, before anything is checked; do "
                "its work in create()",
                name);
    }
    if (s.n == 0 && n > 1)
        tsr_conformance_rule_fail(
            c,
            "%llu functions run when the file is loaded, and a stripped file does not "
            "say which; check it before it is stripped",
            (unsigned long long)n);
}
