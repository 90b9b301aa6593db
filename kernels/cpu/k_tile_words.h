/* k_tile_words.h - a whole tile of tokens through a part of a panel on AVX2, for codes of up to six bits: products
 * add up in words as long as those can hold them, and then in lanes. That is two instructions for 32 products;
 * vi_dot4_low() has three. The sums are those of tile_part() in k_tiles_a8.h, in the same order.
 *
 * The products are in assembly: the words of 6 tokens by 16 rows take twelve of the sixteen registers, and gcc 12
 * moves them to memory. */
#ifndef TSR_K_TILE_WORDS_H
#define TSR_K_TILE_WORDS_H

#include "k_part.h"
#include "k_tile_a8.h"
#include "simd_words.h"

/* Fours of columns whose products a word can add: 254 times the largest byte for each. */
INLINE uint64_t words_fours(const struct tsr_cpu_weight *w)
{
    static const uint8_t most[] = { [W_I6] = 63, [W_I5] = 31, [W_I4] = 15, [W_I3] = 7, [W_I2] = 3 };
    const uint32_t byte = w->mapped && cpu_looked_up(w->layout) ? w->low_byte : most[w->layout];
    return byte ? 32767 / (254 * byte) : 32767;
}

/* X(token, its bytes in a four of columns) */
#define EACH_WORDS(X) X(0, 0) X(1, 4) X(2, 8) X(3, 12) X(4, 16) X(5, 20)
#define LINE(x)       x "\n\t"
#define TOKEN_BYTES   "24"

#define FOUR                                                                                       \
    LINE("vmovdqa (%[codes]), %[wa]")                                                              \
    LINE("vmovdqa 32(%[codes]), %[wb]")                                                            \
    LINE("prefetcht1 (%[ahead])")
#define NEXT                                                                                       \
    LINE("addq $" TOKEN_BYTES ", %[q]")                                                            \
    LINE("subq $-128, %[codes]")                                                                   \
    LINE("addq %[stride], %[ahead]")
#define FIRST(t, at)                                                                               \
    LINE("vpbroadcastd " #at "(%[q]), %[x]")                                                       \
    LINE("vpmaddubsw %[x], %[wa], %[a" #t "]")                                                     \
    LINE("vpmaddubsw %[x], %[wb], %[b" #t "]")
#define MORE(t, at)                                                                                \
    LINE("vpbroadcastd " #at "(%[q]), %[x]")                                                       \
    LINE("vpmaddubsw %[x], %[wa], %[y]")                                                           \
    LINE("vpmaddubsw %[x], %[wb], %[x]")                                                           \
    LINE("vpaddw %[y], %[a" #t "], %[a" #t "]")                                                    \
    LINE("vpaddw %[x], %[b" #t "], %[b" #t "]")
/* `left` fours of columns, at least one, to the words a0 to b5. */
#define WORDS                                                                                      \
    __asm__ volatile(FOUR EACH_WORDS(FIRST) NEXT LINE("decq %[left]") LINE("jz 2f") LINE("1:")     \
                         FOUR EACH_WORDS(MORE) NEXT LINE("decq %[left]") LINE("jnz 1b") LINE("2:") \
                     : [codes] "+r"(codes), [q] "+r"(q), [ahead] "+r"(ahead), [left] "+r"(left),   \
                       [a0] "=&x"(a0), [a1] "=&x"(a1), [a2] "=&x"(a2), [a3] "=&x"(a3),             \
                       [a4] "=&x"(a4), [a5] "=&x"(a5), [b0] "=&x"(b0), [b1] "=&x"(b1),             \
                       [b2] "=&x"(b2), [b3] "=&x"(b3), [b4] "=&x"(b4), [b5] "=&x"(b5),             \
                       [wa] "=&x"(wa), [wb] "=&x"(wb), [x] "=&x"(x), [y] "=&x"(y)                  \
                     : [stride] "r"(tile->stride)                                                  \
                     : "memory", "cc")

/* acc[ISA_TOKENS_MANY][PANEL] with the runs of a part, of 16 rows from vector v on. most: words_fours(). */
INLINE void tile_words(const struct tsr_cpu_weight *w, const enum run_kind kind, const int v,
                       const struct part *p, const struct part_tile *tile, const uint64_t most,
                       float *acc)
{
    const uint8_t *codes = p->codes + 64 * v, *ahead = tile->ahead;
    const int8_t  *q = tile->q;
    __m256i        a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, b4, b5, wa, wb, x, y;
    i16v           lanes[ISA_TOKENS_MANY];
    v16            block[ISA_TOKENS_MANY];
    _Static_assert(ISA_TOKENS_MANY == 6 && ISA_VECS == 1, "the registers of the words");
#define BEGIN(t, at) block[t] = v_set1(0.0f);
#define TAKE(t, at)                                                                                \
    if (kind == RUN_AFFINE)                                                                        \
        lanes[t] = vi_zero();                                                                      \
    else if (w->zeros)                                                                             \
        lanes[t] = vi_mul16(vi_load(&p->zero[r - p->run][16 * v]), vi_set1(sums[t]));              \
    else                                                                                           \
        lanes[t] = vi_set1(sums[t]);
#define FLUSH(t, at) lanes[t] = vw_sum(lanes[t], vi_make(a##t, b##t));
#define FOLD(t, at)                                                                                \
    {                                                                                              \
        const i16v words = vi_make(a##t, b##t);                                                    \
        const i16v sum = vw_sum(lanes[t], words);                                                  \
        if (kind == RUN_AFFINE) {                                                                  \
            v16 b = v_fma(vi_cvt(sum), scale, block[t]);                                           \
            b = v_fma(vi_bits_f32(vi_set1(sums[t])), minimum, b);                                  \
            if (ends)                                                                              \
                v_store(acc + t * PANEL, v_fma(b, v_set1(sa[t]), v_load(acc + t * PANEL)));        \
            block[t] = ends ? v_set1(0.0f) : b;                                                    \
        } else {                                                                                   \
            v16 s = v_mul(scale, v_set1(sa[t]));                                                   \
            v_store(acc + t * PANEL, v_fma(vi_cvt(sum), s, v_load(acc + t * PANEL)));              \
        }                                                                                          \
    }
    if (kind == RUN_AFFINE) {
        EACH_WORDS(BEGIN)
    }
    for (uint64_t r = p->run; r < p->end; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const int32_t            *sums = tile->sums + r * ISA_TOKENS_MANY;
        const float              *sa = tile->sa + u->block * ISA_TOKENS_MANY;
        const int                 ends = kind == RUN_AFFINE && block_ends(w, r);
        uint64_t steps = (u->k1 - u->k0 + 3) / 4, left = steps < most ? steps : most;
        EACH_WORDS(TAKE)
        for (steps -= left;; steps -= left) {
            WORDS;
            if (!steps)
                break;
            EACH_WORDS(FLUSH)
            left = steps < most ? steps : most;
        }
        const v16 scale = v_load(&p->scale[r - p->run][16 * v]);
        const v16 minimum = kind == RUN_AFFINE ? v_load(&p->minimum[r - p->run][16 * v]) : scale;
        EACH_WORDS(FOLD)
    }
#undef BEGIN
#undef TAKE
#undef FLUSH
#undef FOLD
}

#undef EACH_WORDS
#undef LINE
#undef TOKEN_BYTES
#undef FOUR
#undef NEXT
#undef FIRST
#undef MORE

#endif
