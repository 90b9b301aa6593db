/* k_linear_a8.c - LINEAR with int8 activations on packed integer weights, many tokens: tiles of
 * rows by tokens.  Exact integer sums per run, then one FMA by weight scale times activation
 * scale (docs/decisions/numerics.md). */
#include "k_codes.h"
#include "k_decl.h"
#include "k_tile.h"

/* What a tile of one panel needs of one run. */
struct part {
    const uint8_t *codes; /* at the run's first step */
    const int8_t  *q;     /* [k/4][m][4] from the run's first column */
    const int32_t *sums;  /* [m] */
    const float   *sa;    /* [m] */
    const uint8_t *zeros; /* [PANEL] or NULL */
    v16            scale[2];
    uint64_t       steps;
};

/* m tokens by ISA_VECS vectors of rows: acc [m][PANEL] = FMA of the run onto from [m][PANEL]. */
INLINE void tile_run(const enum tsr_cpu_layout l, const int m, const struct part *p, const int v,
                     const float *from, float *acc)
{
    const uint64_t unit = cpu_unit(l);
    const uint8_t *c = p->codes + (uint64_t)v * unit;
    const int8_t  *q = p->q;
    const v16      sw = p->scale[v];
    SECOND(const v16 sv = p->scale[1];)
#define TAKE(t)                                                                                    \
    i16v c##t##a = vi_zero();                                                                      \
    SECOND(i16v c##t##b = c##t##a;)                                                                \
    if (t < m) {                                                                                   \
        c##t##a = vi_set1(p->sums[t]);                                                             \
        SECOND(c##t##b = c##t##a;)                                                                 \
    }
#define ZERO(t)                                                                                    \
    if (t < m) {                                                                                   \
        c##t##a = vi_mul(c##t##a, za);                                                             \
        SECOND(c##t##b = vi_mul(c##t##b, zb);)                                                     \
    }
#define DOT(acc, w, x) (l == W_I8 ? vi_dot4(acc, w, x) : vi_dot4_low(acc, w, x))
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t);                                                               \
        c##t##a = DOT(c##t##a, wa, x);                                                             \
        SECOND(c##t##b = DOT(c##t##b, wb, x);)                                                     \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        v16 s = v_set1(p->sa[t]);                                                                  \
        v_store(acc + t * PANEL, v_fma(vi_cvt(c##t##a), v_mul(sw, s), v_load(from + t * PANEL)));  \
        SECOND(v_store(acc + t * PANEL + 16,                                                       \
                       v_fma(vi_cvt(c##t##b), v_mul(sv, s), v_load(from + t * PANEL + 16)));)      \
    }
    TILE8_EACH(TAKE)
    if (p->zeros) {
        i16v za = vi_load_u8(p->zeros + 16 * v);
        SECOND(i16v zb = vi_load_u8(p->zeros + 16);)
        TILE8_EACH(ZERO)
    }
    for (uint64_t k = 0; k < p->steps; k++, c += 2 * unit) {
        UNROLL
        for (int j = 0; j < (int)cpu_step(l) / 4; j++, q += 4 * m) {
            i16v wa = code_four(l, c, j);
            SECOND(i16v wb = code_four(l, c + unit, j);)
            TILE8_EACH(STEP)
        }
    }
    TILE8_EACH(GIVE)
#undef TAKE
#undef ZERO
#undef DOT
#undef STEP
#undef GIVE
}

/* One segment of a panel for m tokens, t0 + first of the whole: acc [m][PANEL]. */
INLINE void tile_segment(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l, const int m,
                         uint64_t panel, uint64_t r, const int8_t *q, uint64_t token, float *acc)
{
    static const float           nothing[ISA_TOKENS8][PANEL];
    const struct tsr_cpu_weight *w = a->w;
    const uint32_t               segment = w->runs[r].segment, k0 = w->runs[r].k0;
    const uint64_t               step = cpu_step(l), unit = cpu_unit(l);
    const float                 *from = nothing[0];
    for (; r < w->nruns && w->runs[r].segment == segment; r++, from = acc) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const uint64_t            at = (panel * w->groups + u->group) * PANEL;
        const struct part         p = {
                    .codes = w->codes + panel * w->panel_bytes + u->k0 / step * 2 * unit,
                    .q = q + (uint64_t)(u->k0 - k0) * (uint64_t)m,
                    .sums = a->sums + r * a->tokens + token,
                    .sa = a->sa + u->block * a->tokens + token,
                    .zeros = w->zeros ? w->zeros + at : NULL,
                    .scale = { group_scale(w, at), group_scale(w, at + 16) },
                    .steps = (u->k1 - u->k0 + step - 1) / step,
        };
        for (int v = 0; v < 2; v += ISA_VECS)
            tile_run(l, m, &p, v, from + 16 * v, acc + 16 * v);
    }
}

/* The columns of segment s, padded. */
INLINE uint64_t segment_columns(const struct tsr_cpu_linear *a, uint64_t s)
{
    uint64_t k = s * a->w->seg;
    return a->ldq - k < a->w->seg ? a->ldq - k : a->w->seg;
}

/* Brings part i of n of the codes of segment s (nseg: of the panel after) near. */
INLINE void prefetch_part(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l,
                          uint64_t panel, uint64_t s, uint64_t i, uint64_t n)
{
    const struct tsr_cpu_weight *w = a->w;
    if (s == w->nseg) {
        panel++;
        s = 0;
    }
    if (panel >= w->panels)
        return;
    uint64_t       bytes = segment_columns(a, s) / cpu_step(l) * 2 * cpu_unit(l);
    uint64_t       begin = bytes * i / n / 64 * 64, end = bytes * (i + 1) / n;
    const uint8_t *c =
        w->codes + panel * w->panel_bytes + s * w->seg / cpu_step(l) * 2 * cpu_unit(l);
    for (uint64_t b = begin; b < end; b += 64)
        v_prefetch_l2(c + b);
}

INLINE void put(const struct tsr_cpu_linear *a, uint64_t row, uint64_t token, v16 y)
{
    if (row >= a->w->rows)
        return;
    uint64_t n = a->w->rows - row < 16 ? a->w->rows - row : 16;
    if (a->bias)
        y = v_add(y, v_loadn(a->bias + row, n));
    v_storen(a->out + token * a->ldo + row, y, n);
}

/* Tokens [t0,t1) of one panel.  Segments outside, so that their codes stay near for all tiles;
 * the tree of segment sums grows as a binary counter, part[i] holding sums of 2^i of them. */
INLINE void tiles(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l, uint64_t panel,
                  uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               n = t1 - t0, parts = (n + ISA_TOKENS8 - 1) / ISA_TOKENS8;
    const int8_t                *chunk = a->qpack + t0 * a->ldq;
    float                        part[3][TOKENS_MAX][PANEL], acc[ISA_TOKENS8][PANEL];
    uint64_t                     r = 0;
    for (uint64_t s = 0; s < SEGMENTS; s++) {
        const uint64_t columns = s < w->nseg ? segment_columns(a, s) : 0;
        for (uint64_t t = 0; t < n; t += ISA_TOKENS8) {
            const uint64_t m = n - t < ISA_TOKENS8 ? n - t : ISA_TOKENS8;
            const int8_t  *q = chunk + s * w->seg * n + t * columns;
            if (s < w->nseg) {
                prefetch_part(a, l, panel, s + 1, t / ISA_TOKENS8, parts);
#define CALL(i) tile_segment(a, l, i, panel, r, q, t0 + t, acc[0])
                TILE8_SWITCH(m, CALL)
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
        while (r < w->nruns && w->runs[r].segment == s)
            r++;
    }
}

/* One function per layout, each with its own frame. */
#define TILES(l)                                                                                   \
    static void tiles_##l(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0,             \
                          uint64_t t1)                                                             \
    {                                                                                              \
        tiles(a, l, panel, t0, t1);                                                                \
    }
TILES(W_I8)
TILES(W_I4)
TILES(W_I3)
TILES(W_I2)

void K(linear_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1)
{
    for (uint64_t p = panel; p < panel + np; p++)
        if (!a->qpack)
            K(few_a8)(a, p, t0, t1);
        else if (a->w->layout == W_I4)
            tiles_W_I4(a, p, t0, t1);
        else if (a->w->layout == W_I3)
            tiles_W_I3(a, p, t0, t1);
        else if (a->w->layout == W_I2)
            tiles_W_I2(a, p, t0, t1);
        else
            tiles_W_I8(a, p, t0, t1);
}
