/* attention.c - the cached data of a head, and attention over it. */
#include "reference.h"

#include <math.h>
#include <string.h>

#include "tessera/f16.h"

uint64_t tsr_ref_head_bytes(uint32_t dtype, uint64_t head_dim)
{
    return dtype == TSR_F32 ? 4 * head_dim : dtype == TSR_F16 ? 2 * head_dim : 4 + head_dim;
}

static void store_codes(uint8_t *head, const float *x, uint64_t head_dim)
{
    float amax = 0;
    for (uint64_t i = 0; i < head_dim; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float scale = amax / 127, inverse = 1 / scale;
    memcpy(head, &scale, 4);
    for (uint64_t i = 0; i < head_dim; i++) {
        int8_t code = (int8_t)(isfinite(inverse) ? rintf(x[i] * inverse) : 0);
        memcpy(head + 4 + i, &code, 1);
    }
}

void tsr_ref_head_store(void *head, uint32_t dtype, const float *x, uint64_t head_dim)
{
    uint8_t *p = head;
    if (dtype == TSR_I8) {
        store_codes(p, x, head_dim);
        return;
    }
    if (dtype == TSR_F32) {
        memcpy(p, x, 4 * head_dim);
        return;
    }
    for (uint64_t i = 0; i < head_dim; i++) {
        uint16_t half = tsr_f32_f16(x[i]);
        memcpy(p + 2 * i, &half, 2);
    }
}

void tsr_ref_head_load(double *x, uint32_t dtype, const void *head, uint64_t head_dim)
{
    const uint8_t *p = head;
    float          scale = 0;
    if (dtype == TSR_I8)
        memcpy(&scale, p, 4);
    for (uint64_t i = 0; i < head_dim; i++) {
        float    f;
        uint16_t half;
        if (dtype == TSR_F32) {
            memcpy(&f, p + 4 * i, 4);
        } else if (dtype == TSR_F16) {
            memcpy(&half, p + 2 * i, 2);
            f = tsr_f16_f32(half);
        } else {
            f = scale * (float)(int8_t)p[4 + i];
        }
        x[i] = (double)f;
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
