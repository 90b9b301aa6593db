/* k_tile_words.h - a whole tile of tokens through a part of a panel on AVX2. Products of codes of up to six bits
 * add up in words as long as those can hold them, and then in lanes: two instructions for 32 products, where
 * vi_dot4_low() has three. Products of other codes (cpu_wide()) need a word for each two of them, and become lanes at once:
 * three instructions for 32 products, where vi_dot4() has six and widens the activations for each of 16 rows. The
 * sums are those of tile_part() in k_tiles_a8.h, in the same order.
 *
 * A run is in assembly: gcc 12 moves what is in twelve of sixteen registers to memory. ymm0 to 11 are the words of 6
 * tokens by 16 rows, of 8 rows each: of token t those of the first rows in 2 t. ymm12 and 13 have what rows share,
 * ymm14 what a token has. */
#ifndef TSR_K_TILE_WORDS_H
#define TSR_K_TILE_WORDS_H

#include <stddef.h>

#include "k_part.h"
#include "k_tile_a8.h"

/* Fours of columns whose products a word can add: 254 times the largest byte for each. */
INLINE uint64_t words_fours(const struct tsr_cpu_weight *w)
{
    static const uint8_t most[] = { [W_I6] = 63, [W_I5] = 31, [W_I4] = 15, [W_I3] = 7, [W_I2] = 3 };
    const uint32_t byte = w->mapped && cpu_looked_up(w->layout) ? w->low_byte : most[w->layout];
    return byte ? 32767 / (254 * byte) : 32767;
}

#define LINE(x) x "\n\t"
/* X(four times the token, 64 times it, 128 times it, its words) */
#define EACH_TOKEN(X)                                                                              \
    X(0, 0, 0, 0, 1)                                                                               \
    X(4, 64, 128, 2, 3)                                                                            \
    X(8, 128, 256, 4, 5)                                                                           \
    X(12, 192, 384, 6, 7)                                                                          \
    X(16, 256, 512, 8, 9)                                                                          \
    X(20, 320, 640, 10, 11)
