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

/* Scores of nh heads and the sixteen positions from j0 on into s[head * n + position - base]; those outside
 * lo..p are -inf. */
INLINE void scores_at(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *k,
                      const struct reach *r, uint64_t j0, const uint32_t dtype, const float *slopes,
                      const int nh, float *s)
{
    v16      t[HEADS * 16];
    uint64_t first = j0 < r->lo ? r->lo - j0 : 0, end = r->p + 1 - j0 < 16 ? r->p + 1 - j0 : 16;
    sixteen_keys(a, q, k + j0 * a->k_stride, first, end, dtype, nh, t);
    for (int h = 0; h < nh; h++) {
        float *to = s + (uint64_t)h * r->n + (j0 - r->base);
        v_store(to,
                score(a, v_tree16x16(t + 16 * (uint64_t)h), j0, r->p, slopes ? slopes + h : NULL));
        for (uint64_t j = 0; end - first < 16 && j < 16; j++)
            if (j < first || j >= end)
                to[j] = -INFINITY;
    }
}

/* Scores of all heads that share a KV head, sixteen positions of all at a time: keys are still in the L1
 * cache for the last head. */
INLINE void scores_of(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *k,
                      const struct reach *r, const uint32_t dtype, const float *slopes,
                      uint64_t share, float *s)
{
    const uint64_t bytes = tsr_kv_head_bytes(dtype, a->head_dim), each = a->head_dim * 4;
    for (uint64_t j0 = r->base; j0 <= r->p; j0 += 16) {
        uint64_t i = 0;
        prefetch_keys(k + j0 * a->k_stride, a->k_stride, bytes);
        for (; i + HEADS <= share; i += HEADS)
            scores_at(a, q + i * each, k, r, j0, dtype, slopes ? slopes + i : NULL, HEADS,
                      s + i * r->n);
        for (; i < share; i++)
            scores_at(a, q + i * each, k, r, j0, dtype, slopes ? slopes + i : NULL, 1,
                      s + i * r->n);
    }
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

INLINE void attend(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head,
                   const uint32_t dtype, float *scores)
{
    uint64_t       row, at = kv_head * tsr_kv_head_bytes(dtype, a->head_dim);
    struct reach   r = reach_of(a, token, &row);
    const uint8_t *k = a->k + row * a->k_stride + at, *v = a->v + row * a->v_stride + at;
    uint64_t       share = a->heads / a->kv_heads, h = kv_head * share, each = a->head_dim * 4, i;
    uint8_t       *out = a->out + token * a->out_stride + h * each;
    const float   *sinks = a->sinks ? a->sinks + h : NULL;
    scores_of(a, a->q + token * a->q_stride + h * each, k, &r, dtype,
              a->slopes ? a->slopes + h : NULL, share, scores);
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
        attend(a, token, kv_head, TSR_F32, scores);
    else if (a->dtype == TSR_F16)
        attend(a, token, kv_head, TSR_F16, scores);
    else if (a->dtype == TSR_I8)
        attend(a, token, kv_head, TSR_I8, scores);
    else if (a->dtype == TSR_E4M3)
        attend(a, token, kv_head, TSR_E4M3, scores);
    else
        attend(a, token, kv_head, TSR_Q4, scores);
}
