/* codebook.cu - the product of codebook.c for a CUDA device, bit by bit: its eight sums of a row are eight threads.
 *
 * A block takes 32 rows, TOKENS tokens and one segment of columns, and keeps the vectors in shared memory.
 * Its emulation in the tests compiles this file as C. */
#ifdef __CUDACC__
#include <stdint.h>
#define KERNEL(name, args_t, threads)                                                              \
    extern "C" __global__ void __launch_bounds__(threads) name(const args_t a)
#define AT(type, address)   ((type *)(uintptr_t)(address))
#define shfl_xor_f(m, v, l) __shfl_xor_sync((m), (v), (l))
#else
#include "simt/simt_kernel.h"
#define KERNEL(name, args_t, threads) TSR_KERNEL(name, args_t, threads)
#endif

#include <tessera/f16.h>

#include "codebook.h"

#ifdef __CUDACC__
__constant__
#else
static const
#endif
    float magnitudes[16][EACH] = MAGNITUDES;

KERNEL(codebook_linear, struct codebook_args, BLOCK)
{
    __shared__ float vectors[256 * EACH];
    for (uint32_t i = threadIdx.x; i < 256 * EACH; i += BLOCK) {
        const float m = magnitudes[i / EACH >> 4][i % EACH];
        vectors[i] = i / EACH >> i % EACH & 1 ? -m : m;
    }
    __syncthreads();

    const uint32_t lane = threadIdx.x % LANES;
    const uint64_t row = (uint64_t)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES;
    const uint64_t first = (uint64_t)blockIdx.y * TOKENS;
    const uint64_t left = blockIdx.z * a.segment; /* inputs of segments before it */
    const uint64_t begin = a.first_col + left;
    const uint64_t end = a.n_cols - left < a.segment ? a.first_col + a.n_cols : begin + a.segment;
    const uint64_t n_codes = CODES_OF(a.cols);
    /* rows behind the last one are the last one, so that all threads come to the shuffles */
    const uint8_t *w =
        AT(const uint8_t, a.codes) + (row < a.rows ? row : a.rows - 1) * ROW_BYTES(a.cols);
    const float *in = AT(const float, a.in) + left;
    float        sum[TOKENS];
    for (uint32_t t = 0; t < TOKENS; t++)
        sum[t] = 0.0f;
    for (uint64_t g = begin / GROUP; g * GROUP < end; g++) {
        const uint8_t *h = w + n_codes + 2 * g;
        const float    scale = tsr_f16_f32((uint16_t)(h[0] | h[1] << 8));
        const uint64_t from = g * GROUP > begin ? g * GROUP : begin;
        const uint64_t to = (g + 1) * GROUP < end ? (g + 1) * GROUP : end;
        float          part[TOKENS];
        for (uint32_t t = 0; t < TOKENS; t++)
            part[t] = 0.0f;
        for (uint64_t k = from + lane; k < to + lane;
             k += LANES) { /* as many steps in every lane */
            const uint64_t code = k / EACH;
            const float    v = code < n_codes ? vectors[w[code] * EACH + k % EACH] : 0.0f;
            for (uint32_t t = 0; t < TOKENS; t++) {
                const float x =
                    first + t < a.n && k < end ? in[(first + t) * a.in_stride + (k - begin)] : 0.0f;
                part[t] = fmaf(v, x, part[t]);
            }
        }
        for (uint32_t t = 0; t < TOKENS; t++)
            sum[t] = fmaf(scale, part[t], sum[t]);
    }
    for (uint32_t t = 0; t < TOKENS; t++) {
        float all = sum[t];
        all += shfl_xor_f(0xffffffffu, all, 4);
        all += shfl_xor_f(0xffffffffu, all, 1);
        all += shfl_xor_f(0xffffffffu, all, 2);
        if (lane == 0 && row < a.rows && first + t < a.n)
            AT(float, a.out)[blockIdx.z * a.out_segment + (first + t) * a.out_stride + row] = all;
    }
}
