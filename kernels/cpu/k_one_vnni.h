/* k_one_vnni.h - one token of int8 activations through panels of tessera.int/2 on AVX-512: groups of 16 with two bits and
 * nibbles for scales and minimums (Q2_K), groups of 32 with bytes for them (Q4_K, Q5_K). Factors are loaded once a
 * record, and both panels share what a run needs. */
#ifndef TSR_K_ONE_VNNI_H
#define TSR_K_ONE_VNNI_H

#include "k_few_a8.h"
#include "simd_vnni.h"

#define ONE_AHEAD    3072u /* bytes between a prefetch of codes and their use */
#define LEVELS_AHEAD 32u   /* groups between a prefetch of the codes of scales and their use */

/* Of 16 rows. */
struct coded_factors {
    v16 scale, minimum;
};

INLINE struct coded_factors coded_factors(const struct tsr_cpu_weight *w, uint64_t panel,
                                          uint64_t half, uint64_t record)
{
    const uint8_t *p = w->factors + 2 * (2 * (panel * w->records + record) * PANEL + 16 * half);
    return (struct coded_factors){ v_load_f16(p), v_neg(v_load_f16(p + 2 * PANEL)) };
}

INLINE void prefetch_factors(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t record)
{
    const uint8_t *p = w->factors + 4 * (panel * w->records + record) * PANEL;
    v_prefetch(p);
    v_prefetch(p + 64);
}

/* Adds a run of 16 rows. minimums: what the codes of a minimum add, [16]. Products of a factor's code and a sum are
 * exact: the bytes are those of pair_run(). */
INLINE v16 coded_sum(const uint8_t *c, const uint8_t *levels, const i16v x[4], const v16 minimums,
                     const struct coded_factors *f, v16 sum)
{
    const i16v codes = vi_load(c), high = vi_shr(codes, 4), k = vi_load_u8(levels);
    i16v       once = vi_dot4(vi_zero(), vi_bits(codes, 0, 3), x[0]);
    i16v       four = vi_dot4(vi_zero(), vi_bits(codes, 0, 12), x[1]);
    once = vi_dot4(once, vi_bits(high, 0, 3), x[2]);
    four = vi_dot4(four, vi_bits(high, 0, 12), x[3]);
    once = vi_add(once, vi_sar(four, 2));
    sum = v_fma(vi_cvt(vi_mul16(once, vi_bits(k, 0, 15))), f->scale, sum);
    return v_fma(v_pick(minimums, vi_shr(k, 4)), f->minimum, sum);
}

/* One token through the panels `panel` and panel + apart, record by record: two streams from memory. A run is a
 * group. */
