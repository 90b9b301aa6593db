/* What a plugin's step makes: products, files and its section of the report. */
#include "pipeline/steps/external_step.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "runtime/peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH     64u
#define MOST_JSON (UINT64_C(64) << 20)
#define MOST_TEXT (UINT64_C(1) << 20) /* of a text of the section */
#define COLUMNS   64u                 /* of a table */

/* ---- products --------------------------------------------------------------------------------- */

/* The declared product, which was not given yet. */
static tsr_status expect(const struct external_call *c, const char *function, const char *name,
                         uint32_t form, struct tsr_err *err)
{
    const struct tsr_step_v1 *t = c->table;
    uint64_t                  i = 0;
    while (i < t->n_products && (!name || strcmp(t->products[i]->name, name) != 0))
        i++;
    if (i == t->n_products)
        return tsr_fail(err, TSR_E_INVAL, "%s of step '%s': its table declares no product '%.80s'",
                        function, c->name, name ? name : "");
    if (t->products[i]->form != form)
        return tsr_fail(err, TSR_E_INVAL, "%s of step '%s': the product '%s' is declared as %s",
                        function, c->name, name, form == TSR_STEP_JSON ? "a file" : "JSON");
    if (json_object_get(form == TSR_STEP_JSON ? c->result : c->files, name))
        return tsr_fail(err, TSR_E_INVAL, "%s of step '%s': the product '%s' was given before",
                        function, c->name, name);
    return TSR_OK;
}

/* Takes v. */
static tsr_status keep(struct external_call *c, const char *product, json_t *v, struct tsr_err *err)
{
    return json_object_set_new(c->result, product, v) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 256, "the result of a step");
}

/* One value of any type: a document is a list or a map, so the value is read as the item of a list. */
static tsr_status parse_value(const char *name, const char *json, uint64_t bytes, json_t **out,
                              struct tsr_err *err)
{
    char   *list = tsr_new(bytes + 2, 1);
    json_t *j = NULL;
    if (!list)
        return tsr_fail_nomem(err, bytes + 2, name);
    list[0] = '[';
    memcpy(list + 1, json, bytes);
    list[bytes + 1] = ']';
    tsr_status st = tsr_json_parse(&j, name, list, bytes + 2, DEPTH + 1, err);
    free(list);
    if (st == TSR_OK && json_array_size(j) != 1)
        st = tsr_fail(err, TSR_E_INPUT, "%s: %zu values; expected one", name, json_array_size(j));
    if (st == TSR_OK)
        *out = json_incref(json_array_get(j, 0));
    json_decref(j);
    return st;
}

static tsr_status put_json(struct external_call *c, const char *product, const char *json,
                           uint64_t bytes, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    TSR_TRY(expect(c, "put()", product, TSR_STEP_JSON, err));
    if (!json || bytes > MOST_JSON)
        return tsr_fail(err, TSR_E_INVAL,
                        "put() of step '%s': the product '%s' has %llu bytes; expected at most "
                        "%llu",
                        c->name, product, (unsigned long long)bytes, (unsigned long long)MOST_JSON);
    tsr_status st = parse_value(product, json, bytes, &j, &e.err);
    if (st == TSR_E_NOMEM)
        return tsr_err_copy(err, st, &e.err);
    if (st != TSR_OK)
        return tsr_fail(err, TSR_E_INVAL,
                        "put() of step '%s': the product '%s' is not JSON of finite numbers: %s",
                        c->name, product, e.text);
    return keep(c, product, j, err);
}

static tsr_status put(void *ctx, const char *product, const char *json, uint64_t bytes,
                      struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "put()", true, put_json(c, product, json, bytes, err));
}

static tsr_status put_number(struct external_call *c, const char *product, double value,
                             struct tsr_err *err)
{
    TSR_TRY(expect(c, "number()", product, TSR_STEP_JSON, err));
    if (!isfinite(value))
        return tsr_fail(err, TSR_E_INVAL,
                        "number() of step '%s': the product '%s' is %g; expected a finite number",
                        c->name, product, value);
    return keep(c, product, json_real(value), err);
}

