/* tessera/format.h - format: the layout of a packed weight matrix.
 *
 * A format is an id and the parameters in struct tsr_format.  A quantizer names the format that it
 * writes, always the plain row-major layout.  A backend names the formats that it reads, and may
 * repack at load.  Every row is self-contained, so rows can be produced, split and moved
 * independently.  docs/formats/ has a page for each id, and kernels/formats/ a reference decoder
 * with vectors.
 *
 * tessera.float/1   cols elements of `dtype`; no meta.
 * tessera.int/1     w[r][k] = (code[r][k] - zero[r][g]) * scale[r][g], g = k / group, rounded to
 *                   F32 once.  group 0: the whole row.
 *                   codes: unsigned, `bits` wide, one little-endian bit stream per row (bit 0 of
 *                   byte 0 first).  Zero bits pad the row to a byte.
 *                   meta per row: G = ceil(cols/group) scales of scale_dtype.  If zero ==
 *                   TSR_ZERO_STORED, G zero points of one byte follow; else zero = 2^(bits-1).
 *                   Zero bytes pad the row to a multiple of 4.
 * tessera.int/2     w[r][k] = code[r][k] * scale[r][g] + minimum[r][g], rounded to F32 after the
 *                   product and after the sum.  codes as in int/1.  group is 16, 32, 64 or 128.
 *                   scale_bits 0: group may also be 0, the whole row; meta per row: G scales of
 *                   scale_dtype, then G minimums of scale_dtype.  scale_bits 4, 6 or 8: meta per
 *                   row: a record for every 256 columns: F16 D, F16 M, 256/group codes a, then as
 *                   many codes b, each a bit stream padded to a byte; scale = D * a, minimum =
 *                   -(M * b).  Zero bytes pad the row to a multiple of 4.
 * tessera.lut/1     w[r][k] = table[r][code[r][k]], then w[r][col] = value for the outliers of
 *                   the row.  codes as in int.  meta per row: 2^bits table entries of scale_dtype,
 *                   `outliers` values of scale_dtype, zero bytes up to a multiple of 4, `outliers`
 *                   columns U32, strictly ascending.  outliers is at most cols.
 * tessera.table/1   w[r][k] = table[code[r][k]] * scale[r][g], g = k / group, rounded to F32 once.
 *                   bits 2 to 4: 2^bits entries of `table`; 5 to 8: code[r][k] - 2^(bits-1) in their
 *                   place.  codes as in int.  group is a power of two from 16 on, or 0, the whole row.  meta per row: scale_bits 0: G scales of
 *                   scale_dtype.  scale_bits 6 or 8: group is at most 128; a record for every 256
 *                   columns: F16 D, 256/group codes a, a bit stream padded to a byte; scale =
 *                   D * (a - 2^(scale_bits-1)).  scale_bits 8 with element TSR_MX_FP8_E4M3: F32 D,
 *                   then G bytes b; scale = E4M3(b) / D, rounded to F32.  Zero bytes pad the row to
 *                   a multiple of 4.
 * tessera.fp8/1     w[r][k] = element(code[r][k]) * scale[r][g], g = k / group, rounded to F32 once;
 *                   group 0: the whole row.  element: TSR_MX_FP8_E4M3 or TSR_MX_FP8_E5M2, bits 8: a
 *                   byte per code, whose value is that of mx/1.  meta per row: G scales of
 *                   scale_dtype, F32 or BF16.  Zero bytes pad the row to a multiple of 4.
 * tessera.mx/1      w[r][k] = element(code[r][k]) * 2^(scale[r][g] - lim), g = k / group,
 *                   lim = 2^(scale_bits-1) - 1.  codes as in int.  A code is sign (top bit),
 *                   exponent and mantissa of `element`, or sign and magnitude for the integers,
 *                   whose value is 1.xxx.  meta per row: one byte of biased scale per block;
 *                   2*lim+1 is NaN.  Zero bytes pad the row to a multiple of 4.
 *                   docs/formats/mx.md has the tables (OCP MX 1.0, extended).
 *
 * Example: the bytes of a row of 4-bit codes with an F16 scale and a zero point per 128 columns.
 *
 *     static uint64_t row_bytes(uint64_t cols)
 *     {
 *         const struct tsr_format f = {
 *             .struct_size = sizeof f, .id = TSR_FORMAT_INT, .bits = 4,
 *             .zero = TSR_ZERO_STORED, .group = 128, .scale_dtype = TSR_F16,
 *         };
 *         return tsr_format_int_code_bytes(&f, cols) + tsr_format_int_meta_bytes(&f, cols);
 *     }
 */
