/* k_scores.h - scores of ATTENTION: keys of 128 positions in shared memory, two threads a key.
 *
 * A thread has eight of the sixteen chains of two keys and four query heads in registers. A shuffle adds the chains
 * of its neighbour, which are the first step of tree16; the other steps are its own.
 */
#ifndef TSR_CUDA_K_SCORES_H
#define TSR_CUDA_K_SCORES_H

#include "k_queries.h"

#define SCORE_THREADS 128u
#define SCORE_KEYS    128u /* two threads a key: chains 0 to 7, and 8 to 15 */
#define SCORE_EACH    2u   /* keys that a thread has at once, 16 apart */
#define SCORE_HEADS   4u   /* and queries */
#define SCORE_COLS    128u /* of a slice of the head; of F32 half of it */

#define SLICE(dtype) ((dtype) == DT_F32 ? SCORE_COLS / 2 : SCORE_COLS)

/* Rows of keys are so far apart that 16 lanes meet no bank twice. */
#define KEY_PITCH(dtype) ((dtype) == DT_I8 ? 136u : 272u)

struct score_room {
    uint8_t *keys;
    float   *queries, *scales, *tops; /* [QUERIES][SCORE_COLS], [SCORE_KEYS], [warps][QUERIES] */
    struct query *q;
};

/* Columns [c0, c0 + cols) of the sequence's queries and of the keys [j, j + n) at first row `at`; zeros up to a multiple
 * of 16 columns. */
DEV void score_load(const struct k_attention *a, const struct score_room *m, const uint32_t dtype,
                    const struct sequence *r, uint32_t at, uint32_t j, uint32_t n, uint32_t c0,
                    uint32_t cols)
{
    const uint32_t          pitch = KEY_PITCH(dtype), size = element_bytes(dtype);
    const uint32_t          tail = (16 - cols % 16) % 16;
    const struct cache_head h = head_of(a, a->k, a->k_stride, a->k_copy, m->q[r->begin].row);
    rows_copy(&h, dtype, j, n, c0, cols, SLICE(dtype), SCORE_THREADS, m->keys + at * pitch, pitch,
              m->scales + at);
    for (uint32_t i = threadIdx.x; tail && i < n * tail; i += SCORE_THREADS) {
        uint8_t *x = m->keys + (at + i / tail) * pitch + (cols + i % tail) * size;
        for (uint32_t b = 0; b < size; b++)
            x[b] = 0;
    }
    const uint32_t each = a->q_copy == 16 ? 4 : 1; /* floats of a copy */
    for (uint32_t i = each * threadIdx.x; i < r->n * SCORE_COLS; i += each * SCORE_THREADS) {
        const struct query *q = &m->q[r->begin + i / SCORE_COLS];
        const uint32_t      c = i % SCORE_COLS;
        const float        *x = AT(const float, a->q + q->token * a->q_stride) +
                         ((uint64_t)q->head * a->head_dim + c0 + c);
        if (c >= cols) {
            for (uint32_t l = 0; l < each; l++)
                m->queries[i + l] = 0.0f;
        } else if (each == 4) {
            copy_async(m->queries + i, x);
        } else {
            copy_async4(m->queries + i, x);
        }
    }
    copy_commit();
}

/* Chains of this thread's keys and queries from q0 on, over `cols` columns. */
DEV void score_chains(const struct score_room *m, const uint32_t dtype, uint32_t key, uint32_t half,
                      uint32_t q0, uint32_t cols, float (*acc)[SCORE_HEADS][8])
{
    const uint32_t size = element_bytes(dtype);
    const uint8_t *k = m->keys + key * KEY_PITCH(dtype) + 8 * half * size;
    const float   *q = m->queries + q0 * SCORE_COLS + 8 * half;
    float          scale[SCORE_EACH];
    UNROLL_LOOP
    for (uint32_t e = 0; e < SCORE_EACH; e++)
        scale[e] = dtype == DT_I8 ? m->scales[key + 16 * e] : 1.0f;
    for (uint32_t c = 0; c < cols; c += 16) {
        float x[SCORE_EACH][8];
        UNROLL_LOOP
        for (uint32_t e = 0; e < SCORE_EACH; e++)
            widen(k + 16 * e * KEY_PITCH(dtype) + c * size, dtype, 8, scale[e], x[e]);
        UNROLL_LOOP
        for (uint32_t i = 0; i < SCORE_HEADS; i++) {
            float y[8];
            widen((const uint8_t *)(const void *)(q + i * SCORE_COLS + c), DT_F32, 8, 1.0f, y);
            UNROLL_LOOP
            for (uint32_t e = 0; e < SCORE_EACH; e++) {
                UNROLL_LOOP
                for (uint32_t l = 0; l < 8; l++)
                    acc[e][i][l] = fmaf(y[l], x[e][l], acc[e][i][l]);
            }
        }
    }
}

