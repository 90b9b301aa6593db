/* k_elem.c - norms, rotary embedding, activations and residual. */
#include <math.h>

#include "k_decl.h"
#include "k_math.h"
#include "tessera/backend.h"
#include "tile_many.h"

INLINE uint64_t lanes(uint64_t n, uint64_t i)
{
    return n - i < 16 ? n - i : 16;
}

INLINE v16 func_of(v16 x, uint32_t func)
{
    v16 one = v_set1(1.0f), half = v_set1(0.5f);
    switch (func) {
    case TSR_FUNC_SILU:
        return v_div(x, v_add(one, v_exp(v_neg(x))));
    case TSR_FUNC_GELU_TANH: {
        v16 x3 = v_mul(v_mul(x, x), x);
        v16 u = v_mul(v_fma(x3, v_set1(0.044715f), x), v_set1(0.797884561f));
        return v_mul(v_mul(half, x), v_add(one, v_tanh(u)));
    }
    case TSR_FUNC_GELU_ERF:
        return v_mul(v_mul(half, x), v_add(one, v_erf(v_mul(x, v_set1(0.707106781f)))));
    default: /* RELU; NaN stays */
        return v_sel(v_lt(x, v_set1(0.0f)), v_set1(0.0f), x);
    }
}

INLINE void act_loop(float *out, const float *a, const float *b, uint64_t n, uint32_t func)
{
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v16      y = func_of(v_loadn(a + i, c), func);
        if (b)
            y = v_mul(y, v_loadn(b + i, c));
        v_storen(out + i, y, c);
    }
}

void K(act)(float *out, const float *a, const float *b, uint64_t n, uint32_t func)
{
    switch (func) {
    case TSR_FUNC_SILU:
        act_loop(out, a, b, n, TSR_FUNC_SILU);
        break;
    case TSR_FUNC_GELU_TANH:
        act_loop(out, a, b, n, TSR_FUNC_GELU_TANH);
        break;
    case TSR_FUNC_GELU_ERF:
        act_loop(out, a, b, n, TSR_FUNC_GELU_ERF);
        break;
    default:
        act_loop(out, a, b, n, TSR_FUNC_RELU);
        break;
    }
}

/* The constant comes first in min and max, whose second operand stays where it is NaN. */
void K(clamped)(float *out, const float *a, const float *b, uint64_t n, float alpha, float limit)
{
    v16 one = v_set1(1.0f), by = v_set1(alpha), hi = v_set1(limit), lo = v_set1(-limit);
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v16      g = v_min(hi, v_loadn(a + i, c));
        v16      u = v_max(lo, v_min(hi, v_loadn(b + i, c)));
        v16      y = v_div(g, v_add(one, v_exp(v_neg(v_mul(by, g)))));
        v_storen(out + i, v_mul(y, v_add(u, one)), c);
    }
}

void K(math)(float *out, const float *x, uint64_t n, uint32_t which)
{
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v16      v = v_loadn(x + i, c);
        v_storen(out + i, which == 0 ? v_exp(v) : which == 1 ? v_tanh(v) : v_erf(v), c);
    }
}

void K(add)(float *out, const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v_storen(out + i, v_add(v_loadn(a + i, c), v_loadn(b + i, c)), c);
    }
}

void K(scale)(float *out, const float *a, uint64_t n, float scale, float softcap)
{
    v16 s = v_set1(scale), cap = v_set1(softcap);
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v16      y = v_mul(v_loadn(a + i, c), s);
        if (softcap > 0.0f)
            y = v_mul(cap, v_tanh(v_div(y, cap)));
        v_storen(out + i, y, c);
    }
}

void K(mix)(float *out, const void *x, uint64_t stride, const float *weight, const uint32_t *row,
            uint64_t k, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v16      y = v_set1(0.0f);
        for (uint64_t j = 0; j < k; j++) {
            const float *from = (const float *)((const char *)x + row[j] * stride);
            y = v_fma(v_set1(weight[j]), v_loadn(from + i, c), y);
        }
        v_storen(out + i, y, c);
    }
}

void K(norm)(float *out, const float *x, const float *gain, const float *bias, uint64_t n,
             uint32_t kind, float eps, float gain_offset)
{
    v16   acc = v_set1(0.0f), off = v_set1(gain_offset);
    float fn = (float)n, mean = 0.0f;
    if (kind == TSR_NORM_LAYER) {
        for (uint64_t i = 0; i < n; i += 16)
            acc = v_add(acc, v_loadn(x + i, lanes(n, i)));
        mean = v_tree16(acc) / fn;
        acc = v_set1(0.0f);
    }
    v16 m = v_set1(mean);
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v16      d = v_loadn(x + i, c);
        if (kind == TSR_NORM_LAYER)
            d = v_keep(v_sub(d, m), c);
        acc = v_fma(d, d, acc);
    }
    float var = v_tree16(acc) / fn;
    float root = sqrtf(var + eps);
    v16   r = v_set1(1.0f / root);
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v16      d = v_loadn(x + i, c), g = v_add(v_loadn(gain + i, c), off);
        if (kind == TSR_NORM_LAYER)
            d = v_sub(d, m);
        v16 y = v_mul(v_mul(d, r), g);
        if (bias)
            y = v_add(y, v_loadn(bias + i, c));
        v_storen(out + i, y, c);
    }
}

