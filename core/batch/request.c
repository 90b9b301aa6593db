#include "batch/request.h"

#include "batch/format.h"
#include "batch/messages.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define NAME "request"

/* ---- keys --------------------------------------------------------------- */

static bool known(const char *key, bool chat)
{
    static const char *const both[] = { "model",
                                        "max_tokens",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "repetition_penalty",
                                        "seed",
                                        "stop",
                                        "logprobs",
                                        "n",
                                        "stream",
                                        "stream_options",
                                        "user",
                                        "ignore_eos",
                                        "allow_special",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "logit_bias",
                                        "response_format" };
    static const char *const text[] = { "prompt", "best_of", "echo", "suffix",
                                        "add_special_tokens" };
    static const char *const talk[] = { "messages", "top_logprobs", "max_completion_tokens",
                                        "tools",    "tool_choice",  "chat_template_kwargs" };
    const char *const       *own = chat ? talk : text;
    size_t                   n = chat ? sizeof talk / sizeof *talk : sizeof text / sizeof *text;
    for (size_t i = 0; i < sizeof both / sizeof *both; i++)
        if (strcmp(key, both[i]) == 0)
            return true;
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, own[i]) == 0)
            return true;
    return false;
}

/* Keys whose only value is the one that asks for nothing. */
static tsr_status check_plain(const json_t *body, struct tsr_err *err)
{
    static const struct {
        const char *key;
        double      value;
    } fixed[] = { { "best_of", 1 }, { "presence_penalty", 0 }, { "frequency_penalty", 0 } };
    static const char *const none[] = { "suffix", "logit_bias" };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const json_t *v = json_object_get(body, fixed[i].key);
        if (v && !json_is_null(v) && !(json_is_number(v) && json_number_value(v) == fixed[i].value))
            return tsr_fail(err, TSR_E_INPUT, "\"%s\" can only be %g", fixed[i].key,
                            fixed[i].value);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const json_t *v = json_object_get(body, none[i]);
        if (v && !json_is_null(v) && !(json_is_object(v) && json_object_size(v) == 0))
            return tsr_fail(err, TSR_E_INPUT, "\"%s\" is not supported", none[i]);
    }
    return TSR_OK;
}

static tsr_status check_keys(const json_t *body, bool chat, struct tsr_err *err)
{
    const char *key;
    json_t     *v;
    json_object_foreach ((json_t *)(uintptr_t)body, key, v)
        if (!known(key, chat))
            return tsr_fail(err, TSR_E_INPUT,
                            "\"%.60s\" is not a key of a %s request that is known", key,
                            chat ? "chat" : "completion");
    return check_plain(body, err);
}

/* ---- values ------------------------------------------------------------- */

static tsr_status read_stops(struct tsr_batch_request *r, const json_t *body, struct tsr_err *err)
{
    json_t *stop = json_object_get(body, "stop"), *one;
    size_t  n = json_is_array(stop) ? json_array_size(stop) : stop && !json_is_null(stop) ? 1 : 0;
    if (n > TSR_MAX_STOPS)
        return tsr_fail(err, TSR_E_INPUT, "\"stop\" has %zu strings, more than %u", n,
                        TSR_MAX_STOPS);
    for (size_t i = 0; i < n; i++) {
        one = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(one) || json_string_length(one) == 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "\"stop\" must be a string or a list of strings that are not empty");
        r->stop[i] = json_string_value(one);
        r->stop_bytes[i] = json_string_length(one);
    }
    r->q.stop = r->stop;
    r->q.stop_bytes = r->stop_bytes;
    r->q.n_stop = (uint32_t)n;
    return TSR_OK;
}

/* "stream": true, "stream_options": {"include_usage": true} */
static tsr_status read_stream(struct tsr_batch_request *r, const json_t *body, bool streams,
                              struct tsr_err *err)
{
    const json_t *options = json_object_get(body, "stream_options");
    const char   *key;
    json_t       *v;
    TSR_TRY(tsr_json_bool(body, NAME, "stream", false, &r->stream, err));
    if (r->stream && !streams)
        return tsr_fail(err, TSR_E_INPUT, "\"stream\" can only be false");
    if (!options || json_is_null(options))
        return TSR_OK;
    if (!r->stream || !json_is_object(options))
        return tsr_fail(err, TSR_E_INPUT,
                        "\"stream_options\" is an object, for requests with \"stream\": true");
    json_object_foreach ((json_t *)(uintptr_t)options, key, v)
        if (strcmp(key, "include_usage") != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "\"%.60s\" is not a key of \"stream_options\"; \"include_usage\" is",
                            key);
    return tsr_json_bool(options, "stream_options", "include_usage", false, &r->stream_usage, err);
}

