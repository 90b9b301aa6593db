/* eval: perplexity of the model as the steps before left it; with kl, also how far it is from the
 * original. */
#include "pipeline/codecs.h"
#include "pipeline/compensating.h"
#include "pipeline/step.h"

#include <stdlib.h>
#include <string.h>

struct eval_options {
    struct tsr_eval_keys eval;
    int32_t              kl;
    int64_t              act;

    struct tsr_compensate_keys compensation;
    struct tsr_tp_keys         tp;
};

#define S struct eval_options
static const struct tsr_option options[] = {
    TSR_EVAL_OPTIONS(S, eval),
    TSR_OPTION_BOOL(S, kl, 0, "Also mean KL and top-1 agreement with the original weights."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_F32, tsr_act_choices, "How activations enter packed weights."),
    TSR_COMPENSATE_OPTIONS(S, compensation, TSR_POSITIONS_ALL),
    TSR_TP_OPTIONS(S, tp),
};
#undef S

/* What one evaluation found beside its result. */
struct found {
    uint64_t                ran[3];
    struct tsr_compensating compensating;
    json_t                 *compensation; /* object with what was compensated, or empty */
    struct tsr_tp          *ranks;        /* that were simulated, or NULL */
};

static tsr_status evaluate(struct tsr_job *job, const struct eval_options *o,
                           const struct tsr_windows *w, struct tsr_eval_result *r, struct found *f,
                           struct tsr_err *err)
{
    struct tsr_engine        *e = NULL, *reference = NULL;
    struct tsr_engine_options eo = { .act = (uint32_t)o->act,
                                     .kv_dtype = TSR_F32,
                                     .slots = 1,
                                     .context = w->window },
                              plain = eo;
    plain.exact = true; /* the original as it is, also where its own weights are packed */
    plain.act = TSR_ACT_F32;
    const char *plan = o->compensation.compensate_plan;
    char       *path = *plan ? tsr_job_input(job, plan) : NULL;
    if (*plan && !path)
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_compensating_open(&f->compensating, &o->compensation, path, job->packed,
                                          job->model, job->seed, &eo.compensate, err);
    free(path);
    if (st == TSR_OK)
        st = tsr_tp_keys_open(job, &o->tp, job->model, job->overlay, (uint32_t)o->act, &f->ranks,
                              err);
    eo.split = f->ranks ? tsr_tp_split(f->ranks) : NULL;
    if (st == TSR_OK)
        st = tsr_engine_create(&e, job->registry, job->model, job->overlay, &eo, err);
    if (st == TSR_OK && o->kl)
        st = tsr_engine_create(&reference, job->registry, job->model, NULL, &plain, err);
    if (st == TSR_OK)
        tsr_engine_acts(e, f->ran);
    if (st == TSR_OK)
        st = tsr_eval_run(e, reference, tsr_registry_pool(job->registry), w, r, err);
    if (st == TSR_OK &&
        !tsr_compensating_put(f->compensation, &o->compensation, &f->compensating, e))
        st = tsr_fail_nomem(err, 0, "the results");
    tsr_engine_destroy(reference);
    tsr_engine_destroy(e);
    tsr_compensating_close(&f->compensating);
    return st;
}

static void print(const json_t *r, FILE *to)
{
    const json_t *kl = json_object_get(r, "kl");
    const char   *act = json_string_value(json_object_get(r, "act"));
    char          also[64];
    const json_t *tp = json_object_get(r, "simulated");
    const json_t *comp = json_object_get(r, "compensation"), *k = json_object_get(comp, "k");
    (void)fprintf(to, "perplexity %.6g  (%s on %s: %lld %s, window %lld, BOS %s, act %s%s)\n",
                  json_number_value(json_object_get(r, "perplexity")),
                  json_string_value(json_object_get(r, "protocol")),
                  json_string_value(json_object_get(r, "text")),
                  (long long)json_integer_value(json_object_get(r, "tokens")),
                  json_object_get(r, "words") ? "words" : "tokens",
                  (long long)json_integer_value(json_object_get(r, "window")),
                  json_string_value(json_object_get(r, "bos")), act, tsr_act_also(r, also));
    if (json_is_integer(k))
        (void)fprintf(to, "  with %lld of 1024 channels compensated (%s)\n",
                      (long long)json_integer_value(k),
                      json_string_value(json_object_get(comp, "select")));
    else if (comp)
        (void)fprintf(to, "  with the channels of a plan compensated\n");
    if (tp)
        (void)fprintf(to, "%lld ranks, simulated: %s sums by codec %s, %.4g bits a number\n",
                      (long long)json_integer_value(json_object_get(tp, "ranks")),
                      json_string_value(json_object_get(tp, "algorithm")),
                      json_string_value(json_object_get(tp, "codec")),
                      json_number_value(json_object_get(tp, "bits")));
    if (kl)
        (void)fprintf(to, "KL to the original: mean %.6g, max %.6g; same top-1 %.2f %%\n",
                      json_number_value(json_object_get(kl, "mean")),
                      json_number_value(json_object_get(kl, "max")),
                      100 * json_number_value(json_object_get(r, "top1")));
}

static tsr_status report(struct tsr_job *job, const struct eval_options *o,
                         const struct tsr_windows *w, const struct tsr_eval_result *r,
                         const struct found *f, struct tsr_err *err)
{
    json_t *j = tsr_windows_json(w, o->eval.text, job->tokenizer);
    if (j && f->ranks && !tsr_json_put(j, "simulated", tsr_tp_json(f->ranks, job->model))) {
        json_decref(j);
        j = NULL;
    }
    if (j && !(tsr_eval_result_put(j, w, r) && tsr_json_put_act(j, (uint32_t)o->act, f->ran) &&
               tsr_json_put(j, "quantized", json_boolean(job->overlay != NULL)) &&
               json_object_update(j, f->compensation) == 0)) {
        json_decref(j);
        j = NULL;
    }
    if (j && !job->json)
        print(j, stdout);
    return tsr_step_result(job, "eval", j, err);
}

static tsr_status run(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err)
{
    const struct eval_options *o = opts;
    struct tsr_windows        *w = NULL;
    struct tsr_eval_result     r;
    struct found               f = { .compensation = json_object() };
    (void)node;
    tsr_status st = tsr_step_need_tokenizer(job, "step 'eval'", err);
    char      *text = st == TSR_OK ? tsr_job_input(job, o->eval.text) : NULL;
    if (st == TSR_OK && (!text || !f.compensation))
        st = tsr_fail_nomem(err, 0, "a path");
    if (st == TSR_OK)
        st = tsr_eval_keys_windows(&o->eval, text, job->tokenizer, job->model, &w, err);
    free(text);
    if (st == TSR_OK)
        st = evaluate(job, o, w, &r, &f, err);
    if (st == TSR_OK)
        st = report(job, o, w, &r, &f, err);
    json_decref(f.compensation);
    tsr_tp_close(f.ranks);
    tsr_windows_destroy(w);
    return st;
}

static tsr_status check(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err)
{
    const struct eval_options *o = opts;
    (void)err;
    tsr_check_input(job, node, "text", d);
    tsr_tp_keys_check(job, &o->tp, node, d);
    return TSR_OK;
}

const struct tsr_step tsr_step_eval = {
    .name = "eval",
    .summary = "measures perplexity by a named protocol",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct eval_options),
    .check = check,
    .run = run,
    .print = print,
};
