/* host.c PLUGIN.so... - loads each, checks its head, and puts every component to work. */
#include "host.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static uint64_t live;

static void host_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)printf("  said: %s\n", msg);
}

static void *host_alloc(void *ctx, uint64_t size, uint64_t align)
{
    void *p = NULL;
    (void)ctx;
    if (posix_memalign(&p, align < sizeof p ? sizeof p : align, size ? size : 1) != 0)
        return NULL;
    live += size;
    return p;
}

static void host_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    if (p)
        live -= size;
    free(p);
}

static tsr_status host_parallel_for(void *ctx, uint64_t n, uint64_t grain,
                                    tsr_status (*body)(void *arg, uint64_t begin, uint64_t end),
                                    void *arg)
{
    (void)ctx;
    tsr_status st = TSR_OK;
    for (uint64_t at = 0; st == TSR_OK && at < n; at += grain)
        st = body(arg, at, n - at < grain ? n : at + grain);
    return st;
}

static int32_t host_cancelled(void *ctx)
{
    (void)ctx;
    return 0;
}

static const void *host_service(void *ctx, const char *id)
{
    (void)ctx;
    return backend_service(id);
}

/* Behind the table lies what no plugin may take for a function. */
static struct {
    struct tsr_host table;
    unsigned char   poison[256];
} host = { .table = { .struct_size = sizeof(struct tsr_host),
                      .abi_major = TSR_ABI_MAJOR,
                      .abi_minor = TSR_ABI_MINOR,
                      .log = host_log,
                      .alloc = host_alloc,
                      .release = host_release,
                      .parallel_for = host_parallel_for,
                      .cancelled = host_cancelled,
                      .service = host_service } };

/* An option may be longer than ours; stride says how long. */
static void *default_options(const struct tsr_component *c)
{
    char *block = calloc(1, c->options_size + 1);
    for (uint64_t i = 0; block && i < c->n_options; i++) {
        struct tsr_option o;
        memcpy(&o, (const char *)c->options + i * c->option_stride,
               c->option_stride < sizeof o ? c->option_stride : sizeof o);
        int32_t truth = (int32_t)o.def.i;
        if (o.type == TSR_OPT_BOOL)
            memcpy(block + o.offset, &truth, sizeof truth);
        else
            memcpy(block + o.offset, &o.def, sizeof o.def);
    }
    return block;
}

static bool use_component(const struct tsr_component *c)
{
    struct user        u = { .host = &host.table };
    const struct kind *k = kind_find(c->kind);
    uint32_t           size;
    u.err = (struct tsr_err){ .struct_size = sizeof u.err, .cap = sizeof u.text, .text = u.text };
    if (!k) {
        (void)printf("  %s is not known here\n", c->kind);
        return false;
    }
    u.options = default_options(c);
    char *table = calloc(1, k->size);
    if (!u.options || !table) {
        free(u.options);
        free(table);
        return false;
    }
    memcpy(&size, c->iface, sizeof size);
    memcpy(table, c->iface, size < k->size ? size : k->size);
    bool ok = k->use(&u, table);
    (void)printf("  %s %s, a table of %u bytes (%llu here): %s%s%s\n", c->kind, c->name, size,
                 (unsigned long long)k->size, ok ? "works" : u.wrong, u.text[0] ? ": " : "",
                 u.text);
    free(table);
    /* a backend that stays keeps no pointer into the table, but may keep its options */
    if (strcmp(c->kind, "tessera.backend/1") != 0)
        free(u.options);
    return ok;
}

static bool use_plugin(const char *path)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        (void)printf("%s\n", dlerror());
        return false;
    }
    const struct tsr_plugin *p = dlsym(so, "tsr_plugin_v1");
    if (!p || p->magic != TSR_PLUGIN_MAGIC || p->abi_major != TSR_ABI_MAJOR ||
        p->needs_minor > TSR_ABI_MINOR) {
        (void)printf("%s: is not a plugin for ABI %d.%d\n", path, TSR_ABI_MAJOR, TSR_ABI_MINOR);
        return false;
    }
    (void)printf("%s: %s, ABI %u.%u\n", path, p->id, p->abi_major, p->abi_minor);
    bool ok = p->n_components > 0;
    for (uint64_t i = 0; i < p->n_components; i++)
        ok = use_component(p->components[i]) && ok;
    return ok;
}

int main(int argc, char **argv)
{
    bool ok = argc > 1;
    memset(host.poison, 0xab, sizeof host.poison);
#if defined(TSR_TEST_LATER) /* the member that tests/abi/newer.sh put behind the last one */
    host.table.later = UINT64_C(0xabababababababab);
#endif
    (void)printf("host of ABI %d.%d\n", TSR_ABI_MAJOR, TSR_ABI_MINOR);
    for (int i = 1; i < argc; i++)
        ok = use_plugin(argv[i]) && ok;
    backend_close();
    if (live != 0)
        (void)printf("%llu bytes were not given back\n", (unsigned long long)live);
    return ok && live == 0 ? 0 : 1;
}
