/* k_tile_i8.h - a tile of tokens against codes of one byte, [k/4][2][16 rows][4 k], and what comes
 * after the last segment: shared by the kernels that look weights up and by LLM.int8. */
#ifndef TSR_K_TILE_I8_H
#define TSR_K_TILE_I8_H

#include "k_decl.h"
#include "k_tile.h"

/* acc[t][PANEL] = sum over 4 * steps columns of code * q for m tokens and ISA_VECS vectors of rows,
 * added to what stands there if `more`.  q is [steps][m][4]. */
INLINE void i8_tile(const int more, const int m, const uint8_t *codes, const int8_t *q,
                    uint64_t steps, int32_t *acc)
{
#define TAKE(t)                                                                                    \
    i16v c##t##a = vi_zero();                                                                      \
    SECOND(i16v c##t##b = c##t##a;)                                                                \
    if (more && t < m) {                                                                           \
        c##t##a = vi_load(acc + t * PANEL);                                                        \
        SECOND(c##t##b = vi_load(acc + t * PANEL + 16);)                                           \
    }
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vi_four(q + 4 * t);                                                               \
        c##t##a = vi_dot4(c##t##a, wa, x);                                                         \
        SECOND(c##t##b = vi_dot4(c##t##b, wb, x);)                                                 \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        vb_store(acc + t * PANEL, c##t##a);                                                        \
        SECOND(vb_store(acc + t * PANEL + 16, c##t##b);)                                           \
    }
    TILE_EACH(TAKE)
    for (uint64_t i = 0; i < steps; i++, codes += 128, q += 4 * m) {
        i16v wa = vi_load(codes);
        SECOND(i16v wb = vi_load(codes + 64);)
        TILE_EACH(STEP)
    }
    TILE_EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
}

INLINE void i8_tile_any(const int more, uint64_t m, const uint8_t *codes, const int8_t *q,
                        uint64_t steps, int32_t *acc)
{
#define CALL(i) i8_tile(more, i, codes, q, steps, acc)
    for (uint64_t v = 0; v < PANEL / 16;
         v += ISA_VECS, codes += 64 * ISA_VECS, acc += 16 * ISA_VECS) {
        TILE_SWITCH(m, CALL)
    }
#undef CALL
}

/* ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)) */
INLINE v16 i8_tree(const v16 s[SEGMENTS])
{
    return v_add(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])),
                 v_add(v_add(s[4], s[5]), v_add(s[6], s[7])));
}

/* Adds the bias and stores the 16 rows from `row` of a token, fewer at the end of the matrix. */
INLINE void i8_put(const struct tsr_cpu_linear8 *a, uint64_t row, uint64_t token, v16 y)
{
    if (row >= a->w->rows)
        return;
    uint64_t n = a->w->rows - row < 16 ? a->w->rows - row : 16;
    if (a->bias)
        y = v_add(y, v_loadn(a->bias + row, n));
    v_storen(a->out + token * a->ldo + row, y, n);
}

#endif
