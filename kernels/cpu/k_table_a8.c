/* k_table_a8.c - LINEAR with int8 activations on weights that are looked up: a block of codes
 * becomes bytes in the first cache, then integer sums and one FMA a run, as for integer weights. */
#include "extra.h"
#include "k_decl.h"
#include "simd_bytes.h"

#include "k_tile_i8.h"

void K(table_prepare)(const struct tsr_cpu_weight *w, const float *x, int8_t *q, uint64_t ldq,
                      float *sa, int32_t *sums, uint64_t stride)
{
    uint64_t b = 0;
    for (uint64_t s = 0; s < w->cols; s += w->seg) {
        uint64_t end = w->cols - s < w->seg ? w->cols : s + w->seg;
        for (uint64_t k = s; k < end; k += BLOCK)
            sa[b++ * stride] = K(codes_i8)(q + k, x + k, end - k < BLOCK ? end - k : BLOCK);
    }
    memset(q + w->cols, 0, ldq - w->cols);
    for (uint64_t r = 0; r < w->nruns && w->layout == W_TAB; r++) {
        int32_t sum = 0;
        for (uint32_t k = w->runs[r].k0; k < w->runs[r].k1; k++)
            sum += q[k];
        sums[r * stride] = -128 * sum;
    }
}

/* Columns [k0,k1), at most BLOCK and from a step on, to [k/4][2][16 rows][4 k]. */
static void expand_nibbles(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                           uint8_t *dst)
{
    const struct tsr_cpu_extra *e = &w->extra;
    const uint8_t              *p = w->codes + panel * w->panel_bytes + k0 / TABLE_STEP * 512;
    const uint8_t              *t8 = e->table8 + (e->shared ? 0 : panel * 512);
    for (uint64_t half = 0; half < 2; half++) {
        i16v t[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            t[i] = vi_load(t8 + (e->shared ? 0 : half * 256 + 64 * (uint64_t)i));
        const uint8_t *s = p + 256 * half;
        uint8_t       *d = dst + 64 * half;
        for (uint64_t k = k0; k < k1; k += TABLE_STEP, s += 512, d += 1024) {
            i16v lo[4], hi[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                i16v c = vi_load(s + 64 * i);
                lo[i] = vb_lookup(t[i], vb_nibble(c, 0));
                hi[i] = vb_lookup(t[i], vb_nibble(c, 1));
            }
            v_prefetch(s + 4096);
            v_prefetch(s + 4096 + 64);
            v_prefetch(s + 4096 + 128);
            v_prefetch(s + 4096 + 192);
            vb_transpose4(lo);
            vb_transpose4(hi);
            UNROLL
            for (int i = 0; i < 4; i++) {
                vb_store(d + 128 * i, lo[i]);
                vb_store(d + 512 + 128 * i, hi[i]);
            }
        }
    }
}

static void expand_bytes(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                         uint8_t *dst)
{
    for (uint64_t r = 0; r < PANEL; r++) {
        const uint8_t *t = w->extra.table8 + (panel * PANEL + r) * 256;
        const uint8_t *p =
            w->codes + panel * w->panel_bytes + (r / 16 * 4 + r % 4) * 64 + r % 16 / 4 * 16;
        uint8_t *d = dst + r / 16 * 64 + r % 16 * 4;
        for (uint64_t k = k0; k < k1; k++)
            d[(k - k0) / 4 * 128 + (k - k0) % 4] = t[p[k / 16 * 512 + k % 16]];
    }
}

/* One run, expanded to `bytes`, for all tokens of the chunk. */
static void fold_run(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t r,
                     const uint8_t *bytes, uint64_t t0, uint64_t t1, float acc[][PANEL])
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *u = &w->runs[r];
    const uint64_t               steps = (u->k1 - u->k0 + 3) / 4;
    uint64_t                     at = (panel * w->groups + u->group) * PANEL;
    for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS, at += 16 * ISA_VECS) {
        v16 sw[ISA_VECS];
        UNROLL
        for (uint64_t i = 0; i < ISA_VECS; i++)
            sw[i] = w->extra.shared ? v_load_bf16(w->scales + 2 * (at + 16 * i))
                                    : v_load((const float *)(const void *)w->scales + at + 16 * i);
        for (uint64_t t = t0; t < t1; t += ISA_TOKENS8) {
            const uint64_t m = a->tokens - t < ISA_TOKENS8 ? a->tokens - t : ISA_TOKENS8;
            const int8_t  *q = a->q + t * a->ldq + u->k0 * m;
            const int32_t *start = a->sums + r * a->tokens + t;
            const float   *sa = a->sa + u->block * a->tokens + t;
            float         *to = &acc[t - t0][16 * v];
#define CALL(i) i8_run(i, bytes + 64 * v, q, steps, start, sa, sw, to)
            TILE8_SWITCH(m, CALL)
#undef CALL
        }
    }
}

