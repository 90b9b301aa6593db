/* Errors in the form of the API, and the two routes that need no model. */
#include "serve/loop.h"

#include "base/json.h"

#include <string.h>

#define DEPTH 32u

uint32_t tsr_serve_status(const char *code)
{
    static const struct {
        const char *code;
        uint32_t    status;
    } known[] = {
        { "invalid_json", 400 },    { "invalid_request", 400 }, { "context_length_exceeded", 400 },
        { "model_not_found", 404 }, { "overloaded", 503 },      { "deadline_exceeded", 504 }
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(code, known[i].code) == 0)
            return known[i].status;
    return 500;
}

json_t *tsr_serve_error(const char *code, const char *message)
{
    json_t *text = json_string(message); /* it may quote bytes that JSON cannot hold */
    return json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message",
                     text ? text : json_string("a text that is not UTF-8"), "type",
                     tsr_serve_status(code) < 500 ? "invalid_request_error" : "server_error",
                     "param", "code", code);
}

static json_t *refuse(const char *why, uint32_t *status)
{
    *status = 400;
    return tsr_serve_error("invalid_request", why);
}

static tsr_status read_ids(const json_t *list, struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    const json_t *id;
    size_t        i;
    json_array_foreach ((json_t *)(uintptr_t)list, i, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > UINT32_MAX)
            return tsr_fail(err, TSR_E_INPUT, "item %zu of \"tokens\" is not a token id", i + 1);
        TSR_TRY(tsr_tokenizer_ids_push(ids, (uint32_t)json_integer_value(id), err));
    }
    return TSR_OK;
}

static json_t *tokens_json(const struct tsr_tokenizer_ids *ids, uint64_t context)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < ids->n; i++)
        tsr_json_add(&list, json_integer(ids->v[i]));
    return json_pack("{s:I, s:I, s:o}", "count", (json_int_t)ids->n, "max_model_len",
                     (json_int_t)context, "tokens", list);
}

json_t *tsr_serve_tokenize(const struct tsr_batch_request_defaults *d, const char *body,
                           uint64_t len, uint32_t *status)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids ids = { 0 };
    json_t                  *j = NULL, *out;
    bool                     bos = true;
    *status = 200;
    tsr_status    st = tsr_json_parse(&j, "request", body, len, DEPTH, &e.err);
    const json_t *text = json_object_get(j, "prompt");
    if (st == TSR_OK)
        st = tsr_json_bool(j, "request", "add_special_tokens", false, &bos, &e.err);
    if (st == TSR_OK && !json_is_string(text))
        st = tsr_fail(&e.err, TSR_E_INPUT, "\"prompt\" must be a text");
    if (st == TSR_OK && !d->tokenizer)
        st = tsr_fail(&e.err, TSR_E_INPUT, "the model has no tokenizer");
    if (st == TSR_OK)
        st = tsr_tokenize(d->tokenizer, json_string_value(text), json_string_length(text),
                          bos ? TSR_TOKENIZER_SPECIAL : 0, &ids, &e.err);
    out = st == TSR_OK ? tokens_json(&ids, d->context) : refuse(e.text, status);
    json_decref(j);
    tsr_tokenizer_ids_free(&ids);
    return out;
}

json_t *tsr_serve_detokenize(const struct tsr_batch_request_defaults *d, const char *body,
                             uint64_t len, uint32_t *status)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_tokenizer_ids  ids = { 0 };
    struct tsr_tokenizer_text text = { 0 };
    json_t                   *j = NULL, *out, *list = NULL;
    *status = 200;
    tsr_status st = tsr_json_parse(&j, "request", body, len, DEPTH, &e.err);
    if (st == TSR_OK)
        st = tsr_json_sub(j, "request", "tokens", true, JSON_ARRAY, &list, &e.err);
    if (st == TSR_OK)
        st = read_ids(list, &ids, &e.err);
    if (st == TSR_OK && !d->tokenizer)
        st = tsr_fail(&e.err, TSR_E_INPUT, "the model has no tokenizer");
    if (st == TSR_OK)
        st = tsr_detokenize(d->tokenizer, ids.v, ids.n, false, &text, &e.err);
    out = st == TSR_OK ? json_pack("{s:o}", "prompt", json_stringn(text.v ? text.v : "", text.n))
                       : refuse(e.text, status);
    json_decref(j);
    tsr_tokenizer_ids_free(&ids);
    tsr_tokenizer_text_free(&text);
    return out;
}
