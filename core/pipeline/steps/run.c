/* run: a file of requests through the model as the steps before left it, into a file of answers. */
#include "pipeline/job.h"
#include "pipeline/sampling.h"
#include "pipeline/step.h"
#include "pipeline/steps/run_batch.h"
#include "pipeline/steps/run_errors.h"
#include "pipeline/steps/run_launch.h"
#include "pipeline/steps/run_peers.h"
#include "pipeline/steps/run_ttft.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "batch/run.h"
#include "batch/watch.h"

#include <stdlib.h>
#include <string.h>

#define S struct tsr_step_run_options
static const struct tsr_option options[] = {
    { .name = "input",
      .help = "File of requests, one JSON object a line, as for the OpenAI batch API.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, input, const char *),
      .def = { .s = "" } },
    { .name = "output",
      .help = "File of answers, one line for each of the input. OUTPUT.job holds the journal.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(S, max_tokens, 256, 0, INT64_C(1) << 31, "tokens",
                   "Most new tokens of a request that does not say."),
    TSR_PIPELINE_SAMPLING_OPTIONS(S, sampling),
    TSR_PIPELINE_SAMPLERS_OPTION(S, samplers),
    TSR_OPTION_INT(S, slots, 8, 1, 4096, "records", "Records that are worked on at once."),
    TSR_OPTION_INT(S, context, 0, 0, INT64_C(1) << 31, "tokens",
                   "Most tokens of a prompt and its answer; 0: 2048, or the model's where it has "
                   "fewer."),
    TSR_OPTION_BOOL(S, allow_special, 0,
                    "Special strings inside of prompts and messages count as special tokens."),
    TSR_OPTION_BOOL(S, ignore_eos, 0, "Continue after an end-of-sequence token."),
    TSR_OPTION_INT(S, limit, 0, 0, INT64_MAX, "lines", "Take the first lines only; 0 takes all."),
    TSR_OPTION_STRING(S, shard, "1/1",
                      "I/N: the I-th of N parts of the input. Their outputs, concatenated, are the "
                      "output of the whole."),
    TSR_OPTION_BOOL(S, retry_errors, 0, "Run the records again that became error lines."),
    TSR_OPTION_BOOL(
        S, fail_on_errors, 0,
        "Exit with code 1 when a record became an error line; the output is whole all the same."),
    TSR_OPTION_REAL(S, stall, 5.0, 1.0, 3600.0, "s",
                    "A worker, or a rank of a plan, without progress for this long is replaced."),
    TSR_OPTION_REAL(S, deadline, 0.0, 0.0, 1e6, "s",
                    "A record that takes longer becomes an error line; 0: none does."),
    TSR_PIPELINE_DRAFT_OPTIONS(S, drafting),
    TSR_PIPELINE_CHAT_OPTIONS(S, talk),
    TSR_RUN_LAUNCH_OPTIONS(S, fleet),
};
#undef S

/* ---- options ------------------------------------------------------------ */

static bool parse_shard(const char *text, uint64_t *i, uint64_t *n)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    *i = strtoull(text, &end, 10);
    if (*end != '/' || end[1] < '0' || end[1] > '9')
        return false;
    *n = strtoull(end + 1, &end, 10);
    return *end == '\0' && *i >= 1 && *i <= *n && *n <= 1000000;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_step_run_options *o = opts;
    uint64_t                           i, n;
    uint32_t                           rank = 0, ranks = 0;
    if (!job->state->options.launched || !tsr_comm_launched(&rank, &ranks) || rank == 0)
        tsr_pipeline_check_input(job, node, "input", d);
    tsr_step_run_launch_check(job, &o->fleet, node, d);
    tsr_step_run_peers_check(job, &o->fleet, node, d);
    tsr_pipeline_chat_check(&o->talk, node, d);
    tsr_pipeline_draft_check(job, &o->drafting, node, d);
    if (!parse_shard(o->shard, &i, &n)) {
        const struct tsr_config_node *at = tsr_config_node_get(node, "shard");
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, "write 2/4 for the second of four",
                              "'shard' must be I/N with I from 1 to N");
    }
    return tsr_pipeline_samplers_check(job, o->samplers, d, err);
}

/* ---- the run ------------------------------------------------------------ */

