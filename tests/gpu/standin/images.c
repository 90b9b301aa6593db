/* images.c - in place of the images of nvcc's code: what the driver of the tests looks at, which has the
 * kernels itself. */
#include <stdint.h>

#define IMAGE(n)                                                                                   \
    extern const uint8_t _binary_kernels_cuda_##n##_fatbin_start[4];                               \
    const uint8_t        _binary_kernels_cuda_##n##_fatbin_start[4] = { 0x50, 0xed, 0x55, 0xba };
IMAGE(attention)
IMAGE(codec)
IMAGE(compensation)
IMAGE(dense)
IMAGE(elem)
IMAGE(flash)
IMAGE(gemm)
IMAGE(half)
IMAGE(kv)
IMAGE(linear)
IMAGE(quantize)
IMAGE(sample)
IMAGE(step)
IMAGE(window)
