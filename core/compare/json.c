/* What a comparison found, as JSON (docs/formats/results.md). */
#include "base/json.h"
#include "compare/compare.h"
#include "quant/quantize.h"

#include <string.h>

static const char *const kinds[] = { "original", "quantize", "plan",  "model",
                                     "codec",    "rotate",   "cache", "inputs" };

/* Of one sequence as long as a window. */
static bool put_cache(json_t *j, const struct compare *c, const struct compare_arm *a)
{
    uint64_t weights, bytes;
    json_t  *o;
    if (*a->kv_layers && !tsr_pipeline_json_put_text(j, "kv_layers", a->kv_layers))
        return false;
    if (!a->engine || !c->windows)
        return !compare_arm_cache(a) ||
               tsr_pipeline_json_put_text(j, "kv", tsr_plugin_kv_name(a->kv));
    tsr_engine_memory(a->engine, &weights, &bytes);
    o = json_object();
    bool ok = tsr_pipeline_json_put_int(o, "bytes", bytes) &&
              tsr_pipeline_json_put_int(o, "positions", c->windows->window);
    return tsr_pipeline_json_put_text(j, "kv", tsr_plugin_kv_name(a->kv)) &&
           tsr_pipeline_json_put(j, "cache", o) && ok;
}

json_t *compare_arm_json(const struct compare *c, const struct compare_arm *a,
                         const struct tsr_eval_result *r, const struct tsr_eval_result *a8,
                         json_t *texts, json_t *questions, json_t *tasks)
{
    json_t  *j = json_object();
    uint64_t ran[3];
    bool     ok = tsr_pipeline_json_put_text(j, "name", a->name) &&
              tsr_pipeline_json_put_text(j, "kind", kinds[a->kind]) && compare_put_size(j, c, a) &&
              compare_put_resident(j, a, a->engine) && put_cache(j, c, a);
    if (a->act_bits)
        ok = ok && tsr_pipeline_json_put_int(j, "act_bits", a->act_bits);
    if (a->rotated)
        ok = ok && tsr_pipeline_json_put(j, "rotated", compare_rotation_json(c, a));
    if (a->kind == COMPARE_MODEL)
        ok = ok && tsr_pipeline_json_put_text(j, "model", a->path) &&
             tsr_pipeline_json_put_text(j, "model_hash", a->own->hash);
    if (a->ranks)
        ok = ok && tsr_pipeline_json_put(j, "simulated",
                                         tsr_pipeline_tp_json(a->ranks, compare_arm_model(c, a)));
    if (r)
        ok = ok && tsr_pipeline_eval_result_put(j, c->windows, r);
    if (a8) {
        json_t *o = json_object();
        tsr_engine_acts(a->layers_a8 ? tsr_eval_layers_engine(a->layers_a8) : a->engine_a8, ran);
        ok = tsr_pipeline_eval_result_put(o, c->windows, a8) &&
             tsr_pipeline_json_put_act(o, TSR_ACT_A8, ran) && ok;
        ok = tsr_pipeline_json_put(j, "a8", o) && ok;
    }
    if (json_array_size(texts)) {
        json_t *o = json_object();
        ok = tsr_pipeline_json_put_act(o, tsr_pipeline_act_ran((uint32_t)c->sample_act, a->sampled),
                                       a->sampled) &&
             ok;
        ok = tsr_pipeline_json_put(j, "samples_act", o) && ok;
        ok = ok && json_object_set(j, "samples", texts) == 0;
    }
    if (questions)
        ok = ok && json_object_set(j, "choices", questions) == 0;
    if (tasks)
        ok = ok && json_object_set(j, "tasks", tasks) == 0;
    json_decref(texts);
    json_decref(questions);
    json_decref(tasks);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static json_t *arm_json(const struct compare *c, const struct compare_arm *a)
{
    json_t *j = a->json ? tsr_json_copy(a->json) : json_object();
    bool    ok =
        tsr_pipeline_json_put_text(j, "name", a->name) &&
        tsr_pipeline_json_put_text(j, "kind", kinds[a->kind]) &&
        (!a->quantize || tsr_pipeline_json_put(j, "options", tsr_config_node_json(a->quantize)));
    if (a->status != TSR_OK)
        ok = ok && tsr_pipeline_json_put_text(j, "failed", a->error.text);
    else
        ok = ok && compare_put_stats(j, c, a);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static bool put_perplexity_of(json_t *j, const struct compare *c)
{
    char several[40];
    (void)snprintf(several, sizeof several, "%llu texts", (unsigned long long)c->n_texts);
    json_t *o = tsr_pipeline_windows_json(c->windows,
                                          c->base      ? c->measure.base
                                          : c->n_texts ? several
                                                       : c->eval.text,
                                          c->job->tokenizer);
    bool    ok = o && tsr_pipeline_json_put_int(o, "tokens", c->windows->tokens) &&
              tsr_pipeline_json_put_int(o, "scored", c->windows->scored) &&
              tsr_pipeline_json_put_text(o, "counted", c->windows->words ? "words" : "tokens") &&
              tsr_pipeline_json_put_text(o, "act", "f32") &&
              tsr_pipeline_json_put_text(o, "device", c->device) &&
              tsr_pipeline_json_put(o, "kl", json_boolean(c->measure.kl || c->base)) &&
              tsr_pipeline_json_put(o, "a8", json_boolean(c->measure.a8));
    return tsr_pipeline_json_put(j, "perplexity_of", o) && ok;
}

static bool put_speed_of(json_t *j, const struct compare *c)
{
    json_t *o = json_object();
    bool    ok =
        tsr_pipeline_json_put_int(o, "prompt", (uint64_t)c->speed.prompt) &&
        tsr_pipeline_json_put_int(o, "generate", (uint64_t)c->speed.generate) &&
        tsr_pipeline_json_put_int(o, "repeats", (uint64_t)c->speed.repeats) &&
        tsr_pipeline_json_put_int(o, "seed", c->job->seed) &&
        tsr_pipeline_json_put_int(o, "draws", TSR_COMPARE_DRAWS) &&
        tsr_pipeline_json_put_text(o, "act", tsr_plugin_act_name((uint32_t)c->speed.act)) &&
        tsr_pipeline_json_put_text(o, "device", c->device) &&
        tsr_pipeline_json_put_int(o, "threads",
                                  tsr_pool_threads(tsr_plugin_registry_pool(c->job->registry)));
    return tsr_pipeline_json_put(j, "speed_of", o) && ok;
}

static bool put_samples_of(json_t *j, const struct compare *c)
{
    json_t *o = json_object();
    bool    ok = tsr_pipeline_json_put_real(o, "temperature", c->sample.temperature) &&
              tsr_pipeline_json_put_int(o, "seed", c->job->seed) &&
              tsr_pipeline_json_put_text(o, "act", tsr_plugin_act_name((uint32_t)c->sample_act));
    return tsr_pipeline_json_put(j, "samples_of", o) && ok;
}

static bool put_choices_of(json_t *j, const struct compare *c)
{
    json_t *o = json_object();
    bool    ok = tsr_pipeline_json_put_text(o, "file", c->measure.choices) &&
              tsr_pipeline_json_put_text(o, "file_hash", c->choices->hash) &&
              tsr_pipeline_json_put_int(o, "questions", c->choices->n);
    return tsr_pipeline_json_put(j, "choices_of", o) && ok;
}

json_t *compare_json(const struct compare *c)
{
    json_t *j = json_object(), *arms = json_array();
    bool    ok = tsr_pipeline_json_put_int(j, "weights", c->weights) &&
              tsr_pipeline_json_put_real(j, "alpha", c->keys.alpha) &&
              tsr_pipeline_json_put_text(j, "reference", compare_reference_name(c));
    if (c->do_eval)
        ok = ok && put_perplexity_of(j, c);
    if (c->do_speed)
        ok = ok && put_speed_of(j, c);
    if (c->choices)
        ok = ok && put_choices_of(j, c);
    if (c->tasks)
        ok = ok && tsr_pipeline_json_put(j, "tasks_of", compare_tasks_of_json(c));
    if (c->keys.samples)
        ok = ok && put_samples_of(j, c);
    for (uint64_t i = 0; ok && i < c->n; i++)
        ok = json_array_append_new(arms, arm_json(c, &c->arms[i])) == 0;
    if (c->choices)
        ok = ok && compare_correct_choices(arms);
    ok = tsr_pipeline_json_put(j, "arms", arms) && ok;
    if (c->keys.by_layers)
        ok = ok && tsr_pipeline_json_put_int(j, "peak_memory_bytes", tsr_quant_memory_peak());
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}