#define TOKEN_BYTES "24" /* of a number of each token */

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
#define ADD_LANES(t, at, a, b)                                                                     \
    LINE("vpaddd " #at "(%[lanes]), %%ymm" #a ", %%ymm" #a)                                        \
    LINE("vpaddd 32+" #at "(%[lanes]), %%ymm" #b ", %%ymm" #b)
#define ADD_SUMS(t, at, a, b)                                                                      \
    LINE("vpbroadcastd " #t "(%[sums]), %%ymm14")                                                  \
    LINE("vpaddd %%ymm14, %%ymm" #a ", %%ymm" #a)                                                  \
    LINE("vpaddd %%ymm14, %%ymm" #b ", %%ymm" #b)
#define FLUSH(t, at, row, a, b)                                                                    \
    TO_LANES(a, b)                                                                                 \
    ADD_LANES(t, at, a, b)                                                                         \
    LINE("vmovdqa %%ymm" #a ", " #at "(%[lanes])")                                                 \
    LINE("vmovdqa %%ymm" #b ", 32+" #at "(%[lanes])")
#define TO_F32(a, b) LINE("vcvtdq2ps %%ymm" #a ", %%ymm" #a) LINE("vcvtdq2ps %%ymm" #b ", %%ymm" #b)
#define SCALES       LINE("vmovaps (%[scale]), %%ymm12") LINE("vmovaps 32(%[scale]), %%ymm13")

/* A run of plain weights enters the chain acc. */
#define CHAIN(t, row, a, b)                                                                        \
    TO_F32(a, b)                                                                                   \
    LINE("vbroadcastss " #t "(%[sa]), %%ymm14")                                                    \
    LINE("vmulps %%ymm12, %%ymm14, %%ymm15")                                                       \
    LINE("vmulps %%ymm13, %%ymm14, %%ymm14")                                                       \
    LINE("vfmadd213ps " #row "(%[acc]), %%ymm15, %%ymm" #a)                                        \
    LINE("vfmadd213ps 32+" #row "(%[acc]), %%ymm14, %%ymm" #b)                                     \
    LINE("vmovaps %%ymm" #a ", " #row "(%[acc])") LINE("vmovaps %%ymm" #b ", 32+" #row "(%[acc])")
#define PLAIN_LANES(t, at, row, a, b) TO_LANES(a, b) ADD_LANES(t, at, a, b) CHAIN(t, row, a, b)
#define PLAIN_SUMS(t, at, row, a, b)  TO_LANES(a, b) ADD_SUMS(t, at, a, b) CHAIN(t, row, a, b)

/* A run of affine weights enters the sums of its block. */
#define MINIMUM LINE("vmovaps %c[minimum](%[scale]), %%ymm15")
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

/* The same of opposed activations. A token's version of the codes has a register, which later has one of the addresses in
 * `to`; that of the next four of columns is read a step ahead, since the codes wait for it. ymm12 has ones.
 * X(register, eight times the token, its lanes) */
struct words_to {
    const void *lanes, *block, *acc, *sums, *sa, *scale;
};
#define EACH_OPPOSED(X)                                                                            \
    X("lanes", 0, 0, 1)                                                                            \
    X("block", 8, 2, 3)                                                                            \
    X("acc", 16, 4, 5)                                                                             \
    X("sums", 24, 6, 7)                                                                            \
    X("sa", 32, 8, 9)                                                                              \
    X("scale", 40, 10, 11)
#define VERSION(reg, t, a, b) LINE("movl 4+" #t "(%[q]), %k[" reg "]")
#define ADDRESS(reg, t, a, b) LINE("movq " #t "(%[to]), %[" reg "]")
#define OPPOSED(reg, t)                                                                            \
    LINE("vpbroadcastd " #t "(%[q]), %%ymm13")                                                     \
    LINE("vmovdqa (%[codes],%[" reg "]), %%ymm14")                                                 \
    LINE("vmovdqa 32(%[codes],%[" reg "]), %%ymm15")                                               \
    LINE("movl 48+4+" #t "(%[q]), %k[" reg "]")                                                    \
    LINE("vpmaddubsw %%ymm13, %%ymm14, %%ymm14")                                                   \
    LINE("vpmaddubsw %%ymm13, %%ymm15, %%ymm15")
#define FIRST_OPPOSED(reg, t, a, b)                                                                \
    OPPOSED(reg, t)                                                                                \
    LINE("vpmaddwd %%ymm12, %%ymm14, %%ymm" #a) LINE("vpmaddwd %%ymm12, %%ymm15, %%ymm" #b)
#define MORE_OPPOSED(reg, t, a, b)                                                                 \
    OPPOSED(reg, t)                                                                                \
    ADD("vpmaddwd", 12, 12, 14, 15)                                                                \
    ADD("vpaddd", 14, 15, a, b)
#define NEXT_OPPOSED                                                                               \
    LINE("prefetcht0 (%[ahead])")                                                                  \
    LINE("addq $48, %[q]")                                                                         \
    LINE("addq $256, %[codes]")                                                                    \
    LINE("addq %[stride], %[ahead]")                                                               \
    LINE("decq %[left]")
#define LANES                                                                                      \
    LINE("vmovdqa %[one], %%ymm12")                                                                \
    EACH_OPPOSED(VERSION)                                                                          \
    EACH_OPPOSED(FIRST_OPPOSED)                                                                    \
    NEXT_OPPOSED LINE("jz 2f") LINE("1:") EACH_OPPOSED(MORE_OPPOSED) NEXT_OPPOSED LINE("jnz 1b")   \
        LINE("2:") EACH_OPPOSED(ADDRESS)
#define ADD_STARTS(t, a, b)                                                                        \
    LINE("vpbroadcastd " #t "(%[lanes]), %%ymm14")                                                 \
    LINE("vpaddd %%ymm14, %%ymm" #a ", %%ymm" #a)                                                  \
    LINE("vpaddd %%ymm14, %%ymm" #b ", %%ymm" #b)
#define WIDE_LANES(t, at, row, a, b)  ADD_LANES(t, at, a, b) CHAIN(t, row, a, b)
#define WIDE_STARTS(t, at, row, a, b) ADD_STARTS(t, a, b) CHAIN(t, row, a, b)
/* A run of affine weights: the first of a block of activations begins its sum, the last one takes it into the chain. A
 * first product is not added to +0, so it may be -0; that changes no bit of the chain, which begins with +0. */
#define BLOCK_TAKE(at, a, b)                                                                       \
    LINE("vfmadd213ps " #at "(%[block]), %%ymm12, %%ymm" #a)                                       \
    LINE("vfmadd213ps 32+" #at "(%[block]), %%ymm13, %%ymm" #b)
#define BLOCK_BEGIN(at, a, b)                                                                      \
    LINE("vmulps %%ymm12, %%ymm" #a ", %%ymm" #a) LINE("vmulps %%ymm13, %%ymm" #b ", %%ymm" #b)
#define BLOCK_GIVE(t, at, row, a, b)                                                               \
    LINE("vmovaps %%ymm" #a ", " #at "(%[block])")                                                 \
    LINE("vmovaps %%ymm" #b ", 32+" #at "(%[block])")
#define BLOCK_CHAIN(t, at, row, a, b)                                                              \
    LINE("vbroadcastss " #t "(%[sa]), %%ymm14")                                                    \
    LINE("vfmadd213ps " #row "(%[acc]), %%ymm14, %%ymm" #a)                                        \
    LINE("vfmadd213ps 32+" #row "(%[acc]), %%ymm14, %%ymm" #b)                                     \
    LINE("vmovaps %%ymm" #a ", " #row "(%[acc])") LINE("vmovaps %%ymm" #b ", 32+" #row "(%[acc])")
#define AFFINE_BY(take, give, t, at, row, a, b)                                                    \
    ADD_STARTS(t, a, b)                                                                            \
    TO_F32(a, b)                                                                                   \
    LINE("vbroadcastss " #t "(%[sums]), %%ymm14")                                                  \
    take(at, a, b) LINE("vfmadd231ps %%ymm14, %%ymm15, %%ymm" #a)                                  \
        LINE("vfmadd231ps 32+%c[minimum](%[scale]), %%ymm14, %%ymm" #b) give(t, at, row, a, b)
#define AFFINE_FIRST(t, at, row, a, b) AFFINE_BY(BLOCK_BEGIN, BLOCK_GIVE, t, at, row, a, b)
#define AFFINE_NEXT(t, at, row, a, b)  AFFINE_BY(BLOCK_TAKE, BLOCK_GIVE, t, at, row, a, b)
#define AFFINE_LAST(t, at, row, a, b)  AFFINE_BY(BLOCK_TAKE, BLOCK_CHAIN, t, at, row, a, b)
#define AFFINE_BLOCK(t, at, row, a, b) AFFINE_BY(BLOCK_BEGIN, BLOCK_CHAIN, t, at, row, a, b)
#define RUN_WIDE(code)                                                                             \
    __asm__ volatile(LANES code                                                                    \
                     : [codes] "+r"(codes), [q] "+r"(q), [ahead] "+r"(ahead), [left] "+r"(left),   \
                       [lanes] "=&r"(to.lanes), [block] "=&r"(to.block), [acc] "=&r"(to.acc),      \
                       [sums] "=&r"(to.sums), [sa] "=&r"(to.sa), [scale] "=&r"(to.scale)           \
                     : [stride] "r"(stride), [to] "r"(&from), [one] "m"(one),                      \
                       [minimum] "i"(offsetof(struct part, minimum) -                              \
                                     offsetof(struct part, scale))                                 \
                     : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6",     \
                       "ymm7", "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14",        \
                       "ymm15")

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
#define ADD(op, a, b, c, d)                                                                        \
    LINE(op " %%ymm" #a ", %%ymm" #c ", %%ymm" #c) LINE(op " %%ymm" #b ", %%ymm" #d ", %%ymm" #d)
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

static const _Alignas(32) int16_t one[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

/* acc[ISA_TOKENS_MANY][PANEL] with the runs of a part, of 16 rows from vector v on. The tile has m tokens; if fewer than
 * ISA_TOKENS_MANY, it takes what is next to their sums and scales for those of the others, whose results nobody reads. */
INLINE void tile_opposed(const struct tsr_cpu_weight *w, const enum run_kind kind, const uint64_t m,
                         const int v, const struct part *p, const struct part_tile *tile,
                         float *acc)
{
    _Alignas(64) int32_t lanes[ISA_TOKENS_MANY][16];
    _Alignas(64) float   block[ISA_TOKENS_MANY][16];
    const uint8_t       *codes = p->codes + sizeof p->buffer / 2 * (uint64_t)v;
    const int8_t        *q = tile->q;
    /* of the second half the activations of the next tile */
    const uint8_t *ahead = v ? (const uint8_t *)q + tile->size : tile->ahead;
    const uint64_t stride = v ? ISA_TOKENS_MANY * sizeof(struct tsr_cpu_opposed) : tile->stride;
    _Static_assert(ISA_TOKENS_MANY * sizeof(struct tsr_cpu_opposed) == 48 &&
                       4 * CPU_OPPOSED_CODES == 256,
                   "the steps of the loops");
    for (uint64_t r = p->run; r < p->end; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const int32_t            *starts = tile->starts + r * m, *sums = tile->sums + r * m;
        const int                 zeros = kind != RUN_AFFINE && w->zeros;
        uint64_t                  left = (u->k1 - u->k0 + 3) / 4;
        const struct words_to     from = {
                zeros ? lanes[0] : starts,    block[0], acc, sums, tile->sa + u->block * m,
            &p->scale[r - p->run][16 * v]
        };
        struct words_to to;
        for (uint64_t t = 0; zeros && t < ISA_TOKENS_MANY; t++) {
            const i16v zero = vi_load(&p->zero[r - p->run][16 * v]);
            vb_store(lanes[t], vi_add(vi_mul16(zero, vi_set1(sums[t])), vi_set1(starts[t])));
        }
        const int begins = r == p->run || block_ends(w, r - 1);
        if (kind == RUN_AFFINE && begins && block_ends(w, r))
            RUN_WIDE(SCALES MINIMUM EACH_TOKEN(AFFINE_BLOCK));
        else if (kind == RUN_AFFINE && begins)
            RUN_WIDE(SCALES MINIMUM EACH_TOKEN(AFFINE_FIRST));
        else if (kind == RUN_AFFINE && block_ends(w, r))
            RUN_WIDE(SCALES MINIMUM EACH_TOKEN(AFFINE_LAST));
        else if (kind == RUN_AFFINE)
            RUN_WIDE(SCALES MINIMUM EACH_TOKEN(AFFINE_NEXT));
        else if (zeros)
            RUN_WIDE(SCALES EACH_TOKEN(WIDE_LANES));
        else
            RUN_WIDE(SCALES EACH_TOKEN(WIDE_STARTS));
    }
}

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

#undef LINE
#undef EACH_TOKEN
#undef TOKEN_BYTES
#undef FOUR
#undef FIRST
#undef MORE
#undef NEXT
#undef WORDS
#undef LANES
#undef TO_LANES
#undef ADD_LANES
#undef ADD_SUMS
#undef FLUSH
#undef TO_F32
#undef SCALES
#undef CHAIN
#undef PLAIN_LANES
#undef PLAIN_SUMS
#undef WIDE_LANES
#undef MINIMUM
#undef BLOCK_SUM
#undef AHEAD
#undef CODES
#undef DOTS
#undef ADD
#undef PASS
#undef FOUR_FOURS
#undef AFFINE_LANES
#undef AFFINE_WORDS
#undef BLOCK_TAKE
#undef BLOCK_BEGIN
#undef BLOCK_GIVE
#undef BLOCK_CHAIN
#undef AFFINE_BY
#undef AFFINE_FIRST
#undef AFFINE_NEXT
#undef AFFINE_LAST
#undef AFFINE_BLOCK
#undef RUN
#undef EACH_OPPOSED
#undef VERSION
#undef ADDRESS
#undef OPPOSED
#undef FIRST_OPPOSED
#undef MORE_OPPOSED
#undef NEXT_OPPOSED
#undef ADD_STARTS
#undef WIDE_STARTS
#undef RUN_WIDE

#endif
