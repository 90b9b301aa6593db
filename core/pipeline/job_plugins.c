/* The plugins and families that a job names. */
#include "pipeline/job.h"

#include "base/file.h"
#include "base/mem.h"
#include "config/doc.h"
#include "model/family.h"

#include <stdlib.h>
#include <string.h>

static tsr_status add_plugin(struct tsr_pipeline_job *job, struct tsr_registry *r,
                             const struct tsr_config_node *n, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (n->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(d, &n->mark, NULL, "'plugins' must be a list of files and folders");
        return TSR_OK;
    }
    char *path = tsr_path_join(job->state->dir, n->text);
    if (!path)
        return tsr_fail_nomem(err, strlen(n->text), "a plugin's path");
    tsr_status st = tsr_plugin_registry_add_path(r, path, &e.err);
    if (st == TSR_OK) /* also read here, so that its errors are reported at its place */
        st = tsr_plugin_registry_scan_path(r, path, &e.err);
    free(path);
    if (st == TSR_E_INPUT) {
        tsr_config_diag_failure(d, &n->mark, &e.err);
        return TSR_OK;
    }
    return st == TSR_OK ? st : tsr_err_copy(err, st, &e.err);
}

static tsr_status add_plugins(struct tsr_pipeline_job *job, struct tsr_registry *r,
                              const struct tsr_config_node *n, struct tsr_diag *d,
                              struct tsr_err *err)
{
    if (!n || n->kind == TSR_CONFIG_NODE_NULL)
        return TSR_OK;
    if (n->kind != TSR_CONFIG_NODE_LIST)
        return add_plugin(job, r, n, d, err);
    for (uint64_t i = 0; i < n->n; i++)
        TSR_TRY(add_plugin(job, r, n->items[i], d, err));
    return TSR_OK;
}

/* `plugins` as a map. */
struct plugins_keys {
    const struct tsr_config_node *paths;
    int32_t                       isolate;
    double                        time_limit;
    int64_t                       memory_limit;
};

static const struct tsr_option plugins_options[] = {
    TSR_OPTION_NODE(struct plugins_keys, paths, "Plugins or folders of plugins, searched first."),
    TSR_OPTION_BOOL(struct plugins_keys, isolate, 0,
                    "Run quantizers and solvers in their own processes."),
    TSR_OPTION_REAL(struct plugins_keys, time_limit, 600, 0.01, 1e6, "s",
                    "With isolate: what one call of a plugin may take."),
    TSR_OPTION_INT(
        struct plugins_keys, memory_limit, 0, 0, INT64_C(1) << 40, "MiB",
        "With isolate: memory that a process may take beyond what it begins with; 0: half of "
        "the machine's."),
};

const struct tsr_option *tsr_pipeline_job_plugins_options(uint64_t *n)
{
    *n = sizeof plugins_options / sizeof *plugins_options;
    return plugins_options;
}

static void isolate(const struct plugins_keys *k, struct tsr_registry *r)
{
    struct tsr_plugin_isolation limits = { .time_us = (uint64_t)(k->time_limit * 1e6),
                                           .memory_bytes = (uint64_t)k->memory_limit << 20 };
    tsr_plugin_registry_set_isolation(r, &limits);
}

tsr_status tsr_pipeline_job_plugins(struct tsr_pipeline_job *job, struct tsr_registry *r,
                                    struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_config_node *n = job->state->head.plugins;
    if (!n || n->kind == TSR_CONFIG_NODE_NULL)
        return TSR_OK;
    if (n->kind != TSR_CONFIG_NODE_MAP)
        return add_plugins(job, r, n, d, err);
    struct plugins_keys      k = { .paths = NULL };
    struct tsr_config_optset set = { plugins_options,
                                     sizeof plugins_options / sizeof *plugins_options,
                                     sizeof *plugins_options, &k };
    uint64_t                 before = tsr_config_diag_errors(d);
    tsr_config_options_fill(&set, 1, NULL, n, "'plugins'", d);
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK;
    if (k.isolate)
        isolate(&k, r);
    return add_plugins(job, r, k.paths, d, err);
}

static tsr_status add_family(struct tsr_pipeline_job *job, const struct tsr_config_node *n,
                             struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (n->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(d, &n->mark, NULL, "'families' must be a list of files");
        return TSR_OK;
    }
    char *path = tsr_path_join(job->state->dir, n->text);
    if (!path)
        return tsr_fail_nomem(err, strlen(n->text), "a family's path");
    struct tsr_diag *own = NULL; /* errors of the job are not this file's */
    tsr_status       st = tsr_config_diag_create(&own, err);
    if (st == TSR_OK)
        st = tsr_model_family_add(path, own, &e.err);
    struct tsr_config_diag_item item;
    bool                        listed = own && tsr_config_diag_errors(own) > 0;
    for (uint64_t i = 0; listed && tsr_config_diag_at(own, i, &item); i++)
        if (!item.warning)
            tsr_config_diag_error(d, &n->mark, item.hint, "%s:%u:%u: %s", path, item.line,
                                  item.column, item.text);
    if (st == TSR_E_INPUT && !listed)
        tsr_config_diag_error(d, &n->mark, NULL, "%s", e.text);
    tsr_config_diag_destroy(own);
    free(path);
    return st == TSR_OK || st == TSR_E_INPUT ? TSR_OK : tsr_err_copy(err, st, &e.err);
}

tsr_status tsr_pipeline_job_families(struct tsr_pipeline_job *job, struct tsr_diag *d,
                                     struct tsr_err *err)
{
    const struct tsr_config_node *n = job->state->head.families;
    if (!n || n->kind == TSR_CONFIG_NODE_NULL)
        return TSR_OK;
    if (n->kind != TSR_CONFIG_NODE_LIST)
        return add_family(job, n, d, err);
    for (uint64_t i = 0; i < n->n; i++)
        TSR_TRY(add_family(job, n->items[i], d, err));
    return TSR_OK;
}
