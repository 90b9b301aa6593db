/* k_linear.c - LINEAR with F32 activations: chains of FMA, lanes are output rows. */
#include "k_ahead.h"
#include "k_codes.h"
#include "k_decl.h"
#include "k_tile.h"
#include "simd_rows.h"

#define AHEAD   4096u /* bytes between a prefetch and its use */
#define X_AHEAD 32u   /* columns between a prefetch of activations and their use */
/* Columns widened at once: 16 KiB, so that they stay in L1 together with the activations. */
#define COLS 128u

/* ---- widening: columns [k0,k1) of a panel to [k][PANEL] F32 ------------------ */

INLINE v16 wide(enum tsr_cpu_layout kind, const uint8_t *panel, uint64_t k, uint64_t half)
{
    uint64_t i = k * PANEL + 16 * half;
    if (kind == W_F32)
        return v_load((const float *)(const void *)panel + i);
    return kind == W_BF16 ? v_load_bf16(panel + 2 * i) : v_load_f16(panel + 2 * i);
}

/* One column of 16 rows: code j of four. */
INLINE void widen_one(i16v four, uint32_t j, i16v zero, v16 scale, float *dst)
{
    v_store(dst, v_mul(vi_cvt(vi_sub(vi_byte(four, j), zero)), scale));
}

INLINE void widen_codes(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t half, uint64_t k0,
                        uint64_t k1, const enum tsr_cpu_layout l, float *dst)
{
    const uint8_t *codes = w->codes + panel * w->panel_bytes + cpu_unit(l) * half;
    dst += 16 * half;
    for (uint64_t k = k0; k < k1;) {
        uint64_t g = k / w->group, end = (g + 1) * w->group < k1 ? (g + 1) * w->group : k1;
        uint64_t at = (panel * w->groups + g) * PANEL + 16 * half;
        v16      scale = group_scale(w, at);
        i16v     zero = w->zeros ? vi_load_u8(w->zeros + at) : vi_set1((int32_t)w->mid);
        for (; k < end && k % 4 != 0; k++, dst += PANEL)
            widen_one(four_at(l, codes, k), (uint32_t)(k % 4), zero, scale, dst);
        for (; k + 4 <= end; k += 4, dst += 4 * PANEL) {
            i16v v = four_at(l, codes, k);
            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                widen_one(v, j, zero, scale, dst + j * PANEL);
        }
        for (; k < end; k++, dst += PANEL)
            widen_one(four_at(l, codes, k), (uint32_t)(k % 4), zero, scale, dst);
    }
}

INLINE void widen_half_floats(enum tsr_cpu_layout kind, const uint8_t *p, uint64_t k0, uint64_t k1,
                              float *dst)
{
    for (uint64_t k = k0; k < k1; k++, dst += PANEL) {
        v_store(dst, wide(kind, p, k, 0));
        v_store(dst + 16, wide(kind, p, k, 1));
    }
}

static void widen(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                  float *dst)
{
    const uint8_t *p = w->codes + panel * w->panel_bytes;
    if (w->layout >= W_TAB) {
        K(widen_extra)(w, panel, k0, k1, dst);
        return;
    }
    if (w->affine) {
        K(widen_affine)(w, panel, k0, k1, dst);
        return;
    }
    if (w->mapped) {
        K(widen_mapped)(w, panel, k0, k1, dst);
        return;
    }
    if (w->layout == W_BF16) {
        widen_half_floats(W_BF16, p, k0, k1, dst);
        return;
    }
    if (w->layout == W_F16) {
        widen_half_floats(W_F16, p, k0, k1, dst);
        return;
    }
    for (uint64_t half = 0; half < 2; half++)
        switch (w->layout) {
        case W_I8:
            widen_codes(w, panel, half, k0, k1, W_I8, dst);
            break;
        case W_I6:
            widen_codes(w, panel, half, k0, k1, W_I6, dst);
            break;
        case W_I5:
            widen_codes(w, panel, half, k0, k1, W_I5, dst);
            break;
        case W_I4:
            widen_codes(w, panel, half, k0, k1, W_I4, dst);
            break;
        case W_I3:
            widen_codes(w, panel, half, k0, k1, W_I3, dst);
            break;
        case W_I2:
            widen_codes(w, panel, half, k0, k1, W_I2, dst);
            break;
        default:
            break;
        }
}

/* ---- tiles ----------------------------------------------------------------- */

/* m tokens by ISA_VECS vectors of rows, from the one at lane `at` of a panel, over n columns: acc[t][PANEL]
 * continues its chains, or begins them.  w is [k][PANEL], x is [k][m]. */