/* completions: "logprobs": 0 to 20; chat: "logprobs": true, "top_logprobs": 0 to 20 */
static tsr_status read_logprobs(struct tsr_batch_request *r, const json_t *body,
                                struct tsr_err *err)
{
    int64_t top = -1;
    if (!r->chat) {
        TSR_TRY(tsr_json_int(body, NAME, "logprobs", false, 0, TSR_ENGINE_MAX_LOGPROBS, &top, err));
        TSR_TRY(tsr_json_bool(body, NAME, "echo", false, &r->q.echo, err));
        r->q.logprobs = top >= 0;
        r->q.prompt_logprobs = r->q.logprobs && r->q.echo;
    } else {
        TSR_TRY(tsr_json_bool(body, NAME, "logprobs", false, &r->q.logprobs, err));
        TSR_TRY(
            tsr_json_int(body, NAME, "top_logprobs", false, 0, TSR_ENGINE_MAX_LOGPROBS, &top, err));
        if (top > 0 && !r->q.logprobs)
            return tsr_fail(err, TSR_E_INPUT, "\"top_logprobs\" wants \"logprobs\": true");
    }
    r->q.top = top > 0 ? (uint32_t)top : 0;
    return TSR_OK;
}

static tsr_status read_values(struct tsr_batch_request *r, const json_t *body, uint64_t number,
                              const struct tsr_batch_request_defaults *d, bool *special,
                              struct tsr_err *err)
{
    struct tsr_engine_sampling *s = &r->q.sampling;
    int64_t       most = (int64_t)d->max_tokens, k = (int64_t)s->top_k, seed = -1, n = 1;
    const int64_t limit = INT64_C(1) << 31;
    TSR_TRY(tsr_json_int(body, NAME, "max_tokens", false, 0, limit, &most, err));
    if (r->chat)
        TSR_TRY(tsr_json_int(body, NAME, "max_completion_tokens", false, 0, limit, &most, err));
    TSR_TRY(tsr_json_real(body, NAME, "temperature", false, 0, 100, &s->temperature, err));
    TSR_TRY(tsr_json_real(body, NAME, "top_p", false, 1e-9, 1, &s->top_p, err));
    TSR_TRY(tsr_json_real(body, NAME, "min_p", false, 0, 1, &s->min_p, err));
    TSR_TRY(tsr_json_int(body, NAME, "top_k", false, 0, limit, &k, err));
    TSR_TRY(tsr_json_real(body, NAME, "repetition_penalty", false, 1e-3, 1e3,
                          &s->repetition_penalty, err));
    TSR_TRY(tsr_json_int(body, NAME, "seed", false, 0, INT64_MAX, &seed, err));
    TSR_TRY(tsr_json_int(body, NAME, "n", false, 1, TSR_BATCH_N_MOST, &n, err));
    TSR_TRY(tsr_json_bool(body, NAME, "ignore_eos", false, &r->q.ignore_eos, err));
    TSR_TRY(tsr_json_bool(body, NAME, "allow_special", false, special, err));
    TSR_TRY(tsr_json_str(body, NAME, "model", false, &r->model, err));
    r->q.max_tokens = (uint64_t)most;
    s->top_k = (uint64_t)k;
    r->q.record = number;
    r->n = (uint32_t)n;
    r->seeded = seed >= 0;
    if (seed >= 0) { /* a seeded request depends on nothing else */
        s->seed = (uint64_t)seed;
        r->q.record = 0;
    }
    TSR_TRY(read_stops(r, body, err));
    TSR_TRY(read_stream(r, body, d->streams, err));
    r->q.grows = r->stream;
    return read_logprobs(r, body, err);
}

/* ---- prompts ------------------------------------------------------------ */

