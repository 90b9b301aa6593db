/* k_attention.c - one token against the cache, for the query heads that share a KV head, so that one read
 * of the cache serves several heads. */
#include "k_attention.h"

#define COLUMNS 4 /* vectors of the output side by side */

INLINE uint64_t lanes(uint64_t n, uint64_t i)
{
    return n - i < 16 ? n - i : 16;
}

/* Keys and query heads whose products are summed concurrently: each loaded key serves all of the heads,
 * each query all of the keys. */
#if ISA_VECS == 2
#define KEYS  4
#define HEADS 4
#else
#define KEYS  2
#define HEADS 2
#endif

/* Columns d..d+n-1 of the products. */
INLINE void dots_at(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *key,
                    uint64_t d, uint64_t n, const uint32_t dtype, const int nh, const int nk,
                    const v16 *s, v16 acc[HEADS][KEYS])
{
    v16 k[KEYS];
    UNROLL
    for (int j = 0; j < nk; j++)
        k[j] = cached(key + (uint64_t)j * a->k_stride, dtype, d, n, s[j]);
    UNROLL
    for (int h = 0; h < nh; h++) {
        v16 x = cached(q + (uint64_t)h * a->head_dim * 4, TSR_F32, d, n, s[0]);
        UNROLL
        for (int j = 0; j < nk; j++)
            acc[h][j] = v_fma(x, k[j], acc[h][j]);
    }
}

/* q.k of nk keys from `key` on and nh query heads from q on, before their trees: t[16 * head + key]. */
INLINE void dots(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *key,
                 const uint32_t dtype, const int nh, const int nk, v16 *t)
{
    v16      acc[HEADS][KEYS], s[KEYS];
    uint64_t dim = a->head_dim, d = 0;
    UNROLL
    for (int j = 0; j < nk; j++) {
        s[j] = head_scale(key + (uint64_t)j * a->k_stride, dtype);
        UNROLL
        for (int h = 0; h < nh; h++)
            acc[h][j] = v_set1(0.0f);
    }
    for (; d + 16 <= dim; d += 16)
        dots_at(a, q, key, d, 16, dtype, nh, nk, s, acc);
    if (d < dim)
        dots_at(a, q, key, d, dim - d, dtype, nh, nk, s, acc);
    UNROLL
    for (int h = 0; h < nh; h++) {
        UNROLL
        for (int j = 0; j < nk; j++)
            t[16 * h + j] = acc[h][j];
    }
}

/* Sixteen keys from `key` on, of which first..end-1 count; the others give zeros. */
INLINE void sixteen_keys(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *key,
                         uint64_t first, uint64_t end, const uint32_t dtype, const int nh, v16 *t)
{
    for (uint64_t j = 0; j < 16; j += KEYS) {
        if (j >= first && j + KEYS <= end) {
            dots(a, q, key + j * a->k_stride, dtype, nh, KEYS, t + j);
            continue;
        }
        for (uint64_t i = j; i < j + KEYS; i++) {
            if (i >= first && i < end)
                dots(a, q, key + i * a->k_stride, dtype, nh, 1, t + i);
            else
                for (int h = 0; h < nh; h++)
                    t[16 * (uint64_t)h + i] = v_set1(0.0f);
        }
    }
}

/* Rows of a head are one row of the cache apart, a stride that the hardware prefetcher does not follow:
 * they are prefetched this many rows before their use, keys sixteen at a time. */
#define KEYS_AHEAD   16u
#define VALUES_AHEAD 32u
INLINE void prefetch_keys(const uint8_t *at, uint64_t stride, uint64_t bytes)
{
    for (uint64_t i = 0; i < 16; i++)
        for (uint64_t b = 0; b < bytes; b += 64)
            v_prefetch(at + (KEYS_AHEAD + i) * stride + b);
}

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
                      const int nh, float *s)
{
    v16      t[HEADS * 16], y[HEADS];
    uint64_t first = j0 < r->lo ? r->lo - j0 : 0, end = r->p + 1 - j0 < 16 ? r->p + 1 - j0 : 16;
    sixteen_keys(a, q, key, first, end, dtype, nh, t);
    for (int h = 0; h < nh; h++)
        y[h] = v_tree16x16(t + 16 * (uint64_t)h);
    put_scores(a, r, j0, slopes, nh, y, s);
}

