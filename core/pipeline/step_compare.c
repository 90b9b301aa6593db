/* compare: the original and any number of quantized arms on the same text, prompts and machine,
 * in one table.  An arm that fails is reported as failed and the others go on. */
#include "base/log.h"
#include "base/mem.h"
#include "pipeline/compare.h"
#include "quant/scheme.h"

#include <stdlib.h>
#include <string.h>

#define ORIGINAL "original"

#define NODE_REQUIRED(S, f, h)                                                                     \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_NODE, .flags = TSR_OPT_REQUIRED,                    \
        .offset = TSR_FIELD(S, f, const struct tsr_node *)                                         \
    }

static const struct tsr_option options[] = {
    NODE_REQUIRED(struct compare_keys, arms, "A map: arm: {quantize: {use: ...}}."),
    TSR_OPTION_NODE(struct compare_keys, measure, "What to measure: perplexity, kl, speed."),
    TSR_OPTION_NODE(struct compare_keys, samples, "List of texts that every arm continues."),
    TSR_OPTION_NODE(struct compare_keys, sampling, "How: max_tokens, temperature, ..."),
};
static const struct tsr_option measure_options[] = {
    TSR_OPTION_NODE(struct measure_keys, perplexity, "text, protocol, rows, join, window."),
    TSR_OPTION_NODE(struct measure_keys, speed, "prompt, generate, repeats, act."),
    TSR_OPTION_BOOL(struct measure_keys, kl, 1,
                    "With perplexity: mean KL and top-1 agreement with the original."),
    TSR_OPTION_BOOL(struct measure_keys, a8, 0,
                    "With perplexity: also with int8 activations, for packed arms."),
};
static const struct tsr_option speed_options[] = {
    TSR_OPTION_INT(struct speed_keys, prompt, 256, 1, 1 << 20, "tokens", "Tokens of prefill."),
    TSR_OPTION_INT(struct speed_keys, generate, 64, 1, 1 << 20, "tokens", "Tokens of decode."),
    TSR_OPTION_INT(struct speed_keys, repeats, 5, 1, 1000, NULL, "Runs; the median is given."),
    TSR_OPTION_ENUM(struct speed_keys, act, TSR_ACT_A8, tsr_act_choices,
                    "How activations enter packed weights."),
};
struct eval_keys_only {
    struct tsr_eval_keys eval;
};
static const struct tsr_option eval_options[] = { TSR_EVAL_OPTIONS(struct eval_keys_only, eval) };
struct sample_keys_only {
    struct tsr_sample_keys sample;
};
static const struct tsr_option sample_options[] = {
    TSR_SAMPLE_OPTIONS(struct sample_keys_only, sample),
};
struct arm_keys {
    const struct tsr_node *quantize;
};
static const struct tsr_option arm_options[] = {
    NODE_REQUIRED(struct arm_keys, quantize, "A scheme: {use: rtn, bits: 4}."),
};

#define FILL(table, into_, map, what, d)                                                           \
    do {                                                                                           \
        struct tsr_optset set_ = { table, sizeof(table) / sizeof *(table), sizeof *(table),        \
                                   into_ };                                                        \
        tsr_options_fill(&set_, 1, NULL, map, what, d);                                            \
    } while (0)

/* ---- reading ----------------------------------------------------------------------- */

static void read_measure(struct compare *c, struct tsr_diag *d)
{
    FILL(measure_options, &c->measure, c->keys.measure, "'measure'", d);
    c->do_eval = c->measure.perplexity != NULL;
    c->do_speed = c->measure.speed != NULL;
    if (c->do_eval)
        FILL(eval_options, &c->eval, c->measure.perplexity, "'perplexity'", d);
    if (c->do_speed)
        FILL(speed_options, &c->speed, c->measure.speed, "'speed'", d);
    FILL(sample_options, &c->sample, c->keys.sampling, "'sampling'", d);
    tsr_check_strings(c->keys.samples, "samples", d);
}

static void arm_what(char what[96], const char *name)
{
    (void)snprintf(what, 96, "arm '%.60s'", name);
}

static tsr_status read_arms(struct compare *c, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_node *map = c->keys.arms;
    uint64_t               n = map && map->kind == TSR_NODE_MAP ? map->n : 0;
    if (map && map->kind != TSR_NODE_MAP)
        tsr_diag_error(d, &map->mark, "write arms: {name: {quantize: {use: rtn}}}",
                       "'arms' is not a map");
    c->arms = tsr_new(n + 1, sizeof *c->arms);
    if (!c->arms)
        return tsr_fail_nomem(err, (n + 1) * sizeof *c->arms, "arms");
    c->n = n + 1;
    for (uint64_t i = 0; i < c->n; i++)
        c->arms[i].error = (struct tsr_errbuf)TSR_ERRBUF(c->arms[i].error);
    c->arms[0].name = ORIGINAL;
    for (uint64_t i = 0; i < n; i++) {
        struct arm_keys k = { 0 };
        char            what[96];
        c->arms[i + 1].name = map->keys[i]->text;
        arm_what(what, map->keys[i]->text);
        if (strcmp(map->keys[i]->text, ORIGINAL) == 0)
            tsr_diag_error(d, &map->keys[i]->mark, NULL,
                           "arm '" ORIGINAL "' is always there: the "
                           "model as it is; choose another name");
        FILL(arm_options, &k, map->items[i], what, d);
        c->arms[i + 1].quantize = k.quantize;
    }
    return TSR_OK;
}