static tsr_status number(void *ctx, const char *product, double value, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "number()", true, put_number(c, product, value, err));
}

/* ---- files ------------------------------------------------------------------------------------ */

/* A name that stays in the folder, and is none of the job's own files or the host's hidden ones. */
static bool good_file(const char *name)
{
    if (!name || !*name || *name == '/' || strlen(name) > 200 ||
        strcmp(name, "results.json") == 0 || strcmp(name, "manifest.json") == 0)
        return false;
    for (const char *s = name; *s;) {
        size_t n = strcspn(s, "/");
        if (n == 0 || *s == '.')
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)s[i] < ' ' || s[i] == 127)
                return false;
        s += n;
        if (*s && !*++s)
            return false;
    }
    return true;
}

static tsr_status store(const struct external_call *c, const char *name, const void *data,
                        uint64_t bytes, struct tsr_err *err)
{
    char *path = NULL;
    if (c->job->peers && tsr_runtime_peers_rank(c->job->peers) > 0)
        return TSR_OK;
    TSR_TRY(tsr_pipeline_job_output(c->job, name, &path, err));
    tsr_status st = tsr_file_store(path, data, bytes, err);
    free(path);
    return st;
}

static tsr_status write_file(struct external_call *c, const char *product, const char *name,
                             const void *data, uint64_t bytes, struct tsr_err *err)
{
    const char *key;
    json_t     *v;
    TSR_TRY(expect(c, "write()", product, TSR_STEP_FILE, err));
    if (!good_file(name) || (!data && bytes))
        return tsr_fail(err, TSR_E_INVAL,
                        "write() of step '%s': the file '%.100s' of product '%s' is not a name "
                        "inside the job's folder",
                        c->name, name ? name : "", product);
    json_object_foreach (c->files, key, v)
        if (strcmp(json_string_value(v), name) == 0)
            return tsr_fail(err, TSR_E_INVAL,
                            "write() of step '%s': the products '%s' and '%s' have the same file "
                            "'%s'",
                            c->name, key, product, name);
    if (!(v = json_string(name)))
        return tsr_fail(err, TSR_E_INVAL,
                        "write() of step '%s': the name of the file of product '%s' is not UTF-8",
                        c->name, product);
    if (json_object_set_new(c->files, product, v) != 0)
        return tsr_fail_nomem(err, 256, "the result of a step");
    return store(c, name, data, bytes, err);
}

static tsr_status write_product(void *ctx, const char *product, const char *name, const void *data,
                                uint64_t bytes, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "write()", true, write_file(c, product, name, data, bytes, err));
}

tsr_status external_products_whole(const struct external_call *c, struct tsr_err *err)
{
    const struct tsr_step_v1 *t = c->table;
    for (uint64_t i = 0; i < t->n_products; i++) {
        const struct tsr_step_product *p = t->products[i];
        if (!json_object_get(p->form == TSR_STEP_JSON ? c->result : c->files, p->name))
            return tsr_fail(err, TSR_E_PLUGIN,
                            "run() of step '%s' ended without the product '%s', which its table "
                            "declares",
                            c->name, p->name);
    }
    return TSR_OK;
}

/* ---- the section ------------------------------------------------------------------------------ */

/* New reference; NULL with err. */
static json_t *text_json(const struct external_call *c, const char *function, const char *s,
                         struct tsr_err *err)
{
    json_t *j = s && strnlen(s, MOST_TEXT) < MOST_TEXT ? json_string(s) : NULL;
    if (!j)
        (void)tsr_fail(err, TSR_E_INVAL,
                       "%s of step '%s': a text is NULL, longer than 1 MiB or not UTF-8", function,
                       c->name);
    return j;
}

