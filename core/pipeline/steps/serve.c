/* serve: the model as the steps before left it answers HTTP requests, until a signal ends it. */
#include "pipeline/chat.h"
#include "pipeline/job.h"
#include "pipeline/sampling.h"
#include "pipeline/step.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "serve/loop.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct serve_options {
    const char                       *host, *api_key_file, *name;
    int64_t                           port, max_tokens, slots, cached, context, connections, queue;
    int64_t                           max_body;
    double                            timeout, deadline, drain;
    int32_t                           allow_special, ignore_eos, reuse;
    struct tsr_pipeline_sampling_keys sampling;
    struct tsr_pipeline_chat_keys     talk;
    struct tsr_pipeline_running_keys  run;
};

#define S struct serve_options
static const struct tsr_option options[] = {
    { .name = "host",
      .help = "Address to listen at, as numbers; 0.0.0.0 or :: is every address of the machine.",
      .unit = "ADDRESS",
      .type = TSR_OPT_STRING,
      .offset = TSR_FIELD(S, host, const char *),
      .def = { .s = "127.0.0.1" } },
    TSR_OPTION_INT(S, port, 8080, 0, 65535, NULL, "Port to listen at; 0: one that is free."),
    { .name = "api_key_file",
      .help = "File with a key on its first line; requests must name it as \"Authorization: Bearer "
              "KEY\".",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, api_key_file, const char *),
      .def = { .s = "" } },
    { .name = "name",
      .help = "Name of the model in answers and in /v1/models; default: the last part of its path.",
      .unit = "NAME",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, name, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(S, max_tokens, 256, 0, INT64_C(1) << 31, "tokens",
                   "Most new tokens of a request that does not say."),
    TSR_PIPELINE_SAMPLING_OPTIONS(S, sampling),
    TSR_OPTION_INT(S, slots, 8, 1, 4096, "sequences", "Sequences that are worked on at once."),
    TSR_OPTION_BOOL(S, reuse, 1,
                    "Keys and values stay after an answer, and a prompt that begins with their "
                    "tokens does not compute them again."),
    TSR_OPTION_INT(S, cached, 0, 0, 4096, "sequences",
                   "Room for keys and values that stay, besides that of `slots`."),
    TSR_OPTION_INT(S, context, 0, 0, INT64_C(1) << 31, "tokens",
                   "Most tokens of a prompt and its answer; 0: 2048, or the model's where it has "
                   "fewer."),
    TSR_OPTION_BOOL(S, allow_special, 0,
                    "Special strings inside of prompts and messages count as special tokens."),
    TSR_OPTION_BOOL(S, ignore_eos, 0, "Continue after an end-of-sequence token."),
    TSR_OPTION_INT(S, connections, 128, 1, 65536, "connections", "Open connections at once."),
    TSR_OPTION_INT(S, queue, 256, 1, 65536, "requests",
                   "Requests that are not answered yet; others get status 503."),
    TSR_OPTION_INT(S, max_body, 1 << 20, 1024, TSR_SERVE_BODY_MOST, "bytes",
                   "Longest body of a request; others get status 413."),
    TSR_OPTION_REAL(S, timeout, 30.0, 0.1, 3600.0, "s",
                    "A client has so long to send a request, and to read its answer."),
    TSR_OPTION_REAL(S, deadline, 0.0, 0.0, 1e6, "s",
                    "A request that takes longer gets status 504; 0: none does."),
    TSR_OPTION_REAL(S, drain, 30.0, 0.0, 3600.0, "s",
                    "After the first signal, requests that have come are answered for so long."),
    TSR_PIPELINE_CHAT_OPTIONS(S, talk),
    TSR_PIPELINE_RUNNING_OPTIONS(S, run, TSR_ACT_A8, TSR_PIPELINE_POSITIONS_DECODE, TSR_OPT_UNSAID),
};
#undef S

struct serving {
    const struct serve_options *o;
    struct tsr_pipeline_job    *job;
    struct tsr_model          *packed; /* written to disk by a streaming step of the job; or NULL */
    struct tsr_chat           *chat;
    struct tsr_errbuf          no_chat;
    struct tsr_engine_sampling sampling;
    struct tsr_serve_http      http;
    struct tsr_serve_counts    counts;
    char                      *key;
    json_t                    *tokenizer; /* its special tokens and template; NULL: none */
    char                       base[64];
    uint64_t                   ran[3];
};

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct serve_options *o = opts;
    (void)err;
    if (*o->api_key_file)
        tsr_pipeline_check_input(job, node, "api_key_file", d);
    tsr_pipeline_chat_check(&o->talk, node, d);
    return TSR_OK;
}

/* ---- what requests share ------------------------------------------------- */

