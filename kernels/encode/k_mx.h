/* k_mx.h - a row's MX options as the kernels see them, and its scales.  Included by k_encode.c only.
 */
#ifndef TSR_ENCODE_K_MX_H
#define TSR_ENCODE_K_MX_H

#include <stdint.h>

#include "kernel.h"

#define INF 0x7f800000u

struct mx {
    struct tsr_encode_element el;
    int32_t                   lim;
    uint32_t                  rounding, scale_rule;
};

/* Added to the bits of A, this carries into the exponent where the rule takes the next power of two
 * above floor(log2 A). */
static inline uint32_t mx_carry(const struct mx *m)
{
    uint32_t mask = (1u << m->el.mant) - 1;
    if (m->scale_rule == TSR_ENCODE_SCALE_FLOOR)
        return 0;
    if (m->scale_rule == TSR_ENCODE_SCALE_EVEN)
        return 1u << (22 - m->el.mant);
    return 0x7fffffu - ((m->el.max & mask) << (23 - m->el.mant));
}

/* The bits of the smallest A whose block is NaN: Inf, or S above lim. */
static inline uint32_t mx_limit(const struct mx *m)
{
    uint64_t above = (uint64_t)(m->lim + 1 + 127 + m->el.emax) << 23;
    return above - mx_carry(m) < INF ? (uint32_t)above - mx_carry(m) : INF;
}

/* The block's scale byte. */
static inline uint8_t mx_scale(const struct mx *m, uint32_t amax)
{
    if (amax >= mx_limit(m))
        return (uint8_t)(2 * m->lim + 1);
    /* from 2^-127 on without the first one, like normal numbers; below, S is -lim by any rule */
    uint32_t u = amax > 0x7fffffu ? amax : amax > 0x3fffffu ? 2 * amax - 0x800000u : 0;
    int32_t  s = (int32_t)((u + mx_carry(m)) >> 23) - 127 - m->el.emax;
    return (uint8_t)((s < -m->lim ? -m->lim : s) + m->lim);
}
#endif
