/* k_attention_tile.c - successive tokens of one sequence against the cache: each key and value is widened once for all
 * queries of the tile, and serves several of them from registers.
 *
 * Keys are stored by columns, so that a vector holds one column of sixteen keys, and each of the sixteen lanes of a
 * product (numerics.md, ATTENTION) is a sum of its own.  The tree over them needs no shuffle then. */
#include "k_attention.h"

#define MOST_QUERIES CPU_TILE_QUERIES
#define MOST_DIM     CPU_TILE_DIM
#define VALUES       32u /* positions whose values are widened at a time */

/* Queries and vectors of keys whose products are summed side by side. */
#if ISA_VECS == 2
#define QUERIES 4
#define KEYS    2
#else
#define QUERIES 2
#define KEYS    1
#endif
#define WIDE (16 * KEYS) /* keys widened at a time */

/* Loops that do not depend on the type of the cache exist once. */
#define ONCE static __attribute__((noinline))

/* Queries [token][head]; those of one token have one reach. */
struct tile {
    const struct tsr_cpu_attention *a;
    uint64_t                        token, head, share, dim16, queries;
    struct reach                    first, last; /* of the first and the last token */
    uint64_t                        n;           /* scores of a query, from first.base on */
    const uint8_t                  *k, *v;       /* of position 0 */
    float                          *scores;      /* [queries][n] */
};

INLINE const float *query(const struct tile *t, uint64_t i)
{
    const struct tsr_cpu_attention *a = t->a;
    return (const float *)(const void *)(a->q + (t->token + i / t->share) * a->q_stride +
                                         (t->head + i % t->share) * a->head_dim * 4);
}

INLINE struct reach reach(const struct tile *t, uint64_t i)
{
    uint64_t row;
    return reach_of(t->a, t->token + i / t->share, &row);
}

/* ---- scores ------------------------------------------------------------------------------------ */

/* WIDE keys from position j0 on: kt[16 * ceil(dim / 16)][WIDE].  Positions after the last are zeros. */
INLINE void widen_keys(const struct tile *t, uint64_t j0, float *kt, const uint32_t dtype)
{
    const struct tsr_cpu_attention *a = t->a;
    for (uint64_t g = 0; g < KEYS; g++)
        for (uint64_t d = 0; d < a->head_dim; d += 16) {
            uint64_t n = a->head_dim - d < 16 ? a->head_dim - d : 16;
            v16      x[16];
            for (uint64_t j = 0; j < 16; j++) {
                uint64_t       at = j0 + 16 * g + j;
                const uint8_t *key = t->k + at * a->k_stride;
                x[j] = at <= t->last.p ? cached(key, dtype, d, n, head_scale(key, dtype))
                                       : v_set1(0.0f);
            }
            v_transpose16(x);
            for (uint64_t i = 0; i < 16; i++)
                v_store(kt + (d + i) * WIDE + 16 * g, x[i]);
        }
}

/* F(..., dtype, ...) with the type of the cache as a constant. */
#define BY_TYPE(dtype, F, ...)                                                                     \
    do {                                                                                           \
        if ((dtype) == TSR_F32)                                                                    \
            F(__VA_ARGS__, TSR_F32);                                                               \
        else if ((dtype) == TSR_F16)                                                               \
            F(__VA_ARGS__, TSR_F16);                                                               \
        else if ((dtype) == TSR_I8)                                                                \
            F(__VA_ARGS__, TSR_I8);                                                                \
        else if ((dtype) == TSR_E4M3)                                                              \
            F(__VA_ARGS__, TSR_E4M3);                                                              \
        else                                                                                       \
            F(__VA_ARGS__, TSR_Q4);                                                                \
    } while (0)

/* Lane l of the products of nq queries: columns l, l + 16, ... in order; n of them. */
INLINE void lane(const float *kt, const float *const *q, uint64_t l, uint64_t n, const int nq,
                 v16 x[QUERIES][KEYS])
{
    UNROLL
    for (int i = 0; i < nq; i++) {
        UNROLL
        for (int g = 0; g < KEYS; g++)
            x[i][g] = v_set1(0.0f);
    }
    for (uint64_t m = 0; m < n; m++) {
        v16 k[KEYS];
        UNROLL
        for (int g = 0; g < KEYS; g++)
            k[g] = v_load(kt + (16 * m + l) * WIDE + 16 * (uint64_t)g);
        UNROLL
        for (int i = 0; i < nq; i++) {
            v16 w = v_set1(q[i][16 * m + l]);
            UNROLL
            for (int g = 0; g < KEYS; g++)
                x[i][g] = v_fma(w, k[g], x[i][g]);
        }
    }
}

/* Products of nq queries with a block of keys: the lanes in the order in which tree16 pairs them, so that at most
 * four sums wait. */