static tsr_status read_all(struct compare *c, struct tsr_job *job, const struct compare_keys *k,
                           struct tsr_diag *d, struct tsr_err *err)
{
    c->job = job;
    c->keys = *k;
    read_measure(c, d);
    return read_arms(c, d, err);
}

static void stop_engines(struct compare_arm *a)
{
    tsr_engine_destroy(a->engine);
    tsr_engine_destroy(a->engine_a8);
    a->engine = a->engine_a8 = NULL;
}

static void release(struct compare *c)
{
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        stop_engines(a);
        tsr_overlay_destroy(a->overlay);
        json_decref(a->texts);
        free(a->prefill);
        free(a->decode);
    }
    tsr_windows_destroy(c->windows);
    free(c->arms);
}

static tsr_status check(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err)
{
    struct compare c = { 0 };
    (void)node;
    tsr_status st = read_all(&c, job, opts, d, err);
    tsr_check_input(job, c.measure.perplexity, "text", d);
    for (uint64_t i = 1; i < c.n && st == TSR_OK; i++) {
        struct tsr_scheme *s = NULL;
        char               what[96];
        arm_what(what, c.arms[i].name);
        if (c.arms[i].quantize)
            st = tsr_scheme_create(&s, job->registry, c.arms[i].quantize, NULL, what, d, err);
        tsr_scheme_destroy(s);
    }
    release(&c);
    return st;
}

/* ---- running ------------------------------------------------------------------------ */

tsr_status compare_arm_failed(struct compare_arm *a, tsr_status st, const char *text,
                              struct tsr_err *err)
{
    if (st == TSR_E_CANCELLED || st == TSR_E_NOMEM)
        return tsr_fail(err, st, "arm '%s': %s", a->name, text);
    if (a->status == TSR_OK) {
        a->status = st;
        (void)tsr_fail(&a->error.err, st, "%s", text);
        tsr_logf(TSR_LOG_WARN, "arm '%s' failed: %s", a->name, text);
    }
    return TSR_OK;
}

static tsr_status make_scheme(struct compare *c, const struct compare_arm *a, struct tsr_scheme **s,
                              struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    char             what[96];
    arm_what(what, a->name);
    *s = NULL;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = tsr_scheme_create(s, c->job->registry, a->quantize, NULL, what, d, err);
    if (st == TSR_OK)
        st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    return st;
}

static tsr_status quantize_arm(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    struct tsr_scheme *s;
    tsr_status         st = make_scheme(c, a, &s, err);
    if (st == TSR_OK)
        st = tsr_scheme_apply(s, c->job->registry, c->job->model, c->job->calibration, &a->overlay,
                              err);
    tsr_scheme_destroy(s);
    return st;
}

static tsr_status quantize(struct compare *c, struct tsr_err *err)
{
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        struct tsr_errbuf   e = TSR_ERRBUF(e);
        uint64_t            weights;
        tsr_status          st = a->quantize ? quantize_arm(c, a, &e.err) : TSR_OK;
        if (st != TSR_OK) {
            TSR_TRY(compare_arm_failed(a, st, e.text, err));
            continue;
        }
        tsr_overlay_size(c->job->model, a->overlay, &weights, &a->bytes);
        a->bits = 8.0 * (double)a->bytes / (double)weights;
        if (i == 0)
            c->weights = weights;
    }
    return TSR_OK;
}

/* An engine for the arm's evaluation, and its place in the list. */
static tsr_status list_arm(struct compare *c, struct compare_arm *a, uint32_t act,
                           struct tsr_engine **e, struct tsr_eval_arm *list, uint64_t *n,
                           struct tsr_err *err)
{
    struct tsr_engine_options eo = {
        .act = act, .kv_dtype = TSR_F32, .slots = 1, .context = c->windows->window
    };
    TSR_TRY(tsr_engine_create(e, c->job->registry, c->job->model, a->overlay, &eo, err));
    list[(*n)++] = (struct tsr_eval_arm){ .name = a->name, .engine = *e };
    return TSR_OK;
}

/* What the list found for an engine, if the arm has it; the first failure is the arm's. */
static tsr_status take(struct compare_arm *a, const struct tsr_engine *e,
                       const struct tsr_eval_arm **next, struct tsr_eval_result *result, bool *has,
                       struct tsr_err *err)
{
    if (!e)
        return TSR_OK;
    const struct tsr_eval_arm *found = (*next)++;
    if (found->status != TSR_OK)
        return compare_arm_failed(a, found->status, found->error.text, err);
    *result = found->result;
    *has = true;
    return TSR_OK;
}

