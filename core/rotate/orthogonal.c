/* Random orthogonal matrices. */
#include "rotate/orthogonal.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Streams of numbers of one seed: signs and normals of a matrix do not meet. */
static void draw_signs(struct tsr_orthogonal *q, uint64_t seed, uint64_t stream)
{
    for (uint64_t i = 0; i < q->n; i++)
        q->sign[i] = tsr_uniform(seed, 2 * stream, i) < 0.5 ? -1 : 1;
}

/* A normal vector points in a uniform direction; a reflection by it takes the first axis there.  One for each dimension, from
 * the largest down, makes their product uniform over all orthogonal matrices. */
static void draw_mirrors(struct tsr_orthogonal *q, uint64_t seed, uint64_t stream)
{
    double  *v = q->mirror;
    uint64_t index = 0;
    for (uint64_t k = 0; k + 1 < q->n; v += q->n - k, k++) {
        const uint64_t len = q->n - k;
        double         square = 0;
        for (uint64_t i = 0; i < len; i++) {
            v[i] = tsr_normal(seed, 2 * stream + 1, index++);
            square += v[i] * v[i];
        }
        const double first = v[0], norm = sqrt(square);
        v[0] += first < 0 ? -norm : norm;
        square += v[0] * v[0] - first * first;
        const double scale = square > 0 ? sqrt(2 / square) : 0;
        for (uint64_t i = 0; i < len; i++)
            v[i] *= scale;
        q->sign[k] = first < 0 ? 1 : -1;
    }
}

tsr_status tsr_orthogonal_create(struct tsr_orthogonal *q, enum tsr_orthogonal_kind kind,
                                 uint64_t n, uint64_t seed, uint64_t stream, struct tsr_err *err)
{
    uint64_t cells = 0;
    *q = (struct tsr_orthogonal){ .kind = kind, .n = n };
    if (kind == TSR_ORTHOGONAL_HADAMARD)
        TSR_TRY(tsr_hadamard_create(&q->h, n, err));
    if (!(q->sign = tsr_new(n, sizeof *q->sign)))
        return tsr_fail_nomem(err, n * sizeof *q->sign, "a rotation");
    draw_signs(q, seed, stream);
    if (kind == TSR_ORTHOGONAL_HADAMARD)
        return TSR_OK;
    if (!tsr_mul(n, n + 1, &cells) || !(q->mirror = tsr_new(cells / 2, sizeof *q->mirror)))
        return tsr_fail_nomem(err, n, "a rotation");
    draw_mirrors(q, seed, stream);
    return TSR_OK;
}

tsr_status tsr_orthogonal_plain(struct tsr_orthogonal *q, uint64_t n, struct tsr_err *err)
{
    *q = (struct tsr_orthogonal){ .kind = TSR_ORTHOGONAL_HADAMARD, .n = n };
    TSR_TRY(tsr_hadamard_create(&q->h, n, err));
    if (!(q->sign = tsr_new(n, sizeof *q->sign)))
        return tsr_fail_nomem(err, n * sizeof *q->sign, "a rotation");
    for (uint64_t i = 0; i < n; i++)
        q->sign[i] = 1;
    return TSR_OK;
}

tsr_status tsr_orthogonal_copy(struct tsr_orthogonal *q, const double *given, uint64_t n,
                               struct tsr_err *err)
{
    uint64_t cells = 0;
    *q = (struct tsr_orthogonal){ .kind = TSR_ORTHOGONAL_GIVEN, .n = n };
    if (!tsr_mul(n, n, &cells) || !(q->given = tsr_new(cells, sizeof *q->given)))
        return tsr_fail_nomem(err, n, "a rotation");
    memcpy(q->given, given, cells * sizeof *given);
    return TSR_OK;
}

void tsr_orthogonal_free(struct tsr_orthogonal *q)
{
    tsr_hadamard_free(&q->h);
    free(q->sign);
    free(q->mirror);
    free(q->given);
    q->sign = q->mirror = q->given = NULL;
}

static uint64_t scratch_of(const struct tsr_orthogonal *q)
{
    return q->kind == TSR_ORTHOGONAL_HADAMARD ? 2 * q->h.base
           : q->kind == TSR_ORTHOGONAL_GIVEN  ? q->n
                                              : 0;
}

static void signs(const struct tsr_orthogonal *q, double *x)
{
    for (uint64_t i = 0; i < q->n; i++)
        x[i] *= q->sign[i];
}

