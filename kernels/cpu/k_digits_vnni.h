/* k_digits_vnni.h - a tile of 8 tokens by three digits of 16 rows, with AVX-512 VNNI: fold() of k_digits_a8.c in
 * assembly, since gcc 12 stores the 24 sums to memory at each step.
 *
 * Digits are to base 2^7 with the sign of their weight, and activations have 128 added, so that none takes the sign of a
 * weight; sums begin with what that adds, negative. They are exact, and so is the integer of a run.
 *
 * zmm0 to 23 are the sums: of token t by digit d in 3 t + d. zmm24 to 26 have the digits of a step, zmm27 what a token
 * has; at the end zmm24 has the scales of the rows, zmm25 2^14 and zmm26 the low 14 bits. */
#ifndef TSR_K_DIGITS_VNNI_H
#define TSR_K_DIGITS_VNNI_H

#include <stdbool.h>

#include "simd_bytes.h"

#define SEVENS_STEP 192 /* bytes of 16 rows of four columns */

/* Digits to base 2^7 by magnitude. */
struct sevens {
    uint8_t b[3][128];
};

/* Of a weight's digits to base 2^8; false if a magnitude has more than 21 bits. */
static bool sevens_of(const uint8_t *table8, struct sevens *s)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < 128; i++) {
        const uint32_t v =
            table8[i] | (uint32_t)table8[128 + i] << 8 | (uint32_t)table8[256 + i] << 16;
        for (uint32_t d = 0; d < 3; d++)
            s->b[d][i] = (uint8_t)(v >> 7 * d & 127u);
        all |= v;
    }
    return all < 1u << 21;
}

/* The digits of a step, and what its 128s add to the sums. */
static inline void sevens_step(const struct sevens *s, const int permute, i16v codes, uint8_t *dst,
                               i16v base[3])
{
    const i16v more = vi_set1((int32_t)0x80808080u);
    UNROLL
    for (int d = 0; d < 3; d++) {
        i16v digit = vb_signed(vb_lookup128(s->b[d], codes, 0xff, permute), codes);
        vb_store(dst + 64 * d, digit);
        base[d] = vi_dot4(base[d], more, digit);
    }
}

/* Four columns of 8 tokens with 128 added, `steps` times. */
static inline void sevens_activations(uint8_t *dst, const int8_t *q, uint64_t steps)
{
    const uint64_t bytes = 32 * steps;
    for (uint64_t i = 0; i < bytes; i++)
        dst[i] = (uint8_t)(q[i] ^ -128);
}

#define LINE(x) x "\n\t"
/* X(four times the token, 128 times it, its sums) */
#define EACH_TOKEN(X)                                                                              \
    X(0, 0, 0, 1, 2)                                                                               \
    X(4, 128, 3, 4, 5)                                                                             \
    X(8, 256, 6, 7, 8)                                                                             \
    X(12, 384, 9, 10, 11)                                                                          \
    X(16, 512, 12, 13, 14)                                                                         \
    X(20, 640, 15, 16, 17)                                                                         \
    X(24, 768, 18, 19, 20)                                                                         \
    X(28, 896, 21, 22, 23)

#define BEGIN(t, at, a, b, c)                                                                      \
    LINE("vmovdqa64 %%zmm24, %%zmm" #a)                                                            \
    LINE("vmovdqa64 %%zmm25, %%zmm" #b)                                                            \
    LINE("vmovdqa64 %%zmm26, %%zmm" #c)
#define DOTS(t, at, a, b, c)                                                                       \
    LINE("vpbroadcastd " #t "(%[q]), %%zmm27")                                                     \
    LINE("vpdpbusd %%zmm24, %%zmm27, %%zmm" #a)                                                    \
    LINE("vpdpbusd %%zmm25, %%zmm27, %%zmm" #b)                                                    \
    LINE("vpdpbusd %%zmm26, %%zmm27, %%zmm" #c)
/* c0 + 2^7 c1 + 2^14 c2, rounded once: sums of a digit are below 2^21 (127 * 127 * 128). Then the chain acc. */
#define GIVE(t, at, a, b, c)                                                                       \
    LINE("vpslld $7, %%zmm" #b ", %%zmm" #b)                                                       \
    LINE("vpaddd %%zmm" #a ", %%zmm" #b ", %%zmm" #b)                                              \
    LINE("vpsrad $14, %%zmm" #b ", %%zmm" #a)                                                      \
    LINE("vpaddd %%zmm" #a ", %%zmm" #c ", %%zmm" #c)                                              \
    LINE("vpandd %%zmm26, %%zmm" #b ", %%zmm" #b)                                                  \
    LINE("vcvtdq2ps %%zmm" #c ", %%zmm" #c)                                                        \
    LINE("vcvtdq2ps %%zmm" #b ", %%zmm" #b)                                                        \
    LINE("vfmadd213ps %%zmm" #b ", %%zmm25, %%zmm" #c)                                             \
    LINE("vmulps " #t "(%[sa])%{1to16%}, %%zmm24, %%zmm27")                                        \
    LINE("vfmadd213ps " #at "(%[acc]), %%zmm27, %%zmm" #c)                                         \
    LINE("vmovups %%zmm" #c ", " #at "(%[acc])")

/* acc[8][PANEL] with `steps` steps, at least one. digits: [step][3][64]; q: [step][8][4], of sevens_activations(); base:
 * of sevens_step(), negative; sw: the scales of the rows; sa: those of the tokens. */
static inline void sevens_tile(const uint8_t *digits, const uint8_t *q, uint64_t steps,
                               const i16v base[3], const v16 *sw, const float *sa, float *acc)
{
    static const struct {
        float   up;
        int32_t low;
    } of = { 0x1p14f, 0x3fff };
    __asm__ volatile(
        LINE("vmovdqu64 (%[base]), %%zmm24") LINE("vmovdqu64 64(%[base]), %%zmm25")
            LINE("vmovdqu64 128(%[base]), %%zmm26") EACH_TOKEN(BEGIN) LINE("1:")
                LINE("vmovdqu64 (%[digits]), %%zmm24") LINE("vmovdqu64 64(%[digits]), %%zmm25")
                    LINE("vmovdqu64 128(%[digits]), %%zmm26") EACH_TOKEN(DOTS)
                        LINE("addq $192, %[digits]") LINE("addq $32, %[q]") LINE("decq %[steps]")
                            LINE("jnz 1b") LINE("vmovups (%[sw]), %%zmm24")
                                LINE("vbroadcastss (%[of]), %%zmm25")
                                    LINE("vpbroadcastd 4(%[of]), %%zmm26") EACH_TOKEN(GIVE)
        : [digits] "+r"(digits), [q] "+r"(q), [steps] "+r"(steps)
        : [base] "r"(base), [sw] "r"(sw), [sa] "r"(sa), [acc] "r"(acc), [of] "r"(&of)
        : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
          "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18",
          "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27");
}

#undef LINE
#undef EACH_TOKEN
#undef BEGIN
#undef DOTS
#undef GIVE

#endif
