/* k_attention.c - one token against the cache, for the query heads that share a KV head, so that one read
 * of the cache serves several heads. */
#include "k_attention_dots.h"

#define COLUMNS 4 /* vectors of the output side by side */

/* Scores of nh heads and the sixteen positions from j0 on, whose products are y, into
 * s[head * n + position - base]; those outside lo..p are -inf. */
INLINE void put_scores(const struct tsr_cpu_attention *a, const struct reach *r, uint64_t j0,
                       const float *slopes, const int nh, const v16 *y, float *s)
{
    uint64_t first = j0 < r->lo ? r->lo - j0 : 0, end = r->p + 1 - j0 < 16 ? r->p + 1 - j0 : 16;
    for (int h = 0; h < nh; h++) {
        float *to = s + (uint64_t)h * r->n + (j0 - r->base);
        v_store(to, score(a, y[h], j0, r->p, slopes ? slopes + h : NULL));
        for (uint64_t j = 0; end - first < 16 && j < 16; j++)
            if (j < first || j >= end)
                to[j] = -INFINITY;
    }
}

/* The same from their keys. */
INLINE void scores_at(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *key,
                      const struct reach *r, uint64_t j0, const uint32_t dtype, const float *slopes,
                      const int nh, struct ahead *f, float *s)
{
    v16      y[HEADS];
    uint64_t first = j0 < r->lo ? r->lo - j0 : 0, end = r->p + 1 - j0 < 16 ? r->p + 1 - j0 : 16;
    sixteen_keys(a, q, key, first, end, dtype, nh, f, y);
    put_scores(a, r, j0, slopes, nh, y, s);
}

/* A token's part of the work: n KV heads, whose queries, scores and keys lie one after the other. */
struct part {
    const struct tsr_cpu_attention *a;
    const uint8_t                  *q, *v; /* v: of position 0 */
    const float                    *slopes;
    struct reach                    r;
    uint64_t                        n, share;
    float                          *scores; /* [n * share][r.n] */
};

/* Scores of the query heads of a KV head and sixteen positions: keys are still in the L1 cache for the last
 * head. */
INLINE void scores_of(const struct part *t, const struct tsr_cpu_attention *a, uint64_t of,
                      const uint8_t *key, uint64_t j0, const uint32_t dtype, struct ahead *f)
{
    const uint64_t share = t->share, each = a->head_dim * 4;
    const uint8_t *q = t->q + of * share * each;
    const float   *slopes = t->slopes ? t->slopes + of * share : NULL;
    float         *s = t->scores + of * share * t->r.n;
    uint64_t       i = 0;
    for (; i + HEADS <= share; i += HEADS)
        scores_at(a, q + i * each, key, &t->r, j0, dtype, slopes ? slopes + i : NULL, HEADS,
                  i ? NULL : f, s + i * t->r.n);
    for (; i < share; i++)
        scores_at(a, q + i * each, key, &t->r, j0, dtype, slopes ? slopes + i : NULL, 1,
                  i ? NULL : f, s + i * t->r.n);
}

/* Scores of all heads, sixteen positions of all at a time, so that memory is read in its order.  key: of position j0,
 * the first one. */
INLINE void all_scores(const struct part *t, const struct tsr_cpu_attention *a, const uint8_t *key,
                       uint64_t j0, const uint32_t dtype)
{
    const uint64_t bytes = tsr_kv_head_bytes(dtype, a->head_dim);
    for (; j0 <= t->r.p; j0 += 16, key += 16 * a->k_stride) {
        struct ahead f = { key + 16 * a->k_stride, a->k_stride, bytes, 0, bytes, t->n * bytes };
        for (uint64_t of = 0; of < t->n; of++)
            scores_of(t, a, of, key + of * bytes, j0, dtype, &f);
    }
}

/* q.k of nh query heads and the positions of a block, those of y[0] and the sixteen after them of y[1]: with
 * k = scale * code + minimum of each channel, the sum of (q * scale) * code and the sum of q * minimum. */
