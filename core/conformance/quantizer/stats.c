/* Synthetic statistics of inputs: a process with similar neighbouring columns (correlation RHO^|i-j|), so
 * that its Hessian is known without any product and positive definite by construction. */
#include "conformance/quantizer/quantizer.h"

#include "base/rng.h"

#include <math.h>

#define RHO        0.5
#define INPUT_ROWS 32u
#define TOKENS     4096u

/* Standard deviation of a column; a few are ten times as large as the rest. */
static double deviation(uint64_t col)
{
    return (col % 97 == 5 ? 10.0 : 1.0) * (0.5 + 0.5 * tsr_uniform(7, 1, col));
}

static float *vector(struct tsr_conformance_case *c, uint64_t cols, double factor, double power)
{
    float *v = tsr_conformance_rule_memory(c, cols * sizeof *v);
    for (uint64_t k = 0; k < cols; k++)
        v[k] = (float)(factor * pow(deviation(k), power));
    return v;
}

static float *hessian(struct tsr_conformance_case *c, uint64_t n)
{
    float *h = tsr_conformance_rule_memory(c, n * n * sizeof *h);
    for (uint64_t i = 0; i < n; i++) {
        double rho = 1.0 / RHO;
        for (uint64_t j = i; j < n; j++) {
            rho *= RHO;
            h[i * n + j] = (float)(2.0 * deviation(i) * deviation(j) * rho);
            h[j * n + i] = h[i * n + j];
        }
    }
    return h;
}

/* Inputs that differ by a tenth of their neighbours: no symmetric matrix. */
static float *cross(struct tsr_conformance_case *c, uint64_t n)
{
    float *h = hessian(c, n), *v = tsr_conformance_rule_memory(c, n * n * sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++)
            v[i * n + j] = 0.1f * h[(i + 1) % n * n + j];
    return v;
}

static float *inputs(struct tsr_conformance_case *c, uint64_t cols)
{
    float *x = tsr_conformance_rule_memory(c, INPUT_ROWS * cols * sizeof *x);
    for (uint64_t r = 0; r < INPUT_ROWS; r++) {
        double z = tsr_normal(7, 100 + r, cols);
        for (uint64_t k = 0; k < cols; k++) {
            z = RHO * z + sqrt(1.0 - RHO * RHO) * tsr_normal(7, 100 + r, k);
            x[r * cols + k] = (float)(deviation(k) * z);
        }
    }
    return x;
}

void tsr_conformance_quant_stats_make(struct tsr_conformance_case *c, struct tsr_quant_stats *s,
                                      uint64_t need, uint64_t rows, uint64_t cols)
{
    *s = (struct tsr_quant_stats){ .struct_size = sizeof *s, .cols = cols, .tokens = TOKENS };
    if (need & TSR_NEED_HESSIAN)
        s->hessian = hessian(c, cols);
    if (need & TSR_NEED_CROSS)
        s->cross = cross(c, cols);
    if (need & TSR_NEED_ABSMAX)
        s->absmax = vector(c, cols, 4.0, 1.0);
    if (need & TSR_NEED_MEAN)
        s->mean = vector(c, cols, 0.0, 1.0);
    if (need & TSR_NEED_VARIANCE)
        s->variance = vector(c, cols, 1.0, 2.0);
    if (need & TSR_NEED_MEAN_ABS)
        s->mean_abs = vector(c, cols, 0.8, 1.0);
    if (need & TSR_NEED_SENSITIVITY) {
        float *v = tsr_conformance_rule_memory(c, rows * cols * sizeof *v);
        for (uint64_t i = 0; i < rows * cols; i++)
            v[i] = (float)(deviation(i % cols) * (0.5 + tsr_uniform(7, 2, i)));
        s->sensitivity = v;
    }
    if (need & TSR_NEED_INPUTS) {
        s->inputs = inputs(c, cols);
        s->input_rows = INPUT_ROWS;
    }
}