/* Takes one. */
static tsr_status append(struct external_call *c, json_t *one, struct tsr_err *err)
{
    return json_array_append_new(c->section, one) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 256, "the section of a step");
}

static tsr_status add_text(struct external_call *c, const char *paragraph, struct tsr_err *err)
{
    json_t *one = json_object(), *s = text_json(c, "text()", paragraph, err);
    if (!s) {
        json_decref(one);
        return TSR_E_INVAL;
    }
    tsr_json_set(&one, "text", s);
    return append(c, one, err);
}

static tsr_status text(void *ctx, const char *paragraph, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "text()", true, add_text(c, paragraph, err));
}

static tsr_status add_figure(struct external_call *c, const char *name, double value,
                             const char *unit, struct tsr_err *err)
{
    if (!isfinite(value))
        return tsr_fail(err, TSR_E_INVAL,
                        "figure() of step '%s': '%.80s' is %g; expected a finite number", c->name,
                        name ? name : "", value);
    json_t *n = text_json(c, "figure()", name, err);
    json_t *u = n ? text_json(c, "figure()", unit ? unit : "", err) : NULL, *one;
    if (!u) {
        json_decref(n);
        return TSR_E_INVAL;
    }
    one = json_object();
    tsr_json_set(&one, "figure", n);
    tsr_json_set(&one, "value", json_real(value));
    tsr_json_set(&one, "unit", u);
    return append(c, one, err);
}

static tsr_status figure(void *ctx, const char *name, double value, const char *unit,
                         struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "figure()", true, add_figure(c, name, value, unit, err));
}

static tsr_status texts_json(const struct external_call *c, const char *function,
                             const char *const *v, uint64_t n, json_t **out, struct tsr_err *err)
{
    json_t *list = json_array();
    *out = NULL;
    for (uint64_t i = 0; i < n; i++) {
        json_t *s = text_json(c, function, v ? v[i] : NULL, err);
        if (!s) {
            json_decref(list);
            return TSR_E_INVAL;
        }
        tsr_json_add(&list, s);
    }
    *out = list;
    return list ? TSR_OK : tsr_fail_nomem(err, 256, "the section of a step");
}

static tsr_status add_table(struct external_call *c, const char *const *columns, uint64_t n,
                            struct tsr_err *err)
{
    json_t *list, *one;
    if (n == 0 || n > COLUMNS)
        return tsr_fail(err, TSR_E_INVAL,
                        "table() of step '%s': a table of %llu columns; expected 1 to %u", c->name,
                        (unsigned long long)n, COLUMNS);
    TSR_TRY(texts_json(c, "table()", columns, n, &list, err));
    one = json_object();
    tsr_json_set(&one, "columns", list);
    tsr_json_set(&one, "rows", json_array());
    return append(c, one, err);
}

static tsr_status table(void *ctx, const char *const *columns, uint64_t n, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "table()", true, add_table(c, columns, n, err));
}

static tsr_status add_row(struct external_call *c, const char *const *cells, uint64_t n,
                          struct tsr_err *err)
{
    size_t  at = json_array_size(c->section);
    json_t *last = at ? json_array_get(c->section, at - 1) : NULL, *list;
    size_t  columns = json_array_size(json_object_get(last, "columns"));
    if (columns == 0 || columns != n)
        return tsr_fail(err, TSR_E_INVAL,
                        "row() of step '%s': a row of %llu cells after a table of %zu columns",
                        c->name, (unsigned long long)n, columns);
    TSR_TRY(texts_json(c, "row()", cells, n, &list, err));
    return json_array_append_new(json_object_get(last, "rows"), list) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 256, "the section of a step");
}

static tsr_status row(void *ctx, const char *const *cells, uint64_t n, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "row()", true, add_row(c, cells, n, err));
}

void external_products_functions(struct tsr_step_job *j)
{
    j->put = put;
    j->number = number;
    j->write = write_product;
    j->text = text;
    j->figure = figure;
    j->table = table;
    j->row = row;
}
