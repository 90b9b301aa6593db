/* k_flash_tiles.h - tiles of keys and values of k_flash.h: where they are in shared memory, and their way there. */
#ifndef TSR_CUDA_K_FLASH_TILES_H
#define TSR_CUDA_K_FLASH_TILES_H

#include "k_mma_half.h"
#include "k_queries.h"

#define FLASH_THREADS K_FLASH_THREADS
#define FLASH_WARPS   (FLASH_THREADS / WARP)
#define FLASH_ROWS    K_FLASH_ROWS

/* Positions of a tile, and bytes between rows of `dim` columns: 8 rows of 16 bytes are in different banks. */
#define FLASH_KEYS(dim)  ((dim) > 128u ? 32u : 64u)
#define FLASH_PITCH(dim) (2u * (dim) + 16u)
#define FLASH_TILE(dim)  (FLASH_KEYS(dim) * FLASH_PITCH(dim))

/* Codes of an int8 cache before they are widened: a tile of rows of dim bytes. */
#define FLASH_CODES(dim) (FLASH_KEYS(dim) * (dim))

struct flash_room {
    uint8_t      *tiles; /* F16: keys, values, twice; int8: keys, values, then their codes twice */
    uint8_t      *queries;
    float        *scales; /* int8: [2][keys, values][64] */
    struct query *q;
};

/* The tile at position j of a sequence. */
struct flash_at {
    struct sequence r;
    uint32_t        j;
};

DEV void flash_first(const struct query *q, uint32_t n, uint32_t begin, const uint32_t keys,
                     struct flash_at *at)
{
    sequence_at(q, n, begin, &at->r);
    at->j = at->r.lo / keys * keys;
}

/* 0 past the last tile of the last sequence. */
DEV int flash_next(const struct query *q, uint32_t n, const uint32_t keys, struct flash_at *at)
{
    if (at->r.p - at->j >= keys) {
        at->j += keys;
        return 1;
    }
    if (at->r.begin + at->r.n >= n)
        return 0;
    flash_first(q, n, at->r.begin + at->r.n, keys, at);
    return 1;
}

/* Rows of the tile that are in the sequence: [from, from + n), counted from the tile's first one. */
DEV uint32_t flash_rows(const struct flash_at *at, const uint32_t keys, uint32_t *from)
{
    const uint32_t end = at->r.p - at->j < keys ? at->r.p - at->j + 1 : keys;
    *from = at->r.lo > at->j ? at->r.lo - at->j : 0;
    return end - *from;
}

/* Zeros in rows [0, from) and [end, keys) of a tile of values: whatever lies there is multiplied by 0. */
DEV void flash_zero(uint8_t *tile, uint32_t from, uint32_t end, const uint32_t dim)
{
    const uint32_t keys = FLASH_KEYS(dim), words = dim / 8;
    const uint4    zero = { 0, 0, 0, 0 };
    if (from == 0 && end == keys)
        return;
    for (uint32_t i = threadIdx.x; i < keys * words; i += FLASH_THREADS)
        if (i / words < from || i / words >= end)
            *(uint4 *)(void *)(tile + i / words * FLASH_PITCH(dim) + i % words * 16) = zero;
}

/* Starts the copies of a tile to slot 0 or 1. */
DEV void flash_copy(const struct k_attention *a, const struct flash_room *m,
                    const struct flash_at *at, const uint32_t dtype, const uint32_t dim,
                    uint32_t slot)
{
    const uint32_t          keys = FLASH_KEYS(dim), wide = dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
    const uint32_t          row = m->q[at->r.begin].row;
    const struct cache_head k = head_of(a, a->k, a->k_stride, a->k_copy, row),
                            v = head_of(a, a->v, a->v_stride, a->v_copy, row);
    uint32_t       from;
    const uint32_t n = flash_rows(at, keys, &from), j = at->j + from;
    if (dtype == DT_F16) {
        uint8_t *to = m->tiles + slot * 2 * FLASH_TILE(dim) + from * FLASH_PITCH(dim);
        rows_copy(&k, DT_F16, j, n, 0, a->head_dim, wide, FLASH_THREADS, to, FLASH_PITCH(dim), 0);
        to += FLASH_TILE(dim);
        rows_copy(&v, DT_F16, j, n, 0, a->head_dim, wide, FLASH_THREADS, to, FLASH_PITCH(dim), 0);
        flash_zero(m->tiles + (2 * slot + 1) * FLASH_TILE(dim), from, from + n, dim);
    } else {
        uint8_t *to = m->tiles + 2 * FLASH_TILE(dim) + slot * 2 * FLASH_CODES(dim);
        float   *s = m->scales + slot * 128;
        for (uint32_t c = 0; c < a->head_dim; c += 128) { /* of a lane a word */
            const uint32_t cols = a->head_dim - c < 128 ? a->head_dim - c : 128;
            rows_copy(&k, DT_I8, j, n, c, cols, 128, FLASH_THREADS, to + from * dim + c, dim,
                      s + from);
            rows_copy(&v, DT_I8, j, n, c, cols, 128, FLASH_THREADS,
                      to + FLASH_CODES(dim) + from * dim + c, dim, s + 64 + from);
        }
    }
}

/* Codes of a slot to F16, as they are; scales of rows that are not in the sequence are 0.  A warp has the rows that it
 * copied. */
DEV void flash_widen(const struct k_attention *a, const struct flash_room *m,
                     const struct flash_at *at, const uint32_t dim, uint32_t slot)
{
    const uint32_t keys = FLASH_KEYS(dim), lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint8_t *codes = m->tiles + 2 * FLASH_TILE(dim) + slot * 2 * FLASH_CODES(dim);
    uint32_t       from;
    const uint32_t n = flash_rows(at, keys, &from), end = from + n;
    for (uint32_t c = 4 * lane; c < a->head_dim; c += 4 * WARP) {
        UNROLL_4
        for (uint32_t i = from + warp; i < end; i += FLASH_WARPS) {
            uint8_t *to = m->tiles + i * FLASH_PITCH(dim) + 2 * c;
            uint2    w;
            int8_halves(*(const uint32_t *)(const void *)(codes + i * dim + c), &w.x, &w.y);
            *(uint2 *)(void *)to = w;
            int8_halves(*(const uint32_t *)(const void *)(codes + FLASH_CODES(dim) + i * dim + c),
                        &w.x, &w.y);
            *(uint2 *)(void *)(to + FLASH_TILE(dim)) = w;
        }
    }
    if (threadIdx.x < keys && (threadIdx.x < from || threadIdx.x >= end))
        m->scales[slot * 128 + 64 + threadIdx.x] = 0.0f;
    flash_zero(m->tiles + FLASH_TILE(dim), from, end, dim);
}

#endif
