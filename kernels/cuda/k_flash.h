/* k_flash.h - ATTENTION of prompts on tensor cores, in one pass over keys and values: the largest score, the
 * denominator and the sums of a query are corrected whenever a larger score comes.
 *
 * A block of threads has 64 queries, tokens times the query heads of a KV head; a warp has 16 of them.  Keys and values
 * come in tiles of FLASH_KEYS positions, two of which are in shared memory: one arrives while the other is used.
 * Weights are 2^15 times exp(score - largest): F16 then holds those down to 2^-29 with all its bits.  Codes of int8 become
 * F16 as they are; scales of keys multiply scores, those of values weights, over the least power of two above them.
 */
#ifndef TSR_CUDA_K_FLASH_H
#define TSR_CUDA_K_FLASH_H

#include "k_flash_tiles.h"

#define FLASH_LOG   15.0f
#define FLASH_LOG2E 1.44269504f

/* ---- queries ----------------------------------------------------------------------------- */

/* The warp's queries in F16 with the sign of the scale, each times a power of two so that its largest number is in
 * [2^14, 2^15); lane i < 16 returns what brings the products of row i back. */
DEV float flash_queries(const struct k_attention *a, const struct flash_room *m, uint32_t n,
                        const uint32_t dim)
{
    const uint32_t lane = threadIdx.x % WARP, row0 = threadIdx.x / WARP * 16;
    float          back = 0.0f;
    UNROLL_4
    for (uint32_t i = 0; i < 16; i++) {
        const struct query *q = &m->q[row0 + i < n ? row0 + i : 0];
        const float        *x =
            AT(const float, a->q + q->token * a->q_stride) + (uint64_t)q->head * a->head_dim;
        float    v[8], top = 0.0f;
        uint8_t *to = m->queries + (row0 + i) * FLASH_PITCH(dim);
        UNROLL_LOOP
        for (uint32_t l = 0; l < dim / WARP; l++) {
            const uint32_t c = lane + l * WARP;
            v[l] = row0 + i < n && c < a->head_dim ? x[c] : 0.0f;
            top = k_max(k_finite(v[l]) ? fabsf(v[l]) : 0.0f, top);
        }
        UNROLL_LOOP
        for (uint32_t l = 16; l > 0; l /= 2)
            top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
        int32_t e = (int32_t)(__float_as_uint(top) >> 23) - 127 - 14;
        e = e < -100 ? -100 : e;
        const float down = a->scale < 0.0f ? -k_pow2((float)-e) : k_pow2((float)-e);
        back = lane == i ? k_pow2((float)e) : back;
        UNROLL_LOOP
        for (uint32_t l = 0; l < dim / WARP; l++)
            ((uint16_t *)(void *)to)[lane + l * WARP] = (uint16_t)pack_half(v[l] * down, 0.0f, 0);
    }
    return back;
}

/* Two of the block's queries, of rows g and g + 8 of the warp's 16: what a lane knows of them. */
struct flash_query {
    float    factor, slope, top, den; /* top: of the scores times log2(e) */
    uint32_t lo, p, head, row;        /* lo > p: there is none */
};

DEV void flash_query(const struct k_attention *a, const struct query *q, uint32_t i, uint32_t n,
                     float back, struct flash_query *f)
{
    f->row = i;
    f->factor = fabsf(a->scale) * back;
    f->top = -INFINITY;
    f->den = 0.0f;
    f->lo = i < n ? q[i].lo : 1;
    f->p = i < n ? q[i].p : 0;
    f->head = q[i < n ? i : 0].head;
    f->slope = a->slopes ? AT(const float, a->slopes)[f->head] : 0.0f;
}

/* ---- a tile ------------------------------------------------------------------------------ */

/* A score from its sum where there is a soft cap or a slope; a call, for the loops to stay in the instruction cache. */
DEV_CALL float flash_score(float s, float cap, float slope, float distance)
{
    if (cap > 0.0f)
        s = cap * k_tanh(s / cap);
    return s + slope * distance;
}

