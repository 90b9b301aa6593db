/* Steps: the functions of the rules' job. */
#include "conformance/step/step.h"

#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYERS   2u
#define HIDDEN   8u
#define FFN      16u
#define VOCAB    32u
#define LINEARS  7u
#define BURN_US  2000u /* that a function takes in a long run */
#define LONG_RUN 2000u /* layers of it */
#define U(x)     ((unsigned long long)(x))

/* The first fault of a kind. */
__attribute__((format(printf, 3, 4))) static void note(struct tsr_step_rules_test *x,
                                                       enum tsr_step_rules_wrong   which,
                                                       const char                 *fmt, ...)
{
    va_list ap;
    if (x->wrong[which][0])
        return;
    va_start(ap, fmt);
    (void)vsnprintf(x->wrong[which], sizeof x->wrong[which], fmt, ap);
    va_end(ap);
}

/* ---- each call ----------------------------------------------------------------------------------- */

static void burn(void)
{
    struct timespec t;
    uint64_t        now, until = 0;
    do {
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
        until = until ? until : now + BURN_US;
    } while (now < until);
}

/* need: TSR_STEP_* that the function belongs to, or 0; running: not in check(). */
static tsr_status enter(struct tsr_step_rules_test *x, const char *function, uint64_t need,
                        bool running, struct tsr_err *err)
{
    if (!x->open || !pthread_equal(x->thread, pthread_self())) {
        note(x, TSR_STEP_WRONG_WINDOW,
             "%s was called outside of check() and run(), or on another thread", function);
        return tsr_fail(err, TSR_E_INVAL, "%s outside of run()", function);
    }
    if (running && x->checking)
        note(x, TSR_STEP_WRONG_CHECK, "check() called %s, which is for run()", function);
    if (need & ~x->t->needs)
        note(x, TSR_STEP_WRONG_NEED, "%s was called, and needs lacks %s", function,
             need & TSR_STEP_TOKENIZER ? "TSR_STEP_TOKENIZER" : "TSR_STEP_MODEL");
    if (x->slow)
        burn();
    json_int_t n = json_integer_value(json_object_get(x->calls, function)) + 1;
    tsr_json_set(&x->calls, function, json_integer(n));
    if (x->fail_in && strcmp(x->fail_in, function) == 0 && n == x->fail_at) {
        x->failed = true;
        return tsr_fail(err, TSR_E_UNSUPPORTED, "the rule makes this call of %s fail", function);
    }
    return TSR_OK;
}

/* What the step gave, for comparisons: takes v. */
static tsr_status record(struct tsr_step_rules_test *x, const char *what, const char *name,
                         json_t *v)
{
    json_t *one = json_array();
    tsr_json_add(&one, json_string(what));
    tsr_json_add(&one, json_string(name ? name : ""));
    tsr_json_add(&one, v ? v : json_null());
    tsr_json_add(&x->made, one);
    return TSR_OK;
}

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
    tsr_status st = enter(x, "input()", config ? TSR_STEP_MODEL : 0, !own, err);
    if (st != TSR_OK)
        return st;
    if (!own && !config && !declared(x, s))
        note(x, TSR_STEP_WRONG_NEED, "input() reads '%.60s', which is not declared", s);
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
        note(x, TSR_STEP_WRONG_WINDOW, "problem() was called in run()");
    (void)record(x, "problem", sentence, NULL);
}

static const char canned[] = "A file of the rules.\nIt has two lines.\n";

static tsr_status read_path(void *ctx, const char *path, const void **data, uint64_t *bytes,
                            struct tsr_err *err)
{
    tsr_status st = enter(ctx, "read()", 0, true, err);
    (void)path;
    *data = canned;
    *bytes = sizeof canned - 1;
    return st;
}

static tsr_status read_product(void *ctx, const char *name, const void **data, uint64_t *bytes,
                               struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "file()", 0, true, err);
    if (!name || !declared(x, name))
        note(x, TSR_STEP_WRONG_NEED, "file() reads '%.60s', which is not declared",
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
        note(x, TSR_STEP_WRONG_PRODUCT, "%s gives '%.60s', which is not declared", function,
             name ? name : "");
    else if (x->t->products[i]->form != form)
        note(x, TSR_STEP_WRONG_PRODUCT, "%s gives '%s', which is declared as another form",
             function, name);
    else if (json_object_get(x->names, name))
        note(x, TSR_STEP_WRONG_PRODUCT, "%s gives '%s' a second time", function, name);
    else
        tsr_json_set(&x->names, name, json_true());
}

