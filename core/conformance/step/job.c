/* Steps: the functions of the rules' job. */
#include "conformance/step/internal.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

/* ---- what it reads ---------------------------------------------------------------------------------- */

static bool declared(const struct tsr_step_rules_test *x, const char *name)
{
    for (uint64_t i = 0; i < x->t->n_inputs; i++)
        if (strcmp(x->t->inputs[i], name) == 0)
            return true;
    return false;
}

static tsr_status input(void *ctx, const char *name, struct tsr_step_value *v, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    const char                 *s = name ? name : "";
    size_t                      n = strcspn(s, "/");
    bool                        own = strcmp(s, "options") == 0, config = strcmp(s, "config") == 0;
    char                        step[64];
    tsr_step_rules_show(NULL, NULL, v);
    tsr_status st = tsr_step_rules_enter(x, "input()", config ? TSR_STEP_MODEL : 0, !own, err);
    if (st != TSR_OK)
        return st;
    if (!own && !config && !declared(x, s))
        tsr_step_rules_note(x, TSR_STEP_WRONG_NEED, "input() reads '%.60s', which is not declared",
                            s);
    (void)snprintf(step, sizeof step, "%.*s", (int)n, s);
    json_t *j = own ? x->options : config ? x->config : json_object_get(x->results, step);
    if (!own && !config && s[n])
        j = json_object_get(j, s + n + 1);
    tsr_step_rules_show(j, NULL, v);
    return TSR_OK;
}

static void problem(void *ctx, const struct tsr_step_value *at, const char *sentence)
{
    struct tsr_step_rules_test *x = ctx;
    (void)at;
    if (!x->checking)
        tsr_step_rules_note(x, TSR_STEP_WRONG_WINDOW, "problem() was called in run()");
    (void)tsr_step_rules_record(x, "problem", sentence, NULL);
}

static const char canned[] = "A file of the rules.\nIt has two lines.\n";

static tsr_status read_path(void *ctx, const char *path, const void **data, uint64_t *bytes,
                            struct tsr_err *err)
{
    tsr_status st = tsr_step_rules_enter(ctx, "read()", 0, true, err);
    (void)path;
    *data = canned;
    *bytes = sizeof canned - 1;
    return st;
}

static tsr_status read_product(void *ctx, const char *name, const void **data, uint64_t *bytes,
                               struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "file()", 0, true, err);
    if (!name || !declared(x, name))
        tsr_step_rules_note(x, TSR_STEP_WRONG_NEED, "file() reads '%.60s', which is not declared",
                            name ? name : "");
    *data = canned;
    *bytes = sizeof canned - 1;
    return st;
}

/* ---- what it makes ---------------------------------------------------------------------------------- */

static void product(struct tsr_step_rules_test *x, const char *function, const char *name,
                    uint32_t form)
{
    uint64_t i = 0;
    while (i < x->t->n_products && (!name || strcmp(x->t->products[i]->name, name) != 0))
        i++;
    if (i == x->t->n_products)
        tsr_step_rules_note(x, TSR_STEP_WRONG_PRODUCT, "%s gives '%.60s', which is not declared",
                            function, name ? name : "");
    else if (x->t->products[i]->form != form)
        tsr_step_rules_note(x, TSR_STEP_WRONG_PRODUCT,
                            "%s gives '%s', which is declared as another form", function, name);
    else if (json_object_get(x->names, name))
        tsr_step_rules_note(x, TSR_STEP_WRONG_PRODUCT, "%s gives '%s' a second time", function,
                            name);
    else
        tsr_json_set(&x->names, name, json_true());
}

static tsr_status put(void *ctx, const char *name, const char *json, uint64_t bytes,
                      struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "put()", 0, true, err);
    json_t                     *j = NULL;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    if (st != TSR_OK)
        return st;
    product(x, "put()", name, TSR_STEP_JSON);
    char *list = calloc(1, bytes + 2);
    if (!list)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory");
    list[0] = '[';
    memcpy(list + 1, json, bytes);
    list[bytes + 1] = ']';
    if (tsr_json_parse(&j, "put()", list, bytes + 2, 65, &e.err) != TSR_OK ||
        json_array_size(j) != 1)
        tsr_step_rules_note(x, TSR_STEP_WRONG_FIGURE, "put() of '%.60s' is no JSON: %.120s", name,
                            e.text);
    free(list);
    return tsr_step_rules_record(x, "put", name, j);
}

static tsr_status give_number(struct tsr_step_rules_test *x, const char *function, const char *name,
                              double value)
{
    if (!isfinite(value))
        tsr_step_rules_note(x, TSR_STEP_WRONG_FIGURE, "%s of '%.60s' is %g", function,
                            name ? name : "", value);
    return tsr_step_rules_record(x, function, name, isfinite(value) ? json_real(value) : NULL);
}

static tsr_status number(void *ctx, const char *name, double value, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "number()", 0, true, err);
    if (st != TSR_OK)
        return st;
    product(x, "number()", name, TSR_STEP_JSON);
    return give_number(x, "number()", name, value);
}

static bool good_file(const char *s)
{
    if (!s || !*s || strcmp(s, "results.json") == 0 || strcmp(s, "manifest.json") == 0)
        return false;
    while (*s) {
        size_t n = strcspn(s, "/");
        if (n == 0 || *s == '.')
            return false;
        s += n;
        if (*s && !*++s)
            return false;
    }
    return true;
}

