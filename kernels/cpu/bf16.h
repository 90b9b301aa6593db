/* bf16.h - `numerics: fast` on CPUs with AVX512-BF16: LINEAR with BF16 weights and SYRK through
 * vdpbf16ps, an instruction without a portable twin. */
#ifndef TSR_CPU_BF16_H
#define TSR_CPU_BF16_H

#include "kernels.h"
#include "tessera/plugin.h"

struct tsr_cpu;

#define BF16_TOKENS 192u /* most tokens per call */
#define BF16_ROWS   256u /* rows of X in one sum of SYRK: a panel of their pairs stays in L1 */
#define BF16_DOWN   8u   /* rows of a tile of C; a divisor of BF16_ACROSS */
#define BF16_ACROSS 48u  /* columns of a tile of C, and of a panel */

struct tsr_cpu_bf16_kernels {
    uint32_t tile; /* tokens in a tile */
    uint32_t reserved;
    /* m tokens (at most tile), rounded to BF16, as pairs of columns [ceil(cols/2)][m]. */
    void (*pack)(uint32_t *dst, const float *x, uint64_t ldx, uint64_t m, uint64_t cols);
    /* As linear in kernels.h, on W_BF16; pairs: tiles as pack() makes them. */
    void (*linear)(const struct tsr_cpu_linear *a, const uint32_t *pairs, uint64_t panel,
                   uint64_t np, uint64_t t0, uint64_t t1);
    /* SYRK: `rows` rows of X and `cols` columns, at most BF16_ACROSS, rounded to BF16, as pairs of
     * rows [ceil(rows/2)][BF16_ACROSS]; zeros past the end. */
    void (*pair_rows)(uint32_t *dst, const float *x, uint64_t ldx, uint64_t rows, uint64_t cols);
    /* C [BF16_DOWN, BF16_ACROSS] = FMA(alpha, sum, C), the sum over n pairs from +0: a and b are
     * panels, a from some column of a panel on. */
    void (*gram)(const uint32_t *a, const uint32_t *b, uint64_t n, float alpha, float *c,
                 uint64_t ldc);
    /* rounds * 16 lanes * 2 multiply-adds */
    float (*probe)(uint64_t rounds);
};
extern const struct tsr_cpu_bf16_kernels tsr_cpu_bf16;
void tsr_k_bf16_pair_rows(uint32_t *dst, const float *x, uint64_t ldx, uint64_t rows,
                          uint64_t cols);
void tsr_k_bf16_gram(const uint32_t *a, const uint32_t *b, uint64_t n, float alpha, float *c,
                     uint64_t ldc);

/* From now on the instance is fast.  TSR_E_CONFIG with a sentence where the CPU, or TSR_ISA,
 * does not allow it. */
tsr_status tsr_cpu_set_fast(struct tsr_cpu *c, struct tsr_err *err);

#endif