INLINE void products(const struct tile *t, const float *kt, const float *const *q, const int nq,
                     v16 to[QUERIES][KEYS])
{
    static const uint8_t order[16] = { 0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15 };
    const uint64_t       dim = t->a->head_dim;
    v16                  wait[4][QUERIES][KEYS];
    UNROLL
    for (int s = 0; s < 16; s++) {
        v16            x[QUERIES][KEYS];
        const uint64_t l = order[s];
        lane(kt, q, l, (dim + 15 - l) / 16, nq, x);
        UNROLL
        for (int level = 0; level < 4; level++) {
            /* whether all levels below are full */
            const int carry = ((s + 1) & ((1 << level) - 1)) == 0, full = (s >> level) & 1;
            UNROLL
            for (int i = 0; i < nq; i++) {
                UNROLL
                for (int g = 0; g < KEYS; g++) {
                    if (carry && full)
                        x[i][g] = v_add(wait[level][i][g], x[i][g]);
                    else if (carry)
                        wait[level][i][g] = x[i][g];
                }
            }
        }
        if (s == 15)
            memcpy(to, x, sizeof x);
    }
}

INLINE void store_scores(const struct tile *t, uint64_t i, uint64_t j0, const v16 *product)
{
    const struct tsr_cpu_attention *a = t->a;
    const struct reach              r = reach(t, i);
    for (uint64_t g = 0; g < KEYS; g++) {
        uint64_t j = j0 + 16 * g;
        float   *to = t->scores + i * t->n + (j - t->first.base);
        if (j > t->last.p)
            continue;
        v_store(to, score(a, product[g], j, r.p,
                          a->slopes ? a->slopes + t->head + i % t->share : NULL));
        for (uint64_t at = j; (j < r.lo || j + 15 > r.p) && at < j + 16; at++)
            if (at < r.lo || at > r.p)
                to[at - j] = -INFINITY;
    }
}

ONCE void scores(const struct tile *t)
{
    float kt[MOST_DIM * WIDE];
    for (uint64_t j0 = t->first.base; j0 <= t->last.p; j0 += WIDE) {
        uint64_t i = 0;
        v16      x[QUERIES][KEYS];
        BY_TYPE(t->a->dtype, widen_keys, t, j0, kt);
        for (; i + QUERIES <= t->queries; i += QUERIES) {
            const float *q[QUERIES];
            for (uint64_t h = 0; h < QUERIES; h++)
                q[h] = query(t, i + h);
            products(t, kt, q, QUERIES, x);
            for (uint64_t h = 0; h < QUERIES; h++)
                store_scores(t, i + h, j0, x[h]);
        }
        for (; i < t->queries; i++) {
            const float *q = query(t, i);
            products(t, kt, &q, 1, x);
            store_scores(t, i, j0, x[0]);
        }
    }
}

/* ---- values --------------------------------------------------------------------------------------- */

/* A span of positions [b, end) inside a block of 256, and its values as F32 [position][dim16]. */
struct span {
    uint64_t     b, end;
    const float *v;
};

/* The chains of nq queries and nv vectors of columns from d on, continued over positions [b, end); acc [query][dim16]. */
INLINE void chains(const struct tile *t, const struct span *s, uint64_t b, uint64_t end,
                   uint64_t i0, uint64_t d, const int nq, const int nv, float *acc)
{
    const float *e[8];
    v16          x[8][4];
    UNROLL
    for (int i = 0; i < nq; i++) {
        e[i] = t->scores + (i0 + (uint64_t)i) * t->n;
        UNROLL
        for (int c = 0; c < nv; c++)
            x[i][c] = v_load(acc + (i0 + (uint64_t)i) * t->dim16 + d + 16 * (uint64_t)c);
    }
    for (uint64_t j = b; j < end; j++) {
        const float *v = s->v + (j - s->b) * t->dim16 + d;
        v16          k[4];
        UNROLL
        for (int c = 0; c < nv; c++)
            k[c] = v_load(v + 16 * (uint64_t)c);
        UNROLL
        for (int i = 0; i < nq; i++) {
            v16 w = v_set1(e[i][j - t->first.base]);
            UNROLL
            for (int c = 0; c < nv; c++)
                x[i][c] = v_fma(w, k[c], x[i][c]);
        }
    }
    UNROLL
    for (int i = 0; i < nq; i++) {
        UNROLL
        for (int c = 0; c < nv; c++)
            v_store(acc + (i0 + (uint64_t)i) * t->dim16 + d + 16 * (uint64_t)c, x[i][c]);
    }
}

/* Columns d.. of nv vectors of all queries, nq at a time. */
INLINE void columns(const struct tile *t, const struct span *s, uint64_t d, const int nq,
                    const int nv, float *acc)
{
    uint64_t i = 0;
    for (; i + (uint64_t)nq <= t->queries; i += (uint64_t)nq)
        chains(t, s, s->b, s->end, i, d, nq, nv, acc);
    for (; i < t->queries; i++)
        chains(t, s, s->b, s->end, i, d, 1, nv, acc);
}

