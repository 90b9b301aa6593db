/* The gated delta rule.  Three passes over a chunk:
 *
 *   mix      for each token: the convolution, with the rows of earlier tokens; norms of queries and keys
 *   recur    for each run, value head and block of BLOCK columns: the tokens one after the other, while the block of
 *            the state stays in the nearest cache
 *   finish   for each token: the norm of each value head, times silu(z)
 *
 * A state's columns do not mix, so the passes can be cut anywhere between heads, blocks and runs. */
#include "engine/delta.h"

#include "engine/delta_math.h"

#define BLOCK 16u
#define LANES 16u

struct job {
    const struct tsr_model_delta   *d;
    float                           eps;
    const struct tsr_delta_weights *w;
    const struct tsr_delta_rows    *rows;
    const uint32_t                 *order;
    const struct tsr_delta_run     *runs;
    uint64_t                        n_runs, keys, values, channels; /* widths */
};

uint64_t tsr_delta_channels(const struct tsr_model_delta *d)
{
    return 2 * (uint64_t)d->key_heads * d->key_dim + (uint64_t)d->value_heads * d->value_dim;
}

/* Columns of a head's state. */
static uint64_t padded(const struct tsr_model_delta *d)
{
    return ((uint64_t)d->value_dim + BLOCK - 1) / BLOCK * BLOCK;
}

/* The states of the value heads, then the last kernel - 1 rows before the convolution, the oldest first. */
static uint64_t history_at(const struct tsr_model_delta *d)
{
    return (uint64_t)d->value_heads * d->key_dim * padded(d);
}

uint64_t tsr_delta_state_floats(const struct tsr_model_delta *d)
{
    return history_at(d) + (d->kernel - 1) * tsr_delta_channels(d);
}

