/* rows.c - LINEAR and the row-wise operations, by the formulas of tessera/backend.h. */
#include "reference.h"

#include <math.h>

double tsr_ref_linear(const float *x, const float *w, uint64_t cols, double bias, double *size)
{
    double sum = bias, magnitude = fabs(bias);
    for (uint64_t k = 0; k < cols; k++) {
        double term = (double)x[k] * (double)w[k];
        sum += term;
        magnitude += fabs(term);
    }
    if (size)
        *size = magnitude;
    return sum;
}

void tsr_ref_norm(double *y, double *size, const float *x, const float *gain, const float *bias,
                  uint64_t n, uint32_t kind, float eps, float gain_offset)
{
    double mean = 0, variance = 0, most = 0;
    for (uint64_t i = 0; i < n && kind == TSR_NORM_LAYER; i++)
        mean += (double)x[i] / (double)n;
    for (uint64_t i = 0; i < n; i++) {
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
        most = fmax(most, fabs((double)x[i]));
    }
    double scale = 1 / sqrt(variance + (double)eps);
    for (uint64_t i = 0; i < n; i++) {
        double g = (double)gain[i], offset = (double)gain_offset, b = bias ? (double)bias[i] : 0;
        y[i] = ((double)x[i] - mean) * scale * (g + offset) + b;
        if (size) /* the mean cancels, whatever x - mean is */
            size[i] = most * scale * (fabs(g) + fabs(offset)) + fabs(b);
    }
}

/* Two numbers of the head are turned by one angle: i and i + half, or, adjacent, 2 i and 2 i + 1.  The rest is
 * copied. */
void tsr_ref_rope(double *y, double *size, const float *x, const float *cosine, const float *sine,
                  uint64_t head_dim, uint64_t rotary_dim, bool adjacent)
{
    uint64_t half = rotary_dim / 2;
    for (uint64_t i = 0; i < head_dim; i++) {
        y[i] = (double)x[i];
        if (size)
            size[i] = 0;
    }
    for (uint64_t i = 0; i < half; i++) {
        uint64_t p = adjacent ? 2 * i : i, q = adjacent ? 2 * i + 1 : i + half;
        double   a = (double)x[p], b = (double)x[q], c = (double)cosine[i], s = (double)sine[i];
        y[p] = a * c - b * s;
        y[q] = b * c + a * s;
        if (size) {
            size[p] = fabs(a * c) + fabs(b * s);
            size[q] = fabs(b * c) + fabs(a * s);
        }
    }
}

/* Sylvester's matrix has -1 where the indices of row and column share an odd number of bits. */
void tsr_ref_hadamard(double *y, double *size, const float *x, uint64_t n, const float *base,
                      uint64_t b)
{
    uint64_t part = n / b;
    for (uint64_t j = 0; j < n; j++) {
        double sum = 0, magnitude = 0;
        for (uint64_t i = 0; i < n; i++) {
            double   h = base ? (double)base[i / part * b + j / part] : 1;
            unsigned odd = 0;
            for (uint64_t both = (i % part) & (j % part); both; both &= both - 1)
                odd ^= 1;
            sum += (double)x[i] * (odd ? -h : h);
            magnitude += fabs((double)x[i] * h);
        }
        y[j] = sum / sqrt((double)n);
        if (size)
            size[j] = magnitude / sqrt((double)n);
    }
}

double tsr_ref_func(uint32_t func, double x)
{
    switch (func) {
    case TSR_FUNC_SILU:
        return x / (1 + exp(-x));
    case TSR_FUNC_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case TSR_FUNC_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    default: /* RELU */
        return fmax(x, 0);
    }
}

double tsr_ref_clamped(double g, double u, double alpha, double limit)
{
    double c = fmin(g, limit);
    return c / (1 + exp(-alpha * c)) * (fmin(fmax(u, -limit), limit) + 1);
}

double tsr_ref_scale(double x, double scale, double softcap)
{
    double y = x * scale;
    return softcap > 0 ? softcap * tanh(y / softcap) : y;
}