INLINE void block_dots(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *block,
                       const int nh, v16 y[2][HEADS])
{
    const uint64_t dim = a->head_dim;
    v16            acc[2][HEADS], low[HEADS], one = v_set1(1.0f);
    UNROLL
    for (int h = 0; h < nh; h++)
        acc[0][h] = acc[1][h] = low[h] = v_set1(0.0f);
    for (uint64_t d = 0; d < dim; d += 16) {
        const uint8_t *codes = block + 4 * dim + 16 * d;
        uint64_t       n = lanes(dim, d);
        v16            scale = cached(block, TSR_F16, d, n, one);
        v16            minimum = cached(block + 2 * dim, TSR_F16, d, n, one);
        float          t[HEADS][16];
        UNROLL
        for (int h = 0; h < nh; h++) {
            v16 x = cached(q + (uint64_t)h * dim * 4, TSR_F32, d, n, one);
            low[h] = v_fma(x, minimum, low[h]);
            v_store(t[h], v_mul(x, scale));
        }
        for (uint64_t i = 0; i < n; i++) {
            i16v w = vi_load_u8(codes + 16 * i);
            v16  c0 = vi_cvt(vi_bits(w, 0, 15)), c1 = vi_cvt(vi_bits(w, 4, 15));
            UNROLL
            for (int h = 0; h < nh; h++) {
                v16 x = v_set1(t[h][i]);
                acc[0][h] = v_fma(x, c0, acc[0][h]);
                acc[1][h] = v_fma(x, c1, acc[1][h]);
            }
        }
    }
    UNROLL
    for (int h = 0; h < nh; h++) {
        v16 m = v_set1(v_tree16(low[h]));
        y[0][h] = v_add(acc[0][h], m);
        y[1][h] = v_add(acc[1][h], m);
    }
}

/* Scores of nh heads and the positions of the block from b on. */
INLINE void block_scores(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *block,
                         const struct reach *r, uint64_t b, const float *slopes, const int nh,
                         float *s)
{
    v16 y[2][HEADS];
    block_dots(a, q, block, nh, y);
    if (b >= r->base)
        put_scores(a, r, b, slopes, nh, y[0], s);
    put_scores(a, r, b + 16, slopes, nh, y[1], s);
}

/* Those of the query heads of a KV head. */
INLINE void block_of(const struct part *t, uint64_t of, const uint8_t *block, uint64_t b)
{
    const uint64_t share = t->share, each = t->a->head_dim * 4;
    const uint8_t *q = t->q + of * share * each;
    const float   *slopes = t->slopes ? t->slopes + of * share : NULL;
    float         *s = t->scores + of * share * t->r.n;
    uint64_t       i = 0;
    for (; i + HEADS <= share; i += HEADS)
        block_scores(t->a, q + i * each, block, &t->r, b, slopes ? slopes + i : NULL, HEADS,
                     s + i * t->r.n);
    for (; i < share; i++)
        block_scores(t->a, q + i * each, block, &t->r, b, slopes ? slopes + i : NULL, 1,
                     s + i * t->r.n);
}

/* Scores of all heads: earlier blocks as codes, the token's block from the tail.  rows: of position 0; first: the first
 * KV head. */
INLINE void channel_scores(const struct part *t, const uint8_t *rows, const uint8_t *tail,
                           uint32_t first)
{
    const struct tsr_cpu_attention *a = t->a;
    const uint64_t bytes = TSR_KV_BLOCK * tsr_kv_head_bytes(TSR_Q4_CHANNEL, a->head_dim);
    const uint64_t half = tsr_kv_head_bytes(TSR_F16, a->head_dim);
    const uint64_t own = t->r.p / TSR_KV_BLOCK * TSR_KV_BLOCK, step = TSR_KV_BLOCK * a->k_stride;
    const uint8_t *block = rows + t->r.base / TSR_KV_BLOCK * step + first * bytes;
    for (uint64_t b = t->r.base / TSR_KV_BLOCK * TSR_KV_BLOCK; b < own;
         b += TSR_KV_BLOCK, block += step)
        for (uint64_t of = 0; of < t->n; of++) {
            for (uint64_t at = 0; at < bytes; at += 64)
                v_prefetch_l2(block + step + of * bytes + at);
            block_of(t, of, block + of * bytes, b);
        }
    struct tsr_cpu_attention last = *a;
    uint64_t                 j0 = t->r.base > own ? t->r.base : own;
    last.k_stride = a->kv_heads * half;
    all_scores(t, &last, tail + (j0 - own) * last.k_stride + first * half, j0, TSR_F16);
}