#ifndef TSR_FORMAT_H
#define TSR_FORMAT_H

#include "tessera/plugin.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_FORMAT_FLOAT  "tessera.float/1"
#define TSR_FORMAT_INT    "tessera.int/1"
#define TSR_FORMAT_AFFINE "tessera.int/2"
#define TSR_FORMAT_LUT    "tessera.lut/1"
#define TSR_FORMAT_MX     "tessera.mx/1"
#define TSR_FORMAT_FP8    "tessera.fp8/1"
#define TSR_FORMAT_TABLE  "tessera.table/1"

/* int/2 and table/1 with scale_bits: columns of a record. */
#define TSR_AFFINE_SUPER UINT64_C(256)
#define TSR_TABLE_SUPER  UINT64_C(256)

#define TSR_TABLE_ENTRIES 16u /* of table/1; those that no code means are 0 */

#define TSR_ZERO_MID    0u /* implicit zero point 2^(bits-1)               */
#define TSR_ZERO_STORED 1u /* one byte per group, after the scales          */

/* MX elements by their stored exponent and mantissa bits.  0 exponent bits: a sign-magnitude
 * integer. */
#define TSR_MX_ELEMENT(exponent, mantissa) ((uint32_t)(exponent) << 8 | (uint32_t)(mantissa))
#define TSR_MX_FP8_E4M3                    TSR_MX_ELEMENT(4, 3)
#define TSR_MX_FP8_E5M2                    TSR_MX_ELEMENT(5, 2)
#define TSR_MX_FP6_E3M2                    TSR_MX_ELEMENT(3, 2)
#define TSR_MX_FP6_E2M3                    TSR_MX_ELEMENT(2, 3)
#define TSR_MX_FP5_E3M1                    TSR_MX_ELEMENT(3, 1)
#define TSR_MX_FP5_E2M2                    TSR_MX_ELEMENT(2, 2)
#define TSR_MX_FP5_E1M3                    TSR_MX_ELEMENT(1, 3)
#define TSR_MX_FP4_E2M1                    TSR_MX_ELEMENT(2, 1)
#define TSR_MX_FP4_E1M2                    TSR_MX_ELEMENT(1, 2)
#define TSR_MX_FP3_E1M1                    TSR_MX_ELEMENT(1, 1)
#define TSR_MX_INT(bits)                   TSR_MX_ELEMENT(0, (bits)-1)

/* The scales of the inputs under `act: a8`.  BLOCKS: one per block of columns.  LLM: the product of
 * LLM.int8 (arXiv 2208.07339), with one scale per token, and elements from act8_threshold up in
 * F32.  LLM needs int of 8 bits, group 0 and the implicit zero point. */
#define TSR_ACT8_BLOCKS UINT64_C(0)
#define TSR_ACT8_LLM    UINT64_C(1)

/* It grows only at its end.  Other structs hold it as their last member or by pointer.  id lives as
 * long as the plugin or the host that wrote it. */
struct tsr_format {
    uint32_t    struct_size;
    uint32_t    dtype;                    /* float: TSR_F32, TSR_F16 or TSR_BF16        */
    const char *id;                       /* one of the ids above, or a plugin's own    */
    uint32_t    bits;                     /* of a code: 2..8                */
    uint32_t    zero;                     /* int/1: TSR_ZERO_*                          */
    uint64_t    group;                    /* columns that share a scale; 0: row         */
    uint32_t    scale_dtype;              /* scales, lut entries: F16, F32; fp8: F32, BF16 */
    uint32_t    reserved;                 /* zero                                       */
    uint32_t    element;                  /* mx, fp8: TSR_MX_*; table: of its scales, or 0 */
    uint32_t    scale_bits;               /* mx: 4..8; int/2: 0, 4, 6, 8; table: 0,6,8  */
    uint64_t    outliers;                 /* lut: per row, stored with the table        */
    uint64_t    act8;                     /* TSR_ACT8_*                                 */
    double      act8_threshold;           /* LLM: from this magnitude x stays F32    */
    float       table[TSR_TABLE_ENTRIES]; /* table/1 */
};

/* Writes a format into one of the host (tsr_quant_plan.format).  An assignment with = would write
 * past the end of the shorter struct of an older host. */
