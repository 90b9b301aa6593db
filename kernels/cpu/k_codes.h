/* k_codes.h - packed codes out of a panel, 16 rows by 4 columns at a time. */
#ifndef TSR_K_CODES_H
#define TSR_K_CODES_H

#include "k_e4m3.h"
#include "kernels.h"
#include "simd.h"
#include "simd_bytes.h"

/* The vectors of 16 rows of a step; only W_I3, W_I5 and W_I6 have b and c, only W_I5 d and e. */
struct code_step {
    i16v a, b, c, d, e;
};

INLINE struct code_step code_load(const enum tsr_cpu_layout l, const uint8_t *p)
{
    struct code_step s;
    s.a = s.b = s.c = s.d = s.e = vi_load(p);
    if (l == W_I3 || l == W_I6 || l == W_I5) {
        s.b = vi_load(p + 64);
        s.c = vi_load(p + 128);
    }
    if (l == W_I5) {
        s.d = vi_load(p + 192);
        s.e = vi_load(p + 256);
    }
    return s;
}

/* Columns 4j to 4j+3 of the step, one byte each. */
INLINE i16v code_four(const enum tsr_cpu_layout l, const struct code_step *s, const int j)
{
    switch (l) {
    case W_I4:
        return vi_bits(s->a, 4 * j, 15);
    case W_I2:
        return vi_bits(s->a, 2 * j, 3);
    case W_I3: /* three vectors of two whole codes each; 6 and 7 are in the bits left over */
        if (j < 6)
            return vi_bits(j < 2 ? s->a : j < 4 ? s->b : s->c, j % 2 * 3, 7);
        return vi_or(vi_bits(j == 6 ? s->a : s->b, 6, 3), vi_bits(s->c, j - 2, 4));
    case W_I5: /* four vectors of nibbles; bit j of the fifth's bytes belongs to four j */
        return vi_or(vi_bits(j < 2   ? s->a
                             : j < 4 ? s->b
                             : j < 6 ? s->c
                                     : s->d,
                             4 * (j % 2), 15),
                     j < 4 ? vi_bits(vi_shl(s->e, (uint32_t)(4 - j)), 0, 16)
                           : vi_bits(s->e, j - 4, 16));
    case W_I6: /* three vectors of a whole code each; the fourth is in the bits left over */
        if (j < 3)
            return vi_bits(j == 0 ? s->a : j == 1 ? s->b : s->c, 0, 63);
        return vi_or(vi_bits(s->a, 6, 3), vi_or(vi_bits(s->b, 4, 12), vi_bits(s->c, 2, 48)));
    default:
        return s->a;
    }
}

/* The four of column k. */
INLINE i16v four_at(const enum tsr_cpu_layout l, const uint8_t *codes, uint64_t k)
{
    const uint64_t   step = cpu_step(l), j = k % step / 4;
    struct code_step s = code_load(l, codes + k / step * 2 * cpu_unit(l));
    return code_four(l, &s, (int)j);
}

INLINE v16 group_scale(const struct tsr_cpu_weight *w, uint64_t at)
{
    return w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                        : v_load((const float *)(const void *)w->scales + at);
}

/* Elements that share a scale, extra.h: rows 16 * half and on of a panel. */
INLINE v16 element_scale(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t half,
                         uint64_t group)
{
    const uint64_t at = (panel * w->groups + group) * PANEL + 16 * half;
    return w->extra.stored ? v_load((const float *)(const void *)w->scales + at)
                           : v_load_bf16(w->scales + 2 * at);
}

/* Scale and minimum of 16 rows. */
struct affine {
    v16 scale, minimum;
};

/* tessera.int/2: rows 16 * half and on of a panel. */
INLINE struct affine group_affine(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                                  uint64_t half)
{
    const uint64_t at = (panel * w->groups + group) * PANEL + 16 * half;
    if (w->affine == AFFINE_STORED) {
        struct affine s = { group_scale(w, at),
                            w->scale_f16 ? v_load_f16(w->minimums + 2 * at)
                                         : v_load((const float *)(const void *)w->minimums + at) };
        return s;
    }
    const uint64_t record = panel * w->records + (group >> w->record_shift);
    const uint8_t *factors = w->factors + 2 * (2 * record * PANEL + 16 * half);
    i16v           a = vi_load_u8(w->scales + at), b = a;
    if (w->affine == AFFINE_NIBBLES) {
        a = vi_bits(a, 0, 15);
        b = vi_bits(b, 4, 15);
    } else {
        b = vi_load_u8(w->minimums + at);
    }
    struct affine s = { v_mul(v_load_f16(factors), vi_cvt(a)),
                        v_neg(v_mul(v_load_f16(factors + 2 * PANEL), vi_cvt(b))) };
    return s;
}

