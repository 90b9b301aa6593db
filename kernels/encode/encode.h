/* encode.h - F32 rows to the packed layouts of tessera/format.h, at the speed of a link.
 *
 * A static library for plugins (quantizers, codecs): `encode_dep` in meson.  What it writes is
 * the same to the bit on every instruction set.
 *
 *   const struct tsr_encode *e;
 *   st = tsr_encode_pick(&e, err);            once
 *   st = tsr_encode_mx_check(&spec, err);     once per set of options
 *   bad = e->mx_row(&spec, cols, x, codes, scales);
 */
#ifndef TSR_ENCODE_H
#define TSR_ENCODE_H

#include "tessera/format.h"

#define TSR_ENCODE_NEAREST 0u /* half away from zero */
#define TSR_ENCODE_EVEN    1u /* half to even        */
#define TSR_ENCODE_FLOOR   2u /* toward zero         */

/* How a block's scale follows from A, its largest magnitude; emax is the exponent of the element's
 * largest number. */
#define TSR_ENCODE_SCALE_FLOOR 0u /* floor(log2 A) - emax                                */
#define TSR_ENCODE_SCALE_EVEN                                                                      \
    1u                           /* the same of A rounded to the element's mantissa, a half
                                   * upwards (compressed-tensors, Quark)                 */
#define TSR_ENCODE_SCALE_CEIL 2u /* the smallest at which A is not above the largest number */

#define TSR_ENCODE_NONE UINT64_MAX

/* How a row becomes tessera.mx/1. */
struct tsr_encode_mx {
    uint32_t element;    /* TSR_MX_*: an element of docs/formats/mx.md   */
    uint32_t scale_bits; /* 4..8                                         */
    uint32_t rounding;   /* TSR_ENCODE_*                                 */
    uint32_t scale_rule; /* TSR_ENCODE_SCALE_*                           */
    uint64_t block;      /* columns that share a scale; 0: the whole row */
};

struct tsr_encode {
    const char *name; /* of the instruction set */

    /* One row of `cols` columns: codes take ceil(cols * bits / 8) bytes, a little-endian bit
     * stream padded with zero bits; scales one byte per block, biased by lim.  Per block with
     * A = max |x|: S = floor(log2 A) - emax, or by another rule, at least -lim; the element next to x / 2^S by the
     * rounding, at most the largest; zero is positive.  S above lim, NaN or Inf in the block:
     * scale 2*lim+1 and codes 0.  OCP MX 1.0 section 6.3; rounding and the narrow scales as
     * microxcaling has them.  Returns the first such block, or TSR_ENCODE_NONE.  [any] */
    uint64_t (*mx_row)(const struct tsr_encode_mx *spec, uint64_t cols, const float *x,
                       uint8_t *codes, uint8_t *scales);

    /* One row as tessera.int/1 with 4 bits, F16 scales and the implicit zero point 8: per group
     * scale = F16(max |x| / 7), code = rint(x * (1 / scale)) + 8, from 0 to 15, ties to even;
     * a scale whose reciprocal F32 cannot hold is 0 with codes 8.  NaN or Inf in the group, or
     * a scale that F16 cannot hold: scale NaN and codes 8.  group 0: the whole row.  Returns the
     * first such group, or TSR_ENCODE_NONE.  [any] */
    uint64_t (*int4_row)(uint64_t group, uint64_t cols, const float *x, uint8_t *codes,
                         uint16_t *scales);
};

/* For TSR_ISA, or for this machine.  TSR_E_CONFIG when TSR_ISA asks for what it lacks. */
tsr_status tsr_encode_pick(const struct tsr_encode **e, struct tsr_err *err);

/* TSR_E_CONFIG with a sentence for a spec that mx_row() does not take. */
tsr_status tsr_encode_mx_check(const struct tsr_encode_mx *spec, struct tsr_err *err);

/* Bits of a code of `element`. */
static inline uint32_t tsr_encode_mx_bits(uint32_t element)
{
    return 1 + (element >> 8) + (element & 0xffu);
}

#endif