/* Scores of all heads that share a KV head, sixteen positions of all at a time: keys are still in the L1
 * cache for the last head.  key: of position j0, the first one. */
INLINE void scores_of(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *key,
                      const struct reach *r, uint64_t j0, const uint32_t dtype, const float *slopes,
                      uint64_t share, float *s)
{
    const uint64_t bytes = tsr_kv_head_bytes(dtype, a->head_dim), each = a->head_dim * 4;
    for (; j0 <= r->p; j0 += 16, key += 16 * a->k_stride) {
        uint64_t i = 0;
        prefetch_keys(key, a->k_stride, bytes);
        for (; i + HEADS <= share; i += HEADS)
            scores_at(a, q + i * each, key, r, j0, dtype, slopes ? slopes + i : NULL, HEADS,
                      s + i * r->n);
        for (; i < share; i++)
            scores_at(a, q + i * each, key, r, j0, dtype, slopes ? slopes + i : NULL, 1,
                      s + i * r->n);
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

/* Scores of all heads that share KV head `of`: earlier blocks as codes, the token's block from the tail. */
INLINE void channel_scores(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *rows,
                           const uint8_t *tail, const struct reach *r, uint32_t of,
                           const float *slopes, uint64_t share, float *s)
{
    const uint64_t bytes = TSR_KV_BLOCK * tsr_kv_head_bytes(TSR_Q4_CHANNEL, a->head_dim);
    const uint64_t half = tsr_kv_head_bytes(TSR_F16, a->head_dim), each = a->head_dim * 4;
    const uint64_t own = r->p / TSR_KV_BLOCK * TSR_KV_BLOCK, step = TSR_KV_BLOCK * a->k_stride;
    const uint8_t *block = rows + r->base / TSR_KV_BLOCK * step + of * bytes;
    for (uint64_t b = r->base / TSR_KV_BLOCK * TSR_KV_BLOCK; b < own; b += TSR_KV_BLOCK) {
        uint64_t i = 0;
        for (uint64_t at = 0; at < bytes; at += 64)
            v_prefetch(block + step + at);
        for (; i + HEADS <= share; i += HEADS)
            block_scores(a, q + i * each, block, r, b, slopes ? slopes + i : NULL, HEADS,
                         s + i * r->n);
        for (; i < share; i++)
            block_scores(a, q + i * each, block, r, b, slopes ? slopes + i : NULL, 1, s + i * r->n);
        block += step;
    }
    struct tsr_cpu_attention last = *a;
    uint64_t                 j0 = r->base > own ? r->base : own;
    last.k_stride = a->kv_heads * half;
    scores_of(&last, q, tail + (j0 - own) * last.k_stride + of * half, r, j0, TSR_F16, slopes,
              share, s);
}

/* Columns d.. of nv vectors of the output of nh query heads. */
INLINE void values_of(const struct tsr_cpu_attention *a, const uint8_t *v, const float *e,
                      const struct reach *r, const uint32_t dtype, uint64_t d, const int nh,
                      const int nv, uint64_t tail, const v16 *den, uint8_t *out)
{
    const uint64_t from = tsr_kv_head_bytes(dtype, d) & ~UINT64_C(63),
                   upto = tsr_kv_head_bytes(dtype, d + 16 * (uint64_t)nv);
    v16 total[HEADS][COLUMNS];
    UNROLL
    for (int h = 0; h < nh; h++) {
        UNROLL
        for (int i = 0; i < nv; i++)
            total[h][i] = v_set1(0.0f);
    }
    for (uint64_t b = r->lo; b <= r->p;) {
        uint64_t end = (b / AT_BLOCK + 1) * AT_BLOCK;
        if (end > r->p + 1)
            end = r->p + 1;
        v16 acc[HEADS][COLUMNS];
        UNROLL
        for (int h = 0; h < nh; h++) {
            UNROLL
            for (int i = 0; i < nv; i++)
                acc[h][i] = v_set1(0.0f);
        }
        for (; b < end; b++) {
            const uint8_t *head = v + b * a->v_stride;
            v16            s = head_scale(head, dtype), x[COLUMNS];
            for (uint64_t i = from; i < upto; i += 64)
                v_prefetch(head + VALUES_AHEAD * a->v_stride + i);
            UNROLL
            for (int i = 0; i < nv; i++)
                x[i] = cached(head, dtype, d + 16 * (uint64_t)i, i + 1 < nv ? 16 : tail, s);
            UNROLL
            for (int h = 0; h < nh; h++) {
                v16 w = v_set1(e[(uint64_t)h * r->n + (b - r->base)]);
                UNROLL
                for (int i = 0; i < nv; i++)
                    acc[h][i] = v_fma(w, x[i], acc[h][i]);
            }
        }
        UNROLL
        for (int h = 0; h < nh; h++) {
            UNROLL
            for (int i = 0; i < nv; i++)
                total[h][i] = v_add(total[h][i], acc[h][i]);
        }
    }
    for (int h = 0; h < nh; h++)
        for (int i = 0; i < nv; i++) {
            float t[16];
            v_store(t, v_div(total[h][i], den[h]));
            memcpy(out + 4 * ((uint64_t)h * a->head_dim + d + 16 * (uint64_t)i), t,
                   4 * (i + 1 < nv ? 16 : tail));
        }
}

/* The output of nh query heads from their scores. */
INLINE void heads_of(const struct tsr_cpu_attention *a, const uint8_t *v, const struct reach *r,
                     const uint32_t dtype, const int nh, float *scores, const float *sinks,
                     uint8_t *out)
{
    uint64_t dim = a->head_dim, d = 0;
    v16      den[HEADS];
    for (int i = 0; i < nh; i++)
        den[i] = softmax(scores + (uint64_t)i * r->n, r->n, sinks ? sinks + i : NULL);
    for (; d + 16 * COLUMNS <= dim; d += 16 * COLUMNS)
        values_of(a, v, scores, r, dtype, d, nh, COLUMNS, 16, den, out);
    for (; d < dim; d += 16)
        values_of(a, v, scores, r, dtype, d, nh, 1, lanes(dim, d), den, out);
}

/* dtype: of values, and of keys unless they are by channel. */
INLINE void attend(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head,
                   const uint32_t dtype, const bool by_channel, float *scores)
{
    uint64_t       row, at = kv_head * tsr_kv_head_bytes(dtype, a->head_dim);
    struct reach   r = reach_of(a, token, &row);
    const uint8_t *k = a->k + row * a->k_stride, *v = a->v + row * a->v_stride + at;
    uint64_t       share = a->heads / a->kv_heads, h = kv_head * share, each = a->head_dim * 4, i;
    uint8_t       *out = a->out + token * a->out_stride + h * each;
    const float   *sinks = a->sinks ? a->sinks + h : NULL;
    const uint8_t *q = a->q + token * a->q_stride + h * each;
    const float   *slopes = a->slopes ? a->slopes + h : NULL;
    if (by_channel)
        channel_scores(a, q, k, a->k + tail_row(a, token) * a->k_stride, &r, kv_head, slopes, share,
                       scores);
    else
        scores_of(a, q, k + r.base * a->k_stride + at, &r, r.base, dtype, slopes, share, scores);
    for (i = 0; i + HEADS <= share; i += HEADS)
        heads_of(a, v, &r, dtype, HEADS, scores + i * r.n, sinks ? sinks + i : NULL,
                 out + i * each);
    for (; i < share; i++)
        heads_of(a, v, &r, dtype, 1, scores + i * r.n, sinks ? sinks + i : NULL, out + i * each);
}

void K(attention)(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head,
                  float *scores)
{
    if (a->dtype == TSR_F32)
        attend(a, token, kv_head, TSR_F32, false, scores);
    else if (a->dtype == TSR_F16)
        attend(a, token, kv_head, TSR_F16, false, scores);
    else if (a->dtype == TSR_I8)
        attend(a, token, kv_head, TSR_I8, false, scores);
    else if (a->dtype == TSR_E4M3)
        attend(a, token, kv_head, TSR_E4M3, false, scores);
    else
        attend(a, token, kv_head, TSR_Q4, a->dtype == TSR_Q4_CHANNEL, scores);
}
