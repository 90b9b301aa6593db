/* eval: perplexity, the accuracy of answers, or named tasks, of the model as the steps before left it, and how far it is from
 * its original or from another model. */
#include "pipeline/job.h"
#include "pipeline/steps/eval_step.h"

#include "base/mem.h"

#include <stdlib.h>

#define S struct eval_step_keys
static const struct tsr_option options[] = {
    TSR_PIPELINE_EVAL_OPTIONS_TEXT(S, eval, 0),
    TSR_OPTION_BOOL(S, kl, 0, "Also mean KL and top-1 agreement with the original weights."),
    { .name = "against",
      .help = "A model, or a .kld file of llama-perplexity, to compare with on the same tokens: KL "
              "and top-1.",
      .unit = "MODEL|FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, against, const char *),
      .def = { .s = "" } },
    { .name = "choices",
      .help = "Multiple-choice questions (JSON Lines) instead of a text: accuracy.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, choices, const char *),
      .def = { .s = "" } },
    TSR_PIPELINE_TASKS_OPTIONS(S, tasks),
    { .name = "log_samples",
      .help = "Write each request of the tasks with its log-likelihood.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, log_samples, const char *),
      .def = { .s = "" } },
    { .name = "save_kld",
      .help = "Write the model's log-probabilities as a .kld file; llamacpp-512 alone.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, save_kld, const char *),
      .def = { .s = "" } },
    TSR_PIPELINE_BY_LAYERS_OPTION(S, by_layers),
    TSR_PIPELINE_RUNNING_OPTIONS(S, run, TSR_ACT_F32, TSR_PIPELINE_POSITIONS_ALL, 0),
    TSR_PIPELINE_TP_OPTIONS(S, tp),
};
#undef S

/* ---- checks ------------------------------------------------------------------------- */

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct eval_step_keys  *o = opts;
    const struct tsr_config_node *at = tsr_config_node_get(node, "text");
    bool                          kld = eval_is_kld(o->against);
    struct tsr_pipeline_tasks    *tasks = NULL;
    TSR_TRY(tsr_pipeline_tasks_read(&tasks, job, &o->tasks, node, d, err));
    tsr_pipeline_tasks_close(tasks);
    if (!o->tasks.tasks && *o->log_samples)
        tsr_config_diag_error(d, &node->mark, NULL, "'log_samples' is about 'tasks'");
    if (o->tasks.tasks && (*o->choices || *o->eval.text || *o->save_kld || *o->against || o->kl))
        tsr_config_diag_error(
            d, &o->tasks.tasks->mark, NULL,
            "'tasks' measures one model on tasks alone; ask for 'text', 'choices', "
            "'kl' and 'against' in a separate step");
    else if (*o->choices && (*o->eval.text || *o->save_kld || kld))
        tsr_config_diag_error(d, &node->mark, NULL,
                              "'choices' is about questions; ask for the text in a separate step");
    else if (!*o->choices && !*o->eval.text && !kld && !o->tasks.tasks &&
             (!at || at->kind == TSR_CONFIG_NODE_SCALAR)) /* else it was named, and refused */
        tsr_config_diag_error(d, &node->mark, "File to measure on.", "step 'eval' needs 'text'");
    else if (*o->eval.text && kld)
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, NULL,
                              "%s brings its own text; leave 'text' out", o->against);
    if (o->kl && *o->against)
        tsr_config_diag_error(d, &node->mark, "give one",
                              "'kl' compares with the original, 'against' with another model");
    if (o->by_layers)
        tsr_pipeline_by_layers_check(&o->run,
                                     *o->choices         ? "choices"
                                     : o->tasks.tasks    ? "tasks"
                                     : o->tp.simulate_tp ? "simulate_tp"
                                                         : NULL,
                                     node, d);
    tsr_pipeline_check_input(job, node, "text", d);
    tsr_pipeline_check_input(job, node, "choices", d);
    tsr_pipeline_tp_keys_check(job, &o->tp, true, node, d);
    return TSR_OK;
}

/* ---- engines ------------------------------------------------------------------------ */

