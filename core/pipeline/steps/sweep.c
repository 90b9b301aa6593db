/* sweep: perplexity against compensated channels, by ways to select, and at target slow-downs. */
#include "pipeline/steps/sweep.h"

#include "compare/compare.h"
#include "pipeline/steps/sweep_answers.h"

#include "base/mem.h"
#include "compensate/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIMED   32u /* tokens of a pass that a target's slow-down is measured on */
#define PROFILE "sweep-profile.json"

#define S struct tsr_step_sweep_options
static const struct tsr_option options[] = {
    TSR_PIPELINE_EVAL_OPTIONS(S, eval),
    TSR_OPTION_LIST(S, channels, "0,8,16,32,64,128", "Channels of 1024, ascending from 0."),
    TSR_OPTION_LIST(S, select, "dynamic", "Ways to select, of the options of eval, by commas."),
    TSR_OPTION_STRING(S, targets, "",
                      "Slow-downs in percent, as in 2.5,5,10,20: the step tune for each, and the "
                      "perplexity of what it finds; the times are written to " PROFILE "."),
    TSR_OPTION_PATH(S, choices, "", "FILE",
                    "File of multiple-choice questions, as for eval --choices: their accuracy "
                    "next to each perplexity."),
    TSR_OPTION_INT(S, answers, 0, 0, 100000, "prompts",
                   "Prompts from the text that are continued by 32 tokens: the share of them that "
                   "the model before it was quantized, reading the same, ranks first, too."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_F32, tsr_act_choices, "How activations enter packed weights."),
    TSR_OPTION_INT(S, repeats, 20, 1, 100000, NULL, "targets: passes of a measurement."),
};
#undef S

/* ---- lists ----------------------------------------------------------------------------------- */

static bool read_channels(const char *text, uint32_t *k, uint64_t *n)
{
    for (const char *s = text;; s++) {
        char         *end;
        unsigned long v = *s >= '0' && *s <= '9' ? strtoul(s, &end, 10) : 9999;
        if (v > TSR_COMPENSATE_CHUNK || *n == TSR_SWEEP_MOST || (*n ? v <= k[*n - 1] : v != 0))
            return false;
        k[(*n)++] = (uint32_t)v;
        s = end;
        if (*s == '\0')
            return true;
        if (*s != ',')
            return false;
    }
}

static bool read_targets(const char *text, double *t, uint64_t *n)
{
    for (const char *s = text; *s; s++) {
        char  *end;
        double v = strtod(s, &end);
        if (end == s || !(v > 0 && v <= 1000) || *n == TSR_SWEEP_MOST)
            return false;
        t[(*n)++] = v;
        s = end;
        if (*s == '\0')
            return true;
        if (*s != ',')
            return false;
    }
    return true;
}

static bool read_selects(const char *text, int *v, uint64_t *n)
{
    for (const char *s = text;; s++) {
        size_t len = strcspn(s, ",");
        int    which = 0;
        while (which < 5 && (strlen(tsr_compensate_select_choices[which].name) != len ||
                             memcmp(tsr_compensate_select_choices[which].name, s, len) != 0))
            which++;
        if (which == 5 || *n == 5)
            return false;
        v[(*n)++] = which;
        s += len;
        if (*s == '\0')
            return true;
    }
}

/* *key: the option that is wrong. */
static tsr_status read_lists(struct tsr_step_sweep_run *x, const char **key, struct tsr_err *err)
{
    *key = "channels";
    if (!read_channels(x->o->channels, x->k, &x->n_k))
        return tsr_fail(
            err, TSR_E_INPUT,
            "channels: '%.60s' is not an ascending list of at most %u numbers from 0 to 1024 "
            "that begins with 0",
            x->o->channels, TSR_SWEEP_MOST);
    *key = "select";
    if (!read_selects(x->o->select, x->select, &x->n_select))
        return tsr_fail(
            err, TSR_E_INPUT,
            "select: '%.60s' is not a list of dynamic, exact, random, static-meansq and "
            "static-hessian",
            x->o->select);
    *key = "targets";
    if (!read_targets(x->o->targets, x->target, &x->n_target))
        return tsr_fail(err, TSR_E_INPUT, "targets: '%.60s' is not a list of percents above 0",
                        x->o->targets);
    return TSR_OK;
}

