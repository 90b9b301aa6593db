/* codebook.h - between codebook.c, codebook_device.c and the kernel for devices, codebook.cu. */
#ifndef CODEBOOK_H
#define CODEBOOK_H

#include <stdint.h>

#define GROUP  64u  /* columns of a scale, a multiple of LANES */
#define EACH   4u   /* columns of a code */
#define LANES  8u   /* sums of a product, two codes wide */
#define TOKENS 4u   /* that share the lookup of a vector */
#define BLOCK  256u /* threads of a device's block: LANES for each row */

/* Magnitudes of four normal numbers that come together often, in units of their scale: the high four bits of a code. */
#define MAGNITUDES                                                                                 \
    {                                                                                              \
        { 0.35f, 0.35f, 0.35f, 0.35f }, { 1.0f, 0.35f, 0.35f, 0.35f },                             \
            { 0.35f, 1.0f, 0.35f, 0.35f }, { 0.35f, 0.35f, 1.0f, 0.35f },                          \
            { 0.35f, 0.35f, 0.35f, 1.0f }, { 1.0f, 1.0f, 0.35f, 0.35f },                           \
            { 0.35f, 0.35f, 1.0f, 1.0f }, { 1.0f, 0.35f, 1.0f, 0.35f },                            \
            { 0.35f, 1.0f, 0.35f, 1.0f }, { 1.0f, 0.35f, 0.35f, 1.0f },                            \
            { 0.35f, 1.0f, 1.0f, 0.35f }, { 1.0f, 1.0f, 1.0f, 1.0f }, { 1.9f, 0.7f, 0.7f, 0.7f },  \
            { 0.7f, 1.9f, 0.7f, 0.7f }, { 0.7f, 0.7f, 1.9f, 0.7f }, { 0.7f, 0.7f, 0.7f, 1.9f },    \
    }

/* Bytes of a row: codes, then F16 scales. */
#define CODES_OF(cols)  (((cols) + EACH - 1) / EACH)
#define GROUPS_OF(cols) (((cols) + GROUP - 1) / GROUP)
#define ROW_BYTES(cols) (CODES_OF(cols) + 2 * GROUPS_OF(cols))

/* The kernel's argument; strides in numbers. */
struct codebook_args {
    uint64_t codes, in, out; /* addresses of the device */
    uint64_t in_stride, out_stride, out_segment;
    uint64_t cols; /* of the matrix */
    uint64_t first_col, n_cols, segment;
    uint64_t rows, n;
};

/* tessera.kernel.device/1 of codebook_device.c. */
extern const struct tsr_quantizer_kernel_device_v1 codebook_device;

#endif
