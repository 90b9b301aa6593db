/* Whether a line of a journal is an answer, before it is taken for one. */
#include "batch/request.h"

#include "base/json.h"

#include <string.h>

#define DEPTH 16u

/* Members of an object and their types, and no others. */
struct member {
    const char *name;
    json_type   type;
};

static tsr_status check_members(const json_t *o, const char *where, const struct member *m,
                                size_t n, struct tsr_err *err)
{
    const char *key;
    json_t     *v;
    if (!json_is_object(o))
        return tsr_fail(err, TSR_E_INPUT, "%s is not an object", where);
    for (size_t i = 0; i < n; i++) {
        v = json_object_get(o, m[i].name);
        if (!v || json_typeof(v) != m[i].type)
            return tsr_fail(err, TSR_E_INPUT, "%s has no \"%s\" that is %s", where, m[i].name,
                            m[i].type == JSON_STRING    ? "a text"
                            : m[i].type == JSON_INTEGER ? "an integer"
                            : m[i].type == JSON_ARRAY   ? "a list"
                            : m[i].type == JSON_OBJECT  ? "an object"
                                                        : "null");
    }
    json_object_foreach ((json_t *)(uintptr_t)o, key, v) {
        size_t i = 0;
        while (i < n && strcmp(m[i].name, key) != 0)
            i++;
        if (i == n)
            return tsr_fail(err, TSR_E_INPUT, "%s has the member \"%.60s\", which no answer has",
                            where, key);
    }
    return TSR_OK;
}

static tsr_status check_choices(const json_t *choices, uint32_t expected, struct tsr_err *err)
{
    const json_t *c;
    size_t        i, n = json_array_size(choices);
    if (n == 0 || (expected && n != expected))
        return tsr_fail(err, TSR_E_INPUT, "\"choices\" has %zu items, expected %s%u", n,
                        expected ? "was " : "were at least ", expected ? expected : 1);
    json_array_foreach ((json_t *)(uintptr_t)choices, i, c) {
        const json_t *index = json_object_get(c, "index");
        if (!json_is_integer(index) || json_integer_value(index) != (json_int_t)i)
            return tsr_fail(err, TSR_E_INPUT, "item %zu of \"choices\" does not have the index %zu",
                            i + 1, i);
    }
    return TSR_OK;
}

static tsr_status check_response(const json_t *r, uint32_t choices, struct tsr_err *err)
{
    static const struct member head[] = { { "status_code", JSON_INTEGER },
                                          { "request_id", JSON_STRING },
                                          { "body", JSON_OBJECT } };
    static const struct member body[] = { { "id", JSON_STRING },       { "object", JSON_STRING },
                                          { "created", JSON_INTEGER }, { "model", JSON_STRING },
                                          { "choices", JSON_ARRAY },   { "usage", JSON_OBJECT } };
    const json_t              *b = json_object_get(r, "body");
    TSR_TRY(check_members(r, "\"response\"", head, sizeof head / sizeof *head, err));
    TSR_TRY(check_members(b, "\"body\"", body, sizeof body / sizeof *body, err));
    return check_choices(json_object_get(b, "choices"), choices, err);
}

static tsr_status check_ids(const json_t *j, const struct tsr_batch_answer_expect *x,
                            struct tsr_err *err)
{
    const json_t *c = json_object_get(j, "custom_id");
    const char   *id = json_string_value(json_object_get(j, "id"));
    const char   *has = json_string_value(c);
    char          want[64];
    if (!id)
        return tsr_fail(err, TSR_E_INPUT, "it has no \"id\" that is a text");
    if (!json_is_string(c) && !json_is_null(c))
        return tsr_fail(err, TSR_E_INPUT, "it has no \"custom_id\" that is a text or null");
    if (x->has_request &&
        (x->custom_id ? !has || strcmp(has, x->custom_id) != 0 : !json_is_null(c)))
        return tsr_fail(err, TSR_E_INPUT,
                        "its \"custom_id\" is %s%.80s%s, that of the request %s%.80s%s",
                        has ? "\"" : "", has ? has : "null", has ? "\"" : "",
                        x->custom_id ? "\"" : "", x->custom_id ? x->custom_id : "null",
                        x->custom_id ? "\"" : "");
    if (x->ids) {
        tsr_batch_answer_id(x->ids, "batch_req_", x->number, want);
        if (strcmp(id, want) != 0)
            return tsr_fail(err, TSR_E_INPUT, "its \"id\" is \"%.60s\", expected was \"%s\"", id,
                            want);
    }
    return TSR_OK;
}

static tsr_status check_object(const json_t *j, bool error, const struct tsr_batch_answer_expect *x,
                               struct tsr_err *err)
{
    static const struct member failed[] = { { "code", JSON_STRING }, { "message", JSON_STRING } };
    const json_t              *c = json_object_get(j, "custom_id");
    struct member              all[] = { { "id", JSON_STRING },
                                         { "custom_id", json_is_null(c) ? JSON_NULL : JSON_STRING },
                                         { "response", error ? JSON_NULL : JSON_OBJECT },
                                         { "error", error ? JSON_OBJECT : JSON_NULL } };
    TSR_TRY(check_members(j, error ? "an error line" : "a response line", all,
                          sizeof all / sizeof *all, err));
    TSR_TRY(check_ids(j, x, err));
    return error ? check_members(json_object_get(j, "error"), "\"error\"", failed,
                                 sizeof failed / sizeof *failed, err)
                 : check_response(json_object_get(j, "response"), x->choices, err);
}

tsr_status tsr_batch_answer_check(const char *line, uint64_t len, bool error,
                                  const struct tsr_batch_answer_expect *x, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    for (uint64_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < 0x20)
            return tsr_fail(err, TSR_E_INPUT,
                            "its byte %llu is a control character; one line of JSON was expected",
                            (unsigned long long)i + 1);
    tsr_status st = tsr_json_parse(&j, "line", line, len, DEPTH, &e.err);
    if (st != TSR_OK)
        return st == TSR_E_NOMEM
                   ? tsr_err_copy(err, st, &e.err)
                   : tsr_fail(err, TSR_E_INPUT, "it is not one line of JSON: %s", e.text);
    st = check_object(j, error, x, err);
    json_decref(j);
    return st;
}
