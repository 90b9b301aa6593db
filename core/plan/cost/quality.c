/* Tables of omega: from an indicator file, or a stated prior. */
#include "plan/cost/quality_internal.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT   "tessera.indicators/1"
#define FILE_CAP (UINT64_C(64) << 20)
#define DEPTH    16
#define ORIGINAL 16u
#define EIGHT    8u

static tsr_status create(struct tsr_plan_quality *q, const struct tsr_plan_shape *s,
                         const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    uint64_t n;
    *q = (struct tsr_plan_quality){ .layers = s->layers, .candidates = c->n };
    if (tsr_mul(s->layers, c->n, &n))
        q->omega = tsr_new(n, sizeof *q->omega);
    return q->omega ? TSR_OK : tsr_fail_nomem(err, s->layers * c->n * 8, "the table of omega");
}

void tsr_plan_quality_free(struct tsr_plan_quality *q)
{
    free(q->omega);
    free(q->kl.half);
    free(q->kl.kept);
    for (uint32_t i = 0; i < q->kl.n_kv; i++)
        free(q->kl.kv[i].layers);
    *q = (struct tsr_plan_quality){ 0 };
}

/* A layer whose linears differ: the parts' omegas by what t says of experts, else by their shares of the weights. */
static void mix(struct tsr_plan_quality *q, const struct tsr_quality_table *t,
                const struct tsr_plan_shape *s, const struct tsr_plan_candidates *c)
{
    for (uint64_t l = 0; l < s->layers; l++)
        for (uint64_t k = 0; k < c->n; k++) {
            double parts[TSR_PLAN_GROUPS + 1];
            bool   known = false;
            if (t && !c->v[k].mixed)
                tsr_quality_parts(t, s, l, c->v[k].bits, parts, &known);
            for (uint64_t i = 0; i < c->n && !c->v[k].mixed; i++)
                if (c->v[i].mixed)
                    q->omega[l * c->n + i] +=
                        tsr_plan_candidate_share(&c->v[i], &c->v[k], s, l, known ? parts : NULL) *
                        q->omega[l * c->n + k];
        }
}

double tsr_plan_quality_uniform(const struct tsr_plan_quality *q, uint64_t candidate)
{
    double sum = 0;
    for (uint64_t l = 0; l < q->layers; l++)
        sum += q->omega[l * q->candidates + candidate];
    return sum;
}

tsr_status tsr_plan_quality_prior(struct tsr_plan_quality *q, const struct tsr_plan_shape *s,
                                  const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    double mean = 0;
    TSR_TRY(create(q, s, c, err));
    for (uint64_t l = 0; l < s->layers; l++)
        mean += (double)tsr_plan_shape_weights(s, s->layer_class[l]) / (double)s->layers;
    for (uint64_t l = 0; l < s->layers; l++)
        for (uint64_t i = 0; i < c->n; i++) {
            double size = (double)tsr_plan_shape_weights(s, s->layer_class[l]) / mean;
            q->omega[l * c->n + i] =
                c->v[i].q.self ? size * ldexp(1, 2 * (4 - (int)c->v[i].bits)) : 0;
        }
    mix(q, NULL, s, c);
    q->eight = (double)s->layers * ldexp(1, -8); /* the sizes are over their mean */
    q->prior = true;
    (void)snprintf(q->basis, sizeof q->basis, "prior");
    return TSR_OK;
}

/* ---- from a file ------------------------------------------------------------------------------- */

static tsr_status read_bits(struct tsr_quality_table *t, struct tsr_err *err)
{
    json_t *list;
    TSR_TRY(tsr_json_sub(t->root, t->path, "bits", true, JSON_ARRAY, &list, err));
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && n <= TSR_QUALITY_WIDTHS; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t    b = json_is_integer(v) ? json_integer_value(v) : 0;
        if (b < 1 || b > 64 || (i && (uint32_t)b <= t->bits[i - 1]))
            return tsr_fail(err, TSR_E_INPUT, "%s: \"bits\" must ascend, each from 1 to 64",
                            t->path);
        t->bits[t->n++] = (uint32_t)b;
    }
    if (t->n == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"bits\" has %zu widths, not 1 to %u", t->path, n,
                        TSR_QUALITY_WIDTHS);
    return TSR_OK;
}

