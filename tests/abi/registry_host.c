/* registry_host.c MINOR PLUGIN.so... - the registry of today takes plugins that were built with the
 * headers of another minor, and each works; MINOR is what their descriptors must say. */
#include "host.h"
#include "plugin/registry.h"
#include "plugin/spec.h"

#include <stdlib.h>
#include <string.h>

static bool use_found(const struct tsr_plugin_found *f)
{
    struct user            u = { .host = f->host };
    const struct kind     *k = kind_find(f->component->kind);
    struct tsr_plugin_spec spec;
    uint32_t               size;
    u.err = (struct tsr_err){ .struct_size = sizeof u.err, .cap = sizeof u.text, .text = u.text };
    memcpy(&size, f->iface, sizeof size);
    if (!k || size != k->size || f->component->struct_size != sizeof *f->component ||
        f->component->option_stride != sizeof(struct tsr_option)) {
        (void)printf("  %s: the registry's copy is not of full size\n", f->component->name);
        return false;
    }
    tsr_status st = tsr_plugin_spec_defaults(&spec, f, &u.err);
    u.options = spec.options;
    bool ok = st == TSR_OK && k->use(&u, f->iface);
    (void)printf("  %s %s: %s %s\n", k->id, f->component->name, ok ? "works" : u.wrong, u.text);
    if (strcmp(k->id, "tessera.backend/1") == 0)
        spec.options = NULL; /* the backend keeps it */
    tsr_plugin_spec_close(&spec);
    return ok;
}

int main(int argc, char **argv)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_registry    *r = NULL;
    struct tsr_plugin_found f;
    uint64_t                n = 0, now = 1, peak;
    tsr_status              st = tsr_plugin_registry_create(&r, NULL, &e.err);
    for (int i = 2; st == TSR_OK && i < argc; i++)
        st = tsr_plugin_registry_add_path(r, argv[i], &e.err);
    if (st == TSR_OK)
        st = tsr_plugin_registry_scan(r, &e.err);
    bool ok = st == TSR_OK;
    if (!ok)
        (void)printf("%s\n", e.text);
    for (; ok && tsr_plugin_registry_component(r, n, &f); n++) {
        (void)printf("%s: ABI %u.%u\n", f.info->path, f.info->plugin->abi_major,
                     f.info->plugin->abi_minor);
        if ((long)f.info->plugin->abi_minor != strtol(argv[1], NULL, 10)) {
            (void)printf("  is not built for minor %s\n", argv[1]);
            ok = false;
        }
        ok = use_found(&f) && ok;
    }
    backend_close();
    if (r)
        tsr_plugin_registry_memory(r, &now, &peak);
    if (now != 0)
        (void)printf("%llu bytes were not given back\n", (unsigned long long)now);
    tsr_plugin_registry_destroy(r);
    return ok && now == 0 && argc > 2 && n == (uint64_t)argc - 2 ? 0 : 1;
}