static tsr_status load_chat(struct tsr_step_run_batch *r, struct tsr_err *err)
{
    if (!r->job->tokenizer) {
        (void)tsr_fail(&r->no_chat.err, TSR_E_INPUT, "the model has no tokenizer");
        return TSR_OK;
    }
    tsr_status st = tsr_pipeline_chat_load(r->job, &r->o->talk, &r->chat, &r->no_chat.err);
    /* lines that request a chat report a model's template that is missing or cannot run */
    return st == TSR_OK || (st == TSR_E_INPUT && !*r->o->talk.template)
               ? TSR_OK
               : tsr_err_copy(err, st, &r->no_chat.err);
}

static tsr_status paths(struct tsr_step_run_batch *r, struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_job_output(r->job, r->o->output, &r->output, err));
    if (tsr_path_is_dir(r->output))
        return tsr_fail(err, TSR_E_INPUT, "%s: is a folder; name a file", r->output);
    uint64_t n = strlen(r->output) + 5;
    r->folder = tsr_new(n, 1);
    if (!r->folder)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(r->folder, n, "%s.job", r->output);
    return tsr_make_dirs(r->folder, err);
}

static tsr_status open_records(struct tsr_step_run_batch *r, struct tsr_err *err)
{
    uint64_t i = 1, n = 1;
    char    *path = tsr_pipeline_job_input(r->job, r->o->input);
    if (!path)
        return tsr_fail_nomem(err, strlen(r->o->input), "a path");
    (void)parse_shard(r->o->shard, &i, &n);
    tsr_status st = tsr_batch_records_open(&r->records, path, (uint64_t)r->o->limit, i, n, err);
    free(path);
    return st;
}

/* Names as JSON, which holds no other bytes than UTF-8. */
static json_t *name_json(const char *s)
{
    json_t *j = json_string(s);
    return j ? j : json_string("model");
}

/* The template, and the message for a missing one, appear in answers or shape them. */
static tsr_status note_chat(struct tsr_step_run_batch *r, struct tsr_err *err)
{
    json_t *chat =
        r->chat ? json_incref((json_t *)(uintptr_t)tsr_tokenizer_chat_about(r->chat)) : json_null();
    r->kept = json_pack("{s:o, s:o}", "model", name_json(tsr_pipeline_job_model_name(r->job)),
                        "no_chat", name_json(r->no_chat.text));
    return r->kept && json_object_set_new(r->job->manifest, "chat", chat) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 64, "the manifest");
}

/* Of requests that do not say: the step's, else the model's. */
static tsr_status set_sampling(struct tsr_step_run_batch *r, const struct tsr_config_node *node,
                               struct tsr_err *err)
{
    r->sampling = tsr_pipeline_sampling_of(&r->o->sampling, r->job->seed);
    return tsr_pipeline_sampling(r->job, node, &r->sampling, err);
}

static tsr_status prepare(struct tsr_step_run_batch *r, const struct tsr_config_node *node,
                          struct tsr_err *err)
{
    struct tsr_batch_watch *w = tsr_batch_watch_get();
    if (w) {
        w->stall_us =
            (uint64_t)(r->o->stall * 1e6); /* ranks are watched by their coordinator, which beats */
        w->deadline_us = (uint64_t)(r->o->deadline * 1e6);
    }
    TSR_TRY(open_records(r, err));
    TSR_TRY(paths(r, err));
    TSR_TRY(tsr_pipeline_job_need_model(r->job, err));
    TSR_TRY(set_sampling(r, node, err));
    if (r->job->packed && !r->job->overlay)
        TSR_TRY(tsr_model_load_streamed(&r->packed, r->job->packed, err));
    TSR_TRY(tsr_step_run_verify(r->job, err));
    TSR_TRY(load_chat(r, err));
    TSR_TRY(tsr_pipeline_samplers_open(&r->samplers, r->job, r->o->samplers, err));
    return note_chat(r, err);
}

static void print(const json_t *r, FILE *to)
{
    char also[64];
    (void)fprintf(to, "%lld records, %lld errors: %s (act %s%s)\n",
                  (long long)json_integer_value(json_object_get(r, "records")),
                  (long long)json_integer_value(json_object_get(r, "errors")),
                  json_string_value(json_object_get(r, "output")),
                  json_string_value(json_object_get(r, "act")), tsr_pipeline_act_also(r, also));
    tsr_step_run_ttft_print(r, to);
    tsr_step_run_launch_print(r, to);
}

