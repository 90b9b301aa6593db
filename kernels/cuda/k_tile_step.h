/* k_tile_step.h - a step of LINEAR on matrix units: its bytes go through a ring in shared memory, and
 * become fragments of int8.
 *
 * The product of a run is an exact integer, so that the columns of a step may be permuted alike for weights
 * and activations.  Lane 4 g + t takes rows g, g + 8, g + 16, g + 24 of the weight and token g.  Of 8 bits it
 * takes columns 4t..4t+3 and 16 + 4t.., as the matrix unit has them; else columns 8t..8t+7, words 2t and
 * 2t + 1 of k_args.h.  A warp has a part of the ring for itself; the next steps are under way while one is used.
 */
#ifndef TSR_CUDA_K_TILE_STEP_H
#define TSR_CUDA_K_TILE_STEP_H

#include "k_mma.h"
#include "k_runs.h"

/* Bytes of a warp in shared memory: its ring, and later its sums. Of 8 tokens four blocks fit a multiprocessor. */
#define TILE_ROOM(nt) ((nt) == 1 ? 6144u : K_TILE_SHARED / K_SEGMENTS)
#define TILE_PITCH    36u /* floats between the sums of two tokens: lanes meet no bank twice */

/* An integer that begins here and stays within 2^22 of it is, as the bits of an F32, itself and TILE_NULL_FLOAT:
 * one subtraction instead of a conversion. A run's products are below 2^21. */
#define TILE_NULL       0x4b400000
#define TILE_NULL_FLOAT 12582912.0f

/* How the scales of groups come: with each step through the ring, as the bytes of one of K_SCALE_F32, _F16 and
 * _E8; or, with what they are made of, from memory by the lane of their row; or there are none. */
#define TILE_LATE 14u
#define TILE_NONE 15u

/* Bytes of a stage of the ring: a step of weights, the tokens' activations, the scales and zero points of its
 * group. */
#define TILE_WEIGHTS(bits) ((bits) == K_ANY ? 896u : 128u * (uint32_t)(bits))
#define TILE_SCALES(scales)                                                                        \
    ((scales) == K_SCALE_F32   ? 128u                                                              \
     : (scales) == K_SCALE_F16 ? 64u                                                               \
     : (scales) == K_SCALE_E8  ? 32u                                                               \
                               : 0u)
#define TILE_META(kind, scales)                                                                    \
    (TILE_SCALES(scales) + ((kind) == (int)K_INT && TILE_SCALES(scales) ? K_PANEL : 0u))
#define TILE_STAGE(kind, bits, scales, nt)                                                         \
    (TILE_WEIGHTS(bits) + 256u * (uint32_t)(nt) + TILE_META(kind, scales))

/* What a lane keeps, nt: tiles of 8 tokens.  [m][n][2h + e]: row g + 16 m + 8 h, token 8 n + 2 t + e. */
struct tile {
    int32_t sum[2][4]
               [4]; /* TILE_NULL and the products of the run; of integers of 4 bits times 16 */
    int32_t ones
        [4]
        [4]; /* [n][e]: TILE_NULL and the sums of the run's activations, of token 8 n + 2 t + e */
    float    acc[2][4][4];
    float    block[2][4][4]; /* with minimums: the sums of the block of activations */
    uint64_t panel;
    uint32_t lane, g, t, t0;
    /* of the block of activations: the scales of the tokens of the lane's products; the next one's of token
     * lane % (8 nt) */
    float        sa[4][2], sa_next;
    const float *sa_at;
    /* TILE_LATE: stored bits of row `lane`, of the run and of the next one */
    uint32_t group, scale, minimum, scale_next, minimum_next;
    int32_t  zero, zero_next;
    int      even;           /* no sums of activations are needed */
    uint32_t nibbles, signs; /* constants, in registers */
    float    unit[4];        /* of the lane's rows; TILE_LATE: [0] of row `lane` */
    /* tables of 16 entries: of all rows in look[0], or of each of the lane's rows */
    uint32_t      look[4][4];
    const int8_t *table;
    uint32_t      stride;
};

/* ---- the ring ---------------------------------------------------------------------------- */

/* Of 8 tokens the first half of the lanes copies activations, and the second one the scales of groups: together. */
#define TILE_TOGETHER(scales, nt) ((nt) == 1 && TILE_SCALES(scales))

/* Where a lane's pieces of the first step come from, those of meta of the next one, and whether there is one.  Places in a
 * stage are from the lane's piece of the weights on, which is at 16 lane. */
struct tile_source {
    const uint8_t *weights, *q[2], *meta;
    int32_t        q_to[2], meta_to;
    int            there[2], meta_there;
    uint32_t       meta_step, group_left; /* bytes to the next group's; columns until it begins */
    /* TILE_TOGETHER: the next piece of either; bytes to the one after it, within a group and where the next begins */
    const uint8_t *each;
    int32_t        each_to;
    uint32_t       each_step[2];
    int            each_there;
};

