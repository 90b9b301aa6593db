/* k_tile_mmla.h - a tile of tokens of int8 activations on usmmla: two rows of 8 codes by two tokens of 8
 * activations are four sums.  They are exact, so that the results are those of k_tiles_a8.h. */
#ifndef TSR_K_TILE_MMLA_H
#define TSR_K_TILE_MMLA_H

#include "k_part.h"
#include "k_tile.h"

/* Four rows of a vector: the two pairs of them. */
#define MMLA_ROWS(X, t) X(t, 0, 1, 0) X(t, 2, 3, 16) X(t, 4, 5, 32) X(t, 6, 7, 48)
/* Pairs of tokens. */
#define MMLA_PAIRS(X) MMLA_ROWS(X, 0) MMLA_ROWS(X, 1) MMLA_ROWS(X, 2)

/* Tokens 2t and 2t + 1, of four columns at q and of four at next. */
INLINE int8x16_t mmla_tokens(const int8_t *q, const int8_t *next, const int one)
{
    int32_t x[2], y[2];
    memcpy(x, q, sizeof *x);
    memcpy(y, next, sizeof *y);
    memcpy(x + 1, one ? q : q + 4, sizeof *x); /* an odd last token again: nobody reads its sums */
    memcpy(y + 1, one ? next : next + 4, sizeof *y);
    const int32x2_t a = vld1_s32(x), b = vld1_s32(y);
    return vreinterpretq_s8_s32(vcombine_s32(vzip1_s32(a, b), vzip2_s32(a, b)));
}

/* sum[m][16]: 4 * steps columns of the codes of 16 rows, whose fours are 128 bytes apart, by m tokens. */
INLINE void mmla_sums(const int pairs, const uint64_t m, const uint8_t *c, const int8_t *q,
                      uint64_t steps, const uint8_t *ahead, uint64_t stride, i16v *sum)
{
    static const uint8_t none[64] = { 0 };
    static const int8_t  zeros[4 * ISA_TOKENS8] = { 0 };
#define ZERO(t, i, j, at) int32x4_t c##t##i = vdupq_n_s32(0), c##t##j = c##t##i;
#define PRODUCTS(t, i, j, at)                                                                      \
    if (t < pairs) {                                                                               \
        const int32x4_t u = vreinterpretq_s32_u8(vld1q_u8(c + at));                                \
        const int32x4_t w = vreinterpretq_s32_u8(vld1q_u8(d + at));                                \
        c##t##i = vusmmlaq_s32(c##t##i, vreinterpretq_u8_s32(vzip1q_s32(u, w)), x##t);             \
        c##t##j = vusmmlaq_s32(c##t##j, vreinterpretq_u8_s32(vzip2q_s32(u, w)), x##t);             \
    }
#define TOKENS(t)                                                                                  \
    const int8x16_t x##t =                                                                         \
        t < pairs ? mmla_tokens(q + 8 * t, e + 8 * t, 2 * t + 1 >= (int)m) : vdupq_n_s8(0);
    MMLA_PAIRS(ZERO)
    for (uint64_t k = 0; k < steps; k += 2, c += 256, q += 8 * m) {
        const int      last = k + 1 == steps;
        const uint8_t *d = last ? none : c + 128;
        const int8_t  *e = last ? zeros : q + 4 * m;
        v_prefetch_l2(ahead);
        v_prefetch_l2(ahead + stride);
        ahead += 2 * stride;
        TOKENS(0)
        TOKENS(1)
        TOKENS(2)
        MMLA_PAIRS(PRODUCTS)
    }
#define GIVE(t)                                                                                    \
    if (t < pairs) {                                                                               \
        sum[2 * t] = (i16v){ vuzp1q_s32(c##t##0, c##t##1), vuzp1q_s32(c##t##2, c##t##3),           \
                             vuzp1q_s32(c##t##4, c##t##5), vuzp1q_s32(c##t##6, c##t##7) };         \
        sum[2 * t + 1] = (i16v){ vuzp2q_s32(c##t##0, c##t##1), vuzp2q_s32(c##t##2, c##t##3),       \
                                 vuzp2q_s32(c##t##4, c##t##5), vuzp2q_s32(c##t##6, c##t##7) };     \
    }
    GIVE(0)
    GIVE(1)
    GIVE(2)
#undef ZERO
#undef PRODUCTS
#undef TOKENS
#undef GIVE
}

/* One function for each number of pairs, with the registers that it needs. */
#define MMLA_SUMS(pairs)                                                                           \
    static __attribute__((noinline)) void mmla_sums_##pairs(uint64_t m, const uint8_t *c,          \
                                                            const int8_t *q, uint64_t steps,       \
                                                            const uint8_t *ahead, uint64_t stride, \
                                                            i16v *sum)                             \
    {                                                                                              \
        mmla_sums(pairs, m, c, q, steps, ahead, stride, sum);                                      \
    }
MMLA_SUMS(1)
MMLA_SUMS(2)
MMLA_SUMS(3)

/* tile_part() of k_tiles_a8.h: acc[m][PANEL] with the runs of a part, of the 16 rows of vector v. */
static __attribute__((noinline)) void tile_mmla(const struct tsr_cpu_weight *w, uint64_t m, int v,
                                                const struct part *p, const struct part_tile *tile,
                                                float *acc)
{
    const uint8_t *c = p->codes + 64 * v, *ahead = tile->ahead;
    const int8_t  *q = tile->q;
    i16v           sum[2 * ((ISA_TOKENS8 + 1) / 2)];
    v16            block[ISA_TOKENS8];
    for (uint64_t t = 0; t < ISA_TOKENS8; t++)
        block[t] = v_set1(0.0f);
    for (uint64_t r = p->run; r < p->end; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        const int32_t            *sums = tile->sums + r * m;
        const float              *sa = tile->sa + u->block * m;
        const uint64_t            steps = (u->k1 - u->k0 + 3) / 4;
        (m > 4   ? mmla_sums_3
         : m > 2 ? mmla_sums_2
                 : mmla_sums_1)(m, c, q, steps, ahead, tile->stride, sum);
        c += 128 * steps;
        q += 4 * m * steps;
        ahead += tile->stride * steps;
        const v16 scale = v_load(&p->scale[r - p->run][16 * v]);
        for (uint64_t t = 0; t < m; t++) {
            float    *to = acc + t * PANEL;
            const v16 s = v_set1(sa[t]);
            if (w->affine) {
                block[t] = v_fma(vi_cvt(sum[t]), scale, block[t]);
                block[t] = v_fma(vi_bits_f32(vi_set1(sums[t])),
                                 v_load(&p->minimum[r - p->run][16 * v]), block[t]);
                if (!block_ends(w, r))
                    continue;
                v_store(to, v_fma(block[t], s, v_load(to)));
                block[t] = v_set1(0.0f);
                continue;
            }
            i16v first = vi_set1(sums[t]);
            if (w->zeros)
                first = vi_mul16(vi_load(&p->zero[r - p->run][16 * v]), first);
            v_store(to, v_fma(vi_cvt(vi_add(first, sum[t])), v_mul(scale, s), v_load(to)));
        }
    }
}

#endif
