/* k_one_a8.h - one token of int8 activations through panels of codes of up to six bits on AVX2: words add products
 * as long as they can hold them, one panel after the other, run by run. */
#ifndef TSR_K_ONE_A8_H
#define TSR_K_ONE_A8_H

#include "k_few_a8.h"
#include "simd_words.h"

#define ONE_AHEAD 3072u /* bytes between a prefetch of codes and their use */

/* How a run's codes are multiplied. */
enum one_form {
    ONE_CODES,  /* as they are */
    ONE_LOOKUP, /* bytes of a table, below 32 */
    ONE_SIGNED  /* bytes of a table with a sign: activations have none, the bytes take it */
};

/* How scales are stored, where a loop is for one way only. */
enum one_scales {
    SCALES_ANY,
    SCALES_F16,  /* of each group, and no zero points */
    SCALES_CODED /* MAPPED_BYTES */
};

/* Fours of columns whose products a word can add: 254 times the largest byte for each. */
INLINE int one_fours(const enum one_form form, const enum tsr_cpu_layout l)
{
    if (form == ONE_LOOKUP)
        return 4;
    if (form != ONE_CODES)
        return 1;
    return l == W_I3 ? 16 : l == W_I4 ? 8 : l == W_I5 ? 4 : 2;
}

/* Whether one half of a panel follows the other: one_twos(). */
INLINE int one_halved(const enum one_form form, const enum tsr_cpu_layout l)
{
    return form == ONE_CODES && l == W_I2;
}

/* Sums of a run for 16 rows. */
struct one_sum {
    i16v words, whole;
};

INLINE void one_flush(struct one_sum *s)
{
    s->whole = vw_sum(s->whole, s->words);
    s->words = vi_zero();
}

/* Sums in words of columns of two bits. Codes are masked where they are, so that every second four counts four times. */
struct two_sum {
    i16v once, times4;
};

/* 16 columns of one half. */
INLINE void one_two(struct two_sum *s, const uint8_t *c, const int8_t *q, const uint8_t *ahead)
{
    const i16v codes = vi_opaque(vi_load(c)), high = vi_bits(codes, 4, 15);
    v_prefetch(ahead);
    s->once = vw_dot(s->once, vi_bits(codes, 0, 3), vi_four(q));
    s->times4 = vw_dot(s->times4, vi_bits(codes, 0, 12), vi_four(q + 4));
    s->once = vi_opaque(vw_dot(s->once, vi_bits(high, 0, 3), vi_four(q + 8)));
    s->times4 = vi_opaque(vw_dot(s->times4, vi_bits(high, 0, 12), vi_four(q + 12)));
}

/* The sums of 16 columns times `steps`, which is 1, 2 or 4, of one half. Lines at `ahead` are prefetched, one a step. */
INLINE i16v one_twos(const uint8_t *c, const int8_t *q, const int steps, const uint8_t *ahead)
{
    struct two_sum s = { vi_zero(), vi_zero() };
    /* else gcc loads activations once for both halves, and keeps them in memory */
    __asm__ volatile("" : "+r"(q));
    one_two(&s, c, q, ahead);
    if (steps > 1)
        one_two(&s, c + 2 * cpu_unit(W_I2), q + 16, ahead + 64);
    if (steps > 2) {
        one_two(&s, c + 4 * cpu_unit(W_I2), q + 32, ahead + 128);
        one_two(&s, c + 6 * cpu_unit(W_I2), q + 48, ahead + 192);
    }
    return vw_add(s.once, vw_quarter(s.times4));
}

INLINE void one_both_twos(const uint8_t *c, const int8_t *q, const int steps, struct one_sum s[2])
{
    const uint8_t *ahead = c + ONE_AHEAD;
    s[0].whole = vw_sum(s[0].whole, one_twos(c, q, steps, ahead));
    s[1].whole = vw_sum(s[1].whole, one_twos(c + cpu_unit(W_I2), q, steps, ahead + 64 * steps));
}

