/* kv.cu - KV_STORE and ATTENTION.
 *
 * Reference: kernels/cpu/k_elem.c and k_attention.c; held to their bytes by
 * tests/gpu/ops.c.
 * Bytes moved by one token and head of p positions: p keys and p values of head_dim elements in the
 * cache's type, and 4 p bytes of scores, written once and read, written and read again.  Query heads
 * of a KV head read the same keys and values, mostly from the second-level cache.
 *
 * Four kernels, since the maximum comes before the first exponential: scores, softmax, values by
 * blocks of 256 positions, and their sum.
 */
#include "k_store.h"

/* The scale in front of a head of an int8 cache may lie on any byte. */
DEV float scale_at(const uint8_t *p)
{
    return __uint_as_float((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                           (uint32_t)p[3] << 24);
}

DEV float cached(const uint8_t *head, uint32_t dtype, uint32_t d, float scale)
{
    if (dtype == DT_F32)
        return ((const float *)(const void *)head)[d];
    if (dtype == DT_F16)
        return k_half(((const uint16_t *)(const void *)head)[d]);
    return (float)(int8_t)head[4 + d] * scale;
}

/* A warp for a token and KV head. */
TSR_KERNEL(k_kv_store, struct k_kv_store, 128)
{
    const uint64_t task = (uint64_t)blockIdx.x * 4 + threadIdx.x / WARP;
    if (task >= (uint64_t)a.tokens * a.kv_heads)
        return; /* the whole warp */
    store_head(&a, task / a.kv_heads, task % a.kv_heads);
}

/* Positions lo..p of a token; scores are counted from base, on a border of 16. */
struct reach {
    uint64_t row, base, lo, p;
};

DEV struct reach reach_of(const struct k_attention *a, uint32_t token)
{
    const uint32_t *span = AT(const uint32_t, a->spans + (uint64_t)token * a->span_stride);
    struct reach    r;
    r.row = span[0];
    r.p = span[1];
    r.lo = a->window && r.p + 1 > a->window ? r.p + 1 - a->window : 0;
    r.base = r.lo / 16 * 16;
    return r;
}

DEV uint64_t place_of(const struct k_attention *a, uint32_t token, uint32_t head)
{
    return (uint64_t)(token - a->first) * a->heads + head;
}

/* Half a warp for a key.  Grid: 64 keys, heads, tokens. */
#define SCORE_KEYS 64u
TSR_KERNEL(k_scores, struct k_attention, 128)
{
    const uint32_t     token = a.first + blockIdx.z, head = blockIdx.y, lane = threadIdx.x % 16;
    const struct reach r = reach_of(&a, token);
    const uint64_t     j0 = r.base + (uint64_t)blockIdx.x * SCORE_KEYS;
    const uint32_t     kv_head = head / (a.heads / a.kv_heads);
    if (j0 > r.p)
        return; /* the whole block */
    const float *q = AT(const float, a.q + token * a.q_stride) + (uint64_t)head * a.head_dim;
    float       *scores = AT(float, a.scores) + place_of(&a, token, head) * a.score_stride;
    for (uint32_t i = threadIdx.x / 16; i < SCORE_KEYS; i += 8) {
        uint64_t j = j0 + i;
        float    acc = 0.0f;
        int      inside = j >= r.lo && j <= r.p;
        if (inside) {
            const uint8_t *key = AT(const uint8_t, a.k) + (r.row + j) * a.k_stride +
                                 kv_head * head_bytes(a.dtype, a.head_dim);
            float scale = a.dtype == DT_I8 ? scale_at(key) : 1.0f;
            for (uint32_t d = lane; d < a.head_dim; d += 16)
                acc = fmaf(q[d], cached(key, a.dtype, d, scale), acc);
        }
        float s = k_tree16(acc) * a.scale;
        if (!inside || lane != 0)
            continue;
        if (a.softcap > 0.0f)
            s = a.softcap * k_tanh(s / a.softcap);
        if (a.slopes)
            s = s + AT(const float, a.slopes)[head] * (float)((int64_t)j - (int64_t)r.p);
        scores[j - r.base] = s;
    }
}

/* exp(s - max) in place, and their sum, both with the sink if there is one.  Grid: heads, tokens. */
TSR_KERNEL(k_softmax, struct k_attention, 128)
{
    __shared__ float   tops[4];
    const uint32_t     token = a.first + blockIdx.y, head = blockIdx.x, t = threadIdx.x;
    const struct reach r = reach_of(&a, token);
    float             *s = AT(float, a.scores) + place_of(&a, token, head) * a.score_stride;
    uint64_t           n = r.p + 1 - r.base, skip = r.lo - r.base;
    float              top = -INFINITY;
    for (uint64_t j = skip + t; j < n; j += 128)
        top = k_max(s[j], top);
    for (uint32_t l = 16; l > 0; l /= 2)
        top = k_max(top, shfl_xor_f(ALL_LANES, top, l));
    if (t % WARP == 0)
        tops[t / WARP] = top;
    __syncthreads();
    top = k_max(k_max(tops[0], tops[1]), k_max(tops[2], tops[3]));
    if (a.sinks)
        top = k_max(top, AT(const float, a.sinks)[head]);
    for (uint64_t j = skip + t; j < n; j += 128)
        s[j] = k_exp(s[j] - top);
    __syncthreads();
    if (t >= WARP)
        return;
    float sum = 0.0f; /* lane j mod 16; both halves of the warp do the same */
    for (uint64_t j = t % 16; j < n; j += 16)
        if (j >= skip)
            sum = sum + s[j];
    sum = k_tree16(sum);
    if (a.sinks)
        sum = sum + k_exp(AT(const float, a.sinks)[head] - top);
    if (t == 0)
        AT(float, a.den)[place_of(&a, token, head)] = sum;
}

/* A thread for a column of the output.  Grid: blocks of 256 positions, heads, tokens. */
#define VALUE_BLOCK 256u
TSR_KERNEL(k_values, struct k_attention, 128)
{
    const uint32_t     token = a.first + blockIdx.z, head = blockIdx.y;
    const struct reach r = reach_of(&a, token);
    const uint64_t     b = r.lo / VALUE_BLOCK + blockIdx.x;
    const uint32_t     kv_head = head / (a.heads / a.kv_heads);
    uint64_t           from = b * VALUE_BLOCK, end = from + VALUE_BLOCK;
    if (from > r.p)
        return;
    from = from < r.lo ? r.lo : from;
    end = end > r.p + 1 ? r.p + 1 : end;
    const float *e = AT(const float, a.scores) + place_of(&a, token, head) * a.score_stride;
    float       *out =
        AT(float, a.partial) + (place_of(&a, token, head) * a.blocks + blockIdx.x) * a.head_dim;
    for (uint32_t d = threadIdx.x; d < a.head_dim; d += 128) {
        const uint8_t *v = AT(const uint8_t, a.v) + (r.row + from) * a.v_stride +
                           kv_head * head_bytes(a.dtype, a.head_dim);
        float acc = 0.0f;
        for (uint64_t j = from; j < end; j++, v += a.v_stride) {
            float scale = a.dtype == DT_I8 ? scale_at(v) : 1.0f;
            acc = fmaf(e[j - r.base], cached(v, a.dtype, d, scale), acc);
        }
        out[d] = acc;
    }
}

/* Blocks added in order, one division.  Grid: heads, tokens. */
TSR_KERNEL(k_combine, struct k_attention, 128)
{
    const uint32_t     token = a.first + blockIdx.y, head = blockIdx.x;
    const struct reach r = reach_of(&a, token);
    const uint64_t     n = r.p / VALUE_BLOCK - r.lo / VALUE_BLOCK + 1;
    const float       *part =
        AT(const float, a.partial) + place_of(&a, token, head) * a.blocks * a.head_dim;
    const float den = AT(const float, a.den)[place_of(&a, token, head)];
    float      *out = AT(float, a.out + token * a.out_stride) + (uint64_t)head * a.head_dim;
    for (uint32_t d = threadIdx.x; d < a.head_dim; d += 128) {
        float sum = 0.0f;
        for (uint64_t b = 0; b < n; b++)
            sum = sum + part[b * a.head_dim + d];
        out[d] = sum / den;
    }
}
