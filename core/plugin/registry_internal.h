/* plugin/registry_internal.h - the registry: registry_create.c makes it, registry.c keeps it,
 * registry_scan.c reads files into it. */
#ifndef TSR_PLUGIN_REGISTRY_INTERNAL_H
#define TSR_PLUGIN_REGISTRY_INTERNAL_H

#include "plugin/internal.h"

struct tsr_plugin_registry_place {
    char *path; /* canonical */
    bool  dir, named, done;
};

struct tsr_plugin_registry_refusal {
    char *path, *why;
};

struct tsr_registry {
    struct tsr_pool                    *pool;
    struct tsr_plugin_account           account;
    struct tsr_plugin_host_ctx          host;
    struct tsr_plugin_services          services;
    struct tsr_plugin_registry_place   *places;
    uint64_t                            n_places;
    struct tsr_plugin_loaded          **loaded;
    uint64_t                            n_loaded;
    struct tsr_plugin_registry_refusal *refused;
    uint64_t                            n_refused;
    struct tsr_plugin_run_on            on;
    struct tsr_plugin_isolation         isolation;
    bool                                isolated;
    bool                                standard; /* the standard places are in the list */
};

tsr_status tsr_plugin_registry_add_standard(struct tsr_registry *r, struct tsr_err *err);

#endif