INLINE void tile_packed(const int m, enum tsr_cpu_layout kind, const uint8_t *w, uint64_t at,
                        const float *x, uint64_t n, int begins, float *acc)
{
#define TAKE(t)                                                                                    \
    v16 c##t##a = v_set1(0.0f);                                                                    \
    SECOND(v16 c##t##b = c##t##a;)                                                                 \
    if (t < m && !begins) {                                                                        \
        c##t##a = v_load(acc + t * PANEL);                                                         \
        SECOND(c##t##b = v_load(acc + t * PANEL + 16);)                                            \
    }
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        v16 xt = v_set1(x[t]);                                                                     \
        c##t##a = v_fma(xt, wa, c##t##a);                                                          \
        SECOND(c##t##b = v_fma(xt, wb, c##t##b);)                                                  \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        v_store(acc + t * PANEL, c##t##a);                                                         \
        SECOND(v_store(acc + t * PANEL + 16, c##t##b);)                                            \
    }
    TILE_EACH(TAKE)
    const uint64_t bytes = kind == W_F32 ? 4 * PANEL : 2 * PANEL; /* of a column */
    for (uint64_t k = 0; k < n; k++, w += bytes, x += m) {
        v16 wa = wide(kind, w, 0, at);
        SECOND(v16 wb = wide(kind, w, 0, at + 1);)
        v_prefetch(x + X_AHEAD * (uint64_t)m);
        if (kind != W_F32 && at == 0) /* not a block that was widened just now */
            v_prefetch(w + AHEAD);
        TILE_EACH(STEP)
    }
    TILE_EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
}

/* w: a block, [k][PANEL] F32. */
static void tile_any(uint64_t m, const float *w, const float *x, uint64_t n, int begins, float *acc)
{
    const uint8_t *b = (const uint8_t *)w;
    for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS) {
#define CALL(i) tile_packed(i, W_F32, b, v, x, n, begins, acc + 16 * v)
        TILE_SWITCH(m, CALL)
#undef CALL
    }
}

/* One tile in all: the weights are used once, so they are widened in registers. */
INLINE void tile_once(uint64_t m, enum tsr_cpu_layout kind, const uint8_t *w, const float *x,
                      uint64_t n, float *acc)
{
    for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS) {
#define CALL(i) tile_packed(i, kind, w, v, x, n, 1, acc + 16 * v)
        TILE_SWITCH(m, CALL)
#undef CALL
    }
}

/* Adds +0 and the bias, and stores 16 rows of one token, fewer at the end of the matrix. */
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

/* ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)); seg is [SEGMENTS][PANEL]. */
INLINE void finish(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t token, const float *seg)
{
    for (uint64_t half = 0; half < 2; half++) {
        v16 s[SEGMENTS];
        for (uint64_t i = 0; i < SEGMENTS; i++)
            s[i] = i < a->w->nseg ? v_load(seg + i * PANEL + 16 * half) : v_set1(0.0f);
        put(a, panel * PANEL + 16 * half, token,
            v_add(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])),
                  v_add(v_add(s[4], s[5]), v_add(s[6], s[7]))));
    }
}

/* Segment s of eight is done for one vector of rows: the tree as a binary counter, part[i]
 * holding sums of 2^i segments.  Returns the whole sum after the last. */
INLINE v16 tree_add(uint64_t s, v16 c, float part[3][GROUP][TOKENS_MAX][PANEL], uint64_t p,
                    uint64_t t, uint64_t lane)
{
    uint64_t level = 0;
    for (; s & 1; s >>= 1, level++)
        c = v_add(v_load(&part[level][p][t][lane]), c);
    if (level < 3)
        v_store(&part[level][p][t][lane], c);
    return c;
}

/* Sums of tokens: of one segment, and of those before it. */
struct sums {
    _Alignas(64) float cur[GROUP][TOKENS_MAX][PANEL]; /* no vector may cross a cache line */
    _Alignas(64) float part[3][GROUP][TOKENS_MAX][PANEL];
};

/* Segment s of panel + p is in cur. */
static void take_up(const struct tsr_cpu_linear *a, struct sums *u, uint64_t s, uint64_t panel,
                    uint64_t p, uint64_t t0, uint64_t t1)
{
    for (uint64_t t = t0; t < t1; t++)
        for (uint64_t half = 0; half < 2; half++) {
            v16 c = v_load(&u->cur[p][t - t0][16 * half]);
            c = tree_add(s, c, u->part, p, t - t0, 16 * half);
            if (s + 1 == SEGMENTS)
                put(a, (panel + p) * PANEL + 16 * half, t, c);
        }
}

/* At most one tile of tokens through weights of 16 bits: read once, in storage order. */
static void linear_once(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                        uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    struct sums                  u;
    for (uint64_t p = 0; p < np; p++) {
        const uint8_t *codes = w->codes + (panel + p) * w->panel_bytes;
        for (uint64_t s = 0; s < SEGMENTS; s++) {
            uint64_t     begin = s * w->seg < w->cols ? s * w->seg : w->cols;
            uint64_t     n = w->cols - begin < w->seg ? w->cols - begin : w->seg;
            const float *x = a->xpack + t0 * w->cols + begin * (t1 - t0);
            if (w->layout == W_BF16)
                tile_once(t1 - t0, W_BF16, codes + begin * 2 * PANEL, x, n, u.cur[p][0]);
            else
                tile_once(t1 - t0, W_F16, codes + begin * 2 * PANEL, x, n, u.cur[p][0]);
            take_up(a, &u, s, panel, p, t0, t1);
        }
    }
}

