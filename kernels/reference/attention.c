/* attention.c - the cached data of a head, and attention over it. */
#include "reference.h"

#include <math.h>
#include <string.h>

#include "tessera/f16.h"
#include "tessera/kv_cache.h"

uint64_t tsr_ref_head_bytes(uint32_t dtype, uint64_t head_dim)
{
    return tsr_kv_head_bytes(dtype, head_dim);
}

static void store_i8(uint8_t *head, const float *x, uint64_t head_dim)
{
    float amax = 0;
    for (uint64_t i = 0; i < head_dim; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float scale = amax / 127, inverse = 1 / scale;
    if (!isfinite(inverse))
        scale = 0;
    memcpy(head, &scale, 4);
    for (uint64_t i = 0; i < head_dim; i++) {
        int8_t code = (int8_t)(isfinite(inverse) ? rintf(x[i] * inverse) : 0);
        memcpy(head + 4 + i, &code, 1);
    }
}

/* The value of an E4M3 without its sign. */
static double e4m3(unsigned code)
{
    int exponent = (int)(code >> 3), mantissa = (int)(code & 7);
    return exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
}

/* By search: the nearest of the 127 finite magnitudes, of two that are equally near the even one. */
static unsigned to_e4m3(double y)
{
    unsigned best = 0;
    for (unsigned code = 1; code < 127; code++) {
        double better = fabs(e4m3(best) - fabs(y)) - fabs(e4m3(code) - fabs(y));
        if (better > 0 || (better == 0 && code % 2 == 0))
            best = code;
    }
    return best | (signbit(y) ? 128u : 0u);
}

static void store_e4m3(uint8_t *head, const float *x, uint64_t head_dim)
{
    float amax = 0;
    for (uint64_t i = 0; i < head_dim; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float scale = amax / 448, inverse = 1 / scale;
    if (!isfinite(inverse))
        scale = 0;
    memcpy(head, &scale, 4);
    for (uint64_t i = 0; i < head_dim; i++)
        head[4 + i] = (uint8_t)(scale > 0 ? to_e4m3((double)(x[i] * inverse)) : 0);
}

/* Codes of n numbers, at most 32, with the F16 of their scale and minimum. */
static void codes_q4(int *code, uint16_t *scale, uint16_t *minimum, const float *x, uint64_t n)
{
    float lo = x[0], hi = x[0];
    for (uint64_t i = 1; i < n; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    *scale = tsr_f32_f16((hi - lo) / 15);
    *minimum = tsr_f32_f16(lo);
    for (uint64_t i = 0; i < n; i++) {
        float y = rintf((x[i] - tsr_f16_f32(*minimum)) * (1 / tsr_f16_f32(*scale)));
        code[i] = tsr_f16_f32(*scale) > 0 ? (int)fminf(fmaxf(y, 0), 15) : 0;
    }
}

static void store_q4(uint8_t *head, const float *x, uint64_t head_dim)
{
    for (uint64_t at = 0; at < head_dim; at += TSR_KV_GROUP) {
        uint64_t n = head_dim - at < TSR_KV_GROUP ? head_dim - at : TSR_KV_GROUP;
        uint8_t *codes = head + at / TSR_KV_GROUP * 20 + 4;
        uint16_t scale, minimum;
        int      code[TSR_KV_GROUP];
        codes_q4(code, &scale, &minimum, x + at, n);
        memcpy(codes - 4, &scale, 2);
        memcpy(codes - 2, &minimum, 2);
        memset(codes, 0, (n + 15) / 16 * 8);
        for (uint64_t i = 0; i < n; i++)
            codes[i / 16 * 8 + i % 8] |= (uint8_t)(i / 8 % 2 ? code[i] << 4 : code[i]);
    }
}

void tsr_ref_head_store(void *head, uint32_t dtype, const float *x, uint64_t head_dim)
{
    uint8_t *p = head;
    if (dtype == TSR_I8)
        store_i8(p, x, head_dim);
    else if (dtype == TSR_E4M3)
        store_e4m3(p, x, head_dim);
    else if (dtype == TSR_Q4)
        store_q4(p, x, head_dim);
    else if (dtype == TSR_F32)
        memcpy(p, x, 4 * head_dim);
    for (uint64_t i = 0; dtype == TSR_F16 && i < head_dim; i++) {
        uint16_t half = tsr_f32_f16(x[i]);
        memcpy(p + 2 * i, &half, 2);
    }
}

static float half_at(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, 2);
    return tsr_f16_f32(half);
}

void tsr_ref_block_store(void *block, const void *tail, uint64_t stride, uint64_t head_dim)
{
    uint8_t *p = block;
    for (uint64_t d = 0; d < head_dim; d++) {
        float    x[TSR_KV_BLOCK];
        uint16_t scale, minimum;
        int      code[TSR_KV_BLOCK];
        for (uint64_t j = 0; j < TSR_KV_BLOCK; j++)
            x[j] = half_at((const uint8_t *)tail + j * stride + 2 * d);
        codes_q4(code, &scale, &minimum, x, TSR_KV_BLOCK);
        memcpy(p + 2 * d, &scale, 2);
        memcpy(p + 2 * (head_dim + d), &minimum, 2);
        for (uint64_t j = 0; j < 16; j++)
            p[4 * head_dim + 16 * d + j] = (uint8_t)(code[j] + 16 * code[16 + j]);
    }
}

void tsr_ref_block_load(double *x, const void *block, uint64_t position, uint64_t head_dim)
{
    const uint8_t *p = block;
    for (uint64_t d = 0; d < head_dim; d++) {
        uint8_t pair = p[4 * head_dim + 16 * d + position % 16];
        x[d] = (double)half_at(p + 2 * d) * (position < 16 ? pair % 16 : pair / 16) +
               (double)half_at(p + 2 * (head_dim + d));
    }
}

static float float_at(const uint8_t *p)
{
    float f;
    memcpy(&f, p, 4);
    return f;
}

void tsr_ref_head_load(double *x, uint32_t dtype, const void *head, uint64_t head_dim)
{
    const uint8_t *p = head;
    for (uint64_t i = 0; i < head_dim; i++) {
        const uint8_t *group = p + i / TSR_KV_GROUP * 20;
        uint8_t        pair = dtype == TSR_Q4 ? group[4 + i % 32 / 16 * 8 + i % 8] : 0;
        switch (dtype) {
        case TSR_F32:
            x[i] = (double)float_at(p + 4 * i);
            break;
        case TSR_F16:
            x[i] = (double)half_at(p + 2 * i);
            break;
        case TSR_I8:
            x[i] = (double)(float_at(p) * (float)(int8_t)p[4 + i]);
            break;
        case TSR_E4M3:
            x[i] = (double)(float_at(p) * (float)e4m3(p[4 + i] & 127u));
            x[i] = p[4 + i] & 128 ? -x[i] : x[i];
            break;
        default:
            x[i] = (double)(half_at(group) * (float)(i / 8 % 2 ? pair >> 4 : pair & 15) +
                            half_at(group + 2));
        }
    }
}

/* softmax(scale * q k^T, capped, with a slope by distance; and the sink) v: each score once, their largest taken away
 * before the exponential. */
void tsr_ref_attention(double *y, double *size, double *scores, const float *q, const double *k,
                       const double *v, uint64_t n, uint64_t stride, uint64_t head_dim, float scale,
                       float softcap, float slope, float sink)
{
    double top = (double)sink, total = 0, most_score = isfinite(sink) ? 1 + fabs(top) : 1;
    for (uint64_t j = 0; j < n; j++) {
        double dot = 0, magnitude = 0;
        for (uint64_t d = 0; d < head_dim; d++) {
            double term = (double)q[d] * k[j * stride + d];
            dot += term;
            magnitude += fabs(term);
        }
        scores[j] = tsr_ref_scale(dot, (double)scale, (double)softcap);
        scores[j] -= (double)slope * (double)(n - 1 - j);
        top = fmax(top, scores[j]);
        most_score = fmax(most_score, 1 + magnitude * (double)scale + fabs(scores[j]));
    }
    for (uint64_t j = 0; j < n; j++)
        total += scores[j] = exp(scores[j] - top);
    total += exp((double)sink - top);
    for (uint64_t d = 0; d < head_dim; d++) {
        double sum = 0, most = 0;
        for (uint64_t j = 0; j < n; j++) {
            sum += scores[j] * v[j * stride + d];
            most = fmax(most, fabs(v[j * stride + d]));
        }
        y[d] = sum / total;
        if (size) /* an error in a score is one in the exponent: it scales the weight of its value */
            size[d] = 2 * most_score * most;
    }
}