INLINE void one_coded(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               next = apart * w->groups * PANEL, far = apart * w->panel_bytes;
    const uint8_t               *c = w->codes + panel * w->panel_bytes;
    const uint8_t               *levels = w->scales + panel * w->groups * PANEL;
    const int8_t                *q = a->q;
    const v16                    counts = v_counts();
    v16                          chain[2][2][SEGMENTS], s[2][2];
    for (int h = 0; h < 2; h++) {
        s[0][h] = s[1][h] = v_set1(0.0f);
        for (uint32_t seg = 0; seg < SEGMENTS; seg++)
            chain[0][h][seg] = chain[1][h][seg] = v_set1(0.0f);
    }
    for (uint64_t r = 0; r < w->nruns;) {
        const uint64_t             record = r >> w->record_shift;
        const uint64_t             after = (record + 1) << w->record_shift;
        const uint64_t             end = after < w->nruns ? after : w->nruns;
        const struct coded_factors f00 = coded_factors(w, panel, 0, record);
        const struct coded_factors f01 = coded_factors(w, panel, 1, record);
        const struct coded_factors f10 = coded_factors(w, panel + apart, 0, record);
        const struct coded_factors f11 = coded_factors(w, panel + apart, 1, record);
        prefetch_factors(w, panel, record + 1);
        prefetch_factors(w, panel + apart, record + 1);
        for (; r < end; r++, c += 128, levels += PANEL, q += 16) {
            const i16v x[4] = { vi_four(q), vi_four(q + 4), vi_four(q + 8), vi_four(q + 12) };
            const v16  minimums = v_mul(vi_cvt(vi_set1(a->sums[r])), counts);
            v_prefetch(c + ONE_AHEAD);
            v_prefetch(c + far + ONE_AHEAD);
            v_prefetch(levels + LEVELS_AHEAD * PANEL);
            s[0][0] = coded_sum(c, levels, x, minimums, &f00, s[0][0]);
            s[0][1] = coded_sum(c + 64, levels + 16, x, minimums, &f01, s[0][1]);
            v_prefetch(c + ONE_AHEAD + 64);
            v_prefetch(c + far + ONE_AHEAD + 64);
            v_prefetch(levels + next + LEVELS_AHEAD * PANEL);
            s[1][0] = coded_sum(c + far, levels + next, x, minimums, &f10, s[1][0]);
            s[1][1] = coded_sum(c + far + 64, levels + next + 16, x, minimums, &f11, s[1][1]);
            if (!block_ends(w, r))
                continue;
            const v16      sa = v_set1(a->sa[w->runs[r].block]);
            const uint32_t seg = w->runs[r].segment;
            UNROLL
            for (int i = 0; i < 2; i++) {
                UNROLL
                for (int h = 0; h < 2; h++) {
                    chain[i][h][seg] = v_fma(s[i][h], sa, chain[i][h][seg]);
                    s[i][h] = v_set1(0.0f);
                }
            }
        }
    }
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++)
            finish(a, panel + i * apart, h, 0, chain[i][h]);
}

/* What the second chain of sums counts for: high nibbles stay where they are. */
#define BYTES_SHIFT(l) ((l) == W_I4 ? 4u : 0u)

/* Columns 4f to 4f+3 of a step, those of W_I4 with an odd f 16 times. */
INLINE i16v bytes_four(const enum tsr_cpu_layout l, const struct code_step *s, const int f)
{
    if (l == W_I4)
        return vi_bits(s->a, 0, f ? 240 : 15);
    /* bits f and f ^ 4 of the fifth vector; what comes to the low nibble is not selected */
    const i16v e = vi_bits(s->e, 0, 17 << f % 4);
    const i16v n = f < 2 ? s->a : f < 4 ? s->b : f < 6 ? s->c : s->d;
    return vi_select(15, f % 2 ? vi_shr(n, 4) : n,
                     f < 4 ? vi_shl(e, (uint32_t)(4 - f)) : vi_shr(e, (uint32_t)(f - 4)));
}

/* One step of both halves of two panels: chains of even and of odd fours. */
INLINE void bytes_step(const enum tsr_cpu_layout l, const uint8_t *c, uint64_t far, const int8_t *q,
                       i16v sums[2][2][2])
{
    const uint64_t         unit = cpu_unit(l);
    const int              fours = (int)cpu_step(l) / 4, lines = 2 * (int)unit / 64;
    const struct code_step a = code_load(l, c), b = code_load(l, c + unit);
    const struct code_step d = code_load(l, c + far), e = code_load(l, c + far + unit);
    UNROLL
    for (int f = 0; f < fours; f++) {
        const i16v x = vi_four(q + 4 * f);
        const int  n = f % 2;
        UNROLL
        for (int line = f * lines / fours; line < (f + 1) * lines / fours; line++) {
            v_prefetch(c + ONE_AHEAD + 64 * line);
            v_prefetch(c + far + ONE_AHEAD + 64 * line);
        }
        sums[0][0][n] = vi_dot4(sums[0][0][n], bytes_four(l, &a, f), x);
        sums[0][1][n] = vi_dot4(sums[0][1][n], bytes_four(l, &b, f), x);
        sums[1][0][n] = vi_dot4(sums[1][0][n], bytes_four(l, &d, f), x);
        sums[1][1][n] = vi_dot4(sums[1][1][n], bytes_four(l, &e, f), x);
    }
}