/* The requested table, or the best one available. */
static tsr_status find_table(struct tsr_quality_table *t, const char *want, char *basis, size_t cap,
                             struct tsr_err *err)
{
    static const char *const order[] = { "measured", "hessian", "variance", "variance_stochastic" };
    json_t                  *list, *best = NULL;
    size_t                   rank = sizeof order / sizeof *order;
    const char              *name = NULL;
    bool                     asked = want && *want;
    TSR_TRY(tsr_json_sub(t->root, t->path, "tables", true, JSON_ARRAY, &list, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t     *one = json_array_get(list, i);
        const char *is = NULL;
        if (!json_is_object(one))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: \"tables\" holds something that is not an object", t->path);
        TSR_TRY(tsr_json_str(one, t->path, "name", true, &is, err));
        if (asked && strcmp(is, want) == 0) {
            best = one;
            name = is;
        }
        for (size_t k = 0; !asked && k < rank; k++)
            if (strcmp(is, order[k]) == 0) {
                rank = k;
                best = one;
                name = is;
            }
    }
    if (!best)
        return asked ? tsr_fail(err, TSR_E_INPUT, "%s: there is no table \"%.40s\"", t->path, want)
                     : tsr_fail(err, TSR_E_INPUT,
                                "%s: none of its tables says how much layers suffer", t->path);
    (void)snprintf(basis, cap, "%.24s of %.32s", name,
                   strrchr(t->path, '/') ? strrchr(t->path, '/') + 1 : t->path);
    t->name = name;
    return tsr_json_sub(best, t->path, "omega", true, JSON_ARRAY, &t->rows, err);
}

static tsr_status number_at(const struct tsr_quality_table *t, uint64_t layer, uint32_t col,
                            double *v, struct tsr_err *err)
{
    const json_t *row = json_array_get(t->rows, layer), *n = row ? json_array_get(row, col) : NULL;
    *v = json_is_number(n) ? json_number_value(n) : NAN;
    if (fabs(*v) <= TSR_QUALITY_MOST)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: omega of layer %llu at %u bits is not a number from -1e100 to 1e100",
                    t->path, (unsigned long long)layer, t->bits[col]);
}

/* The first column that is not below a width; t->n where the file's widths do not reach it. */
static uint32_t column_of(const struct tsr_quality_table *t, uint32_t bits)
{
    uint32_t k = 0;
    while (k < t->n && t->bits[k] < bits)
        k++;
    return k == 0 && t->bits[0] != bits ? t->n : k;
}

/* omega at a width that the file reaches: its column, or between two in logarithms. */
static tsr_status omega_at(const struct tsr_quality_table *t, uint64_t layer, uint32_t bits,
                           double *v, double *raised, struct tsr_err *err)
{
    double   low, high;
    uint32_t k = column_of(t, bits);
    TSR_TRY(number_at(t, layer, k, &high, err));
    *raised += high < 0 ? -high : 0;
    *v = fmax(high, 0);
    if (t->bits[k] == bits)
        return TSR_OK;
    TSR_TRY(number_at(t, layer, k - 1, &low, err));
    low = fmax(low, 0);
    double at = (double)(bits - t->bits[k - 1]) / (double)(t->bits[k] - t->bits[k - 1]);
    *v = low > 0 && *v > 0 ? exp((1 - at) * log(low) + at * log(*v)) : (1 - at) * low + at * *v;
    return TSR_OK;
}

/* That of a candidate; the original and what is 16 bits or more: 0. */
static tsr_status omega_of(const struct tsr_quality_table *t, uint64_t layer,
                           const struct tsr_plan_candidate *c, double *v, double *raised,
                           struct tsr_err *err)
{
    *v = 0;
    if (!c->q.self || c->bits >= ORIGINAL)
        return TSR_OK;
    if (column_of(t, c->bits) == t->n)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: it has widths from %u to %u bits, the candidate '%s' has %u; measure "
                        "it too (tessera indicators --bits)",
                        t->path, t->bits[0], t->bits[t->n - 1], c->name, c->bits);
    return omega_at(t, layer, c->bits, v, raised, err);
}