static tsr_status put(void *ctx, const char *name, const char *json, uint64_t bytes,
                      struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "put()", 0, true, err);
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
        note(x, TSR_STEP_WRONG_FIGURE, "put() of '%.60s' is no JSON: %.120s", name, e.text);
    free(list);
    return record(x, "put", name, j);
}

static tsr_status give_number(struct tsr_step_rules_test *x, const char *function, const char *name,
                              double value)
{
    if (!isfinite(value))
        note(x, TSR_STEP_WRONG_FIGURE, "%s of '%.60s' is %g", function, name ? name : "", value);
    return record(x, function, name, isfinite(value) ? json_real(value) : NULL);
}

static tsr_status number(void *ctx, const char *name, double value, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "number()", 0, true, err);
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
    tsr_status                  st = enter(x, "write()", 0, true, err);
    uint64_t                    sum = bytes;
    if (st != TSR_OK)
        return st;
    product(x, "write()", name, TSR_STEP_FILE);
    if (!good_file(file))
        note(x, TSR_STEP_WRONG_FILE, "write() of '%.60s' names the file '%.60s'", name ? name : "",
             file ? file : "");
    for (uint64_t i = 0; i < bytes; i++)
        sum = sum * 1099511628211u + ((const unsigned char *)data)[i];
    return record(x, "write", file, json_integer((json_int_t)(sum & INT64_MAX)));
}

static bool is_text(struct tsr_step_rules_test *x, const char *function, const char *s)
{
    json_t *j = s ? json_string(s) : NULL;
    if (!j)
        note(x, TSR_STEP_WRONG_SECTION, "%s gets a text that is %s", function,
             s ? "not UTF-8" : "NULL");
    json_decref(j);
    return j != NULL;
}

static tsr_status text(void *ctx, const char *paragraph, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "text()", 0, true, err);
    if (st != TSR_OK)
        return st;
    return record(x, "text", is_text(x, "text()", paragraph) ? paragraph : "", NULL);
}

static tsr_status figure(void *ctx, const char *name, double value, const char *unit,
                         struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "figure()", 0, true, err);
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
    return record(x, function, "", list);
}

static tsr_status table(void *ctx, const char *const *columns, uint64_t n, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "table()", 0, true, err);
    if (st != TSR_OK)
        return st;
    if (n == 0 || n > 64)
        note(x, TSR_STEP_WRONG_SECTION, "table() gets %llu columns", U(n));
    x->columns = n;
    return cells(x, "table()", columns, n);
}

static tsr_status row(void *ctx, const char *const *v, uint64_t n, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "row()", 0, true, err);
    if (st != TSR_OK)
        return st;
    if (n != x->columns)
        note(x, TSR_STEP_WRONG_SECTION, "row() gets %llu cells after %llu columns", U(n),
             U(x->columns));
    return cells(x, "row()", v, n);
}

/* ---- the model --------------------------------------------------------------------------------------- */

static uint64_t layers(const struct tsr_step_rules_test *x)
{
    return x->slow ? LONG_RUN : LAYERS;
}

static uint64_t matrices(const struct tsr_step_rules_test *x)
{
    return 1 + layers(x) * LINEARS;
}

static tsr_status model(void *ctx, struct tsr_step_model *m, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "model()", TSR_STEP_MODEL, true, err);
    uint32_t                    size = m->struct_size;
    struct tsr_step_model       all = { .struct_size = size,
                                        .family = "rules",
                                        .hash = "xxh3:00000000000000000000000000000000",
                                        .layers = layers(x),
                                        .hidden = HIDDEN,
                                        .vocab = VOCAB,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .head_dim = 4,
                                        .positions = 64,
                                        .parameters = (uint64_t)VOCAB * HIDDEN + layers(x) * 640,
                                        .matrices = matrices(x) };
    memcpy(m, &all, size < sizeof all ? size : sizeof all);
    return st;
}

