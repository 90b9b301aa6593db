#include "conformance/quantizer/tune_block.h"

/* y [rows of w] = w x */
static void times(const float *w, uint64_t rows, uint64_t cols, const float *x, double *y)
{
    for (uint64_t r = 0; r < rows; r++) {
        y[r] = 0.0;
        for (uint64_t k = 0; k < cols; k++)
            y[r] += (double)w[r * cols + k] * (double)x[k];
    }
}

void tune_block_forward(const float *const w[LINEARS], const float *x, float *inner, double *out)
{
    double y[INNER];
    times(w[UP], INNER, HIDDEN, x, y);
    for (uint64_t k = 0; k < INNER; k++)
        inner[k] = (float)y[k];
    times(w[DOWN], HIDDEN, INNER, inner, out);
}

void tune_block_backward(const float *const w[LINEARS], const float *x, const float *inner,
                         const double *d, float *const *gradients)
{
    for (uint64_t k = 0; k < INNER; k++) {
        double dk = 0.0;
        for (uint64_t r = 0; r < HIDDEN; r++) {
            dk += d[r] * (double)w[DOWN][r * INNER + k];
            if (gradients[DOWN])
                gradients[DOWN][r * INNER + k] += (float)(d[r] * (double)inner[k]);
        }
        for (uint64_t j = 0; j < HIDDEN && gradients[UP]; j++)
            gradients[UP][k * HIDDEN + j] += (float)(dk * (double)x[j]);
    }
}
