/* Statistics of scaled and transformed inputs. */
#include "quant/block_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

void tsr_quant_block_stats_free(struct tsr_quant_stats *s)
{
    free((void *)(uintptr_t)s->hessian);
    free((void *)(uintptr_t)s->absmax);
    free((void *)(uintptr_t)s->mean);
    free((void *)(uintptr_t)s->variance);
    free((void *)(uintptr_t)s->mean_abs);
    free((void *)(uintptr_t)s->inputs);
    free((void *)(uintptr_t)s->cross);
    *s = (struct tsr_quant_stats){ .struct_size = sizeof *s };
}

/* rows of v, each element divided by its column's scale (NULL: 1), `power` times, and, if by_row, by its
 * row's; NULL stays NULL. */
static tsr_status divide(const float **out, const float *v, uint64_t rows, uint64_t cols,
                         const float *scale, int power, bool by_row, struct tsr_err *err)
{
    uint64_t n;
    *out = NULL;
    if (!v)
        return TSR_OK;
    float *d = tsr_mul(rows, cols, &n) ? tsr_new_aligned(n, sizeof *d) : NULL;
    if (!d)
        return tsr_fail_nomem(err, rows * cols * sizeof *d, "statistics of scaled inputs");
    *out = d;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++) {
            double x = (double)v[r * cols + c];
            for (int i = 0; scale && i < power; i++)
                x /= (double)scale[c];
            d[r * cols + c] = (float)(scale && by_row ? x / (double)scale[r] : x);
        }
    return TSR_OK;
}

bool tsr_quant_block_changes(const struct tsr_quant_block_fold *f, enum tsr_site site)
{
    enum tsr_site at = tsr_model_site_columns(site);
    return (f->scale && f->scale[at]) || (f->turn && tsr_rotate_transform_is_set(&f->turn[at]));
}

static tsr_status divided_stats(const struct tsr_quant_stats *in, const float *s,
                                struct tsr_quant_stats *out, struct tsr_err *err)
{
    uint64_t n = in->cols;
    TSR_TRY(divide(&out->hessian, in->hessian, n, n, s, 1, true, err));
    TSR_TRY(divide(&out->cross, in->cross, n, n, s, 1, true, err));
    TSR_TRY(divide(&out->absmax, in->absmax, 1, n, s, 1, false, err));
    TSR_TRY(divide(&out->mean, in->mean, 1, n, s, 1, false, err));
    TSR_TRY(divide(&out->variance, in->variance, 1, n, s, 2, false, err));
    TSR_TRY(divide(&out->mean_abs, in->mean_abs, 1, n, s, 1, false, err));
    return divide(&out->inputs, in->inputs, in->input_rows, n, s, 1, false, err);
}

/* ---- transforms ---------------------------------------------------------------- */

static float *own(const float *v)
{
    return (float *)(uintptr_t)v; /* fresh arrays, const for the plugin alone */
}

static tsr_status turn_rows(const struct tsr_rotate_transform *t, struct tsr_pool *pool,
                            const float *v, uint64_t rows, uint64_t cols, struct tsr_err *err)
{
    return v ? tsr_rotate_transform_inputs(t, pool, own(v), rows, cols, NULL, 0, err) : TSR_OK;
}

static void transpose(float *v, uint64_t n)
{
    for (uint64_t r = 0; r < n; r++)
        for (uint64_t c = 0; c < r; c++) {
            float x = v[r * n + c];
            v[r * n + c] = v[c * n + r];
            v[c * n + r] = x;
        }
}

/* M [n, n] becomes T^T M T: (M T)^T T is its transpose. */
static tsr_status turn_both(const struct tsr_rotate_transform *t, struct tsr_pool *pool,
                            const float *m, uint64_t n, struct tsr_err *err)
{
    for (int i = 0; m && i < 2; i++) {
        TSR_TRY(turn_rows(t, pool, m, n, n, err));
        transpose(own(m), n);
    }
    return TSR_OK;
}

/* Of the recorded inputs of a column, where they were asked for. */
static void measure(struct tsr_quant_stats *s, uint64_t c)
{
    double sum = 0, square = 0, size = 0, top = 0;
    for (uint64_t r = 0; r < s->input_rows; r++) {
        double x = (double)s->inputs[r * s->cols + c];
        sum += x;
        square += x * x;
        size += fabs(x);
        top = fmax(top, fabs(x));
    }
    const double n = (double)s->input_rows, mean = sum / n;
    if (s->absmax)
        own(s->absmax)[c] = (float)top;
    if (s->mean_abs)
        own(s->mean_abs)[c] = (float)(size / n);
    if (s->variance)
        own(s->variance)[c] = (float)fmax(0, square / n - mean * mean);
}

static void drop(const float **v)
{
    free(own(*v));
    *v = NULL;
}

static tsr_status turned_stats(const struct tsr_rotate_transform *t, struct tsr_pool *pool,
                               struct tsr_quant_stats *s, struct tsr_err *err)
{
    const uint64_t n = s->cols;
    TSR_TRY(turn_both(t, pool, s->hessian, n, err));
    TSR_TRY(turn_both(t, pool, s->cross, n, err));
    TSR_TRY(turn_rows(t, pool, s->mean, 1, n, err));
    TSR_TRY(turn_rows(t, pool, s->inputs, s->input_rows, n, err));
    if (!t->matrix && !t->online) { /* another order alone */
        TSR_TRY(turn_rows(t, pool, s->absmax, 1, n, err));
        TSR_TRY(turn_rows(t, pool, s->variance, 1, n, err));
        return turn_rows(t, pool, s->mean_abs, 1, n, err);
    }
    for (uint64_t c = 0; s->inputs && s->input_rows && c < n; c++)
        measure(s, c);
    if (!s->inputs || !s->input_rows) { /* a largest number says nothing of a sum's */
        drop(&s->absmax);
        drop(&s->variance);
        drop(&s->mean_abs);
    }
    return TSR_OK;
}

tsr_status tsr_quant_block_stats(const struct tsr_quant_block_fold *f, enum tsr_site site,
                                 const struct tsr_quant_stats *in, struct tsr_pool *pool,
                                 struct tsr_quant_stats *out, struct tsr_err *err)
{
    const enum tsr_site                at = tsr_model_site_columns(site);
    const struct tsr_rotate_transform *t = f->turn ? &f->turn[at] : NULL;
    *out = *in;
    if (!tsr_quant_block_changes(f, site))
        return TSR_OK;
    out->sensitivity = NULL;
    out->hessian = out->absmax = out->mean = out->variance = out->mean_abs = out->inputs = NULL;
    out->cross = NULL;
    tsr_status st = divided_stats(in, f->scale ? f->scale[at] : NULL, out, err);
    if (st == TSR_OK && t)
        st = turned_stats(t, pool, out, err);
    if (st != TSR_OK)
        tsr_quant_block_stats_free(out);
    return st;
}
