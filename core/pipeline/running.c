#include "pipeline/running.h"

#include "checkpoint/prepacked/prepacked.h"
#include "pipeline/pipeline.h"
#include "pipeline/put.h"

#include <stdlib.h>

struct head {
    struct tsr_pipeline_run_on_keys on;
};
const struct tsr_option tsr_pipeline_run_on_options[TSR_PIPELINE_N_RUN_ON_OPTIONS] = {
    TSR_PIPELINE_RUN_ON_OPTIONS(struct head, on, 0)
};

struct tsr_plugin_run_on tsr_pipeline_run_on_of(const struct tsr_pipeline_run_on_keys *k)
{
    return (struct tsr_plugin_run_on){ .backend = k->backend,
                                       .layers = (uint64_t)(k->gpu_layers + 1),
                                       .cpu_experts = k->cpu_experts < 0 ? UINT64_MAX
                                                                         : (uint64_t)k->cpu_experts,
                                       .numerics = (uint32_t)k->numerics };
}

tsr_status tsr_pipeline_running_open(struct tsr_pipeline_running *r, struct tsr_pipeline_job *job,
                                     const struct tsr_pipeline_running_keys *k,
                                     const struct tsr_model *m, const char *packed, uint64_t seed,
                                     struct tsr_err *err)
{
    const char *plan = k->compensation.compensate_plan;
    char       *path = *plan ? tsr_pipeline_job_input(job, plan) : NULL;
    *r = (struct tsr_pipeline_running){ .eo = { .on = tsr_pipeline_run_on_of(&k->on),
                                                .act = (uint32_t)k->act,
                                                .kv_dtype = (uint32_t)k->kv,
                                                .kv_layers = k->kv_layers,
                                                .chunk = (uint64_t)k->chunk,
                                                .slots = 1 },
                                        .model = m };
    if (*plan && !path)
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_pipeline_compensating_open(&r->compensating, &k->compensation, path, packed,
                                                   m, seed, &r->eo.compensate, err);
    free(path);
    return st;
}

tsr_status tsr_pipeline_mapped_unchanged(const struct tsr_model        *m,
                                         const struct tsr_compensation *c, struct tsr_err *err)
{
    if (m->prepacked)
        TSR_TRY(tsr_file_unchanged(&m->prepacked->map.file, err));
    return c ? tsr_compensation_unchanged(c, err) : TSR_OK;
}

tsr_status tsr_pipeline_running_unchanged(const struct tsr_pipeline_running *r, struct tsr_err *err)
{
    return tsr_pipeline_mapped_unchanged(r->model, r->compensating.from, err);
}

void tsr_pipeline_by_layers_check(const struct tsr_pipeline_running_keys *k, const char *what,
                                  const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "by_layers");
    if (!what && k && k->kv != TSR_F32 && k->kv != TSR_KV_AUTO)
        what = "kv";
    if (!what && k && *k->kv_layers)
        what = "kv_layers";
    if (!what && k && (k->compensation.compensate || *k->compensation.compensate_plan))
        what = "compensate";
    if (what)
        tsr_config_diag_error(
            d, at ? &at->mark : &node->mark, "leave one out",
            "'by_layers' runs whole sequences with a cache of F32; '%s' needs the "
            "model in memory",
            what);
}

void tsr_pipeline_running_close(struct tsr_pipeline_running *r)
{
    tsr_pipeline_compensating_close(&r->compensating);
}

struct tsr_engine_options tsr_pipeline_running_plain(const struct tsr_pipeline_running *r)
{
    struct tsr_engine_options eo = r->eo;
    eo.on.numerics = TSR_NUMERICS_EXACT;
    eo.act = TSR_ACT_F32;
    eo.kv_dtype = TSR_F32;
    eo.kv_layers = NULL;
    eo.compensate = NULL;
    eo.split = NULL;
    return eo;
}

static const char *name_of(const struct tsr_choice *list, size_t n, int64_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].value == value)
            return list[i].name;
    return "?";
}

static bool put_ran(json_t *object, const struct tsr_pipeline_job *job, int64_t act, int64_t kv,
                    const char *kv_layers, int64_t numerics, const struct tsr_engine *e)
{
    uint64_t ran[3];
    tsr_engine_acts(e, ran);
    return tsr_pipeline_json_put_act(object, (uint32_t)act, ran) &&
           (!job->loose ||
            (tsr_pipeline_json_put_text(object, "kv",
                                        tsr_plugin_kv_name(
                                            kv == TSR_KV_AUTO ? (int64_t)tsr_engine_kv(e) : kv)) &&
             (!*kv_layers || tsr_pipeline_json_put_text(object, "kv_layers", kv_layers)) &&
             tsr_pipeline_json_put_text(object, "numerics",
                                        name_of(tsr_numerics_choices, TSR_NUMERICS_CHOICES,
                                                numerics == TSR_NUMERICS_AUTO &&
                                                        !tsr_engine_is_automatic(e)
                                                    ? TSR_NUMERICS_EXACT
                                                    : numerics)) &&
             tsr_pipeline_json_put_text(object, "device", tsr_engine_device(e))));
}

bool tsr_pipeline_running_put(json_t *object, const struct tsr_pipeline_job *job,
                              const struct tsr_pipeline_running_keys *k,
                              const struct tsr_pipeline_running *r, const struct tsr_engine *e)
{
    return put_ran(object, job, k->act, k->kv, k->kv_layers, k->on.numerics, e) &&
           tsr_pipeline_compensating_put(object, &k->compensation, &r->compensating, e);
}

bool tsr_pipeline_running_put_plain(json_t *object, const struct tsr_pipeline_job *job,
                                    const struct tsr_engine *e)
{
    return put_ran(object, job, TSR_ACT_F32, TSR_F32, "", TSR_NUMERICS_EXACT, e);
}
