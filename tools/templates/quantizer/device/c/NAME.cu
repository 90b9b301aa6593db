/* @NAME@.cu - linear() of @NAME@.c for a CUDA device: a thread adds a segment of a row and a token, in the same order.  Its results
 * are those of linear() to the bit, so nvcc gets -fmad=false.  Start from here: a warp for each row, and several tokens. */
#include "@NAME@.h"

#define AT(type, address) ((const type *)(address))

extern "C" __global__ void __launch_bounds__(BLOCK) @NAME@_linear(const struct @NAME@_args a)
{
    const uint64_t r = blockIdx.x * (uint64_t)BLOCK + threadIdx.x, t = blockIdx.y;
    const uint64_t left = blockIdx.z * a.segment; /* columns before the segment */
    if (r >= a.rows)
        return;
    const uint64_t       cols = a.n_cols - left < a.segment ? a.n_cols - left : a.segment;
    const struct record *w = AT(struct record, a.codes) + r * a.records + (a.first_col + left) / GROUP;
    const float         *x = AT(float, a.in) + t * a.in_stride + left;
    float                sum = 0.0f;
    for (uint64_t k = 0; k < cols; k += GROUP, w++) {
        float part = 0.0f;
        for (uint64_t i = 0; i < GROUP && k + i < cols; i++)
            part += x[k + i] * (float)((w->codes[i / 2] >> i % 2 * 4 & 15) - 8);
        sum += part * w->step;
    }
    ((float *)AT(float, a.out))[blockIdx.z * a.out_segment + t * a.out_stride + r] = sum;
}