/* x becomes x Q. */
static void apply(const struct tsr_orthogonal *q, double *x, double *scratch)
{
    if (q->kind == TSR_ORTHOGONAL_HADAMARD) {
        signs(q, x);
        tsr_hadamard_apply(&q->h, x, scratch);
        return;
    }
    if (q->kind == TSR_ORTHOGONAL_GIVEN) {
        memcpy(scratch, x, q->n * sizeof *x);
        for (uint64_t j = 0; j < q->n; j++)
            x[j] = 0;
        for (uint64_t i = 0; i < q->n; i++)
            for (uint64_t j = 0; j < q->n; j++)
                x[j] += scratch[i] * q->given[i * q->n + j];
        return;
    }
    const double *v = q->mirror;
    for (uint64_t k = 0; k + 1 < q->n; v += q->n - k, k++) {
        double dot = 0;
        for (uint64_t i = k; i < q->n; i++)
            dot += v[i - k] * x[i];
        for (uint64_t i = k; i < q->n; i++)
            x[i] -= dot * v[i - k];
    }
    signs(q, x); /* without them the first number of every axis's image would be negative */
}

struct work {
    const struct tsr_orthogonal *q; /* [n] */
    uint64_t                     n;
    float                       *w;
    uint64_t                     cols;
    const float                 *gain;
    float                        offset;
    const uint64_t              *rows;
};

static tsr_status some_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct work           *k = arg;
    const struct tsr_orthogonal *q = k->q;
    const uint64_t               runs = k->cols / q->n;
    double                      *x = tsr_new(q->n + scratch_of(q), sizeof *x);
    if (!x)
        return TSR_E_NOMEM;
    for (uint64_t r = begin; r < end; r++)
        for (uint64_t run = 0; run < runs; run++) {
            const uint64_t c = run * q->n;
            float         *w = k->w + r * k->cols + c;
            for (uint64_t i = 0; i < q->n; i++)
                x[i] = k->gain ? (double)w[i] * ((double)k->gain[c + i] + (double)k->offset)
                               : (double)w[i];
            apply(q + run * k->n / runs, x, x + q->n);
            for (uint64_t i = 0; i < q->n; i++)
                w[i] = (float)x[i];
        }
    free(x);
    return TSR_OK;
}

tsr_status tsr_orthogonal_runs(const struct tsr_orthogonal *q, uint64_t n, struct tsr_pool *pool,
                               float *w, uint64_t rows, uint64_t cols, const float *gain,
                               float offset, struct tsr_err *err)
{
    struct work k = { .q = q, .n = n, .w = w, .cols = cols, .gain = gain, .offset = offset };
    tsr_status  st = tsr_pool_for(pool, rows, 16, some_rows, &k);
    return st == TSR_OK ? TSR_OK : tsr_fail_nomem(err, q->n * sizeof(double), "a rotation");
}

tsr_status tsr_orthogonal_rows(const struct tsr_orthogonal *q, struct tsr_pool *pool, float *w,
                               uint64_t rows, uint64_t cols, const float *gain, float offset,
                               struct tsr_err *err)
{
    return tsr_orthogonal_runs(q, 1, pool, w, rows, cols, gain, offset, err);
}

static tsr_status some_columns(void *arg, uint64_t begin, uint64_t end)
{
    const struct work           *k = arg;
    const struct tsr_orthogonal *q = k->q;
    double                      *x = tsr_new(q->n + scratch_of(q), sizeof *x);
    if (!x)
        return TSR_E_NOMEM;
    for (uint64_t c = begin; c < end; c++) {
        for (uint64_t i = 0; i < q->n; i++)
            x[i] = (double)k->w[k->rows[i] * k->cols + c];
        apply(q, x, x + q->n);
        for (uint64_t i = 0; i < q->n; i++)
            k->w[k->rows[i] * k->cols + c] = (float)x[i];
    }
    free(x);
    return TSR_OK;
}

tsr_status tsr_orthogonal_columns(const struct tsr_orthogonal *q, struct tsr_pool *pool, float *w,
                                  const uint64_t *rows, uint64_t cols, struct tsr_err *err)
{
    struct work k = { .q = q, .w = w, .cols = cols, .rows = rows };
    tsr_status  st = tsr_pool_for(pool, cols, 16, some_columns, &k);
    return st == TSR_OK ? TSR_OK : tsr_fail_nomem(err, q->n * sizeof(double), "a rotation");
}