/* ---- running ----------------------------------------------------------------------------------- */

/* all: compensates every token, else only generated ones. */
static tsr_status create(struct tsr_step_sweep_run *x, int select, bool all, struct tsr_engine **e,
                         struct tsr_err *err)
{
    struct tsr_engine_compensate use = { .from = x->c,
                                         .each =
                                             x->n_target ? TSR_COMPENSATE_CHUNK : x->k[x->n_k - 1],
                                         .select = (enum tsr_compensate_select)select,
                                         .all = all,
                                         .recall = all,
                                         .seed = x->job->seed };
    struct tsr_engine_options    eo = { .on = x->job->on,
                                        .act = (uint32_t)x->o->act,
                                        .kv_dtype = TSR_F32,
                                        .slots = 1,
                                        .context = all ? x->context : TSR_ANSWER_CONTEXT,
                                        .compensate = &use };
    return tsr_engine_create(e, x->job->registry, x->job->model, x->job->overlay, &eo, err);
}

/* What the engine is set to; the point's other members are the caller's. */
static tsr_status evaluate(struct tsr_step_sweep_run *x, struct tsr_engine *e,
                           struct tsr_step_sweep_point *p, struct tsr_err *err)
{
    struct tsr_engine_compensated before, after;
    struct tsr_eval_arm           arm = { .name = "sweep", .engine = e };
    arm.error = (struct tsr_errbuf)TSR_ERRBUF(arm.error);
    tsr_engine_compensation(e, &before);
    tsr_status st =
        tsr_eval_arms(&arm, 1, 1, tsr_plugin_registry_pool(x->job->registry), x->w, err);
    if (st == TSR_OK && arm.status != TSR_OK)
        st = tsr_err_copy(err, arm.status, &arm.error.err);
    tsr_engine_compensation(e, &after);
    p->result = arm.result;
    p->nll = arm.at.nll;
    arm.at.nll = NULL;
    p->recall = after.exact > before.exact
                    ? (double)(after.common - before.common) / (double)(after.exact - before.exact)
                    : NAN;
    tsr_eval_trace_free(&arm.at);
    if (st == TSR_OK && x->questions)
        st = tsr_eval_choices_score(e, x->job->tokenizer, x->questions, &p->marks, err);
    return st;
}

/* Answers come from a separate engine, because prompts are not compensated there. */
static tsr_status answer(struct tsr_step_sweep_run *x, struct tsr_engine *e,
                         struct tsr_step_sweep_point *p, struct tsr_err *err)
{
    uint64_t n = (uint64_t)x->o->answers;
    p->same = tsr_new(n * TSR_ANSWER_TOKENS, 1);
    if (!p->same)
        return tsr_fail_nomem(err, n * TSR_ANSWER_TOKENS, "answers");
    TSR_TRY(tsr_engine_compensate_k(e, NULL, (uint32_t)p->k, err));
    TSR_TRY(tsr_step_sweep_answers(e, x->judge, x->w, n, p->same, err));
    return tsr_step_sweep_answers_compare(p->same, p->k > 0 ? x->point[0].same : NULL, n,
                                          TSR_SWEEP_ALPHA, &p->agreement, &p->agreement_delta, err);
}

static tsr_status run_select(struct tsr_step_sweep_run *x, int select, struct tsr_err *err)
{
    struct tsr_engine *e = NULL, *writer = NULL;
    TSR_TRY(create(x, select, true, &e, err));
    tsr_engine_acts(e, x->ran); /* the same whatever is selected */
    tsr_status st = x->judge ? create(x, select, false, &writer, err) : TSR_OK;
    for (uint64_t i = 0; i < x->n_k && st == TSR_OK; i++) {
        if (x->k[i] == 0 && x->n > 0)
            continue; /* the same whatever is selected */
        struct tsr_step_sweep_point *p = &x->point[x->n++];
        *p = (struct tsr_step_sweep_point){ .select = select, .k = x->k[i] };
        for (int s = 0; s < TSR_MODEL_SITES; s++)
            p->site[s] = x->k[i];
        st = tsr_engine_compensate_k(e, NULL, x->k[i], err);
        if (st == TSR_OK)
            st = evaluate(x, e, p, err);
        if (st == TSR_OK && writer)
            st = answer(x, writer, p, err);
    }
    tsr_engine_destroy(writer);
    tsr_engine_destroy(e);
    return st;
}

