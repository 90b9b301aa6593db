/* What an arm is made of: what its kept figures hold for. */
#include "base/f16.h"
#include "base/json.h"
#include "compare/compare.h"
#include "pipeline/job.h"
#include "quant/quantize.h"
#include "tokenizer/tokenizer.h"

/* Which tokens a text becomes, and where an answer stops. */
static tsr_status texts_of(const struct compare *c, const struct compare_arm *a, json_t *how,
                           struct tsr_err *err)
{
    json_t *base = json_object(), *own = json_object();
    bool    ok = base && own && json_object_set(how, "texts", base) == 0 &&
              (!a->own || json_object_set(how, "arm_texts", own) == 0) &&
              (!c->job->tokenizer ||
               json_object_set_new(how, "tokenizer",
                                   json_string(tsr_tokenizer_hash(c->job->tokenizer))) == 0);
    tsr_status st = ok ? tsr_pipeline_manifest_texts(c->job->model, base, err)
                       : tsr_fail_nomem(err, 256, "an arm");
    if (st == TSR_OK && a->own)
        st = tsr_pipeline_manifest_texts(a->own, own, err);
    json_decref(base);
    json_decref(own);
    return st;
}

json_t *compare_rotation_json(const struct compare *c, const struct compare_arm *a)
{
    struct tsr_rotate_options o = tsr_pipeline_rotate_options(c->job, &a->rotation);
    return json_pack("{s:s, s:s, s:s, s:I, s:s}", "kind", tsr_pipeline_rotate_kinds[o.kind].name,
                     "sites", tsr_pipeline_rotate_sites_name(o.sites), "online",
                     tsr_pipeline_rotate_online_name(o.sites), "seed", (json_int_t)o.seed, "dtype",
                     tsr_dtype_name(o.dtype));
}

tsr_status compare_arm_of(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    if (a->kind == COMPARE_MODEL) {
        TSR_TRY(compare_arm_ready(c, a, err));
        a->of = json_pack("{s:s, s:s}", "model", c->job->model->hash, "arm", a->own->hash);
    } else if (a->quantize) {
        TSR_TRY(compare_arm_fingerprint(c, a, &a->of, err));
    } else {
        a->of = json_pack("{s:s}", "model", c->job->model->hash);
    }
    json_t *measure = c->keys.measure ? tsr_config_node_json(c->keys.measure) : json_object();
    if (measure)
        (void)json_object_del(measure, "speed"); /* is never kept */
    json_t    *how = json_pack("{s:s, s:o}", "version", TSR_VERSION, "measure", measure);
    tsr_status st = how ? texts_of(c, a, how, err) : tsr_fail_nomem(err, 256, "an arm");
    if (st != TSR_OK) {
        json_decref(how);
        return st;
    }
    if (c->keys.samples)
        tsr_json_set(&how, "samples", tsr_config_node_json(c->keys.samples));
    if (c->keys.sampling)
        tsr_json_set(&how, "sampling", tsr_config_node_json(c->keys.sampling));
    if (c->windows)
        tsr_json_set(&how, "text", json_string(c->windows->text_hash));
    if (c->choices)
        tsr_json_set(&how, "questions", json_string(c->choices->hash));
    if (c->tasks)
        tsr_json_set(&how, "tasks", tsr_pipeline_tasks_of(c->tasks, false));
    if (a->rotated)
        tsr_json_set(&a->of, "rotated", compare_rotation_json(c, a));
    if (a->act_bits)
        tsr_json_set(&a->of, "act_bits", json_integer((json_int_t)a->act_bits));
    if (a->kv != TSR_F32)
        tsr_json_set(&a->of, "kv", json_string(tsr_plugin_kv_name(a->kv)));
    if (*a->kv_layers)
        tsr_json_set(&a->of, "kv_layers", json_string(a->kv_layers));
    if (a->tp.simulate_tp)
        tsr_json_set(&a->of, "simulated",
                     json_pack("{s:I, s:s, s:I, s:s, s:s*}", "ranks", (json_int_t)a->tp.simulate_tp,
                               "codec", a->tp.codec, "algorithm", (json_int_t)a->tp.algorithm,
                               "state", a->tp.codec_state, "calibration",
                               c->job->calibration ? c->job->calibration->hash : NULL));
    tsr_json_set(&a->of, "measured", how);
    tsr_json_set(&a->of, "seed", json_integer((json_int_t)c->job->seed));
    return a->of ? TSR_OK : tsr_fail_nomem(err, 256, "an arm");
}