/* The sums of `columns` of a panel. */
INLINE void one_run_twos(const uint8_t *c, const int8_t *q, uint64_t columns, struct one_sum s[2])
{
    const uint64_t step = 2 * cpu_unit(W_I2);
    for (; columns >= 64; columns -= 64, c += 4 * step, q += 64)
        one_both_twos(c, q, 4, s);
    if (columns >= 32) {
        one_both_twos(c, q, 2, s);
        columns -= 32, c += 2 * step, q += 32;
    }
    if (columns)
        one_both_twos(c, q, 1, s);
}

/* One step. A word holds all of its products or, of more fours than one_fours(), those since the last flush. */
INLINE void one_step(const enum one_form form, const enum tsr_cpu_layout l, const uint8_t *c,
                     const int8_t *q, const i16v table, struct one_sum *s)
{
    const int        fours = (int)cpu_step(l) / 4, most = one_fours(form, l);
    struct code_step codes = code_load(l, c);
    codes.a = vi_opaque(codes.a);
    UNROLL
    for (int j = 0; j < fours; j++) {
        const i16v x = vi_four(q + 4 * j);
        i16v       w = code_four(l, &codes, j);
        if (form != ONE_CODES)
            w = vb_lookup(table, w);
        if (form == ONE_SIGNED) {
            s->whole = vi_opaque(vw_sum(s->whole, vw_dot(vi_zero(), vb_abs(x), vb_sign(w, x))));
            continue;
        }
        if (j && j % most == 0)
            one_flush(s);
        s->words = vw_dot(s->words, w, x);
    }
    /* now, not at the end of the run: the compiler would keep all products until then, in memory */
    if (form != ONE_SIGNED)
        s->words = vi_opaque(s->words);
}

/* A step of both halves. No loop: where one has few turns, gcc 12 unrolls the one around it in its place. */
INLINE void one_prefetch(const enum tsr_cpu_layout l, const uint8_t *c)
{
    v_prefetch(c);
    v_prefetch(c + 64);
    if (cpu_unit(l) >= 192) {
        v_prefetch(c + 128);
        v_prefetch(c + 192);
        v_prefetch(c + 256);
        v_prefetch(c + 320);
    }
    if (cpu_unit(l) >= 320) {
        v_prefetch(c + 384);
        v_prefetch(c + 448);
        v_prefetch(c + 512);
        v_prefetch(c + 576);
    }
}

/* The sums of `columns` of a panel, halves apart; words that are not flushed remain. */
INLINE void one_run(const enum one_form form, const enum tsr_cpu_layout l, const uint8_t *c,
                    const int8_t *q, const uint64_t columns, i16v table, struct one_sum s[2])
{
    const uint64_t step = cpu_step(l), unit = cpu_unit(l);
    const int      most = 4 * one_fours(form, l) / (int)step, steps = most > 1 ? most : 1;
    struct one_sum a = s[0], b = s[1];
    if (one_halved(form, l)) {
        one_run_twos(c, q, columns, s);
        return;
    }
#define STEP                                                                                       \
    do {                                                                                           \
        one_prefetch(l, c + ONE_AHEAD);                                                            \
        one_step(form, l, c, q, table, &a);                                                        \
        one_step(form, l, c + unit, q, table, &b);                                                 \
        k += step, c += 2 * unit, q += step;                                                       \
    } while (0)
#define FLUSH                                                                                      \
    if (form != ONE_SIGNED) {                                                                      \
        one_flush(&a);                                                                             \
        one_flush(&b);                                                                             \
    }
    uint64_t k = 0;
    while (k + step * (uint64_t)steps <= columns) { /* a word's worth */
        if (k)
            FLUSH
        STEP;
        if (steps > 1)
            STEP;
        if (steps > 2) {
            STEP;
            STEP;
        }
    }
    if (k && k < columns)
        FLUSH
    while (k < columns)
        STEP;
#undef STEP
#undef FLUSH
    s[0] = a;
    s[1] = b;
}

