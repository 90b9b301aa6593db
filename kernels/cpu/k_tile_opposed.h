/* k_tile_opposed.h - a whole tile of tokens through a part of a panel on AVX2, for codes that need all eight bits
 * (cpu_wide()). Two products of a code and opposed activations (tile_words.h) fit a word, and become lanes at once: three
 * instructions for 32 products, where vi_dot4() has six and widens the activations for each of 16 rows. The sums are
 * those of tile_part() in k_tiles_a8.h, in the same order. */
#ifndef TSR_K_TILE_OPPOSED_H
#define TSR_K_TILE_OPPOSED_H

#include <stddef.h>

#include "k_tile_lines.h"

/* What a run has. The instructions move lanes, sums, scale and fours on to the next one, and count `more` down. */
struct words_to {
    const void     *lanes, *block, *acc, *sums, *sa, *scale;
    const uint64_t *fours; /* steps of a run */
    uint64_t        more;  /* runs after it */
};

/* Where a part is read: its codes, what is prefetched, activations. */
struct opposed_at {
    const uint8_t *codes, *ahead;
    const int8_t  *q;
};

/* A token's version of the codes has a register, which later has one of the addresses; that of the next four of columns is
 * read a step ahead, since the codes wait for it. X(register, eight times the token, its lanes) */
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
/* The products of a run. ymm12 has ones. */
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

/* All runs of a part, which are of one block of activations: pointers computed in C between them took 5 % of the time. */
#define NEXT_RUN                                                                                   \
    LINE("addq %[rows], (%[to])")                                                                  \
    LINE("addq %[rows], 24(%[to])")                                                                \
    LINE("addq %[panel], 40(%[to])")                                                               \
    LINE("addq $8, 48(%[to])")                                                                     \
    LINE("movq 48(%[to]), %[left]")                                                                \
    LINE("movq (%[left]), %[left]")
#define COUNT LINE("subq $1, 56(%[to])")
#define WIDE_RUNS(chain)                                                                           \
    LINE("3:") LANES SCALES EACH_TOKEN(chain)                                                      \
    COUNT LINE("jc 4f") NEXT_RUN LINE("jmp 3b") LINE("4:")
#define AFFINE_RUN(chain) LANES SCALES MINIMUM EACH_TOKEN(chain)
#define AFFINE_RUNS                                                                                \
    AFFINE_RUN(AFFINE_FIRST)                                                                       \
    LINE("3:")                                                                                     \
    NEXT_RUN COUNT LINE("jz 4f") AFFINE_RUN(AFFINE_NEXT) LINE("jmp 3b") LINE("4:")                 \
        AFFINE_RUN(AFFINE_LAST)
