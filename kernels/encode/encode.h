/* encode.h - F32 rows to packed codes and back, at the speed of a link.
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

/* What mx codes decode to. */
struct tsr_decode_mx {
    float    value[256]; /* of a code, before the scale; both zeros are +0 */
    uint32_t bits, lim;
    uint64_t block; /* more than 0 */
    /* Magnitudes from `normal` to `max`, the largest finite one, are mantissas of `mant` bits below
     * exponents that lack `bias` to F32's; those below `normal`, whole numbers of value[1]. */
    uint32_t normal, max, mant;
    int32_t  bias;
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

    /* dst[k] = value[code k] * 2^(scale - lim), rounded once; add: dst[k] + that.  codes and scales as
     * mx_row() writes them; a scale above 2*lim is NaN.  Any bytes have a meaning.  [any] */
    void (*mx_decode)(const struct tsr_decode_mx *m, uint64_t cols, const uint8_t *codes,
                      const uint8_t *scales, float *dst, int add);

    /* Codes of `bits` bits, 2 to 8, with one scale per column, a bit stream as above: with q = 2^(bits-1)
     * - 1, code = rint(x * inv) within -q..q, plus q + 1, ties to even; 0 for non-finite x. Decoding:
     * (code - q - 1) * scale, rounded once, NaN for code 0. [any] */
    void (*scaled_encode)(uint32_t bits, uint64_t cols, const float *x, const float *inv,
                          uint8_t *codes);
    void (*scaled_decode)(uint32_t bits, uint64_t cols, const uint8_t *codes, const float *scale,
                          float *dst, int add);
};

/* For TSR_ISA, or for this machine. TSR_E_CONFIG when the machine lacks TSR_ISA. */
tsr_status tsr_encode_pick(const struct tsr_encode **e, struct tsr_err *err);

/* TSR_E_CONFIG with a sentence for a spec that mx_row() does not take. */
tsr_status tsr_encode_mx_check(const struct tsr_encode_mx *spec, struct tsr_err *err);

/* What a checked spec's codes decode to; cols: of a row, for block 0. */
void tsr_decode_mx_init(struct tsr_decode_mx *m, const struct tsr_encode_mx *spec, uint64_t cols);

/* Eight codes, one a byte and below 2^bits, to 8 * bits bits at the low end. */
static inline uint64_t tsr_squeeze8(uint64_t x, uint32_t bits)
{
    const uint64_t m8 = UINT64_C(0x00ff00ff00ff00ff), m16 = UINT64_C(0x0000ffff0000ffff);
    x = (x & m8) | (x >> 8 & m8) << bits;
    x = (x & m16) | (x >> 16 & m16) << 2 * bits;
    return (x & 0xffffffffu) | x >> 32 << 4 * bits;
}

/* The low 8 * bits bits as eight codes, one a byte. */
static inline uint64_t tsr_spread8(uint64_t x, uint32_t bits)
{
    const uint64_t one = (UINT64_C(1) << bits) - 1, two = (UINT64_C(1) << 2 * bits) - 1;
    const uint64_t four = bits == 8 ? 0xffffffffu : (UINT64_C(1) << 4 * bits) - 1;
    x = (x & four) | (x >> 4 * bits & four) << 32;
    x = (x & two * UINT64_C(0x100000001)) | (x >> 2 * bits & two * UINT64_C(0x100000001)) << 16;
    return (x & one * UINT64_C(0x0001000100010001)) |
           (x >> bits & one * UINT64_C(0x0001000100010001)) << 8;
}

/* Bits of a code of `element`. */
static inline uint32_t tsr_encode_mx_bits(uint32_t element)
{
    return 1 + (element >> 8) + (element & 0xffu);
}

#endif
