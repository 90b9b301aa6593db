/* attention.cu - ATTENTION in three kernels: scores, values of blocks of 256 positions, their sum.
 *
 * Reference: kernels/cpu/k_attention.c; held to its bytes by tests/gpu/attention.c.
 * The order of additions is that of docs/decisions/numerics.md. It leaves free who does what: a block of threads
 * takes the query heads of a KV head together, of up to `tile` tokens of a sequence, so that rows of the cache
 * come from memory once for all of them.  They go through shared memory by asynchronous copies.
 * Bytes moved by a token and KV head of p positions: p keys and p values in the cache's type; for each query
 * head 4 p bytes of scores, written and read twice, mostly in the second-level cache.
 */
#include "k_combine.h"
#include "k_scores.h"

/* Scores, and the largest of each 128.  Grid: 128 positions; KV heads and parts of their query heads; tiles of
 * tokens. */
TSR_KERNEL(k_scores, struct k_attention, SCORE_THREADS, 4)
{
    __shared__ uint4        keys[SCORE_KEYS * KEY_PITCH(DT_F32) / 16];
    __shared__ float4       queries[QUERIES * SCORE_COLS / 4];
    __shared__ float        scales[SCORE_KEYS], tops[SCORE_THREADS / WARP * QUERIES];
    __shared__ struct query q[QUERIES];

    const struct score_room m = { (uint8_t *)(void *)keys, (float *)(void *)queries, scales, tops,
                                  q };
    const uint32_t          n = queries_of(&a, q);
    if (a.dtype == DT_F32)
        scores_of(&a, &m, DT_F32, n);
    else if (a.dtype == DT_F16)
        scores_of(&a, &m, DT_F16, n);
    else
        scores_of(&a, &m, DT_I8, n);
}

/* ---- the largest score, and the denominator -------------------------------------------------- */

/* The largest score of each of n queries, and of its sink, to tops; `most` as many or more, a power of two. */
DEV void largest(const struct k_attention *a, const struct query *q, uint32_t n,
                 const uint32_t threads, const uint32_t most, float *tops)
{
    const uint32_t lanes = threads / most, i = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    float          top = -INFINITY;
    if (i < n) {
        const float   *t = AT(const float, a->tops) + q[i].place * a->blocks * 2;
        const uint32_t base = q[i].lo / 256 * 2, end = q[i].p / 128 - base;
        for (uint32_t b = q[i].lo / 128 - base + lane; b <= end; b += lanes)
            top = k_max(t[b], top);
    }
    UNROLL_LOOP
    for (uint32_t l = lanes / 2; l > 0; l /= 2)
        top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
    if (i < n && lane == 0)
        tops[i] = a->sinks ? k_max(top, AT(const float, a->sinks)[q[i].head]) : top;
}

#define DEN_QUERIES 2u    /* half of a warp has the chains of one */
#define DEN_CHUNK   1024u /* positions of each at once */
#define DEN_PITCH   (DEN_CHUNK + 16u)

/* Sums of exponentials of n queries, one or two, in room for DEN_QUERIES * DEN_PITCH floats. */
DEV void denominators(const struct k_attention *a, const struct query *q, uint32_t n,
                      const uint32_t threads, float *e, float *tops)
{
    const uint32_t      t = threadIdx.x, half = threads / DEN_QUERIES, k = t / half;
    const struct query *mine = &q[k < n ? k : 0];
    const uint64_t      begin = mine->lo / 16 * 16; /* chains are counted from a border of 16 */
    const float        *s = AT(const float, a->scores) +
                     (mine->place * a->blocks * VALUE_BLOCK + (begin - mine->lo / 256 * 256));
    uint64_t most = 0;
    float    sum = 0.0f;
    largest(a, q, n, threads, threads / WARP, tops); /* a warp each */
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t len = (uint64_t)q[i].p / 16 * 16 + 16 - q[i].lo / 16 * 16;
        most = len > most ? len : most;
    }
    for (uint64_t c = 0; c < most; c += DEN_CHUNK) {
        const uint32_t len = most - c < DEN_CHUNK ? (uint32_t)(most - c) : DEN_CHUNK;
        __syncthreads();
        UNROLL_NOT
        for (uint32_t i = t % half; i < len; i += 8 * half) { /* zeros past the last one */
            float v[8];
            UNROLL_LOOP
            for (uint32_t l = 0; l < 8; l++) {
                const uint64_t at = c + i + l * half;
                v[l] = begin + at >= mine->lo && begin + at <= mine->p ? s[at] : -INFINITY;
            }
            UNROLL_LOOP
            for (uint32_t l = 0; l < 8; l++) {
                const uint64_t j = begin + c + i + l * half;
                const float    x = k_exp(v[l] - tops[k < n ? k : 0]);
                e[k * DEN_PITCH + i + l * half] = j >= mine->lo && j <= mine->p ? x : 0.0f;
            }
        }
        __syncthreads();
        if (t < WARP) {
            const float *x = e + t / 16 * DEN_PITCH + t % 16;
            UNROLL_8
            for (uint32_t i = 0; i < len; i += 16)
                sum = sum + x[i];
        }
    }
    if (t >= WARP)
        return; /* whole warps */
    sum = k_tree16(sum);
    if (t % 16 == 0 && t / 16 < n) {
        const struct query *x = &q[t / 16];
        if (a->sinks)
            sum = sum + k_exp(AT(const float, a->sinks)[x->head] - tops[t / 16]);
        AT(float, a->den)[x->place] = sum;
    }
}

