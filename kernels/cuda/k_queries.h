/* k_queries.h - query heads that a block of threads of attention.cu handles together, and the sequences that they
 * belong to. */
#ifndef TSR_CUDA_K_QUERIES_H
#define TSR_CUDA_K_QUERIES_H

#include "k_cache.h"

#define QUERIES 16u /* of a block of threads, at most: tokens times heads */

/* A query head of a token: it attends to positions lo..p. */
struct query {
    uint64_t place; /* in scores, tops, den and partial */
    uint32_t row, lo, p, head, token;
};

/* Queries of tile `tile` and this block's heads, for all of its threads; how many. */
DEV uint32_t queries_at(const struct k_attention *a, struct query *q, uint32_t tile)
{
    const uint32_t group = a->heads / a->kv_heads, kv = blockIdx.y / a->chunks;
    const uint32_t h0 = blockIdx.y % a->chunks * a->share, t0 = tile * a->tile;
    const uint32_t left = h0 < group ? group - h0 : 0, heads = left < a->share ? left : a->share;
    const uint32_t tokens = a->tokens - t0 < a->tile ? a->tokens - t0 : a->tile;
    const uint32_t n = heads * tokens, t = threadIdx.x;
    if (t < n) {
        const uint32_t  token = t0 + t / heads, head = kv * group + h0 + t % heads;
        const uint32_t *span =
            AT(const uint32_t, a->spans + (uint64_t)(a->first + token) * a->span_stride);
        q[t].row = span[0];
        q[t].p = span[1];
        q[t].lo = a->window && span[1] >= a->window ? span[1] - a->window + 1 : 0;
        q[t].place = (uint64_t)token * a->heads + head;
        q[t].head = head;
        q[t].token = a->first + token;
    }
    __syncthreads();
    return n;
}

/* Of this block of threads. */
DEV uint32_t queries_of(const struct k_attention *a, struct query *q)
{
    return queries_at(a, q, blockIdx.z);
}

/* Consecutive queries of one sequence: positions lo..p of any of them, all_lo..all_p of each. */
struct sequence {
    uint32_t begin, n, lo, p, all_lo, all_p;
};

DEV void sequence_at(const struct query *q, uint32_t n, uint32_t begin, struct sequence *r)
{
    uint32_t i = begin + 1;
    r->begin = begin;
    r->lo = r->all_lo = q[begin].lo;
    r->p = r->all_p = q[begin].p;
    for (; i < n && q[i].row == q[begin].row; i++) {
        r->lo = q[i].lo < r->lo ? q[i].lo : r->lo;
        r->p = q[i].p > r->p ? q[i].p : r->p;
        r->all_lo = q[i].lo > r->all_lo ? q[i].lo : r->all_lo;
        r->all_p = q[i].p < r->all_p ? q[i].p : r->all_p;
    }
    r->n = i - begin;
}

DEV struct cache_head head_of(const struct k_attention *a, uint64_t rows, uint64_t stride,
                              uint32_t copy, uint32_t row)
{
    struct cache_head h;
    h.p = AT(const uint8_t, rows) + row * stride +
          blockIdx.y / a->chunks * head_bytes(a->dtype, a->head_dim);
    h.stride = stride;
    h.copy = copy;
    return h;
}

#endif
