/* What an evaluation found. */
#include "pipeline/steps/eval_step.h"

#include "quant/quantize.h"

#include <math.h>

static bool put_questions(json_t *j, const struct eval_step *e)
{
    json_t *o =
        tsr_compare_choices_json(&e->marks, e->reference ? &e->reference_marks : NULL, EVAL_ALPHA);
    bool ok = tsr_pipeline_json_put_text(o, "file", e->o->choices) &&
              tsr_pipeline_json_put_text(o, "file_hash", e->questions->hash);
    return tsr_pipeline_json_put(j, "choices", o) && ok;
}

/* The manifest's facts, for a call without a manifest. */
static bool put_model(json_t *j, const struct eval_step *e)
{
    return !e->job->loose || (tsr_pipeline_json_put_text(j, "model", e->job->model_path) &&
                              tsr_pipeline_json_put_text(j, "model_hash", e->job->model->hash));
}

static bool put_against(json_t *j, const struct eval_step *e)
{
    const struct eval_step_keys *o = e->o;
    json_t                      *r;
    if (!*o->against)
        return true;
    bool ok =
        tsr_pipeline_json_put_text(j, "against", o->against) &&
        tsr_pipeline_json_put_text(j, "against_hash", e->other ? e->other->hash : e->base->hash);
    if (ok && e->other) {
        r = json_object();
        ok = tsr_pipeline_json_put_text(r, "model", o->against) &&
             tsr_pipeline_json_put_text(r, "model_hash", e->other->hash) &&
             tsr_pipeline_running_put_plain(r, e->job, e->reference_ran);
        ok = tsr_pipeline_json_put(j, "reference", r) && ok;
    }
    return ok && (e->questions || tsr_compare_json_put_difference(j, "delta", &e->paired.delta));
}

json_t *eval_result_json(const struct eval_step *e)
{
    const struct eval_step_keys *o = e->o;
    const char                  *text = e->base ? o->against : o->eval.text;
    bool                         asked = e->questions || e->tasks;
    json_t                      *j =
        asked ? json_object() : tsr_pipeline_windows_json(e->windows, text, e->job->tokenizer);
    if (j &&
        (!e->ranks ||
         tsr_pipeline_json_put(j, "simulated", tsr_pipeline_tp_json(e->ranks, e->job->model))) &&
        (e->tasks       ? tsr_pipeline_json_put(j, "tasks", tsr_pipeline_tasks_json(e->tasks))
         : e->questions ? put_questions(j, e)
                        : tsr_pipeline_eval_result_put(j, e->windows, &e->result)) &&
        put_model(j, e) && tsr_pipeline_running_put(j, e->job, &o->run, &e->running, e->ran) &&
        (!e->layers || !e->job->loose ||
         tsr_pipeline_json_put_int(j, "peak_memory_bytes", tsr_quant_memory_peak())) &&
        tsr_pipeline_json_put(j, "quantized", json_boolean(e->job->overlay || e->packed)) &&
        put_against(j, e))
        return j;
    json_decref(j);
    return NULL;
}

/* ---- for people --------------------------------------------------------------------- */

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

static long long int_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static double real_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* "act a8, f32 on 2 packed linears, KV int8, numerics exact", as far as known here. */
static void print_ran(const json_t *r, FILE *to)
{
    char also[64];
    (void)fprintf(to, "act %s%s", text_of(r, "act"), tsr_pipeline_act_also(r, also));
    if (json_object_get(r, "kv"))
        (void)fprintf(to, ", KV %s, numerics %s", text_of(r, "kv"), text_of(r, "numerics"));
}

/* What the model is compared with, and how that ran. */
static void print_reference(const json_t *r, FILE *to)
{
    const json_t *reference = json_object_get(r, "reference");
    if (!json_object_get(r, "against")) {
        (void)fputs("the original", to);
        return;
    }
    (void)fputs(text_of(r, "against"), to);
    if (reference && json_object_get(reference, "kv")) {
        (void)fputs(" (", to);
        print_ran(reference, to);
        (void)fputs(")", to);
    }
}

static void print_questions(const json_t *r, FILE *to)
{
    const json_t *c = json_object_get(r, "choices");
    long long     n = int_of(c, "questions"), only = int_of(c, "only_arm"),
              others = int_of(c, "only_reference");
    (void)fprintf(to, "accuracy %.2f %% [%.2f, %.2f]: %lld of %lld questions; by length %.2f %%  (",
                  100 * real_of(c, "accuracy"), 100 * real_of(c, "low"), 100 * real_of(c, "high"),
                  int_of(c, "right"), n,
                  100 * real_of(json_object_get(c, "normalized"), "accuracy"));
    print_ran(r, to);
    (void)fputs(")\n", to);
    if (!json_object_get(c, "only_arm"))
        return;
    print_reference(r, to);
    (void)fprintf(
        to, ": %.2f %%; only the model is right in %lld, only the other in %lld; McNemar p %.3g\n",
        100 * (double)(int_of(c, "right") - only + others) / (double)n, only, others,
        real_of(c, "p"));
}

static void print_compensation(const json_t *comp, FILE *to)
{
    const json_t *k = json_object_get(comp, "k");
    if (json_is_integer(k))
        (void)fprintf(to, "  with %lld of 1024 channels compensated (%s)\n",
                      (long long)json_integer_value(k), text_of(comp, "select"));
    else if (comp)
        (void)fprintf(to, "  with the channels of a plan compensated\n");
}

static void print_kl(const json_t *r, FILE *to)
{
    const json_t *kl = json_object_get(r, "kl");
    if (!kl)
        return;
    (void)fputs("KL to ", to);
    print_reference(r, to);
    (void)fprintf(to, ": mean %.6g, median %.6g, 99%% %.6g, max %.6g; same top-1 %.2f %%\n",
                  real_of(kl, "mean"), real_of(kl, "median"), real_of(kl, "p99"),
                  real_of(kl, "max"), 100 * real_of(r, "top1"));
}

void eval_result_print(const json_t *r, FILE *to)
{
    const json_t *tp = json_object_get(r, "simulated");
    bool          words = json_object_get(r, "words") != NULL;
    if (json_object_get(r, "tasks")) {
        tsr_pipeline_tasks_print(json_object_get(r, "tasks"), to);
        return;
    }
    if (json_object_get(r, "choices")) {
        print_questions(r, to);
        return;
    }
    (void)fprintf(to, "perplexity %.6g  (%s on %s: %lld %s, %lld windows of %lld, BOS %s, ",
                  real_of(r, "perplexity"), text_of(r, "protocol"), text_of(r, "text"),
                  int_of(r, "tokens"), words ? "words" : "tokens", int_of(r, "windows"),
                  int_of(r, "window"), text_of(r, "bos"));
    print_ran(r, to);
    (void)fputs(")\n", to);
    print_compensation(json_object_get(r, "compensation"), to);
    if (tp)
        (void)fprintf(to, "%lld ranks, simulated: %s sums by codec %s, %.4g bits a number\n",
                      int_of(tp, "ranks"), text_of(tp, "algorithm"), text_of(tp, "codec"),
                      real_of(tp, "bits"));
    if (words)
        (void)fprintf(to, "byte perplexity %.6g, bits per byte %.6g\n",
                      real_of(r, "byte_perplexity"), real_of(r, "bits_per_byte"));
    print_kl(r, to);
}