static tsr_status write_product(void *ctx, const char *name, const char *file, const void *data,
                                uint64_t bytes, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "write()", 0, true, err);
    uint64_t                    sum = bytes;
    if (st != TSR_OK)
        return st;
    product(x, "write()", name, TSR_STEP_FILE);
    if (!good_file(file))
        tsr_step_rules_note(x, TSR_STEP_WRONG_FILE, "write() of '%.60s' names the file '%.60s'",
                            name ? name : "", file ? file : "");
    for (uint64_t i = 0; i < bytes; i++)
        sum = sum * 1099511628211u + ((const unsigned char *)data)[i];
    return tsr_step_rules_record(x, "write", file, json_integer((json_int_t)(sum & INT64_MAX)));
}

static bool is_text(struct tsr_step_rules_test *x, const char *function, const char *s)
{
    json_t *j = s ? json_string(s) : NULL;
    if (!j)
        tsr_step_rules_note(x, TSR_STEP_WRONG_SECTION, "%s gets a text that is %s", function,
                            s ? "not UTF-8" : "NULL");
    json_decref(j);
    return j != NULL;
}

static tsr_status text(void *ctx, const char *paragraph, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "text()", 0, true, err);
    if (st != TSR_OK)
        return st;
    return tsr_step_rules_record(x, "text", is_text(x, "text()", paragraph) ? paragraph : "", NULL);
}

static tsr_status figure(void *ctx, const char *name, double value, const char *unit,
                         struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "figure()", 0, true, err);
    if (st != TSR_OK)
        return st;
    (void)is_text(x, "figure()", unit ? unit : "");
    return give_number(x, "figure()", is_text(x, "figure()", name) ? name : "", value);
}

static tsr_status cells(struct tsr_step_rules_test *x, const char *function, const char *const *v,
                        uint64_t n)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < n; i++)
        tsr_json_add(&list, json_string(is_text(x, function, v[i]) ? v[i] : ""));
    return tsr_step_rules_record(x, function, "", list);
}

static tsr_status table(void *ctx, const char *const *columns, uint64_t n, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "table()", 0, true, err);
    if (st != TSR_OK)
        return st;
    if (n == 0 || n > 64)
        tsr_step_rules_note(x, TSR_STEP_WRONG_SECTION, "table() gets %llu columns", U(n));
    x->columns = n;
    return cells(x, "table()", columns, n);
}

static tsr_status row(void *ctx, const char *const *v, uint64_t n, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "row()", 0, true, err);
    if (st != TSR_OK)
        return st;
    if (n != x->columns)
        tsr_step_rules_note(x, TSR_STEP_WRONG_SECTION, "row() gets %llu cells after %llu columns",
                            U(n), U(x->columns));
    return cells(x, "row()", v, n);
}

/* ---- a job --------------------------------------------------------------------------------------------- */

const char *tsr_step_rules_unmet(const struct tsr_conformance_case *c)
{
    const struct tsr_step_v1 *t = c->iface;
    for (uint64_t i = 0; t->inputs && i < t->n_inputs; i++) {
        const char *s = t->inputs[i] ? t->inputs[i] : "";
        size_t      n = strcspn(s, "/");
        if (!(n == 4 && strncmp(s, "eval", n) == 0) && !(n == 7 && strncmp(s, "compare", n) == 0))
            return s;
    }
    return NULL;
}

void tsr_step_rules_open(struct tsr_step_rules_test *x, struct tsr_conformance_case *c)
{
    *x = (struct tsr_step_rules_test){ .c = c, .t = c->iface };
    x->job = (struct tsr_step_job){ .struct_size = sizeof x->job,
                                    .ctx = x,
                                    .input = input,
                                    .problem = problem,
                                    .read = read_path,
                                    .file = read_product,
                                    .put = put,
                                    .number = number,
                                    .write = write_product,
                                    .text = text,
                                    .figure = figure,
                                    .table = table,
                                    .row = row };
    tsr_step_rules_tree_functions(&x->job);
    tsr_step_rules_model_functions(&x->job);
    x->options = tsr_step_rules_options_tree(c);
    x->results = tsr_step_rules_canned_results();
    x->config = tsr_step_rules_canned_config();
    x->made = json_array();
    x->names = json_object();
    x->calls = json_object();
}

void tsr_step_rules_close(struct tsr_step_rules_test *x)
{
    json_decref(x->options);
    json_decref(x->results);
    json_decref(x->config);
    json_decref(x->made);
    json_decref(x->names);
    json_decref(x->calls);
}

tsr_status tsr_step_rules_check(struct tsr_step_rules_test *x, const void *self,
                                struct tsr_err *err)
{
    if (!x->t->check)
        return TSR_OK;
    x->thread = pthread_self();
    x->open = x->checking = true;
    tsr_status st = x->t->check(self, &x->job, err);
    x->open = x->checking = false;
    return st;
}

tsr_status tsr_step_rules_run(struct tsr_step_rules_test *x, void *self, struct tsr_err *err)
{
    x->thread = pthread_self();
    x->open = true;
    tsr_status st = x->t->run(self, &x->job, err);
    x->open = false;
    return st;
}
