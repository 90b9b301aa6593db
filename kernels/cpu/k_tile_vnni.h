/* k_tile_vnni.h - a whole tile of tokens through a part of a panel, with AVX-512 VNNI: the loops of tile_part() in
 * k_tiles_a8.h in assembly, in the same order. gcc 12 moves the 28 sums between registers and to memory, which costs
 * a tenth of the time.
 *
 * zmm0 to 13 are the integer sums of a run, zmm14 to 27 those in F32: of token t by 16 rows 2 t, by the other 16
 * 2 t + 1. zmm28 and 29 have what 16 rows each share, zmm30 what a token has. */
#ifndef TSR_K_TILE_VNNI_H
#define TSR_K_TILE_VNNI_H

#include <stddef.h>

#include "k_part.h"
#include "k_tile_a8.h"

#define LINE(x) x "\n\t"
/* X(four times the token, 128 times it, its integer sums, its F32 sums) */
#define EACH_TOKEN(X)                                                                              \
    X(0, 0, 0, 1, 14, 15)                                                                          \
    X(4, 128, 2, 3, 16, 17)                                                                        \
    X(8, 256, 4, 5, 18, 19)                                                                        \
    X(12, 384, 6, 7, 20, 21)                                                                       \
    X(16, 512, 8, 9, 22, 23)                                                                       \
    X(20, 640, 10, 11, 24, 25)                                                                     \
    X(24, 768, 12, 13, 26, 27)
#define TOKEN_BYTES "28" /* of a number of each token */

#define TO_F32(c)      LINE("vcvtdq2ps %%zmm" #c ", %%zmm" #c)
#define FMA(a, b, sum) LINE("vfmadd231ps %%zmm" #a ", %%zmm" #b ", %%zmm" #sum) /* sum += a * b */

