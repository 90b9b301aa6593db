#include "batch/messages.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ----------------------------------------------------------- */

/* "content": a text or null, or [{"type": "text", "text": "..."}, ...], which becomes one text. */
static tsr_status join_parts(json_t *message, size_t i, struct tsr_err *err)
{
    const json_t             *c = json_object_get(message, "content"), *part;
    struct tsr_tokenizer_text text = { 0 };
    tsr_status                st = TSR_OK;
    size_t                    k;
    if (!c || json_is_string(c) || json_is_null(c))
        return TSR_OK;
    if (!json_is_array(c))
        return tsr_fail(err, TSR_E_INPUT, "message %zu has no \"content\" that is a text", i + 1);
    json_array_foreach ((json_t *)(uintptr_t)c, k, part) {
        const char   *type = tsr_json_word(json_object_get(part, "type"));
        const json_t *t = json_object_get(part, "text");
        if (st == TSR_OK && (!type || strcmp(type, "text") != 0 || !json_is_string(t)))
            st = tsr_fail(err, TSR_E_INPUT,
                          "part %zu of message %zu is not {\"type\": \"text\", \"text\": ...}",
                          k + 1, i + 1);
        else if (st == TSR_OK)
            st = tsr_tokenizer_text_append(&text, json_string_value(t), json_string_length(t), err);
    }
    if (st == TSR_OK &&
        json_object_set_new(message, "content", json_stringn(text.v ? text.v : "", text.n)) != 0)
        st = tsr_fail_nomem(err, text.n, "a message");
    tsr_tokenizer_text_free(&text);
    return st;
}

/* "arguments" of a call: the API has them as JSON in a text, templates as an object. */
static tsr_status read_arguments(json_t *message, struct tsr_err *err)
{
    json_t *call;
    size_t  i;
    json_array_foreach (json_object_get(message, "tool_calls"), i, call) {
        json_t           *f = json_object_get(call, "function"), *object = NULL;
        const json_t     *text = json_object_get(f, "arguments");
        struct tsr_errbuf e = TSR_ERRBUF(e);
        if (!json_is_string(text))
            continue;
        tsr_status st = tsr_json_parse(&object, "arguments", json_string_value(text),
                                       json_string_length(text), 24, &e.err);
        if (st == TSR_E_NOMEM)
            return tsr_err_copy(err, st, &e.err);
        if (st != TSR_OK || !json_is_object(object))
            json_decref(object); /* it stays a text */
        else if (json_object_set_new(f, "arguments", object) != 0)
            return tsr_fail_nomem(err, json_string_length(text), "a message");
    }
    return TSR_OK;
}

static tsr_status read_messages(json_t *list, struct tsr_err *err)
{
    json_t *m;
    size_t  i;
    json_array_foreach (list, i, m) {
        const json_t *content = json_object_get(m, "content");
        if (!json_is_object(m))
            return tsr_fail(err, TSR_E_INPUT, "message %zu is not an object", i + 1);
        if (!tsr_json_word(json_object_get(m, "role")))
            return tsr_fail(err, TSR_E_INPUT, "message %zu has no \"role\"", i + 1);
        if ((!content || json_is_null(content)) && !json_object_get(m, "tool_calls"))
            return tsr_fail(err, TSR_E_INPUT, "message %zu has no \"content\" that is a text",
                            i + 1);
        TSR_TRY(join_parts(m, i, err));
        TSR_TRY(read_arguments(m, err));
    }
    return TSR_OK;
}

/* ---- the rest of a conversation ----------------------------------------- */

static tsr_status read_tools(const json_t *body, const json_t **tools, struct tsr_err *err)
{
    json_t     *list = NULL;
    const char *choice = NULL;
    TSR_TRY(tsr_json_sub(body, "request", "tools", false, JSON_ARRAY, &list, err));
    TSR_TRY(tsr_json_str(body, "request", "tool_choice", false, &choice, err));
    if (choice && strcmp(choice, "auto") != 0 && strcmp(choice, "none") != 0)
        return tsr_fail(err, TSR_E_INPUT, "\"tool_choice\" can only be \"auto\" or \"none\"");
    *tools = json_array_size(list) > 0 && !(choice && strcmp(choice, "none") == 0) ? list : NULL;
    return TSR_OK;
}

tsr_status tsr_batch_messages(const json_t *body, const struct tsr_chat *chat, bool allow_special,
                              struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    const json_t *given = json_object_get(body, "messages"), *tools = NULL;
    json_t       *more = NULL, *list;
    if (json_array_size(given) == 0)
        return tsr_fail(err, TSR_E_INPUT, "\"messages\" must be a list that is not empty");
    TSR_TRY(read_tools(body, &tools, err));
    TSR_TRY(tsr_json_sub(body, "request", "chat_template_kwargs", false, JSON_OBJECT, &more, err));
    list = tsr_json_copy(given);
    if (!list)
        return tsr_fail_nomem(err, 64, "messages");
    tsr_status st = read_messages(list, err);
    if (st == TSR_OK)
        st = tsr_tokenizer_chat_render(chat, list, tools, more, allow_special, ids, err);
    json_decref(list);
    return st;
}