/* ---- values ------------------------------------------------------------------------------ */

#define VALUE_COLS  128u  /* of a block of threads */
#define VALUE_STAGE 8192u /* bytes of the ring */

/* Positions of a stage, and bytes of one of them. */
#define STAGE_ROWS(dtype)  ((dtype) == DT_F32 ? 16u : 32u)
#define VALUE_PITCH(dtype) (VALUE_COLS * ((dtype) == DT_F32 ? 4u : (dtype) == DT_F16 ? 2u : 1u))

struct value_room {
    uint8_t      *ring;
    float        *scales, *e, *tops; /* [stages][32], [VALUE_BLOCK][queries], [queries] */
    struct query *q;
};

/* exp(score - largest) of the sequence's queries at the block of positions at b; -1 where a query does not
 * attend. */
DEV void exponentials(const struct k_attention *a, const struct value_room *m,
                      const struct sequence *r, uint32_t b, const uint32_t threads,
                      const uint32_t most)
{
    const uint32_t t = threadIdx.x, each = VALUE_BLOCK / threads;
    UNROLL_NOT
    for (uint32_t k = 0; k < most && k < r->n; k += 4) {
        float v[4][4]; /* of `each` positions and four queries, all asked for at once */
        UNROLL_LOOP
        for (uint32_t l = 0; l < 4; l++) {
            const struct query *q = &m->q[r->begin + (k + l < r->n ? k + l : 0)];
            const uint64_t      at = q->place * a->blocks * 256 + (b + t - q->lo / 256 * 256);
            UNROLL_LOOP
            for (uint32_t h = 0; h < each; h++) {
                const uint32_t j = b + t + h * threads;
                v[h][l] = -INFINITY;
                if (j >= q->lo && j <= q->p)
                    v[h][l] = AT(const float, a->scores)[at + h * threads];
            }
        }
        UNROLL_LOOP
        for (uint32_t h = 0; h < each; h++) {
            UNROLL_LOOP
            for (uint32_t l = 0; l < 4; l++) {
                const uint32_t i = r->begin + (k + l < r->n ? k + l : 0);
                const uint32_t j = b + t + h * threads;
                const float    x = k_exp(v[h][l] - m->tops[i]);
                v[h][l] = j >= m->q[i].lo && j <= m->q[i].p ? x : -1.0f;
            }
            const float4 w = { v[h][0], v[h][1], v[h][2], v[h][3] };
            *(float4 *)(void *)(m->e + (t + h * threads) * most + k) = w;
        }
    }
}

/* Chains of cw columns and qw queries over n positions: v and e are those of the first one. */
DEV void value_chains(const uint8_t *v, const float *e, const float *scales, uint32_t n, int masked,
                      const uint32_t dtype, const uint32_t cw, const uint32_t qw,
                      const uint32_t most, float (*acc)[4])
{
    UNROLL_8
    for (uint32_t j = 0; j < n; j++) {
        float x[4], w[4];
        widen(v + j * VALUE_PITCH(dtype), dtype, cw, dtype == DT_I8 ? scales[j] : 1.0f, x);
        widen((const uint8_t *)(const void *)(e + j * most), DT_F32, qw, 1.0f, w);
        UNROLL_LOOP
        for (uint32_t i = 0; i < qw; i++) {
            UNROLL_LOOP
            for (uint32_t c = 0; c < cw; c++) {
                const float y = fmaf(w[i], x[c], acc[i][c]);
                acc[i][c] = masked && w[i] < 0.0f ? acc[i][c] : y;
            }
        }
    }
}