/* How the sums of a run begin: 0 of affine weights, else those of the activations, */
#define INT_ZERO(t, at, c, d, f, g)                                                                \
    LINE("vpxor %%xmm" #c ", %%xmm" #c ", %%xmm" #c)                                               \
    LINE("vpxor %%xmm" #d ", %%xmm" #d ", %%xmm" #d)
#define INT_SUM(t, at, c, d, f, g)                                                                 \
    LINE("vpbroadcastd " #t "(%[sums]), %%zmm" #c) LINE("vpbroadcastd " #t "(%[sums]), %%zmm" #d)
/* times the zero points, if the weight has some. */
#define ZEROS                                                                                      \
    LINE("vmovdqa64 %c[more](%[scale]), %%zmm28")                                                  \
    LINE("vmovdqa64 64+%c[more](%[scale]), %%zmm29")
#define INT_ZEROS(t, at, c, d, f, g)                                                               \
    LINE("vpbroadcastd " #t "(%[sums]), %%zmm30")                                                  \
    LINE("vpmaddwd %%zmm30, %%zmm28, %%zmm" #c) LINE("vpmaddwd %%zmm30, %%zmm29, %%zmm" #d)

/* The products of a run. */
#define DOTS(t, at, c, d, f, g)                                                                    \
    LINE("vpbroadcastd " #t "(%[q]), %%zmm30")                                                     \
    LINE("vpdpbusd %%zmm30, %%zmm28, %%zmm" #c) LINE("vpdpbusd %%zmm30, %%zmm29, %%zmm" #d)
#define PRODUCTS                                                                                   \
    LINE("movl %c[k1](%[run]), %k[left]")                                                          \
    LINE("subl %c[k0](%[run]), %k[left]")                                                          \
    LINE("addl $3, %k[left]")                                                                      \
    LINE("shrl $2, %k[left]")                                                                      \
    LINE("2:")                                                                                     \
    LINE("vmovdqu64 (%[codes]), %%zmm28")                                                          \
    LINE("vmovdqu64 64(%[codes]), %%zmm29")                                                        \
    LINE("prefetcht1 (%[ahead])")                                                                  \
    EACH_TOKEN(DOTS)                                                                               \
    LINE("addq $" TOKEN_BYTES ", %[q]")                                                            \
    LINE("subq $-128, %[codes]")                                                                   \
    LINE("addq %[stride], %[ahead]")                                                               \
    LINE("decl %k[left]")                                                                          \
    LINE("jnz 2b")
#define SCALES LINE("vmovaps (%[scale]), %%zmm28") LINE("vmovaps 64(%[scale]), %%zmm29")
#define NEXT_RUN                                                                                   \
    LINE("subq $-128, %[scale]")                                                                   \
    LINE("addq $" TOKEN_BYTES ", %[sums]")                                                         \
    LINE("addq %[size], %[run]")                                                                   \
    LINE("cmpq %[end], %[run]")                                                                    \
    LINE("jne 1b")

/* The chain of plain weights: from and to `acc`, and a run. */
#define LOAD(t, at, c, d, f, g)                                                                    \
    LINE("vmovaps " #at "(%[acc]), %%zmm" #f) LINE("vmovaps 64+" #at "(%[acc]), %%zmm" #g)
#define STORE(t, at, c, d, f, g)                                                                   \
    LINE("vmovaps %%zmm" #f ", " #at "(%[acc])") LINE("vmovaps %%zmm" #g ", 64+" #at "(%[acc])")
#define FOLD(t, at, c, d, f, g)                                                                    \
    LINE("vbroadcastss " #t "(%[sa], %[left]), %%zmm30")                                           \
    LINE("vmulps %%zmm28, %%zmm30, %%zmm31")                                                       \
    LINE("vmulps %%zmm29, %%zmm30, %%zmm30")                                                       \
    TO_F32(c) FMA(31, c, f) TO_F32(d) FMA(30, d, g)
#define PLAIN(begin)                                                                               \
    EACH_TOKEN(LOAD)                                                                               \
    LINE("1:")                                                                                     \
    begin PRODUCTS LINE("imull $" TOKEN_BYTES ", %c[block](%[run]), %k[left]") SCALES EACH_TOKEN(  \
        FOLD)                                                                                      \
    NEXT_RUN EACH_TOKEN(STORE)

/* Sums of a block of affine weights: from 0, a run, and how they enter the chain `acc`. */
#define F32_ZERO(t, at, c, d, f, g)                                                                \
    LINE("vpxord %%zmm" #f ", %%zmm" #f ", %%zmm" #f)                                              \
    LINE("vpxord %%zmm" #g ", %%zmm" #g ", %%zmm" #g)
#define ADD(t, at, c, d, f, g) TO_F32(c) FMA(28, c, f) TO_F32(d) FMA(29, d, g)
#define MINIMUMS                                                                                   \
    LINE("vmovaps %c[more](%[scale]), %%zmm28")                                                    \
    LINE("vmovaps 64+%c[more](%[scale]), %%zmm29")
#define ADD_MINIMUM(t, at, c, d, f, g)                                                             \
    LINE("vbroadcastss " #t "(%[sums]), %%zmm30") FMA(30, 28, f) FMA(30, 29, g)
#define FINISH(t, at, c, d, f, g)                                                                  \
    LINE("vbroadcastss " #t "(%[sa]), %%zmm30")                                                    \
    LINE("vfmadd213ps " #at "(%[acc]), %%zmm30, %%zmm" #f)                                         \
    LINE("vfmadd213ps 64+" #at "(%[acc]), %%zmm30, %%zmm" #g)
#define AFFINE                                                                                     \
    EACH_TOKEN(F32_ZERO)                                                                           \
    LINE("1:")                                                                                     \
    EACH_TOKEN(INT_ZERO) PRODUCTS SCALES EACH_TOKEN(ADD)                                           \
    MINIMUMS                             EACH_TOKEN(ADD_MINIMUM)                                   \
    NEXT_RUN                                                                                       \
    EACH_TOKEN(FINISH) EACH_TOKEN(STORE)

/* The runs from `run` up to `end`; `more`: from a scale to the minimum or zero point of its run. */
#define RUNS(code)                                                                                 \
    __asm__ volatile(code                                                                          \
                     : [codes] "+r"(codes), [q] "+r"(q), [sums] "+r"(sums), [scale] "+r"(scale),   \
                       [run] "+r"(run), [ahead] "+r"(ahead), [left] "=&r"(left)                    \
                     : [sa] "r"(sa), [acc] "r"(acc), [stride] "r"(tile->stride), [end] "r"(end),   \
                       [size] "i"(sizeof *run), [k0] "i"(offsetof(struct tsr_cpu_run, k0)),        \
                       [k1] "i"(offsetof(struct tsr_cpu_run, k1)),                                 \
                       [block] "i"(offsetof(struct tsr_cpu_run, block)),                           \
                       [more] "i"(offsetof(struct part, minimum) - offsetof(struct part, scale))   \
                     : "memory", "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6",     \
                       "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12", "zmm13", "zmm14",        \
                       "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22",     \
                       "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30",     \
                       "zmm31")

/* acc[ISA_TOKENS_MANY][PANEL] with the runs of a part. */
static __attribute__((noinline)) void tile_vnni(const struct tsr_cpu_weight *w,
                                                const struct part *p, const struct part_tile *tile,
                                                float *acc)
{
    const uint8_t            *codes = p->codes, *ahead = tile->ahead;
    const int8_t             *q = tile->q;
    const int32_t            *sums = tile->sums + p->run * ISA_TOKENS_MANY;
    const float              *scale = p->scale[0], *sa = tile->sa;
    const struct tsr_cpu_run *run = &w->runs[p->run], *const last = &w->runs[p->end], *end = last;
    uint64_t left;
    _Static_assert(ISA_TOKENS_MANY == 7 && PANEL == 32, "the registers of the sums");
    if (!w->affine) {
        if (w->zeros)
            RUNS(PLAIN(ZEROS EACH_TOKEN(INT_ZEROS)));
        else
            RUNS(PLAIN(EACH_TOKEN(INT_SUM)));
        return;
    }
    while (run < last) { /* a block of activations */
        end = run + 1;
        while (end < last && end->block == run->block)
            end++;
        sa = tile->sa + run->block * ISA_TOKENS_MANY;
        RUNS(AFFINE);
    }
}

#undef LINE
#undef EACH_TOKEN
#undef TOKEN_BYTES
#undef TO_F32
#undef FMA
#undef INT_ZERO
#undef INT_SUM
#undef ZEROS
#undef INT_ZEROS
#undef DOTS
#undef PRODUCTS
#undef SCALES
#undef NEXT_RUN
#undef LOAD
#undef STORE
#undef FOLD
#undef PLAIN
#undef F32_ZERO
#undef ADD
#undef MINIMUMS
#undef ADD_MINIMUM
#undef FINISH
#undef AFFINE
#undef RUNS

#endif