/* The file's head and the table that is used; basis as in the quality. */
static tsr_status open_table(struct tsr_quality_table *t, const char *want, char *basis, size_t cap,
                             const struct tsr_plan_shape *s, struct tsr_err *err)
{
    const char *format = NULL;
    if (!json_is_object(t->root))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", t->path);
    TSR_TRY(tsr_json_str(t->root, t->path, "format", true, &format, err));
    if (strcmp(format, FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"format\" is \"%.40s\", not \"" FORMAT "\"",
                        t->path, format);
    TSR_TRY(tsr_json_int(t->root, t->path, "layers", true, 1, 1000000, &t->layers, err));
    if ((uint64_t)t->layers != s->layers)
        return tsr_fail(err, TSR_E_INPUT, "%s: is of a model of %lld layers, %s has %llu", t->path,
                        (long long)t->layers, s->name, (unsigned long long)s->layers);
    TSR_TRY(read_bits(t, err));
    TSR_TRY(find_table(t, want, basis, cap, err));
    if (json_array_size(t->rows) != s->layers)
        return tsr_fail(err, TSR_E_INPUT, "%s: omega has %zu rows for %llu layers", t->path,
                        json_array_size(t->rows), (unsigned long long)s->layers);
    return tsr_quality_find_experts(t, s, err);
}

/* A column of bits is the figure of one scheme. */
static tsr_status check_schemes(const struct tsr_quality_table   *t,
                                const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    for (uint64_t i = 0; i < c->n; i++)
        for (uint64_t k = 0; k < i; k++) {
            const struct tsr_plan_candidate *a = &c->v[k], *b = &c->v[i];
            if (a->q.self && b->q.self && !a->mixed && !b->mixed && a->bits == b->bits &&
                a->bits < ORIGINAL)
                return tsr_fail(err, TSR_E_INPUT,
                                "%s: its table is by bit width, and the candidates '%s' and '%s' "
                                "both have %u bits; measure them by scheme (tessera indicators "
                                "--measure kl)",
                                t->path, a->name, b->name, a->bits);
        }
    return TSR_OK;
}

static tsr_status read_table(struct tsr_plan_quality *q, struct tsr_quality_table *t,
                             const char *want, const struct tsr_plan_shape *s,
                             const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    const char *model = NULL;
    TSR_TRY(create(q, s, c, err));
    if (tsr_quality_is_kl(t)) {
        TSR_TRY(tsr_quality_read_kl(q, t, want, s, c, err));
        mix(q, NULL, s, c);
        return TSR_OK;
    }
    TSR_TRY(check_schemes(t, c, err));
    TSR_TRY(open_table(t, want, q->basis, sizeof q->basis, s, err));
    TSR_TRY(tsr_json_str(t->root, t->path, "model", true, &model, err));
    for (uint64_t l = 0; l < s->layers; l++)
        for (uint64_t i = 0; i < c->n; i++)
            TSR_TRY(omega_of(t, l, &c->v[i], &q->omega[l * c->n + i], &q->raised, err));
    mix(q, t, s, c);
    q->eight = column_of(t, EIGHT) < t->n ? 0 : (double)NAN;
    for (uint64_t l = 0; l < s->layers && isfinite(q->eight); l++) {
        double one, raised = 0;
        TSR_TRY(omega_at(t, l, EIGHT, &one, &raised, err));
        q->eight += one;
    }
    (void)snprintf(q->experts, sizeof q->experts, "%.23s", t->experts ? t->experts_name : "");
    (void)snprintf(q->model, sizeof q->model, "%s", model);
    return TSR_OK;
}

tsr_status tsr_plan_quality_parse(struct tsr_plan_quality *q, const char *name, const char *text,
                                  uint64_t len, const char *table, const struct tsr_plan_shape *s,
                                  const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    struct tsr_quality_table t = { .path = name };
    *q = (struct tsr_plan_quality){ 0 };
    TSR_TRY(tsr_json_parse(&t.root, name, text, len, DEPTH, err));
    tsr_status st = read_table(q, &t, table, s, c, err);
    json_decref(t.root);
    if (st != TSR_OK)
        tsr_plan_quality_free(q);
    return st;
}

tsr_status tsr_plan_quality_load(struct tsr_plan_quality *q, const char *path, const char *table,
                                 const struct tsr_plan_shape      *s,
                                 const struct tsr_plan_candidates *c, struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    *q = (struct tsr_plan_quality){ 0 };
    TSR_TRY(tsr_file_slurp(path, FILE_CAP, &text, &len, err));
    tsr_status st = tsr_plan_quality_parse(q, path, text, len, table, s, c, err);
    if (st == TSR_OK)
        tsr_hash_bytes(text, len, q->hash);
    free(text);
    return st;
}

tsr_status tsr_plan_quality_order(struct tsr_plan_shape *s, const char *path, const char *table,
                                  struct tsr_err *err)
{
    struct tsr_quality_table t = { .path = path };
    char                    *text, basis[sizeof((struct tsr_plan_quality *)0)->basis];
    uint64_t                 len;
    TSR_TRY(tsr_file_slurp(path, FILE_CAP, &text, &len, err));
    tsr_status st = tsr_json_parse(&t.root, path, text, len, DEPTH, err);
    bool       kl = st == TSR_OK && tsr_quality_is_kl(&t); /* it says nothing of single experts */
    if (st == TSR_OK && !kl)
        st = open_table(&t, table, basis, sizeof basis, s, err);
    if (st == TSR_OK && !kl)
        st = tsr_quality_order(&t, s, err);
    json_decref(t.root);
    free(text);
    return st;
}
