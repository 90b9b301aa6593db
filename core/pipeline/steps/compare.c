/* compare: the original and any number of quantized arms on the same text, prompts and machine,
 * in one table, with what can be said of their differences.  An arm that fails is reported as failed
 * and the others go on; one that was finished by a run that was interrupted is not run again. */
#include "pipeline/steps/compare_step.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define NODE_REQUIRED(S, f, h)                                                                     \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_NODE, .flags = TSR_OPT_REQUIRED,                    \
        .offset = TSR_FIELD(S, f, const struct tsr_config_node *)                                  \
    }

static const struct tsr_option options[] = {
    NODE_REQUIRED(struct compare_keys, arms,
                  "A map: arm: {quantize: {use: ...}}, {model: FOLDER}, {plan: FILE} or "
                  "{set: {quantize.KEY: VALUE}}."),
    TSR_OPTION_NODE(struct compare_keys, quantize,
                    "The scheme that arms change if they name no other."),
    TSR_OPTION_NODE(struct compare_keys, measure,
                    "What to measure: perplexity, kl, choices, tasks, speed."),
    TSR_OPTION_NODE(struct compare_keys, pairs, "Arms to compare with each other: [[a, b], ...]."),
    TSR_OPTION_NODE(struct compare_keys, baseline,
                    "An arm that every other one is compared with, too."),
    TSR_OPTION_NODE(struct compare_keys, fail_if,
                    "What must not hold: \"kl.mean > 0.05\", or a list; exit code 5."),
    { .name = "alpha",
      .help = "1 - confidence of the intervals, and the level of the verdicts.",
      .type = TSR_OPT_REAL,
      .offset = TSR_FIELD(struct compare_keys, alpha, double),
      .def = { .r = 0.05 },
      .min = { .r = 1e-6 },
      .max = { .r = 0.5 } },
    TSR_OPTION_INT(struct compare_keys, together, 1, 1, 1000, "arms",
                   "Arms in memory at once in addition to the original, which is run once. For "
                   "further arms it stores its hidden rows in the job folder."),
    TSR_PIPELINE_BY_LAYERS_OPTION(struct compare_keys, by_layers),
    TSR_OPTION_NODE(struct compare_keys, samples, "List of texts that every arm continues."),
    TSR_OPTION_NODE(struct compare_keys, sampling, "How: max_tokens, temperature, ..."),
};
static const struct tsr_option measure_options[] = {
    TSR_OPTION_NODE(struct measure_keys, perplexity, "text, protocol, rows, join, window."),
    TSR_OPTION_NODE(struct measure_keys, text,
                    "A list of files in place of the text of perplexity: a verdict of each and one "
                    "of all."),
    TSR_OPTION_NODE(struct measure_keys, speed, "prompt, generate, repeats, act."),
    TSR_OPTION_PATH(struct measure_keys, choices, "", "FILE",
                    "Multiple-choice questions, JSON Lines: accuracy, compared by McNemar's test."),
    TSR_OPTION_PATH(struct measure_keys, base, "", "FILE",
                    "A .kld file of llama-perplexity: its text, and its model as the reference."),
    TSR_OPTION_PATH(struct measure_keys, save_base, "", "FILE",
                    "Write the original's log-probabilities to this file; llamacpp-512 alone."),
    TSR_OPTION_BOOL(struct measure_keys, kl, 1,
                    "With perplexity: mean KL and top-1 agreement with the original."),
    TSR_OPTION_BOOL(struct measure_keys, a8, 0,
                    "With perplexity: also with int8 activations, for packed arms."),
    TSR_PIPELINE_TASKS_OPTIONS(struct measure_keys, tasks),
    TSR_OPTION_BOOL(struct measure_keys, add_bos, 1,
                    "With tasks: the tokenizer adds BOS to texts where it is made to."),
};
static const struct tsr_option speed_options[] = {
    TSR_OPTION_INT(struct speed_keys, prompt, 256, 1, 1 << 20, "tokens", "Tokens of prefill."),
    TSR_OPTION_INT(struct speed_keys, generate, 64, 1, 1 << 20, "tokens", "Tokens of decode."),
    TSR_OPTION_INT(struct speed_keys, repeats, 5, 1, 1000, NULL, "Runs; the median is given."),
    TSR_OPTION_ENUM(struct speed_keys, act, TSR_ACT_A8, tsr_act_choices,
                    "How activations enter packed weights."),
};
struct eval_keys_only {
    struct tsr_pipeline_eval_keys eval;
};
static const struct tsr_option eval_options[] = {
    TSR_PIPELINE_EVAL_OPTIONS_TEXT(struct eval_keys_only, eval, 0)
};
struct sample_keys_only {
    struct tsr_pipeline_sample_keys sample;
    int64_t                         act;
};
static const struct tsr_option sample_options[] = {
    TSR_PIPELINE_SAMPLE_OPTIONS(struct sample_keys_only, sample, 1),
    TSR_OPTION_ENUM(struct sample_keys_only, act, TSR_ACT_A8, tsr_act_choices,
                    "How activations enter packed weights; others take f32."),
};
#define FILL(table, into_, map, what, d)                                                           \
    do {                                                                                           \
        struct tsr_config_optset set_ = { table, sizeof(table) / sizeof *(table), sizeof *(table), \
                                          into_ };                                                 \
        tsr_config_options_fill(&set_, 1, NULL, map, what, d);                                     \
    } while (0)