/* tree16 of the chains of two of the four queries, after this half of the warp has those of the other half. */
DEV float score_tree(float (*acc)[8], uint32_t half, const uint32_t i)
{
    float v[8];
    UNROLL_LOOP
    for (uint32_t l = 0; l < 8; l++) {
        const float mine = half ? acc[i + 2][l] : acc[i][l],
                    other = half ? acc[i][l] : acc[i + 2][l];
        v[l] = mine + shfl_xor_f(ALL_LANES, other, 16);
    }
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* The score of a query at position j from its sum, to memory.  -inf where the query does not attend. */
DEV float score_store(const struct k_attention *a, const struct query *q, uint32_t j, float sum)
{
    float s = sum * a->scale;
    if (a->softcap > 0.0f)
        s = a->softcap * k_tanh(s / a->softcap);
    if (a->slopes)
        s = s + AT(const float, a->slopes)[q->head] * (float)((int64_t)j - (int64_t)q->p);
    if (j < q->lo || j > q->p)
        return -INFINITY;
    AT(float, a->scores)[q->place * a->blocks * 256 + (j - q->lo / 256 * 256)] = s;
    return s;
}

/* The scores of query i of the sequence at this thread's keys, from j on; the largest of the warp to tops. */
DEV void score_query(const struct k_attention *a, const struct score_room *m,
                     const struct sequence *r, uint32_t i, uint32_t j, const float *sum)
{
    float top = -INFINITY;
    if (i < r->n) {
        UNROLL_LOOP
        for (uint32_t e = 0; e < SCORE_EACH; e++)
            top = k_max(score_store(a, &m->q[r->begin + i], j + 16 * e, sum[e]), top);
    }
    UNROLL_LOOP
    for (uint32_t l = 8; l > 0; l /= 2)
        top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
    if (threadIdx.x % 16 == 0 && i < QUERIES)
        m->tops[threadIdx.x / WARP * QUERIES + i] = top;
}

/* All of the sequence's queries at the positions from j0 on. */
DEV void score_block(const struct k_attention *a, const struct score_room *m, const uint32_t dtype,
                     const struct sequence *r, uint32_t j0)
{
    const uint32_t half = threadIdx.x % WARP / 16;
    const uint32_t key = threadIdx.x / WARP * (16 * SCORE_EACH) + threadIdx.x % 16;
    const uint32_t from = j0 < r->lo ? r->lo : j0;
    const uint32_t n = (r->p + 1 - j0 < SCORE_KEYS ? r->p + 1 - j0 : SCORE_KEYS) - (from - j0);
    const uint32_t most = SLICE(dtype);
    for (uint32_t q0 = 0; q0 < r->n; q0 += SCORE_HEADS) {
        float acc[SCORE_EACH][SCORE_HEADS][8];
        UNROLL_LOOP
        for (uint32_t i = 0; i < SCORE_EACH * SCORE_HEADS; i++) {
            UNROLL_LOOP
            for (uint32_t l = 0; l < 8; l++)
                acc[i / SCORE_HEADS][i % SCORE_HEADS][l] = 0.0f;
        }

        for (uint32_t c0 = 0; c0 < a->head_dim; c0 += most) {
            const uint32_t cols = a->head_dim - c0 < most ? a->head_dim - c0 : most;
            if (q0 == 0 || a->head_dim > most) { /* else it is there */
                __syncthreads();
                score_load(a, m, dtype, r, from - j0, from, n, c0, cols);
                copy_wait(0);
                __syncthreads();
            }
            score_chains(m, dtype, key, half, q0, cols, acc);
        }
        UNROLL_LOOP
        for (uint32_t i = 0; i < 2; i++) {
            float sum[SCORE_EACH];
            UNROLL_LOOP
            for (uint32_t e = 0; e < SCORE_EACH; e++)
                sum[e] = score_tree(acc[e], half, i);
            score_query(a, m, r, q0 + 2 * half + i, j0 + key, sum);
        }
    }
    __syncthreads();
    if (threadIdx.x < r->n) {
        const struct query *q = &m->q[r->begin + threadIdx.x];
        float               top = -INFINITY;
        for (uint32_t w = 0; w < SCORE_THREADS / WARP; w++)
            top = k_max(m->tops[w * QUERIES + threadIdx.x], top);
        if (j0 <= q->p && j0 + (SCORE_KEYS - 1) >= q->lo)
            AT(float, a->tops)[q->place * a->blocks * 2 + (j0 / 128 - q->lo / 256 * 2)] = top;
    }
}

DEV void scores_of(const struct k_attention *a, const struct score_room *m, const uint32_t dtype,
                   uint32_t n)
{
    struct sequence r;
    for (uint32_t i = 0; i < n; i += r.n) {
        sequence_at(m->q, n, i, &r);
        for (uint64_t j = r.lo / 256 * 256 + (uint64_t)blockIdx.x * SCORE_KEYS; j <= r.p;
             j += (uint64_t)gridDim.x * SCORE_KEYS)
            if (j + SCORE_KEYS > r.lo)
                score_block(a, m, dtype, &r, (uint32_t)j);
    }
}

#endif
