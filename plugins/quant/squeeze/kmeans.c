/* The dynamic program of kmeans.h, layer by layer, each layer by halving strides. */
#include "kmeans.h"

#include <math.h>
#include <string.h>

typedef double  v2d __attribute__((vector_size(16)));
typedef int64_t v2i __attribute__((vector_size(16)));

uint64_t kmeans_bytes(uint64_t cap, uint32_t k)
{
    uint64_t points, splits, bytes;
    if (__builtin_mul_overflow(7 * 8u, cap + 1, &points) ||
        __builtin_mul_overflow(4 * (uint64_t)k, cap + 1, &splits) ||
        __builtin_add_overflow(points, splits, &bytes))
        return 0;
    return bytes;
}

void kmeans_place(struct kmeans *m, void *memory, uint64_t cap, uint32_t k)
{
    double *d = memory;
    *m = (struct kmeans){ .cap = cap, .k = k };
    double **const arrays[] = { &m->x, &m->w, &m->s0, &m->s1, &m->s2, &m->shorter, &m->cost };
    for (unsigned a = 0; a < sizeof arrays / sizeof *arrays; a++, d += cap + 1)
        *arrays[a] = d;
    m->split = (uint32_t *)(void *)d;
}

/* Sums start at the middle point and run outwards, of values relative to it: differences
 * between two places near the middle then carry no rounding of the far ends, where a row of
 * weights has its outliers. */
static void sum_up(struct kmeans *m)
{
    uint64_t o = m->n / 2;
    double   base = m->x[o];
    m->s0[o] = m->s1[o] = m->s2[o] = 0.0;
    for (uint64_t i = o; i < m->n; i++) {
        double x = m->x[i] - base;
        m->s0[i + 1] = m->s0[i] + m->w[i];
        m->s1[i + 1] = m->s1[i] + m->w[i] * x;
        m->s2[i + 1] = m->s2[i] + m->w[i] * x * x;
    }
    for (uint64_t i = o; i-- > 0;) {
        double x = m->x[i] - base;
        m->s0[i] = m->s0[i + 1] - m->w[i];
        m->s1[i] = m->s1[i + 1] - m->w[i] * x;
        m->s2[i] = m->s2[i + 1] - m->w[i] * x * x;
    }
}

/* Below every weight that matters; avoids 0/0 if a small weight is lost in a large sum. */
#define TINY 1e-300

/* Cost of one cluster of points m..i-1, never below 0. */
static double run_cost(const struct kmeans *p, uint64_t m, uint64_t i)
{
    double d0 = (p->s0[i] - p->s0[m]) + TINY, d1 = p->s1[i] - p->s1[m];
    double c = (p->s2[i] - p->s2[m]) - d1 * d1 / d0;
    return c > 0.0 ? c : 0.0;
}

static v2d load(const double *p)
{
    v2d v;
    memcpy(&v, p, sizeof v);
    return v;
}

static v2d positive(v2d c)
{
    return (v2d)((v2i)c & (c > (v2d){ 0.0, 0.0 }));
}

/* Two splits at a time: the same operations as run_cost(), so the same numbers. */
static v2d pair_value(const struct kmeans *p, uint64_t m, v2d s0, v2d s1, v2d s2)
{
    v2d d0 = (s0 - load(p->s0 + m)) + (v2d){ TINY, TINY }, d1 = s1 - load(p->s1 + m);
    return load(p->shorter + m) + positive((s2 - load(p->s2 + m)) - d1 * d1 / d0);
}

static void keep_less(v2d *least, v2i *at, v2d v, v2i m)
{
    v2i less = v < *least;
    *least = (v2d)(((v2i)v & less) | ((v2i)*least & ~less));
    *at = (m & less) | (*at & ~less);
}

#define CHUNK 16 /* splits between two checks of whether the rest can still win */