/* The row's sums of s, at offset h, become weights; returns the factor of what was summed before. */
DEV float flash_weights(const struct k_attention *a, struct flash_query *f, const uint32_t keys,
                        const int plain, uint32_t j, int whole, uint32_t lo, uint32_t p,
                        float (*s)[4], const uint32_t h)
{
    const uint32_t c0 = j + threadIdx.x % 4 * 2;
    const float    factor = plain ? f->factor * FLASH_LOG2E : FLASH_LOG2E;
    float          top = -INFINITY, sum = 0.0f;
    UNROLL_LOOP
    for (uint32_t i = 0; i < keys / 4 && !plain; i++)
        s[i / 2][h + i % 2] =
            flash_score(s[i / 2][h + i % 2] * f->factor, a->softcap, f->slope,
                        (float)((int64_t)(c0 + 8 * (i / 2) + i % 2) - (int64_t)f->p));
    if (!whole) {
        UNROLL_LOOP
        for (uint32_t i = 0; i < keys / 4; i++) {
            const uint32_t c = c0 + 8 * (i / 2) + i % 2;
            s[i / 2][h + i % 2] = c < lo || c > p ? -INFINITY : s[i / 2][h + i % 2];
        }
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < keys / 4; i++)
        top = fmaxf(top, s[i / 2][h + i % 2]);
    top = fmaxf(top, shfl_xor_f(ALL_LANES, top, 1));
    top = fmaxf(fmaxf(top, shfl_xor_f(ALL_LANES, top, 2)) * factor, f->top);
    const float base = (top == -INFINITY ? 0.0f : top) - FLASH_LOG;
    const float keep = k_exp2_near(f->top - (base + FLASH_LOG));
    UNROLL_LOOP
    for (uint32_t i = 0; i < keys / 4; i++) {
        s[i / 2][h + i % 2] = k_exp2_near(fmaf(s[i / 2][h + i % 2], factor, -base));
        sum = sum + s[i / 2][h + i % 2];
    }
    f->den = f->den * keep + sum;
    f->top = top;
    return keep;
}

/* int8: all numbers of s times the factors of their columns. */
DEV void flash_columns(const float *factors, const uint32_t keys, float unit, float (*s)[4])
{
    UNROLL_LOOP
    for (uint32_t i = 0; i < keys / 8; i++) {
        const float2 v = *(const float2 *)(const void *)(factors + (8 * i + threadIdx.x % 4 * 2));
        const float  x = v.x * unit, y = v.y * unit;
        s[i][0] = s[i][0] * x;
        s[i][1] = s[i][1] * y;
        s[i][2] = s[i][2] * x;
        s[i][3] = s[i][3] * y;
    }
}

/* int8: 2^-e for the least e >= *e so that no scale of a value is above 2^e; all lanes have it. */
DEV float flash_unit(const float *scales, const uint32_t keys, int32_t *e)
{
    float top = 0.0f;
    for (uint32_t i = threadIdx.x % WARP; i < keys; i += WARP)
        top = fmaxf(top, scales[i]);
    UNROLL_LOOP
    for (uint32_t l = 16; l > 0; l /= 2)
        top = fmaxf(top, shfl_xor_f(ALL_LANES, top, l));
    const int32_t up = (int32_t)(__float_as_uint(top) >> 23) - 126;
    *e = up > *e ? up : *e;
    return k_pow2((float)-*e);
}