static inline void tsr_format_store(struct tsr_format *to, const struct tsr_format *from)
{
    uint32_t size = to->struct_size;
    memcpy(to, from, size < sizeof *from ? size : sizeof *from);
    to->struct_size = size;
}

/* Groups in a row of cols columns. */
static inline uint64_t tsr_format_groups(const struct tsr_format *f, uint64_t cols)
{
    if (f->group == 0 || f->group >= cols)
        return 1;
    return cols / f->group + (cols % f->group != 0);
}

/* Bytes of codes in one row of tessera.int/1, int/2, lut/1, mx/1, fp8/1 and table/1.  cols is below 2^58. */
static inline uint64_t tsr_format_int_code_bytes(const struct tsr_format *f, uint64_t cols)
{
    return (cols * f->bits + 7) / 8;
}

/* Bytes of meta in one row of tessera.int/1. */
static inline uint64_t tsr_format_int_meta_bytes(const struct tsr_format *f, uint64_t cols)
{
    uint64_t g = tsr_format_groups(f, cols);
    uint64_t n = g * (f->scale_dtype == TSR_F32 ? 4u : 2u);
    if (f->zero == TSR_ZERO_STORED)
        n += g;
    return (n + 3) / 4 * 4;
}

/* Bytes of the codes of scales, or of minimums, in a record of tessera.int/2 with scale_bits. */
static inline uint64_t tsr_format_affine_level_bytes(const struct tsr_format *f)
{
    uint64_t n = f->group ? TSR_AFFINE_SUPER / f->group : 1;
    return (n * f->scale_bits + 7) / 8;
}

/* Bytes of such a record. */
static inline uint64_t tsr_format_affine_record_bytes(const struct tsr_format *f)
{
    return 4 + 2 * tsr_format_affine_level_bytes(f);
}

/* Bytes of meta in one row of tessera.int/2. */
static inline uint64_t tsr_format_affine_meta_bytes(const struct tsr_format *f, uint64_t cols)
{
    uint64_t n;
    if (f->scale_bits)
        n = (cols / TSR_AFFINE_SUPER + (cols % TSR_AFFINE_SUPER != 0)) *
            tsr_format_affine_record_bytes(f);
    else
        n = 2 * tsr_format_groups(f, cols) * (f->scale_dtype == TSR_F32 ? 4u : 2u);
    return (n + 3) / 4 * 4;
}

/* Bytes of meta in one row of tessera.lut/1.  outliers is below 2^32. */
static inline uint64_t tsr_format_lut_meta_bytes(const struct tsr_format *f)
{
    uint64_t size = f->scale_dtype == TSR_F32 ? 4u : 2u;
    return (((UINT64_C(1) << f->bits) + f->outliers) * size + 3) / 4 * 4 + f->outliers * 4u;
}

/* Bytes of a record of tessera.table/1 with scale_bits. */
static inline uint64_t tsr_format_table_record_bytes(const struct tsr_format *f)
{
    uint64_t n = f->group ? TSR_TABLE_SUPER / f->group : 1;
    return 2 + (n * f->scale_bits + 7) / 8;
}

/* Bytes of meta in one row of tessera.table/1. */
static inline uint64_t tsr_format_table_meta_bytes(const struct tsr_format *f, uint64_t cols)
{
    uint64_t n = tsr_format_groups(f, cols);
    if (f->scale_bits == 0)
        n *= f->scale_dtype == TSR_F32 ? 4u : 2u;
    else if (f->element)
        n += 4;
    else
        n = (cols / TSR_TABLE_SUPER + (cols % TSR_TABLE_SUPER != 0)) *
            tsr_format_table_record_bytes(f);
    return (n + 3) / 4 * 4;
}

/* Bytes of meta in one row of tessera.mx/1. */
static inline uint64_t tsr_format_mx_meta_bytes(const struct tsr_format *f, uint64_t cols)
{
    return (tsr_format_groups(f, cols) + 3) / 4 * 4;
}

/* Bytes of meta in one row of tessera.fp8/1. */
static inline uint64_t tsr_format_fp8_meta_bytes(const struct tsr_format *f, uint64_t cols)
{
    return (tsr_format_groups(f, cols) * (f->scale_dtype == TSR_F32 ? 4u : 2u) + 3) / 4 * 4;
}

#ifdef __cplusplus
}
#endif
#endif
