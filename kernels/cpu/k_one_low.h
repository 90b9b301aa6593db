/* k_one_low.h - one token of int8 activations through panels of codes of two and three bits that are what they mean, on
 * AVX-512: codes are masked where they are. */
#ifndef TSR_K_ONE_LOW_H
#define TSR_K_ONE_LOW_H

#include "k_one_vnni.h"

/* Columns 4f to 4f+3 of a step; those of an odd f count 2^(bits) times. */
INLINE i16v low_four(const enum tsr_cpu_layout l, const struct code_step *s, const int f)
{
    if (l == W_I2)
        return vi_bits(f < 2 ? s->a : vi_shr(s->a, 4), 0, f % 2 ? 12 : 3);
    if (f < 6)
        return vi_bits(f < 2 ? s->a : f < 4 ? s->b : s->c, 0, f % 2 ? 56 : 7);
    if (f == 6)
        return vi_or(vi_bits(s->a, 6, 3), vi_bits(s->c, 4, 4));
    return vi_or(vi_bits(s->b, 3, 24), vi_bits(s->c, 2, 32));
}

/* The run r: the sums of each panel and half, of even and of odd fours. */
INLINE void low_run(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t r,
                    const enum tsr_cpu_layout l, const enum run_kind kind, v16 acc[2][2])
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *u = &w->runs[r];
    const uint64_t               step = cpu_step(l), unit = cpu_unit(l);
    const uint64_t               far = apart * w->panel_bytes;
    const uint8_t               *c = w->codes + panel * w->panel_bytes + u->k0 / step * 2 * unit;
    const int8_t                *q = a->q + u->k0;
    const int                    fours = (int)step / 4, lines = 2 * (int)unit / 64;
    const v16                    sa = v_set1(a->sa[u->block]);
    i16v                         s[2][2][2];
    prefetch_run(w, kind, panel, u->group);
    prefetch_run(w, kind, panel + apart, u->group);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint64_t at = ((panel + (i / 2 ? apart : 0)) * w->groups + u->group) * PANEL;
        s[i / 2][i % 2][0] = vi_set1(a->sums[r]);
        s[i / 2][i % 2][1] = vi_zero();
        if (w->zeros)
            s[i / 2][i % 2][0] =
                vi_mul(s[i / 2][i % 2][0], vi_load_u8(w->zeros + at + 16 * (uint64_t)(i % 2)));
    }
    for (uint64_t k = u->k0; k < u->k1; k += step, c += 2 * unit, q += step) {
        const struct code_step d = code_load(l, c), e = code_load(l, c + unit);
        const struct code_step g = code_load(l, c + far), h = code_load(l, c + far + unit);
        UNROLL
        for (int f = 0; f < fours; f++) {
            const i16v x = vi_four(q + 4 * f);
            const int  n = f % 2;
            UNROLL
            for (int line = f * lines / fours; line < (f + 1) * lines / fours; line++) {
                v_prefetch(c + ONE_AHEAD + 64 * line);
                v_prefetch(c + far + ONE_AHEAD + 64 * line);
            }
            s[0][0][n] = vi_dot4(s[0][0][n], low_four(l, &d, f), x);
            s[0][1][n] = vi_dot4(s[0][1][n], low_four(l, &e, f), x);
            s[1][0][n] = vi_dot4(s[1][0][n], low_four(l, &g, f), x);
            s[1][1][n] = vi_dot4(s[1][1][n], low_four(l, &h, f), x);
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint64_t half = (uint64_t)(i % 2);
        const v16      scale = group_of(w, panel + (i / 2 ? apart : 0), u->group, half, kind).scale;
        const i16v sum = vi_add(s[i / 2][half][0], vi_sar(s[i / 2][half][1], l == W_I2 ? 2 : 3));
        acc[i / 2][half] = v_fma(vi_cvt(sum), v_mul(scale, sa), acc[i / 2][half]);
    }
}

/* One token through the panels `panel` and panel + apart, run by run: two streams from memory. */
INLINE void one_low(const struct tsr_cpu_linear *a, const enum tsr_cpu_layout l,
                    const enum run_kind kind, uint64_t panel, uint64_t apart)
{
    const struct tsr_cpu_weight *w = a->w;
    v16                          chain[2][2][SEGMENTS];
    uint64_t                     r = 0;
    for (uint32_t seg = 0; seg < SEGMENTS; seg++) {
        v16 acc[2][2];
        acc[0][0] = acc[0][1] = acc[1][0] = acc[1][1] = v_set1(0.0f);
        for (; r < w->nruns && w->runs[r].segment == seg; r++)
            low_run(a, panel, apart, r, l, kind, acc);
        for (int i = 0; i < 4; i++)
            chain[i / 2][i % 2][seg] = acc[i / 2][i % 2];
    }
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++)
            finish(a, panel + i * apart, h, 0, chain[i][h]);
}

#endif
