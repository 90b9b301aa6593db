#include "row.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ROUNDS  6 /* of choosing outliers and table in turn */
#define DIGIT   11
#define BUCKETS (1u << DIGIT)

uint64_t row_bytes(uint64_t cols, uint32_t k)
{
    uint64_t km = kmeans_bytes(cols, k), own = UINT64_C(4) * 8 + sizeof(float) + 2, bytes;
    if (km == 0 || __builtin_mul_overflow(own, cols, &bytes) ||
        __builtin_add_overflow(bytes, km, &bytes))
        return 0;
    return bytes;
}

void row_place(struct row *r, void *memory, uint64_t cols, uint32_t k, uint64_t outliers)
{
    double *d = memory; /* largest alignment first */
    *r = (struct row){ .cols = cols, .outliers = outliers, .k = k };
    r->column = d;
    r->s = d + cols;
    r->order = (uint64_t *)(void *)(d + 2 * cols);
    r->spare = r->order + cols;
    kmeans_place(&r->km, r->spare + cols, cols, k);
    char *rest = (char *)(void *)(r->spare + cols) + kmeans_bytes(cols, k);
    r->w = (float *)(void *)rest;
    r->codes = (uint8_t *)(r->w + cols);
    r->out = r->codes + cols;
}

void row_weigh(struct row *r, int count_zeros)
{
    double largest = 0.0;
    for (uint64_t c = 0; c < r->cols; c++) {
        if (r->w[c] == 0.0f && !count_zeros)
            r->s[c] = 0.0;
        largest = r->s[c] > largest ? r->s[c] : largest;
    }
    for (uint64_t c = 0; c < r->cols; c++)
        r->s[c] = largest > 0.0 ? r->s[c] / largest : 1.0;
}

/* An unsigned key that orders like the number. */
static uint32_t ordered(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* Sorts by the upper half, stably: three passes of eleven bits. */
static void sort(uint64_t *a, uint64_t *spare, uint64_t n)
{
    uint32_t count[BUCKETS];
    for (unsigned shift = 32; shift < 64; shift += DIGIT) {
        memset(count, 0, sizeof count);
        for (uint64_t i = 0; i < n; i++)
            count[a[i] >> shift & (BUCKETS - 1)]++;
        uint32_t at = 0;
        for (unsigned b = 0; b < BUCKETS; b++) {
            uint32_t c = count[b];
            count[b] = at;
            at += c;
        }
        for (uint64_t i = 0; i < n; i++)
            spare[count[a[i] >> shift & (BUCKETS - 1)]++] = a[i];
        memcpy(a, spare, n * sizeof *a);
    }
}

/* Distinct values with their weights, without outliers and weightless ones. */
static void gather(struct row *r)
{
    struct kmeans *m = &r->km;
    m->n = 0;
    for (uint64_t i = 0; i < r->cols; i++) {
        uint32_t c = (uint32_t)r->order[i];
        double   w = (double)r->w[c];
        if (r->out[c] || r->s[c] == 0.0)
            continue;
        if (m->n && m->x[m->n - 1] == w) {
            m->w[m->n - 1] += r->s[c];
        } else {
            m->x[m->n] = w;
            m->w[m->n++] = r->s[c];
        }
    }
}

/* Marks the columns with the `outliers` largest keys, the lowest column first among equals. */
static int mark(struct row *r, const float *key)
{
    int changed = 0;
    for (uint64_t c = 0; c < r->cols; c++)
        r->spare[c] = (uint64_t)~ordered(key[c]) << 32 | c;
    sort(r->spare, (uint64_t *)(void *)r->km.s0, r->cols);
    memset(r->codes, 0, r->cols); /* free until the end */
    for (uint64_t i = 0; i < r->outliers; i++)
        r->codes[(uint32_t)r->spare[i]] = 1;
    for (uint64_t c = 0; c < r->cols; c++) {
        changed |= r->codes[c] != r->out[c];
        r->out[c] = r->codes[c];
    }
    return changed;
}

/* Place of the nearest entry, the upper one of two as near; from is a place at or below it. */
static uint32_t nearest(const double *entry, uint32_t n, uint32_t from, double w)
{
    /* by the middle, not by distances: those of a far w are all the same number */
    while (from + 1 < n && w >= 0.5 * (entry[from] + entry[from + 1]))
        from++;
    return from;
}

static float *keys(struct row *r)
{
    return (float *)(void *)r->km.s1; /* idle between two solutions */
}

static void key_by_magnitude(struct row *r)
{
    for (uint64_t c = 0; c < r->cols; c++)
        keys(r)[c] = fabsf(r->w[c]);
}

/* The root of what each weight adds to the objective: F32 holds it for every finite weight. */
static void key_by_loss(struct row *r)
{
    uint32_t at = 0;
    for (uint64_t i = 0; i < r->cols; i++) {
        uint32_t c = (uint32_t)r->order[i];
        double   w = (double)r->w[c];
        at = nearest(r->table, r->n_table, at, w);
        double d = sqrt(r->s[c]) * fabs(w - r->table[at]);
        keys(r)[c] = (float)(d < (double)FLT_MAX ? d : (double)FLT_MAX);
    }
}

static int solve_rest(struct row *r, int32_t (*stop)(void *arg), void *arg)
{
    gather(r);
    if (r->km.n == 0) { /* all that has weight is an outlier */
        r->table[0] = 0.0;
        r->n_table = 1;
        return 1;
    }
    r->n_table = kmeans_solve(&r->km, r->table, stop, arg);
    return r->n_table != 0;
}

int row_solve(struct row *r, int32_t (*stop)(void *arg), void *arg)
{
    memset(r->out, 0, r->cols);
    for (uint64_t c = 0; c < r->cols; c++)
        r->order[c] = (uint64_t)ordered(r->w[c]) << 32 | c;
    sort(r->order, r->spare, r->cols);
    if (r->outliers == 0)
        return solve_rest(r, stop, arg);
    key_by_magnitude(r);
    (void)mark(r, keys(r));
    for (int round = 0;; round++) {
        if (!solve_rest(r, stop, arg))
            return 0;
        if (round + 1 == ROUNDS)
            return 1;
        key_by_loss(r);
        if (!mark(r, keys(r)))
            return 1;
    }
}

void row_encode(struct row *r, const double *entry, uint32_t n)
{
    uint32_t at = 0;
    for (uint64_t i = 0; i < r->cols; i++) {
        uint32_t c = (uint32_t)r->order[i];
        at = nearest(entry, n, at, (double)r->w[c]);
        r->codes[c] = (uint8_t)at;
    }
}
