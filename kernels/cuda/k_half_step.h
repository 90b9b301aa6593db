/* k_half_step.h - half a step of a row, 16 columns, in registers: what kernels read that widen a weight into
 * shared memory, a warp for each half of a step. */
#ifndef TSR_CUDA_K_HALF_STEP_H
#define TSR_CUDA_K_HALF_STEP_H

#include "k_decode.h"

/* The words of k_args.h of one half of a step, at the places that those of the first half have in a
 * step_words: widen4() with j from 0 to 3 finds them there.  half is the same in all lanes. */
DEV void half_load(struct step_words *s, const int bits, const struct k_weight *w, const uint8_t *p,
                   uint32_t half, uint32_t lane)
{
    if (bits >= 8) {
        UNROLL_LOOP
        for (int v = 0; v < bits / 8; v++)
            put4(s->w + 4 * v, ((const uint4 *)(const void *)
                                    p)[(half * (uint32_t)(bits / 8) + (uint32_t)v) * WARP + lane]);
        return;
    }
    const uint32_t b = bits == K_ANY ? w->bits : (uint32_t)bits;
    if (b & 4u) {
        const uint2 v = ((const uint2 *)(const void *)p)[lane * 2 + half];
        s->w[0] = v.x;
        s->w[1] = v.y;
        p += 512;
    }
    if (b & 2u) {
        s->w[4] = ((const uint32_t *)(const void *)p)[lane * 2 + half];
        p += 256;
    }
    if (b & 1u)
        s->w[6] = ((const uint32_t *)(const void *)p)[lane] >> 4 * half;
}

/* What widens the codes of the half step that begins at column k, all of one group. */
DEV void half_decoder(const struct k_weight *w, const int kind, uint64_t panel, uint32_t lane,
                      uint64_t k, struct decoder *d)
{
    d->scale = 1.0f;
    d->zero = 0.0f;
    d->minimum = 0.0f;
    d->stride = w->kind == K_LUT ? K_PANEL : 1;
    d->table =
        AT(const float, w->table) + (w->kind == K_LUT ? panel * w->entries * K_PANEL + lane : 0);
    if (kind == (int)K_FLOAT || w->kind == K_LUT)
        return;
    const uint64_t group = k / w->group;
    d->scale = scale_of(w, panel, group, lane);
    if (kind == (int)K_INT) {
        d->zero = (float)zero_of(w, panel, group, lane);
        d->minimum = minimum_of(w, panel, group, lane);
    }
}

/* Whether half_load() and half_decoder() serve the weight. */
DEV int half_serves(const struct k_weight *w)
{
    return w->regular && !w->outliers;
}

/* CALL(kind, bits, bf16) with the constants of the weight's format. */
#define OF_FORMAT(w, CALL)                                                                         \
    do {                                                                                           \
        if ((w)->kind == K_FLOAT && (w)->bits == 32)                                               \
            CALL(K_FLOAT, 32, 0);                                                                  \
        else if ((w)->kind == K_FLOAT && (w)->bf16)                                                \
            CALL(K_FLOAT, 16, 1);                                                                  \
        else if ((w)->kind == K_FLOAT)                                                             \
            CALL(K_FLOAT, 16, 0);                                                                  \
        else if ((w)->kind == K_INT && (w)->bits == 4)                                             \
            CALL(K_INT, 4, 0);                                                                     \
        else if ((w)->kind == K_INT && (w)->bits == 8)                                             \
            CALL(K_INT, 8, 0);                                                                     \
        else if ((w)->kind == K_INT)                                                               \
            CALL(K_INT, K_ANY, 0);                                                                 \
        else if ((w)->bits == 8) /* MX, LUT */                                                     \
            CALL(K_MX, 8, 0);                                                                      \
        else                                                                                       \
            CALL(K_MX, K_ANY, 0);                                                                  \
    } while (0)

#endif
