/* k_attention.h - what one token and a tile of tokens share: how far a token looks, scores, exponentials. */
#ifndef TSR_CPU_K_ATTENTION_H
#define TSR_CPU_K_ATTENTION_H

#include <math.h>

#include "k_cached.h"
#include "k_decl.h"
#include "k_math.h"

#define AT_BLOCK 256u /* positions in a chain of the output */

/* The positions that a token attends to: lo..p, from the border of 16 at `base` on; n scores. */
struct reach {
    uint64_t base, lo, p, n;
};

INLINE uint32_t get_u32(const uint8_t *p)
{
    uint32_t u;
    memcpy(&u, p, 4);
    return u;
}

/* row: the cache's row of position 0 */
INLINE struct reach reach_of(const struct tsr_cpu_attention *a, uint64_t token, uint64_t *row)
{
    const uint8_t *span = a->spans + token * a->span_stride;
    uint64_t       p = get_u32(span + 4);
    uint64_t       lo = a->window && p + 1 > a->window ? p + 1 - a->window : 0;
    uint64_t       base = lo & ~UINT64_C(15);
    *row = get_u32(span);
    return (struct reach){ base, lo, p, (p - base) / 16 * 16 + 16 };
}

/* The row of the token's tail, of TSR_Q4_CHANNEL. */
INLINE uint64_t tail_row(const struct tsr_cpu_attention *a, uint64_t token)
{
    return get_u32(a->spans + token * a->span_stride + 8);
}

/* Sixteen scores from products: the scale, the cap and ALiBi; j0 is the first's position. */
INLINE v16 score(const struct tsr_cpu_attention *a, v16 product, uint64_t j0, uint64_t p,
                 const float *slope)
{
    static const float lane[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    v16                cap = v_set1(a->softcap), y = v_mul(product, v_set1(a->scale));
    if (a->softcap > 0.0f)
        y = v_mul(cap, v_tanh(v_div(y, cap)));
    if (slope)
        y = v_add(y, v_mul(v_set1(*slope),
                           v_add(v_set1((float)((int64_t)j0 - (int64_t)p)), v_load(lane))));
    return y;
}

/* exp(s - max) in place; returns their sum in every lane.  A sink takes part in both, if there is one. */
INLINE v16 softmax(float *s, uint64_t n, const float *sink)
{
    v16 m = v_load(s), den = v_set1(0.0f);
    for (uint64_t j = 16; j < n; j += 16)
        m = v_max(m, v_load(s + j));
    m = v_set1(v_hmax(m));
    if (sink)
        m = v_max(m, v_set1(*sink));
    for (uint64_t j = 0; j < n; j += 16) {
        v16 e = v_exp(v_sub(v_load(s + j), m));
        v_store(s + j, e);
        den = v_add(den, e);
    }
    den = v_set1(v_tree16(den));
    return sink ? v_add(den, v_exp(v_sub(v_set1(*sink), m))) : den;
}

#endif
