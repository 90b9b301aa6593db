/* Output lines, in the shape of the OpenAI batch API. */
#include "batch/request.h"

#include "base/hash.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* json_pack() and friends return NULL when memory is short; so does everything that holds one. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

void tsr_batch_answer_id(const struct tsr_batch_answer_ids *ids, const char *prefix,
                         uint64_t number, char text[64])
{
    (void)snprintf(text, 64, "%.40s%016llx", prefix,
                   (unsigned long long)XXH3_64bits_withSeed(ids->base, strlen(ids->base), number));
}

static json_t *id_of(const struct tsr_batch_answer_ids *ids, const char *prefix, uint64_t number)
{
    char text[64];
    tsr_batch_answer_id(ids, prefix, number, text);
    return json_string(text);
}

/* A second of the century's first decades: times of a clock would not repeat. */
static json_t *created(const struct tsr_batch_answer_ids *ids)
{
    if (ids->created)
        return json_integer(ids->created);
    return json_integer(
        (json_int_t)(1000000000u + XXH3_64bits(ids->base, strlen(ids->base)) % 1000000000u));
}

/* A prompt counts once, whatever "n" is. */
static json_t *usage(const struct tsr_batch_request *q, uint64_t new_tokens)
{
    uint64_t prompts = q->prompts.ids.n;
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)prompts, "completion_tokens",
                     (json_int_t)new_tokens, "total_tokens",
                     (json_int_t)prompts + (json_int_t)new_tokens);
}

/* What answers and their parts begin with.  Takes choices. */
static json_t *body(const struct tsr_batch_answer_ids *ids, uint64_t number,
                    const struct tsr_batch_request *q, const char *object, json_t *choices)
{
    json_t *o = json_object();
    bool    ok = put(o, "id", id_of(ids, q->chat ? "chatcmpl-" : "cmpl-", number));
    ok = put(o, "object", json_string(object)) && ok;
    ok = put(o, "created", created(ids)) && ok;
    ok = put(o, "model", json_string(q->model ? q->model : ids->model)) && ok;
    ok = put(o, "choices", choices) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* Takes both. */
static json_t *with_usage(json_t *o, json_t *u)
{
    if (put(o, "usage", u))
        return o;
    json_decref(o);
    return NULL;
}

json_t *tsr_batch_answer_body(const struct tsr_batch_answer_ids *ids, uint64_t number,
                              const struct tsr_batch_request *q, json_t *choices,
                              uint64_t new_tokens)
{
    const char *object = q->chat ? "chat.completion" : "text_completion";
    return with_usage(body(ids, number, q, object, choices), usage(q, new_tokens));
}

json_t *tsr_batch_answer_event(const struct tsr_batch_answer_ids *ids, uint64_t number,
                               const struct tsr_batch_request *q, json_t *choice,
                               uint64_t new_tokens)
{
    const char *object = q->chat ? "chat.completion.chunk" : "text_completion";
    json_t     *list = json_array();
    bool        last = choice == NULL;
    if (!last)
        tsr_json_add(&list, choice);
    json_t *o = body(ids, number, q, object, list);
    return q->stream_usage ? with_usage(o, last ? usage(q, new_tokens) : json_null()) : o;
}

/* Takes the references. */
static tsr_status print(const struct tsr_batch_answer_ids *ids, uint64_t number,
                        const char *custom_id, json_t *response, json_t *error,
                        struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    json_t    *o = json_object();
    char      *text = NULL;
    uint64_t   len;
    tsr_status st = TSR_OK;
    bool       ok = put(o, "id", id_of(ids, "batch_req_", number));
    ok = put(o, "custom_id", custom_id ? json_string(custom_id) : json_null()) && ok;
    ok = put(o, "response", response) && ok;
    ok = put(o, "error", error) && ok;
    st = ok ? tsr_json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(12), &text, &len, err)
            : tsr_fail_nomem(err, 256, "an output line");
    if (st == TSR_OK)
        st = tsr_tokenizer_text_append(out, text, len, err);
    free(text);
    json_decref(o);
    return st;
}

tsr_status tsr_batch_answer_line(const struct tsr_batch_answer_ids *ids, uint64_t number,
                                 const struct tsr_batch_request *q, json_t *choices,
                                 uint64_t new_tokens, struct tsr_tokenizer_text *out,
                                 struct tsr_err *err)
{
    json_t *response = json_object();
    bool    ok = put(response, "status_code", json_integer(200));
    ok = put(response, "request_id", id_of(ids, "req_", number)) && ok;
    ok = put(response, "body", tsr_batch_answer_body(ids, number, q, choices, new_tokens)) && ok;
    if (!ok) {
        json_decref(response);
        return tsr_fail_nomem(err, new_tokens, "an output line");
    }
    return print(ids, number, q->custom_id, response, json_null(), out, err);
}

tsr_status tsr_batch_answer_error(const struct tsr_batch_answer_ids *ids, uint64_t number,
                                  const char *custom_id, const char *code, const char *message,
                                  struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    /* a message may quote bytes that JSON cannot hold */
    json_t *text = json_string(message);
    json_t *error = json_object();
    bool    ok = put(error, "code", json_string(code));
    ok = put(error, "message", text ? text : json_string("a text that is not UTF-8")) && ok;
    if (!ok) {
        json_decref(error);
        return tsr_fail_nomem(err, 256, "an error line");
    }
    return print(ids, number, custom_id, json_null(), error, out, err);
}