/* ---- reading ----------------------------------------------------------------------- */

static void base_without(const struct measure_keys *m, const struct tsr_config_node *node,
                         struct tsr_diag *d)
{
    const struct tsr_config_node *base = tsr_config_node_get(node, "base");
    if (base && *m->base && m->perplexity)
        tsr_config_diag_error(
            d, &base->mark, "leave one of them out",
            "'base' brings its own text; it cannot be combined with 'perplexity'");
    if (base && *m->base && *m->save_base)
        tsr_config_diag_error(
            d, &base->mark, "leave one of them out",
            "'save_base' is about the original as the reference, and 'base' takes its "
            "place");
}

/* Task files are read here, since conditions name metrics of theirs. */
static tsr_status read_tasks(struct compare *c, struct tsr_diag *d, struct tsr_err *err)
{
    if (c->keys.measure && c->measure.tasks.data)
        TSR_TRY(
            tsr_pipeline_tasks_read(&c->tasks, c->job, &c->measure.tasks, c->keys.measure, d, err));
    if (!c->measure.tasks.tasks && c->keys.measure && !c->measure.add_bos)
        tsr_config_diag_error(d, &c->keys.measure->mark,
                              "the one of a text is a key of 'perplexity'",
                              "'add_bos' is about 'tasks'");
    for (uint64_t i = 0; i < tsr_pipeline_tasks_count(c->tasks); i++)
        c->tests += tsr_pipeline_tasks_task(c->tasks, i)->n_metrics;
    return TSR_OK;
}

/* `measure.text` into c->texts. */
static tsr_status read_texts(struct compare *c, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_config_node *t = c->measure.text;
    const struct tsr_config_node *at = t ? t : c->measure.perplexity;
    if (c->measure.perplexity && (t != NULL) == (*c->eval.text != '\0'))
        tsr_config_diag_error(d, &at->mark, "perplexity: {text: FILE, ...}, or text: [FILE, ...]",
                              t ? "'perplexity' has a text already" : "there is no text");
    if (t && (!c->measure.perplexity || *c->measure.save_base))
        tsr_config_diag_error(d, &t->mark, "write perplexity: {protocol: gptq-2048}",
                              "'text' is about 'perplexity'%s",
                              c->measure.perplexity ? " without 'save_base'" : "");
    if (t && (t->kind != TSR_CONFIG_NODE_LIST || t->n < 2))
        tsr_config_diag_error(d, &t->mark, "one text is a key of 'perplexity'",
                              "'text' must be a list of two or more files");
    tsr_pipeline_check_strings(t, "text", d);
    if (!t || t->kind != TSR_CONFIG_NODE_LIST)
        return TSR_OK;
    if (!(c->texts = tsr_new(t->n, sizeof *c->texts)))
        return tsr_fail_nomem(err, t->n * sizeof *c->texts, "texts");
    for (uint64_t i = 0; i < t->n; i++)
        c->texts[i].path = t->items[i]->text ? t->items[i]->text : "";
    c->n_texts = t->n;
    return TSR_OK;
}

