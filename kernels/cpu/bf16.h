/* bf16.h - `numerics: fast` on CPUs with AVX512-BF16: LINEAR with BF16 weights through vdpbf16ps,
 * an instruction without a portable twin. */
#ifndef TSR_CPU_BF16_H
#define TSR_CPU_BF16_H

#include "kernels.h"
#include "tessera/plugin.h"

struct tsr_cpu;

#define BF16_TOKENS 192u /* most tokens per call */

struct tsr_cpu_bf16_kernels {
    uint32_t tile; /* tokens in a tile */
    uint32_t reserved;
    /* m tokens (at most tile), rounded to BF16, as pairs of columns [ceil(cols/2)][m]. */
    void (*pack)(uint32_t *dst, const float *x, uint64_t ldx, uint64_t m, uint64_t cols);
    /* As linear in kernels.h, on W_BF16; pairs: tiles as pack() makes them. */
    void (*linear)(const struct tsr_cpu_linear *a, const uint32_t *pairs, uint64_t panel,
                   uint64_t np, uint64_t t0, uint64_t t1);
    /* rounds * 16 lanes * 2 multiply-adds */
    float (*probe)(uint64_t rounds);
};
extern const struct tsr_cpu_bf16_kernels tsr_cpu_bf16;

/* From now on the instance is fast.  TSR_E_CONFIG with a sentence where the CPU, or TSR_ISA,
 * does not allow it. */
tsr_status tsr_cpu_set_fast(struct tsr_cpu *c, struct tsr_err *err);

#endif
