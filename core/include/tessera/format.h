/* tessera/format.h - packed weight layouts: the contract between quantizers
 * and backends.
 *
 * A layout is an id plus the parameters below.  A quantizer names the layout
 * that it writes, always the plain row-major one; a backend names what it
 * reads and may repack at load.  Every row is self-contained, so rows can be
 * produced, split and moved independently.  docs/formats/ has a page for each
 * id, kernels/formats/ a reference decoder and vectors.
 *
 * tessera.float/1   cols elements of `dtype`; no meta.
 * tessera.int/1     w[r][k] = (code[r][k] - zero[r][g]) * scale[r][g], g = k / group.
 *                   codes: unsigned, `bits` wide, one little-endian bit stream per
 *                   row (bit 0 of byte 0 first), row padded with zero bits to a byte.
 *                   meta per row: G = ceil(cols/group) scales of scale_dtype, then,
 *                   if zero == TSR_ZERO_STORED, G zero points of one byte; padded
 *                   with zero bytes to a multiple of 4.  Else zero = 2^(bits-1).
 *                   group 0 means the whole row.  The product is rounded to F32 once.
 */
#ifndef TSR_FORMAT_H
#define TSR_FORMAT_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_FORMAT_FLOAT "tessera.float/1"
#define TSR_FORMAT_INT   "tessera.int/1"

#define TSR_ZERO_MID    0u /* implicit zero point 2^(bits-1)               */
#define TSR_ZERO_STORED 1u /* one byte per group behind the scales          */

struct tsr_format {
    uint32_t    struct_size;
    uint32_t    dtype;       /* float: TSR_F32, TSR_F16 or TSR_BF16        */
    const char *id;          /* one of the ids above, or a plugin's own    */
    uint32_t    bits;        /* int: 2..8                                  */
    uint32_t    zero;        /* int: TSR_ZERO_*                            */
    uint64_t    group;       /* int: columns that share a scale; 0: row    */
    uint32_t    scale_dtype; /* int: TSR_F16 or TSR_F32                    */
    uint32_t    reserved;    /* zero                                       */
};

/* Groups in a row of cols columns. */
static inline uint64_t tsr_format_groups(const struct tsr_format *f, uint64_t cols)
{
    if (f->group == 0 || f->group >= cols)
        return 1;
    return cols / f->group + (cols % f->group != 0);
}

/* Bytes of codes in one row of tessera.int/1.  cols is below 2^58. */
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

#ifdef __cplusplus
}
#endif
#endif
