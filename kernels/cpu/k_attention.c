/* k_attention.c - one token against the cache, for the query heads that share a KV head. */
#include <math.h>

#include "k_decl.h"
#include "k_math.h"
#include "tessera/plugin.h"

#define AT_BLOCK 256u /* positions in a chain of the output */

INLINE uint64_t lanes(uint64_t n, uint64_t i)
{
    return n - i < 16 ? n - i : 16;
}

INLINE uint32_t get_u32(const uint8_t *p)
{
    uint32_t u;
    memcpy(&u, p, 4);
    return u;
}

/* Sixteen or fewer elements of a cached head from column d, widened. */
INLINE v16 cached(const uint8_t *head, uint32_t dtype, uint64_t d, uint64_t n, v16 scale)
{
    if (dtype == TSR_F32) {
        float t[16] = { 0 };
        if (n == 16)
            memcpy(t, head + 4 * d, 64);
        else
            memcpy(t, head + 4 * d, 4 * n);
        return v_load(t);
    }
    if (dtype == TSR_F16) {
        if (n == 16)
            return v_load_f16(head + 2 * d);
        uint16_t t[16] = { 0 };
        memcpy(t, head + 2 * d, 2 * n);
        return v_load_f16(t);
    }
    if (n == 16)
        return v_mul(v_load_i8(head + 4 + d), scale);
    int8_t t[16] = { 0 };
    memcpy(t, head + 4 + d, n);
    return v_mul(v_load_i8(t), scale);
}

INLINE v16 head_scale(const uint8_t *head, uint32_t dtype)
{
    float s = 1.0f;
    if (dtype == TSR_I8)
        memcpy(&s, head, 4);
    return v_set1(s);
}

INLINE uint64_t head_bytes(uint32_t dtype, uint32_t dim)
{
    return dtype == TSR_F32   ? 4u * (uint64_t)dim
           : dtype == TSR_F16 ? 2u * (uint64_t)dim
                              : 4u + (uint64_t)dim;
}

/* q.k of one key, before its tree. */
INLINE v16 dot_lanes(const uint8_t *q, const uint8_t *head, uint32_t dtype, uint32_t dim)
{
    v16 acc = v_set1(0.0f), s = head_scale(head, dtype);
    for (uint64_t d = 0; d < dim; d += 16) {
        uint64_t n = lanes(dim, d);
        acc = v_fma(cached(q, TSR_F32, d, n, s), cached(head, dtype, d, n, s), acc);
    }
    return acc;
}

/* Scores of positions first..last (both on 16-borders from `base`) into s[j - base]; those
 * outside lo..p are -inf. */