#define RUN_WIDE(code)                                                                             \
    __asm__ volatile(code                                                                          \
                     : [codes] "+r"(codes), [q] "+r"(q), [ahead] "+r"(ahead), [left] "+r"(left),   \
                       [lanes] "=&r"(to.lanes), [block] "=&r"(to.block), [acc] "=&r"(to.acc),      \
                       [sums] "=&r"(to.sums), [sa] "=&r"(to.sa), [scale] "=&r"(to.scale)           \
                     : [stride] "r"(stride), [to] "r"(&from), [one] "m"(one), [rows] "r"(4 * m),   \
                       [panel] "i"(sizeof p->scale[0]),                                            \
                       [minimum] "i"(offsetof(struct part, minimum) -                              \
                                     offsetof(struct part, scale))                                 \
                     : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6",     \
                       "ymm7", "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14",        \
                       "ymm15")

/* acc[ISA_TOKENS_MANY][PANEL] with n runs of a part from r on, of 16 rows from vector v on. lanes: what stored zero points add
 * to one run. */
INLINE void opposed_runs(const struct tsr_cpu_weight *w, const enum run_kind kind, const uint64_t m,
                         const int v, const struct part *p, const struct part_tile *tile,
                         uint64_t r, uint64_t n, const int32_t (*lanes)[16], struct opposed_at *at,
                         float *acc)
{
    _Alignas(64) float block[ISA_TOKENS_MANY][16];
    const uint8_t     *codes = at->codes, *ahead = at->ahead;
    const int8_t      *q = at->q;
    const uint64_t     stride = v ? ISA_TOKENS_MANY * sizeof(struct tsr_cpu_opposed) : tile->stride;
    uint64_t           left = p->fours[r - p->run];
    struct words_to    to, from = { .lanes = lanes ? (const void *)lanes : tile->starts + r * m,
                                    .block = block[0],
                                    .acc = acc,
                                    .sums = tile->sums + r * m,
                                    .sa = tile->sa + w->runs[r].block * m,
                                    .scale = &p->scale[r - p->run][16 * v],
                                    .fours = &p->fours[r - p->run],
                                    .more = n - 1 };
    if (lanes)
        RUN_WIDE(LANES SCALES EACH_TOKEN(WIDE_LANES));
    else if (kind != RUN_AFFINE)
        RUN_WIDE(WIDE_RUNS(WIDE_STARTS));
    else if (n == 1)
        RUN_WIDE(AFFINE_RUN(AFFINE_BLOCK));
    else
        RUN_WIDE(AFFINE_RUNS);
    *at = (struct opposed_at){ codes, ahead, q };
}

/* acc with the runs of a part, of 16 rows from vector v on. The tile has m tokens; if fewer than ISA_TOKENS_MANY, it takes
 * what is next to their sums and scales for those of the others, whose results nobody reads. */
INLINE void tile_opposed(const struct tsr_cpu_weight *w, const enum run_kind kind, const uint64_t m,
                         const int v, const struct part *p, const struct part_tile *tile,
                         float *acc)
{
    _Alignas(64) int32_t lanes[ISA_TOKENS_MANY][16];
    /* of the second half it prefetches the activations of the next tile */
    struct opposed_at at = { p->codes + sizeof p->buffer / 2 * (uint64_t)v,
                             v ? (const uint8_t *)tile->q + tile->size : tile->ahead, tile->q };
    _Static_assert(ISA_TOKENS_MANY * sizeof(struct tsr_cpu_opposed) == 48 &&
                       4 * CPU_OPPOSED_CODES == 256,
                   "the steps of the loops");
    if (kind == RUN_AFFINE || !w->zeros) {
        opposed_runs(w, kind, m, v, p, tile, p->run, p->end - p->run, NULL, &at, acc);
        return;
    }
    for (uint64_t r = p->run; r < p->end; r++) {
        const int32_t *starts = tile->starts + r * m, *sums = tile->sums + r * m;
        const i16v     zero = vi_load(&p->zero[r - p->run][16 * v]);
        for (uint64_t t = 0; t < ISA_TOKENS_MANY; t++)
            vb_store(lanes[t], vi_add(vi_mul16(zero, vi_set1(sums[t])), vi_set1(starts[t])));
        opposed_runs(w, kind, m, v, p, tile, r, 1, (const int32_t(*)[16])lanes, &at, acc);
    }
}

#undef LANES
#undef WIDE_LANES
#undef BLOCK_TAKE
#undef BLOCK_BEGIN
#undef BLOCK_GIVE
#undef BLOCK_CHAIN
#undef AFFINE_BY
#undef AFFINE_FIRST
#undef AFFINE_NEXT
#undef AFFINE_LAST
#undef AFFINE_BLOCK
#undef EACH_OPPOSED
#undef VERSION
#undef ADDRESS
#undef OPPOSED
#undef FIRST_OPPOSED
#undef MORE_OPPOSED
#undef NEXT_OPPOSED
#undef ADD_STARTS
#undef WIDE_STARTS
#undef NEXT_RUN
#undef COUNT
#undef WIDE_RUNS
#undef AFFINE_RUN
#undef AFFINE_RUNS
#undef RUN_WIDE

#endif