static tsr_status file_result(struct tsr_step_run_batch *r, const struct tsr_batch_summary *s,
                              struct tsr_err *err)
{
    json_t *j = r->result;
    bool    ok = tsr_pipeline_json_put_text(j, "output", r->output) &&
              tsr_pipeline_json_put_int(j, "records", s->records) &&
              tsr_pipeline_json_put_int(j, "errors", s->errors) &&
              tsr_step_run_errors_put(&s->reasons, j) &&
              tsr_pipeline_json_put_int(j, "starts", s->counts.starts) &&
              tsr_pipeline_json_put_int(j, "tokens", s->new_tokens) &&
              tsr_pipeline_json_put_int(j, "reused_tokens", s->reused) &&
              tsr_pipeline_json_put_real(j, "seconds", s->seconds) &&
              tsr_pipeline_json_put_real(j, "journal_s", s->journal_s) &&
              tsr_pipeline_draft_put(j, &r->o->drafting, &s->drafts);
    uint32_t act = (uint32_t)r->o->fleet.run.act;
    if (!ok || !tsr_pipeline_json_put_act(j, tsr_pipeline_act_ran(act, r->ran), r->ran))
        return tsr_fail_nomem(err, 64, "the results");
    TSR_TRY(tsr_step_run_ttft_put(&s->ttft, j, err));
    if (!r->job->json)
        print(j, stdout);
    r->result = NULL;
    return tsr_pipeline_step_result(r->job, "run", j, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    if (job->peers) {
        const struct tsr_step_run_options *o = opts;
        TSR_TRY(tsr_step_run_peers_place(job, &o->fleet, node, err));
        if (tsr_runtime_peers_rank(job->peers) > 0) {
            TSR_TRY(tsr_pipeline_job_need_model(job, err));
            return tsr_step_run_launch_serve(job, job->model, &o->fleet, err);
        }
    }
    struct tsr_step_run_batch r = {
        .o = opts, .job = job, .records = { .file = { .fd = -1 } }, .result = json_object()
    };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_batch_summary s = { 0 };
    r.no_chat.err = e.err; /* its head; the text is our own */
    r.no_chat.err.text = r.no_chat.text;
    r.no_chat.text[0] = '\0';
    tsr_status st = prepare(&r, node, err);
    if (st == TSR_OK)
        st = tsr_step_run_launch_wanted(job, &r.o->fleet) ? tsr_step_run_on_ranks(&r, &s, err)
                                                          : tsr_step_run_on_engine(&r, &s, err);
    if (st == TSR_OK)
        st = file_result(&r, &s, err);
    json_decref(r.result);
    json_decref(r.kept);
    tsr_batch_ttft_free(&s.ttft);
    tsr_model_destroy(r.packed);
    tsr_tokenizer_chat_destroy(r.chat);
    tsr_pipeline_samplers_close(&r.samplers);
    tsr_batch_records_close(&r.records);
    free(r.about);
    free(r.output);
    free(r.folder);
    return st;
}

/* The journal sealed the output of a completed run. */
static tsr_status spoilt(const struct tsr_pipeline_job *job, const void *opts, bool *yes,
                         struct tsr_err *err)
{
    const struct tsr_step_run_options *o = opts;
    char                              *output = tsr_path_join(job->out, o->output);
    if (!output)
        return tsr_fail_nomem(err, strlen(o->output), "a path");
    tsr_status st = tsr_batch_journal_spoilt(output, yes, err);
    if (st == TSR_OK && *yes)
        tsr_logf(TSR_LOG_WARN, "%s is gone or was changed: it is written once more", output);
    free(output);
    return st;
}

static tsr_status gate(const void *opts, const json_t *result, struct tsr_err *err)
{
    const struct tsr_step_run_options *o = opts;
    return o->fail_on_errors ? tsr_step_run_errors_gate(result, err) : TSR_OK;
}

const struct tsr_pipeline_step tsr_step_run = {
    .name = "run",
    .summary = "answers a file of requests",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct tsr_step_run_options),
    .check = check,
    .run = run,
    .print = print,
    .spoilt = spoilt,
    .remark = tsr_step_run_errors_print,
    .gate = gate,
    .streams = true,
};
