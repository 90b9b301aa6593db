/* serve: the model as the steps before left it answers HTTP requests, until a signal ends it. */
#include "pipeline/steps/compare_step.h"
#include "pipeline/steps/serve_step.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define S struct tsr_step_serve_options
static const struct tsr_option options[] = {
    { .name = "host",
      .help = "Address to listen at, as numbers; 0.0.0.0 or :: is every address of the machine.",
      .unit = "ADDRESS",
      .type = TSR_OPT_STRING,
      .offset = TSR_FIELD(S, host, const char *),
      .def = { .s = "127.0.0.1" } },
    TSR_OPTION_INT(S, port, 8080, 0, 65535, NULL, "Port to listen at; 0: one that is free."),
    { .name = "port_file",
      .help = "File that holds the port, from the current folder, as soon as requests are taken.",
      .unit = "FILE",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, port_file, const char *),
      .def = { .s = "" } },
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
    TSR_PIPELINE_SAMPLERS_OPTION(S, samplers),
    TSR_OPTION_INT(S, slots, 8, 1, 4096, "sequences", "Sequences that are worked on at once."),
    { .name = "blind",
      .help = "After a comparison: arms are arm-1, arm-2, ... in an order by the seed, and the "
              "results say which is which.",
      .type = TSR_OPT_BOOL,
      .flags = TSR_OPT_UNSAID,
      .offset = TSR_FIELD(S, blind, int32_t) },
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
    TSR_PIPELINE_DRAFT_OPTIONS(S, drafting),
    TSR_PIPELINE_CHAT_OPTIONS(S, talk),
    TSR_OPTION_REAL(S, stall, 5.0, 1.0, 3600.0, "s",
                    "A rank of a plan that works without progress for this long ends the server."),
    TSR_RUN_PLAN_OPTION(S, fleet),
    TSR_PIPELINE_RUNNING_OPTIONS(S, fleet.run, TSR_ACT_A8, TSR_PIPELINE_POSITIONS_DECODE,
                                 TSR_OPT_UNSAID),
    TSR_RUN_RANKS_OPTIONS(S, fleet),
};
#undef S

/* Keys that arms leave without effect, and the one that needs them. */
static void check_arms(const struct tsr_pipeline_job *job, const struct tsr_step_serve_options *o,
                       const struct tsr_config_node *node, struct tsr_diag *d)
{
    bool                          arms = tsr_step_compare_before(job) != NULL;
    const char                   *key = arms && *o->name         ? "name"
                                        : arms && *o->fleet.plan ? "plan"
                                        : !arms && o->blind      ? "blind"
                                                                 : NULL;
    const struct tsr_config_node *at = key ? tsr_config_node_get(node, key) : NULL;
    if (key)
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, NULL,
                              arms
                                  ? "'%s' is not for the arms of a comparison, which serve exposes "
                                    "under their names"
                                  : "'%s' is for the arms of a comparison, and none is before",
                              key);
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_step_serve_options *o = opts;
    if (*o->api_key_file)
        tsr_pipeline_check_input(job, node, "api_key_file", d);
    tsr_pipeline_chat_check(&o->talk, node, d);
    tsr_pipeline_draft_check(job, &o->drafting, node, d);
    tsr_step_run_launch_check(job, &o->fleet, node, d);
    check_arms(job, o, node, d);
    return tsr_pipeline_samplers_check(job, o->samplers, d, err);
}

/* ---- what requests share ------------------------------------------------- */

/* The first line of the file. */
static tsr_status load_key(struct tsr_step_serving *s, struct tsr_err *err)
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

static tsr_status load_chat(struct tsr_step_serving *s, struct tsr_err *err)
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

