/* plugins/quant/ranges.h - scale and zero point of one group of weights from its range, by the
 * conventions of GPTQ's quantizer, of AWQ's and of absmax; codes by rounding to nearest.  All in
 * F32, in the order that rtn/README.md states.  Header only, as weights.h. */
#ifndef TSR_QUANT_RANGES_H
#define TSR_QUANT_RANGES_H

#include "weights.h"

enum { WT_RANGE_GPTQ, WT_RANGE_AWQ, WT_RANGE_ABSMAX };

#define WT_MSE_TRIALS 80
#define WT_MSE_GRID   100.0
#define WT_MSE_POWER  2.4
#define WT_TINY_RANGE 1e-5f /* AWQ and absmax clamp their range here */

struct wt_rule {
    uint32_t bits, scale_dtype; /* TSR_F32 also where affine.h rounds the scales */
    int      symmetric, mse;
    int      minimum; /* tessera.int/2: the range's lower end instead of a zero point; range GPTQ */
    uint32_t scale_bits; /* of tessera.int/2 */
    int      fp4;        /* WT_FP4_*: E2M1 codes in blocks of fp4.h, which then has the scales */
    int64_t  range;
};

/* How the weights of one group map to codes: code = clamp(round((w - minimum) / scale) + zero, lo, hi).
 * Either minimum or zero is 0. */
struct wt_params {
    float scale, minimum;
    int   zero, lo, hi;
};

/* Scale and zero point for a group with the range lo..hi; scale 0 if the scale's type cannot
 * represent it. */
static inline struct wt_params wt_params_of_range(const struct wt_rule *q, float lo, float hi)
{
    int              maxq = (1 << q->bits) - 1, mid = 1 << (q->bits - 1);
    struct wt_params p = { .lo = 0, .hi = maxq, .zero = mid };
    float            scale;
    if (q->range == WT_RANGE_GPTQ)
        scale = (hi - lo) / (float)maxq;
    else if (!q->symmetric)
        scale = wt_max(hi - lo, WT_TINY_RANGE) / (float)maxq;
    else
        scale = wt_max(hi, WT_TINY_RANGE) / (float)(mid - 1);
    p.scale = wt_scale_round(scale, q->scale_dtype);
    if (q->range == WT_RANGE_ABSMAX)
        p.lo = 1;
    if (q->minimum) {
        p.zero = 0;
        p.minimum = q->scale_dtype == TSR_F32 ? lo : tsr_f16_f32(tsr_f32_f16(lo));
        return p;
    }
    if (q->symmetric || p.scale == 0.0f)
        return p;
    float zero = q->range == WT_RANGE_GPTQ ? rintf(-lo / p.scale) : -rintf(lo / p.scale);
    p.zero = (int)wt_min(wt_max(zero, 0.0f), (float)maxq);
    return p;
}

/* The quotient may overflow int if the range does not contain the weights (AWQ), so it is clamped
 * as a float first; every clamped value gives the same code. */
static inline int wt_code_nearest(const struct wt_params *p, float w)
{
    float x = (w - p->minimum) / p->scale;
    float c = rintf(wt_min(wt_max(x, -1024.0f), 1024.0f)) + (float)p->zero;
    return (int)wt_min(wt_max(c, (float)p->lo), (float)p->hi);
}

/* What a code means. */
static inline float wt_value(const struct wt_params *p, int code)
{
    return p->scale * (float)(code - p->zero) + p->minimum;
}

/* GPTQ's clip search: both ends shrink by 1 % of the range per trial; the first of the smallest sum
 * |w - w^|^2.4 wins, or with v, of the smallest sum v (w - w^)^2.  The search always rounds to nearest,
 * independent of the final rounding. */
static inline struct wt_params wt_mse_search(const struct wt_rule *q, const float *w,
                                             const float *v, uint64_t n, float lo, float hi)
{
    struct wt_params best = wt_params_of_range(q, lo, hi);
    double           least = INFINITY;
    for (int i = 0; i < WT_MSE_TRIALS; i++) {
        float            shrink = (float)(1.0 - i / WT_MSE_GRID);
        struct wt_params p = wt_params_of_range(q, shrink * lo, shrink * hi);
        if (p.scale == 0.0f)
            continue;
        double error = 0.0;
        for (uint64_t k = 0; k < n && error < least; k++) {
            double d = (double)(wt_value(&p, wt_code_nearest(&p, w[k])) - w[k]);
            error += v ? (double)v[k] * (d * d) : pow(fabs(d), WT_MSE_POWER);
        }
        if (error < least) {
            least = error;
            best = p;
        }
    }
    return best;
}

/* The range of one group by its rule, before any search. */
static inline void wt_find_range(const struct wt_rule *q, const float *w, uint64_t n, float *low,
                                 float *high)
{
    float lo = w[0], hi = w[0];
    for (uint64_t k = 1; k < n; k++) {
        lo = wt_min(lo, w[k]);
        hi = wt_max(hi, w[k]);
    }
    if (q->range == WT_RANGE_GPTQ) {
        lo = wt_min(lo, 0.0f);
        hi = wt_max(hi, 0.0f);
    }
    if (q->symmetric) {
        hi = wt_max(-lo, hi); /* two-sided even if no weight is negative */
        lo = -hi;
    }
    *low = lo;
    *high = hi;
}

/* Nothing but zeros, or so close to it that the step is below the smallest F32: GPTQ's range for
 * zeros is -1..1, in which all of it takes the zero code. */
static inline int wt_range_vanishes(const struct wt_rule *q, float lo, float hi)
{
    float steps = (float)((1 << q->bits) - 1);
    return q->range == WT_RANGE_GPTQ && (hi == lo || (hi - lo) / steps == 0.0f);
}

/* Parameters of a group of zeros under tessera.int/2; where scales are codes, theirs is 0. */
static inline struct wt_params wt_params_flat(const struct wt_rule *q)
{
    return (struct wt_params){ .scale = q->scale_bits ? 0.0f : 1.0f, .hi = (1 << q->bits) - 1 };
}

/* Parameters of one group of n >= 1 weights; scale 0 when its type cannot hold it.  v [n]: what a search
 * weighs the columns by; NULL: it does not. */
static inline struct wt_params wt_find_params(const struct wt_rule *q, const float *w,
                                              const float *v, uint64_t n)
{
    float lo, hi;
    wt_find_range(q, w, n, &lo, &hi);
    if (wt_range_vanishes(q, lo, hi))
        return q->minimum ? wt_params_flat(q) : wt_params_of_range(q, -1.0f, 1.0f);
    struct wt_params p = q->mse ? wt_mse_search(q, w, v, n, lo, hi) : wt_params_of_range(q, lo, hi);
    if (p.scale == 0.0f && lo == 0.0f && hi == 0.0f) /* zeros alone: any scale is right */
        return wt_params_of_range(q, -1.0f, 1.0f);
    return p;
}

/* The sentence for a scale of 0. */
static inline tsr_status wt_scale_refused(uint32_t scale_dtype, const struct tsr_matrix *w,
                                          uint64_t row, uint64_t g, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NUMERIC,
                    "tensor '%s': row %llu group %llu: the scale is not a normal %s number%s",
                    w->name ? w->name : "?", (unsigned long long)row, (unsigned long long)g,
                    scale_dtype == TSR_F16 ? "F16" : "F32",
                    scale_dtype == TSR_F16 ? "; use scale: f32" : "");
}

#endif