#define VALUES 64u /* positions whose values are added at a time, a divisor of AT_BLOCK */

/* Adds positions b..end-1, all of one block, to nv vectors from column d on of nh query heads.  v: of position 0;
 * acc, total: of column d of the first head, heads being dim16 apart. */
INLINE void add_values(const struct tsr_cpu_attention *a, const uint8_t *v, const float *e,
                       const struct reach *r, uint64_t b, uint64_t end, const uint32_t dtype,
                       uint64_t d, const int nh, const int nv, uint64_t tail, uint64_t dim16,
                       struct ahead *f, float *acc, float *total)
{
    const bool begins = b == r->lo || b % AT_BLOCK == 0;
    const bool ends = end == r->p + 1 || end % AT_BLOCK == 0;
    v16        sum[HEADS][COLUMNS];
    UNROLL
    for (int h = 0; h < nh; h++) {
        UNROLL
        for (int i = 0; i < nv; i++)
            sum[h][i] = begins ? v_set1(0.0f) : v_load(acc + (uint64_t)h * dim16 + 16 * i);
    }
    for (; b < end; b++) {
        const uint8_t *head = v + b * a->v_stride;
        v16            s = head_scale(head, dtype), x[COLUMNS];
        cached_some(head, dtype, d, nv, tail, s, x);
        if (f)
            fetch_next(f);
        UNROLL
        for (int h = 0; h < nh; h++) {
            v16 w = v_set1(e[(uint64_t)h * r->n + (b - r->base)]);
            UNROLL
            for (int i = 0; i < nv; i++)
                sum[h][i] = v_fma(w, x[i], sum[h][i]);
        }
    }
    UNROLL
    for (int h = 0; h < nh; h++) {
        UNROLL
        for (int i = 0; i < nv; i++) {
            float *to = total + (uint64_t)h * dim16 + 16 * i;
            if (ends)
                v_store(to, v_add(v_load(to), sum[h][i]));
            else
                v_store(acc + (uint64_t)h * dim16 + 16 * i, sum[h][i]);
        }
    }
}

/* The same for all columns. */
INLINE void add_columns(const struct tsr_cpu_attention *a, const uint8_t *v, const float *e,
                        const struct reach *r, uint64_t b, uint64_t end, const uint32_t dtype,
                        const int nh, struct ahead *f, float *acc, float *total)
{
    uint64_t dim = a->head_dim, dim16 = (dim + 15) / 16 * 16, d = 0;
    for (; d + 16 * COLUMNS <= dim; d += 16 * COLUMNS)
        add_values(a, v, e, r, b, end, dtype, d, nh, COLUMNS, 16, dim16, d ? NULL : f, acc + d,
                   total + d);
    for (; d < dim; d += 16)
        add_values(a, v, e, r, b, end, dtype, d, nh, 1, lanes(dim, d), dim16, d ? NULL : f, acc + d,
                   total + d);
}