/* The text of a special token; null: none. */
static json_t *token_json(const struct tsr_step_serving *s, int64_t id)
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
static tsr_status describe_tokenizer(struct tsr_step_serving *s, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &s->job->model->hp;
    if (!s->job->tokenizer)
        return TSR_OK;
    json_t *text = (json_t *)(uintptr_t)(s->chat ? tsr_tokenizer_chat_text(s->chat) : NULL);
    s->tokenizer = json_object();
    tsr_json_set(&s->tokenizer, "bos_token", token_json(s, hp->bos));
    tsr_json_set(&s->tokenizer, "eos_token", token_json(s, hp->n_eos ? (int64_t)hp->eos[0] : -1));
    tsr_json_set(&s->tokenizer, "chat_template", text ? json_incref(text) : json_null());
    return s->tokenizer ? TSR_OK : tsr_fail_nomem(err, 64, "the tokenizer's texts");
}

static tsr_status prepare(struct tsr_step_serving *s, const struct tsr_config_node *node,
                          struct tsr_err *err)
{
    const struct tsr_step_serve_options *o = s->o;
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
    TSR_TRY(tsr_pipeline_samplers_open(&s->samplers, s->job, o->samplers, err));
    return describe_tokenizer(s, err);
}

static void print(const json_t *r, FILE *to)
{
    const char *name;
    json_t     *arm;
    (void)fprintf(to, "%lld requests, %lld errors, %lld new tokens\n",
                  (long long)json_integer_value(json_object_get(r, "requests")),
                  (long long)json_integer_value(json_object_get(r, "errors")),
                  (long long)json_integer_value(json_object_get(r, "new_tokens")));
    tsr_step_run_launch_print(r, to);
    json_object_foreach ((json_t *)(uintptr_t)json_object_get(r, "arms"), name, arm)
        if (strcmp(name, json_string_value(arm)) != 0) /* blind */
            (void)fprintf(to, "%s is %s\n", name, json_string_value(arm));
}

static tsr_status file_result(struct tsr_step_serving *s, struct tsr_err *err)
{
    const struct tsr_serve_counts *n = &s->counts;
    json_t                        *j = s->result;
    if (!tsr_pipeline_json_put_int(j, "requests", n->requests) ||
        !tsr_pipeline_json_put_int(j, "errors", n->errors) ||
        !tsr_pipeline_json_put_int(j, "gone", n->gone) ||
        !tsr_pipeline_json_put_int(j, "prompt_tokens", n->prompt_tokens) ||
        !tsr_pipeline_json_put_int(j, "new_tokens", n->new_tokens) ||
        !tsr_pipeline_draft_put(j, &s->o->drafting, &n->drafts)) {
        return tsr_fail_nomem(err, 64, "the results");
    }
    if (!s->job->json)
        print(j, stdout);
    s->result = NULL;
    return tsr_pipeline_step_result(s->job, "serve", j, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct tsr_step_serving             s = { .o = opts, .job = job, .result = json_object() };
    struct tsr_errbuf                   e = TSR_ERRBUF(e);
    const struct tsr_pipeline_job_step *compare = tsr_step_compare_before(job);
    s.no_chat.err = e.err; /* its head; the text is our own */
    s.no_chat.err.text = s.no_chat.text;
    s.no_chat.text[0] = '\0';
    tsr_status st = prepare(&s, node, err);
    if (st == TSR_OK)
        st = compare                                        ? tsr_step_serve_arms(&s, compare, err)
             : tsr_step_run_launch_wanted(job, &s.o->fleet) ? tsr_step_serve_on_ranks(&s, err)
                                                            : tsr_step_serve_on_engine(&s, err);
    if (st == TSR_OK)
        st = file_result(&s, err);
    tsr_model_destroy(s.packed);
    tsr_tokenizer_chat_destroy(s.chat);
    tsr_pipeline_samplers_close(&s.samplers);
    json_decref(s.tokenizer);
    json_decref(s.result);
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
    .options_size = sizeof(struct tsr_step_serve_options),
    .check = check,
    .run = run,
    .print = print,
    .spoilt = spoilt,
    .streams = true,
};
