/* k_one_coded.h - one token of int8 activations through panels of tessera.int/2 with two bits, groups of 16 and nibbles
 * for scales and minimums (Q2_K) on AVX2: by records, with the factors of each loaded once. */
#ifndef TSR_K_ONE_CODED_H
#define TSR_K_ONE_CODED_H

#include "k_one_a8.h"

/* Sums of 16 columns for 16 rows in words. Every second four is masked where it is and counts four times. */
INLINE i16v coded_words(const uint8_t *c, const i16v x[4])
{
    const i16v codes = vi_load(c);
    const i16v once =
        vw_dot(vw_dot(vi_zero(), vi_bits(codes, 0, 3), x[0]), vi_bits(codes, 4, 3), x[2]);
    const i16v four =
        vw_dot(vw_dot(vi_zero(), vi_bits(codes, 0, 12), x[1]), vi_bits(codes, 4, 12), x[3]);
    return vw_add(once, vw_quarter(four));
}

/* Adds a run of 16 rows. Products of a factor's code and a sum are exact, also 16 times: the bytes are those of
 * one_take(). */
INLINE v16 coded_sum(const uint8_t *c, const uint8_t *levels, const i16v x[4], const i16v ones,
                     const struct one_factors *f, v16 sum)
{
    const i16v               words = vi_opaque(coded_words(c, x));
    const struct words_codes k = vw_codes(levels);
    sum = v_fma(vi_cvt(vi_mul16(words, k.low)), f->scale, sum);
    return v_fma(vi_cvt(vi_mul16(ones, k.high)), f->minimum, sum);
}

/* The factors of a record; of its minimums a sixteenth. */
INLINE struct one_factors coded_factors(const struct tsr_cpu_weight *w, uint64_t panel,
                                        uint64_t half, uint64_t record)
{
    struct one_factors f = factors_of(w, RUN_AFFINE, panel, half, record);
    f.minimum = v_mul(f.minimum, v_set1(0.0625f));
    return f;
}

/* Adds the runs [r, end) of a panel, which end with a block of activations, to its chains. A run is a group. */
INLINE void coded_runs(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t r, uint64_t end,
                       v16 chain[2][SEGMENTS])
{
    const struct tsr_cpu_weight *w = a->w;
    const uint8_t               *c = w->codes + panel * w->panel_bytes + r * 128;
    const uint8_t               *levels = w->scales + (panel * w->groups + r) * PANEL;
    const int8_t                *q = a->q + r * 16;
    v16                          s = v_set1(0.0f), t = s;
    while (r < end) {
        const uint64_t           record = r >> w->record_shift;
        const uint64_t           next = (record + 1) << w->record_shift;
        const uint64_t           upto = next < end ? next : end;
        const struct one_factors f = coded_factors(w, panel, 0, record);
        const struct one_factors g = coded_factors(w, panel, 1, record);
        for (; r < upto; r++, c += 128, levels += PANEL, q += 16) {
            const i16v x[4] = { vi_four(q), vi_four(q + 4), vi_four(q + 8), vi_four(q + 12) };
            const i16v ones = vi_four(a->sums + r);
            v_prefetch(c + ONE_AHEAD);
            v_prefetch(c + ONE_AHEAD + 64);
            v_prefetch(levels + GROUPS_AHEAD * PANEL);
            s = coded_sum(c, levels, x, ones, &f, s);
            t = coded_sum(c + 64, levels + 16, x, ones, &g, t);
            if (block_ends(w, r)) {
                const v16      sa = v_set1(a->sa[w->runs[r].block]);
                const uint32_t seg = w->runs[r].segment;
                chain[0][seg] = v_fma(s, sa, chain[0][seg]);
                chain[1][seg] = v_fma(t, sa, chain[1][seg]);
                s = t = v_set1(0.0f);
            }
        }
    }
}

/* One token through the panels `panel` and panel + apart, record by record: two streams from memory. */
INLINE void one_coded(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart)
{
    const struct tsr_cpu_weight *w = a->w;
    v16                          s[2][2][SEGMENTS];
    for (uint32_t seg = 0; seg < SEGMENTS; seg++)
        s[0][0][seg] = s[0][1][seg] = s[1][0][seg] = s[1][1][seg] = v_set1(0.0f);
    for (uint64_t r = 0, end; r < w->nruns; r = end) {
        const uint64_t next = ((r >> w->record_shift) + 1) << w->record_shift;
        for (end = next < w->nruns ? next : w->nruns; !block_ends(w, end - 1); end++)
            ;
        coded_runs(a, panel, r, end, s[0]);
        coded_runs(a, panel + apart, r, end, s[1]);
    }
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++)
            finish(a, panel + i * apart, h, 0, s[i][h]);
}

#endif
