/* k_tiles_a8.h - more tokens than a tile has, of int8 activations, through panels of codes: a part of a panel is
 * unpacked once, and all tiles read it out of the first cache. */
#ifndef TSR_K_TILES_A8_H
#define TSR_K_TILES_A8_H

#include "k_part.h"
#include "k_tile_a8.h"
#if TSR_SIMD == 512 && !defined(TSR_SMALL_TILES)
#define ISA_TILE_VNNI
#include "k_tile_vnni.h"
/* The last tile, which is not a whole one. */
#define REST_SWITCH(m, f)                                                                          \
    switch (m) {                                                                                   \
        TILE_CASE(6, f);                                                                           \
        TILE_CASE(5, f);                                                                           \
        TILE_CASE(4, f);                                                                           \
        TILE_CASE(3, f);                                                                           \
        TILE_CASE(2, f);                                                                           \
    default:                                                                                       \
        f(1);                                                                                      \
        break;                                                                                     \
    }
#else
#define REST_SWITCH TILE8_SWITCH
#endif
#if TSR_SIMD == 2 && !defined(TSR_SMALL_TILES) && !defined(TSR_VNNI)
#define ISA_TILE_WORDS
#include "k_opposed.h"
#include "k_tile_opposed.h"
#include "k_tile_words.h"
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define ISA_TILE_MMLA
#include "k_tile_mmla.h"
#endif

/* The codes of a part as bytes, looked up where they mean entries of a table. */
INLINE void unpack_of(const struct tsr_cpu_weight *w, const enum tsr_cpu_layout l,
                      const enum run_kind kind, struct part *p)
{
    const uint64_t step = cpu_step(l), unit = cpu_unit(l);
    const i16v     table = run_table(w, kind);
    const uint8_t *c = p->packed;
    uint8_t       *to = p->buffer;
    for (uint64_t k = 0; k < 4 * p->steps; k += step, c += 2 * unit) {
        struct code_step a = code_load(l, c), b = code_load(l, c + unit);
        UNROLL
        for (int j = 0; j < (int)step / 4; j++, to += 128) {
            vb_store(to, run_four(kind, l, &a, j, table));
            vb_store(to + 64, run_four(kind, l, &b, j, table));
        }
    }
}

/* A function for each layout. */
#define UNPACK(kind, l)                                                                            \
    static __attribute__((noinline)) void unpack_##kind##_##l(const struct tsr_cpu_weight *w,      \
                                                              struct part                 *p)      \
    {                                                                                              \
        unpack_of(w, l, kind, p);                                                                  \
    }
UNPACK(RUN_PLAIN, W_I6)
UNPACK(RUN_PLAIN, W_I5)
UNPACK(RUN_PLAIN, W_I4)
UNPACK(RUN_PLAIN, W_I3)
UNPACK(RUN_PLAIN, W_I2)
UNPACK(RUN_MAPPED, W_I4)
UNPACK(RUN_MAPPED, W_I3)
UNPACK(RUN_MAPPED, W_I2)

static void (*const unpacks[2][W_I2 + 1])(const struct tsr_cpu_weight *w, struct part *p) = {
    { [W_I6] = unpack_RUN_PLAIN_W_I6,
      [W_I5] = unpack_RUN_PLAIN_W_I5,
      [W_I4] = unpack_RUN_PLAIN_W_I4,
      [W_I3] = unpack_RUN_PLAIN_W_I3,
      [W_I2] = unpack_RUN_PLAIN_W_I2 },
    { [W_I4] = unpack_RUN_MAPPED_W_I4,
      [W_I3] = unpack_RUN_MAPPED_W_I3,
      [W_I2] = unpack_RUN_MAPPED_W_I2 },
};

/* acc[m][PANEL] with the runs of a part, of ISA_VECS vectors of rows from vector v on. low: vi_dot4_low() may
 * multiply.
 *
 * Meanwhile it prefetches the tile's share of the next part's codes, spread out: a burst of prefetches
 * would stall the products. */
