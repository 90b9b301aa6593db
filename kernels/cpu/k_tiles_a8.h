/* k_tiles_a8.h - more tokens than a tile has, of int8 activations, through panels of codes: a part of a panel is
 * unpacked by the first tile and read by the others out of the first cache. */
#ifndef TSR_K_TILES_A8_H
#define TSR_K_TILES_A8_H

#include "k_part.h"
#include "k_tile_a8.h"

/* A tile of tokens in a part of a panel. */
struct part_tile {
    uint64_t       m;     /* its tokens */
    const int8_t  *q;     /* [k/4][m][4] from the part's first column on */
    const int32_t *sums;  /* [nruns][m]; of affine weights their F32 */
    const float   *sa;    /* [nblocks][m] */
    const uint8_t *ahead; /* codes of the next part, and how far apart from step to step */
    uint64_t       stride;
};

/* acc[m][PANEL] with the runs of a part, of ISA_VECS vectors of rows from vector v on. low: vi_dot4_low() may
 * multiply. The first tile of a part reads the weight, and leaves codes and scales in `p` as the others take
 * them; it has the most tokens, of which those that the tile does not have are computed and not used.
 *
 * Meanwhile it prefetches the tile's share of the next part's codes, spread out: a burst of prefetches
 * would stall the products. */