/* The model's own engine, with its compensation and the ranks that it represents. */
static tsr_status open_engine(struct eval_step *e, uint64_t context, struct tsr_err *err)
{
    struct tsr_pipeline_job *job = e->job;
    TSR_TRY(tsr_pipeline_running_open(&e->running, job, &e->o->run, job->model, job->packed,
                                      job->seed, err));
    TSR_TRY(tsr_pipeline_tp_keys_open(job, &e->o->tp, job->model, job->overlay,
                                      (uint32_t)e->o->run.act, &e->ranks, err));
    if (e->ranks && (*e->o->choices || e->o->tasks.tasks))
        TSR_TRY(tsr_eval_tp_any_order(e->ranks, "questions", err));
    e->running.eo.context = context;
    e->running.eo.split = e->ranks ? tsr_eval_tp_split(e->ranks) : NULL;
    TSR_TRY(tsr_engine_create(&e->engine, job->registry, job->model, job->overlay, &e->running.eo,
                              err));
    e->ran = e->engine;
    return TSR_OK;
}

/* The reference is its model as it is: only where it runs, and in what chunks, is the model's too. */
static tsr_status open_plain(struct eval_step *e, uint64_t context, struct tsr_err *err)
{
    struct tsr_engine_options eo = tsr_pipeline_running_plain(&e->running);
    eo.context = context;
    TSR_TRY(
        tsr_engine_create(&e->reference_engine, e->job->registry, e->reference, NULL, &eo, err));
    e->reference_ran = e->reference_engine;
    return TSR_OK;
}

/* The model as it is stored, or as `quantize` stored it, and the reference. */
static tsr_status open_layers(struct eval_step *e, struct tsr_err *err)
{
    struct tsr_pipeline_job *job = e->job;
    uint64_t                 at_once = (uint64_t)e->o->by_layers;
    if (job->packed)
        TSR_TRY(tsr_model_load_streamed(&e->packed, job->packed, err));
    const struct tsr_model *m = e->packed ? e->packed : job->model;
    TSR_TRY(
        tsr_pipeline_running_open(&e->running, job, &e->o->run, m, job->packed, job->seed, err));
    TSR_TRY(tsr_eval_layers_open(&e->layers, job->registry, m, e->windows, at_once,
                                 e->running.eo.act, &e->running.eo.on, err));
    e->ran = tsr_eval_layers_engine(e->layers);
    if (!e->reference)
        return TSR_OK;
    struct tsr_engine_options eo = tsr_pipeline_running_plain(&e->running);
    TSR_TRY(tsr_eval_layers_open(&e->reference_layers, job->registry, e->reference, e->windows,
                                 at_once, eo.act, &eo.on, err));
    e->reference_ran = tsr_eval_layers_engine(e->reference_layers);
    return TSR_OK;
}

/* ---- a text ------------------------------------------------------------------------- */

/* The model and the reference, whichever that is, on the same windows. */
static tsr_status run_arms(struct eval_step *e, struct tsr_kld_out *save, struct tsr_err *err)
{
    struct tsr_eval_arm *arms = tsr_new(2, sizeof *arms);
    uint64_t             n = e->base || e->reference ? 2 : 1;
    if (!arms)
        return tsr_fail_nomem(err, 2 * sizeof *arms, "an evaluation");
    arms[0] = (struct tsr_eval_arm){
        .name = "model", .engine = e->engine, .layers = e->layers, .save = save
    };
    arms[1] = (struct tsr_eval_arm){ .name = *e->o->against ? e->o->against : "the original",
                                     .engine = e->reference_engine,
                                     .layers = e->reference_layers,
                                     .base = e->base };
    tsr_status st =
        tsr_eval_arms(arms, n, 1, tsr_plugin_registry_pool(e->job->registry), e->windows, err);
    if (st == TSR_OK && arms[0].status != TSR_OK)
        st = tsr_err_copy(err, arms[0].status, &arms[0].error.err);
    e->result = arms[0].result;
    if (st == TSR_OK && *e->o->against)
        st = tsr_eval_paired_measure(&e->paired, e->windows, &arms[0].at, &arms[1].at, EVAL_ALPHA,
                                     err);
    tsr_eval_trace_free(&arms[0].at);
    tsr_eval_trace_free(&arms[1].at);
    free(arms);
    return st;
}

/* Of the model, and of the one that it is compared with. */
static tsr_status unchanged(const struct eval_step *e, struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_running_unchanged(&e->running, err));
    return e->reference ? tsr_pipeline_mapped_unchanged(e->reference, NULL, err) : TSR_OK;
}