INLINE void tile_part(const struct tsr_cpu_weight *w, const enum run_kind kind, const int low,
                      const int m, const int v, const struct part *p, const struct part_tile *tile,
                      float *acc)
{
    const uint64_t stride = tile->stride;
    const uint8_t *c = p->codes + 64 * v, *ahead = tile->ahead;
    const int8_t  *q = tile->q;
#define BEGIN(t)                                                                                   \
    v16 f##t##a = v_set1(0.0f);                                                                    \
    SECOND(v16 f##t##b = f##t##a;)                                                                 \
    if (t < m && kind != RUN_AFFINE) {                                                             \
        f##t##a = v_load(acc + t * PANEL);                                                         \
        SECOND(f##t##b = v_load(acc + t * PANEL + 16);)                                            \
    }
#define TAKE(t)                                                                                    \
    i16v c##t##a = vi_zero();                                                                      \
    SECOND(i16v c##t##b = c##t##a;)                                                                \
    if (t < m && kind != RUN_AFFINE) {                                                             \
        c##t##a = vi_set1(sums[t]);                                                                \
        SECOND(c##t##b = c##t##a;)                                                                 \
    }
#define ZERO(t)                                                                                    \
    if (t < m) {                                                                                   \
        c##t##a = vi_mul16(za, c##t##a);                                                           \
        SECOND(c##t##b = vi_mul16(zb, c##t##b);)                                                   \
    }
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t);                                                               \
        c##t##a = low ? vi_dot4_low(c##t##a, wa, x) : vi_dot4(c##t##a, wa, x);                     \
        SECOND(c##t##b = low ? vi_dot4_low(c##t##b, wb, x) : vi_dot4(c##t##b, wb, x);)             \
    }
/* Four columns. */
#define COLUMNS                                                                                    \
    {                                                                                              \
        i16v wa = vi_load(c);                                                                      \
        SECOND(i16v wb = vi_load(c + 64);)                                                         \
        v_prefetch_l2(ahead);                                                                      \
        ahead += stride;                                                                           \
        TILE8_EACH(STEP)                                                                           \
        c += 128;                                                                                  \
        q += 4 * m;                                                                                \
    }
#define FOLD(t)                                                                                    \
    if (t < m) {                                                                                   \
        if (kind == RUN_AFFINE) {                                                                  \
            v16 sum = vi_bits_f32(vi_set1(sums[t]));                                               \
            f##t##a = v_fma(vi_cvt(c##t##a), ga.scale, f##t##a);                                   \
            SECOND(f##t##b = v_fma(vi_cvt(c##t##b), gb.scale, f##t##b);)                           \
            f##t##a = v_fma(sum, ga.minimum, f##t##a);                                             \
            SECOND(f##t##b = v_fma(sum, gb.minimum, f##t##b);)                                     \
        } else {                                                                                   \
            v16 s = v_set1(sa[t]);                                                                 \
            f##t##a = v_fma(vi_cvt(c##t##a), v_mul(ga.scale, s), f##t##a);                         \
            SECOND(f##t##b = v_fma(vi_cvt(c##t##b), v_mul(gb.scale, s), f##t##b);)                 \
        }                                                                                          \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        v_store(acc + t * PANEL, f##t##a);                                                         \
        SECOND(v_store(acc + t * PANEL + 16, f##t##b);)                                            \
    }
    TILE8_EACH(BEGIN)
    for (uint64_t r = p->run; r < p->end; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const int32_t            *sums = tile->sums + r * (uint64_t)m;
        const float              *sa = tile->sa + u->block * (uint64_t)m;
        TILE8_EACH(TAKE)
        if (kind != RUN_AFFINE && w->zeros) {
            const int32_t *zero = &p->zero[r - p->run][16 * v];
            i16v           za = vi_load(zero);
            SECOND(i16v zb = vi_load(zero + 16);)
            TILE8_EACH(ZERO)
        }
        uint64_t steps = (u->k1 - u->k0 + 3) / 4;
        for (; steps >= 2; steps -= 2) { /* fewer branches to predict */
            COLUMNS
            COLUMNS
        }
        if (steps)
            COLUMNS
        const float  *scale = &p->scale[r - p->run][16 * v];
        struct affine ga = { v_load(scale), v_load(scale) };
        SECOND(struct affine gb = ga;)
        SECOND(gb.scale = v_load(scale + 16);)
        if (kind == RUN_AFFINE) {
            const float *minimum = &p->minimum[r - p->run][16 * v];
            ga.minimum = v_load(minimum);
            SECOND(gb.minimum = v_load(minimum + 16);)
        }
        TILE8_EACH(FOLD)
        if (kind == RUN_AFFINE && block_ends(w, r)) {
            TILE8_EACH(BLOCK_END)
        }
    }
    if (kind != RUN_AFFINE) {
        TILE8_EACH(GIVE)
    }
#undef BEGIN
#undef TAKE
#undef ZERO
#undef STEP
#undef COLUMNS
#undef FOLD
#undef GIVE
}

/* All tokens [t0,t1) through a part: acc[t1 - t0][PANEL]. wide: activations are opposed (tile_words.h), and the codes
 * are there in four versions. */
INLINE void tiles_part(const struct tsr_cpu_linear *a, const enum run_kind kind, const int low,
                       const int wide, struct part *p, uint64_t panel, struct next next,
                       uint64_t t0, uint64_t t1, float (*acc)[PANEL])
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               s = w->runs[p->run].segment, columns = segment_columns(a, s);
    const uint64_t               n = t1 - t0, parts = (n + ISA_TOKENS_MANY - 1) / ISA_TOKENS_MANY;
    const uint64_t               rows = wide ? parts * ISA_TOKENS_MANY : n; /* of activations */
    struct part_tile             tile = { .stride = p->bytes / (p->steps * parts) + 1,
                                          .ahead = codes_at(w, next.panel, w->runs[next.run].k0) };
    struct ahead                 ahead = { .n = 0 };
#ifdef ISA_TILE_WORDS
    const uint64_t fours = low ? words_fours(w) : 0;
#endif
    ahead_scales(w, p, next, parts, &ahead);
    part_scales(w, p);
#ifdef ISA_TILE_WORDS
    if (wide)
        unpack_opposed(w, p);
#endif
    if (!wide && w->layout != W_I8)
        unpacks[w->mapped && cpu_looked_up(w->layout)][w->layout](w, p);
    for (uint64_t t = 0, i = 0; t < n; t += ISA_TOKENS_MANY, i++) {
        const uint64_t m = n - t < ISA_TOKENS_MANY ? n - t : ISA_TOKENS_MANY;
        const uint64_t at = t0 * a->ldq + s * w->seg * rows + t * columns +
                            (p->k0 - s * w->seg) * (wide ? ISA_TOKENS_MANY : m);
        tile.q = a->qpack + (wide ? 2 * at : at);
        tile.size = 2 * columns * ISA_TOKENS_MANY;
        tile.starts = wide ? a->starts + (t0 + t) * w->nruns : NULL;
        tile.sums = a->sums + (t0 + t) * w->nruns;
        tile.sa = a->sa + (t0 + t) * w->nblocks;
        ahead_prefetch(&ahead, i);
        for (uint64_t j = 0; s + 1 == w->nseg && j < m;
             j++) { /* rows of the outputs are far apart */
            const float *out = a->out + (t0 + t + j) * a->ldo + panel * PANEL;
            v_prefetch_l2(out);
            v_prefetch_l2(out + 16);
        }
#ifdef ISA_TILE_VNNI
        if (m == ISA_TOKENS_MANY) {
            tile_vnni(w, p, &tile, acc[t]);
            tile.ahead += p->steps * tile.stride;
            continue;
        }
#endif
#ifdef ISA_TILE_WORDS
        if (wide || (low && m == ISA_TOKENS_MANY)) {
            for (int v = 0; v < 2; v++)
                if (wide)
                    tile_opposed(w, kind, m, v, p, &tile, acc[t] + 16 * v);
                else
                    tile_words(w, kind, v, p, &tile, fours, acc[t] + 16 * v);
            tile.ahead += p->steps * tile.stride;
            continue;
        }
#endif
        for (int v = 0; v < 2; v += ISA_VECS) {
#ifdef ISA_TILE_MMLA
            (void)kind;
            (void)low;
            tile_mmla(w, m, v, p, &tile, acc[t] + 16 * v);
#else
#define CALL(m) tile_part(w, kind, low, m, v, p, &tile, acc[t] + 16 * v)
            REST_SWITCH(m, CALL)
#undef CALL
#endif
        }
        tile.ahead += p->steps * tile.stride;
    }
}

/* Tokens [t0,t1) of np panels. A segment of all panels goes first, so that its activations stay near; a
 * part of a panel stays near for all tiles. */
INLINE void many(const struct tsr_cpu_linear *a, const enum run_kind kind, const int low,
                 const int wide, uint64_t panel, uint64_t np, uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               n = t1 - t0;
    const uint64_t rows = wide ? (n + ISA_TOKENS_MANY - 1) / ISA_TOKENS_MANY * ISA_TOKENS_MANY : n;
    /* no vector of them may cross a cache line */
    _Alignas(64) float level[GROUP][3][TOKENS_MAX][PANEL], odd[TOKENS_MAX][PANEL];
    struct part        p;
    uint64_t           first = 0;
    for (uint64_t s = 0; s < SEGMENTS; s++) {
        uint64_t last = first;
        while (last < w->nruns && w->runs[last].segment == s)
            last++;
        for (uint64_t i = 0; i < np; i++) {
            float(*acc)[PANEL] = s % 2 ? odd : level[i][0];
            memset(acc, 0, rows * sizeof acc[0]);
            for (p.run = first; p.run < last; p.run = p.end) {
                struct next next = { panel + i, 0 };
                part_take(w, wide, panel + i, &p);
                if (p.end < last)
                    next.run = p.end;
                else if (i + 1 < np)
                    next = (struct next){ panel + i + 1, first };
                else if (last < w->nruns)
                    next = (struct next){ panel, last };
                tiles_part(a, kind, low, wide, &p, panel + i, next, t0, t1, acc);
            }
            if (s == 7)
                tree(a, panel + i, t0, n, 3, odd, level[i]);
            else if (s == 3)
                tree(a, panel + i, t0, n, 2, odd, level[i]);
            else if (s % 2)
                tree(a, panel + i, t0, n, 1, odd, level[i]);
        }
        first = last;
    }
}

#endif