INLINE void one_prefetch_scales(const struct tsr_cpu_weight *w, const enum run_kind kind,
                                const enum one_scales scales, uint64_t panel, uint64_t group)
{
    const uint64_t at = (panel * w->groups + group + GROUPS_AHEAD) * PANEL;
    if (scales == SCALES_ANY)
        prefetch_run(w, kind, panel, group);
    else
        v_prefetch(w->scales + (scales == SCALES_F16 ? 2 * at : at));
}

/* Factors of a record for 16 rows; what has no records has none. */
struct one_factors {
    v16 scale, minimum;
};

INLINE struct one_factors factors_of(const struct tsr_cpu_weight *w, const enum run_kind kind,
                                     const enum one_scales scales, uint64_t panel, uint64_t half,
                                     uint64_t record)
{
    const uint64_t     at = panel * w->records + record;
    struct one_factors f;
    f.scale = f.minimum = v_set1(0.0f);
    if (kind == RUN_AFFINE && w->affine != AFFINE_STORED) {
        const uint8_t *p = w->factors + 2 * (2 * at * PANEL + 16 * half);
        f.scale = v_load_f16(p);
        f.minimum = v_neg(v_load_f16(p + 2 * PANEL));
    } else if (scales == SCALES_CODED ||
               (scales == SCALES_ANY && is_mapped(kind) && w->mapped == MAPPED_BYTES)) {
        f.scale = v_load_f16(w->factors + 2 * (at * PANEL + 16 * half));
    } else if (scales == SCALES_ANY && is_mapped(kind) && w->mapped == MAPPED_ELEMENTS) {
        f.scale = v_load((const float *)(const void *)w->factors + panel * PANEL + 16 * half);
    }
    return f;
}

/* The scale of the group at `at`, and of tessera.int/2 the minimum: group_of() with the factors of its record. */
INLINE struct affine one_group(const struct tsr_cpu_weight *w, const enum run_kind kind,
                               const enum one_scales scales, const struct one_factors *f,
                               uint64_t at)
{
    struct affine g;
    if (kind == RUN_AFFINE) {
        if (w->affine == AFFINE_STORED) {
            g.scale = group_scale(w, at);
            g.minimum = w->scale_f16 ? v_load_f16(w->minimums + 2 * at)
                                     : v_load((const float *)(const void *)w->minimums + at);
            return g;
        }
        i16v a = vi_load_u8(w->scales + at), b = a;
        if (w->affine == AFFINE_NIBBLES) {
            a = vi_bits(a, 0, 15);
            b = vi_bits(b, 4, 15);
        } else {
            b = vi_load_u8(w->minimums + at);
        }
        g.scale = v_mul(f->scale, vi_cvt(a));
        g.minimum = v_mul(f->minimum, vi_cvt(b));
        return g;
    }
    if (scales == SCALES_F16)
        g.scale = v_load_f16(w->scales + 2 * at);
    else if (scales == SCALES_ANY && (kind == RUN_PLAIN || w->mapped == MAPPED_STORED))
        g.scale = group_scale(w, at);
    else if (scales == SCALES_ANY && w->mapped == MAPPED_ELEMENTS)
        g.scale = v_div(v_e4m3(vi_load_u8(w->scales + at)), f->scale);
    else
        g.scale = v_mul(f->scale, vi_cvt(vi_sub(vi_load_u8(w->scales + at), vi_set1(w->bias))));
    if (kind != RUN_PLAIN)
        g.scale = v_mul(g.scale, v_set1(w->unit));
    g.minimum = g.scale;
    return g;
}

/* A panel between runs. */
struct one_panel {
    uint64_t           panel, record;
    const uint8_t     *codes; /* of the next run */
    v16                acc[2], block[2];
    struct one_factors factors[2];
};

