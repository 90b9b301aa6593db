/* k_one_coded.h - one token of int8 activations through panels of tessera.int/2 with codes for scales and minimums on AVX2:
 * groups of 16 with two bits and nibbles (Q2_K), groups of 32 with four or five bits and bytes (Q4_K, Q5_K). Sums in
 * words are multiplied by the codes of scales, and the factors of a record are loaded once. */
#ifndef TSR_K_ONE_CODED_H
#define TSR_K_ONE_CODED_H

#include "k_one_a8.h"

/* Sums of 16 columns of two bits for 16 rows in words. Every second four is masked where it is and counts four times. */
INLINE i16v coded_words(const uint8_t *c, const int8_t *q)
{
    const i16v codes = vi_opaque(vi_load(c)); /* else each mask loads it again */
    v_prefetch(c + ONE_AHEAD);
    const i16v once = vw_dot(vw_dot(vi_zero(), vi_bits(codes, 0, 3), vi_four(q)),
                             vi_bits(codes, 4, 3), vi_four(q + 8));
    const i16v four = vw_dot(vw_dot(vi_zero(), vi_bits(codes, 0, 12), vi_four(q + 4)),
                             vi_bits(codes, 4, 12), vi_four(q + 12));
    return vw_add(once, vw_quarter(four));
}

/* The sums of 32 columns of four or five bits for 16 rows, times the codes k of their scales. */
INLINE i16v coded_whole(const enum tsr_cpu_layout l, const uint8_t *c, const int8_t *q,
                        const i16v k)
{
    const int        fours = 8, most = one_fours(ONE_CODES, l), step = (int)cpu_step(l) / 4;
    struct code_step codes = code_load(l, c);
    i16v             words = vi_zero(), whole = vi_zero();
    UNROLL
    for (int j = 0; j < fours; j++) {
        if (j && j % step == 0)
            codes = code_load(l, c + 2 * cpu_unit(l) * (uint64_t)(j / step));
        if (l == W_I4 && j % step == 0)
            codes.a = vi_opaque(codes.a);
        /* one line at a time: bursts of them stop the products */
        if (l == W_I4 ? j % step == 0 : j < (int)cpu_unit(l) / 64)
            v_prefetch(c + ONE_AHEAD + (l == W_I4 ? 128 * (j / step) : 64 * j));
        words = vi_opaque(vw_dot(words, code_four(l, &codes, j % step), vi_four(q + 4 * j)));
        if (j % most == most - 1) {
            whole = vi_add(whole, vi_mul16(words, k));
            words = vi_zero();
        }
    }
    return whole;
}

/* Adds a run of 16 rows. Products of a factor's code and a sum are below 2^24, so exact, also 16 times: the bytes are
 * those of one_take(). */
INLINE v16 coded_sum(const enum tsr_cpu_layout l, const uint8_t *c, const uint8_t *scales,
                     const uint8_t *minimums, const int8_t *q, const i16v ones,
                     const struct one_factors *f, v16 sum)
{
    if (l == W_I2) {
        const i16v               words = vi_opaque(coded_words(c, q));
        const struct words_codes k = vw_codes(scales);
        sum = v_fma(vi_cvt(vi_mul16(words, k.low)), f->scale, sum);
        return v_fma(vi_cvt(vi_mul16(ones, k.high)), f->minimum, sum);
    }
    sum = v_fma(vi_cvt(coded_whole(l, c, q, vw_bytes(scales))), f->scale, sum);
    return v_fma(vi_cvt(vi_mul16(ones, vi_load_u8(minimums))), f->minimum, sum);
}

/* The factors of a record; where minimums are high nibbles, a sixteenth of theirs. */
INLINE struct one_factors coded_factors(const struct tsr_cpu_weight *w, uint64_t panel,
                                        uint64_t half, uint64_t record)
{
    struct one_factors f = factors_of(w, RUN_AFFINE, SCALES_ANY, panel, half, record);
    if (w->affine == AFFINE_NIBBLES)
        f.minimum = v_mul(f.minimum, v_set1(0.0625f));
    return f;
}

/* One token through the panels `panel` and panel + apart, run by run: two streams from memory. A run is a group. */
INLINE void one_coded(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l, uint64_t panel,
                      uint64_t apart)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               columns = l == W_I2 ? 16 : 32, unit = cpu_unit(l);
    const uint64_t               bytes = columns / cpu_step(l) * 2 * unit;
    const uint64_t               next = apart * w->groups * PANEL, far = apart * w->panel_bytes;
    const uint8_t               *c = w->codes + panel * w->panel_bytes;
    const uint8_t               *scales = w->scales + panel * w->groups * PANEL;
    const uint8_t *minimums = l == W_I2 ? scales : w->minimums + panel * w->groups * PANEL;
    const int8_t  *q = a->q;
    v16            chain[2][2][SEGMENTS], s[2][2];
    for (int h = 0; h < 2; h++) {
        s[0][h] = s[1][h] = v_set1(0.0f);
        for (uint32_t seg = 0; seg < SEGMENTS; seg++)
            chain[0][h][seg] = chain[1][h][seg] = v_set1(0.0f);
    }
    for (uint64_t r = 0; r < w->nruns;) {
        const uint64_t     record = r >> w->record_shift;
        const uint64_t     after = (record + 1) << w->record_shift;
        const uint64_t     end = after < w->nruns ? after : w->nruns;
        struct one_factors f[2][2];
        for (uint64_t i = 0; i < 4; i++) {
            const uint64_t p = panel + (i / 2 ? apart : 0);
            f[i / 2][i % 2] = coded_factors(w, p, i % 2, record);
            v_prefetch(w->factors + 4 * (p * w->records + record + 1) * PANEL + 64 * (i % 2));
        }
        for (; r < end; r++, c += bytes, scales += PANEL, minimums += PANEL, q += columns) {
            const i16v ones = vi_four(a->sums + r);
            UNROLL
            for (int i = 0; i < 2; i++) {
                const uint8_t *d = c + (i ? far : 0);
                const uint64_t n = i ? next : 0;
                v_prefetch(scales + n + GROUPS_AHEAD * PANEL);
                if (l != W_I2)
                    v_prefetch(minimums + n + GROUPS_AHEAD * PANEL);
                UNROLL
                for (uint64_t h = 0; h < 2; h++)
                    s[i][h] = coded_sum(l, d + unit * h, scales + n + 16 * h, minimums + n + 16 * h,
                                        q, ones, &f[i][h], s[i][h]);
            }
            if (!block_ends(w, r))
                continue;
            const v16      sa = v_set1(a->sa[w->runs[r].block]);
            const uint32_t seg = w->runs[r].segment;
            UNROLL
            for (int i = 0; i < 4; i++) {
                chain[i / 2][i % 2][seg] = v_fma(s[i / 2][i % 2], sa, chain[i / 2][i % 2][seg]);
                s[i / 2][i % 2] = v_set1(0.0f);
            }
        }
    }
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++)
            finish(a, panel + i * apart, h, 0, chain[i][h]);
}

#endif
