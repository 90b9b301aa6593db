/* k_one_elements.h - one token of int8 activations through panels of a table of small numbers with four bits, groups
 * of 16 and elements of E4M3 for scales (NVFP4) on AVX2 and AVX-512: without divisions, and by blocks of activations.
 * Scales have no sign and are no NaN; what has another is left to the caller. */
#ifndef TSR_K_ONE_ELEMENTS_H
#define TSR_K_ONE_ELEMENTS_H

#if TSR_SIMD == 2
#include "k_one_a8.h"
#else
#include "k_one_vnni.h"
#endif
#include "simd_most.h"

/* Bytes between a prefetch of codes and their use: a panel is read for a block of 2048 bytes at a time. */
#define ELEMENTS_AHEAD 1536u

/* The first byte of E4M3 that is no number from 0 on. */
#define ELEMENT_NAN 0x7f

/* The bytes that codes are looked up in. */
INLINE i16v element_table(const struct tsr_cpu_weight *w)
{
#if TSR_SIMD == 2
    return vb_table(w->table8);
#else
    return vi_load(w->table8);
#endif
}

/* What scales of 16 rows are divided by, over the unit of the table: minus a 256th of it, and 256 over it. */
struct divisor {
    v16 minus, inverse;
};

INLINE const float *divisors_of(const struct tsr_cpu_weight *w, uint64_t panel)
{
    return (const float *)(const void *)w->factors + panel * PANEL;
}

/* Whether factors take a table's unit exactly: a power of two from 2^-16 to 2^16. */
INLINE int is_near_power(float unit)
{
    uint32_t bits;
    memcpy(&bits, &unit, sizeof bits);
    return (bits & 0x7fffffu) == 0 && bits >= 111u << 23 && bits <= 143u << 23;
}

/* Whether no step of scale_over() leaves the range of F32. */
INLINE int are_near_one(const float *d)
{
    const v16      a = v_abs(v_load(d)), b = v_abs(v_load(d + 16));
    const v16      low = v_set1(0x1p-90f), high = v_set1(0x1p90f);
    const uint32_t rows =
        v_bits(v_lt(low, a)) & v_bits(v_lt(a, high)) & v_bits(v_lt(low, b)) & v_bits(v_lt(b, high));
    return rows == 0xffff;
}

/* The elements at p over their divisors, rounded once. One correction of e * (1 / d) rounds as the division does, for
 * each mantissa of d and the sixteen of E4M3: tests/unit/test_cpu_probe.c tries all. */
INLINE v16 scale_over(const uint8_t *p, const struct divisor *d)
{
    const v16 e = vw_e4m3(p), q = v_mul(e, d->inverse);
    return v_fma(v_fma(d->minus, q, e), d->inverse, q);
}

/* The integer of a run of 16 rows: of AVX2 words hold all of its products. */
INLINE i16v element_sum(const uint8_t *c, const i16v x[4], const i16v sums, const i16v table)
{
    i16v a = vi_load(c), b = vi_load(c + 128);
#if TSR_SIMD == 2
    a = vi_opaque(a), b = vi_opaque(b); /* else each mask loads them again */
    i16v words = vw_dot(vi_zero(), vb_lookup(table, vi_bits(a, 0, 15)), x[0]);
    words = vw_dot(words, vb_lookup(table, vi_bits(a, 4, 15)), x[1]);
    words = vw_dot(words, vb_lookup(table, vi_bits(b, 0, 15)), x[2]);
    words = vi_opaque(vw_dot(words, vb_lookup(table, vi_bits(b, 4, 15)), x[3]));
    return vw_sum(sums, words);
#else
    i16v s = vi_dot4(sums, vb_lookup(table, vi_bits(a, 0, 15)), x[0]);
    s = vi_dot4(s, vb_lookup(table, vi_bits(a, 4, 15)), x[1]);
    s = vi_dot4(s, vb_lookup(table, vi_bits(b, 0, 15)), x[2]);
    return vi_dot4(s, vb_lookup(table, vi_bits(b, 4, 15)), x[3]);
#endif
}

/* Adds a run of 16 rows to the chain. */
INLINE v16 element_run(const uint8_t *c, const uint8_t *scales, const i16v x[4], const i16v sums,
                       const i16v table, const struct divisor *d, const v16 sa, v16 chain)
{
    return v_fma(vi_cvt(element_sum(c, x, sums, table)), v_mul(scale_over(scales, d), sa), chain);
}

/* Adds the runs [r, end) of a panel, which are in one block of activations, to its chains. A run is a group. Returns
 * the largest of their scales and `most`. */
INLINE b32 element_runs(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t r, uint64_t end,
                        const struct divisor d[2], const i16v table, v16 chain[2][SEGMENTS],
                        b32 most)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint8_t               *c = w->codes + panel * w->panel_bytes + r * 256;
    const uint8_t               *scales = w->scales + (panel * w->groups + r) * PANEL;
    const int8_t                *q = a->q + r * 16;
    const uint32_t               seg = w->runs[r].segment;
    const v16                    sa = v_set1(a->sa[w->runs[r].block]);
    v16                          s = chain[0][seg], t = chain[1][seg];
    for (; r < end; r++, c += 256, scales += PANEL, q += 16) {
        const i16v x[4] = { vi_four(q), vi_four(q + 4), vi_four(q + 8), vi_four(q + 12) };
        const i16v sums = vi_set1(a->sums[r]);
        v_prefetch(c + ELEMENTS_AHEAD);
        v_prefetch(c + ELEMENTS_AHEAD + 64);
        v_prefetch(c + ELEMENTS_AHEAD + 128);
        v_prefetch(c + ELEMENTS_AHEAD + 192);
        v_prefetch(scales + GROUPS_AHEAD * PANEL);
        most = b32_most(most, scales);
        s = element_run(c, scales, x, sums, table, &d[0], sa, s);
        t = element_run(c + 64, scales + 16, x, sums, table, &d[1], sa, t);
    }
    chain[0][seg] = s;
    chain[1][seg] = t;
    return most;
}

/* One token through the panels `panel` and panel + apart, block by block: two streams from memory. Returns whether
 * their scales allow it; if not, nothing is written. */
INLINE int one_elements(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart)
{
    const struct tsr_cpu_weight *w = a->w;
    const i16v                   table = element_table(w);
    struct divisor               d[2][2];
    b32                          most = b32_zero();
    v16                          s[2][2][SEGMENTS];
    const v16                    over = v_set1(0x1p-8f / w->unit);
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++) {
            const v16 n = v_mul(v_load(divisors_of(w, panel + i * apart) + 16 * h), over);
            d[i][h].minus = v_neg(n);
            d[i][h].inverse = v_div(v_set1(1.0f), n);
            for (uint32_t seg = 0; seg < SEGMENTS; seg++)
                s[i][h][seg] = v_set1(0.0f);
        }
    for (uint64_t r = 0, end; r < w->nruns; r = end) {
        for (end = r + 1; !block_ends(w, end - 1); end++)
            ;
        most = element_runs(a, panel, r, end, d[0], table, s[0], most);
        most = element_runs(a, panel + apart, r, end, d[1], table, s[1], most);
    }
    if (!b32_below(most, ELEMENT_NAN))
        return 0;
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t h = 0; h < 2; h++)
            finish(a, panel + i * apart, h, 0, s[i][h]);
    return 1;
}

#endif
