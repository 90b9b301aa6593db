/* exact.h - LINEAR by docs/decisions/numerics.md, exact to the bit, one output at a time: the required
 * result of every instruction set and every device. Readability comes before speed: codes are read bit by
 * bit, without a packed layout. The vectors of kernels/cpu and the blocks of kernels/cuda do these
 * additions in this order.
 */
#ifndef TSR_REFERENCE_EXACT_H
#define TSR_REFERENCE_EXACT_H

#include "tessera/format.h"

/* Columns of a segment: a row has at most eight segments, each with a separate sum. */
static inline uint64_t tsr_ref_segment(uint64_t cols)
{
    return 32 * ((cols + 255) / 256);
}
/* The sum of the eight, and the +0 after it. */
float tsr_ref_tree(const float s[8]);

/* act f32 and, over rounded activations, a16: w [cols] as numbers. */
float tsr_ref_exact_f32(const float *x, const float *w, uint64_t cols);
/* What a16 makes of an activation. */
float tsr_ref_round_bf16(float x);

/* n numbers as codes q of -127 to 127 times the returned scale, largest magnitude over 127; 0 for zeros,
 * NaN where one is not finite. */
float tsr_ref_round_i8(const float *x, uint64_t n, int32_t *q);

/* A packed row for a8: w[k] = t[k] * scale[k] + minimum[k], columns of a group summed as integers; and the
 * addends of a table's outliers. */
struct tsr_ref_row {
    int64_t  *t;
    float    *scale;
    uint64_t *group;
    float    *minimum;
    int       minimums; /* int/2: they count */
    float    *extra;    /* 0 for a column that is not an outlier */
    uint8_t  *outlier;  /* 1 where there is one */
    int       outliers;
};
/* int/1, int/2, lut, table and mx, plain layout.  TSR_E_NOMEM; TSR_E_UNSUPPORTED for another format. */
tsr_status tsr_ref_row_make(struct tsr_ref_row *row, const struct tsr_format *f, uint64_t cols,
                            const void *codes, const void *meta);
void       tsr_ref_row_free(struct tsr_ref_row *row);

/* act a8, without a bias. */
float tsr_ref_exact_a8(const float *x, const struct tsr_ref_row *w, uint64_t cols);
/* act a8 of a format with TSR_ACT8_LLM; dense [cols]: the row as numbers. */
float tsr_ref_exact_llm8(const float *x, const struct tsr_format *f, const void *codes,
                         const void *meta, const float *dense, uint64_t cols);

#endif
