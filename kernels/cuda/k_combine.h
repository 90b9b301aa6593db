/* k_combine.h - the end of attention: blocks of positions added, and divided by the denominator.  Alone in
 * attention.cu, with the quantization of its rows in step.cu. */
#ifndef TSR_CUDA_K_COMBINE_H
#define TSR_CUDA_K_COMBINE_H

#include "k_math.h"

#define VALUE_BLOCK 256u /* positions that are added in one chain, docs/decisions/numerics.md */

/* Element d of a head of the launch's token: blocks in order, one division. */
DEV float combined(const struct k_attention *a, uint32_t token, uint32_t head, uint32_t d)
{
    const uint64_t  place = (uint64_t)token * a->heads + head;
    const uint32_t *span =
        AT(const uint32_t, a->spans + (uint64_t)(a->first + token) * a->span_stride);
    const uint32_t p = span[1], lo = a->window && p >= a->window ? p - a->window + 1 : 0;
    const uint32_t n = p / VALUE_BLOCK - lo / VALUE_BLOCK + 1;
    const float   *part = AT(const float, a->partial) + place * a->blocks * a->head_dim + d;
    const float    den = AT(const float, a->den)[place];
    float          sum = 0.0f;
    UNROLL_8
    for (uint32_t b = 0; b < n; b++)
        sum = sum + part[(uint64_t)b * a->head_dim];
    return sum / den;
}

#endif
