#include "cli/cli.h"

#include "quant/decoder.h"

tsr_status tsr_cli_registry_bare(struct tsr_cli *c, struct tsr_registry **r, struct tsr_err *err)
{
    if (!c->pool)
        TSR_TRY(tsr_pool_create(&c->pool, c->threads, err));
    if (!c->registry) {
        TSR_TRY(tsr_plugin_registry_create_on(&c->registry, c->pool, &c->on, err));
        TSR_TRY(tsr_quant_decoders_open(c->registry, err));
    }
    *r = c->registry;
    return TSR_OK;
}

tsr_status tsr_cli_registry(struct tsr_cli *c, struct tsr_registry **r, struct tsr_err *err)
{
    TSR_TRY(tsr_cli_registry_bare(c, r, err));
    for (uint64_t i = 0; !c->paths_added && i < c->n_plugin_paths; i++)
        TSR_TRY(tsr_plugin_registry_add_path(*r, c->plugin_paths[i], err));
    c->paths_added = true;
    return TSR_OK;
}
