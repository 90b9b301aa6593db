/* k_linear_a8.c - LINEAR with int8 activations on packed integer weights: exact integer sums
 * per run, then one FMA by weight scale times activation scale. */
#include "k_decl.h"

INLINE v16 group_scale(const struct tsr_cpu_weight *w, uint64_t at)
{
    return w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                        : v_load((const float *)(const void *)w->scales + at);
}

INLINE int32_t get_i32(const int8_t *p)
{
    int32_t i;
    memcpy(&i, p, 4);
    return i;
}

/* acc = FMA((float)(I - zero * sum), scale * sa, acc) */
INLINE v16 fold(v16 acc, i16v sum, i16v zero, int32_t qsum, v16 scale, float sa)
{
    v16 i = vi_cvt(vi_sub(sum, vi_mul(zero, vi_set1(qsum))));
    return v_fma(i, v_mul(scale, v_set1(sa)), acc);
}

INLINE void finish(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t half, uint64_t token,
                   const v16 s[SEGMENTS])
{
    uint64_t row = panel * PANEL + 16 * half;
    if (row >= a->w->rows)
        return;
    uint64_t n = a->w->rows - row < 16 ? a->w->rows - row : 16;
    v16      y = v_add(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])),
                       v_add(v_add(s[4], s[5]), v_add(s[6], s[7])));
    if (a->bias)
        y = v_add(y, v_loadn(a->bias + row, n));
    v_storen(a->out + token * a->ldo + row, y, n);
}

/* The integer sums of columns [k0,k1), both on a step of the codes or at the end of the row,
 * for m tokens: q is [tokens][ldq] from column k0. */
INLINE void sums_direct(const int low, const int m, const uint8_t *codes, const int8_t *q,
                        uint64_t ldq, uint64_t k0, uint64_t k1, i16v I[DIRECT_MAX][2])
{
    const uint64_t step = low ? 8 : 4;
    i16v           J[DIRECT_MAX][2];
    UNROLL
    for (int t = 0; t < m; t++)
        I[t][0] = I[t][1] = J[t][0] = J[t][1] = vi_zero();
    const uint8_t *c = codes + k0 / step * 128;
    for (uint64_t k = k0; k < k1; k += step, c += 128, q += step) {
        i16v w0 = vi_load(c), w1 = vi_load(c + 64);
        v_prefetch(c + 4096);
        v_prefetch(c + 4096 + 64);
        UNROLL
        for (int t = 0; t < m; t++) {
            int32_t x = get_i32(q + (uint64_t)t * ldq);
            if (low) {
                int32_t y = get_i32(q + (uint64_t)t * ldq + 4);
                I[t][0] = vi_dot4_low(I[t][0], vi_nib_lo(w0), x);
                I[t][1] = vi_dot4_low(I[t][1], vi_nib_lo(w1), x);
                J[t][0] = vi_dot4_low(J[t][0], vi_nib_hi(w0), y);
                J[t][1] = vi_dot4_low(J[t][1], vi_nib_hi(w1), y);
            } else {
                I[t][0] = vi_dot4(I[t][0], w0, x);
                I[t][1] = vi_dot4(I[t][1], w1, x);
            }
        }
    }
    if (low)
        UNROLL
        for (int t = 0; t < m; t++) {
            I[t][0] = vi_add(I[t][0], J[t][0]);
            I[t][1] = vi_add(I[t][1], J[t][1]);
        }
}

/* A run that does not begin or end on a step: its activations are copied between zeros, which
 * add nothing. */
INLINE void sums_ragged(const int low, const uint8_t *codes, const int8_t *q, uint64_t k0,
                        uint64_t k1, i16v I[DIRECT_MAX][2])
{
    const uint64_t step = low ? 8 : 4;
    int8_t         t[BLOCK + 16] = { 0 };
    uint64_t       from = k0 / step * step;
    memcpy(t + (k0 - from), q + k0, k1 - k0);
    sums_direct(low, 1, codes, t, 0, from, k1, I);
}

