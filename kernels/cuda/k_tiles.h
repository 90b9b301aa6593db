/* k_tiles.h - LINEAR with int8 activations on matrix units: a block takes a panel and 8, 16 or 32 tokens, a
 * warp a segment.
 *
 * The product of a run is an exact integer, so that the columns of a step may be permuted alike for weights
 * and activations: lane 4 g + t takes columns 8t..8t+7 of rows g, g + 8, g + 16, g + 24, words 2t and 2t + 1
 * of k_args.h, and of token g.  At the end of a run its integers enter the lane's chains of F32, in the order of
 * docs/decisions/numerics.md.  Steps go through a ring in shared memory, a part of it for each warp, so that
 * the next ones are under way while one is used.
 */
#ifndef TSR_CUDA_K_TILES_H
#define TSR_CUDA_K_TILES_H

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
    /* of the run, fetched when it begins: the stored scale of row `lane`, scales of the lane's tokens */
    uint32_t group, block, scale, minimum;
    int32_t  zero;
    float    sa[8], unit;
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

/* Where a lane's pieces come from. */
struct tile_source {
    const uint8_t *weights, *q[2];
};

DEV void source_begin(const struct k_linear *a, const struct tile *x, uint64_t k0, const int nt,
                      struct tile_source *s)
{
    s->weights = step_at(&a->w, x->panel, k0 / K_STEP) + 16 * x->lane;
    UNROLL_LOOP
    for (int i = 0; i < (nt > 2 ? 2 : 1); i++)
        s->q[i] = AT(const uint8_t, a->q) +
                  token_of(a, x->t0 + x->lane / 2 + 16 * (uint32_t)i) * a->ldq + k0 +
                  16 * (x->lane % 2);
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
        if (nt > 1 || lane < 16)
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

/* ---- a run ------------------------------------------------------------------------------- */

/* Loads of what ends the run, long before it is used. */
DEV void tile_fetch(const struct k_linear *a, struct tile *x, const int kind, const int nt)
{
    const struct k_weight *w = &a->w;
    if (w->kind != K_LUT)
        x->scale = scale_bits(w, x->panel, x->group, x->lane);
    if (kind == (int)K_INT) {
        x->zero = run_zero(w, x->panel, x->group, x->lane);
        x->minimum = minimum_bits(w, x->panel, x->group, x->lane);
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < 2 * (uint32_t)nt; i++)
        x->sa[i] =
            AT(const float,
               a->sa)[token_of(a, x->t0 + i / 2 * 8 + 2 * x->t + i % 2) * a->blocks + x->block];
}

/* The sums of the run's activations, of the tokens of the lane's products. */
DEV void tile_ones(struct tile *x, const int nt, int32_t (*ones)[2])
{
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        uint32_t v = (uint32_t)x->ones[n];
        v += shfl_xor_u(ALL_LANES, v, 1);
        v += shfl_xor_u(ALL_LANES, v, 2);
        ones[n][0] = (int32_t)shfl_u(ALL_LANES, v, 8 * x->t);
        ones[n][1] = (int32_t)shfl_u(ALL_LANES, v, 8 * x->t + 4);
        x->ones[n] = 0;
    }
}

/* The run's integers enter the chains. */
DEV void tile_end(const struct k_linear *a, struct tile *x, const int kind, const int nt)
{
    const struct k_weight *w = &a->w;
    float                  scale = x->unit, minimum = 0.0f;
    int32_t                ones[4][2];
    if (kind == (int)K_INT) {
        tile_ones(x, nt, ones);
        scale = scale_from(w, x->scale, x->panel, x->group, x->lane);
        minimum = minimum_from(w, x->minimum, x->panel, x->group, x->lane);
    } else if (w->kind == K_MX) {
        scale = scale_from(w, x->scale, x->panel, x->group, x->lane) * x->unit;
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = x->g + 8 * i, m = i / 2, h = i % 2 * 2;
        const float    s = shfl_f(ALL_LANES, scale, row);
        float          least = 0.0f;
        int32_t        zero = 0;
        if (kind == (int)K_INT)
            zero = (int32_t)shfl_u(ALL_LANES, x->zero, row);
        if (kind == (int)K_INT && w->affine)
            least = shfl_f(ALL_LANES, minimum, row);
        UNROLL_LOOP
        for (uint32_t n = 0; n < (uint32_t)nt; n++) {
            UNROLL_LOOP
            for (uint32_t e = 0; e < 2; e++) {
                float      *acc = &x->acc[m][n][h + e];
                int32_t    *sum = &x->sum[m][n][h + e];
                const float sa = x->sa[2 * n + e];
                if (kind == (int)K_INT)
                    *sum -= zero * ones[n][e];
                *acc = fmaf((float)*sum, s * sa, *acc);
                if (kind == (int)K_INT && w->affine)
                    *acc = fmaf((float)ones[n][e], least * sa, *acc);
                *sum = 0;
            }
        }
    }
}

