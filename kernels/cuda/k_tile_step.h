/* k_tile_step.h - a step of LINEAR on matrix units: its bytes go through a ring in shared memory, and
 * become fragments of int8.
 *
 * The product of a run is an exact integer, so that the columns of a step may be permuted alike for weights
 * and activations: lane 4 g + t takes columns 8t..8t+7 of rows g, g + 8, g + 16, g + 24, words 2t and 2t + 1
 * of k_args.h, and of token g.  A warp has a part of the ring for itself; the next steps are under way while
 * one is used.
 */
#ifndef TSR_CUDA_K_TILE_STEP_H
#define TSR_CUDA_K_TILE_STEP_H

#include "k_mma.h"
#include "k_runs.h"

#define TILE_BYTES 6144u /* of a warp in shared memory: its ring, and later its sums */
#define TILE_PITCH 36u   /* floats between the sums of two tokens: lanes meet no bank twice */

/* Bytes of a stage of the ring: a step of weights, then the tokens' activations. */
#define TILE_WEIGHTS(bits)   ((bits) == K_ANY ? 896u : 128u * (uint32_t)(bits))
#define TILE_STAGE(bits, nt) (TILE_WEIGHTS(bits) + 256u * (uint32_t)(nt))

/* What a lane keeps, nt: tiles of 8 tokens.  [m][n][2h + e]: row g + 16 m + 8 h, token 8 n + 2 t + e. */
struct tile {
    int32_t  sum[2][4][4]; /* products of the run */
    int32_t  ones[4]; /* sums of the run's activations in the lane's columns: of token 8 n + g */
    float    acc[2][4][4];
    uint64_t panel;
    uint32_t lane, g, t, t0;
    /* of the run, fetched when it begins: the stored scale of row `lane`, the scale of token
     * lane % (8 nt) */
    uint32_t group, block, scale, minimum;
    int32_t  zero;
    float    sa, unit;
    /* tables of 16 entries: of all rows in look[0], or of each of the lane's rows */
    uint32_t      look[4][4];
    const int8_t *table;
    uint32_t      stride;
};

/* ---- the ring ---------------------------------------------------------------------------- */

/* The address bits that keep both halves of a step of 8 bits off the same banks. */
DEV uint32_t swap8(uint32_t at)
{
    return at ^ (at >> 3 & 64u);
}

/* Where a lane's pieces come from; there: it has a token. */
struct tile_source {
    const uint8_t *weights, *q[2];
    int            there[2];
};

DEV void source_begin(const struct k_linear *a, const struct tile *x, uint64_t k0, const int nt,
                      struct tile_source *s)
{
    s->weights = step_at(&a->w, x->panel, k0 / K_STEP) + 16 * x->lane;
    UNROLL_LOOP
    for (int i = 0; i < (nt > 2 ? 2 : 1); i++) {
        const uint32_t t = x->t0 + x->lane / 2 + 16 * (uint32_t)i;
        s->q[i] = AT(const uint8_t, a->q) + token_of(a, t) * a->ldq + k0 + 16 * (x->lane % 2);
        s->there[i] = t < a->tokens && (nt > 1 || x->lane < 16);
    }
}

/* Tokens past the last one are zeros in every stage. Copies of the last one would be asked of memory once for each. */
DEV void source_clear(const struct tile_source *s, const int bits, const int nt, const int stages,
                      uint32_t lane, uint8_t *ring)
{
    const uint4 zero = { 0, 0, 0, 0 };
    UNROLL_LOOP
    for (uint32_t i = 0; i < (nt > 2 ? 2u : 1u); i++)
        if (!s->there[i] && (nt > 1 || lane < 16))
            for (uint32_t n = 0; n < (uint32_t)stages; n++)
                *(uint4 *)(void *)(ring + n * TILE_STAGE(bits, nt) + TILE_WEIGHTS(bits) + 512 * i +
                                   16 * lane) = zero;
}

/* Starts the copies of the next step. */
DEV void source_copy(const struct k_linear *a, struct tile_source *s, const int bits, const int nt,
                     uint32_t lane, uint8_t *stage)
{
    const uint32_t width = bits == K_ANY ? a->w.bits : (uint32_t)bits;
    UNROLL_LOOP
    for (uint32_t i = 0; i < (TILE_WEIGHTS(bits) + 511) / 512; i++) {
        const uint32_t at = 512 * i + 16 * lane;
        if (at < 128 * width)
            copy_async(stage + (bits == 8 ? swap8(at) : at), s->weights + 512 * i);
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < (nt > 2 ? 2u : 1u); i++) {
        if (s->there[i])
            copy_async(stage + TILE_WEIGHTS(bits) + 512 * i + 16 * lane, s->q[i]);
        s->q[i] += K_STEP;
    }
    s->weights += 128 * width;
}

