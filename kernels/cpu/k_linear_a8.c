/* k_linear_a8.c - LINEAR with int8 activations on packed integer weights: exact integer sums
 * per run, then one FMA by weight scale times activation scale. */
#include "k_decl.h"
#include "k_tile.h"

#define AHEAD 4096u /* bytes between a prefetch and its use */

INLINE v16 group_scale(const struct tsr_cpu_weight *w, uint64_t at)
{
    return w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                        : v_load((const float *)(const void *)w->scales + at);
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

/* Adds the run u of m tokens to their chains acc[t][2].  q is [tokens][ldq] from column k0 of
 * the weight, where a step of the codes begins; it ends at k1 or with zeros behind it. */
INLINE void few_run(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t r, uint64_t t0,
                    const int8_t *q, uint64_t ldq, uint64_t k0, uint64_t k1, const int low,
                    const int m, v16 acc[DIRECT_MAX][2])
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *u = &w->runs[r];
    const uint64_t               step = low ? 8 : 4, at = (panel * w->groups + u->group) * PANEL;
    const uint8_t               *c = w->codes + panel * w->panel_bytes + k0 / step * 128;
#define TAKE(t) i16v i##t##a = vi_zero(), i##t##b = i##t##a, j##t##a = i##t##a, j##t##b = i##t##a;
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + t * ldq);                                                             \
        if (low) {                                                                                 \
            i16v y = vi_four(q + t * ldq + 4);                                                     \
            i##t##a = vi_dot4_low(i##t##a, vi_nib_lo(wa), x);                                      \
            i##t##b = vi_dot4_low(i##t##b, vi_nib_lo(wb), x);                                      \
            j##t##a = vi_dot4_low(j##t##a, vi_nib_hi(wa), y);                                      \
            j##t##b = vi_dot4_low(j##t##b, vi_nib_hi(wb), y);                                      \
        } else {                                                                                   \
            i##t##a = vi_dot4(i##t##a, wa, x);                                                     \
            i##t##b = vi_dot4(i##t##b, wb, x);                                                     \
        }                                                                                          \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        int32_t qsum = a->sums[r * a->tokens + t0 + t];                                            \
        float   sa = a->sa[(t0 + t) * w->nblocks + u->block];                                      \
        acc[t][0] = fold(acc[t][0], vi_add(i##t##a, j##t##a), za, qsum, sw, sa);                   \
        acc[t][1] = fold(acc[t][1], vi_add(i##t##b, j##t##b), zb, qsum, sv, sa);                   \
    }
    FEW_EACH(TAKE)
    for (uint64_t k = k0; k < k1; k += step, c += 128, q += step) {
        i16v wa = vi_load(c), wb = vi_load(c + 64);
        v_prefetch(c + AHEAD);
        v_prefetch(c + AHEAD + 64);
        FEW_EACH(STEP)
    }
    v16  sw = group_scale(w, at), sv = group_scale(w, at + 16);
    i16v za = w->zeros ? vi_load_u8(w->zeros + at) : vi_set1((int32_t)w->mid);
    i16v zb = w->zeros ? vi_load_u8(w->zeros + at + 16) : za;
    FEW_EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
}

/* A run that does not begin or end on a step: its activations are copied between zeros, which
 * add nothing. */
INLINE void ragged_run(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t r, uint64_t token,
                       const int low, v16 acc[DIRECT_MAX][2])
{
    const struct tsr_cpu_run *u = &a->w->runs[r];
    const uint64_t            step = low ? 8 : 4, from = u->k0 / step * step;
    int8_t                    t[BLOCK + 16] = { 0 };
    memcpy(t + (u->k0 - from), a->q + token * a->ldq + u->k0, u->k1 - u->k0);
    few_run(a, panel, r, token, t, 0, from, u->k1, low, 1, acc);
}

INLINE void few(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, const int low,
                const int m)
{
    const struct tsr_cpu_weight *w = a->w;
    v16                          s[DIRECT_MAX][2][SEGMENTS];
    for (int t = 0; t < m; t++)
        for (int i = 0; i < (int)SEGMENTS; i++)
            s[t][0][i] = s[t][1][i] = v_set1(0.0f);
    for (uint64_t r = 0; r < w->nruns;) {
        uint32_t seg = w->runs[r].segment;
        v16      acc[DIRECT_MAX][2];
        for (int t = 0; t < m; t++)
            acc[t][0] = acc[t][1] = v_set1(0.0f);
        for (; r < w->nruns && w->runs[r].segment == seg; r++) {
            const struct tsr_cpu_run *u = &w->runs[r];
            if (w->aligned)
                few_run(a, panel, r, t0, a->q + t0 * a->ldq + u->k0, a->ldq, u->k0, u->k1, low, m,
                        acc);
            else
                for (int t = 0; t < m; t++)
                    ragged_run(a, panel, r, t0 + (uint64_t)t, low, &acc[t]);
        }
        for (int t = 0; t < m; t++) {
            s[t][0][seg] = acc[t][0];
            s[t][1][seg] = acc[t][1];
        }
    }
    for (int t = 0; t < m; t++)
        for (int h = 0; h < 2; h++)
            finish(a, panel, (uint64_t)h, t0 + (uint64_t)t, s[t][h]);
}

INLINE void few_any(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t m,
                    const int low){
#define CALL(i) few(a, panel, t0, low, i)
    FEW_SWITCH(m, CALL)
#undef CALL
}

/* One run for a tile of m tokens: q is [k/4][m][4] from column k0; acc [m][PANEL] goes on. */
INLINE void tile_run(const int low, const int m, const uint8_t *codes, const int8_t *q, uint64_t k0,
                     uint64_t k1, const int32_t *qsum, const float *sa, uint64_t lda, const v16 *sw,
                     const i16v *zero, float *acc)
{
#define TAKE(t)                                                                                    \
    i16v c##t##a = vi_zero();                                                                      \
    SECOND(i16v c##t##b = c##t##a;)
#define STEP8(t)                                                                                   \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t);                                                               \
        c##t##a = vi_dot4(c##t##a, wa, x);                                                         \
        SECOND(c##t##b = vi_dot4(c##t##b, wb, x);)                                                 \
    }
#define STEP4(t)                                                                                   \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t);                                                               \
        c##t##a = vi_dot4_low(c##t##a, la, x);                                                     \
        SECOND(c##t##b = vi_dot4_low(c##t##b, lb, x);)                                             \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        float *p = acc + t * PANEL, s = sa[t * lda];                                               \
        v_store(p, fold(v_load(p), c##t##a, zero[0], qsum[t], sw[0], s));                          \
        SECOND(v_store(p + 16, fold(v_load(p + 16), c##t##b, zero[1], qsum[t], sw[1], s));)        \
    }
    const uint64_t step = low ? 8 : 4;
    TILE_EACH(TAKE)
    for (uint64_t k = k0; k < k1; k += step, codes += 128) {
        i16v wa = vi_load(codes);
        SECOND(i16v wb = vi_load(codes + 64);)
        if (!low) {
            TILE_EACH(STEP8)
            q += 4 * m;
            continue;
        }
        i16v la = vi_nib_lo(wa);
        SECOND(i16v lb = vi_nib_lo(wb);)
        TILE_EACH(STEP4)
        q += 4 * m;
        la = vi_nib_hi(wa);
        SECOND(lb = vi_nib_hi(wb);)
        TILE_EACH(STEP4)
        q += 4 * m;
    }
    TILE_EACH(GIVE)
#undef TAKE
#undef STEP8
#undef STEP4
#undef GIVE
}

INLINE void tile_any(const int low, uint64_t m, const uint8_t *codes, const int8_t *q, uint64_t k0,
                     uint64_t k1, const int32_t *qsum, const float *sa, uint64_t lda, const v16 *sw,
                     const i16v *zero, float *acc){
#define CALL(i) tile_run(low, i, codes, q, k0, k1, qsum, sa, lda, sw, zero, acc)
    TILE_SWITCH(m, CALL)
#undef CALL
}

INLINE void tiles(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1,
                  const int low)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               step = low ? 8 : 4, kp = (w->cols + 7) / 8 * 8;
    float                        seg[SEGMENTS][TOKENS_MAX][PANEL];
    for (uint64_t i = 0; i < SEGMENTS; i++)
        memset(seg[i], 0, (t1 - t0) * sizeof seg[i][0]);
    for (uint64_t r = 0; r < w->nruns; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const uint8_t            *codes = w->codes + panel * w->panel_bytes + u->k0 / step * 128;
        uint64_t                  at = (panel * w->groups + u->group) * PANEL;
        for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS) {
            v16  sw[ISA_VECS];
            i16v zero[ISA_VECS];
            UNROLL
            for (uint64_t i = 0; i < ISA_VECS; i++) {
                sw[i] = group_scale(w, at + 16 * (v + i));
                zero[i] =
                    w->zeros ? vi_load_u8(w->zeros + at + 16 * (v + i)) : vi_set1((int32_t)w->mid);
            }
            for (uint64_t t = t0; t < t1; t += ISA_TOKENS) {
                uint64_t m = a->tokens - t < ISA_TOKENS ? a->tokens - t : ISA_TOKENS;
                tile_any(low, m, codes + 64 * v, a->qpack + t * kp + u->k0 * m, u->k0, u->k1,
                         a->sums + r * a->tokens + t, a->sa + t * w->nblocks + u->block, w->nblocks,
                         sw, zero, &seg[u->segment][t - t0][16 * v]);
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

void K(linear_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1)
{
    const int low = a->w->layout == W_I4;
    for (uint64_t p = panel; p < panel + np; p++) {
        if (a->qpack) {
            if (low)
                tiles(a, p, t0, t1, 1);
            else
                tiles(a, p, t0, t1, 0);
            continue;
        }
        for (uint64_t t = t0; t < t1; t += DIRECT_MAX) {
            uint64_t m = t1 - t < DIRECT_MAX ? t1 - t : DIRECT_MAX;
            if (low)
                few_any(a, p, t, m, 1);
            else
                few_any(a, p, t, m, 0);
        }
    }
}
