/* Output lines, in the shape of the OpenAI batch API. */
#include "batch/request.h"

#include "base/hash.h"
#include "base/json.h"

#include <math.h>
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
    return json_integer(
        (json_int_t)(1000000000u + XXH3_64bits(ids->base, strlen(ids->base)) % 1000000000u));
}

/* Six decimals: the rest is noise of the softmax's sum. */
static json_t *real(double v)
{
    return json_real(round(v * 1e6) / 1e6 + 0.0);
}

static json_t *token_number(uint32_t id)
{
    char number[24];
    (void)snprintf(number, sizeof number, "token_id:%u", id);
    return json_string(number);
}

static json_t *token_text(const struct tsr_tokenizer *t, uint32_t id, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    json_t                   *j = NULL;
    if (!t)
        return token_number(id);
    if (tsr_detokenize(t, &id, 1, false, &text, err) == TSR_OK)
        j = json_stringn(text.v ? text.v : "", text.n);
    tsr_tokenizer_text_free(&text);
    return j;
}

/* {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{...}] or null} */
static json_t *text_logprobs(const struct tsr_engine_served *r, const struct tsr_tokenizer *t,
                             struct tsr_err *err)
{
    json_t *tokens = json_array(), *values = json_array();
    json_t *tops = r->top ? json_array() : json_null();
    bool    ok = true;
    for (uint64_t i = 0; r->logprobs && i < r->n_tokens; i++) {
        ok = json_array_append_new(tokens, token_text(t, r->tokens[i], err)) == 0 && ok;
        ok = json_array_append_new(values, real(r->logprobs[i].value)) == 0 && ok;
        if (!r->top || !r->tops)
            continue;
        json_t *best = json_object();
        for (uint32_t k = r->top; k-- > 0;) { /* of two with one text the better one stays */
            const struct tsr_engine_logprob *l = &r->tops[i * r->top + k];
            json_t                          *name = token_text(t, l->id, err);
            if (name && !tsr_json_word(name)) { /* keys have no NUL character */
                json_decref(name);
                name = token_number(l->id);
            }
            ok = name && put(best, json_string_value(name), real(l->value)) && ok;
            json_decref(name);
        }
        ok = json_array_append_new(tops, best) == 0 && ok;
    }
    json_t *o = json_object();
    ok = put(o, "tokens", tokens) && ok;
    ok = put(o, "token_logprobs", values) && ok;
    ok = put(o, "top_logprobs", tops) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *chat_entry(const struct tsr_tokenizer *t, const struct tsr_engine_logprob *l,
                          struct tsr_err *err)
{
    json_t *o = json_object();
    bool    ok = put(o, "token", token_text(t, l->id, err));
    ok = put(o, "logprob", real(l->value)) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* {"content": [{"token", "logprob", "top_logprobs": [...]}]} */
static json_t *chat_logprobs(const struct tsr_engine_served *r, const struct tsr_tokenizer *t,
                             struct tsr_err *err)
{
    json_t *content = json_array(), *o = json_object();
    bool    ok = true;
    for (uint64_t i = 0; r->logprobs && i < r->n_tokens; i++) {
        json_t *one = chat_entry(t, &r->logprobs[i], err), *tops = json_array();
        for (uint32_t k = 0; k < r->top; k++)
            ok = json_array_append_new(tops, chat_entry(t, &r->tops[i * r->top + k], err)) == 0 &&
                 ok;
        ok = put(one, "top_logprobs", tops) && ok;
        ok = json_array_append_new(content, one) == 0 && ok;
    }
    ok = put(o, "content", content) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *choice(const struct tsr_batch_request *q, const struct tsr_engine_served *r,
                      const struct tsr_tokenizer *t, struct tsr_err *err)
{
    json_t     *o = json_object();
    const char *why = r->finish == TSR_ENGINE_FINISH_LENGTH ? "length" : "stop";
    bool        ok = put(o, "index", json_integer(0));
    json_t     *text = r->text ? json_stringn(r->text, r->text_bytes) : json_null();
    if (q->chat) {
        json_t *m = json_object();
        ok = put(m, "role", json_string("assistant")) && ok;
        ok = put(m, "content", text) && ok;
        ok = put(o, "message", m) && ok;
    } else {
        ok = put(o, "text", text) && ok;
    }
    if (!r->text) { /* without a tokenizer ids are all there is */
        json_t *ids = json_array();
        for (uint64_t i = 0; i < r->n_tokens; i++)
            ok = json_array_append_new(ids, json_integer(r->tokens[i])) == 0 && ok;
        ok = put(o, "tokens", ids) && ok;
    }
    ok = put(o, "logprobs",
             !r->logprobs && !q->q.logprobs ? json_null()
             : q->chat                      ? chat_logprobs(r, t, err)
                                            : text_logprobs(r, t, err)) &&
         ok;
    ok = put(o, "finish_reason", json_string(why)) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *usage(const struct tsr_engine_served *r)
{
    uint64_t total = r->n_prompt + r->n_tokens;
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)r->n_prompt,
                     "completion_tokens", (json_int_t)r->n_tokens, "total_tokens",
                     (json_int_t)total);
}

static json_t *body(const struct tsr_batch_answer_ids *ids, uint64_t number,
                    const struct tsr_batch_request *q, const struct tsr_engine_served *r,
                    const struct tsr_tokenizer *t, struct tsr_err *err)
{
    json_t *o = json_object(), *choices = json_array();
    bool    ok = put(o, "id", id_of(ids, q->chat ? "chatcmpl-" : "cmpl-", number));
    ok = put(o, "object", json_string(q->chat ? "chat.completion" : "text_completion")) && ok;
    ok = put(o, "created", created(ids)) && ok;
    ok = put(o, "model", json_string(q->model ? q->model : ids->model)) && ok;
    ok = json_array_append_new(choices, choice(q, r, t, err)) == 0 && ok;
    ok = put(o, "choices", choices) && ok;
    ok = put(o, "usage", usage(r)) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
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
                                 const struct tsr_batch_request *q,
                                 const struct tsr_engine_served *r, const struct tsr_tokenizer *t,
                                 struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    json_t *response = json_object();
    bool    ok = put(response, "status_code", json_integer(200));
    ok = put(response, "request_id", id_of(ids, "req_", number)) && ok;
    ok = put(response, "body", body(ids, number, q, r, t, err)) && ok;
    if (!ok) {
        json_decref(response);
        return tsr_fail_nomem(err, r->n_tokens, "an output line");
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