/* np panels at once, so that the activations of a block of columns are used np times from a
 * near cache. */
static void linear_tiles(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                         uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    struct sums                  u;
    _Alignas(64) float           block[COLS * PANEL];
    for (uint64_t s = 0; s < SEGMENTS; s++) {
        uint64_t begin = s * w->seg, end = begin + w->seg < w->cols ? begin + w->seg : w->cols;
        if (begin >= end)
            for (uint64_t p = 0; p < np; p++)
                memset(u.cur[p], 0, (t1 - t0) * sizeof u.cur[p][0]);
        for (uint64_t k = begin; k < end; k += COLS) {
            uint64_t n = end - k < COLS ? end - k : COLS;
            for (uint64_t p = 0; p < np; p++) {
                const uint8_t *codes = w->codes + (panel + p) * w->panel_bytes;
                const float   *b = block;
                struct ahead   f = look_ahead(w, panel + p, np, k, n, COLS);
                if (w->layout == W_F32)
                    b = (const float *)(const void *)codes + k * PANEL;
                else
                    widen(w, panel + p, k, k + n, block);
                for (uint64_t t = t0; t < t1; t += ISA_TOKENS) {
                    uint64_t m = a->tokens - t < ISA_TOKENS ? a->tokens - t : ISA_TOKENS;
                    fetch_share(&f, (t1 - t0 + ISA_TOKENS - 1) / ISA_TOKENS);
                    tile_any(m, b, a->xpack + t * w->cols + k * m, n, k == begin, u.cur[p][t - t0]);
                }
            }
        }
        for (uint64_t p = 0; p < np; p++)
            take_up(a, &u, s, panel, p, t0, t1);
    }
}

/* Column k of a panel; of BF16 in the order of v_load_rows_bf16(). */
INLINE void column(enum tsr_cpu_layout kind, const uint8_t *panel, uint64_t k, v16 *x, v16 *y)
{
    if (kind == W_BF16) {
        v_load_rows_bf16(panel + k * PANEL * 2, x, y);
        return;
    }
    *x = wide(kind, panel, k, 0);
    *y = wide(kind, panel, k, 1);
}

/* Sums of its rows. */
INLINE void store_rows(enum tsr_cpu_layout kind, float *to, v16 x, v16 y)
{
    if (kind == W_BF16)
        v_in_rows(&x, &y);
    v_store(to, x);
    v_store(to + 16, y);
}

/* Few tokens: the weights are read once, widened in registers, and in the order of memory.  Two segments side by side would
 * be twice as many chains of FMA, but from memory one stream is faster. */
INLINE void linear_few(const struct tsr_cpu_linear *a, uint64_t panel, enum tsr_cpu_layout kind,
                       const int m)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               bytes = kind == W_F32 ? 128 : 64; /* of a column */
    const uint8_t               *p = w->codes + panel * w->panel_bytes;
    _Alignas(64) float           seg[DIRECT_MAX][SEGMENTS][PANEL];
    for (uint64_t s = 0, k = 0; s < w->nseg; s++) {
        const uint64_t end = w->cols - k < w->seg ? w->cols : k + w->seg;
#define TAKE(t) v16 c##t##a = v_set1(0.0f), c##t##b = c##t##a;
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        v16 xt = v_set1(a->x[t * a->ldx + k]);                                                     \
        c##t##a = v_fma(xt, wa, c##t##a);                                                          \
        c##t##b = v_fma(xt, wb, c##t##b);                                                          \
    }
#define GIVE(t)                                                                                    \
    if (t < m)                                                                                     \
        store_rows(kind, seg[t][s], c##t##a, c##t##b);
        FEW_EACH(TAKE)
        for (; k < end; k++) {
            v16 wa, wb;
            column(kind, p, k, &wa, &wb);
            for (uint64_t line = 0; line < bytes; line += 64)
                v_prefetch(p + k * bytes + AHEAD + line);
            FEW_EACH(STEP)
        }
        FEW_EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
    }
    for (int t = 0; t < m; t++)
        finish(a, panel, (uint64_t)t, &seg[t][0][0]);
}

INLINE void linear_few_kind(const struct tsr_cpu_linear *a, uint64_t panel,
                            enum tsr_cpu_layout kind)
{
#define CALL(i) linear_few(a, panel, kind, i)
    FEW_SWITCH(a->tokens, CALL)
#undef CALL
}

void K(linear)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
               uint64_t t1)
{
    int halves = a->w->layout == W_BF16 || a->w->layout == W_F16;
    if (a->xpack && halves && t1 - t0 <= ISA_TOKENS) {
        linear_once(a, panel, np, t0, t1);
        return;
    }
    if (a->xpack) {
        linear_tiles(a, panel, np, t0, t1);
        return;
    }
    for (uint64_t p = panel; p < panel + np; p++)
        if (a->w->layout == W_F32)
            linear_few_kind(a, p, W_F32);
        else if (a->w->layout == W_BF16)
            linear_few_kind(a, p, W_BF16);
        else
            linear_few_kind(a, p, W_F16);
}
