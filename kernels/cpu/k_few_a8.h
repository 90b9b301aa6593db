/* k_few_a8.h - a few tokens of int8 activations through panels of codes: the loops of k_few_a8.c and of
 * k_loops.h. */
#ifndef TSR_K_FEW_A8_H
#define TSR_K_FEW_A8_H

#include "k_codes.h"
#include "k_decl.h"
#include "k_tile.h"

#define AHEAD        2048u /* bytes between a prefetch of codes and their use */
#define GROUPS_AHEAD 8u    /* the same for scales, in groups */

/* The same for each of two adjacent panels: a longer computation per line needs a shorter prefetch
 * distance. */
#define PAIR_AHEAD(l, m) ((m) > 1 ? 4096u : (l) < W_I4 ? 2560u : 3072u)

/* Sums of several tokens and two panels need 16 registers; the other sets have half as many. */
#if TSR_SIMD == 512
#define PAIR_SWITCH FEW_SWITCH
#else
#define PAIR_SWITCH(m, f) f(1);
#endif

INLINE void finish(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t half, uint64_t token,
                   const v16 s[SEGMENTS])
{
    uint64_t row = panel * PANEL + 16 * half;
    if (row >= a->w->rows)
        return;
    uint64_t n = a->w->rows - row < 16 ? a->w->rows - row : 16;
    v16      y = v_add(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])),
                       v_add(v_add(s[4], s[5]), v_add(s[6], s[7])));
    y = v_add(y, v_set1(0.0f));
    if (a->bias)
        y = v_add(y, v_loadn(a->bias + row, n));
    v_storen(a->out + token * a->ldo + row, y, n);
}

/* Scales are stored apart from the codes; the hardware prefetcher is slow to detect their stride. */
INLINE void prefetch_scales(const struct tsr_cpu_weight *w, uint64_t at)
{
    at += GROUPS_AHEAD * PANEL;
    if (w->scale_f16) {
        v_prefetch(w->scales + 2 * at);
    } else {
        v_prefetch(w->scales + 4 * at);
        v_prefetch(w->scales + 4 * at + 64);
    }
    if (w->zeros)
        v_prefetch(w->zeros + at);
}

/* Codes of scales and minimums in bytes, and the factors of the next record once a record. */
INLINE void prefetch_affine(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group)
{
    const uint64_t at = (panel * w->groups + group + GROUPS_AHEAD) * PANEL;
    v_prefetch(w->scales + at);
    v_prefetch(w->minimums + at);
    if (group % (UINT64_C(1) << w->record_shift) == 0) {
        const uint64_t record = panel * w->records + (group >> w->record_shift) + 1;
        v_prefetch(w->factors + 4 * record * PANEL);
        v_prefetch(w->factors + 4 * record * PANEL + 64);
    }
}

INLINE void prefetch_run(const struct tsr_cpu_weight *w, const enum run_kind kind, uint64_t panel,
                         uint64_t group)
{
    const uint64_t at = (panel * w->groups + group) * PANEL;
    if (kind == RUN_PLAIN || w->mapped == MAPPED_STORED)
        prefetch_scales(w, at);
    else if (is_mapped(kind))
        v_prefetch(w->scales + at + GROUPS_AHEAD * PANEL);
    else if (w->affine == AFFINE_BYTES)
        prefetch_affine(w, panel, group);
}

/* Adds the run r of m tokens to their chains acc[t][2]; of affine weights to those of the block of activations,
 * sum[t][2], which joins acc at its end. q is [tokens][ldq] from column k0 of the weight,
 * where a step of the codes begins; it ends at k1 or has zeros after it. */
INLINE void few_run(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t r, uint64_t t0,
                    const int8_t *q, uint64_t ldq, uint64_t k0, uint64_t k1,
                    const enum tsr_cpu_layout l, const int m, const enum run_kind kind,
                    v16 acc[DIRECT_MAX][2], v16 sum[DIRECT_MAX][2])
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *u = &w->runs[r];
    const uint64_t               step = cpu_step(l), unit = cpu_unit(l);
    const uint64_t               at = (panel * w->groups + u->group) * PANEL;
    const uint8_t               *c = w->codes + panel * w->panel_bytes + k0 / step * 2 * unit;
    const int32_t               *sums = a->sums + r * a->tokens + t0;
    const float                 *sa = a->sa + u->block * a->tokens + t0;
    i16v za = vi_set1(1), zb = za; /* the sums have the zero point in them unless it is stored */
    if (w->zeros) {
        za = vi_load_u8(w->zeros + at);
        zb = vi_load_u8(w->zeros + at + 16);
    }
    const i16v table = run_table(w, kind);
    prefetch_run(w, kind, panel, u->group);
