/* The life of a registry. */
#include "plugin/registry_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_plugin_registry_create(struct tsr_registry **out, struct tsr_pool *pool,
                                      struct tsr_err *err)
{
    return tsr_plugin_registry_create_on(out, pool, &(struct tsr_plugin_run_on){ 0 }, err);
}

tsr_status tsr_plugin_registry_create_on(struct tsr_registry **out, struct tsr_pool *pool,
                                         const struct tsr_plugin_run_on *on, struct tsr_err *err)
{
    struct tsr_registry *r = tsr_new(1, sizeof *r);
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, "the plugin registry");
    r->pool = pool;
    r->on = *on;
    if (on->backend && !(r->on.backend = tsr_strdup(on->backend))) {
        free(r);
        return tsr_fail_nomem(err, strlen(on->backend), "the plugin registry");
    }
    tsr_plugin_services_init(&r->services, r);
    tsr_plugin_host_init(&r->host, pool, &r->account, &r->services, NULL);
    *out = r;
    return TSR_OK;
}

void tsr_plugin_registry_destroy(struct tsr_registry *r)
{
    if (!r)
        return;
    tsr_plugin_services_free(&r->services);
    for (uint64_t i = 0; i < r->n_places; i++)
        free(r->places[i].path);
    for (uint64_t i = 0; i < r->n_loaded; i++)
        tsr_plugin_loaded_free(r->loaded[i]);
    for (uint64_t i = 0; i < r->n_refused; i++) {
        free(r->refused[i].path);
        free(r->refused[i].why);
    }
    free(r->places);
    free(r->loaded);
    free(r->refused);
    free((void *)(uintptr_t)r->on.backend);
    free(r);
}

tsr_status tsr_plugin_registry_like(struct tsr_registry **out, const struct tsr_registry *of,
                                    struct tsr_pool *pool, const struct tsr_plugin_run_on *on,
                                    struct tsr_err *err)
{
    struct tsr_registry *r = NULL;
    TSR_TRY(tsr_plugin_registry_create_on(&r, pool, on, err));
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < of->n_places && st == TSR_OK; i++)
        if (of->places[i].named)
            st = tsr_plugin_registry_add_path(r, of->places[i].path, err);
    r->isolation = of->isolation;
    r->isolated = of->isolated;
    if (st != TSR_OK) {
        tsr_plugin_registry_destroy(r);
        return st;
    }
    *out = r;
    return TSR_OK;
}