static tsr_status read_prompt(struct tsr_batch_request *r, const json_t *body, bool special,
                              const struct tsr_batch_request_defaults *d, struct tsr_err *err)
{
    bool     bos = true;
    unsigned flags = special ? 0 : TSR_TOKENIZER_NO_SPECIALS;
    TSR_TRY(tsr_json_bool(body, NAME, "add_special_tokens", false, &bos, err));
    return tsr_batch_prompts_read(&r->prompts, json_object_get(body, "prompt"), d->tokenizer,
                                  flags | (bos ? TSR_TOKENIZER_SPECIAL : 0), err);
}

static tsr_status read_messages(struct tsr_batch_request *r, const json_t *body, bool special,
                                const struct tsr_batch_request_defaults *d, struct tsr_err *err)
{
    if (!d->chat)
        return tsr_fail(err, TSR_E_INPUT, "%s", d->why_no_chat);
    TSR_TRY(tsr_batch_prompts_one(&r->prompts, err));
    TSR_TRY(tsr_batch_messages(body, d->chat, special, &r->prompts.ids, err));
    tsr_batch_prompts_end(&r->prompts);
    return TSR_OK;
}

static tsr_status check_choice(struct tsr_batch_request *r, uint32_t choice,
                               const struct tsr_batch_request_defaults *d, struct tsr_err *err)
{
    struct tsr_engine_serve_request q = tsr_batch_request_choice(r, choice);
    uint64_t                        total;
    if (!tsr_add(q.n_prompt, q.max_tokens ? q.max_tokens - 1 : 0, &total) || total > d->context) {
        r->code = "context_length_exceeded";
        return tsr_fail(err, TSR_E_INPUT,
                        "a prompt of %llu tokens and %llu new ones do not fit the context of %llu",
                        (unsigned long long)q.n_prompt, (unsigned long long)q.max_tokens,
                        (unsigned long long)d->context);
    }
    return d->pass ? tsr_engine_server_check(d->pass, &q, err) : TSR_OK;
}

/* Lengths are within the context, so that no product here overflows. */
static tsr_status check_size(const struct tsr_batch_request *r, struct tsr_err *err)
{
    uint64_t tokens = r->q.max_tokens * r->prompts.n + (r->q.echo ? r->prompts.ids.n : 0);
    uint64_t values = r->q.logprobs ? tokens * r->n * (1 + (uint64_t)r->q.top) : 0;
    if (values > TSR_BATCH_LOGPROBS_MOST)
        return tsr_fail(err, TSR_E_INPUT,
                        "the answer could have %llu log-probabilities, more than %llu; ask for "
                        "fewer tokens, choices or \"logprobs\"",
                        (unsigned long long)values, (unsigned long long)TSR_BATCH_LOGPROBS_MOST);
    return TSR_OK;
}

static tsr_status check_choices(struct tsr_batch_request                *r,
                                const struct tsr_batch_request_defaults *d, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (r->n > TSR_BATCH_CHOICES_MOST / r->prompts.n)
        return tsr_fail(err, TSR_E_INPUT,
                        "%u prompts with \"n\" %u make more than %u choices; split the request",
                        r->prompts.n, r->n, TSR_BATCH_CHOICES_MOST);
    for (uint32_t i = 0; i < r->prompts.n; i++) {
        tsr_status st = check_choice(r, i * r->n, d, &e.err);
        if (st != TSR_OK)
            return r->prompts.listed ? tsr_fail(err, st, "prompt %u: %s", i + 1, e.text)
                                     : tsr_err_copy(err, st, &e.err);
    }
    return check_size(r, err);
}

uint32_t tsr_batch_request_choices(const struct tsr_batch_request *r)
{
    return r->prompts.n * r->n;
}

struct tsr_engine_serve_request tsr_batch_request_choice(const struct tsr_batch_request *r,
                                                         uint32_t                        choice)
{
    struct tsr_engine_serve_request q = r->q;
    const uint64_t                 *start = r->prompts.start + choice / r->n;
    q.prompt = r->prompts.ids.v + start[0];
    q.n_prompt = start[1] - start[0];
    if (r->seeded)
        q.sampling.seed += choice % r->n;
    else
        q.record += (uint64_t)choice << 40; /* no file has so many lines */
    return q;
}

/* ---- lines -------------------------------------------------------------- */