INLINE void tile_part(const struct tsr_cpu_weight *w, const enum tsr_cpu_layout l,
                      const enum run_kind kind, const int first, const int low, const int m,
                      const int v, struct part *p, const struct part_tile *tile, float *acc)
{
    const uint64_t stride = tile->stride, tokens = first ? tile->m : (uint64_t)m;
    const uint64_t unit = cpu_unit(l), step = cpu_step(l);
    const uint8_t *c = (first ? p->packed : p->codes) + (uint64_t)v * unit, *ahead = tile->ahead;
    uint8_t       *keep = p->buffer + 64 * v;
    const int8_t  *q = tile->q;
    const i16v     table = run_table(w, kind);
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
/* A step of the codes. */
#define STEPS                                                                                      \
    {                                                                                              \
        struct code_step ca = code_load(l, c);                                                     \
        SECOND(struct code_step cb = code_load(l, c + unit);)                                      \
        UNROLL                                                                                     \
        for (int j = 0; j < (int)step / 4; j++, q += 4 * tokens) {                                 \
            v_prefetch_l2(ahead);                                                                  \
            ahead += stride;                                                                       \
            i16v wa = run_four(kind, l, &ca, j, table);                                            \
            SECOND(i16v wb = run_four(kind, l, &cb, j, table);)                                    \
            if (l != W_I8) {                                                                       \
                vb_store(keep, wa);                                                                \
                SECOND(vb_store(keep + 64, wb);)                                                   \
                keep += 128;                                                                       \
            }                                                                                      \
            TILE8_EACH(STEP)                                                                       \
        }                                                                                          \
        c += 2 * unit;                                                                             \
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
        const int32_t            *sums = tile->sums + r * tokens;
        const float              *sa = tile->sa + u->block * tokens;
        const uint64_t group = (p->panel * w->groups + u->group) * PANEL + 16 * (uint64_t)v;
        float         *scale = &p->scale[r - p->run][16 * v];
        TILE8_EACH(TAKE)
        if (kind != RUN_AFFINE && w->zeros) {
            int32_t *zero = &p->zero[r - p->run][16 * v];
            i16v     za = first ? vi_load_u8(w->zeros + group) : vi_load(zero);
            SECOND(i16v zb = first ? vi_load_u8(w->zeros + group + 16) : vi_load(zero + 16);)
            if (first) {
                vb_store(zero, za);
                SECOND(vb_store(zero + 16, zb);)
            }
            TILE8_EACH(ZERO)
        }
        uint64_t steps = (u->k1 - u->k0 + step - 1) / step;
        for (; l == W_I8 && steps >= 2; steps -= 2) { /* fewer branches to predict */
            STEPS
            STEPS
        }
        for (; steps; steps--)
            STEPS
        float        *minimum = &p->minimum[r - p->run][16 * v];
        struct affine ga;
        SECOND(struct affine gb;)
        if (first) {
            ga = group_of(w, p->panel, u->group, (uint64_t)v, kind);
            v_store(scale, ga.scale);
            SECOND(gb = group_of(w, p->panel, u->group, (uint64_t)v + 1, kind);)
            SECOND(v_store(scale + 16, gb.scale);)
            if (kind == RUN_AFFINE) {
                v_store(minimum, ga.minimum);
                SECOND(v_store(minimum + 16, gb.minimum);)
            }
        } else {
            ga.scale = ga.minimum = v_load(scale);
            SECOND(gb.scale = gb.minimum = v_load(scale + 16);)
            if (kind == RUN_AFFINE) {
                ga.minimum = v_load(minimum);
                SECOND(gb.minimum = v_load(minimum + 16);)
            }
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
#undef STEPS
#undef FOLD
#undef GIVE
}

/* The first tile of a part: a function for each layout. */
#define FIRST(kind, l)                                                                             \
    static __attribute__((noinline)) void first_##kind##_##l(const struct tsr_cpu_weight *w,       \
                                                             struct part                 *p,       \
                                                             const struct part_tile      *tile,    \
                                                             float                       *acc)     \
    {                                                                                              \
        for (int v = 0; v < 2; v += ISA_VECS)                                                      \
            tile_part(w, l, kind, 1, is_low(kind, l), ISA_TOKENS8, v, p, tile, acc + 16 * v);      \
    }
FIRST(RUN_PLAIN, W_I8)
FIRST(RUN_PLAIN, W_I6)
FIRST(RUN_PLAIN, W_I5)
FIRST(RUN_PLAIN, W_I4)
FIRST(RUN_PLAIN, W_I3)
FIRST(RUN_PLAIN, W_I2)
FIRST(RUN_MAPPED, W_I8)
FIRST(RUN_MAPPED, W_I6)
FIRST(RUN_MAPPED, W_I4)
FIRST(RUN_MAPPED, W_I3)
FIRST(RUN_MAPPED, W_I2)
#if TSR_SIMD == 2
FIRST(RUN_LOW, W_I4)
FIRST(RUN_LOW, W_I3)
FIRST(RUN_LOW, W_I2)
#endif
FIRST(RUN_AFFINE, W_I8)
FIRST(RUN_AFFINE, W_I6)
FIRST(RUN_AFFINE, W_I5)
FIRST(RUN_AFFINE, W_I4)
FIRST(RUN_AFFINE, W_I3)
FIRST(RUN_AFFINE, W_I2)

typedef void (*tile_first)(const struct tsr_cpu_weight *w, struct part *p,
                           const struct part_tile *tile, float *acc);
static const tile_first first_of[4][W_I2 + 1] = {
    [RUN_PLAIN] = { [W_I8] = first_RUN_PLAIN_W_I8,
                    [W_I6] = first_RUN_PLAIN_W_I6,
                    [W_I5] = first_RUN_PLAIN_W_I5,
                    [W_I4] = first_RUN_PLAIN_W_I4,
                    [W_I3] = first_RUN_PLAIN_W_I3,
                    [W_I2] = first_RUN_PLAIN_W_I2 },
    [RUN_AFFINE] = { [W_I8] = first_RUN_AFFINE_W_I8,
                     [W_I6] = first_RUN_AFFINE_W_I6,
                     [W_I5] = first_RUN_AFFINE_W_I5,
                     [W_I4] = first_RUN_AFFINE_W_I4,
                     [W_I3] = first_RUN_AFFINE_W_I3,
                     [W_I2] = first_RUN_AFFINE_W_I2 },
    [RUN_MAPPED] = { [W_I8] = first_RUN_MAPPED_W_I8,
                     [W_I6] = first_RUN_MAPPED_W_I6,
                     [W_I4] = first_RUN_MAPPED_W_I4,
                     [W_I3] = first_RUN_MAPPED_W_I3,
                     [W_I2] = first_RUN_MAPPED_W_I2 },
#if TSR_SIMD == 2
    [RUN_LOW] = { [W_I4] = first_RUN_LOW_W_I4,
                  [W_I3] = first_RUN_LOW_W_I3,
                  [W_I2] = first_RUN_LOW_W_I2 },
#endif
};

/* All tokens [t0,t1) through a part: acc[t1 - t0][PANEL]. */
INLINE void tiles_part(const struct tsr_cpu_linear *a, const enum run_kind kind, const int low,
                       struct part *p, uint64_t panel, struct next next, uint64_t t0, uint64_t t1,
                       float (*acc)[PANEL])
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               s = w->runs[p->run].segment, columns = segment_columns(a, s);
    const uint64_t               n = t1 - t0, parts = (n + ISA_TOKENS8 - 1) / ISA_TOKENS8;
    const uint8_t               *ahead = codes_at(w, next.panel, w->runs[next.run].k0);
    struct part_tile             tile = { .stride = p->bytes / (p->steps * parts) + 1 };
    for (uint64_t t = 0, i = 0; t < n; t += ISA_TOKENS8, i++) {
        const uint64_t m = n - t < ISA_TOKENS8 ? n - t : ISA_TOKENS8;
        tile.m = m;
        tile.q = a->qpack + t0 * a->ldq + s * w->seg * n + t * columns + (p->k0 - s * w->seg) * m;
        tile.sums = a->sums + (t0 + t) * w->nruns;
        tile.sa = a->sa + (t0 + t) * w->nblocks;
        tile.ahead = ahead + p->bytes * i / parts;
        part_prefetch(w, p, next.panel, next.run, i, parts);
        for (uint64_t j = 0; s + 1 == w->nseg && j < m;
             j++) { /* rows of the outputs are far apart */
            const float *out = a->out + (t0 + t + j) * a->ldo + panel * PANEL;
            v_prefetch_l2(out);
            v_prefetch_l2(out + 16);
        }
        if (t == 0) {
            first_of[kind_of(w)][w->layout](w, p, &tile, acc[0]);
            continue;
        }
        for (int v = 0; v < 2; v += ISA_VECS) {
#define CALL(m) tile_part(w, W_I8, kind, 0, low, m, v, p, &tile, acc[t] + 16 * v)
            TILE8_SWITCH(m, CALL)
#undef CALL
        }
    }
}

/* Tokens [t0,t1) of np panels. A segment of all panels goes first, so that its activations stay near; a
 * part of a panel stays near for all tiles. */
INLINE void many(const struct tsr_cpu_linear *a, const enum run_kind kind, const int low,
                 uint64_t panel, uint64_t np, uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               n = t1 - t0;
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
            memset(acc, 0, (n < ISA_TOKENS8 ? ISA_TOKENS8 : n) * sizeof acc[0]);
            for (p.run = first; p.run < last; p.run = p.end) {
                struct next next = { panel + i, 0 };
                part_take(w, panel + i, &p);
                if (p.end < last)
                    next.run = p.end;
                else if (i + 1 < np)
                    next = (struct next){ panel + i + 1, first };
                else if (last < w->nruns)
                    next = (struct next){ panel, last };
                tiles_part(a, kind, low, &p, panel + i, next, t0, t1, acc);
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