/* One run of m tokens for 16 rows, looked up and multiplied in registers: q is [k/4][m][4], the run begins
 * on a step, and columns past its end have zeros in q. */
INLINE void few_run(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t half, uint64_t r,
                    const i16v table[4], const int m, float acc[][PANEL])
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *u = &w->runs[r];
    const uint8_t *p = w->codes + panel * w->panel_bytes + u->k0 / TABLE_STEP * 512 + 256 * half;
    const int8_t  *q = a->q + u->k0 * (uint64_t)m;
    uint64_t       at = (panel * w->groups + u->group) * PANEL + 16 * half;
#define TAKE(t)                                                                                    \
    i16v c##t = t < m ? vi_set1(a->sums[r * a->tokens + t]) : vi_zero(), d##t = vi_zero();
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        c##t = vi_dot4(c##t, lo[i], vi_four(q + 4 * (i * m + t)));                                 \
        d##t = vi_dot4(d##t, hi[i], vi_four(q + 4 * ((4 + i) * m + t)));                           \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        v16 s = v_mul(sw, v_set1(a->sa[u->block * a->tokens + t]));                                \
        v_store(acc[t] + 16 * half,                                                                \
                v_fma(vi_cvt(vi_add(c##t, d##t)), s, v_load(acc[t] + 16 * half)));                 \
    }
    FEW_EACH(TAKE)
    for (uint64_t k = u->k0; k < u->k1; k += TABLE_STEP, p += 512, q += TABLE_STEP * (uint32_t)m) {
        i16v lo[4], hi[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            i16v codes = vi_load(p + 64 * i);
            v_prefetch(p + 64 * i + 4096);
            lo[i] = vb_lookup(table[i], vb_nibble(codes, 0));
            hi[i] = vb_lookup(table[i], vb_nibble(codes, 1));
        }
        vb_transpose4(lo);
        vb_transpose4(hi);
        UNROLL
        for (int i = 0; i < 4; i++) {
            FEW_EACH(STEP)
        }
    }
    v16 sw = w->extra.shared ? v_load_bf16(w->scales + 2 * at)
                             : v_load((const float *)(const void *)w->scales + at);
    FEW_EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
}

INLINE void few(const struct tsr_cpu_linear8 *a, uint64_t panel, const int m, struct sums seg)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint8_t               *t8 = w->extra.table8 + (w->extra.shared ? 0 : panel * 512);
    /* the halves of a run one after the other: their bytes are interleaved */
    for (uint64_t r = 0; r < w->nruns; r++)
        for (uint64_t half = 0; half < 2; half++) {
            i16v table[4];
            UNROLL
            for (int i = 0; i < 4; i++)
                table[i] = vi_load(t8 + (w->extra.shared ? 0 : half * 256 + 64 * (uint64_t)i));
            few_run(a, panel, half, r, table, m, sums_of(seg, w->runs[r].segment));
        }
}

static void many(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1,
                 struct sums seg)
{
    const struct tsr_cpu_weight *w = a->w;
    uint8_t                      bytes[BLOCK * PANEL] __attribute__((aligned(64)));
    for (uint64_t r = 0; r < w->nruns;) {
        uint64_t last = r;
        while (last + 1 < w->nruns && w->runs[last + 1].block == w->runs[r].block)
            last++;
        const uint64_t k0 = w->runs[r].k0;
        if (w->extra.byte_codes)
            expand_bytes(w, panel, k0, w->runs[last].k1, bytes);
        else
            expand_nibbles(w, panel, k0, w->runs[last].k1, bytes);
        for (; r <= last; r++)
            fold_run(a, panel, r, bytes + (w->runs[r].k0 - k0) * PANEL, t0, t1,
                     sums_of(seg, w->runs[r].segment));
    }
}

#define AHEAD_ROWS 2u

/* Adds a panel's outliers to the segments' sums: o = FMA(x[k], d, o) from +0, acc + o. The loops over a
 * row's outliers have one length, independent of segments, so that branches are predictable. */
static void outliers_of_one(const struct tsr_cpu_linear8 *a, uint64_t panel, const float *x,
                            struct sums seg, uint64_t t)
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_extra  *e = &w->extra;
    const uint64_t               n = e->outliers, row = panel * PANEL;
    float                        o[SEGMENTS][PANEL] = { { 0 } };
    for (uint64_t r = 0; r < PANEL; r++) {
        const uint32_t *column = e->column + (row + r) * n;
        const float    *delta = e->delta + (row + r) * n;
        const uint8_t  *where = e->where + (row + r) * n;
        for (uint64_t i = 0; i < n; i++)
            o[where[i]][r] = __builtin_fmaf(x[column[i]], delta[i], o[where[i]][r]);
    }
    for (uint64_t s = 0; s < w->nseg; s++)
        for (uint64_t h = 0; h < PANEL; h += 16)
            v_store(&sums_of(seg, s)[t][h],
                    v_add(v_load(&sums_of(seg, s)[t][h]), v_load(&o[s][h])));
}

