/* tessera/draft/kernel_device.h - kernel_device: products with a quantizer's own format on a device.  Draft: an
 * optional table of a quantizer, "tessera.kernel.device/1", beside "tessera.kernel/1"; it may change until it leaves
 * this folder.
 *
 * The plugin has code for devices as bytes, and says how to launch it; it links no library of a device.  The host loads
 * the code, puts the packed weight and the inputs into memory of the device, and launches.  So launches join the graphs
 * of the backend, and nothing is loaded or allocated while a model runs.  A quantizer without code for a device runs
 * there through tessera.kernel/1, in the host's memory.
 *
 * Example: a launch with a thread for each row and a block row for each token.
 *
 *     struct my_args { uint64_t codes, in, out, in_stride, out_stride, rows, cols; };
 *     static tsr_status launch(const void *self, const struct tsr_device_job *job,
 *                              struct tsr_device_launch *l, struct tsr_err *err)
 *     {
 *         struct my_args a = { job->codes, job->in, job->out, job->in_stride, job->out_stride,
 *                              job->weight->n_rows, job->weight->n_cols };
 *         (void)self, (void)err;
 *         l->threads = 128;
 *         l->grid[0] = (uint32_t)((a.rows + 127) / 128);
 *         l->grid[1] = (uint32_t)job->n;
 *         l->args_bytes = sizeof a;
 *         memcpy(l->args, &a, sizeof a);
 *         return TSR_OK;
 *     }
 */
#ifndef TSR_DRAFT_KERNEL_DEVICE_H
#define TSR_DRAFT_KERNEL_DEVICE_H

#include <string.h>

#include "tessera/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_QUANTIZER_KERNEL_DEVICE "tessera.kernel.device/1"

#define TSR_DEVICE_KERNELS 16u    /* of an image, at most */
#define TSR_DEVICE_ARGS    256u   /* bytes of a launch's arguments, at most */
#define TSR_DEVICE_THREADS 1024u  /* of a block, at most */
#define TSR_DEVICE_SHARED  49152u /* bytes of shared memory that a launch asks for, at most */

/* Code for one kind of device.  Everything lives as long as the file is loaded. */
struct tsr_device_code {
    uint32_t           struct_size;
    uint32_t           n_kernels; /* 1 to TSR_DEVICE_KERNELS */
    const void        *image;     /* "cuda": a fatbin, a cubin, or PTX that ends with a zero byte */
    uint64_t           bytes;
    const char *const *kernels; /* their names in the image; each takes one struct by value */
};

/* A product.  Addresses are those of the device, multiples of 4, those of codes, meta and scratch of 256; the
 * host cannot read there.  weight has no bytes: its codes and meta are NULL. */
struct tsr_device_job {
    uint32_t                        struct_size;
    uint32_t                        reserved; /* zero */
    const struct tsr_kernel_weight *weight;
    uint64_t                        n; /* tokens, from 1 */
    uint64_t                        codes, meta, in, out, scratch;
    uint64_t in_stride;               /* numbers from a token to the next; in: [n, n_cols] F32 */
    uint64_t out_stride, out_segment; /* as in tsr_kernel_job; out: [segments, n, n_rows] F32 */
};

/* One launch.  The host sets struct_size and zeros, and the plugin the rest. */
struct tsr_device_launch {
    uint32_t struct_size;
    uint32_t kernel; /* which of the code's */
    uint32_t
        grid[3]; /* blocks: grid[0] from 1 to 2^31 - 1, the others from 0 (which is 1) to 65535 */
    uint32_t threads; /* of a block, in one dimension */
    uint32_t shared;  /* bytes of dynamic shared memory */
    uint32_t args_bytes;
    uint64_t args[TSR_DEVICE_ARGS / 8]; /* the kernel's struct */
};

struct tsr_quantizer_kernel_device_v1 {
    uint32_t struct_size;
    uint32_t reserved; /* zero */

    /* Code for devices that take `target`, the same each time.  TSR_E_UNSUPPORTED: there is none.  [any] */
    tsr_status (*code)(const void *self, const char *target, const struct tsr_device_code **code,
                       struct tsr_err *err);

    /* Bytes of scratch of a launch(), by shapes and options alone, as in tessera/kernel.h.  Columns and segments are
     * those that its scratch() accepted.  TSR_E_UNSUPPORTED: the host multiplies these by linear().  [any] */
    tsr_status (*scratch)(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                          uint64_t *bytes, struct tsr_err *err);

    /* How to launch the product; depends on the job alone.  The results have the bits of linear() of tessera.kernel/1, so
     * that a model gives the same answers on every device.  The kernel writes out and scratch and nothing else, and reads
     * nothing outside of the job, whatever the bytes of a damaged file are.  [any] */
    tsr_status (*launch)(const void *self, const struct tsr_device_job *job,
                         struct tsr_device_launch *l, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
