/* images_cuda.c - the kernels of device_cuda.c: nvcc's output, loaded into the device's context. */
#include "device_cuda.h"

/* Made by objcopy from nvcc's output (meson.build). */
#define IMAGES(X)                                                                                  \
    X(attention)                                                                                   \
    X(codec)                                                                                       \
    X(compensation)                                                                                \
    X(dense)                                                                                       \
    X(elem)                                                                                        \
    X(flash)                                                                                       \
    X(gemm)                                                                                        \
    X(half)                                                                                        \
    X(kv)                                                                                          \
    X(linear)                                                                                      \
    X(quantize)                                                                                    \
    X(sample)                                                                                      \
    X(step)                                                                                        \
    X(window)
#define IMAGE_OF(n) extern const uint8_t _binary_kernels_cuda_##n##_fatbin_start[];
#define IMAGE_AT(n) [IN_##n] = _binary_kernels_cuda_##n##_fatbin_start,
#define IMAGE_IN(n) IN_##n,
IMAGES(IMAGE_OF)
enum image { IMAGES(IMAGE_IN) IMAGES_MADE };
_Static_assert(IMAGES_MADE == IMAGE_COUNT, "a device has a module for each image");

/* The file of a kernel. A name that is looked up in another one is an error of the call, which tools that watch
 * the driver report. */
static enum image image_of(enum tsr_cuda_kernel k)
{
    switch ((int)k) {
    case KERNEL_k_scores:
    case KERNEL_k_values4:
    case KERNEL_k_values4_wide:
    case KERNEL_k_values8:
    case KERNEL_k_values16:
    case KERNEL_k_combine:
        return IN_attention;
    case KERNEL_k_plain_encode:
    case KERNEL_k_plain_decode:
    case KERNEL_k_mx_encode:
    case KERNEL_k_mx_decode:
    case KERNEL_k_scaled_encode:
    case KERNEL_k_scaled_decode:
        return IN_codec;
    case KERNEL_k_select:
    case KERNEL_k_compensate:
        return IN_compensation;
    case KERNEL_k_narrow:
    case KERNEL_k_dense:
    case KERNEL_k_finish:
    case KERNEL_k_triangle:
    case KERNEL_k_symv:
        return IN_dense;
    case KERNEL_k_copy:
    case KERNEL_k_add:
    case KERNEL_k_act:
    case KERNEL_k_scale:
    case KERNEL_k_gather:
    case KERNEL_k_mix:
    case KERNEL_k_columns:
    case KERNEL_k_segments:
    case KERNEL_k_hadamard:
    case KERNEL_k_round:
    case KERNEL_k_rope:
    case KERNEL_k_norm:
        return IN_elem;
    case KERNEL_k_flash64:
    case KERNEL_k_flash96:
    case KERNEL_k_flash128:
    case KERNEL_k_flash256:
        return IN_flash;
    case KERNEL_k_gemv8:
    case KERNEL_k_gemv16:
    case KERNEL_k_gemm32:
    case KERNEL_k_gemm64:
        return IN_gemm;
    case KERNEL_k_half16_int4:
    case KERNEL_k_half16_int:
    case KERNEL_k_half16_table:
    case KERNEL_k_half16_float:
    case KERNEL_k_half64_int4:
    case KERNEL_k_half64_int:
    case KERNEL_k_half64_table:
    case KERNEL_k_half64_float:
    case KERNEL_k_half128_int4:
    case KERNEL_k_half128_int:
    case KERNEL_k_half128_table:
    case KERNEL_k_half128_float:
        return IN_half;
    case KERNEL_k_kv_store:
        return IN_kv;
    case KERNEL_k_quantize:
    case KERNEL_k_quantize_llm:
        return IN_quantize;
    case KERNEL_k_candidates_part:
    case KERNEL_k_candidates:
        return IN_sample;
    case KERNEL_k_norm_step:
    case KERNEL_k_act_step:
    case KERNEL_k_heads_step:
    case KERNEL_k_combine_step:
        return IN_step;
    case KERNEL_k_window_sum:
    case KERNEL_k_window_step:
        return IN_window;
    default:
        return IN_linear;
    }
}

/* Loads the whole kernel now. A driver that loads a kernel at its first launch waits for all work of the
 * device, which may include a receive that waits for this rank. Drivers before CUDA 12.4 load by
 * cuModuleGetFunction(). */
static CUresult load_kernel(struct device *d, CUfunction f)
{
    return d->l.p_cuFuncLoad ? d->l.p_cuFuncLoad(f) : CUDA_SUCCESS;
}

static CUresult give_shared(struct device *d, enum tsr_cuda_kernel k)
{
    const int bytes = (int)device_shared(k);
    return bytes && bytes <= d->shared
               ? d->l.p_cuFuncSetAttribute(d->functions[k],
                                           CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)
               : CUDA_SUCCESS;
}

CUresult device_load_kernels(struct device *d)
{
    static const uint8_t *const images[IMAGE_COUNT] = { IMAGES(IMAGE_AT) };
    for (int i = 0; i < IMAGE_COUNT; i++) {
        CUresult r = d->l.p_cuModuleLoadData(&d->modules[i], images[i]);
        if (r != CUDA_SUCCESS)
            return r;
    }
    for (int k = 0; k < KERNEL_COUNT; k++) {
        CUmodule in = d->modules[image_of((enum tsr_cuda_kernel)k)];
        CUresult r = d->l.p_cuModuleGetFunction(&d->functions[k], in, device_kernel_names[k]);
        if (r == CUDA_SUCCESS)
            r = load_kernel(d, d->functions[k]);
        if (r == CUDA_SUCCESS)
            r = give_shared(d, (enum tsr_cuda_kernel)k);
        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}