INLINE void few(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, const int low,
                const int m)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint8_t *codes = w->codes + panel * w->panel_bytes;
    const uint64_t step = low ? 8 : 4;
    v16            s[DIRECT_MAX][2][SEGMENTS];
    for (int t = 0; t < m; t++)
        for (int i = 0; i < (int)SEGMENTS; i++)
            s[t][0][i] = s[t][1][i] = v_set1(0.0f);
    for (uint64_t r = 0; r < w->nruns;) {
        uint32_t seg = w->runs[r].segment;
        v16      acc[DIRECT_MAX][2];
        UNROLL
        for (int t = 0; t < m; t++)
            acc[t][0] = acc[t][1] = v_set1(0.0f);
        for (; r < w->nruns && w->runs[r].segment == seg; r++) {
            const struct tsr_cpu_run *u = &w->runs[r];
            i16v          I[DIRECT_MAX][2];
            const int8_t *q = a->q + t0 * a->ldq;
            if (w->aligned)
                sums_direct(low, m, codes, q + u->k0, a->ldq, u->k0, u->k1, I);
            else
                UNROLL
                for (int t = 0; t < m; t++)
                    sums_ragged(low, codes, q + (uint64_t)t * a->ldq, u->k0, u->k1, &I[t]);
            uint64_t at = (panel * w->groups + u->group) * PANEL;
            UNROLL
            for (int h = 0; h < 2; h++) {
                v16  sw = group_scale(w, at + 16 * (uint64_t)h);
                i16v z = w->zeros ? vi_load_u8(w->zeros + at + 16 * (uint64_t)h)
                                  : vi_set1((int32_t)w->mid);
                UNROLL
                for (int t = 0; t < m; t++)
                    acc[t][h] = fold(acc[t][h], I[t][h], z, a->sums[r * a->tokens + t0 + (uint64_t)t],
                                     sw, a->sa[(t0 + (uint64_t)t) * w->nblocks + u->block]);
            }
        }
        UNROLL
        for (int t = 0; t < m; t++) {
            s[t][0][seg] = acc[t][0];
            s[t][1][seg] = acc[t][1];
        }
    }
    for (int t = 0; t < m; t++)
        for (int h = 0; h < 2; h++)
            finish(a, panel, (uint64_t)h, t0 + (uint64_t)t, s[t][h]);
    (void)step;
}

INLINE void few_any(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t m,
                    const int low)
{
    switch (m) {
    case 1: few(a, panel, t0, low, 1); break;
    case 2: few(a, panel, t0, low, 2); break;
    case 3: few(a, panel, t0, low, 3); break;
    default: few(a, panel, t0, low, 4); break;
    }
}

/* One run for a tile of m tokens: q is [k/4][m][4] from column k0; acc [m][PANEL] goes on. */
INLINE void tile_run(const int low, const int m, const uint8_t *codes, const int8_t *q, uint64_t k0,
                     uint64_t k1, const int32_t *qsum, const float *sa, uint64_t lda, const v16 *sw,
                     const i16v *zero, float *acc)
{
    const uint64_t step = low ? 8 : 4;
    i16v           c[ISA_TOKENS][ISA_VECS];
    UNROLL
    for (int t = 0; t < m; t++)
        UNROLL
        for (int v = 0; v < ISA_VECS; v++)
            c[t][v] = vi_zero();
    for (uint64_t k = k0; k < k1; k += step, codes += 128) {
        i16v w[ISA_VECS];
        UNROLL
        for (int v = 0; v < ISA_VECS; v++)
            w[v] = vi_load(codes + 64 * v);
        if (!low) {
            UNROLL
            for (int t = 0; t < m; t++)
                UNROLL
                for (int v = 0; v < ISA_VECS; v++)
                    c[t][v] = vi_dot4(c[t][v], w[v], get_i32(q + 4 * t));
            q += 4 * m;
            continue;
        }
        UNROLL
        for (int t = 0; t < m; t++)
            UNROLL
            for (int v = 0; v < ISA_VECS; v++)
                c[t][v] = vi_dot4_low(c[t][v], vi_nib_lo(w[v]), get_i32(q + 4 * t));
        q += 4 * m;
        UNROLL
        for (int t = 0; t < m; t++)
            UNROLL
            for (int v = 0; v < ISA_VECS; v++)
                c[t][v] = vi_dot4_low(c[t][v], vi_nib_hi(w[v]), get_i32(q + 4 * t));
        q += 4 * m;
    }
    UNROLL
    for (int t = 0; t < m; t++)
        UNROLL
        for (int v = 0; v < ISA_VECS; v++) {
            float *p = acc + t * (int)PANEL + 16 * v;
            v_store(p, fold(v_load(p), c[t][v], zero[v], qsum[t], sw[v], sa[(uint64_t)t * lda]));
        }
}