/* Several sums a row, so that as many chains hide the latency of the product; a vector of NEON is four chains. */
#define TAKE(t)                                                                                    \
    i16v i##t##a = vi_zero(), i##t##b = vi_zero(), j##t##a = vi_zero(), j##t##b = vi_zero(),       \
         g##t##a = vi_zero(), g##t##b = vi_zero(), h##t##a = vi_zero(), h##t##b = vi_zero();       \
    if (t < m && kind != RUN_AFFINE) {                                                             \
        i##t##a = i##t##b = vi_set1(sums[t]);                                                      \
        if (w->zeros) {                                                                            \
            i##t##a = vi_mul(i##t##a, za);                                                         \
            i##t##b = vi_mul(i##t##b, zb);                                                         \
        }                                                                                          \
    }
#define ADD(s, t)                                                                                  \
    do {                                                                                           \
        s##t##a = run_dot(kind, l, s##t##a, wa, x);                                                \
        s##t##b = run_dot(kind, l, s##t##b, wb, x);                                                \
    } while (0)
#define FOUR(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + t * ldq + 4 * j);                                                     \
        if (f % sets == 0)                                                                         \
            ADD(i, t);                                                                             \
        else if (f % sets == 1)                                                                    \
            ADD(j, t);                                                                             \
        else if (f % sets == 2)                                                                    \
            ADD(g, t);                                                                             \
        else                                                                                       \
            ADD(h, t);                                                                             \
    }