/* All of a tile for the warp's 16 queries. */
DEV void flash_tile(const struct k_attention *a, const struct flash_room *m,
                    const struct flash_at *at, const uint32_t dtype, const uint32_t dim,
                    const int plain, uint32_t slot, const uint32_t (*q)[4], int32_t *unit,
                    struct flash_query *f, float (*o)[4])
{
    const uint32_t keys = FLASH_KEYS(dim), pitch = FLASH_PITCH(dim), held = dim <= 128;
    const uint8_t *k = m->tiles + (dtype == DT_F16 ? slot * 2 * FLASH_TILE(dim) : 0);
    const uint8_t *v = k + FLASH_TILE(dim);
    const uint8_t *mine = m->queries + threadIdx.x / WARP * 16 * pitch;
    float          s[8][4], keep[2];
    uint32_t       lo[2], p[2];
    int            whole = 1, none = 1;
    UNROLL_LOOP
    for (uint32_t h = 0; h < 2; h++) {
        const int of = f[h].row >= at->r.begin && f[h].row < at->r.begin + at->r.n;
        lo[h] = of ? f[h].lo : 1;
        p[h] = of ? f[h].p : 0;
        whole = whole && lo[h] <= at->j && p[h] >= at->j + (keys - 1);
        none = none && (lo[h] > p[h] || p[h] < at->j || lo[h] > at->j + (keys - 1));
    }
    whole = __all_sync(ALL_LANES, whole);
    if (__all_sync(ALL_LANES, none))
        return;
    UNROLL_LOOP
    for (uint32_t i = 0; i < keys / 8; i++) {
        UNROLL_LOOP
        for (uint32_t l = 0; l < 4; l++)
            s[i][l] = 0.0f;
    }
    UNROLL_LOOP
    for (uint32_t d = 0; d < dim / 16; d++) {
        uint32_t x[4];
        if (!held)
            square_load(x, mine + 32 * d, pitch, 0);
        UNROLL_LOOP
        for (uint32_t i = 0; i < keys / 16; i++) {
            uint32_t w[4], b[2];
            square_load(w, k + 16 * i * pitch + 32 * d, pitch, 0);
            b[0] = w[0];
            b[1] = w[2];
            mma_half(s[2 * i], held ? q[d] : x, b, 0);
            b[0] = w[1];
            b[1] = w[3];
            mma_half(s[2 * i + 1], held ? q[d] : x, b, 0);
        }
    }
    if (dtype == DT_I8)
        flash_columns(m->scales + slot * 128, keys, 1.0f, s);
    UNROLL_LOOP
    for (uint32_t h = 0; h < 2; h++)
        keep[h] = flash_weights(a, &f[h], keys, plain, at->j, whole, lo[h], p[h], s, 2 * h);
    if (dtype == DT_I8) { /* sums are in units of 2^unit */
        const int32_t before = *unit;
        const float   down = flash_unit(m->scales + slot * 128 + 64, keys, unit);
        const int32_t by = before - *unit;
        flash_columns(m->scales + slot * 128 + 64, keys, down, s);
        keep[0] = keep[0] * (by < -126 ? 0.0f : k_pow2((float)by));
        keep[1] = keep[1] * (by < -126 ? 0.0f : k_pow2((float)by));
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < dim / 8; i++) {
        UNROLL_LOOP
        for (uint32_t l = 0; l < 4; l++)
            o[i][l] = o[i][l] * keep[l / 2];
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < keys / 16; i++) {
        uint32_t x[4];
        x[0] = pack_half(s[2 * i][0], s[2 * i][1], 0);
        x[1] = pack_half(s[2 * i][2], s[2 * i][3], 0);
        x[2] = pack_half(s[2 * i + 1][0], s[2 * i + 1][1], 0);
        x[3] = pack_half(s[2 * i + 1][2], s[2 * i + 1][3], 0);
        UNROLL_LOOP
        for (uint32_t d = 0; d < dim / 16; d++) {
            uint32_t w[4];
            square_load(w, v + 16 * i * pitch + 32 * d, pitch, 1);
            mma_half(o[2 * d], x, w, 0);
            mma_half(o[2 * d + 1], x, w + 2, 0);
        }
    }
}