/* The same of AFFINE_NIBBLES, with the codes of a record apart from its factors. */
struct coded {
    i16v scale_code, minimum_code;
    v16  scale, minimum;
};

INLINE struct coded group_coded(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                                uint64_t half)
{
    const uint64_t record = panel * w->records + (group >> w->record_shift);
    const uint8_t *factors = w->factors + 2 * (2 * record * PANEL + 16 * half);
    const i16v     c = vi_load_u8(w->scales + (panel * w->groups + group) * PANEL + 16 * half);
    return (struct coded){ vi_bits(c, 0, 15), vi_bits(c, 4, 15), v_load_f16(factors),
                           v_neg(v_load_f16(factors + 2 * PANEL)) };
}

/* Whether sums of a run fit 16 bits, so that a code can multiply them. */
INLINE int is_coded(const struct tsr_cpu_weight *w)
{
    return w->affine == AFFINE_NIBBLES && w->layout == W_I2 && w->group <= 64;
}

/* tessera.table/1: rows 16 * half and on of a panel. */
INLINE v16 group_mapped(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                        uint64_t half)
{
    const uint64_t at = (panel * w->groups + group) * PANEL + 16 * half;
    if (w->mapped == MAPPED_STORED)
        return group_scale(w, at);
    const i16v a = vi_load_u8(w->scales + at);
    if (w->mapped == MAPPED_ELEMENTS)
        return v_div(v_e4m3(a),
                     v_load((const float *)(const void *)w->factors + panel * PANEL + 16 * half));
    const uint64_t record = panel * w->records + (group >> w->record_shift);
    return v_mul(v_load_f16(w->factors + 2 * (record * PANEL + 16 * half)),
                 vi_cvt(vi_sub(a, vi_set1(w->bias))));
}

/* What a run of columns is. */
enum run_kind {
    RUN_PLAIN,  /* tessera.int/1 */
    RUN_AFFINE, /* tessera.int/2: it adds its minimum times the sum of its activations */
    RUN_MAPPED, /* tessera.table/1: codes are looked up */
    RUN_LOW     /* the same, and what they are is less than 64, on AVX2 */
};

INLINE int is_mapped(const enum run_kind kind)
{
    return kind == RUN_MAPPED || kind == RUN_LOW;
}

INLINE enum run_kind kind_of(const struct tsr_cpu_weight *w)
{
    if (w->affine)
        return RUN_AFFINE;
    if (!w->mapped)
        return RUN_PLAIN;
    return TSR_SIMD == 2 && cpu_looked_up(w->layout) && w->mid < CPU_LOW_BYTE ? RUN_LOW
                                                                              : RUN_MAPPED;
}

/* The scale, and of tessera.int/2 the minimum. */
INLINE struct affine group_of(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group,
                              uint64_t half, const enum run_kind kind)
{
    if (kind == RUN_AFFINE)
        return group_affine(w, panel, group, half);
    v16 scale = is_mapped(kind) ? v_mul(group_mapped(w, panel, group, half), v_set1(w->unit))
                                : group_scale(w, (panel * w->groups + group) * PANEL + 16 * half);
    struct affine s = { scale, scale };
    return s;
}

/* Whether the block of activations ends with the run r. */
INLINE int block_ends(const struct tsr_cpu_weight *w, uint64_t r)
{
    return r + 1 >= w->nruns || w->runs[r + 1].block != w->runs[r].block;
}

/* The bytes that codes are looked up in. */
INLINE i16v run_table(const struct tsr_cpu_weight *w, const enum run_kind kind)
{
    return is_mapped(kind) ? vi_load(w->table8) : vi_zero();
}

/* code_four() as the products take it. */
INLINE i16v run_four(const enum run_kind kind, const enum tsr_cpu_layout l,
                     const struct code_step *s, const int j, i16v table)
{
    i16v codes = code_four(l, s, j);
    return is_mapped(kind) && cpu_looked_up(l) ? vb_lookup(table, codes) : codes;
}

/* Products of codes of up to six bits cannot saturate. */
INLINE int is_low(const enum run_kind kind, const enum tsr_cpu_layout l)
{
    return l != W_I8 && !(kind == RUN_MAPPED && cpu_looked_up(l));
}

INLINE i16v run_dot(const enum run_kind kind, const enum tsr_cpu_layout l, i16v acc, i16v w, i16v x)
{
    return is_low(kind, l) ? vi_dot4_low(acc, w, x) : vi_dot4(acc, w, x);
}

#endif