#define TILE_CASE(n) \
    case n: tile_run(low, n, codes, q, k0, k1, qsum, sa, lda, sw, zero, acc); break

INLINE void tile_any(const int low, uint64_t m, const uint8_t *codes, const int8_t *q, uint64_t k0,
                     uint64_t k1, const int32_t *qsum, const float *sa, uint64_t lda, const v16 *sw,
                     const i16v *zero, float *acc)
{
    switch (m) {
#if ISA_TOKENS > 6
    TILE_CASE(12);
    TILE_CASE(11);
    TILE_CASE(10);
    TILE_CASE(9);
    TILE_CASE(8);
    TILE_CASE(7);
#endif
#if ISA_TOKENS > 4
    TILE_CASE(6);
    TILE_CASE(5);
#endif
    TILE_CASE(4);
    TILE_CASE(3);
    TILE_CASE(2);
    default: tile_run(low, 1, codes, q, k0, k1, qsum, sa, lda, sw, zero, acc); break;
    }
}

INLINE void tiles(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1,
                  const int low)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t step = low ? 8 : 4, kp = (w->cols + 7) / 8 * 8;
    float seg[SEGMENTS][TOKENS_MAX][PANEL];
    for (uint64_t i = 0; i < SEGMENTS; i++)
        memset(seg[i], 0, (t1 - t0) * sizeof seg[i][0]);
    for (uint64_t r = 0; r < w->nruns; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const uint8_t *codes = w->codes + panel * w->panel_bytes + u->k0 / step * 128;
        uint64_t       at = (panel * w->groups + u->group) * PANEL;
        for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS) {
            v16  sw[ISA_VECS];
            i16v zero[ISA_VECS];
            UNROLL
            for (uint64_t i = 0; i < ISA_VECS; i++) {
                sw[i] = group_scale(w, at + 16 * (v + i));
                zero[i] = w->zeros ? vi_load_u8(w->zeros + at + 16 * (v + i))
                                   : vi_set1((int32_t)w->mid);
            }
            for (uint64_t t = t0; t < t1; t += ISA_TOKENS) {
                uint64_t m = a->tokens - t < ISA_TOKENS ? a->tokens - t : ISA_TOKENS;
                tile_any(low, m, codes + 64 * v, a->qpack + t * kp + u->k0 * m, u->k0, u->k1,
                         a->sums + r * a->tokens + t, a->sa + t * w->nblocks + u->block,
                         w->nblocks, sw, zero, &seg[u->segment][t - t0][16 * v]);
            }
        }
    }
    for (uint64_t t = t0; t < t1; t++)
        for (uint64_t h = 0; h < 2; h++) {
            v16 s[SEGMENTS];
            for (uint64_t i = 0; i < SEGMENTS; i++)
                s[i] = v_load(&seg[i][t - t0][16 * h]);
            finish(a, panel, h, t, s);
        }
}

void K(linear_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    const int low = a->w->layout == W_I4;
    if (a->qpack) {
        if (low)
            tiles(a, panel, t0, t1, 1);
        else
            tiles(a, panel, t0, t1, 0);
        return;
    }
    for (uint64_t t = t0; t < t1; t += DIRECT_MAX) {
        uint64_t m = t1 - t < DIRECT_MAX ? t1 - t : DIRECT_MAX;
        if (low)
            few_any(a, panel, t, m, 1);
        else
            few_any(a, panel, t, m, 0);
    }
}
