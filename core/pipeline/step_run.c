/* run: a file of requests through the model as the steps before left it, into a file of answers. */
#include "pipeline/job.h"
#include "pipeline/run_errors.h"
#include "pipeline/run_identity.h"
#include "pipeline/run_launch.h"
#include "pipeline/run_mates.h"
#include "pipeline/run_same.h"
#include "pipeline/run_ttft.h"
#include "pipeline/step.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "batch/run.h"
#include "batch/watch.h"

#include <stdlib.h>
#include <string.h>

#define BLAME_US UINT64_C(300000)

struct run_options {
    const char         *input, *output, *shard;
    int64_t             max_tokens, top_k, slots, context, act, kv, limit;
    double              temperature, top_p, repetition_penalty, stall, deadline;
    int32_t             allow_special, ignore_eos, retry_errors, fail_on_errors;
    struct tsr_run_keys fleet;
};

static const struct tsr_choice kvs[] = {
    { "f32", "F32 cache", TSR_F32 },
    { "f16", "F16 cache", TSR_F16 },
    { "int8", "int8 cache, a scale per head and token", TSR_I8 },
};

#define S struct run_options
static const struct tsr_option options[] = {
    { .name = "input",
      .help = "File of requests, one JSON object a line, as for the OpenAI batch API.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, input, const char *),
      .def = { .s = "" } },
    { .name = "output",
      .help = "File of answers, one line for each of the input; OUTPUT.job beside it holds the "
              "journal.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(S, max_tokens, 256, 0, INT64_C(1) << 31, "tokens",
                   "Most new tokens of a request that does not say."),
    TSR_OPTION_REAL(S, temperature, 1.0, 0.0, 100.0, NULL,
                    "Of requests that do not say; 0 takes the best token each time."),
    TSR_OPTION_REAL(S, top_p, 1.0, 1e-9, 1.0, NULL,
                    "Draw from the fewest tokens that hold this much probability."),
    TSR_OPTION_INT(S, top_k, 0, 0, INT64_C(1) << 31, "tokens",
                   "Draw from the k best tokens only; 0 takes all."),
    TSR_OPTION_REAL(S, repetition_penalty, 1.0, 1e-3, 1e3, NULL,
                    "Divides logits of tokens seen before."),
    TSR_OPTION_INT(S, slots, 8, 1, 4096, "records", "Records that are worked on at once."),
    TSR_OPTION_INT(S, context, 0, 0, INT64_C(1) << 31, "tokens",
                   "Most tokens of a prompt and its answer; 0: 2048, or the model's where it has "
                   "fewer."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_A8, tsr_act_choices,
                    "How activations enter packed weights; others take f32."),
    TSR_OPTION_ENUM(S, kv, TSR_F32, kvs, "Type of the KV cache."),
    TSR_OPTION_BOOL(S, allow_special, 0,
                    "Special strings inside of prompts and messages count as special tokens."),
    TSR_OPTION_BOOL(S, ignore_eos, 0, "Go on behind an end-of-sequence token."),
    TSR_OPTION_INT(S, limit, 0, 0, INT64_MAX, "lines", "Take the first lines only; 0 takes all."),
    TSR_OPTION_STRING(S, shard, "1/1",
                      "I/N: the I-th of N stretches of the input; their outputs one behind the "
                      "other are that of the whole."),
    TSR_OPTION_BOOL(S, retry_errors, 0, "Run the records again that became error lines."),
    TSR_OPTION_BOOL(
        S, fail_on_errors, 0,
        "Exit with code 1 when a record became an error line; the output is whole all the same."),
    TSR_OPTION_REAL(S, stall, 5.0, 1.0, 3600.0, "s",
                    "A worker, or a rank of a plan, without progress for this long is replaced."),
    TSR_OPTION_REAL(S, deadline, 0.0, 0.0, 1e6, "s",
                    "A record that takes longer becomes an error line; 0: none does."),
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

static tsr_status check(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err)
{
    const struct run_options *o = opts;
    uint64_t                  i, n;
    (void)err;
    uint32_t rank = 0, ranks = 0;
    if (!job->state->options.launched || !tsr_comm_launched(&rank, &ranks) || rank == 0)
        tsr_check_input(job, node, "input", d);
    tsr_run_launch_check(job, &o->fleet, node, d);
    tsr_run_mates_check(job, &o->fleet, node, d);
    if (!parse_shard(o->shard, &i, &n)) {
        const struct tsr_node *at = tsr_node_get(node, "shard");
        tsr_diag_error(d, at ? &at->mark : &node->mark, "write 2/4 for the second of four",
                       "'shard' must be I/N with I from 1 to N");
    }
    return TSR_OK;
}

/* ---- the run ------------------------------------------------------------ */

struct batch_run {
    const struct run_options *o;
    struct tsr_job           *job;
    struct tsr_records        records;
    struct tsr_batch_job      b;
    const struct tsr_node    *node;
    struct tsr_model         *packed; /* what a step of a job that streams left on disk; or NULL */
    json_t                   *result, *kept;
    struct tsr_run_same       same;
    struct tsr_chat          *chat;
    struct tsr_errbuf         no_chat;
    char                      base[TSR_HASH_TEXT];
    char                     *about, *output, *folder;
    uint64_t                  ran[3]; /* tsr_engine_acts() of the one engine */
    bool                      one;    /* there is one: no ranks */
};

static tsr_status load_chat(struct batch_run *r, struct tsr_err *err)
{
    char *folder = NULL;
    if (!r->job->tokenizer) {
        (void)tsr_fail(&r->no_chat.err, TSR_E_INPUT, "the model has no tokenizer");
        return TSR_OK;
    }
    TSR_TRY(tsr_model_resolve(r->job->model_path, &folder, err));
    tsr_status st = tsr_chat_load(&r->chat, folder, r->job->tokenizer, &r->no_chat.err);
    free(folder);
    /* that there is no template, or an unknown one, is said by the lines that ask for a chat */
    return st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_UNSUPPORTED
               ? TSR_OK
               : tsr_fail(err, st, "%s", r->no_chat.text);
}

static tsr_status paths(struct batch_run *r, struct tsr_err *err)
{
    TSR_TRY(tsr_job_output(r->job, r->o->output, &r->output, err));
    if (tsr_path_is_dir(r->output))
        return tsr_fail(err, TSR_E_INPUT, "%s: is a folder; name a file", r->output);
    uint64_t n = strlen(r->output) + 5;
    r->folder = tsr_new(n, 1);
    if (!r->folder)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(r->folder, n, "%s.job", r->output);
    return tsr_make_dirs(r->folder, err);
}

static tsr_status open_records(struct batch_run *r, struct tsr_err *err)
{
    uint64_t i = 1, n = 1;
    char    *path = tsr_job_input(r->job, r->o->input);
    if (!path)
        return tsr_fail_nomem(err, strlen(r->o->input), "a path");
    (void)parse_shard(r->o->shard, &i, &n);
    tsr_status st = tsr_records_open(&r->records, path, (uint64_t)r->o->limit, i, n, err);
    free(path);
    return st;
}

static uint64_t context_of(const struct batch_run *r)
{
    uint64_t most = r->job->model->hp.max_positions;
    if (r->o->context)
        return (uint64_t)r->o->context;
    return most && most < 2048 ? most : 2048;
}

/* What answers call the model: the last part of the job's name for it. */
static const char *model_name(const struct batch_run *r)
{
    const char *path = r->job->state->model, *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void set_defaults(struct batch_run *r, uint64_t context)
{
    const struct run_options *o = r->o;
    r->same = (struct tsr_run_same){ r->job, r->output };
    r->b.same = tsr_run_same;
    r->b.same_ctx = &r->same;
    r->b.records = &r->records;
    r->b.output = r->output;
    r->b.folder = r->folder;
    r->b.retry = o->retry_errors != 0;
    r->b.quiet = r->job->quiet;
    r->b.deadline_us = (uint64_t)(o->deadline * 1e6);
    r->b.about = r->about;
    r->b.ids = (struct tsr_answer_ids){ r->base, model_name(r) };
    r->b.defaults = (struct tsr_request_defaults){
        .max_tokens = (uint64_t)o->max_tokens,
        .sampling = { .temperature = o->temperature,
                      .top_k = (uint64_t)o->top_k,
                      .top_p = o->top_p,
                      .repetition_penalty = o->repetition_penalty,
                      .seed = r->job->seed },
        .allow_special = o->allow_special != 0,
        .ignore_eos = o->ignore_eos != 0,
        .context = context,
        .tokenizer = r->job->tokenizer,
        .chat = r->chat,
        .why_no_chat = r->no_chat.text,
        .pass = &r->b.pass,
    };
}

static void on_layer(void *ctx, uint64_t layer, bool load)
{
    (void)ctx;
    (void)layer;
    (void)load;
    tsr_watch_beat();
}

/* Names as JSON, which holds no other bytes than UTF-8. */
static json_t *name_json(const char *s)
{
    json_t *j = json_string(s);
    return j ? j : json_string("model");
}

/* The template, and what is said where there is none, stand in answers or shape them. */
static tsr_status note_chat(struct batch_run *r, struct tsr_err *err)
{
    const char *bos = "", *eos = "";
    if (r->chat)
        tsr_chat_ends(r->chat, &bos, &eos);
    json_t *chat = r->chat ? json_pack("{s:s, s:s, s:s}", "template", tsr_chat_name(r->chat), "bos",
                                       bos, "eos", eos)
                           : json_null();
    r->kept = json_pack("{s:o, s:o}", "model", name_json(model_name(r)), "no_chat",
                        name_json(r->no_chat.text));
    return r->kept && json_object_set_new(r->job->manifest, "chat", chat) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 64, "the manifest");
}

/* Residuals are a part of what the batch is. */
static tsr_status identify(struct batch_run *r, const struct tsr_compensating *c,
                           struct tsr_err *err)
{
    if (c->from && json_object_set_new(r->job->manifest, "residuals", json_string(c->from->hash)))
        return tsr_fail_nomem(err, 64, "the manifest");
    return tsr_run_identify(r->job, &r->records, r->kept, r->b.id, r->base, &r->about, err);
}

static tsr_status open_residuals(struct batch_run *r, struct tsr_compensating *c,
                                 const struct tsr_engine_compensate **use, struct tsr_err *err)
{
    const struct tsr_compensate_keys *k = &r->o->fleet.compensation;
    char *plan = *k->compensate_plan ? tsr_job_input(r->job, k->compensate_plan) : NULL;
    if (!plan && *k->compensate_plan)
        return tsr_fail_nomem(err, 64, "a path");
    tsr_status st =
        tsr_compensating_open(c, k, plan, r->job->packed, r->packed ? r->packed : r->job->model,
                              r->job->seed, use, err);
    free(plan);
    return st;
}

static tsr_status with_engine(struct batch_run *r, const struct tsr_compensating *c,
                              const struct tsr_engine_options *eo, struct tsr_batch_summary *s,
                              struct tsr_err *err)
{
    struct tsr_job    *job = r->job;
    struct tsr_engine *e = NULL;
    char              *theirs = NULL;
    TSR_TRY(identify(r, c, err));
    set_defaults(r, eo->context);
    TSR_TRY(tsr_engine_create(&e, job->registry, r->packed ? r->packed : job->model, job->overlay,
                              eo, err));
    tsr_engine_acts(e, r->ran);
    r->one = true;
    tsr_pass_engine(&r->b.pass, e);
    tsr_status st = tsr_batch_run(&r->b, s, &theirs, err);
    if (theirs)
        st = tsr_run_differs(r->folder, theirs, r->about, err);
    if (st == TSR_OK && !tsr_compensating_put(r->result, &r->o->fleet.compensation, c, e))
        st = tsr_fail_nomem(err, 64, "the results");
    free(theirs);
    tsr_engine_destroy(e);
    return st;
}

static tsr_status on_engine(struct batch_run *r, struct tsr_batch_summary *s, struct tsr_err *err)
{
    struct tsr_compensating   c = { 0 };
    struct tsr_engine_options eo = { .act = (uint32_t)r->o->act,
                                     .kv_dtype = (uint32_t)r->o->kv,
                                     .slots = (uint32_t)r->o->slots,
                                     .context = context_of(r),
                                     .on_layer = on_layer };
    if (r->records.n < eo.slots)
        eo.slots = r->records.n ? (uint32_t)r->records.n : 1;
    tsr_status st = open_residuals(r, &c, &eo.compensate, err);
    if (st == TSR_OK)
        st = with_engine(r, &c, &eo, s, err);
    tsr_compensating_close(&c);
    return st;
}

/* Another process of an MPI job died, and mpirun, which ends the others then, tells this one to stop:
 * who died is what went wrong. */
static tsr_status blame(const struct batch_run *r, tsr_status st, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (st != TSR_E_CANCELLED || !r->job->mates)
        return st;
    tsr_status why = tsr_mates_failure(r->job->mates, BLAME_US, &e.err);
    return why == TSR_OK ? st : tsr_fail(err, why, "%s", e.text);
}

/* The same on the ranks of a plan. */
static tsr_status on_ranks(struct batch_run *r, struct tsr_batch_summary *s, struct tsr_err *err)
{
    const struct run_options *o = r->o;
    struct tsr_job           *job = r->job;
    struct tsr_run_launch     f;
    char                     *theirs = NULL;
    char                      key[TSR_HASH_TEXT], *about = NULL;
    /* what `auto` became is noted for the batch as it is known before the plan is read */
    tsr_status st = tsr_run_identify(job, &r->records, r->kept, r->b.id, key, &about, err);
    memcpy(key, r->b.id, sizeof key);
    free(about);
    f = (struct tsr_run_launch){ 0 };
    if (st == TSR_OK)
        st = tsr_run_launch_open(&f, job, r->packed ? r->packed : job->model, &o->fleet, r->node,
                                 (uint32_t)o->act, (uint64_t)o->context, r->records.n, key,
                                 (uint64_t)(o->stall * 1e6), err);
    const json_t *states = st == TSR_OK ? tsr_launch_state_hashes(f.fleet) : NULL;
    if (states && json_object_set(job->manifest, "codec_states", (json_t *)(uintptr_t)states) != 0)
        st = tsr_fail_nomem(err, 64, "the manifest");
    if (st == TSR_OK)
        st = identify(r, tsr_launch_compensating(f.fleet), err);
    if (st == TSR_OK)
        st = tsr_run_launch_note(&f, job, key, r->b.id, r->folder, err);
    if (st == TSR_OK) {
        set_defaults(r, f.context);
        tsr_launch_pass(f.fleet, &r->b.pass);
        st = tsr_batch_run(&r->b, s, &theirs, err);
        if (theirs)
            st = tsr_run_differs(r->folder, theirs, r->about, err);
    }
    st = blame(r, st, err);
    if (st == TSR_OK)
        st = tsr_run_launch_report(&f, job, &o->fleet, s->new_tokens, s->seconds, r->result, err);
    tsr_run_launch_close(&f);
    free(theirs);
    return st;
}

static tsr_status prepare(struct batch_run *r, struct tsr_err *err)
{
    struct tsr_watch *w = tsr_watch_get();
    if (w) {
        w->stall_us =
            (uint64_t)(r->o->stall * 1e6); /* ranks are watched by their coordinator, which beats */
        w->deadline_us = (uint64_t)(r->o->deadline * 1e6);
    }
    TSR_TRY(open_records(r, err));
    TSR_TRY(paths(r, err));
    TSR_TRY(tsr_job_need_model(r->job, err));
    if (r->job->packed && !r->job->overlay)
        TSR_TRY(tsr_model_load_streamed(&r->packed, r->job->packed, err));
    TSR_TRY(tsr_run_verify(r->job, err));
    TSR_TRY(load_chat(r, err));
    return note_chat(r, err);
}

static void print(const json_t *r, FILE *to)
{
    char also[64];
    (void)fprintf(to, "%lld records, %lld errors: %s (act %s%s)\n",
                  (long long)json_integer_value(json_object_get(r, "records")),
                  (long long)json_integer_value(json_object_get(r, "errors")),
                  json_string_value(json_object_get(r, "output")),
                  json_string_value(json_object_get(r, "act")), tsr_act_also(r, also));
    tsr_run_ttft_print(r, to);
    tsr_run_launch_print(r, to);
}

static tsr_status file_result(struct batch_run *r, const struct tsr_batch_summary *s,
                              struct tsr_err *err)
{
    json_t *j = r->result;
    bool    ok = tsr_json_put_text(j, "output", r->output) &&
              tsr_json_put_int(j, "records", s->records) &&
              tsr_json_put_int(j, "errors", s->errors) && tsr_run_errors_put(&s->reasons, j) &&
              tsr_json_put_int(j, "starts", s->counts.starts) &&
              tsr_json_put_int(j, "tokens", s->new_tokens) &&
              tsr_json_put_real(j, "seconds", s->seconds) &&
              tsr_json_put_real(j, "journal_s", s->journal_s);
    uint32_t act = (uint32_t)r->o->act;
    if (ok) /* what ranks took is not known here */
        ok = r->one ? tsr_json_put_act(j, tsr_act_ran(act, r->ran), r->ran)
                    : tsr_json_put_text(j, "act", tsr_act_name(act));
    if (!ok)
        return tsr_fail_nomem(err, 64, "the results");
    TSR_TRY(tsr_run_ttft_put(&s->ttft, j, err));
    if (!r->job->json)
        print(j, stdout);
    r->result = NULL;
    return tsr_step_result(r->job, "run", j, err);
}

static tsr_status run(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err)
{
    if (job->mates) {
        const struct run_options *o = opts;
        TSR_TRY(tsr_run_mates_place(job, &o->fleet, node, err));
        if (tsr_mates_rank(job->mates) > 0) {
            TSR_TRY(tsr_job_need_model(job, err));
            return tsr_run_launch_serve(job, job->model, &o->fleet, node, (uint32_t)o->act, err);
        }
    }
    struct batch_run         r = { .o = opts,
                                   .job = job,
                                   .node = node,
                                   .records = { .file = { .fd = -1 } },
                                   .result = json_object() };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_batch_summary s = { 0 };
    r.no_chat.err = e.err; /* its head; the text is our own */
    r.no_chat.err.text = r.no_chat.text;
    r.no_chat.text[0] = '\0';
    tsr_status st = prepare(&r, err);
    if (st == TSR_OK)
        st = tsr_run_launch_wanted(job, &r.o->fleet, node) ? on_ranks(&r, &s, err)
                                                           : on_engine(&r, &s, err);
    if (st == TSR_OK)
        st = file_result(&r, &s, err);
    json_decref(r.result);
    json_decref(r.kept);
    tsr_ttft_free(&s.ttft);
    tsr_model_destroy(r.packed);
    tsr_chat_destroy(r.chat);
    tsr_records_close(&r.records);
    free(r.about);
    free(r.output);
    free(r.folder);
    return st;
}

/* The output of a run that came to its end is what its journal sealed. */
static tsr_status spoilt(const struct tsr_job *job, const void *opts, bool *yes,
                         struct tsr_err *err)
{
    const struct run_options *o = opts;
    char                     *output = tsr_path_join(job->out, o->output);
    if (!output)
        return tsr_fail_nomem(err, strlen(o->output), "a path");
    tsr_status st = tsr_journal_spoilt(output, yes, err);
    if (st == TSR_OK && *yes)
        tsr_logf(TSR_LOG_WARN, "%s is gone or was changed: it is written once more", output);
    free(output);
    return st;
}

static tsr_status gate(const void *opts, const json_t *result, struct tsr_err *err)
{
    const struct run_options *o = opts;
    return o->fail_on_errors ? tsr_run_errors_gate(result, err) : TSR_OK;
}

const struct tsr_step tsr_step_run = {
    .name = "run",
    .summary = "answers a file of requests",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct run_options),
    .check = check,
    .run = run,
    .print = print,
    .spoilt = spoilt,
    .remark = tsr_run_errors_print,
    .gate = gate,
    .streams = true,
};
