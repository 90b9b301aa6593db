/* Order statistics of inputs: every token's |x| sorted, and the largest at each rank. */
#include "compensate/compensation.h"

#include "base/f16.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 64u /* sorted at a time */

tsr_status tsr_compensate_profile_create(struct tsr_compensate_profile_sums *s, uint64_t cols,
                                         struct tsr_err *err)
{
    uint64_t n = 0;
    *s = (struct tsr_compensate_profile_sums){ .cols = cols, .room = ROWS };
    s->top = tsr_new(cols, sizeof *s->top);
    s->square = tsr_new(cols, sizeof *s->square);
    /* a second row for every row, for the passes of the sort */
    s->scratch =
        tsr_mul(cols, UINT64_C(2) * ROWS, &n) ? tsr_new_aligned(n, sizeof *s->scratch) : NULL;
    if (s->top && s->square && s->scratch)
        return TSR_OK;
    tsr_compensate_profile_free(s);
    return tsr_fail_nomem(err, n * sizeof *s->scratch, "sorted activations");
}

void tsr_compensate_profile_free(struct tsr_compensate_profile_sums *s)
{
    free(s->top);
    free(s->square);
    free(s->scratch);
    *s = (struct tsr_compensate_profile_sums){ 0 };
}

/* Descending, by 11 bits at a time; floats that are not negative order as their bits. */
static void sort_down(uint32_t *v, uint32_t *other, uint64_t n)
{
    for (uint32_t shift = 0; shift < 33; shift += 11) {
        uint64_t  place[2048] = { 0 };
        uint32_t *swap = v;
        for (uint64_t i = 0; i < n; i++)
            place[v[i] >> shift & 2047]++;
        for (uint64_t b = 2048, at = 0; b-- > 0;) {
            uint64_t c = place[b];
            place[b] = at;
            at += c;
        }
        for (uint64_t i = 0; i < n; i++)
            other[place[v[i] >> shift & 2047]++] = v[i];
        v = other;
        other = swap;
    }
}

struct sorting {
    struct tsr_compensate_profile_sums *s;
    const float                        *x, *scale;
};

static float value(const struct sorting *a, uint64_t row, uint64_t k)
{
    float x = a->x[row * a->s->cols + k];
    return a->scale ? x / a->scale[k] : x;
}

static tsr_status sort_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct sorting *a = arg;
    uint64_t              n = a->s->cols;
    for (uint64_t r = begin; r < end; r++) {
        uint32_t *v = a->s->scratch + r * 2 * n;
        for (uint64_t k = 0; k < n; k++) {
            v[k] = tsr_f32_bits(fabsf(value(a, r, k)));
            if (v[k] >= 0x7f800000u)
                return TSR_E_NUMERIC;
        }
        sort_down(v, v + n, n); /* three passes: they end in the second half */
    }
    return TSR_OK;
}

/* Rows in order, for any assignment of columns to threads. */
static tsr_status add_columns(struct sorting *a, uint64_t rows)
{
    uint64_t n = a->s->cols;
    for (uint64_t r = 0; r < rows; r++) {
        const uint32_t *v = a->s->scratch + r * 2 * n + n;
        for (uint64_t k = 0; k < n; k++) {
            float  t = tsr_bits_f32(v[k]);
            double d = (double)value(a, r, k);
            a->s->top[k] = t > a->s->top[k] ? t : a->s->top[k];
            a->s->square[k] += d * d;
        }
    }
    return TSR_OK;
}

tsr_status tsr_compensate_profile_add(struct tsr_compensate_profile_sums *s, struct tsr_pool *pool,
                                      const float *x, uint64_t n, const float *scale,
                                      struct tsr_err *err)
{
    for (uint64_t first = 0; first < n; first += s->room) {
        uint64_t       m = n - first < s->room ? n - first : s->room;
        struct sorting a = { .s = s, .x = x + first * s->cols, .scale = scale };
        tsr_status     st = tsr_pool_for(pool, m, 1, sort_rows, &a);
        if (st == TSR_E_NUMERIC)
            return tsr_fail(err, st, "an input of %llu channels is not finite",
                            (unsigned long long)s->cols);
        TSR_TRY(st);
        TSR_TRY(add_columns(&a, m));
        s->rows += m;
    }
    return TSR_OK;
}

/* ---- a profile that is there -------------------------------------------------------------------- */

static tsr_status check(const float *v, uint64_t cols, const char *what, uint64_t layer,
                        const char *site, struct tsr_err *err)
{
    for (uint64_t i = 0; v && i < cols; i++) /* a made-up profile has what a selection reads */
        if (!(v[i] >= 0) || !isfinite(v[i]))
            return tsr_fail(
                err, TSR_E_INVAL,
                "compensation of layer %llu, %s: the %s of channel %llu is %g; a finite "
                "number of at least 0 was expected",
                (unsigned long long)layer, site, what, (unsigned long long)i, (double)v[i]);
    return TSR_OK;
}

tsr_status tsr_compensate_profile_check(const struct tsr_compensate_site_profile *p, uint64_t layer,
                                        const char *site, struct tsr_err *err)
{
    TSR_TRY(check(p->top, p->cols, "largest input", layer, site, err));
    TSR_TRY(check(p->meansq, p->cols, "mean square", layer, site, err));
    return check(p->lost, p->cols, "lost error", layer, site, err);
}