/* Copies of the next stage; without rows the group is empty. */
DEV void value_copy(const struct value_room *m, const struct cache_head *h, const uint32_t dtype,
                    const uint32_t threads, uint32_t j, uint32_t end, uint32_t slot, uint32_t c0,
                    uint32_t cols)
{
    const uint32_t rows = STAGE_ROWS(dtype);
    if (j < end)
        rows_copy(h, dtype, j, end - j < rows ? end - j : rows, c0, cols, VALUE_COLS, threads,
                  m->ring + slot * VALUE_STAGE, VALUE_PITCH(dtype), m->scales + slot * 32);
    copy_commit();
}

/* Sums of the block of positions at b, of the queries from `first` on and the columns from c on. */
DEV void value_store(const struct k_attention *a, const struct query *q, uint32_t n, uint32_t b,
                     uint32_t c, uint32_t cols, const uint32_t cw, const float *acc)
{
    const uint32_t end = b + (VALUE_BLOCK - 1);
    if (n == 0 || q->lo > end || q->p < b)
        return;
    float *to = AT(float, a->partial) +
                (q->place * a->blocks + (b / VALUE_BLOCK - q->lo / VALUE_BLOCK)) * a->head_dim + c;
    if (cw == 4 && cols >= 4 && (uintptr_t)to % 16 == 0) {
        const float4 v = { acc[0], acc[1], acc[2], acc[3] };
        *(float4 *)(void *)to = v;
        return;
    }
    if (cw == 2 && cols >= 2 && (uintptr_t)to % 8 == 0) {
        const float2 v = { acc[0], acc[1] };
        *(float2 *)(void *)to = v;
        return;
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < cw; i++)
        if (i < cols)
            to[i] = acc[i];
}

/* The sequence's sums over the block of positions at b, in columns [c0, c0 + cols).  queries: for the first
 * block, how many there are, whose largest scores are found meanwhile; later 0. */
DEV void value_block(const struct k_attention *a, const struct value_room *m, const uint32_t dtype,
                     const uint32_t cw, const uint32_t qw, const uint32_t threads,
                     const uint32_t stages, const struct sequence *r, uint32_t queries, uint32_t b,
                     uint32_t c0, uint32_t cols)
{
    const uint32_t          across = VALUE_COLS / cw, most = threads / across * qw;
    const uint32_t          c = threadIdx.x % across * cw, first = threadIdx.x / across * qw;
    const uint32_t          rows = STAGE_ROWS(dtype), from = b < r->lo ? r->lo : b;
    const uint32_t          end = r->p - b < VALUE_BLOCK ? r->p + 1 : b + VALUE_BLOCK;
    const struct cache_head h = head_of(a, a->v, a->v_stride, a->v_copy, m->q[r->begin].row);
    float                   acc[4][4];
    uint32_t                next = from, into = 0, slot = 0;
    UNROLL_LOOP
    for (uint32_t i = 0; i < qw; i++) {
        UNROLL_LOOP
        for (uint32_t l = 0; l < cw; l++)
            acc[i][l] = 0.0f;
    }
    __syncthreads(); /* the ring and e are free */
    UNROLL_NOT
    for (; into < stages - 1; into++, next += rows)
        value_copy(m, &h, dtype, threads, next, end, into, c0, cols);
    if (queries) {
        largest(a, m->q, queries, threads, most, m->tops);
        __syncthreads();
    }
    exponentials(a, m, r, b, threads, most);

    for (uint32_t j = from; j < end; j += rows, next += rows) {
        const uint32_t n = end - j < rows ? end - j : rows;
        copy_wait((int)stages - 2);
        __syncthreads();
        value_copy(m, &h, dtype, threads, next, end, into, c0, cols);
        if (c < cols && first < r->n) {
            const uint8_t *v = m->ring + slot * VALUE_STAGE + c * element_bytes(dtype);
            const float   *e = m->e + (j - b) * most + first, *s = m->scales + slot * 32;
            if (j >= r->all_lo && j + (n - 1) <= r->all_p)
                value_chains(v, e, s, n, 0, dtype, cw, qw, most, acc);
            else
                value_chains(v, e, s, n, 1, dtype, cw, qw, most, acc);
        }
        into = into + 1 == stages ? 0 : into + 1;
        slot = slot + 1 == stages ? 0 : slot + 1;
    }
    if (c >= cols)
        return; /* barriers come after it */
    UNROLL_LOOP
    for (uint32_t i = 0; i < qw; i++)
        value_store(a, m->q + (r->begin + (first + i < r->n ? first + i : 0)), first + i < r->n, b,
                    c0 + c, cols - c, cw, acc[i]);
}