static tsr_status evaluate_arms(struct compare *c, struct tsr_eval_arm *list, struct tsr_err *err)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        struct tsr_errbuf   e = TSR_ERRBUF(e);
        if (a->status != TSR_OK)
            continue;
        tsr_status st = list_arm(c, a, TSR_ACT_F32, &a->engine, list, &n, &e.err);
        if (st == TSR_OK && a->overlay && c->measure.a8)
            st = list_arm(c, a, TSR_ACT_A8, &a->engine_a8, list, &n, &e.err);
        if (st != TSR_OK && i == 0)
            return tsr_fail(err, st, "%s", e.text);
        if (st != TSR_OK)
            TSR_TRY(compare_arm_failed(a, st, e.text, err));
    }
    (void)snprintf(c->device, sizeof c->device, "%s", tsr_engine_device(c->arms[0].engine));
    TSR_TRY(tsr_eval_arms(list, n, c->measure.kl ? 0 : n, tsr_registry_pool(c->job->registry),
                          c->windows, err));
    const struct tsr_eval_arm *next = list;
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        TSR_TRY(take(a, a->engine, &next, &a->eval, &a->has_eval, err));
        TSR_TRY(take(a, a->engine_a8, &next, &a->a8, &a->has_a8, err));
    }
    return TSR_OK;
}

static tsr_status evaluate(struct compare *c, struct tsr_err *err)
{
    TSR_TRY(tsr_step_need_tokenizer(c->job, "perplexity", err));
    char                *text = tsr_job_input(c->job, c->eval.text);
    struct tsr_eval_arm *list = tsr_new(2 * c->n, sizeof *list);
    tsr_status st = text && list ? TSR_OK : tsr_fail_nomem(err, c->n * sizeof *list, "arms");
    if (st == TSR_OK)
        st = tsr_eval_keys_windows(&c->eval, text, c->job->tokenizer, c->job->model, &c->windows,
                                   err);
    if (st == TSR_OK)
        st = evaluate_arms(c, list, err);
    free(text);
    free(list);
    for (uint64_t i = 0; i < c->n; i++)
        stop_engines(&c->arms[i]);
    return st;
}

static tsr_status sample(struct compare *c, struct tsr_err *err)
{
    TSR_TRY(tsr_step_need_tokenizer(c->job, "samples", err));
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        struct tsr_errbuf   e = TSR_ERRBUF(e);
        if (a->status != TSR_OK)
            continue;
        a->texts = json_array();
        tsr_status st = a->texts ? tsr_sample_texts(c->job, a->overlay, c->keys.samples, &c->sample,
                                                    c->job->seed, a->texts, &e.err)
                                 : tsr_fail_nomem(&e.err, 0, "samples");
        if (st != TSR_OK)
            TSR_TRY(compare_arm_failed(a, st, e.text, err));
    }
    return TSR_OK;
}

static tsr_status run_all(struct compare *c, struct tsr_err *err)
{
    TSR_TRY(tsr_job_need_model(c->job, err));
    TSR_TRY(quantize(c, err));
    if (c->do_eval)
        TSR_TRY(evaluate(c, err));
    if (c->do_speed)
        TSR_TRY(compare_speed(c, err));
    if (c->keys.samples)
        TSR_TRY(sample(c, err));
    json_t *j = compare_json(c);
    if (j && !c->job->json)
        compare_print(j, stdout);
    return tsr_step_result(c->job, "compare", j, err);
}

/* What all arms together need.  An arm that cannot work says so in its turn. */
static tsr_status need(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                       uint64_t *need, struct tsr_err *err)
{
    struct compare   c = { 0 };
    struct tsr_diag *d = NULL;
    (void)node;
    *need = 0;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = read_all(&c, job, opts, d, err);
    tsr_diag_destroy(d);
    for (uint64_t i = 1; i < c.n && st == TSR_OK; i++) {
        struct tsr_errbuf  e = TSR_ERRBUF(e);
        struct tsr_scheme *s;
        uint64_t           one = 0;
        tsr_status         arm = make_scheme(&c, &c.arms[i], &s, &e.err);
        if (arm == TSR_OK)
            arm = tsr_scheme_needs(s, job->registry, job->model, &one, &e.err);
        tsr_scheme_destroy(s);
        *need |= one;
        if (arm == TSR_E_NOMEM)
            st = tsr_fail(err, arm, "%s", e.text);
    }
    release(&c);
    return st;
}

static tsr_status run(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err)
{
    struct compare   c = { 0 };
    struct tsr_diag *d = NULL;
    (void)node;
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = read_all(&c, job, opts, d, err);
    if (st == TSR_OK)
        st = tsr_diag_status(d, err);
    tsr_diag_destroy(d);
    if (st == TSR_OK)
        st = run_all(&c, err);
    release(&c);
    return st;
}

const struct tsr_step tsr_step_compare = {
    .name = "compare",
    .summary = "measures quantized arms beside the original, in one table",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct compare_keys),
    .check = check,
    .run = run,
    .need = need,
    .print = compare_print,
};