/* Every token of the tile sees the whole span. */
ONCE void all_queries(const struct tile *t, const struct span *s, float *acc)
{
    uint64_t d = 0;
    for (; d + 64 <= t->dim16; d += 64)
        columns(t, s, d, 4, 4, acc);
    if (d + 32 <= t->dim16) {
        columns(t, s, d, 8, 2, acc);
        d += 32;
    }
    if (d < t->dim16)
        columns(t, s, d, 8, 1, acc);
}

/* Each query over the part of the span that it sees. */
ONCE void each_query(const struct tile *t, const struct span *s, float *acc)
{
    for (uint64_t i = 0; i < t->queries; i++) {
        struct reach r = reach(t, i);
        uint64_t     b = s->b > r.lo ? s->b : r.lo, end = s->end < r.p + 1 ? s->end : r.p + 1;
        for (uint64_t d = 0; b < end && d < t->dim16; d += 16)
            chains(t, s, b, end, i, d, 1, 1, acc);
    }
}

INLINE void widen_values(const struct tile *t, const struct span *s, float *to,
                         const uint32_t dtype)
{
    const uint64_t dim = t->a->head_dim;
    for (uint64_t j = s->b; j < s->end; j++, to += t->dim16) {
        const uint8_t *head = t->v + j * t->a->v_stride;
        v16            scale = head_scale(head, dtype);
        for (uint64_t d = 0; d < dim; d += 16)
            v_store(to + d, cached(head, dtype, d, dim - d < 16 ? dim - d : 16, scale));
    }
}

/* The block of 256 positions has ended: its chains are added to the sums, and begin anew. */
INLINE void add_block(uint64_t n, float *sum, float *acc)
{
    for (uint64_t i = 0; i < n; i += 16) {
        v_store(sum + i, v_add(v_load(sum + i), v_load(acc + i)));
        v_store(acc + i, v_set1(0.0f));
    }
}

/* sum [query][dim16]: the outputs before the division */
INLINE void values(const struct tile *t, float *sum)
{
    float    v[VALUES * MOST_DIM], acc[MOST_QUERIES * MOST_DIM];
    uint64_t n = t->queries * t->dim16, end;
    memset(sum, 0, n * sizeof *sum);
    memset(acc, 0, n * sizeof *acc);
    for (uint64_t b = t->first.lo; b <= t->last.p; b = end) {
        end = (b / VALUES + 1) * VALUES;
        end = end < t->last.p + 1 ? end : t->last.p + 1;
        struct span s = { b, end, v };
        BY_TYPE(t->a->dtype, widen_values, t, &s, v);
        if (b >= t->last.lo && end <= t->first.p + 1)
            all_queries(t, &s, acc);
        else
            each_query(t, &s, acc);
        if (end % AT_BLOCK == 0 || end > t->last.p)
            add_block(n, sum, acc);
    }
}

/* ---- a tile ------------------------------------------------------------------------------------------ */

ONCE void attend(const struct tile *t)
{
    const struct tsr_cpu_attention *a = t->a;
    float                           den[MOST_QUERIES], sum[MOST_QUERIES * MOST_DIM];
    scores(t);
    for (uint64_t i = 0; i < t->queries; i++)
        v_storen(den + i,
                 softmax(t->scores + i * t->n, t->n,
                         a->sinks ? a->sinks + t->head + i % t->share : NULL),
                 1);
    values(t, sum);
    for (uint64_t i = 0; i < t->queries; i++) {
        uint8_t *out = a->out + (t->token + i / t->share) * a->out_stride +
                       (t->head + i % t->share) * a->head_dim * 4;
        for (uint64_t d = 0; d < a->head_dim; d += 16) {
            float x[16];
            v_store(x, v_div(v_load(sum + i * t->dim16 + d), v_set1(den[i])));
            memcpy(out + 4 * d, x, 4 * (a->head_dim - d < 16 ? a->head_dim - d : 16));
        }
    }
}

void K(attention_tile)(const struct tsr_cpu_attention *a, uint64_t token, uint64_t tokens,
                       uint32_t kv_head, float *scores)
{
    const uint64_t share = a->heads / a->kv_heads,
                   at = kv_head * tsr_kv_head_bytes(a->dtype, a->head_dim);
    for (uint64_t n; tokens; token += n, tokens -= n) {
        uint64_t     row, other;
        struct reach first = reach_of(a, token, &row), last = first, next;
        for (n = 1; n < tokens; n++, last = next) {
            next = reach_of(a, token + n, &other);
            if (other != row || next.p != last.p + 1)
                break;
        }
        if (n == 1) {
            K(attention)(a, token, kv_head, 1, scores);
            continue;
        }
        attend(&(struct tile){ .a = a,
                               .token = token,
                               .head = kv_head * share,
                               .share = share,
                               .dim16 = (a->head_dim + 15) / 16 * 16,
                               .queries = n * share,
                               .first = first,
                               .last = last,
                               .n = (last.p - first.base) / 16 * 16 + 16,
                               .k = a->k + row * a->k_stride + at,
                               .v = a->v + row * a->v_stride + at,
                               .scores = scores });
    }
}
