#include "conformance/on.h"

#include "config/config.h"
#include "plugin/internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct tsr_plugin_entry *find(struct tsr_conformance_case *c)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_plugin_loaded *l = NULL;
    bool                      is_plugin;
    char                     *real = realpath(c->o->on, NULL);
    if (!real || tsr_plugin_load(&l, real, &is_plugin, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "--on %s: %s", c->o->on, real ? e.text : "is not there");
    free(real);
    for (uint64_t i = 0; i < l->n; i++)
        if (strcmp(l->entries[i].component.kind, TSR_KIND_BACKEND) == 0)
            return &l->entries[i];
    tsr_conformance_rule_skip(c, "--on %s: it has no backend", c->o->on);
}

const struct tsr_backend_v1 *tsr_conformance_on(struct tsr_conformance_case *c, void **device)
{
    if (!c->o->on)
        tsr_conformance_rule_skip(c, "no device: --on FILE.so names the plugin of a backend");
    struct tsr_conformance_test_host *host = tsr_conformance_rule_memory(c, sizeof *host);
    struct tsr_errbuf                 e = TSR_ERRBUF(e);
    const struct tsr_plugin_entry    *at = find(c);
    const struct tsr_component       *p = &at->component;
    const struct tsr_backend_v1      *b = at->iface;
    void                             *options = tsr_conformance_rule_memory(c, p->options_size);
    if (p->n_options)
        tsr_config_options_defaults(
            &(struct tsr_config_optset){ p->options, p->n_options, p->option_stride, options });
    tsr_conformance_test_host_init(host, 1);
    if (b->create(&host->table, options, device, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "--on %s: %s", c->o->on, e.text);
    return b;
}