/* The first m of lo..hi with the smallest D[j-1][m] + cost(m, i). */
static uint64_t best_split(const struct kmeans *p, uint64_t i, uint64_t lo, uint64_t hi,
                           double *value)
{
    v2d      s0 = { p->s0[i], p->s0[i] }, s1 = { p->s1[i], p->s1[i] }, s2 = { p->s2[i], p->s2[i] };
    v2d      least = { INFINITY, INFINITY }, other = least;
    v2i      at = { INT64_MAX, INT64_MAX }, other_at = at;
    v2i      place = { (int64_t)lo, (int64_t)lo + 1 };
    uint64_t m = lo;
    for (; m + CHUNK <= hi + 1; m += CHUNK) {
        for (unsigned c = 0; c < CHUNK; c += 4, place += 4) {
            keep_less(&least, &at, pair_value(p, m + c, s0, s1, s2), place);
            keep_less(&other, &other_at, pair_value(p, m + c + 2, s0, s1, s2), place + 2);
        }
        /* D[j-1] grows with m and a cost is never negative. */
        double bound = p->shorter[m + CHUNK - 1];
        if (bound >= least[0] || bound >= least[1] || bound >= other[0] || bound >= other[1]) {
            m = hi + 1;
            break;
        }
    }
    keep_less(&least, &at, other, other_at);
    double  best = least[0];
    int64_t where = at[0];
    if (least[1] < best || (least[1] == best && at[1] < where)) {
        best = least[1];
        where = at[1];
    }
    for (; m <= hi; m++) {
        double v = p->shorter[m] + run_cost(p, m, i);
        if (v < best || where == INT64_MAX) {
            best = v;
            where = (int64_t)m;
        }
    }
    *value = best;
    return (uint64_t)where;
}

static void fill(struct kmeans *p, uint32_t j, uint64_t i, uint64_t left, uint64_t right)
{
    uint32_t       *split = p->split + j * (p->cap + 1);
    const uint32_t *before = split - (p->cap + 1);
    uint64_t        lo = before[i] > j ? before[i] : j;
    uint64_t        hi = right <= p->n && split[right] < i ? split[right] : i - 1;
    if (left && split[left] > lo)
        lo = split[left];
    if (hi < lo) /* equal splits that rounding put the wrong way round */
        hi = lo;
    split[i] = (uint32_t)best_split(p, i, lo, hi, &p->cost[i]);
}

/* Layer j (j+1 clusters) for all i: every stride's odd multiples are between two known ones. */
static void layer(struct kmeans *p, uint32_t j)
{
    uint64_t first = j + 1, n = p->n - first + 1, step = 1;
    while (step < n)
        step *= 2;
    for (; step; step /= 2)
        for (uint64_t t = step; t <= n; t += 2 * step) {
            uint64_t i = first + t - 1;
            fill(p, j, i, t > step ? i - step : 0, i + step);
        }
}

/* Clamps between the first and the last of the run despite rounding, so that centres ascend. */
static double mean(const struct kmeans *p, uint64_t begin, uint64_t end)
{
    double s0 = 0.0, s1 = 0.0;
    for (uint64_t i = begin; i < end; i++) {
        s0 += p->w[i];
        s1 += p->w[i] * p->x[i];
    }
    double c = s1 / s0;
    c = c > p->x[begin] ? c : p->x[begin];
    return c < p->x[end - 1] ? c : p->x[end - 1];
}

uint32_t kmeans_solve(struct kmeans *p, double *centre, int32_t (*stop)(void *arg), void *arg)
{
    if (p->n <= p->k) {
        memcpy(centre, p->x, p->n * sizeof *centre);
        return (uint32_t)p->n;
    }
    sum_up(p);
    for (uint64_t i = 1; i <= p->n; i++) {
        p->cost[i] = run_cost(p, 0, i);
        p->split[i] = 0;
    }
    for (uint32_t j = 1; j < p->k; j++) {
        double *t = p->shorter;
        p->shorter = p->cost;
        p->cost = t;
        if (stop(arg))
            return 0;
        if (j + 1 < p->k)
            layer(p, j);
        else /* nothing continues the last layer: only its end counts */
            fill(p, j, p->n, 0, p->n + 1);
    }
    uint64_t end = p->n;
    for (uint32_t j = p->k; j-- > 0;) {
        uint64_t begin = p->split[j * (p->cap + 1) + end];
        centre[j] = mean(p, begin, end);
        end = begin;
    }
    return p->k;
}