/* Activations lie token by token; of 8 bits half by half, so that 8 tokens' 16 bytes meet no bank twice. */
DEV uint32_t token_place(const int bits, const int nt, uint32_t token, uint32_t half)
{
    return bits == 8 ? 128 * (uint32_t)nt * half + 16 * token : 32 * token + 16 * half;
}

/* Lanes share the copies of a group's scales, and the next two those of its zero points.  lane: from the first of them;
 * none of them: K_STEP or more. */
DEV void meta_begin(const struct k_weight *w, uint64_t panel, uint64_t k0, const int kind,
                    const int bits, const uint32_t scales, const int nt, uint32_t lane,
                    struct tile_source *s)
{
    const uint32_t bytes = TILE_SCALES(scales), lanes = bytes / 16;
    const uint64_t group = k0 / w->group;
    const int      zero = kind == (int)K_INT && w->zeros && lane >= lanes;
    s->meta_there = lane < lanes || (zero && lane < lanes + 2);
    s->meta_to = (int32_t)TILE_WEIGHTS(bits) + 256 * nt;
    s->meta_step = zero ? K_PANEL : bytes;
    s->meta = AT(const uint8_t, zero ? w->zeros : w->scales) +
              (panel * w->groups + group) * s->meta_step + 16 * (zero ? lane - lanes : lane);
    s->group_left = (uint32_t)((group + 1) * w->group - k0);
}

DEV void source_begin(const struct k_linear *a, const struct tile *x, uint64_t k0, const int bits,
                      const int nt, struct tile_source *s)
{
    s->weights = step_at(&a->w, x->panel, k0 / K_STEP) + 16 * x->lane;
    s->q_to[1] = 0;
    UNROLL_LOOP
    for (int i = 0; i < (nt > 2 ? 2 : 1); i++) {
        const uint32_t token = x->lane / 2 + 16 * (uint32_t)i, half = x->lane % 2;
        s->q[i] = AT(const uint8_t, a->q) + token_of(a, x->t0 + token) * a->ldq + k0 + 16 * half;
        s->q_to[i] =
            (int32_t)TILE_WEIGHTS(bits) +
            (bits == 8 ? (int32_t)(token_place(bits, nt, token, half) - 16 * x->lane) : 512 * i);
        s->there[i] = x->t0 + token < a->tokens && (nt > 1 || x->lane < 16);
    }
}

/* Places from the stage on, and `own` below is the stage. */
DEV void source_from_stage(struct tile_source *s, uint32_t lane)
{
    s->q_to[0] += (int32_t)(16 * lane);
    s->q_to[1] += (int32_t)(16 * lane);
    s->meta_to += (int32_t)(16 * lane);
}

/* Tokens past the last one are zeros in every stage. Copies of the last one would be asked of memory once for each.
 * own: 16 lane bytes into the ring, or into the stage, also below. */
DEV void source_clear(const struct tile_source *s, const int nt, const int stages, uint32_t stage,
                      uint32_t lane, uint8_t *own)
{
    const uint4 zero = { 0, 0, 0, 0 };
    UNROLL_LOOP
    for (uint32_t i = 0; i < (nt > 2 ? 2u : 1u); i++)
        if (!s->there[i] && (nt > 1 || lane < 16))
            for (uint32_t n = 0; n < (uint32_t)stages; n++)
                *(uint4 *)(void *)(own + n * stage + s->q_to[i]) = zero;
}

/* Kernels that are short of registers count pointers along, branch around copies and make addresses again in each step:
 * fewer registers, and more instructions. */
#define TILE_FEW(scales, nt) ((nt) > 2 || (scales) == TILE_LATE)

DEV void source_copy(uint8_t *to, const uint8_t *from, int there, const int few)
{
    if (!few)
        copy_async_if(to, from, there);
    else if (there)
        copy_async(to, from);
}

/* Starts the copies of the weights of a step, which no kernel writes: it is `col` columns after that of s->weights;
 * TILE_FEW: it is that one, and the next one comes after it. */
DEV void source_weights(const struct k_linear *a, struct tile_source *s, const int bits,
                        uint32_t lane, uint32_t col, const int few, const int from_stage,
                        uint8_t *own)
{
    const uint32_t width = bits == K_ANY ? a->w.bits : (uint32_t)bits;
    const uint8_t *from = few ? s->weights : at_step(s->weights, col, K_PANEL * width / 8);
    UNROLL_LOOP
    for (uint32_t i = 0; i < (TILE_WEIGHTS(bits) + 511) / 512; i++)
        if (bits != K_ANY || 512 * i + 16 * lane < 128 * width)
            copy_async(own + (from_stage ? 16 * lane : 0) + 512 * i, from + 512 * i);
    s->weights += few ? 128 * width : 0;
}

/* And of what belongs to the weights. */
DEV void source_meta(const struct k_linear *a, struct tile_source *s, const uint32_t scales,
                     const int few, uint8_t *own)
{
    if (!TILE_SCALES(scales))
        return;
    source_copy(own + s->meta_to, s->meta, s->meta_there, few);
    s->group_left -= K_STEP;
    s->meta += s->group_left ? 0 : s->meta_step;
    s->group_left = s->group_left ? s->group_left : a->w.group;
}

