/* k_tile_words.h - a whole tile of tokens through a part of a panel on AVX2, for codes of up to six bits. Products
 * add up in words as long as those can hold them, and then in lanes: two instructions for 32 products, where
 * vi_dot4_low() has three. The sums are those of tile_part() in k_tiles_a8.h, in the same order. */
#ifndef TSR_K_TILE_WORDS_H
#define TSR_K_TILE_WORDS_H

#include <stddef.h>

#include "k_tile_a8.h"
#include "k_tile_lines.h"

/* Fours of columns whose products a word can add: 254 times the largest byte for each. */
INLINE uint64_t words_fours(const struct tsr_cpu_weight *w)
{
    static const uint8_t most[] = { [W_I6] = 63, [W_I5] = 31, [W_I4] = 15, [W_I3] = 7, [W_I2] = 3 };
    const uint32_t byte = w->mapped && cpu_looked_up(w->layout) ? w->low_byte : most[w->layout];
    return byte ? 32767 / (254 * byte) : 32767;
}

/* `left` fours of columns, at least one. */
#define FOUR                                                                                       \
    LINE("vmovdqa (%[codes]), %%ymm12")                                                            \
    LINE("vmovdqa 32(%[codes]), %%ymm13")                                                          \
    LINE("prefetcht1 (%[ahead])")