/* ---- a step ------------------------------------------------------------------------------ */

DEV uint32_t word_at(const uint8_t *p)
{
    return *(const uint32_t *)(const void *)p;
}

/* The codes of row r in columns 8t..8t+7, a byte each; width is `bits`, or known at run time. */
DEV void tile_codes(const uint8_t *p, const int bits, uint32_t width, uint32_t r, uint32_t t,
                    uint32_t c[2])
{
    if (bits == 8) {
        uint2 v = *(const uint2 *)(const void *)(p + swap8(t / 2 * 512 + r * 16) + (t & 1u) * 8);
        c[0] = v.x;
        c[1] = v.y;
        return;
    }
    uint32_t at = 0, v;
    c[0] = c[1] = 0;
    if (width & 4u) {
        v = word_at(p + r * 16 + 4 * t);
        c[0] = v & 0x0f0f0f0fu;
        c[1] = v >> 4 & 0x0f0f0f0fu;
        at = 4;
        p += 512;
    }
    if (width & 2u) {
        v = word_at(p + r * 8 + t / 2 * 4) >> 4 * (t & 1u);
        c[0] |= (v & 0x03030303u) << at;
        c[1] |= (v >> 2 & 0x03030303u) << at;
        at += 2;
        p += 256;
    }
    if (width & 1u) {
        v = word_at(p + r * 4) >> 2 * t;
        c[0] |= (v & 0x01010101u) << at;
        c[1] |= (v >> 1 & 0x01010101u) << at;
    }
}

/* Eight codes of 4 bits in a word, as their entries of a table of 16: low nibbles, then high ones. */
DEV void look_up(const uint32_t table[4], uint32_t w, uint32_t c[2])
{
    const uint32_t at = w & 0x77777777u, upper = (w >> 1 & 0x44444444u) | 0x32103210u;
    uint32_t       v[2];
    UNROLL_LOOP
    for (int i = 0; i < 2; i++)
        v[i] = __byte_perm(__byte_perm(table[0], table[1], at >> 16 * i & 0xffffu),
                           __byte_perm(table[2], table[3], at >> 16 * i & 0xffffu),
                           upper >> 16 * i & 0xffffu);
    c[0] = __byte_perm(v[0], v[1], 0x6420u);
    c[1] = __byte_perm(v[0], v[1], 0x7531u);
}

/* The lane's part of a step as signed bytes: rows g + 8 i.  kind K_LUT: a table of 16 entries a row. */
DEV void tile_bytes(const struct k_weight *w, const struct tile *x, const uint8_t *p,
                    const int kind, const int bits, uint32_t (*c)[2])
{
    UNROLL_LOOP
    for (int i = 0; i < 4; i++) {
        const uint32_t r = x->g + 8 * (uint32_t)i;
        if (kind != (int)K_INT && bits == 4) {
            look_up(x->look[kind == (int)K_LUT ? i : 0], word_at(p + r * 16 + 4 * x->t), c[i]);
            continue;
        }
        tile_codes(p, bits, w->bits, r, x->t, c[i]);
        UNROLL_LOOP
        for (int j = 0; j < 2; j++) {
            if (kind == (int)K_INT) {
                c[i][j] = bits == 8 ? c[i][j] ^ 0x80808080u : c[i][j];
                continue;
            }
            const int8_t *table = x->table + (w->kind == K_LUT ? r : 0);
            uint32_t      v = 0;
            UNROLL_LOOP
            for (int b = 0; b < 32; b += 8)
                v |= ((uint32_t)table[(c[i][j] >> b & 255u) * x->stride] & 255u) << b;
            c[i][j] = v;
        }
    }
}

DEV void look_begin(const struct k_weight *w, struct tile *x, const int kind, const int bits)
{
    uint32_t mine[4] = { 0, 0, 0, 0 };
    x->stride = w->kind == K_LUT ? K_PANEL : 1;
    x->table = table8_of(w, x->panel, 0);
    if (kind == (int)K_INT || bits != 4)
        return;
    UNROLL_LOOP
    for (uint32_t e = 0; e < 16; e++) /* lane = row */
        mine[e / 4] |=
            ((uint32_t)x->table[e * x->stride + (kind == (int)K_LUT ? x->lane : 0)] & 255u)
            << e % 4 * 8;
    UNROLL_LOOP
    for (int e = 0; e < 4; e++) {
        x->look[0][e] = mine[e];
        UNROLL_LOOP
        for (uint32_t i = 0; i < 4 && kind == (int)K_LUT; i++)
            x->look[i][e] = shfl_u(ALL_LANES, mine[e], x->g + 8 * i);
    }
}

#endif
