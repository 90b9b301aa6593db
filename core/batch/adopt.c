#include "batch/adopt.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* The expected custom_id of the answer to a line: NULL if the line has none. */
static tsr_status custom_id(const struct tsr_batch_records *r, uint64_t index, json_t **root,
                            const char **id, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *line = NULL;
    uint64_t          len = 0;
    *root = NULL;
    *id = NULL;
    tsr_status st = tsr_batch_records_read(r, index, &line, &len, &e.err);
    if (st == TSR_OK)
        st = tsr_json_parse(root, "line", line, len, 32, &e.err);
    free(line);
    if (st == TSR_OK)
        *id = json_string_value(json_object_get(*root, "custom_id"));
    else if (st != TSR_E_INPUT) /* a line that is not a request has an error line with null */
        return tsr_err_copy(err, st, &e.err);
    return TSR_OK;
}

tsr_status tsr_batch_adopt_check(void *ctx, uint64_t index, bool error, const char *line,
                                 uint64_t len, struct tsr_err *err)
{
    const struct tsr_batch_adopt  *a = ctx;
    json_t                        *root = NULL;
    struct tsr_batch_answer_expect x = { .ids = a->ids };
    if (a->records) {
        TSR_TRY(custom_id(a->records, index, &root, &x.custom_id, err));
        x.has_request = true;
        x.choices = tsr_batch_prompts_choices(root);
        x.number = tsr_batch_records_line(a->records, index) - 1;
    }
    tsr_status st = tsr_batch_answer_check(line, len, error, &x, err);
    json_decref(root);
    return st;
}

static json_t *parse(const char *about)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    return about && tsr_json_parse(&j, "header", about, strlen(about), 64, &e.err) == TSR_OK ? j
                                                                                             : NULL;
}

tsr_status tsr_batch_adopt_names(json_t **kept, const char *about, const char *folder,
                                 const char **model, const char **no_chat, struct tsr_err *err)
{
    *kept = NULL;
    if (!about)
        return TSR_OK;
    json_t     *j = parse(about), *k = json_object_get(j, TSR_BATCH_KEPT);
    const char *name = json_string_value(json_object_get(k, "model"));
    const char *why = json_string_value(json_object_get(k, "no_chat"));
    if (!name || !why) {
        json_decref(j);
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: the header of the journal does not say what its answers call the model; "
            "remove the folder to begin again",
            folder);
    }
    *kept = json_incref(k);
    json_decref(j);
    *model = name;
    *no_chat = why;
    return TSR_OK;
}

bool tsr_batch_adopt_stretch(const char *about, uint64_t *first, uint64_t *last)
{
    json_t *j = parse(about), *r = json_object_get(j, "records");
    int64_t a = json_integer_value(json_array_get(r, 0));
    int64_t b = json_integer_value(json_array_get(r, 1));
    bool    ok = json_array_size(r) == 2 && a >= 1 && b >= a - 1;
    json_decref(j);
    *first = ok ? (uint64_t)a : 0;
    *last = ok ? (uint64_t)b : 0;
    return ok;
}