static tsr_status read_head(struct tsr_batch_request *r, struct tsr_err *err)
{
    const char *method = "POST", *url = NULL, *key;
    json_t     *v;
    if (!json_is_object(r->root))
        return tsr_fail(err, TSR_E_INPUT, "the line is not a JSON object");
    TSR_TRY(tsr_json_str(r->root, NAME, "custom_id", true, &r->custom_id, err));
    TSR_TRY(tsr_json_str(r->root, NAME, "method", false, &method, err));
    TSR_TRY(tsr_json_str(r->root, NAME, "url", true, &url, err));
    json_object_foreach (r->root, key, v)
        if (strcmp(key, "custom_id") != 0 && strcmp(key, "method") != 0 &&
            strcmp(key, "url") != 0 && strcmp(key, "body") != 0)
            return tsr_fail(err, TSR_E_INPUT, "\"%.60s\" is not a key of a line that is known",
                            key);
    r->chat = strcmp(url, "/v1/chat/completions") == 0;
    if (!r->chat && strcmp(url, "/v1/completions") != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "\"url\" is \"%.80s\"; it must be /v1/completions or /v1/chat/completions",
                        url);
    return strcmp(method, "POST") == 0
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "\"method\" is \"%.20s\"; it must be POST", method);
}

static tsr_status parse_body(struct tsr_batch_request *r, const json_t *body, uint64_t number,
                             const struct tsr_batch_request_defaults *d, struct tsr_err *err)
{
    bool special = d->allow_special;
    TSR_TRY(check_keys(body, r->chat, err));
    TSR_TRY(read_values(r, body, number, d, &special, err));
    TSR_TRY(r->chat ? read_messages(r, body, special, d, err)
                    : read_prompt(r, body, special, d, err));
    r->q.tokenizer = d->tokenizer;
    r->q.draft = d->draft;
    TSR_TRY(tsr_batch_format_read(&r->q.samplers, d->samplers, d->maker, body, err));
    TSR_TRY(check_choices(r, d, err));
    r->q = tsr_batch_request_choice(r, 0);
    return TSR_OK;
}

static tsr_status parse_line(struct tsr_batch_request *r, uint64_t number,
                             const struct tsr_batch_request_defaults *d, struct tsr_err *err)
{
    json_t *body = NULL;
    TSR_TRY(read_head(r, err));
    TSR_TRY(tsr_json_sub(r->root, NAME, "body", true, JSON_OBJECT, &body, err));
    return parse_body(r, body, number, d, err);
}

static tsr_status begin(struct tsr_batch_request *r, const char *text, uint64_t len,
                        const struct tsr_batch_request_defaults *d, struct tsr_err *err)
{
    memset(r, 0, sizeof *r);
    r->q.sampling = d->sampling;
    r->q.ignore_eos = d->ignore_eos;
    tsr_status st = tsr_json_parse(&r->root, NAME, text, len, 32, err);
    if (st != TSR_OK)
        r->code = "invalid_json";
    return st;
}

/* Sets the code of an error that the request is at fault for. */
static tsr_status end(struct tsr_batch_request *r, tsr_status st)
{
    if (st != TSR_OK && !r->code)
        r->code = "invalid_request";
    if (st != TSR_E_INPUT && st != TSR_E_CONFIG && st != TSR_E_UNSUPPORTED)
        r->code = NULL; /* not the line's fault */
    return st;
}

tsr_status tsr_batch_request_parse(struct tsr_batch_request *r, const char *line, uint64_t len,
                                   uint64_t line_number, const struct tsr_batch_request_defaults *d,
                                   struct tsr_err *err)
{
    tsr_status st = begin(r, line, len, d, err);
    return end(r, st == TSR_OK ? parse_line(r, line_number, d, err) : st);
}

tsr_status tsr_batch_request_parse_body(struct tsr_batch_request *r, const char *body, uint64_t len,
                                        bool chat, const struct tsr_batch_request_defaults *d,
                                        struct tsr_err *err)
{
    tsr_status st = begin(r, body, len, d, err);
    r->chat = chat;
    if (st == TSR_OK)
        st = json_is_object(r->root) ? parse_body(r, r->root, 0, d, err)
                                     : tsr_fail(err, TSR_E_INPUT, "the body is not a JSON object");
    return end(r, st);
}

void tsr_batch_request_free(struct tsr_batch_request *r)
{
    json_decref(r->root);
    tsr_batch_prompts_free(&r->prompts);
    tsr_engine_samplers_drop(r->q.samplers);
    memset(r, 0, sizeof *r);
}