static float sum_of_squares(const float *x, uint64_t n)
{
    float    lane[LANES] = { 0 };
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (unsigned l = 0; l < LANES; l++)
            lane[l] += x[i + l] * x[i + l];
    for (unsigned l = 0; i + l < n; l++)
        lane[l] += x[i + l] * x[i + l];
    for (unsigned half = LANES / 2; half > 0; half /= 2)
        for (unsigned l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* ---- mix ---------------------------------------------------------------------------------- */

/* The three stretches of channels: queries, keys, values. */
static const float *stretch(const struct job *j, int part, uint64_t row, uint64_t *n)
{
    *n = part == 2 ? j->values : j->keys;
    const float *from = part == 0 ? j->rows->q : part == 1 ? j->rows->k : j->rows->v;
    return from + row * *n;
}

/* Token `at` of a run through the convolution; a tap before the run is in the state. */
static void convolve(const struct job *j, const struct tsr_delta_run *run, uint64_t at, float *out)
{
    uint64_t     kernel = j->d->kernel, first = 0, n = 0;
    const float *history = run->state + history_at(j->d);
    for (int part = 0; part < 3; part++, first += n) {
        (void)stretch(j, part, 0, &n);
        float *to = out + first;
        memset(to, 0, n * sizeof *to);
        for (uint64_t s = 0; s < kernel; s++) {
            bool         earlier = at + s + 1 < kernel; /* at - (kernel - 1) + s < 0 */
            uint64_t     k = at + s + 1 - kernel;
            const float *u = earlier ? history + (at + s) * j->channels + first
                                     : stretch(j, part, j->order[run->first + k], &n);
            const float *w = j->w->conv + s * j->channels + first;
            for (uint64_t i = 0; i < n; i++)
                to[i] += w[i] * u[i];
        }
        for (uint64_t i = 0; i < n; i++)
            to[i] = tsr_delta_silu(to[i]);
    }
}

/* Each head over its length. */
static void norm_keys(const struct job *j, float *x, float scale)
{
    uint64_t dim = j->d->key_dim;
    for (uint32_t h = 0; h < j->d->key_heads; h++, x += dim) {
        float r = 1.0f / sqrtf(sum_of_squares(x, dim) + 1e-6f) * scale;
        for (uint64_t i = 0; i < dim; i++)
            x[i] *= r;
    }
}

static void mix_token(const struct job *j, const struct tsr_delta_run *run, uint64_t at)
{
    uint32_t heads = j->d->value_heads;
    uint64_t row = j->order[run->first + at];
    float   *mixed = j->rows->mixed + row * j->channels;
    convolve(j, run, at, mixed);
    norm_keys(j, mixed, (float)(1.0 / sqrt((double)j->d->key_dim)));
    norm_keys(j, mixed + j->keys, 1.0f);
    for (uint32_t h = 0; h < heads; h++) {
        double dt = (double)j->rows->a[row * heads + h] + (double)j->w->step[h];
        j->rows->beta[row * heads + h] = tsr_delta_sigmoid(j->rows->b[row * heads + h]);
        j->rows->keep[row * heads + h] =
            (float)tsr_delta_exp_wide(-(double)j->w->rate[h] * tsr_delta_softplus(dt));
    }
}

/* The run in which a place of the order lies. */
static const struct tsr_delta_run *run_of(const struct job *j, uint64_t place)
{
    uint64_t lo = 0, hi = j->n_runs;
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (j->runs[mid].first <= place)
            lo = mid;
        else
            hi = mid;
    }
    return &j->runs[lo];
}

static tsr_status mix(void *arg, uint64_t begin, uint64_t end)
{
    const struct job *j = arg;
    for (uint64_t i = begin; i < end; i++) {
        const struct tsr_delta_run *run = run_of(j, i);
        mix_token(j, run, i - run->first);
    }
    return TSR_OK;
}

/* The rows that the next chunk's first tokens look back on. */
static void keep_history(const struct job *j, const struct tsr_delta_run *run)
{
    uint64_t back = j->d->kernel - 1, row = j->channels;
    float   *history = run->state + history_at(j->d);
    uint64_t stay = run->n < back ? back - run->n : 0;
    memmove(history, history + (back - stay) * row, stay * row * sizeof *history);
    for (uint64_t i = stay; i < back; i++) {
        uint64_t at = j->order[run->first + run->n - back + i], first = 0, n;
        for (int part = 0; part < 3; part++, first += n) {
            const float *u = stretch(j, part, at, &n);
            memcpy(history + i * row + first, u, n * sizeof *u);
        }
    }
}

/* ---- recur -------------------------------------------------------------------------------- */

/* Columns of a row, elementwise operations of the compiler's on any machine. */
typedef float quad __attribute__((vector_size(16)));
#define QUADS (BLOCK / 4)

static inline quad quad_at(const float *p)
{
    quad x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* One token over a block of a state: S *= keep; S += k (beta (v - S^T k))^T; o = S^T q. */
static void take(float *restrict s, uint64_t rows, const float *restrict q, const float *restrict k,
                 const float *restrict v, float beta, float keep, float *restrict out)
{
    quad has[QUADS] = { 0 }, o[QUADS] = { 0 }, e[QUADS];
    for (uint64_t i = 0; i < rows; i++)
        for (size_t c = 0; c < QUADS; c++)
            has[c] += quad_at(s + i * BLOCK + 4 * c) * k[i];
    for (size_t c = 0; c < QUADS; c++)
        e[c] = (quad_at(v + 4 * c) - has[c] * keep) * beta;
    for (uint64_t i = 0; i < rows; i++)
        for (size_t c = 0; c < QUADS; c++) {
            quad x = quad_at(s + i * BLOCK + 4 * c) * keep + e[c] * k[i];
            memcpy(s + i * BLOCK + 4 * c, &x, sizeof x);
            o[c] += x * q[i];
        }
    memcpy(out, o, sizeof o);
}

/* A run over one block of a head; blocks lie one behind the other, the last one with columns that stay zero. */
static void recur_block(const struct job *j, const struct tsr_delta_run *run, uint32_t head,
                        uint64_t first)
{
    const struct tsr_model_delta *d = j->d;
    uint64_t key = (uint64_t)(head / (d->value_heads / d->key_heads)) * d->key_dim;
    uint64_t width = d->value_dim - first < BLOCK ? d->value_dim - first : BLOCK;
    float   *s = run->state + (head * padded(d) + first) * d->key_dim;
    for (uint64_t i = 0; i < run->n; i++) {
        uint64_t     at_row = j->order[run->first + i], at = head * (uint64_t)d->value_dim + first;
        const float *x = j->rows->mixed + at_row * j->channels, *q = x + key, *k = q + j->keys;
        float        v[BLOCK] = { 0 }, o[BLOCK];
        memcpy(v, x + 2 * j->keys + at, width * sizeof *v);
        take(s, d->key_dim, q, k, v, j->rows->beta[at_row * d->value_heads + head],
             j->rows->keep[at_row * d->value_heads + head], o);
        memcpy(j->rows->out + at_row * j->values + at, o, width * sizeof *o);
    }
}

static tsr_status recur(void *arg, uint64_t begin, uint64_t end)
{
    const struct job *j = arg;
    for (uint64_t i = begin; i < end; i++)
        for (uint64_t first = 0; first < j->d->value_dim; first += BLOCK)
            recur_block(j, &j->runs[i / j->d->value_heads], (uint32_t)(i % j->d->value_heads),
                        first);
    return TSR_OK;
}

/* ---- finish ------------------------------------------------------------------------------- */

static tsr_status finish(void *arg, uint64_t begin, uint64_t end)
{
    const struct job *j = arg;
    uint64_t          dim = j->d->value_dim;
    for (uint64_t i = begin; i < end; i++)
        for (uint32_t h = 0; h < j->d->value_heads; h++) {
            uint64_t     at = j->order[i] * j->values + h * dim;
            float       *o = j->rows->out + at;
            const float *z = j->rows->z + at;
            float        r = 1.0f / sqrtf(sum_of_squares(o, dim) / (float)dim + j->eps);
            for (uint64_t c = 0; c < dim; c++)
                o[c] = ((o[c] * r) * j->w->norm[c]) * tsr_delta_silu(z[c]);
        }
    return TSR_OK;
}

tsr_status tsr_delta_run_rows(struct tsr_pool *pool, const struct tsr_model_delta *d, float eps,
                              const struct tsr_delta_weights *w, const struct tsr_delta_rows *rows,
                              const uint32_t *order, uint64_t n, const struct tsr_delta_run *runs,
                              uint64_t n_runs)
{
    struct job j = { .d = d,
                     .eps = eps,
                     .w = w,
                     .rows = rows,
                     .order = order,
                     .runs = runs,
                     .n_runs = n_runs,
                     .keys = (uint64_t)d->key_heads * d->key_dim,
                     .values = (uint64_t)d->value_heads * d->value_dim,
                     .channels = tsr_delta_channels(d) };
    TSR_TRY(tsr_pool_for(pool, n, 4, mix, &j));
    for (uint64_t i = 0; i < n_runs; i++)
        keep_history(&j, &runs[i]);
    TSR_TRY(tsr_pool_for(pool, n_runs * d->value_heads, 1, recur, &j));
    return tsr_pool_for(pool, n, 4, finish, &j);
}

/* ---- the gate of attention ------------------------------------------------------------------ */

struct gating {
    float       *x;
    const float *gate;
};

static tsr_status gate(void *arg, uint64_t begin, uint64_t end)
{
    const struct gating *g = arg;
    for (uint64_t i = begin; i < end; i++)
        g->x[i] *= tsr_delta_sigmoid(g->gate[i]);
    return TSR_OK;
}

tsr_status tsr_delta_gate(struct tsr_pool *pool, float *x, const float *gates, uint64_t n)
{
    struct gating g = { x, gates };
    return tsr_pool_for(pool, n, 4096, gate, &g);
}