/* Adds the step's products, of columns whose lanes have `mask` set. */
DEV void tile_add(struct tile *x, const int kind, const int nt, const uint8_t *q, uint32_t (*c)[2],
                  uint32_t mask)
{
    const int32_t one = (int32_t)(0x01010101u & mask);
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        uint2          v = *(const uint2 *)(const void *)(q + 256 * n + 32 * x->g + 8 * x->t);
        const uint32_t b[2] = { v.x, v.y };
        UNROLL_LOOP
        for (int m = 0; m < 2; m++) {
            const uint32_t f[4] = { c[2 * m][0] & mask, c[2 * m + 1][0] & mask, c[2 * m][1] & mask,
                                    c[2 * m + 1][1] & mask };
            mma_s8(x->sum[m][n], f, b);
        }
        if (kind == (int)K_INT)
            x->ones[n] = __dp4a(one, (int32_t)b[1], __dp4a(one, (int32_t)b[0], x->ones[n]));
    }
}

/* ---- a segment --------------------------------------------------------------------------- */

/* kind and bits: as in tile_bytes(); ring: of this warp. */
DEV void tile_runs(const struct k_linear *a, struct tile *x, const int kind, const int bits,
                   const int nt, const int stages, uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
    const uint32_t         stage = TILE_STAGE(bits, nt);
    struct run             r;
    struct tile_source     s;
    run_begin(w, segment, &r);
    const uint32_t cols = (uint32_t)(r.k1 - r.k0), n = (cols + K_STEP - 1) / K_STEP;
    uint32_t       from = 0, to = stage * (uint32_t)(stages - 1);
    source_begin(a, x, r.k0, nt, &s);
    UNROLL_LOOP
    for (uint32_t i = 0; i + 1 < (uint32_t)stages; i++) {
        if (i < n)
            source_copy(a, &s, bits, nt, x->lane, ring + i * stage);
        copy_commit();
    }
    look_begin(w, x, kind, bits);
    x->unit = w->kind == K_INT ? 0.0f : AT(const float, w->unit)[x->panel * K_PANEL + x->lane];
    x->group = (uint32_t)r.group;
    x->block = (uint32_t)r.block;
    tile_fetch(a, x, kind, nt);
    /* columns of the segment: done with, and where the group ends */
    uint32_t  done = 0, group_end = (uint32_t)((r.group + 1) * w->group - r.k0);
    const int halves = w->regular == 2; /* runs may end inside of a step */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c[4][2];
        copy_wait(stages - 2);
        __syncwarp(); /* the step is there, and the one before is done with */
        if (i + (uint32_t)stages - 1 < n)
            source_copy(a, &s, bits, nt, x->lane, ring + to);
        copy_commit();
        const uint8_t *p = ring + from;
        tile_bytes(w, x, p, kind, bits, c);
        from = from + stage == stage * (uint32_t)stages ? 0 : from + stage;
        to = to + stage == stage * (uint32_t)stages ? 0 : to + stage;
        for (int half = 0; half <= halves; half++) {
            if (half && done >= cols) /* the last step has one half */
                break;
            tile_add(x, kind, nt, p + TILE_WEIGHTS(bits), c,
                     halves && x->t / 2 != (uint32_t)half ? 0 : ALL_LANES);
            done += halves ? K_HALF : K_STEP;
            const int block_ends = done % K_BLOCK == 0 || done >= cols;
            const int group_ends = w->kind != K_LUT && done >= group_end;
            if (!block_ends && !group_ends)
                continue;
            tile_end(a, x, kind, nt);
            x->block += (uint32_t)block_ends;
            x->group += (uint32_t)group_ends;
            group_end += group_ends ? w->group : 0;
            if (done < cols)
                tile_fetch(a, x, kind, nt);
        }
    }
    __syncwarp();
}