/* Shape and name of matrix i. */
static struct tsr_step_matrix shape_of(const struct tsr_step_rules_test *x, uint64_t i)
{
    static const struct {
        const char *name;
        uint64_t    rows, cols;
    } list[LINEARS] = { { "model.layers.0.self_attn.q_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.self_attn.k_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.self_attn.v_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.self_attn.o_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.mlp.gate_proj", FFN, HIDDEN },
                        { "model.layers.0.mlp.up_proj", FFN, HIDDEN },
                        { "model.layers.0.mlp.down_proj", HIDDEN, FFN } };
    struct tsr_step_matrix m = { .dtype = TSR_BF16,
                                 .name = "model.embed_tokens",
                                 .layer = UINT64_MAX,
                                 .rows = VOCAB,
                                 .cols = HIDDEN };
    if (i > 0 && i < matrices(x)) {
        m.name = list[(i - 1) % LINEARS].name;
        m.layer = (i - 1) / LINEARS;
        m.rows = list[(i - 1) % LINEARS].rows;
        m.cols = list[(i - 1) % LINEARS].cols;
    }
    return m;
}

static bool exists(struct tsr_step_rules_test *x, const char *function, uint64_t i)
{
    if (i < matrices(x))
        return true;
    note(x, TSR_STEP_WRONG_RANGE, "%s of matrix %llu; the model has %llu", function, U(i),
         U(matrices(x)));
    return false;
}

static tsr_status matrix(void *ctx, uint64_t i, struct tsr_step_matrix *m, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "matrix()", TSR_STEP_MODEL, true, err);
    uint32_t                    size = m->struct_size;
    struct tsr_step_matrix      all = shape_of(x, exists(x, "matrix()", i) ? i : 0);
    all.struct_size = size;
    memcpy(m, &all, size < sizeof all ? size : sizeof all);
    return st;
}

static tsr_status rows(void *ctx, uint64_t i, uint32_t which, uint64_t first, uint64_t n,
                       float *out, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "rows()", TSR_STEP_MODEL, true, err);
    if (st != TSR_OK)
        return st;
    struct tsr_step_matrix m = shape_of(x, exists(x, "rows()", i) ? i : 0);
    if (which > TSR_STEP_PACKED || n > m.rows || first > m.rows - n) {
        note(x, TSR_STEP_WRONG_RANGE, "rows() %llu and %llu more of %llu", U(first), U(n),
             U(m.rows));
        return TSR_OK; /* nothing that exists is left to write */
    }
    for (uint64_t r = 0; r < n; r++)
        tsr_conformance_rule_normal(x->c, i * 1000 + first + r, out + r * m.cols, m.cols);
    return TSR_OK;
}

static tsr_status logits(void *ctx, const uint32_t *tokens, uint64_t n, float *out,
                         struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = enter(x, "logits()", TSR_STEP_MODEL, true, err);
    uint64_t                    sum = 0;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        if (tokens[i] >= VOCAB)
            note(x, TSR_STEP_WRONG_RANGE, "logits() of token %u; the vocabulary has %u", tokens[i],
                 VOCAB);
        sum = sum * 31 + tokens[i] + 1;
        tsr_conformance_rule_normal(x->c, sum, out + i * VOCAB, VOCAB);
    }
    return st;
}

static tsr_status tokens(void *ctx, const char *s, uint64_t bytes, const uint32_t **ids,
                         uint64_t *n, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status st = enter(x, "tokens()", TSR_STEP_MODEL | TSR_STEP_TOKENIZER, true, err);
    *n = bytes < 256 ? bytes : 256;
    for (uint64_t i = 0; i < *n; i++)
        x->ids[i] = (unsigned char)s[i] % VOCAB;
    *ids = x->ids;
    return st;
}

static tsr_status evaluate(void *ctx, struct tsr_step_evaluation *e, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status st = enter(x, "evaluate()", TSR_STEP_MODEL | TSR_STEP_TOKENIZER, true, err);
    for (uint64_t i = 0; i < LONG_RUN && st == TSR_OK && x->slow; i++) { /* as a host: it stops */
        burn();
        if (x->c->host->table.cancelled(x->c->host->table.ctx))
            st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
    }
    e->perplexity = 12.5;
    e->mean_nll = 2.5257286443082556;
    e->kl_mean = e->kl ? 0.05 : (double)NAN;
    e->top1 = e->kl ? 0.9 : (double)NAN;
    e->tokens = 128;
    e->scored = 127;
    return st;
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
                                    .row = row,
                                    .model = model,
                                    .matrix = matrix,
                                    .rows = rows,
                                    .logits = logits,
                                    .tokens = tokens,
                                    .evaluate = evaluate };
    tsr_step_rules_tree_functions(&x->job);
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