#define FIRST(t, at, row, a, b)                                                                    \
    LINE("vpbroadcastd " #t "(%[q]), %%ymm14")                                                     \
    LINE("vpmaddubsw %%ymm14, %%ymm12, %%ymm" #a)                                                  \
    LINE("vpmaddubsw %%ymm14, %%ymm13, %%ymm" #b)
#define MORE(t, at, row, a, b)                                                                     \
    LINE("vpbroadcastd " #t "(%[q]), %%ymm14")                                                     \
    LINE("vpmaddubsw %%ymm14, %%ymm12, %%ymm15")                                                   \
    LINE("vpmaddubsw %%ymm14, %%ymm13, %%ymm14")                                                   \
    LINE("vpaddw %%ymm15, %%ymm" #a ", %%ymm" #a)                                                  \
    LINE("vpaddw %%ymm14, %%ymm" #b ", %%ymm" #b)
#define NEXT                                                                                       \
    LINE("addq $" TOKEN_BYTES ", %[q]")                                                            \
    LINE("subq $-128, %[codes]")                                                                   \
    LINE("addq %[stride], %[ahead]")                                                               \
    LINE("decq %[left]")
#define WORDS                                                                                      \
    FOUR EACH_TOKEN(FIRST)                                                                         \
    NEXT LINE("jz 2f") LINE("1:") FOUR EACH_TOKEN(MORE)                                            \
    NEXT                               LINE("jnz 1b") LINE("2:")

/* Words to lanes, plus those in memory, or the sums of the activations. */
#define TO_LANES(a, b)                                                                             \
    LINE("vpmaddwd (%[one]), %%ymm" #a ", %%ymm" #a)                                               \
    LINE("vpmaddwd (%[one]), %%ymm" #b ", %%ymm" #b)
#define ADD_SUMS(t, at, a, b)                                                                      \
    LINE("vpbroadcastd " #t "(%[sums]), %%ymm14")                                                  \
    LINE("vpaddd %%ymm14, %%ymm" #a ", %%ymm" #a)                                                  \
    LINE("vpaddd %%ymm14, %%ymm" #b ", %%ymm" #b)
#define FLUSH(t, at, row, a, b)                                                                    \
    TO_LANES(a, b)                                                                                 \
    ADD_LANES(t, at, a, b)                                                                         \
    LINE("vmovdqa %%ymm" #a ", " #at "(%[lanes])")                                                 \
    LINE("vmovdqa %%ymm" #b ", 32+" #at "(%[lanes])")
#define PLAIN_LANES(t, at, row, a, b) TO_LANES(a, b) ADD_LANES(t, at, a, b) CHAIN(t, row, a, b)
#define PLAIN_SUMS(t, at, row, a, b)  TO_LANES(a, b) ADD_SUMS(t, at, a, b) CHAIN(t, row, a, b)

/* A run of affine weights enters the sums of its block. */
#define BLOCK_SUM(t, at, a, b)                                                                     \
    TO_F32(a, b)                                                                                   \
    LINE("vbroadcastss " #t "(%[sums]), %%ymm14")                                                  \
    LINE("vfmadd213ps " #at "(%[block]), %%ymm12, %%ymm" #a)                                       \
    LINE("vfmadd213ps 32+" #at "(%[block]), %%ymm13, %%ymm" #b)                                    \
    LINE("vfmadd231ps %%ymm14, %%ymm15, %%ymm" #a)                                                 \
    LINE("vfmadd231ps 32+%c[minimum](%[scale]), %%ymm14, %%ymm" #b)                                \
    LINE("vmovaps %%ymm" #a ", " #at "(%[block])")                                                 \
    LINE("vmovaps %%ymm" #b ", 32+" #at "(%[block])")
#define AFFINE_LANES(t, at, row, a, b) TO_LANES(a, b) ADD_LANES(t, at, a, b) BLOCK_SUM(t, at, a, b)
#define AFFINE_WORDS(t, at, row, a, b) TO_LANES(a, b) BLOCK_SUM(t, at, a, b)

/* A run of plain weights of four fours whose products do not fit one sum of words: ymm0 to 7 keep the codes of 16 rows
 * by 16 columns, tokens pass through ymm8 to 13, and ymm15 has ones. */
#define AHEAD LINE("prefetcht1 (%[ahead])") LINE("addq %[stride], %[ahead]")
#define CODES                                                                                      \
    LINE("vmovdqa (%[codes]), %%ymm0")                                                             \
    LINE("vmovdqa 32(%[codes]), %%ymm1")                                                           \
    LINE("vmovdqa 128(%[codes]), %%ymm2")                                                          \
    LINE("vmovdqa 160(%[codes]), %%ymm3")                                                          \
    LINE("vmovdqa 256(%[codes]), %%ymm4")                                                          \
    LINE("vmovdqa 288(%[codes]), %%ymm5")                                                          \
    LINE("vmovdqa 384(%[codes]), %%ymm6")                                                          \
    LINE("vmovdqa 416(%[codes]), %%ymm7")                                                          \
    LINE("vmovdqa (%[one]), %%ymm15")                                                              \
    LINE("addq $512, %[codes]")                                                                    \
    AHEAD AHEAD AHEAD AHEAD
#define DOTS(at, t, c, d, a, b)                                                                    \
    LINE("vpbroadcastd " #at "*" TOKEN_BYTES "+" #t "(%[q]), %%ymm" #b)                            \
    LINE("vpmaddubsw %%ymm" #b ", %%ymm" #c ", %%ymm" #a)                                          \
    LINE("vpmaddubsw %%ymm" #b ", %%ymm" #d ", %%ymm" #b)
#define PASS(t, at, row, a, b)                                                                     \
    DOTS(0, t, 0, 1, 9, 8)                                                                         \
    DOTS(1, t, 2, 3, 11, 10)                                                                       \
    DOTS(2, t, 4, 5, 13, 12)                                                                       \
    ADD("vpaddw", 11, 10, 9, 8)                                                                    \
    DOTS(3, t, 6, 7, 11, 10)                                                                       \
    ADD("vpmaddwd", 15, 15, 9, 8)                                                                  \
    ADD("vpaddw", 11, 10, 13, 12)                                                                  \
    LINE("vpbroadcastd " #t "(%[sums]), %%ymm10")                                                  \
    ADD("vpmaddwd", 15, 15, 13, 12)                                                                \
    ADD("vpaddd", 10, 10, 9, 8)                                                                    \
    ADD("vpaddd", 13, 12, 9, 8)                                                                    \
    LINE("vcvtdq2ps %%ymm9, %%ymm9")                                                               \
    LINE("vcvtdq2ps %%ymm8, %%ymm8")                                                               \
    LINE("vbroadcastss " #t "(%[sa]), %%ymm10")                                                    \
    LINE("vmulps (%[scale]), %%ymm10, %%ymm11")                                                    \
    LINE("vmulps 32(%[scale]), %%ymm10, %%ymm10")                                                  \
    LINE("vfmadd213ps " #row "(%[acc]), %%ymm11, %%ymm9")                                          \
    LINE("vfmadd213ps 32+" #row "(%[acc]), %%ymm10, %%ymm8")                                       \
    LINE("vmovaps %%ymm9, " #row "(%[acc])") LINE("vmovaps %%ymm8, 32+" #row "(%[acc])")
#define FOUR_FOURS CODES EACH_TOKEN(PASS) LINE("addq $4*" TOKEN_BYTES ", %[q]")

#define RUN(code)                                                                                  \
    __asm__ volatile(                                                                              \
        code                                                                                       \
        : [codes] "+r"(codes), [q] "+r"(q), [ahead] "+r"(ahead), [left] "+r"(left)                 \
        : [stride] "r"(tile->stride), [one] "r"(one), [lanes] "r"(lanes), [block] "r"(block),      \
          [acc] "r"(acc), [sums] "r"(sums), [sa] "r"(sa), [scale] "r"(scale),                      \
          [minimum] "i"(offsetof(struct part, minimum) - offsetof(struct part, scale))             \
        : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8",  \
          "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15")

/* The same of a whole tile of products that fit words. most: words_fours(). */
INLINE void tile_words(const struct tsr_cpu_weight *w, const enum run_kind kind, const int v,
                       const struct part *p, const struct part_tile *tile, const uint64_t most,
                       float *acc)
{
    const uint64_t       m = ISA_TOKENS_MANY;
    _Alignas(64) int32_t lanes[ISA_TOKENS_MANY][16];
    _Alignas(64) float   block[ISA_TOKENS_MANY][16];
    const uint8_t       *codes = p->codes + 64 * v, *ahead = tile->ahead;
    const int8_t        *q = tile->q;
    _Static_assert(ISA_TOKENS_MANY == 6 && PANEL == 32, "the registers of the words");
    for (uint64_t t = 0; kind == RUN_AFFINE && t < ISA_TOKENS_MANY; t++)
        v_store(block[t], v_set1(0.0f));
    for (uint64_t r = p->run; r < p->end; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const int32_t            *sums = tile->sums + r * m;
        const float              *sa = tile->sa + u->block * m;
        const float              *scale = &p->scale[r - p->run][16 * v];
        const int                 zeros = kind != RUN_AFFINE && w->zeros;
        uint64_t                  steps = (u->k1 - u->k0 + 3) / 4, left = steps;
        const int four = kind != RUN_AFFINE && !zeros && steps == 4 && most >= 2 && most < 4;
        if (zeros || (steps > most && !four))
            for (uint64_t t = 0; t < ISA_TOKENS_MANY; t++) {
                i16v first = kind == RUN_AFFINE ? vi_zero() : vi_set1(sums[t]);
                if (zeros)
                    first = vi_mul16(vi_load(&p->zero[r - p->run][16 * v]), first);
                vb_store(lanes[t], first);
            }
        if (steps <= most && !zeros) {
            if (kind == RUN_AFFINE)
                RUN(WORDS SCALES MINIMUM EACH_TOKEN(AFFINE_WORDS));
            else
                RUN(WORDS SCALES EACH_TOKEN(PLAIN_SUMS));
        } else if (four) {
            RUN(FOUR_FOURS);
        } else {
            for (; steps > most; steps -= most) {
                left = most;
                RUN(WORDS EACH_TOKEN(FLUSH));
            }
            left = steps;
            if (kind == RUN_AFFINE)
                RUN(WORDS SCALES MINIMUM EACH_TOKEN(AFFINE_LANES));
            else
                RUN(WORDS SCALES EACH_TOKEN(PLAIN_LANES));
        }
        for (uint64_t t = 0; kind == RUN_AFFINE && block_ends(w, r) && t < ISA_TOKENS_MANY; t++) {
            float *to = acc + t * PANEL;
            v_store(to, v_fma(v_load(block[t]), v_set1(sa[t]), v_load(to)));
            v_store(block[t], v_set1(0.0f));
        }
    }
}

#undef FOUR
#undef FIRST
#undef MORE
#undef NEXT
#undef WORDS
#undef TO_LANES
#undef ADD_SUMS
#undef FLUSH
#undef PLAIN_LANES
#undef PLAIN_SUMS
#undef BLOCK_SUM
#undef AHEAD
#undef CODES
#undef DOTS
#undef PASS
#undef FOUR_FOURS
#undef AFFINE_LANES
#undef AFFINE_WORDS
#undef RUN

#endif