void K(rope)(float *out, const float *x, const float *cosine, const float *sine, uint32_t heads,
             uint32_t head_dim, uint32_t rotary_dim, bool adjacent)
{
    uint64_t half = rotary_dim / 2;
    for (uint32_t h = 0; h < heads; h++, x += head_dim, out += head_dim) {
        for (uint64_t i = 0; adjacent && i < half; i++) { /* pairs (2 i, 2 i + 1) */
            float a = x[2 * i], b = x[2 * i + 1];
            out[2 * i] = fmaf(a, cosine[i], -(b * sine[i]));
            out[2 * i + 1] = fmaf(b, cosine[i], a * sine[i]);
        }
        for (uint64_t i = 0; !adjacent && i < half; i += 16) {
            uint64_t n = lanes(half, i);
            v16      a = v_loadn(x + i, n), b = v_loadn(x + half + i, n);
            v16      c = v_loadn(cosine + i, n), s = v_loadn(sine + i, n);
            v_storen(out + i, v_fma(a, c, v_neg(v_mul(b, s))), n);
            v_storen(out + half + i, v_fma(b, c, v_mul(a, s)), n);
        }
        if (out != x && head_dim > rotary_dim)
            memcpy(out + rotary_dim, x + rotary_dim, (size_t)(head_dim - rotary_dim) * 4);
    }
}

float K(codes_i8)(int8_t *q, const float *x, uint64_t n)
{
    /* x * 0 is NaN for non-finite x, and its sums stay NaN */
    v16      zero = v_set1(0.0f), top = zero, bad = zero, top2 = zero, bad2 = zero;
    uint64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        v16 v = v_load(x + i), u = v_load(x + i + 16);
        v_prefetch(x + i + 512);
        v_prefetch(x + i + 528);
        bad = v_fma(v, zero, bad);
        bad2 = v_fma(u, zero, bad2);
        top = v_max(v_abs(v), top);
        top2 = v_max(v_abs(u), top2);
    }
    for (; i < n; i += 16) {
        v16 v = v_loadn(x + i, lanes(n, i));
        bad = v_fma(v, zero, bad);
        top = v_max(v_abs(v), top);
    }
    int   finite = v_all_finite(v_add(bad, bad2));
    float amax = v_hmax(v_max(top, top2)), scale = amax / 127.0f, inv = 1.0f / scale;
    if (!finite) {
        memset(q, 0, n);
        return NAN;
    }
    if (!(inv <= FLT_MAX)) { /* all zero, or too small to divide by */
        memset(q, 0, n);
        return 0.0f;
    }
    v16 vi = v_set1(inv), lo = v_set1(-127.0f), hi = v_set1(127.0f);
    for (i = 0; i + 16 <= n; i += 16)
        v_store_i8(q + i, v_min(v_max(v_rint(v_mul(v_load(x + i), vi)), lo), hi));
    if (i < n) {
        int8_t t[16];
        v_store_i8(t, v_min(v_max(v_rint(v_mul(v_loadn(x + i, n - i), vi)), lo), hi));
        memcpy(q + i, t, n - i);
    }
    return scale;
}

void K(round_bf16)(float *out, const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 16) {
        uint64_t c = lanes(n, i);
        v_storen(out + i, v_round_bf16(v_loadn(x + i, c)), c);
    }
}

/* The sum of n codes. */
static int32_t codes_sum(const int8_t *q, uint32_t n)
{
    v16      some = v_set1(0.0f); /* exact: far below 2^24 */
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        some = v_add(some, v_load_i8(q + k));
    int32_t sum = (int32_t)v_tree16(some);
    for (; k < n; k++)
        sum += q[k];
    return sum;
}

void K(quantize)(const struct tsr_cpu_weight *w, const float *x, int8_t *q, uint64_t ldq, float *sa,
                 int32_t *sums, uint64_t stride)
{
    const int32_t factor = w->affine ? 1 : w->zeros ? -1 : -(int32_t)w->mid;
    uint64_t      b = 0;
    for (uint64_t s = 0; s < w->cols; s += w->seg) {
        uint64_t end = w->cols - s < w->seg ? w->cols : s + w->seg;
        for (uint64_t k = s; k < end; k += BLOCK)
            sa[b++ * stride] = K(codes_i8)(q + k, x + k, end - k < BLOCK ? end - k : BLOCK);
    }
    memset(q + w->cols, 0, ldq - w->cols);
    for (uint64_t r = 0; r < w->nruns; r++) {
        const struct tsr_cpu_run *u = &w->runs[r];
        sums[r * stride] = factor * codes_sum(q + u->k0, u->k1 - u->k0);
    }
}

INLINE void pack_any(int8_t *dst, const int8_t *q, uint64_t ldq, uint64_t n, const uint64_t m)
{
    for (uint64_t k = 0; k < n; k += 4, dst += 4 * m) {
        UNROLL
        for (uint64_t t = 0; t < m; t++)
            memcpy(dst + 4 * t, q + t * ldq + k, 4);
    }
}

void K(pack_q)(int8_t *dst, const int8_t *q, uint64_t ldq, uint64_t n, uint64_t m)
{
    if (m == ISA_TOKENS8)
        pack_any(dst, q, ldq, n, ISA_TOKENS8);
#if CPU_TILE_MANY(ISA_TOKENS8) != ISA_TOKENS8
    else if (m == CPU_TILE_MANY(ISA_TOKENS8))
        pack_any(dst, q, ldq, n, CPU_TILE_MANY(ISA_TOKENS8));
#endif
    else
        pack_any(dst, q, ldq, n, m);
}
