/* codebook_device.c - the kernel of codebook.cu as the table tessera.kernel.device/1.
 *
 * CODEBOOK_CUDA is a file with the array codebook_image, which nvcc and bin2c make of the kernel.  Without it there is no
 * code for CUDA devices, and the host multiplies by linear(). */
#include <stdint.h>
#include <string.h>

#include <tessera/draft/kernel_device.h>

#include "codebook.h"

#if defined CODEBOOK_CUDA || defined CODEBOOK_SIMT
static const char *const             names[] = { "codebook_linear" };
#endif
#ifdef CODEBOOK_CUDA
extern const unsigned char codebook_image[] __attribute__((aligned(64)));
#include CODEBOOK_CUDA
#endif
#ifdef CODEBOOK_SIMT
#include "simt/simt_code.h"
extern const struct simt_kernel        codebook_linear_simt;
static const struct simt_kernel *const kernels[] = { &codebook_linear_simt };
static const struct simt_code          emulated = SIMT_CODE(kernels);
#endif

static tsr_status code(const void *self, const char *target, const struct tsr_device_code **out,
                       struct tsr_err *err)
{
    (void)self;
    (void)out;
#ifdef CODEBOOK_CUDA
    static const struct tsr_device_code cuda = { .struct_size = sizeof cuda,
                                                 .n_kernels = 1,
                                                 .image = codebook_image,
                                                 .bytes = sizeof codebook_image,
                                                 .kernels = names };
    if (strcmp(target, "cuda") == 0) {
        *out = &cuda;
        return TSR_OK;
    }
#endif
#ifdef CODEBOOK_SIMT
    static const struct tsr_device_code simt = { .struct_size = sizeof simt,
                                                 .n_kernels = 1,
                                                 .image = &emulated,
                                                 .bytes = sizeof emulated,
                                                 .kernels = names };
    if (strcmp(target, "simt") == 0) {
        *out = &simt;
        return TSR_OK;
    }
#endif
    return tsr_fail(err, TSR_E_UNSUPPORTED, "codebook: built without code for %s", target);
}

static tsr_status scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                          uint64_t *bytes, struct tsr_err *err)
{
    (void)self;
    if ((n + TOKENS - 1) / TOKENS > 65535 || w->n_rows > UINT64_C(1) << 32)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "codebook: more tokens or rows than one launch has");
    *bytes = 0;
    return TSR_OK;
}

static tsr_status launch(const void *self, const struct tsr_device_job *job,
                         struct tsr_device_launch *l, struct tsr_err *err)
{
    const struct tsr_kernel_weight *w = job->weight;
    const struct codebook_args      a = { .codes = job->codes,
                                          .in = job->in,
                                          .out = job->out,
                                          .in_stride = job->in_stride,
                                          .out_stride = job->out_stride,
                                          .out_segment = job->out_segment,
                                          .cols = w->cols,
                                          .first_col = w->first_col,
                                          .n_cols = w->n_cols,
                                          .segment = w->segment,
                                          .rows = w->n_rows,
                                          .n = job->n };
    (void)self;
    (void)err;
    l->kernel = 0;
    l->threads = BLOCK;
    l->grid[0] = (uint32_t)((w->n_rows + BLOCK / LANES - 1) / (BLOCK / LANES));
    l->grid[1] = (uint32_t)((job->n + TOKENS - 1) / TOKENS);
    l->grid[2] = (uint32_t)((w->n_cols + w->segment - 1) / w->segment);
    l->args_bytes = sizeof a;
    memcpy(l->args, &a, sizeof a);
    return TSR_OK;
}

const struct tsr_quantizer_kernel_device_v1 codebook_device = {
    .struct_size = sizeof codebook_device, .code = code, .scratch = scratch, .launch = launch
};