/* The sums of all heads, some positions of all at a time. */
INLINE void all_values(const struct part *t, const uint32_t dtype, float *acc, float *total)
{
    const struct tsr_cpu_attention *a = t->a;
    const uint64_t                  dim16 = (a->head_dim + 15) / 16 * 16, share = t->share;
    const uint64_t                  bytes = tsr_kv_head_bytes(dtype, a->head_dim);
    for (uint64_t b = t->r.lo, end; b <= t->r.p; b = end) {
        end = (b / VALUES + 1) * VALUES;
        end = end < t->r.p + 1 ? end : t->r.p + 1;
        struct ahead f = {
            t->v + (b + VALUES) * a->v_stride, a->v_stride, bytes, 0, bytes, t->n * bytes
        };
        for (uint64_t of = 0; of < t->n; of++) {
            const uint8_t *v = t->v + of * bytes;
            uint64_t       i = 0, h = of * share;
            for (; i + HEADS <= share; i += HEADS)
                add_columns(a, v, t->scores + (h + i) * t->r.n, &t->r, b, end, dtype, HEADS,
                            i ? NULL : &f, acc + (h + i) * dim16, total + (h + i) * dim16);
            for (; i < share; i++)
                add_columns(a, v, t->scores + (h + i) * t->r.n, &t->r, b, end, dtype, 1,
                            i ? NULL : &f, acc + (h + i) * dim16, total + (h + i) * dim16);
        }
    }
}

/* The outputs of all heads from their scores; sums: scratch of 2 * dim16 + 16 floats of each. */
INLINE void outputs(const struct part *t, const uint32_t dtype, const float *sinks, float *sums,
                    uint8_t *out)
{
    const uint64_t dim = t->a->head_dim, dim16 = (dim + 15) / 16 * 16, heads = t->n * t->share;
    float         *total = sums, *acc = total + heads * dim16, *den = acc + heads * dim16;
    for (uint64_t h = 0; h < heads; h++)
        v_store(den + 16 * h, softmax(t->scores + h * t->r.n, t->r.n, sinks ? sinks + h : NULL));
    memset(total, 0, heads * dim16 * sizeof *total);
    all_values(t, dtype, acc, total);
    for (uint64_t h = 0; h < heads; h++)
        for (uint64_t d = 0; d < dim; d += 16) {
            float x[16];
            v_store(x, v_div(v_load(total + h * dim16 + d), v_load(den + 16 * h)));
            memcpy(out + 4 * (h * dim + d), x, 4 * lanes(dim, d));
        }
}

/* dtype: of values, and of keys unless they are by channel. */
INLINE void attend(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head, uint64_t n,
                   const uint32_t dtype, const bool by_channel, float *scores)
{
    uint64_t       row, at = kv_head * tsr_kv_head_bytes(dtype, a->head_dim);
    struct reach   r = reach_of(a, token, &row);
    const uint8_t *k = a->k + row * a->k_stride;
    uint64_t       share = a->heads / a->kv_heads, h = kv_head * share, each = a->head_dim * 4;
    struct part    t = { .a = a,
                         .q = a->q + token * a->q_stride + h * each,
                         .v = a->v + row * a->v_stride + at,
                         .slopes = a->slopes ? a->slopes + h : NULL,
                         .r = r,
                         .n = n,
                         .share = share,
                         .scores = scores };
    if (by_channel)
        channel_scores(&t, k, a->k + tail_row(a, token) * a->k_stride, kv_head);
    else
        all_scores(&t, a, k + r.base * a->k_stride + at, r.base, dtype);
    outputs(&t, dtype, a->sinks ? a->sinks + h : NULL, scores + n * share * r.n,
            a->out + token * a->out_stride + h * each);
}

void K(attention)(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head, uint64_t n,
                  float *scores)
{
    if (a->dtype == TSR_F32)
        attend(a, token, kv_head, n, TSR_F32, false, scores);
    else if (a->dtype == TSR_F16)
        attend(a, token, kv_head, n, TSR_F16, false, scores);
    else if (a->dtype == TSR_I8)
        attend(a, token, kv_head, n, TSR_I8, false, scores);
    else if (a->dtype == TSR_E4M3)
        attend(a, token, kv_head, n, TSR_E4M3, false, scores);
    else
        attend(a, token, kv_head, n, TSR_Q4, a->dtype == TSR_Q4_CHANNEL, scores);
}