/* The sums of row f, at offset h of o, over its denominator. */
DEV void flash_store(const struct k_attention *a, const struct query *q, struct flash_query *f,
                     const uint32_t dim, float unit, float (*o)[4], const uint32_t h)
{
    float den = f->den, keep = 1.0f;
    den = den + shfl_xor_f(ALL_LANES, den, 1);
    den = den + shfl_xor_f(ALL_LANES, den, 2);
    if (a->sinks) {
        const float sink = AT(const float, a->sinks)[f->head] * FLASH_LOG2E;
        const float top = fmaxf(f->top, sink);
        keep = k_exp2_near(f->top - top);
        den = den * keep + k_exp2_near(sink - top + FLASH_LOG);
    }
    if (f->lo > f->p)
        return;
    keep = keep / den * unit;
    float *to =
        AT(float, a->out + q[f->row].token * a->out_stride) + (uint64_t)f->head * a->head_dim;
    UNROLL_LOOP
    for (uint32_t i = 0; i < dim / 8; i++) {
        const uint32_t c = 8 * i + threadIdx.x % 4 * 2;
        if (c < a->head_dim) { /* which is even */
            to[c] = o[i][h] * keep;
            to[c + 1] = o[i][h + 1] * keep;
        }
    }
}

DEV void flash_of(const struct k_attention *a, const struct flash_room *m, const uint32_t dtype,
                  const uint32_t dim, const int plain, uint32_t n)
{
    const uint32_t     lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4;
    const uint32_t     keys = FLASH_KEYS(dim), held = dim <= 128;
    float              o[32][4];
    uint32_t           q[8][4], slot = 0;
    int32_t            unit = -100; /* small ones keep the rest of F32 */
    struct flash_query f[2];
    struct flash_at    at, next;
    const float        back = flash_queries(a, m, n, dim);
    UNROLL_LOOP
    for (uint32_t h = 0; h < 2; h++)
        flash_query(a, m->q, warp * 16 + g + 8 * h, n, shfl_f(ALL_LANES, back, g + 8 * h), &f[h]);
    __syncwarp();
    if (held) {
        UNROLL_LOOP
        for (uint32_t d = 0; d < dim / 16; d++)
            square_load(q[d], m->queries + warp * 16 * FLASH_PITCH(dim) + 32 * d, FLASH_PITCH(dim),
                        0);
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < dim / 8; i++) {
        UNROLL_LOOP
        for (uint32_t l = 0; l < 4; l++)
            o[i][l] = 0.0f;
    }
    __syncthreads();       /* the queries may lie in a tile */
    if (a->head_dim < dim) /* columns that nobody copies */
        for (uint32_t i = threadIdx.x; i < (dtype == DT_F16 ? 4 : 2) * FLASH_TILE(dim) / 4;
             i += FLASH_THREADS)
            ((uint32_t *)(void *)m->tiles)[i] = 0;
    __syncthreads();
    flash_first(m->q, n, 0, keys, &next);
    flash_copy(a, m, &next, dtype, dim, 0);
    copy_commit();
    UNROLL_NOT
    for (int more = 1; more; slot ^= 1) {
        at = next;
        copy_wait(0);
        __syncthreads(); /* the tile is there, and the other slot free */
        more = flash_next(m->q, n, keys, &next);
        if (more)
            flash_copy(a, m, &next, dtype, dim, slot ^ 1);
        copy_commit();
        if (dtype == DT_I8) {
            flash_widen(a, m, &at, dim, slot);
            __syncthreads();
        }
        flash_tile(a, m, &at, dtype, dim, plain, slot, (const uint32_t(*)[4])q, &unit, f, o);
    }
    UNROLL_LOOP
    for (uint32_t h = 0; h < 2; h++)
        flash_store(a, m->q, &f[h], dim, dtype == DT_I8 ? k_pow2((float)unit) : 1.0f, o, 2 * h);
}

#endif