/* e: for perplexity; timed: as tokens are decoded. */
static tsr_status run_target(struct tsr_step_sweep_run *x, struct tsr_engine *e,
                             struct tsr_engine *timed, const struct tsr_compensate_tune_table *t,
                             double percent, struct tsr_err *err)
{
    struct tsr_compensate_tune_result r;
    struct tsr_step_sweep_point      *p = &x->point[x->n++];
    *p = (struct tsr_step_sweep_point){ .select = -1, .k = percent };
    TSR_TRY(tsr_compensate_tune(t, percent / 100, 0, TSR_COMPENSATE_FREEZE_RETRY, &r, err));
    tsr_step_tuning_sites(t, &r, p->site);
    p->base = r.base;
    p->ms = r.total;
    uint32_t(*k)[TSR_MODEL_SITES] = tsr_new(x->job->model->hp.layers, sizeof *k);
    if (!k)
        return tsr_fail_nomem(err, x->job->model->hp.layers * sizeof *k, "channels");
    for (uint64_t l = 0; l < x->job->model->hp.layers; l++)
        memcpy(k[l], p->site, sizeof p->site);
    tsr_status st = tsr_step_tuning_decode(timed, x->job->model->hp.vocab,
                                           (const uint32_t(*)[TSR_MODEL_SITES])k, TIMED,
                                           (uint32_t)x->o->repeats, &p->decoded, err);
    if (st == TSR_OK)
        st = tsr_engine_compensate_k(e, (const uint32_t(*)[TSR_MODEL_SITES])k, 0, err);
    free(k);
    return st == TSR_OK ? evaluate(x, e, p, err) : st;
}

static tsr_status run_targets(struct tsr_step_sweep_run *x, struct tsr_err *err)
{
    struct tsr_compensate_tune_table t;
    struct tsr_engine               *e = NULL, *timed = NULL;
    struct tsr_engine_compensate     use = { .from = x->c, .each = TSR_COMPENSATE_CHUNK };
    struct tsr_engine_options        eo = { .on = x->job->on,
                                            .act = TSR_ACT_A8,
                                            .kv_dtype = TSR_F32,
                                            .slots = 1,
                                            .context = TIMED + 1,
                                            .compensate = &use };
    if (x->n_target == 0)
        return TSR_OK;
    TSR_TRY(tsr_step_tuning_measure(&t, x->job->registry, x->job->model, x->job->overlay, x->c,
                                    &x->job->on, TSR_ACT_A8, (uint32_t)x->o->repeats, err));
    tsr_status st = tsr_step_tuning_store(&t, x->job, PROFILE, err);
    if (st == TSR_OK)
        st = create(x, TSR_COMPENSATE_SELECT_DYNAMIC, true, &e, err);
    if (st == TSR_OK)
        st = tsr_engine_create(&timed, x->job->registry, x->job->model, x->job->overlay, &eo, err);
    for (uint64_t i = 0; i < x->n_target && st == TSR_OK; i++)
        st = run_target(x, e, timed, &t, x->target[i], err);
    tsr_engine_destroy(timed);
    tsr_engine_destroy(e);
    tsr_compensate_tune_free(&t);
    return st;
}

static tsr_status load_questions(struct tsr_step_sweep_run *x, struct tsr_err *err)
{
    uint64_t context;
    char    *path = tsr_pipeline_job_input(x->job, x->o->choices);
    if (!path)
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_eval_choices_load(&x->questions, path, err);
    free(path);
    TSR_TRY(st);
    TSR_TRY(
        tsr_eval_choices_context(x->questions, x->job->tokenizer, x->job->model, &context, err));
    x->context = context > x->context ? context : x->context;
    return TSR_OK;
}

