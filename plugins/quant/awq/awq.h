/* awq.h - shared by the plugin's table, its scale search and its clip search. */
#ifndef TSR_AWQ_H
#define TSR_AWQ_H

#include "../affine.h"

#include <tessera/quantizer_block.h>

struct awq {
    const struct tsr_host *host;
    uint32_t               bits, scale_dtype;
    int                    minimum; /* tessera.int/2 */
    uint32_t               scale_bits;
    uint64_t               group; /* 0: the whole row */
    int                    clip;
};

/* How the weights of one group map to codes; scale 0: its type cannot represent the step. */
struct awq_params {
    float scale;
    float zero;    /* an integer from 0 to 2^bits-1 */
    float minimum; /* instead of it               */
};

#define AWQ_TINY_RANGE 1e-5f

/* AWQ's asymmetric range, smallest to largest weight, widened so that 0 is always inside: a group
 * on one side of 0 would saturate otherwise. */
static inline struct awq_params awq_params_of(const struct awq *q, const float *w, uint64_t n)
{
    float lo = 0.0f, hi = 0.0f, top = (float)((1u << q->bits) - 1u);
    for (uint64_t k = 0; k < n; k++) {
        lo = wt_min(lo, w[k]);
        hi = wt_max(hi, w[k]);
    }
    if (lo == hi) /* nothing but zeros; where scales are codes, theirs is 0 */
        return (struct awq_params){ .scale = q->scale_bits ? 0.0f : 1.0f };
    struct awq_params p = { .scale = wt_scale_round(wt_max(hi - lo, AWQ_TINY_RANGE) / top,
                                                    q->scale_dtype) };
    if (q->minimum)
        p.minimum = q->scale_dtype == TSR_F32 ? lo : tsr_f16_f32(tsr_f32_f16(lo));
    else if (p.scale != 0.0f)
        p.zero = wt_min(wt_max(-rintf(lo / p.scale), 0.0f), top);
    return p;
}

static inline float awq_code(const struct awq *q, const struct awq_params *p, float w)
{
    return wt_min(wt_max(rintf((w - p->minimum) / p->scale) + p->zero, 0.0f),
                  (float)((1u << q->bits) - 1u));
}

/* out = the decoded group; false if the scale's type cannot represent the step. */
static inline int awq_round_trip(const struct awq *q, const float *w, uint64_t n, float *out)
{
    struct awq_params p = awq_params_of(q, w, n);
    if (p.scale == 0.0f && (p.minimum != 0.0f || !q->scale_bits))
        return 0;
    for (uint64_t k = 0; k < n; k++)
        out[k] = (awq_code(q, &p, w[k]) - p.zero) * p.scale + p.minimum;
    return 1;
}

/* Columns of group g of a row: [begin, end). */
struct awq_span {
    uint64_t begin, end;
};
static inline struct awq_span awq_span_of(const struct awq *q, uint64_t cols, uint64_t g)
{
    if (q->group == 0 || q->group >= cols)
        return (struct awq_span){ 0, cols };
    uint64_t begin = g * q->group, left = cols - begin;
    return (struct awq_span){ begin, begin + (left < q->group ? left : q->group) };
}
static inline uint64_t awq_groups(const struct awq *q, uint64_t cols)
{
    struct tsr_format f = { .group = q->group };
    return tsr_format_groups(&f, cols);
}

static inline const float *awq_row(const struct tsr_matrix *w, uint64_t r)
{
    return (const float *)(const void *)((const char *)w->data + r * w->row_stride);
}

/* n elements of `size` bytes, 64-byte aligned; NULL when exhausted or when the product overflows. */
static inline void *awq_alloc(const struct awq *q, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return q->host->alloc(q->host->ctx, bytes, 64);
}

static inline void awq_release(const struct awq *q, void *p, uint64_t n, uint64_t size)
{
    if (p)
        q->host->release(q->host->ctx, p, n * size);
}

/* search.c: the scale of one site, into choice->scale. */
tsr_status awq_search_scale(const struct awq *q, const struct tsr_block *b, uint64_t site,
                            struct tsr_block_choice *choice, struct tsr_err *err);
/* clip.c: the clips of one site, once every site's scale is known. */
tsr_status awq_search_clip(const struct awq *q, const struct tsr_block *b, uint64_t site,
                           struct tsr_block_choice *const *choices, struct tsr_err *err);

#endif