DEV void values_of(const struct k_attention *a, const struct value_room *m, const uint32_t dtype,
                   const uint32_t cw, const uint32_t qw, const uint32_t threads,
                   const uint32_t stages, uint32_t n)
{
    const uint32_t  slices = (a->head_dim + VALUE_COLS - 1) / VALUE_COLS;
    const uint32_t  x = blockIdx.x - a->first_blocks, c0 = x % slices * VALUE_COLS;
    const uint32_t  cols = a->head_dim - c0 < VALUE_COLS ? a->head_dim - c0 : VALUE_COLS;
    struct sequence r;
    uint32_t        queries = n;
    for (uint32_t i = 0; i < n; i += r.n) {
        sequence_at(m->q, n, i, &r);
        for (uint64_t b = r.lo / VALUE_BLOCK + x / slices; b * VALUE_BLOCK <= r.p;
             b += a->blocks, queries = 0)
            value_block(a, m, dtype, cw, qw, threads, stages, &r, queries,
                        (uint32_t)b * VALUE_BLOCK, c0, cols);
    }
}

/* A thread has cw columns and qw queries.  The first blocks of threads add the denominators meanwhile.  Grid:
 * denominators, then 256 positions times 128 columns; KV heads and parts of their query heads; tiles of tokens. */
#define VALUES(name, cw, qw, threads, stages)                                                      \
    TSR_KERNEL(name, struct k_attention, threads)                                                  \
    {                                                                                              \
        __shared__ uint4        ring[(stages)*VALUE_STAGE / 16];                                   \
        __shared__ float4       e[VALUE_BLOCK * (threads) * (cw) * (qw) / VALUE_COLS / 4];         \
        __shared__ float        scales[(stages)*32], tops[QUERIES];                                \
        __shared__ struct query q[QUERIES];                                                        \
        const struct value_room m = { (uint8_t *)(void *)ring, scales, (float *)(void *)e, tops,   \
                                      q };                                                         \
        const uint32_t          n = queries_of(&a, q), x = DEN_QUERIES * blockIdx.x;               \
        if (blockIdx.x < a.first_blocks) {                                                         \
            if (x < n)                                                                             \
                denominators(&a, q + x, n - x < DEN_QUERIES ? n - x : DEN_QUERIES, threads,        \
                             (float *)(void *)ring, tops);                                         \
            return;                                                                                \
        }                                                                                          \
        if (a.dtype == DT_F32)                                                                     \
            values_of(&a, &m, DT_F32, cw, qw, threads, stages, n);                                 \
        else if (a.dtype == DT_F16)                                                                \
            values_of(&a, &m, DT_F16, cw, qw, threads, stages, n);                                 \
        else                                                                                       \
            values_of(&a, &m, DT_I8, cw, qw, threads, stages, n);                                  \
    }
VALUES(k_values4, 2, 4, 64u, 3) /* of up to 4 queries: the fewest instructions */
VALUES(k_values4_wide, 2, 2, 128u,
       4) /* the least time of a block of threads, where there are few of them */
VALUES(k_values8, 4, 2, 128u, 4)
VALUES(k_values16, 4, 4, 128u, 3)

/* Grid: heads, tokens. */
TSR_KERNEL(k_combine, struct k_attention, 128)
{
    float *out = AT(float, a.out + (uint64_t)(a.first + blockIdx.y) * a.out_stride) +
                 (uint64_t)blockIdx.x * a.head_dim;
    for (uint32_t d = threadIdx.x; d < a.head_dim; d += 128)
        out[d] = combined(&a, blockIdx.y, blockIdx.x, d);
}
