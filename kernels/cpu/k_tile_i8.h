/* k_tile_i8.h - a tile of tokens by one-byte codes, [k/4][2][16 rows][4 k], and the work after the last
 * segment: shared by the table-lookup kernels and LLM.int8. */
#ifndef TSR_K_TILE_I8_H
#define TSR_K_TILE_I8_H

#include "k_decl.h"
#include "k_tile.h"

#define I8_STEP(t)                                                                                 \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t);                                                               \
        c##t##a = vi_dot4(c##t##a, wa, x);                                                         \
        SECOND(c##t##b = vi_dot4(c##t##b, wb, x);)                                                 \
    }
#define I8_STEPS                                                                                   \
    for (uint64_t i = 0; i < steps; i++, codes += 128, q += 4 * m) {                               \
        i16v wa = vi_load(codes);                                                                  \
        SECOND(i16v wb = vi_load(codes + 64);)                                                     \
        TILE8_EACH(I8_STEP)                                                                        \
    }

/* sum[t][PANEL] += sum over 4 * steps columns of code * q, for m tokens and ISA_VECS vectors of rows.
 * q is [steps][m][4]. */
INLINE void i8_sums(const int m, const uint8_t *codes, const int8_t *q, uint64_t steps,
                    int32_t *sum)
{
#define TAKE(t)                                                                                    \
    i16v c##t##a = vi_zero();                                                                      \
    SECOND(i16v c##t##b = c##t##a;)                                                                \
    if (t < m) {                                                                                   \
        c##t##a = vi_load(sum + t * PANEL);                                                        \
        SECOND(c##t##b = vi_load(sum + t * PANEL + 16);)                                           \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        vb_store(sum + t * PANEL, c##t##a);                                                        \
        SECOND(vb_store(sum + t * PANEL + 16, c##t##b);)                                           \
    }
    TILE8_EACH(TAKE)
    I8_STEPS
    TILE8_EACH(GIVE)
#undef TAKE
#undef GIVE
}

/* acc[t][PANEL] = FMA((float)I, fl(sw * sa[t]), acc[t]) with I = start[t] + sum of code * q. */
INLINE void i8_run(const int m, const uint8_t *codes, const int8_t *q, uint64_t steps,
                   const int32_t *start, const float *sa, const v16 *sw, float *acc)
{
#define TAKE(t)                                                                                    \
    i16v c##t##a = t < m ? vi_set1(start[t]) : vi_zero();                                          \
    SECOND(i16v c##t##b = c##t##a;)
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        float *p = acc + t * PANEL;                                                                \
        v16    s = v_set1(sa[t]);                                                                  \
        v_store(p, v_fma(vi_cvt(c##t##a), v_mul(sw[0], s), v_load(p)));                            \
        SECOND(v_store(p + 16, v_fma(vi_cvt(c##t##b), v_mul(sw[1], s), v_load(p + 16)));)          \
    }
    TILE8_EACH(TAKE)
    I8_STEPS
    TILE8_EACH(GIVE)
#undef TAKE
#undef GIVE
}

/* ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)) */
INLINE v16 i8_tree(const v16 s[SEGMENTS])
{
    return v_add(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])),
                 v_add(v_add(s[4], s[5]), v_add(s[6], s[7])));
}

/* Adds +0 and the bias, and stores the 16 rows from `row` of a token, fewer at the end of the matrix. */
INLINE void i8_put(const struct tsr_cpu_linear8 *a, uint64_t row, uint64_t token, v16 y)
{
    if (row >= a->w->rows)
        return;
    uint64_t n = a->w->rows - row < 16 ? a->w->rows - row : 16;
    y = v_add(y, v_set1(0.0f));
    if (a->bias)
        y = v_add(y, v_loadn(a->bias + row, n));
    v_storen(a->out + token * a->ldo + row, y, n);
}

/* Sums of a panel by segment and token. */
struct sums {
    float (*v)[PANEL];
    uint64_t tokens;
};

INLINE float (*sums_of(struct sums s, uint64_t segment))[PANEL]
{
    return s.v + segment * s.tokens;
}

/* The tree over segments and the bias, of the tokens [t0,t1) of a panel. */
INLINE void i8_finish(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1,
                      struct sums seg)
{
    for (uint64_t t = t0; t < t1; t++)
        for (uint64_t h = 0; h < 2; h++) {
            v16 s[SEGMENTS];
            for (uint64_t i = 0; i < SEGMENTS; i++)
                s[i] = v_load(&sums_of(seg, i)[t - t0][16 * h]);
            i8_put(a, panel * PANEL + 16 * h, t, i8_tree(s));
        }
}

#endif
