#include "base/json.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

/* jansson's lexer ignores a failed growth of its buffer and then writes past the end of the old
 * one.  Therefore a failed allocation during parsing leaves the library by longjmp; the blocks are
 * recorded here and freed.  They stay plain malloc() blocks. */
struct guard {
    jmp_buf  back;
    void   **blocks;
    uint64_t n, cap;
};
static _Thread_local struct guard *guard;

static bool remember(struct guard *g, void *p)
{
    if (g->n == g->cap) {
        uint64_t cap = g->cap ? g->cap * 2 : 256;
        void   **b = tsr_renew(g->blocks, cap, sizeof *b);
        if (!b)
            return false;
        g->blocks = b;
        g->cap = cap;
    }
    g->blocks[g->n++] = p;
    return true;
}

/* What is freed was mostly allocated last. */
static void forget(struct guard *g, const void *p)
{
    for (uint64_t i = g->n; i-- > 0;) {
        if (g->blocks[i] == p) {
            g->blocks[i] = NULL;
            break;
        }
    }
    while (g->n > 0 && !g->blocks[g->n - 1])
        g->n--;
}

static void *guarded_malloc(size_t n)
{
    void *p = malloc(n);
    if (!guard || (p && remember(guard, p)))
        return p;
    free(p);
    longjmp(guard->back, 1);
}

static void guarded_free(void *p)
{
    if (guard && p)
        forget(guard, p);
    free(p);
}

__attribute__((constructor)) static void install(void)
{
    json_set_alloc_funcs(guarded_malloc, guarded_free);
}

/* json_loadb(), or false when memory ran out. */
static __attribute__((noinline)) bool load(json_t **j, const char *data, uint64_t len,
                                           json_error_t *e)
{
    struct guard g = { .n = 0 };
    if (setjmp(g.back) == 0) {
        guard = &g;
        *j = json_loadb(data, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, e);
        guard = NULL;
        free(g.blocks);
        return true;
    }
    guard = NULL;
    for (uint64_t i = 0; i < g.n; i++)
        free(g.blocks[i]);
    free(g.blocks);
    return false;
}

/* jansson recurses to 2048 levels; a scan beforehand keeps ours. */
static bool too_deep(const char *s, uint64_t len, unsigned depth)
{
    unsigned d = 0;
    bool     str = false;
    for (uint64_t i = 0; i < len; i++) {
        char c = s[i];
        if (str) {
            if (c == '\\')
                i++;
            else if (c == '"')
                str = false;
        } else if (c == '"') {
            str = true;
        } else if (c == '{' || c == '[') {
            if (++d > depth)
                return true;
        } else if ((c == '}' || c == ']') && d > 0) {
            d--;
        }
    }
    return false;
}

tsr_status tsr_json_parse(json_t **out, const char *name, const char *data, uint64_t len,
                          unsigned depth, struct tsr_err *err)
{
    if (too_deep(data, len, depth))
        return tsr_fail(err, TSR_E_INPUT, "%s: nested deeper than %u levels", name, depth);
    json_error_t e;
    json_t      *j = NULL;
    if (!load(&j, data, len, &e))
        return tsr_fail_nomem(err, len, name);
    if (!j) {
        return tsr_fail(err, TSR_E_INPUT, "%s:%d:%d: not valid JSON: %s", name, e.line, e.column,
                        e.text);
    }
    *out = j;
    return TSR_OK;
}

json_t *tsr_json_copy(const json_t *j)
{
    json_t *copy = json_deep_copy(j);
    if (copy && !json_equal(copy, j)) {
        json_decref(copy);
        copy = NULL;
    }
    return copy;
}

void tsr_json_add(json_t **list, json_t *v)
{
    if (json_array_append_new(*list, v) == 0)
        return;
    json_decref(*list);
    *list = NULL;
}