/* The activations of the first steps, which no wait for copies covers: the copies of their weights began long before, a
 * group for each step. */
DEV void source_first(const struct tile_source *s, const int nt, const uint32_t stages, uint32_t n,
                      uint32_t stage, uint8_t *own)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < (nt > 2 ? 2u : 1u); i++) {
        uint4 v[7];
        UNROLL_LOOP
        for (uint32_t k = 0; k < stages; k++)
            if (s->there[i] && k < n)
                v[k] = *(const uint4 *)(const void *)(s->q[i] + K_STEP * k);
        UNROLL_LOOP
        for (uint32_t k = 0; k < stages; k++)
            if (s->there[i] && k < n)
                *(uint4 *)(void *)(own + k * stage + s->q_to[i]) = v[k];
    }
}

/* And of the activations, as of the weights. */
DEV void source_tokens(struct tile_source *s, const int nt, uint32_t col, const int few,
                       uint8_t *own)
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < (nt > 2 ? 2u : 1u); i++) {
        source_copy(own + s->q_to[i], few ? s->q[i] : at_step(s->q[i], col, 1), s->there[i], few);
        s->q[i] += few ? K_STEP : 0;
    }
}

/* TILE_TOGETHER: of the activations and of what belongs to the weights, from column `col` on. */
DEV void source_each_begin(struct tile_source *s, uint32_t lane, uint32_t col)
{
    const int meta = lane >= 16;
    s->each = meta ? s->meta : s->q[0] + col;
    s->each_to = meta ? s->meta_to : s->q_to[0];
    s->each_step[0] = meta ? 0 : K_STEP;
    s->each_step[1] = meta ? s->meta_step : K_STEP;
    s->each_there = meta ? s->meta_there : s->there[0];
}

DEV void source_each(const struct k_linear *a, struct tile_source *s, uint8_t *own)
{
    copy_async_if(own + s->each_to, s->each, s->each_there);
    s->group_left -= K_STEP;
    s->each += s->group_left ? s->each_step[0] : s->each_step[1];
    s->group_left = s->group_left ? s->group_left : a->w.group;
}

/* ---- a step ------------------------------------------------------------------------------ */

DEV uint32_t word_at(const uint8_t *p)
{
    return *(const uint32_t *)(const void *)p;
}

/* The codes of K_ANY of row r in columns 8t..8t+7, a byte each. */
DEV void tile_codes(const uint8_t *p, uint32_t width, uint32_t r, uint32_t t, uint32_t c[2])
{
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

/* What is subtracted from an integer code without an instruction: a nibble in the upper half of a byte, and a
 * byte, become signed by turning their highest bit. */
DEV int32_t tile_offset(const int bits)
{
    return bits == 4 ? 8 : bits == 8 ? 128 : 0;
}

/* Codes as signed bytes: integers less tile_offset(), those of 4 bits times 16; else the entries of a table. */
DEV uint32_t tile_signed(const struct tile *x, uint32_t codes, const int kind, const int bits,
                         const int8_t *table)
{
    if (kind == (int)K_INT)
        return bits == 8 ? codes ^ 0x80808080u : codes;
    uint32_t v = 0;
    UNROLL_LOOP
    for (int b = 0; b < 32; b += 8)
        v |= ((uint32_t)table[(codes >> b & 255u) * x->stride] & 255u) << b;
    return v;
}

/* The lane's part of a step as signed bytes: c[i] of row g + 8 i.  kind K_LUT: a table of 16 entries a row.  own:
 * p + 16 lane. */
DEV void tile_bytes(const struct k_weight *w, const struct tile *x, const uint8_t *p,
                    const uint8_t *own, const int kind, const int bits, uint32_t (*c)[2])
{
    uint32_t v[2][4];
    if (bits != K_ANY)
        rows_load(v[0], 4, own, x->lane);
    if (bits == 8)
        rows_load(v[1], 4, own + 512, x->lane);
    UNROLL_LOOP
    for (int i = 0; i < 4; i++) {
        const uint32_t r = x->g + 8 * (uint32_t)i;
        if (kind != (int)K_INT && bits == 4) {
            look_up(x->look[kind == (int)K_LUT ? i : 0], v[0][i], c[i]);
            continue;
        }
        if (bits == 4) {
            c[i][0] = k_and_xor(v[0][i] << 4, x->nibbles, x->signs);
            c[i][1] = k_and_xor(v[0][i], x->nibbles, x->signs);
            continue;
        }
        if (bits == K_ANY)
            tile_codes(p, w->bits, r, x->t, c[i]);
        const int8_t *table = x->table; /* of integers there is none */
        if (w->kind == K_LUT)
            table += r;
        UNROLL_LOOP
        for (int j = 0; j < 2; j++)
            c[i][j] = tile_signed(x, bits == 8 ? v[j][i] : c[i][j], kind, bits, table);
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