/* And into a base file, if requested. */
static tsr_status run_saving(struct eval_step *e, struct tsr_err *err)
{
    struct tsr_kld_out *save = NULL;
    char               *path = NULL;
    if (!*e->o->save_kld)
        return run_arms(e, NULL, err);
    TSR_TRY(tsr_pipeline_job_output(e->job, e->o->save_kld, &path, err));
    tsr_status st = tsr_eval_kld_create(&save, path, e->windows, e->job->model->hp.vocab, err);
    if (st == TSR_OK)
        st = run_arms(e, save, err);
    if (st == TSR_OK)
        st = unchanged(e, err);
    if (st == TSR_OK)
        st = tsr_eval_kld_commit(save, err);
    else
        tsr_eval_kld_abort(save);
    free(path);
    return st;
}

static tsr_status measure(struct eval_step *e, struct tsr_err *err)
{
    TSR_TRY(eval_open_windows(e, err));
    TSR_TRY(eval_open_reference(e, err));
    if (e->o->by_layers) {
        TSR_TRY(open_layers(e, err));
        return run_saving(e, err);
    }
    TSR_TRY(open_engine(e, e->windows->window, err));
    if (e->reference)
        TSR_TRY(open_plain(e, e->windows->window, err));
    return run_saving(e, err);
}

/* ---- questions ---------------------------------------------------------------------- */

static tsr_status ask(struct eval_step *e, struct tsr_err *err)
{
    const struct tsr_tokenizer *t = e->job->tokenizer;
    char                       *path = tsr_pipeline_job_input(e->job, e->o->choices);
    uint64_t                    context;
    if (!path)
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_eval_choices_load(&e->questions, path, err);
    free(path);
    TSR_TRY(st);
    TSR_TRY(eval_open_reference(e, err));
    TSR_TRY(tsr_eval_choices_context(e->questions, t, e->job->model, &context, err));
    TSR_TRY(open_engine(e, context, err));
    TSR_TRY(tsr_eval_choices_score(e->engine, t, e->questions, &e->marks, err));
    if (!e->reference)
        return TSR_OK;
    TSR_TRY(tsr_eval_choices_context(e->questions, t, e->reference, &context, err));
    TSR_TRY(open_plain(e, context, err));
    return tsr_eval_choices_score(e->reference_engine, t, e->questions, &e->reference_marks, err);
}

static tsr_status run_tasks(struct eval_step *e, struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    uint64_t         context;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st =
        tsr_pipeline_tasks_read(&e->tasks, e->job, &e->o->tasks, e->o->tasks.tasks, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    TSR_TRY(st);
    TSR_TRY(tsr_pipeline_tasks_open(e->tasks, !e->o->eval.add_bos, &context, err));
    TSR_TRY(open_engine(e, context, err));
    return tsr_pipeline_tasks_run(e->tasks, e->engine, e->o->log_samples, err);
}

static bool by_layers(const void *opts)
{
    const struct eval_step_keys *o = opts;
    return o->by_layers > 0;
}

static tsr_status file_result(const struct eval_step *e, struct tsr_err *err)
{
    json_t *j = eval_result_json(e);
    if (j && !e->job->json)
        eval_result_print(j, stdout);
    return tsr_pipeline_step_result(e->job, "eval", j, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct eval_step e = { .job = job, .o = opts };
    (void)node;
    TSR_TRY(tsr_pipeline_step_need_tokenizer(job, "step 'eval'", err));
    tsr_status st = e.o->tasks.tasks ? run_tasks(&e, err)
                    : *e.o->choices  ? ask(&e, err)
                                     : measure(&e, err);
    if (st == TSR_OK)
        st = unchanged(&e, err);
    if (st == TSR_OK)
        st = file_result(&e, err);
    tsr_eval_choice_marks_free(&e.marks);
    tsr_eval_choice_marks_free(&e.reference_marks);
    tsr_eval_choices_destroy(e.questions);
    tsr_pipeline_tasks_close(e.tasks);
    tsr_eval_layers_close(e.reference_layers);
    tsr_eval_layers_close(e.layers);
    tsr_engine_destroy(e.reference_engine);
    tsr_engine_destroy(e.engine);
    tsr_pipeline_running_close(&e.running);
    tsr_eval_tp_close(e.ranks);
    tsr_eval_windows_destroy(e.windows);
    tsr_model_destroy(e.packed);
    eval_close_reference(&e);
    return st;
}

const struct tsr_pipeline_step tsr_step_eval = {
    .name = "eval",
    .summary = "measures perplexity by a named protocol, or named tasks",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct eval_step_keys),
    .check = check,
    .run = run,
    .streams_with = by_layers,
    .print = eval_result_print,
};