/* One step, the u-th of those together. */
#define STEP(u)                                                                                     \
    do {                                                                                            \
        UNROLL                                                                                      \
        for (uint64_t line = 0; line < 2 * unit; line += 64)                                        \
            v_prefetch(c + AHEAD + line);                                                           \
        struct code_step ca = code_load(l, c), cb = code_load(l, c + unit);                         \
        UNROLL                                                                                      \
        for (int j = 0; j < fours; j++) {                                                           \
            const int f = (u)*fours + j;                                                            \
            i16v      wa = run_four(kind, l, &ca, j, table), wb = run_four(kind, l, &cb, j, table); \
            FEW_EACH(FOUR)                                                                          \
        }                                                                                           \
        k += step, c += 2 * unit, q += step;                                                        \
    } while (0)
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        v16 s = v_set1(sa[t]);                                                                     \
        i##t##a = vi_add(vi_add(i##t##a, g##t##a), vi_add(j##t##a, h##t##a));                      \
        i##t##b = vi_add(vi_add(i##t##b, g##t##b), vi_add(j##t##b, h##t##b));                      \
        if (kind == RUN_AFFINE) {                                                                  \
            v16 ones = vi_cvt(vi_set1(sums[t]));                                                   \
            sum[t][0] = v_fma(ones, ga.minimum, v_fma(vi_cvt(i##t##a), sw, sum[t][0]));            \
            sum[t][1] = v_fma(ones, gb.minimum, v_fma(vi_cvt(i##t##b), sv, sum[t][1]));            \
            if (ends) {                                                                            \
                acc[t][0] = v_fma(sum[t][0], s, acc[t][0]);                                        \
                acc[t][1] = v_fma(sum[t][1], s, acc[t][1]);                                        \
                sum[t][0] = sum[t][1] = v_set1(0.0f);                                              \
            }                                                                                      \
        } else {                                                                                   \
            acc[t][0] = v_fma(vi_cvt(i##t##a), v_mul(sw, s), acc[t][0]);                           \
            acc[t][1] = v_fma(vi_cvt(i##t##b), v_mul(sv, s), acc[t][1]);                           \
        }                                                                                          \
    }
    const int fours = (int)step / 4, sets = TSR_SIMD == 128 ? 1 : m == 1 ? 4 : 2;
    uint64_t  k = k0;
    FEW_EACH(TAKE)
    if (fours < sets) /* steps together, so that each set has its turn */
        while (k + 4 * (uint64_t)(sets - fours) < k1) {
            STEP(0);
            STEP(1);
            if (2 * fours < sets) {
                STEP(2);
                STEP(3);
            }
        }
    while (k < k1)
        STEP(0);
    struct affine ga = group_of(w, panel, u->group, 0, kind);
    struct affine gb = group_of(w, panel, u->group, 1, kind);
    v16           sw = ga.scale, sv = gb.scale;
    const int     ends = block_ends(w, r);
    FEW_EACH(GIVE)
#undef TAKE
#undef ADD
#undef FOUR
#undef STEP
#undef GIVE
}

/* A run that does not begin or end on a step: its activations are padded with zeros, which add nothing. */
INLINE void ragged_run(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t r, uint64_t token,
                       const enum tsr_cpu_layout l, v16 acc[DIRECT_MAX][2])
{
    const struct tsr_cpu_run *u = &a->w->runs[r];
    const uint64_t            from = u->k0 / cpu_step(l) * cpu_step(l);
    int8_t                    t[BLOCK + 2 * PAD] = { 0 };
    memcpy(t + (u->k0 - from), a->q + token * a->ldq + u->k0, u->k1 - u->k0);
    few_run(a, panel, r, token, t, 0, from, u->k1, l, 1, RUN_PLAIN, acc, NULL);
}

INLINE void few(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0,
                const enum tsr_cpu_layout l, const int aligned, const int m,
                const enum run_kind kind)
{
    const struct tsr_cpu_weight *w = a->w;
    v16                          s[DIRECT_MAX][2][SEGMENTS];
    for (int t = 0; t < m; t++)
        for (int i = 0; i < (int)SEGMENTS; i++)
            s[t][0][i] = s[t][1][i] = v_set1(0.0f);
    for (uint64_t r = 0; r < w->nruns;) {
        uint32_t seg = w->runs[r].segment;
        v16      acc[DIRECT_MAX][2], sum[DIRECT_MAX][2];
        for (int t = 0; t < m; t++)
            acc[t][0] = acc[t][1] = sum[t][0] = sum[t][1] = v_set1(0.0f);
        for (; r < w->nruns && w->runs[r].segment == seg; r++) {
            const struct tsr_cpu_run *u = &w->runs[r];
            if (aligned)
                few_run(a, panel, r, t0, a->q + t0 * a->ldq + u->k0, a->ldq, u->k0, u->k1, l, m,
                        kind, acc, sum);
            else
                ragged_run(a, panel, r, t0, l, acc);
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

/* The run r of all m tokens through the panels `panel` and panel + apart: two streams from memory in
 * flight, and each four of activations is spread once for both. */
INLINE void pair_run(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t r,
                     const enum tsr_cpu_layout l, const int m, const enum run_kind kind,
                     const int coded, v16 acc[DIRECT_MAX][2][2], v16 block[DIRECT_MAX][2][2])
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *u = &w->runs[r];
    const uint64_t               step = cpu_step(l), unit = cpu_unit(l);
    const uint64_t               at = (panel * w->groups + u->group) * PANEL;
    const uint64_t               next = apart * w->groups * PANEL;
    const uint8_t               *c = w->codes + panel * w->panel_bytes + u->k0 / step * 2 * unit;
    const uint8_t               *d = c + apart * w->panel_bytes;
    const int8_t                *q = a->q + u->k0;
    const int32_t               *sums = a->sums + r * a->tokens;
    /* 16 registers of sums at most; of AVX2 a vector takes two, of NEON four */
    const int      chains = m <= 2 && TSR_SIMD != 2 && TSR_SIMD != 128 ? 2 : 1;
    const uint64_t ahead = PAIR_AHEAD(l, m);
    i16v           i[DIRECT_MAX][2][2][2]; /* token, panel, half, chain */
    const i16v     table = run_table(w, kind);
    prefetch_run(w, kind, panel, u->group);
    prefetch_run(w, kind, panel + apart, u->group);
    UNROLL
    for (int t = 0; t < m; t++) {
        UNROLL
        for (int p = 0; p < 2; p++) {
            UNROLL
            for (int h = 0; h < 2; h++) {
                i[t][p][h][0] = kind == RUN_AFFINE ? vi_zero() : vi_set1(sums[t]);
                i[t][p][h][1] = vi_zero();
                if (kind != RUN_AFFINE && w->zeros)
                    i[t][p][h][0] =
                        vi_mul(i[t][p][h][0],
                               vi_load_u8(w->zeros + at + (p ? next : 0) + 16 * (uint64_t)h));
            }
        }
    }
    const int fours = (int)step / 4;
    for (uint64_t k = u->k0; k < u->k1; k += step, c += 2 * unit, d += 2 * unit, q += step) {
        UNROLL
        for (uint64_t line = 0; line < 2 * unit; line += 64) {
            v_prefetch(c + ahead + line);
            v_prefetch(d + ahead + line);
        }
        struct code_step ca = code_load(l, c), cb = code_load(l, c + unit);
        struct code_step da = code_load(l, d), db = code_load(l, d + unit);
        UNROLL
        for (int f = 0; f < fours; f++) {
            i16v wa = run_four(kind, l, &ca, f, table), wb = run_four(kind, l, &cb, f, table);
            i16v va = run_four(kind, l, &da, f, table), vb = run_four(kind, l, &db, f, table);
            UNROLL
            for (int t = 0; t < m; t++) {
                i16v x = vi_four(q + (uint64_t)t * a->ldq + 4 * f);
                i[t][0][0][f % chains] = run_dot(kind, l, i[t][0][0][f % chains], wa, x);
                i[t][0][1][f % chains] = run_dot(kind, l, i[t][0][1][f % chains], wb, x);
                i[t][1][0][f % chains] = run_dot(kind, l, i[t][1][0][f % chains], va, x);
                i[t][1][1][f % chains] = run_dot(kind, l, i[t][1][1][f % chains], vb, x);
            }
        }
    }
    const float *sa = a->sa + u->block * a->tokens;
    const int    ends = block_ends(w, r);
    UNROLL
    for (int p = 0; p < 2; p++) {
        UNROLL
        for (int h = 0; h < 2; h++) {
            const uint64_t which = panel + (p ? apart : 0);
            struct affine  g = group_of(w, which, u->group, (uint64_t)h, kind);
            struct coded   k;
            if (coded)
                k = group_coded(w, which, u->group, (uint64_t)h);
            UNROLL
            for (int t = 0; t < m; t++) {
                i16v sum = i[t][p][h][0];
                if (chains == 2)
                    sum = vi_add(sum, i[t][p][h][1]);
                v16 s = v_set1(sa[t]);
                if (kind != RUN_AFFINE) {
                    acc[t][p][h] = v_fma(vi_cvt(sum), v_mul(g.scale, s), acc[t][p][h]);
                    continue;
                }
                i16v ones = vi_set1(sums[t]);
                if (coded) { /* factor * code is exact, and so is code * sum: the same bytes */
                    sum = vi_mul16(sum, k.scale_code);
                    ones = vi_mul16(ones, k.minimum_code);
                }
                block[t][p][h] = v_fma(vi_cvt(sum), coded ? k.scale : g.scale, block[t][p][h]);
                block[t][p][h] = v_fma(vi_cvt(ones), coded ? k.minimum : g.minimum, block[t][p][h]);
                if (ends) {
                    acc[t][p][h] = v_fma(block[t][p][h], s, acc[t][p][h]);
                    block[t][p][h] = v_set1(0.0f);
                }
            }
        }
    }
}

INLINE void pair(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart,
                 const enum tsr_cpu_layout l, const int m, const enum run_kind kind,
                 const int coded)
{
    const struct tsr_cpu_weight *w = a->w;
    v16                          s[DIRECT_MAX][2][2][SEGMENTS];
    uint32_t                     seg = 0;
    for (uint64_t r = 0; r < w->nruns; seg++) {
        v16 acc[DIRECT_MAX][2][2], block[DIRECT_MAX][2][2];
        for (int t = 0; t < m; t++)
            for (int p = 0; p < 2; p++)
                acc[t][p][0] = acc[t][p][1] = block[t][p][0] = block[t][p][1] = v_set1(0.0f);
        for (; r < w->nruns && w->runs[r].segment == seg; r++)
            pair_run(a, panel, apart, r, l, m, kind, coded, acc, block);
        for (int t = 0; t < m; t++)
            for (int p = 0; p < 2; p++) {
                s[t][p][0][seg] = acc[t][p][0];
                s[t][p][1][seg] = acc[t][p][1];
            }
    }
    for (; seg < SEGMENTS; seg++)
        for (int t = 0; t < m; t++)
            s[t][0][0][seg] = s[t][0][1][seg] = s[t][1][0][seg] = s[t][1][1][seg] = v_set1(0.0f);
    for (int t = 0; t < m; t++)
        for (uint64_t p = 0; p < 2; p++)
            for (uint64_t h = 0; h < 2; h++)
                finish(a, panel + p * apart, h, (uint64_t)t, s[t][p][h]);
}

#endif