/* m tokens, at most 16: lanes are tokens until the sums are whole.  xt is [k][stride]. */
static void outliers_of_many(const struct tsr_cpu_linear8 *a, uint64_t panel, const float *xt,
                             uint64_t stride, uint64_t m, struct sums seg, uint64_t t)
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_extra  *e = &w->extra;
    const uint64_t               n = e->outliers;
    for (uint64_t h = 0; h < PANEL; h += 16) {
        v16 o[SEGMENTS][16];
        for (uint64_t s = 0; s < w->nseg; s++)
            for (uint64_t r = 0; r < 16; r++)
                o[s][r] = v_set1(0.0f);
        for (uint64_t r = 0; r < 16; r++) {
            const uint64_t  at = (panel * PANEL + h + r) * n;
            const uint32_t *column = e->column + at;
            for (uint64_t i = 0; i < n; i++) { /* some rows ahead, into the first cache */
                if (at + i + AHEAD_ROWS * n < w->panels * PANEL * n)
                    v_prefetch(xt + column[i + AHEAD_ROWS * n] * stride);
                v16 *c = &o[e->where[at + i]][r];
                *c = v_fma(v_loadn(xt + column[i] * stride, m), v_set1(e->delta[at + i]), *c);
            }
        }
        for (uint64_t s = 0; s < w->nseg; s++) {
            v_transpose16(o[s]);
            for (uint64_t i = 0; i < m; i++) {
                float *p = &sums_of(seg, s)[t + i][h];
                v_store(p, v_add(v_load(p), o[s][i]));
            }
        }
    }
}

static void add_outliers(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1,
                         struct sums seg)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               chunk = t0 / TOKENS_MAX * TOKENS_MAX;
    const uint64_t stride = a->tokens - chunk < TOKENS_MAX ? a->tokens - chunk : TOKENS_MAX;
    const float   *xt = a->xt + chunk * w->cols + (t0 - chunk);
    if (a->tokens == 1) {
        outliers_of_one(a, panel, xt, seg, 0);
        return;
    }
    for (uint64_t t = 0; t < t1 - t0; t += 16)
        outliers_of_many(a, panel, xt + t, stride, t1 - t0 - t < 16 ? t1 - t0 - t : 16, seg, t);
}

/* Outliers, the tree and the bias. */
static void finish(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1,
                   struct sums seg)
{
    if (a->w->extra.outliers)
        add_outliers(a, panel, t0, t1, seg);
    i8_finish(a, panel, t0, t1, seg);
}

/* A large frame is touched page by page on entry: decode has its own. */
static __attribute__((noinline)) void large(const struct tsr_cpu_linear8 *a, uint64_t panel,
                                            uint64_t t0, uint64_t t1)
{
    float             v[SEGMENTS * TOKENS_MAX][PANEL];
    const struct sums seg = { v, t1 - t0 };
    memset(v, 0, SEGMENTS * (t1 - t0) * sizeof v[0]);
    many(a, panel, t0, t1, seg);
    finish(a, panel, t0, t1, seg);
}

static __attribute__((noinline)) void small(const struct tsr_cpu_linear8 *a, uint64_t panel)
{
    float             v[SEGMENTS * DIRECT_MAX][PANEL];
    const struct sums seg = { v, a->tokens };
    memset(v, 0, SEGMENTS * a->tokens * sizeof v[0]);
#define CALL(i) few(a, panel, i, seg)
    FEW_SWITCH(a->tokens, CALL)
#undef CALL
    finish(a, panel, 0, a->tokens, seg);
}

void K(table_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    if (a->tokens <= DIRECT_MAX && a->w->aligned && !a->w->extra.byte_codes)
        small(a, panel);
    else
        large(a, panel, t0, t1);
}