/* Adds a run of 16 rows. */
INLINE v16 bytes_sum(const enum tsr_cpu_layout l, const i16v sums[2], const uint8_t *scales,
                     const uint8_t *minimums, const i16v ones, const struct coded_factors *f, v16 s)
{
    const i16v whole = vi_add(sums[0], vi_sar(sums[1], BYTES_SHIFT(l)));
    s = v_fma(vi_cvt(whole), v_mul(f->scale, vi_cvt(vi_load_u8(scales))), s);
    return v_fma(vi_cvt(vi_mul16(ones, vi_load_u8(minimums))), f->minimum, s);
}

/* One token through the panels `panel` and panel + apart. A run is a group of 32. */
INLINE void one_bytes(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l, uint64_t panel,
                      uint64_t apart)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               step = cpu_step(l), bytes = 2 * cpu_unit(l);
    const uint64_t               next = apart * w->groups * PANEL, far = apart * w->panel_bytes;
    const uint8_t               *c = w->codes + panel * w->panel_bytes;
    const uint8_t               *scales = w->scales + panel * w->groups * PANEL;
    const uint8_t               *minimums = w->minimums + panel * w->groups * PANEL;
    const int8_t                *q = a->q;
    v16                          chain[2][2][SEGMENTS], s[2][2];
    for (int h = 0; h < 2; h++) {
        s[0][h] = s[1][h] = v_set1(0.0f);
        for (uint32_t seg = 0; seg < SEGMENTS; seg++)
            chain[0][h][seg] = chain[1][h][seg] = v_set1(0.0f);
    }
    for (uint64_t r = 0; r < w->nruns;) {
        const uint64_t             record = r >> w->record_shift;
        const uint64_t             after = (record + 1) << w->record_shift;
        const uint64_t             end = after < w->nruns ? after : w->nruns;
        const struct coded_factors f00 = coded_factors(w, panel, 0, record);
        const struct coded_factors f01 = coded_factors(w, panel, 1, record);
        const struct coded_factors f10 = coded_factors(w, panel + apart, 0, record);
        const struct coded_factors f11 = coded_factors(w, panel + apart, 1, record);
        prefetch_factors(w, panel, record + 1);
        prefetch_factors(w, panel + apart, record + 1);
        for (; r < end; r++, scales += PANEL, minimums += PANEL) {
            i16v       sums[2][2][2];
            const i16v ones = vi_four(a->sums + r);
            UNROLL
            for (int i = 0; i < 8; i++)
                sums[i / 4][i / 2 % 2][i % 2] = vi_zero();
            v_prefetch(scales + GROUPS_AHEAD * PANEL);
            v_prefetch(minimums + GROUPS_AHEAD * PANEL);
            v_prefetch(scales + next + GROUPS_AHEAD * PANEL);
            v_prefetch(minimums + next + GROUPS_AHEAD * PANEL);
            UNROLL
            for (uint64_t k = 0; k < 32; k += step, c += bytes, q += step)
                bytes_step(l, c, far, q, sums);
            s[0][0] = bytes_sum(l, sums[0][0], scales, minimums, ones, &f00, s[0][0]);
            s[0][1] = bytes_sum(l, sums[0][1], scales + 16, minimums + 16, ones, &f01, s[0][1]);
            s[1][0] = bytes_sum(l, sums[1][0], scales + next, minimums + next, ones, &f10, s[1][0]);
            s[1][1] = bytes_sum(l, sums[1][1], scales + next + 16, minimums + next + 16, ones, &f11,
                                s[1][1]);
            if (!block_ends(w, r))
                continue;
            const v16      sa = v_set1(a->sa[w->runs[r].block]);
            const uint32_t seg = w->runs[r].segment;
            UNROLL
            for (int i = 0; i < 2; i++) {
                UNROLL
                for (int h = 0; h < 2; h++) {
                    chain[i][h][seg] = v_fma(s[i][h], sa, chain[i][h][seg]);
                    s[i][h] = v_set1(0.0f);
                }
            }
        }
    }
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++)
            finish(a, panel + i * apart, h, 0, chain[i][h]);
}

#endif