/* integers: K_INT alone; else tables alone. */
DEV void tile_segment(const struct k_linear *a, struct tile *x, const int integers, const int nt,
                      uint32_t segment, uint8_t *ring)
{
    const struct k_weight *w = &a->w;
#define STAGES(bits) (TILE_BYTES / TILE_STAGE(bits, nt))
#define RUNS(kind, bits)                                                                           \
    tile_runs(a, x, kind, bits, nt, (int)(STAGES(bits) < 8 ? STAGES(bits) : 8), segment, ring)
    if (integers && w->bits == 4)
        RUNS(K_INT, 4);
    else if (integers && w->bits == 8)
        RUNS(K_INT, 8);
    else if (integers)
        RUNS(K_INT, K_ANY);
    else if (w->kind == K_LUT && w->bits == 4)
        RUNS(K_LUT, 4);
    else if (w->bits == 4)
        RUNS(K_MX, 4);
    else if (w->bits == 8)
        RUNS(K_MX, 8);
    else
        RUNS(K_MX, K_ANY);
#undef RUNS
#undef STAGES
}

/* The lane's chains to the warp's sums: [token][TILE_PITCH], then lane = row; outliers are added there. */
DEV void tile_put(const struct k_linear *a, const struct tile *x, const int nt, uint32_t segment,
                  float *part)
{
    UNROLL_LOOP
    for (uint32_t n = 0; n < (uint32_t)nt; n++) {
        UNROLL_LOOP
        for (uint32_t i = 0; i < 8; i++)
            part[(8 * n + 2 * x->t + i % 2) * TILE_PITCH + x->g + 8 * (i / 2)] =
                x->acc[i / 4][n][i % 4];
    }
    if (!a->w.outliers || segment >= a->w.segments)
        return;
    uint64_t k0, k1;
    segment_of(&a->w, segment, &k0, &k1);
    __syncwarp();
    for (uint32_t t = 0; t < 8 * (uint32_t)nt; t += 4) {
        float acc[4];
        for (uint32_t i = 0; i < 4; i++)
            acc[i] = part[(t + i) * TILE_PITCH + x->lane];
        outlier_chain(a, x->panel * K_PANEL + x->lane, k0, k1, x->t0 + t, 4, acc);
        for (uint32_t i = 0; i < 4; i++)
            part[(t + i) * TILE_PITCH + x->lane] = acc[i];
    }
}

DEV void tile_linear(const struct k_linear *a, const int integers, const int nt, uint4 *shared)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t row = (uint64_t)blockIdx.x * K_PANEL + lane;
    float         *parts = (float *)(void *)shared;
    struct tile    x;
    x.panel = blockIdx.x;
    x.lane = lane;
    x.g = lane / 4;
    x.t = lane % 4;
    x.t0 = blockIdx.y * 8 * (uint32_t)nt;
    UNROLL_LOOP
    for (int n = 0; n < nt; n++) {
        x.ones[n] = 0;
        UNROLL_LOOP
        for (int i = 0; i < 4; i++) {
            x.sum[0][n][i] = x.sum[1][n][i] = 0;
            x.acc[0][n][i] = x.acc[1][n][i] = 0.0f;
        }
    }
    if (warp < a->w.segments)
        tile_segment(a, &x, integers, nt, warp, (uint8_t *)shared + warp * TILE_BYTES);
    tile_put(a, &x, nt, warp, parts + warp * (TILE_BYTES / 4));
    __syncthreads();
    for (uint32_t t = warp; t < 8 * (uint32_t)nt; t += 8) {
        float s[K_SEGMENTS];
        if (x.t0 + t >= a->tokens || row >= a->w.rows)
            continue;
        UNROLL_LOOP
        for (uint32_t i = 0; i < K_SEGMENTS; i++)
            s[i] = parts[i * (TILE_BYTES / 4) + t * TILE_PITCH + lane];
        put_out(a, x.t0 + t, row, k_tree8(s));
    }
}

#endif