void tsr_json_set(json_t **object, const char *key, json_t *v)
{
    if (json_object_set_new(*object, key, v) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

tsr_status tsr_json_load(json_t **out, const char *path, uint64_t cap, unsigned depth,
                         struct tsr_err *err)
{
    char    *data;
    uint64_t len;
    TSR_TRY(tsr_file_slurp(path, cap, &data, &len, err));
    tsr_status st = tsr_json_parse(out, path, data, len, depth, err);
    free(data);
    return st;
}

/* The member, or NULL if absent or null; sets *st when it is required. */
static json_t *member(const json_t *o, const char *name, const char *key, bool required,
                      tsr_status *st, struct tsr_err *err)
{
    json_t *v = json_object_get(o, key);
    *st = TSR_OK;
    if (v && json_is_null(v))
        v = NULL;
    if (!v && required)
        *st = tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" is missing", name, key);
    return v;
}

static tsr_status wrong(const json_t *v, const char *name, const char *key, const char *wanted,
                        struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t n = 0;
    (void)tsr_json_text(v, JSON_ENCODE_ANY | JSON_COMPACT, &text, &n, NULL);
    tsr_status st = tsr_fail(err, TSR_E_INPUT, "%s: \"%s\": %.60s%s is not %s", name, key,
                             text ? text : "value", n > 60 ? "..." : "", wanted);
    free(text);
    return st;
}

tsr_status tsr_json_int(const json_t *o, const char *name, const char *key, bool required,
                        int64_t lo, int64_t hi, int64_t *v, struct tsr_err *err)
{
    tsr_status st;
    json_t    *m = member(o, name, key, required, &st, err);
    if (!m)
        return st;
    int64_t i = 0;
    bool    ok = json_is_integer(m);
    if (ok) {
        i = json_integer_value(m);
    } else if (json_is_real(m)) { /* 4.0 is an integer that went through Python */
        double d = json_real_value(m);
        ok = d >= -9.0e15 && d <= 9.0e15 && d == floor(d);
        i = ok ? (int64_t)d : 0;
    }
    if (!ok || i < lo || i > hi) {
        char want[96];
        (void)snprintf(want, sizeof want, "an integer from %lld to %lld", (long long)lo,
                       (long long)hi);
        return wrong(m, name, key, want, err);
    }
    *v = i;
    return TSR_OK;
}

tsr_status tsr_json_real(const json_t *o, const char *name, const char *key, bool required,
                         double lo, double hi, double *v, struct tsr_err *err)
{
    tsr_status st;
    json_t    *m = member(o, name, key, required, &st, err);
    if (!m)
        return st;
    double d = json_is_number(m) ? json_number_value(m) : (double)NAN;
    if (!(d >= lo && d <= hi)) {
        char want[96];
        (void)snprintf(want, sizeof want, "a number from %g to %g", lo, hi);
        return wrong(m, name, key, want, err);
    }
    *v = d;
    return TSR_OK;
}

tsr_status tsr_json_bool(const json_t *o, const char *name, const char *key, bool required, bool *v,
                         struct tsr_err *err)
{
    tsr_status st;
    json_t    *m = member(o, name, key, required, &st, err);
    if (!m)
        return st;
    if (!json_is_boolean(m))
        return wrong(m, name, key, "true or false", err);
    *v = json_is_true(m);
    return TSR_OK;
}

tsr_status tsr_json_str(const json_t *o, const char *name, const char *key, bool required,
                        const char **v, struct tsr_err *err)
{
    tsr_status st;
    json_t    *m = member(o, name, key, required, &st, err);
    if (!m)
        return st;
    if (!json_is_string(m))
        return wrong(m, name, key, "a string", err);
    if (!tsr_json_word(m))
        return wrong(m, name, key, "a string without NUL characters", err);
    *v = json_string_value(m);
    return TSR_OK;
}

const char *tsr_json_word(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

tsr_status tsr_json_sub(const json_t *o, const char *name, const char *key, bool required,
                        json_type type, json_t **v, struct tsr_err *err)
{
    tsr_status st;
    json_t    *m = member(o, name, key, required, &st, err);
    *v = NULL;
    if (!m)
        return st;
    if (json_typeof(m) != type)
        return wrong(m, name, key, type == JSON_OBJECT ? "an object" : "an array", err);
    *v = m;
    return TSR_OK;
}

struct dump {
    char    *text;
    uint64_t n, cap;
    bool     failed; /* jansson does not look at every answer */
};

static int dump_more(const char *s, size_t n, void *data)
{
    struct dump *d = data;
    if (!d->failed && d->cap - d->n <= n) {
        uint64_t cap = d->cap ? d->cap * 2 : 4096;
        while (cap - d->n <= n)
            cap *= 2;
        char *text = tsr_renew(d->text, cap, 1);
        d->failed = !text;
        if (text) {
            d->text = text;
            d->cap = cap;
        }
    }
    if (d->failed)
        return -1;
    memcpy(d->text + d->n, s, n);
    d->n += n;
    return 0;
}

tsr_status tsr_json_text(const json_t *j, size_t flags, char **text, uint64_t *len,
                         struct tsr_err *err)
{
    struct dump d = { 0 };
    if (json_dump_callback(j, dump_more, &d, flags) != 0 || d.failed || d.n == 0) {
        free(d.text);
        return tsr_fail_nomem(err, d.cap * 2, "a JSON text");
    }
    d.text[d.n] = '\0';
    *text = d.text;
    *len = d.n;
    return TSR_OK;
}

tsr_status tsr_json_store(const char *path, const json_t *j, size_t flags, struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t len = 0;
    TSR_TRY(tsr_json_text(j, flags, &text, &len, err));
    text[len] = '\n'; /* in the place of the terminator */
    tsr_status st = tsr_file_store(path, text, len + 1, err);
    free(text);
    return st;
}