static void read_measure(struct compare *c, struct tsr_diag *d)
{
    const struct tsr_config_node *save =
        c->keys.measure ? tsr_config_node_get(c->keys.measure, "save_base") : NULL;
    FILL(measure_options, &c->measure, c->keys.measure, "'measure'", d);
    base_without(&c->measure, c->keys.measure, d);
    c->do_eval = c->measure.perplexity != NULL || *c->measure.base;
    c->do_speed = c->measure.speed != NULL;
    if (c->measure.perplexity)
        FILL(eval_options, &c->eval, c->measure.perplexity, "'perplexity'", d);
    if (save && *c->measure.save_base && c->eval.protocol != TSR_EVAL_PPL_LLAMACPP_512)
        tsr_config_diag_error(
            d, &save->mark, "protocol: llamacpp-512",
            "'save_base' writes a file that holds windows as llamacpp-512 scores them");
    if (c->do_speed)
        FILL(speed_options, &c->speed, c->measure.speed, "'speed'", d);
    struct sample_keys_only s = { 0 };
    FILL(sample_options, &s, c->keys.sampling, "'sampling'", d);
    c->sample = s.sample;
    c->sample_act = s.act;
    tsr_pipeline_check_strings(c->keys.samples, "samples", d);
}

static tsr_status read_all(struct compare *c, struct tsr_pipeline_job *job,
                           const struct compare_keys *k, struct tsr_diag *d, struct tsr_err *err)
{
    c->job = job;
    c->keys = *k;
    read_measure(c, d);
    TSR_TRY(read_texts(c, d, err));
    TSR_TRY(read_tasks(c, d, err));
    TSR_TRY(compare_read_arms(c, d, err));
    TSR_TRY(compare_read_pairs(c, d, err));
    compare_check_gate(c, d);
    return TSR_OK;
}

static void release(struct compare *c)
{
    for (uint64_t i = 0; i < c->n; i++) {
        struct compare_arm *a = &c->arms[i];
        compare_arm_release(a);
        tsr_eval_trace_free(&a->at);
        compare_tasks_end(c, a);
        json_decref(a->of);
        json_decref(a->json);
        free(a->on);
        free(a->prefill);
        free(a->decode);
    }
    tsr_eval_trace_free(&c->base_at);
    tsr_eval_windows_destroy(c->windows);
    tsr_eval_states_close(c->states);
    tsr_eval_kld_close(c->base);
    tsr_eval_choices_destroy(c->choices);
    tsr_pipeline_tasks_close(c->tasks);
    free(c->folder);
    free(c->texts);
    free(c->pairs);
    free(c->arms);
}

static void check_texts(const struct compare *c, struct tsr_diag *d)
{
    for (uint64_t i = 0; i < c->n_texts; i++) {
        char *path = tsr_pipeline_job_input(c->job, c->texts[i].path);
        if (path && *c->texts[i].path && !tsr_path_exists(path))
            tsr_config_diag_error(d, &c->measure.text->items[i]->mark, NULL, "no such file: '%s'",
                                  path);
        free(path);
    }
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    struct compare c = { 0 };
    tsr_status     st = read_all(&c, job, opts, d, err);
    compare_check_by_layers(&c, node, d);
    tsr_pipeline_check_input(job, c.measure.perplexity, "text", d);
    check_texts(&c, d);
    if (st == TSR_OK)
        st = tsr_pipeline_samplers_check(job, c.sample.samplers, d, err);
    tsr_pipeline_check_input(job, c.keys.measure, "base", d);
    tsr_pipeline_check_input(job, c.keys.measure, "choices", d);
    for (uint64_t i = 1; i < c.n && st == TSR_OK; i++)
        st = compare_check_arm(&c, &c.arms[i], d, err);
    release(&c);
    return st;
}

