/* k_words_a8.h - small floats by many tokens where no instruction multiplies bytes by bytes and adds: the
 * digits are words to base 2^15 with the sign of the weight, and pairs of them meet pairs of activations.
 * The integer of a run is that of k_digits_a8.c.
 */
#ifndef TSR_K_WORDS_A8_H
#define TSR_K_WORDS_A8_H

#include "k_tile_i8.h"
#include "simd_bytes.h"
#include "simd_words.h"

/* Words of a weight of D bytes: 3 bytes are 18 bits (fp8_e4m3), 2 are 9 (fp6_e3m2). */
#define WORDS(D)      ((D) > 2 ? (D)-1 : 1)
#define STEP_BYTES(D) (128 * WORDS(D)) /* of an expanded step: even columns, odd columns */
#define STEP_MOST     STEP_BYTES(DIGITS_MAX)
#define SUB(D)        ((uint64_t)(ISA_TOKENS8 / WORDS(D)))

struct lookups {
    uint8_t b[WORDS(DIGITS_MAX)][2][128]; /* low and high bytes of each word, by magnitude */
};

static void lookups_of(const struct tsr_cpu_weight *w, struct lookups *t)
{
    const struct tsr_cpu_extra *e = &w->extra;
    for (uint32_t i = 0; i < 128; i++) {
        uint32_t v = 0;
        for (uint32_t d = 0; d < e->digits; d++)
            v |= (uint32_t)e->table8[128 * d + i] << 8 * d;
        for (uint32_t d = 0; d < WORDS(DIGITS_MAX); d++, v >>= 15) {
            t->b[d][0][i] = (uint8_t)v;
            t->b[d][1][i] = (uint8_t)(v >> 8 & 127u);
        }
    }
}

/* The words of 16 rows of four columns, the even ones and the odd ones, [16 rows][2 k]. */
INLINE void expand_step(const struct lookups *t, const int D, const int permute, i16v codes,
                        uint8_t *dst)
{
    for (int d = 0; d < WORDS(D); d++, dst += 128) {
        i16v low = vb_lookup128(t->b[d][0], codes, 0xff, permute);
        i16v high = vb_lookup128(t->b[d][1], codes, 0xff, permute);
        vb_store(dst, vb_words(low, high, codes, 0));
        vb_store(dst + 64, vb_words(low, high, codes, 1));
    }
}

/* c0 + 2^15 c1 + 2^30 c2, rounded once: sums of words are below 2^29 in magnitude, those of the highest
 * below 2^17. */
INLINE v16 words_f32(const int D, i16v c0, i16v c1, i16v c2)
{
    if (WORDS(D) == 1)
        return vi_cvt(c0);
    i16v low = vi_and(c0, 0x7fff), up = vi_add(c1, vi_sar(c0, 15));
    if (WORDS(D) == 2)
        return v_fma(vi_cvt(up), v_set1(0x1p15f), vi_cvt(low));
    low = vi_or(low, vi_shl(vi_and(up, 511), 15));
    up = vi_add(vi_sar(up, 9), vi_shl(c2, 6));
    return v_fma(vi_cvt(up), v_set1(0x1p24f), vi_cvt(low));
}

#define TAKE(t) i16v c##t##0 = vi_zero(), c##t##1 = c##t##0, c##t##2 = c##t##0;
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t), even = vb_widen(x, 0), odd = vb_widen(x, 1);                  \
        c##t##0 = vb_pairs(vb_pairs(c##t##0, vi_load(digits), even), vi_load(digits + 64), odd);   \
        if (WORDS(D) > 1)                                                                          \
            c##t##1 = vb_pairs(vb_pairs(c##t##1, vi_load(digits + 128), even),                     \
                               vi_load(digits + 192), odd);                                        \
        if (WORDS(D) > 2)                                                                          \
            c##t##2 = vb_pairs(vb_pairs(c##t##2, vi_load(digits + 256), even),                     \
                               vi_load(digits + 320), odd);                                        \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        float *to = acc + t * PANEL;                                                               \
        v16    I = words_f32(D, c##t##0, c##t##1, c##t##2);                                        \
        v_store(to, v_fma(I, v_mul(sw, v_set1(sa[t])), v_load(to)));                               \
    }

/* m tokens of a tile of `tile`: q is [k/4][tile][4]. */
INLINE void fold(const int D, const int m, uint64_t tile, const uint8_t *digits, const int8_t *q,
                 uint64_t steps, const v16 sw, const float *sa, float *acc)
{
    TILE8_EACH(TAKE)
    for (uint64_t i = 0; i < steps; i++, digits += STEP_BYTES(D), q += 4 * tile) {
        TILE8_EACH(STEP)
    }
    TILE8_EACH(GIVE)
}

#undef TAKE
#undef STEP
#undef GIVE

#endif