/* The first line of the file. */
static tsr_status load_key(struct serving *s, struct tsr_err *err)
{
    char    *path = tsr_pipeline_job_input(s->job, s->o->api_key_file), *text = NULL;
    uint64_t n = 0;
    if (!path)
        return tsr_fail_nomem(err, strlen(s->o->api_key_file), "a path");
    tsr_status st = tsr_file_slurp(path, 4096, &text, &n, err);
    if (st == TSR_OK) {
        text[strcspn(text, "\r\n")] = '\0';
        bool plain = *text != '\0';
        for (const char *c = text; *c; c++)
            plain = plain && *c > ' ' && *c < 0x7f;
        if (!plain)
            st = tsr_fail(err, TSR_E_INPUT,
                          "%s: the first line is no key; it must be printable ASCII without spaces",
                          path);
    }
    free(path);
    if (st == TSR_OK)
        s->key = text;
    else
        free(text);
    return st;
}

static tsr_status load_chat(struct serving *s, struct tsr_err *err)
{
    if (!s->job->tokenizer) {
        (void)tsr_fail(&s->no_chat.err, TSR_E_INPUT, "the model has no tokenizer");
        return TSR_OK;
    }
    tsr_status st = tsr_pipeline_chat_load(s->job, &s->o->talk, &s->chat, &s->no_chat.err);
    /* requests for a chat report a model's template that is missing or cannot run */
    return st == TSR_OK || (st == TSR_E_INPUT && !*s->o->talk.template)
               ? TSR_OK
               : tsr_err_copy(err, st, &s->no_chat.err);
}

static const char *name_of(const struct serving *s)
{
    return *s->o->name ? s->o->name : tsr_pipeline_job_model_name(s->job);
}

/* The text of a special token; null: none. */
static json_t *token_json(const struct serving *s, int64_t id)
{
    struct tsr_tokenizer_text text = { 0 };
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    uint32_t                  one = (uint32_t)id;
    json_t                   *j = NULL;
    if (id >= 0 && tsr_detokenize(s->job->tokenizer, &one, 1, false, &text, &e.err) == TSR_OK)
        j = json_stringn(text.v ? text.v : "", text.n);
    tsr_tokenizer_text_free(&text);
    return j ? j : json_null();
}

/* What clients ask for that count and render by themselves (lm-evaluation-harness). */
static tsr_status describe_tokenizer(struct serving *s, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &s->job->model->hp;
    if (!s->job->tokenizer)
        return TSR_OK;
    const json_t *text = s->chat ? tsr_tokenizer_chat_text(s->chat) : NULL;
    s->tokenizer =
        json_pack("{s:o, s:o, s:O?}", "bos_token", token_json(s, hp->bos), "eos_token",
                  token_json(s, hp->n_eos ? (int64_t)hp->eos[0] : -1), "chat_template", text);
    return s->tokenizer ? TSR_OK : tsr_fail_nomem(err, 64, "the tokenizer's texts");
}

static uint64_t context_of(const struct serving *s)
{
    uint64_t most = s->job->model->hp.max_positions;
    if (s->o->context)
        return (uint64_t)s->o->context;
    return most && most < 2048 ? most : 2048;
}

static tsr_status prepare(struct serving *s, const struct tsr_config_node *node,
                          struct tsr_err *err)
{
    const struct serve_options *o = s->o;
    if (*o->api_key_file)
        TSR_TRY(load_key(s, err));
    TSR_TRY(tsr_pipeline_job_need_model(s->job, err));
    if (!s->job->tokenizer)
        TSR_TRY(tsr_pipeline_job_find_tokenizer(s->job, err));
    s->sampling = tsr_pipeline_sampling_of(&o->sampling, s->job->seed);
    TSR_TRY(tsr_pipeline_sampling(s->job, node, &s->sampling, err));
    if (s->job->packed && !s->job->overlay)
        TSR_TRY(tsr_model_load_streamed(&s->packed, s->job->packed, err));
    TSR_TRY(load_chat(s, err));
    return describe_tokenizer(s, err);
}

/* ---- the run ------------------------------------------------------------ */

static tsr_status start_http(struct serving *s, int64_t created, struct tsr_err *err)
{
    const struct serve_options *o = s->o;
    return tsr_serve_http_start(&s->http,
                                &(struct tsr_serve_http_options){ .host = o->host,
                                                                  .port = (uint32_t)o->port,
                                                                  .key = s->key,
                                                                  .model = name_of(s),
                                                                  .tokenizer = s->tokenizer,
                                                                  .created = created,
                                                                  .max_body = (uint64_t)o->max_body,
                                                                  .connections =
                                                                      (uint64_t)o->connections,
                                                                  .requests = (uint64_t)o->queue,
                                                                  .timeout = o->timeout },
                                err);
}

/* Room for sequences that stay, where they can. */
static bool make_cache(const struct serving *s, struct tsr_engine_options *eo)
{
    const char *why;
    if (!s->o->reuse)
        return false;
    if (!tsr_engine_reuses(&s->job->model->hp, eo, &why)) {
        tsr_logf(TSR_LOG_WARN, "keys and values of prompts are not reused: %s", why);
        return false;
    }
    eo->slots += (uint32_t)s->o->cached;
    return true;
}