/* ---- running ------------------------------------------------------------------------ */

static tsr_status result(struct compare *c, struct tsr_err *err)
{
    json_t    *j = compare_json(c), *pairs = NULL;
    tsr_status st = j ? TSR_OK : tsr_fail_nomem(err, 256, "the results");
    if (st == TSR_OK && c->n_pairs) {
        st = compare_pairs_json(c, &pairs, err);
        if (!tsr_pipeline_json_put(j, "pairs", pairs) && st == TSR_OK)
            st = tsr_fail_nomem(err, 256, "the results");
    }
    if (st == TSR_OK && !compare_put_gate(j, c))
        st = tsr_fail_nomem(err, 256, "the results");
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    if (!c->job->json)
        compare_print(j, stdout);
    return tsr_pipeline_step_result(c->job, "compare", j, err);
}

static tsr_status run_all(struct compare *c, struct tsr_err *err)
{
    uint64_t bytes;
    TSR_TRY(tsr_pipeline_job_need_model(c->job, err));
    TSR_TRY(compare_keep_open(c, err));
    tsr_model_overlay_size(c->job->model, NULL, &c->weights, &bytes);
    if (c->do_eval)
        TSR_TRY(compare_windows(c, err));
    if (*c->measure.choices)
        TSR_TRY(compare_questions(c, err));
    if (c->tasks)
        TSR_TRY(compare_tasks_open(c, err));
    TSR_TRY(compare_run_arms(c, err));
    if (c->do_eval)
        TSR_TRY(compare_stats(c, err));
    if (c->tasks)
        TSR_TRY(compare_tasks_stats(c, err));
    if (c->do_speed)
        TSR_TRY(compare_speed(c, err));
    return result(c, err);
}

/* The needs of all arms together. An arm that cannot run reports that itself. */
static tsr_status need(struct tsr_pipeline_job *job, const void *opts,
                       const struct tsr_config_node *node, uint64_t *need, struct tsr_err *err)
{
    struct compare   c = { 0 };
    struct tsr_diag *d = NULL;
    (void)node;
    *need = 0;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = read_all(&c, job, opts, d, err);
    tsr_config_diag_destroy(d);
    for (uint64_t i = 1; i < c.n && st == TSR_OK; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        uint64_t          one = 0;
        tsr_status        arm = compare_arm_need(&c, &c.arms[i], &one, &e.err);
        *need |= one;
        if (arm == TSR_E_NOMEM)
            st = tsr_err_copy(err, arm, &e.err);
    }
    release(&c);
    return st;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct compare   c = { 0 };
    struct tsr_diag *d = NULL;
    (void)node;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = read_all(&c, job, opts, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    if (st == TSR_OK)
        st = run_all(&c, err);
    release(&c);
    return st;
}

const struct tsr_pipeline_job_step *tsr_step_compare_before(const struct tsr_pipeline_job *job)
{
    const struct tsr_pipeline_job_state *all = job->state;
    const struct tsr_pipeline_job_step  *last = NULL;
    for (uint64_t i = 0; i < all->n && &all->steps[i] != job->at; i++)
        if (all->steps[i].step == &tsr_step_compare)
            last = &all->steps[i];
    return last;
}

tsr_status tsr_step_compare_arms(struct compare *c, struct tsr_pipeline_job *job,
                                 const struct tsr_pipeline_job_step *s, struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    *c = (struct compare){ 0 };
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = read_all(c, job, s->opts, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    return st;
}

void tsr_step_compare_end(struct compare *c)
{
    release(c);
}

static bool by_layers(const void *opts)
{
    const struct compare_keys *k = opts;
    return k->by_layers > 0;
}

const struct tsr_pipeline_step tsr_step_compare = {
    .name = "compare",
    .summary = "compares quantized arms with the original, in one table",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct compare_keys),
    .check = check,
    .run = run,
    .need = need,
    .print = compare_print,
    .streams_with = by_layers,
};