INLINE void scores_of(const struct tsr_cpu_attention *a, const uint8_t *q, const uint8_t *k,
                      uint64_t base, uint64_t lo, uint64_t p, uint32_t dtype, float slope,
                      int alibi, float *s)
{
    static const float lane[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    v16                vs = v_set1(a->scale), cap = v_set1(a->softcap), iota = v_load(lane);
    for (uint64_t j0 = base; j0 <= p; j0 += 16) {
        v16      t[16];
        uint64_t first = j0 < lo ? lo - j0 : 0, end = p + 1 - j0 < 16 ? p + 1 - j0 : 16;
        for (uint64_t j = 0; j < 16; j++)
            t[j] = j < first || j >= end
                       ? v_set1(0.0f)
                       : dot_lanes(q, k + (j0 + j) * a->k_stride, dtype, a->head_dim);
        v16 v = v_mul(v_tree16x16(t), vs);
        if (a->softcap > 0.0f)
            v = v_mul(cap, v_tanh(v_div(v, cap)));
        if (alibi)
            v = v_add(v,
                      v_mul(v_set1(slope), v_add(v_set1((float)((int64_t)j0 - (int64_t)p)), iota)));
        v_store(s + (j0 - base), v);
        for (uint64_t j = 0; j < 16; j++)
            if (j < first || j >= end)
                s[j0 - base + j] = -INFINITY;
    }
}

/* Columns d.. of nv vectors of the output of one query head. */
INLINE void values_of(const struct tsr_cpu_attention *a, const uint8_t *v, const float *e,
                      uint64_t base, uint64_t lo, uint64_t p, uint32_t dtype, uint64_t d,
                      const int nv, uint64_t tail, v16 den, uint8_t *out)
{
    v16 total[4];
    UNROLL
    for (int i = 0; i < nv; i++)
        total[i] = v_set1(0.0f);
    for (uint64_t b = lo; b <= p;) {
        uint64_t end = (b / AT_BLOCK + 1) * AT_BLOCK;
        if (end > p + 1)
            end = p + 1;
        v16 acc[4];
        UNROLL
        for (int i = 0; i < nv; i++)
            acc[i] = v_set1(0.0f);
        for (; b < end; b++) {
            const uint8_t *head = v + b * a->v_stride;
            v16            w = v_set1(e[b - base]), s = head_scale(head, dtype);
            UNROLL
            for (int i = 0; i < nv; i++)
                acc[i] =
                    v_fma(w, cached(head, dtype, d + 16 * (uint64_t)i, i + 1 < nv ? 16 : tail, s),
                          acc[i]);
        }
        UNROLL
        for (int i = 0; i < nv; i++)
            total[i] = v_add(total[i], acc[i]);
    }
    for (int i = 0; i < nv; i++) {
        float t[16];
        v_store(t, v_div(total[i], den));
        memcpy(out + 4 * (d + 16 * (uint64_t)i), t, 4 * (i + 1 < nv ? 16 : tail));
    }
}

INLINE void attend(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head,
                   uint32_t dtype, float *scores)
{
    const uint8_t *span = a->spans + token * a->span_stride;
    uint64_t       row = get_u32(span), p = get_u32(span + 4);
    uint64_t       lo = a->window && p + 1 > a->window ? p + 1 - a->window : 0;
    uint64_t       base = lo & ~UINT64_C(15), n = (p - base) / 16 * 16 + 16, dim = a->head_dim;
    uint32_t       share = a->heads / a->kv_heads;
    uint64_t       at = kv_head * head_bytes(dtype, a->head_dim);
    const uint8_t *k = a->k + row * a->k_stride + at, *v = a->v + row * a->v_stride + at;
    for (uint32_t g = 0; g < share; g++) {
        uint64_t       h = (uint64_t)kv_head * share + g;
        const uint8_t *q = a->q + token * a->q_stride + h * dim * 4;
        uint8_t       *out = a->out + token * a->out_stride + h * dim * 4;
        scores_of(a, q, k, base, lo, p, dtype, a->slopes ? a->slopes[h] : 0.0f, a->slopes != NULL,
                  scores);
        v16 m = v_load(scores), den = v_set1(0.0f);
        for (uint64_t j = 16; j < n; j += 16)
            m = v_max(m, v_load(scores + j));
        m = v_set1(v_hmax(m));
        for (uint64_t j = 0; j < n; j += 16) {
            v16 e = v_exp(v_sub(v_load(scores + j), m));
            v_store(scores + j, e);
            den = v_add(den, e);
        }
        den = v_set1(v_tree16(den));
        uint64_t d = 0;
        for (; d + 64 <= dim; d += 64)
            values_of(a, v, scores, base, lo, p, dtype, d, 4, 16, den, out);
        for (; d < dim; d += 16)
            values_of(a, v, scores, base, lo, p, dtype, d, 1, lanes(dim, d), den, out);
    }
}

void K(attention)(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head,
                  float *scores)
{
    if (a->dtype == TSR_F32)
        attend(a, token, kv_head, TSR_F32, scores);
    else if (a->dtype == TSR_F16)
        attend(a, token, kv_head, TSR_F16, scores);
    else
        attend(a, token, kv_head, TSR_I8, scores);
}