/* The run r. `columns`: of each run, or 0. */
INLINE void one_take(const struct tsr_cpu_linear *a, struct one_panel *p, uint64_t r,
                     const enum tsr_cpu_layout l, const enum run_kind kind,
                     const enum one_form form, const enum one_scales scales, const uint64_t columns,
                     const i16v table, const int ends)
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *u = &w->runs[r];
    const uint64_t               step = cpu_step(l), unit = cpu_unit(l);
    const uint64_t               at = (p->panel * w->groups + u->group) * PANEL;
    const uint64_t               n = columns ? columns : u->k1 - u->k0;
    const int32_t                sums = a->sums[r];
    const v16                    sa = v_set1(a->sa[u->block]);
    struct one_sum               s[2];
    if (kind != RUN_PLAIN && scales != SCALES_F16 && u->group >> w->record_shift != p->record) {
        p->record = u->group >> w->record_shift;
        for (uint64_t h = 0; h < 2; h++)
            p->factors[h] = factors_of(w, kind, scales, p->panel, h, p->record);
    }
    one_prefetch_scales(w, kind, scales, p->panel, u->group);
    UNROLL
    for (int h = 0; h < 2; h++) {
        s[h].words = s[h].whole = vi_zero();
        if (kind == RUN_PLAIN && scales == SCALES_ANY && w->zeros)
            s[h].whole = vi_mul16(vi_load_u8(w->zeros + at + 16 * h), vi_set1(sums));
        else if (kind != RUN_AFFINE && form != ONE_SIGNED)
            s[h].whole = vi_set1(sums);
    }
    one_run(form, l, p->codes, a->q + u->k0, n, table, s);
    p->codes += (n + step - 1) / step * 2 * unit;
    UNROLL
    for (int h = 0; h < 2; h++) {
        const struct one_factors *f = &p->factors[h];
        v16                       block = p->block[h];
        const struct affine       g = one_group(w, kind, scales, f, at + 16 * (uint64_t)h);
        if (form != ONE_SIGNED && !one_halved(form, l))
            one_flush(&s[h]);
        if (kind == RUN_AFFINE) {
            block = v_fma(vi_cvt(s[h].whole), g.scale, block);
            block = v_fma(vi_cvt(vi_set1(sums)), g.minimum, block);
        } else {
            p->acc[h] = v_fma(vi_cvt(s[h].whole), v_mul(g.scale, sa), p->acc[h]);
        }
        if (kind == RUN_AFFINE && ends) {
            p->acc[h] = v_fma(block, sa, p->acc[h]);
            block = v_set1(0.0f);
        }
        p->block[h] = block;
    }
}

/* One token through the panels `panel` and panel + apart, run by run: two streams from memory. */
INLINE void one(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart,
                const enum tsr_cpu_layout l, const enum run_kind kind, const enum one_form form,
                const enum one_scales scales, const uint64_t columns)
{
    const struct tsr_cpu_weight *w = a->w;
    const i16v                   table = form == ONE_SIGNED ? vb_less(vb_table(w->table8), w->mid)
                                         : is_mapped(kind)  ? vb_table(w->table8)
                                                            : vi_zero();
    v16                          s[2][2][SEGMENTS];
    struct one_panel             p[2];
    for (uint64_t i = 0; i < 2; i++) {
        p[i].panel = panel + i * apart;
        p[i].record = 0;
        for (uint64_t h = 0; h < 2; h++)
            p[i].factors[h] = factors_of(w, kind, scales, p[i].panel, h, 0);
        p[i].codes = w->codes + p[i].panel * w->panel_bytes;
    }
    uint32_t seg = 0;
    for (uint64_t r = 0; r < w->nruns; seg++) {
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 2; h++)
                p[i].acc[h] = p[i].block[h] = v_set1(0.0f);
        for (; r < w->nruns && w->runs[r].segment == seg; r++) {
            const int ends = block_ends(w, r);
            one_take(a, &p[0], r, l, kind, form, scales, columns, table, ends);
            one_take(a, &p[1], r, l, kind, form, scales, columns, table, ends);
        }
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 2; h++)
                s[i][h][seg] = p[i].acc[h];
    }
    for (; seg < SEGMENTS; seg++)
        s[0][0][seg] = s[0][1][seg] = s[1][0][seg] = s[1][1][seg] = v_set1(0.0f);
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++)
            finish(a, panel + i * apart, h, 0, s[i][h]);
}

#endif
