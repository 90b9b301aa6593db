/* k_tile_a8.h - few tiles of tokens of int8 activations through panels of codes: the loops of k_linear_a8.c and of
 * k_loops.h. More tokens go through k_tiles_a8.h. */
#ifndef TSR_K_TILE_A8_H
#define TSR_K_TILE_A8_H

#include "k_codes.h"
#include "k_decl.h"
#include "k_tile.h"

/* The columns of segment s, padded. */
INLINE uint64_t segment_columns(const struct tsr_cpu_linear *a, uint64_t s)
{
    uint64_t k = s * a->w->seg;
    return a->ldq - k < a->w->seg ? a->ldq - k : a->w->seg;
}

/* The block's sums f of token t, of affine weights, enter the chain acc; sa: its scale of each token. */
#define BLOCK_END(t)                                                                               \
    if (t < m) {                                                                                   \
        v16 s = v_set1(sa[t]);                                                                     \
        v_store(acc + t * PANEL, v_fma(f##t##a, s, v_load(acc + t * PANEL)));                      \
        f##t##a = v_set1(0.0f);                                                                    \
        SECOND(v_store(acc + t * PANEL + 16, v_fma(f##t##b, s, v_load(acc + t * PANEL + 16)));)    \
        SECOND(f##t##b = v_set1(0.0f);)                                                            \
    }

/* What of a linear one tile takes. */
struct tile {
    uint64_t      panel, run; /* the first run of the segment */
    const int8_t *q;          /* [k/4][m][4] from the segment's first column on */
    uint64_t      token;      /* the first of m */
    uint64_t      part, n;    /* it is this tile of n */
};

/* A segment of m tokens by ISA_VECS vectors of rows, from vector v on: acc [m][PANEL].
 *
 * Meanwhile it prefetches the tile's share of the next segment's codes, spread out: a burst of prefetches
 * would stall the products. */
INLINE void tile_segment(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l, const int m,
                         const int v, const enum run_kind kind, const struct tile *p, float *acc)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint32_t               segment = w->runs[p->run].segment, first = w->runs[p->run].k0;
    const uint64_t               step = cpu_step(l), unit = cpu_unit(l);
    const uint64_t bytes = segment_columns(a, segment) / step * 2 * unit, stride = 64 / p->n + 1;
    const uint8_t *c =
        w->codes + p->panel * w->panel_bytes + first / step * 2 * unit + (uint64_t)v * unit;
    const uint8_t *ahead = c + bytes + bytes * p->part / p->n;
    const int8_t  *q = p->q;
    const i16v     table = run_table(w, kind);
#define BEGIN(t)                                                                                   \
    v16 f##t##a = v_set1(0.0f);                                                                    \
    SECOND(v16 f##t##b = f##t##a;)
#define TAKE(t)                                                                                    \
    i16v c##t##a = vi_zero();                                                                      \
    SECOND(i16v c##t##b = c##t##a;)                                                                \
    if (t < m && kind != RUN_AFFINE) {                                                             \
        c##t##a = vi_set1(sums[t]);                                                                \
        SECOND(c##t##b = c##t##a;)                                                                 \
    }
#define ZERO(t)                                                                                    \
    if (t < m) {                                                                                   \
        c##t##a = vi_mul(c##t##a, za);                                                             \
        SECOND(c##t##b = vi_mul(c##t##b, zb);)                                                     \
    }
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t);                                                               \
        c##t##a = run_dot(kind, l, c##t##a, wa, x);                                                \
        SECOND(c##t##b = run_dot(kind, l, c##t##b, wb, x);)                                        \
    }
#define FOLD(t)                                                                                    \
    if (t < m) {                                                                                   \
        if (kind == RUN_AFFINE) {                                                                  \
            v16 sum = vi_cvt(vi_set1(sums[t]));                                                    \
            f##t##a = v_fma(sum, ga.minimum, v_fma(vi_cvt(c##t##a), sw, f##t##a));                 \
            SECOND(f##t##b = v_fma(sum, gb.minimum, v_fma(vi_cvt(c##t##b), sv, f##t##b));)         \
        } else {                                                                                   \
            v16 s = v_set1(sa[t]);                                                                 \
            f##t##a = v_fma(vi_cvt(c##t##a), v_mul(sw, s), f##t##a);                               \
            SECOND(f##t##b = v_fma(vi_cvt(c##t##b), v_mul(sv, s), f##t##b);)                       \
        }                                                                                          \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        v_store(acc + t * PANEL, f##t##a);                                                         \
        SECOND(v_store(acc + t * PANEL + 16, f##t##b);)                                            \
    }
    for (uint64_t t = 0; kind == RUN_AFFINE && t < (uint64_t)m; t++) {
        v_store(acc + t * PANEL, v_set1(0.0f));
        SECOND(v_store(acc + t * PANEL + 16, v_set1(0.0f));)
    }
    TILE8_EACH(BEGIN)
    for (uint64_t r = p->run; r < w->nruns && w->runs[r].segment == segment; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const uint64_t            at = (p->panel * w->groups + u->group) * PANEL + 16 * (uint64_t)v;
        const int32_t            *sums = a->sums + p->token * w->nruns + r * (uint64_t)m;
        const float              *sa = a->sa + p->token * w->nblocks + u->block * (uint64_t)m;
        TILE8_EACH(TAKE)
        if (kind != RUN_AFFINE && w->zeros) {
            i16v za = vi_load_u8(w->zeros + at);
            SECOND(i16v zb = vi_load_u8(w->zeros + at + 16);)
            TILE8_EACH(ZERO)
        }
        for (uint64_t k = u->k0; k < u->k1; k += step, c += 2 * unit) {
            UNROLL
            for (uint64_t line = 0; line < 2 * unit; line += 64, ahead += stride)
                v_prefetch_l2(ahead);
            struct code_step ca = code_load(l, c);
            SECOND(struct code_step cb = code_load(l, c + unit);)
            UNROLL
            for (int j = 0; j < (int)step / 4; j++, q += 4 * m) {
                i16v wa = run_four(kind, l, &ca, j, table);
                SECOND(i16v wb = run_four(kind, l, &cb, j, table);)
                TILE8_EACH(STEP)
            }
        }
        struct affine ga = group_of(w, p->panel, u->group, (uint64_t)v, kind);
        SECOND(struct affine gb = group_of(w, p->panel, u->group, (uint64_t)v + 1, kind);)
        v16 sw = ga.scale;
        SECOND(v16 sv = gb.scale;)
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
#undef FOLD
#undef GIVE
}

INLINE void put(const struct tsr_cpu_linear *a, uint64_t row, uint64_t token, v16 y)
{
    if (row >= a->w->rows)
        return;
    uint64_t n = a->w->rows - row < 16 ? a->w->rows - row : 16;
    y = v_add(y, v_set1(0.0f));
    if (a->bias)
        y = v_add(y, v_loadn(a->bias + row, n));
    v_storen(a->out + token * a->ldo + row, y, n);
}

/* The tree of segment sums grows as a binary counter, level[i] holding sums of 2^i of them: the sum c of an odd
 * segment meets those of `levels` levels. */
INLINE void tree(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t n,
                 const uint64_t levels, float (*c)[PANEL], float (*level)[TOKENS_MAX][PANEL])
{
    for (uint64_t t = 0; t < n; t++)
        for (uint64_t lane = 0; lane < PANEL; lane += 16) {
            v16 sum = v_load(&c[t][lane]);
            UNROLL
            for (uint64_t i = 0; i < levels; i++)
                sum = v_add(v_load(&level[i][t][lane]), sum);
            if (levels < 3)
                v_store(&level[levels][t][lane], sum);
            else
                put(a, panel * PANEL + lane, t0 + t, sum);
        }
}

/* Tokens [t0,t1) of one panel.  Segments outside, so that their codes stay near for all tiles;
 * the tree of segment sums grows as a binary counter, part[i] holding sums of 2^i of them. */
INLINE void tiles(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l,
                  const enum run_kind kind, uint64_t panel, uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               n = t1 - t0;
    /* no vector of them may cross a cache line */
    _Alignas(64) float part[3][TOKENS_MAX][PANEL], acc[ISA_TOKENS8][PANEL];
    struct tile        p = { .panel = panel, .n = (n + ISA_TOKENS8 - 1) / ISA_TOKENS8 };
    for (uint64_t s = 0; s < SEGMENTS; s++) {
        const uint64_t columns = s < w->nseg ? segment_columns(a, s) : 0;
        for (uint64_t t = 0; t < n; t += ISA_TOKENS8) {
            const uint64_t m = n - t < ISA_TOKENS8 ? n - t : ISA_TOKENS8;
            p.q = a->qpack + t0 * a->ldq + s * w->seg * n + t * columns;
            p.token = t0 + t;
            p.part = t / ISA_TOKENS8;
            for (int v = 0; s < w->nseg && v < 2; v += ISA_VECS) {
#define CALL(i) tile_segment(a, l, i, v, kind, &p, acc[0] + 16 * v)
                STORED_SWITCH(m, CALL)
#undef CALL
            }
            for (uint64_t i = 0; i < m; i++)
                for (uint64_t lane = 0; lane < PANEL; lane += 16) {
                    v16      c = s < w->nseg ? v_load(&acc[i][lane]) : v_set1(0.0f);
                    uint64_t level = 0;
                    for (uint64_t b = s; b & 1; b >>= 1, level++)
                        c = v_add(v_load(&part[level][t + i][lane]), c);
                    if (level < 3)
                        v_store(&part[level][t + i][lane], c);
                    else
                        put(a, panel * PANEL + lane, t0 + t + i, c);
                }
        }
        while (p.run < w->nruns && w->runs[p.run].segment == s)
            p.run++;
    }
}

#endif