/* The model without its packed linears. */
static tsr_status open_judge(struct tsr_step_sweep_run *x, struct tsr_err *err)
{
    struct tsr_engine_options eo = { .on = x->job->on,
                                     .act = TSR_ACT_F32,
                                     .kv_dtype = TSR_F32,
                                     .slots = 1,
                                     .context = TSR_ANSWER_CONTEXT };
    if (!x->job->overlay)
        return tsr_fail(err, TSR_E_CONFIG,
                        "answers: %s holds no other weights than its packed ones to judge them by; "
                        "run sweep after quantize in a job on the original",
                        x->job->model->path);
    return tsr_engine_create(&x->judge, x->job->registry, x->job->model, NULL, &eo, err);
}

static tsr_status sweep(struct tsr_step_sweep_run *x, struct tsr_err *err)
{
    char *text = tsr_pipeline_job_input(x->job, x->o->eval.text);
    if (!text)
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_pipeline_eval_keys_windows(&x->o->eval, text, x->job->tokenizer,
                                                   x->job->model, &x->w, err);
    free(text);
    TSR_TRY(st);
    x->context = x->w->window;
    if (*x->o->choices)
        TSR_TRY(load_questions(x, err));
    if (x->o->answers)
        TSR_TRY(open_judge(x, err));
    TSR_TRY(tsr_eval_window_offsets(x->w, &x->start, err));
    x->d = tsr_new(x->w->scored, sizeof *x->d);
    if (!x->d)
        return tsr_fail_nomem(err, x->w->scored * sizeof *x->d, "differences");
    TSR_TRY(x->job->packed ? tsr_compensation_open(&x->c, x->job->packed, x->job->model, err)
                           : tsr_compensation_of_model(&x->c, x->job->model, err));
    for (uint64_t i = 0; i < x->n_select; i++)
        TSR_TRY(run_select(x, x->select[i], err));
    TSR_TRY(run_targets(x, err));
    TSR_TRY(tsr_pipeline_mapped_unchanged(x->job->model, x->c, err));
    json_t *j = tsr_step_sweep_json(x);
    if (j && !x->job->json)
        tsr_step_sweep_print(j, stdout);
    return tsr_pipeline_step_result(x->job, "sweep", j, err);
}

static void point_free(struct tsr_step_sweep_point *p)
{
    free(p->nll);
    free(p->same);
    tsr_eval_choice_marks_free(&p->marks);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    (void)node;
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, "step 'sweep'", err));
    struct tsr_step_sweep_run *x = tsr_new(1, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, sizeof *x, "a sweep");
    x->job = job;
    x->o = opts;
    const char *key;
    tsr_status  st = read_lists(x, &key, err);
    if (st == TSR_OK)
        st = sweep(x, err);
    for (uint64_t i = 0; i < x->n; i++)
        point_free(&x->point[i]);
    tsr_compensation_destroy(x->c);
    tsr_eval_windows_destroy(x->w);
    tsr_eval_choices_destroy(x->questions);
    tsr_engine_destroy(x->judge);
    free(x->start);
    free(x->d);
    free(x);
    return st;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_step_sweep_run *x = tsr_new(1, sizeof *x);
    struct tsr_errbuf          why = TSR_ERRBUF(why);
    if (!x)
        return tsr_fail_nomem(err, sizeof *x, "a sweep");
    x->o = opts;
    tsr_pipeline_check_input(job, node, "text", d);
    tsr_pipeline_check_input(job, node, "choices", d);
    const char *key;
    if (read_lists(x, &key, &why.err) != TSR_OK) {
        const struct tsr_config_node *at = tsr_config_node_get(node, key);
        tsr_config_diag_failure(d, at ? &at->mark : &node->mark, &why.err);
    }
    free(x);
    return TSR_OK;
}

const struct tsr_pipeline_step tsr_step_sweep = {
    .name = "sweep",
    .summary = "measures perplexity against compensated channels and ways to select them",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct tsr_step_sweep_options),
    .check = check,
    .run = run,
    .print = tsr_step_sweep_print,
};
