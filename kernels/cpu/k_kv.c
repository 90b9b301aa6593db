/* k_kv.c - KV_STORE: a token's keys or values in each type of a cache (tessera/kv_cache.h). */
#include <float.h>
#include <math.h>

#include "k_decl.h"
#include "simd.h"
#include "tessera/backend.h"
#include "tessera/f16.h"
#include "tessera/kv_cache.h"

static int all_finite(const float *x, uint32_t n)
{
    float zero = 0.0f; /* x * 0 is NaN for non-finite x */
    for (uint32_t i = 0; i < n; i++)
        zero += x[i] * 0.0f;
    return zero == 0.0f;
}

/* To the nearest E4M3, ties to even; |y| is below 464. */
static uint8_t e4m3(float y)
{
    uint32_t bits = tsr_f32_bits(y), sign = bits >> 24 & 128, a = bits & INT32_MAX;
    if (a < tsr_f32_bits(0x1p-6f)) /* denormals are multiples of 2^-9, and 8 of them are 2^-6 */
        return (uint8_t)(sign | (uint32_t)rintf(tsr_bits_f32(a) * 512.0f));
    a += 0x7ffff + (a >> 20 & 1);
    return (uint8_t)(sign | ((a >> 20) - (120u << 3)));
}

static void store_e4m3(uint8_t *p, const float *x, uint32_t n)
{
    float top = 0.0f, scale = NAN, inv = 0.0f;
    if (all_finite(x, n)) {
        for (uint32_t i = 0; i < n; i++)
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        scale = top / 448.0f;
        inv = 1.0f / scale;
        if (!(inv <= FLT_MAX)) /* all zero, or too small to divide by */
            scale = inv = 0.0f;
    }
    memcpy(p, &scale, 4);
    for (uint32_t i = 0; i < n; i++)
        p[4 + i] = inv > 0.0f ? e4m3(x[i] * inv) : 0;
}

/* Codes of a group of at most 32, and the F16 of its scale and minimum.  A group that F16 cannot describe is NaN. */
static void codes_q4(uint8_t *code, uint16_t half[2], const float *x, uint32_t n)
{
    float lo = x[0], hi = x[0], inv = 0.0f;
    for (uint32_t i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    half[0] = tsr_f32_f16((hi - lo) / 15.0f);
    half[1] = tsr_f32_f16(lo);
    float scale = tsr_f16_f32(half[0]), minimum = tsr_f16_f32(half[1]);
    if (!all_finite(x, n) || !(scale <= FLT_MAX) || !(fabsf(minimum) <= FLT_MAX))
        half[0] = half[1] = 0x7e00;
    else if (scale > 0.0f)
        inv = 1.0f / scale;
    for (uint32_t i = 0; i < n; i++) {
        float y = inv > 0.0f ? rintf((x[i] - minimum) * inv) : 0.0f;
        code[i] = y > 0.0f ? y < 15.0f ? (uint8_t)y : 15u : 0u;
    }
}

/* A group of at most 32; returns its bytes. */
static uint64_t store_q4(uint8_t *p, const float *x, uint32_t n)
{
    uint8_t  code[TSR_KV_GROUP] = { 0 };
    uint16_t half[2];
    codes_q4(code, half, x, n);
    memcpy(p, half, 4);
    for (uint32_t i = 0; i < (n + 15) / 16 * 16; i += 16)
        for (uint32_t j = 0; j < 8; j++)
            p[4 + i / 2 + j] = (uint8_t)(code[i + j] | code[i + j + 8] << 4);
    return 4 + (n + 15) / 16 * 8;
}

/* One head of a block of keys from its F16, whose positions are `stride` bytes apart. */
static void store_block(uint8_t *p, const uint8_t *tail, uint64_t stride, uint64_t dim)
{
    for (uint64_t d = 0; d < dim; d += 16) {
        uint64_t n = dim - d < 16 ? dim - d : 16;
        float    t[TSR_KV_BLOCK][16];
        for (uint64_t j = 0; j < TSR_KV_BLOCK; j++) {
            uint16_t h[16] = { 0 };
            memcpy(h, tail + j * stride + 2 * d, 2 * n);
            v_store(t[j], v_load_f16(h));
        }
        for (uint64_t c = 0; c < n; c++) {
            float    x[TSR_KV_BLOCK];
            uint8_t  code[TSR_KV_BLOCK], *to = p + 4 * dim + 16 * (d + c);
            uint16_t half[2];
            for (uint64_t j = 0; j < TSR_KV_BLOCK; j++)
                x[j] = t[j][c];
            codes_q4(code, half, x, TSR_KV_BLOCK);
            memcpy(p + 2 * (d + c), &half[0], 2);
            memcpy(p + 2 * (dim + d + c), &half[1], 2);
            for (uint64_t j = 0; j < 16; j++)
                to[j] = (uint8_t)(code[j] | code[j + 16] << 4);
        }
    }
}

void K(kv_block)(void *block, const void *tail, uint32_t heads, uint32_t head_dim)
{
    uint64_t       each = TSR_KV_BLOCK * tsr_kv_head_bytes(TSR_Q4_CHANNEL, head_dim), h;
    uint64_t       half = tsr_kv_head_bytes(TSR_F16, head_dim);
    uint8_t       *p = block;
    const uint8_t *from = tail;
    for (h = 0; h < heads; h++)
        store_block(p + h * each, from + h * half, heads * half, head_dim);
}

static void store_head(uint8_t *p, const float *x, uint32_t dtype, uint32_t dim)
{
    if (dtype == TSR_I8) {
        float scale = K(codes_i8)((int8_t *)p + 4, x, dim);
        memcpy(p, &scale, 4);
    } else if (dtype == TSR_E4M3) {
        store_e4m3(p, x, dim);
    } else {
        for (uint32_t d = 0; d < dim; d += TSR_KV_GROUP)
            p += store_q4(p, x + d, dim - d < TSR_KV_GROUP ? dim - d : TSR_KV_GROUP);
    }
}

void K(kv_store)(void *row, const float *x, uint32_t dtype, uint32_t heads, uint32_t head_dim)
{
    uint64_t n = (uint64_t)heads * head_dim;
    uint8_t *p = row;
    if (dtype == TSR_F32) {
        memcpy(p, x, n * 4);
        return;
    }
    if (dtype == TSR_F16) {
        for (uint64_t i = 0; i < n; i += 16) {
            uint16_t h[16];
            uint64_t c = n - i < 16 ? n - i : 16;
            v_store_f16(h, v_loadn(x + i, c));
            memcpy(p + 2 * i, h, 2 * c);
        }
        return;
    }
    for (uint32_t h = 0; h < heads; h++)
        store_head(p + h * tsr_kv_head_bytes(dtype, head_dim), x + (uint64_t)h * head_dim, dtype,
                   head_dim);
}
