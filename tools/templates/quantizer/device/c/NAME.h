/* @NAME@.h - between @NAME@.c and the kernel for CUDA devices, @NAME@.cu. */
#include <stdint.h>

#define GROUP 32  /* columns of a record; hosts cut columns at multiples of it */
#define BLOCK 128 /* threads of a device's block, each of which has a row */

struct record {
    float         step;
    unsigned char codes[GROUP / 2]; /* weight / step + 8, the lower half of a byte first */
};

/* The kernel's argument; strides in numbers. */
struct @NAME@_args {
    uint64_t codes, in, out; /* addresses of the device */
    uint64_t in_stride, out_stride, out_segment, records; /* from a row to the next */
    uint64_t first_col, n_cols, segment, rows;
};