static tsr_status serve(struct serving *s, struct tsr_pipeline_running *how, struct tsr_err *err)
{
    const struct serve_options *o = s->o;
    struct tsr_pipeline_job    *job = s->job;
    struct tsr_engine          *e = NULL;
    bool                        reuses = make_cache(s, &how->eo);
    int64_t                     now = (int64_t)time(NULL);
    /* ids differ from one start to the next */
    (void)snprintf(s->base, sizeof s->base, "serve:%lld:%llu", (long long)now,
                   (unsigned long long)tsr_now_us());
    TSR_TRY(tsr_engine_create(&e, job->registry, s->packed ? s->packed : job->model, job->overlay,
                              &how->eo, err));
    tsr_engine_acts(e, s->ran);
    struct tsr_serve_loop l = { .http = &s->http,
                                .defaults = { .max_tokens = (uint64_t)o->max_tokens,
                                              .sampling = s->sampling,
                                              .allow_special = o->allow_special != 0,
                                              .ignore_eos = o->ignore_eos != 0,
                                              .context = how->eo.context,
                                              .tokenizer = job->tokenizer,
                                              .chat = s->chat,
                                              .why_no_chat = s->no_chat.text },
                                .ids = { .base = s->base, .model = name_of(s), .created = now },
                                .requests = (uint64_t)o->queue,
                                .deadline_us = (uint64_t)(o->deadline * 1e6),
                                .drain_us = (uint64_t)(o->drain * 1e6) };
    tsr_engine_pass_engine(&l.pass, e);
    if (reuses)
        tsr_engine_pass_reuse(&l.pass, &how->eo, (uint32_t)o->slots);
    tsr_status st = start_http(s, now, err);
    if (st == TSR_OK) {
        if (!job->quiet)
            (void)fprintf(stderr, "tessera: listening at http://%s\n", s->http.address);
        st = tsr_serve_loop_run(&l, &s->counts, err);
        tsr_serve_http_end(&s->http, 5);
    }
    tsr_engine_destroy(e);
    return st;
}

static void print(const json_t *r, FILE *to)
{
    (void)fprintf(to, "%lld requests, %lld errors, %lld new tokens\n",
                  (long long)json_integer_value(json_object_get(r, "requests")),
                  (long long)json_integer_value(json_object_get(r, "errors")),
                  (long long)json_integer_value(json_object_get(r, "new_tokens")));
}

static tsr_status file_result(struct serving *s, struct tsr_err *err)
{
    const struct tsr_serve_counts *n = &s->counts;
    json_t                        *j = json_object();
    if (!tsr_pipeline_json_put_int(j, "requests", n->requests) ||
        !tsr_pipeline_json_put_int(j, "errors", n->errors) ||
        !tsr_pipeline_json_put_int(j, "gone", n->gone) ||
        !tsr_pipeline_json_put_int(j, "prompt_tokens", n->prompt_tokens) ||
        !tsr_pipeline_json_put_int(j, "new_tokens", n->new_tokens)) {
        json_decref(j);
        return tsr_fail_nomem(err, 64, "the results");
    }
    if (!s->job->json)
        print(j, stdout);
    return tsr_pipeline_step_result(s->job, "serve", j, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct serving              s = { .o = opts, .job = job };
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_pipeline_running how = { 0 };
    s.no_chat.err = e.err; /* its head; the text is our own */
    s.no_chat.err.text = s.no_chat.text;
    s.no_chat.text[0] = '\0';
    tsr_status st = prepare(&s, node, err);
    if (st == TSR_OK)
        st = tsr_pipeline_running_open(&how, job, &s.o->run, s.packed ? s.packed : job->model,
                                       job->packed, job->seed, err);
    how.eo.slots = (uint32_t)s.o->slots;
    if (st == TSR_OK) {
        how.eo.context = context_of(&s);
        st = serve(&s, &how, err);
    }
    tsr_pipeline_running_close(&how);
    if (st == TSR_OK)
        st = file_result(&s, err);
    tsr_model_destroy(s.packed);
    tsr_tokenizer_chat_destroy(s.chat);
    json_decref(s.tokenizer);
    free(s.key);
    return st;
}

/* A server that ended is started again. */
static tsr_status spoilt(const struct tsr_pipeline_job *job, const void *opts, bool *yes,
                         struct tsr_err *err)
{
    (void)job;
    (void)opts;
    (void)err;
    *yes = true;
    return TSR_OK;
}

const struct tsr_pipeline_step tsr_step_serve = {
    .name = "serve",
    .summary = "answers HTTP requests",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct serve_options),
    .check = check,
    .run = run,
    .print = print,
    .spoilt = spoilt,
    .streams = true,
};
