/* extra.h - table-coded weights (W_TAB: tessera.lut/1 and fp4_e2m1), small floats (W_FPX: the MX elements
 * that int8 does not hold) and LLM.int8: their data in addition to codes, and their kernels. The other MX
 * elements are integers of at most 127 times a power of two and are stored as integers. Those of W_FPX are
 * larger integers, whose base-256 digits multiply int8 activations. docs/formats/cpu-panels.md draws the
 * layouts.
 */
#ifndef TSR_CPU_EXTRA_H
#define TSR_CPU_EXTRA_H

#include <stdint.h>

struct tsr_cpu_weight;

#define TABLE_STEP   32u    /* columns of nibbles that are stored together */
#define DIGITS_MAX   4u     /* fp8_e5m2: 57344 * 2^16 */
#define LLM_COLS_MAX 65536u /* 255 * 127 times as many fit an int32 */

struct tsr_cpu_extra {
    /* W_TAB */
    uint32_t       byte_codes; /* a code takes a byte, else a nibble */
    uint32_t       shared;     /* one table for all rows, and BF16 scales by group */
    uint64_t       entries;    /* of a table: 16 or 256 */
    const float   *table;  /* [row][entries], or [entries] when shared: the weight over its scale */
    const uint8_t *table8; /* value + 128.  nibbles: [panel][8][4 rows][16], or [4][16] when shared;
                            * bytes: [row][256] */
    /* outliers: rows of `n` columns, ascending */
    uint64_t        outliers;
    const uint32_t *column; /* [row][outliers] */
    const float    *value;  /* [row][outliers] */
    const float    *delta;  /* [row][outliers]: value minus its contribution to the integer sum */
    const uint32_t *first;  /* [row][SEGMENTS + 1]: the outliers of a segment */
    const uint8_t  *where;  /* [row][outliers]: the segment of each */
    /* W_FPX; table8 is [digits][128] there: of a magnitude in the upper bits of seven, by digits */
    uint32_t     ebits, mbits;
    uint32_t     stored; /* scales are F32, else BF16 */
    uint32_t     digits; /* to base 256, of the largest number in units; at most DIGITS_MAX */
    const float *unit;   /* [row]: of an element, NaN where the row holds a code that is not a
                        * number */
    /* int of 8 bits */
    uint32_t llm;
    float    threshold; /* 0: no outliers */
};

/* One LINEAR under a8. */
struct tsr_cpu_linear8 {
    const struct tsr_cpu_weight *w;
    uint64_t                     tokens;
    const int8_t                *q; /* per tile of `tile8` tokens: [ldq/4][tokens of it][4] */
    uint64_t                     ldq;
    const float                 *sa;   /* [nblocks][tokens]; LLM: [tokens], NaN: x is not finite */
    const int32_t               *sums; /* [nruns][tokens]: -128 * sum of q; LLM: [tokens] */
    const float *xt; /* per TOKENS_MAX tokens: [k][tokens of it]; NULL without outliers */
    /* LLM: columns of each token's outliers, ascending, [tokens][cols]; and how many */
    const uint32_t *found;
    const uint64_t *nfound;
    const float    *x;
    uint64_t        ldx;
    const float    *bias;
    float          *out;
    uint64_t        ldo;
    int             permute; /* the CPU has AVX512-VBMI: one instruction looks up 128 bytes */
};

struct tsr_cpu_extra_kernels {
    /* columns [k0,k1) of a panel of W_TAB or W_FPX as F32, [k][PANEL]; k0 on a step */
    void (*widen)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                  float *dst);
    /* one token: codes with their padding, one scale per block and, of W_TAB, one sum per run, `stride`
     * apart */
    void (*table_prepare)(const struct tsr_cpu_weight *w, const float *x, int8_t *q, uint64_t ldq,
                          float *sa, int32_t *sums, uint64_t stride);
    /* tokens [t0,t1) of a panel; t0 is a multiple of the tile, at most TOKENS_MAX */
    void (*table_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1);
    /* the same of W_FPX */
    void (*digits_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1);
    /* one token: codes, scale, sum, and the columns of its outliers; returns how many */
    uint64_t (*llm_prepare)(const float *x, uint64_t cols, float threshold, int8_t *q, uint64_t ldq,
                            float *sa, int32_t *sum, uint32_t *found);
    void (*llm_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1);
};

extern const struct tsr_cpu_extra_kernels tsr_cpu_extra_scalar;
extern const struct tsr_cpu_extra_kernels tsr_cpu_extra_avx2;
extern const struct tsr_cpu_extra_kernels tsr_cpu_extra_avx512;
extern const struct tsr_cpu_extra_kernels tsr_cpu_extra_neon;

#endif
