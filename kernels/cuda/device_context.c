/* device_context.c - the context of a device: entering and leaving it, what failed in it, and kernels on its
 * streams. */
#include "device_cuda.h"
#include "k_args.h"

#include <pthread.h>
#include <stdio.h>

#define KERNEL_NAME(name) #name,
const char *const device_kernel_names[KERNEL_COUNT + 1] = {
    TSR_CUDA_KERNELS(KERNEL_NAME)[KERNEL_COUNT] = "one of a plugin"
};

/* The names of a set of kernels, as many as fit. */
static void kernels_text(const struct device_kernels *set, char *text, size_t cap)
{
    size_t at = 0;
    text[0] = '\0';
    for (int k = 0; k <= KERNEL_COUNT; k++)
        if (atomic_load_explicit(&set->bits[k / 64], memory_order_relaxed) >> k % 64 & 1) {
            int n = snprintf(text + at, cap - at, "%s%s",
                             at ? ", " : "; kernels since the last wait: ", device_kernel_names[k]);
            if (n < 0 || (size_t)n >= cap - at) {
                text[at] = '\0';
                return;
            }
            at += (size_t)n;
        }
}

/* Errors after which a driver refuses every call in the context: a kernel that went astray, or hardware. */
static int is_sticky(CUresult r)
{
    switch (r) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return 1;
    default:
        return 0;
    }
}

static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device  *opened;

void device_opened(struct device *d)
{
    (void)pthread_mutex_lock(&opened_lock);
    d->next = opened;
    opened = d;
    (void)pthread_mutex_unlock(&opened_lock);
}

void device_closed(struct device *d)
{
    (void)pthread_mutex_lock(&opened_lock);
    for (struct device **at = &opened; *at; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    (void)pthread_mutex_unlock(&opened_lock);
}

/* Those of all devices of this context. */
static struct device_kernels kernels_since(const struct device *d)
{
    struct device_kernels all = { { 0, 0 } };
    device_kernels_join(&all, &d->since);
    (void)pthread_mutex_lock(&opened_lock);
    for (const struct device *other = opened; other && d->context; other = other->next)
        if (other->context == d->context)
            device_kernels_join(&all, &other->since);
    (void)pthread_mutex_unlock(&opened_lock);
    return all;
}

tsr_status device_failed(struct device *d, CUresult r, const char *what, struct tsr_err *err)
{
    const char *name = NULL, *text = NULL;
    char        kernels[400];
    if (d->lost[0])
        return tsr_fail(err, TSR_E_DEVICE, "%s: %s", d->name, d->lost);
    (void)d->l.p_cuGetErrorName(r, &name);
    (void)d->l.p_cuGetErrorString(r, &text);
    const struct device_kernels since = kernels_since(d);
    kernels_text(&since, kernels, sizeof kernels);
    if (is_sticky(r)) {
        (void)snprintf(d->lost, sizeof d->lost,
                       "%s: %s (%s)%s; all ranks that are threads here and use this device end",
                       what, text ? text : "unknown error", name ? name : "?", kernels);
        return tsr_fail(err, TSR_E_DEVICE, "%s: %s", d->name, d->lost);
    }
    tsr_status st = r == CUDA_ERROR_OUT_OF_MEMORY ? TSR_E_NOMEM : TSR_E_DEVICE;
    return tsr_fail(err, st, "%s: %s: %s (%s)%s", d->name, what, text ? text : "unknown error",
                    name ? name : "?", kernels);
}

tsr_status device_enter(struct device *d, struct tsr_err *err)
{
    if (d->lost[0]) /* nothing of it is of use any more, and the first sentence names the kernels */
        return tsr_fail(err, TSR_E_DEVICE, "%s: %s", d->name, d->lost);
    CUresult r = d->l.p_cuCtxPushCurrent(d->context);
    return r == CUDA_SUCCESS ? TSR_OK : device_failed(d, r, "entering the context", err);
}

tsr_status device_leave(struct device *d, CUresult r, const char *what, struct tsr_err *err)
{
    CUcontext own;
    (void)d->l.p_cuCtxPopCurrent(&own);
    return r == CUDA_SUCCESS ? TSR_OK : device_failed(d, r, what, err);
}

unsigned device_shared(enum tsr_cuda_kernel k)
{
    switch (k) {
    case KERNEL_k_block_int:
        return K_BLOCK_SHARED;
    case KERNEL_k_tile16_int:
    case KERNEL_k_tile32_int:
    case KERNEL_k_tile16_table:
    case KERNEL_k_tile32_table:
    case KERNEL_k_tile16_other:
    case KERNEL_k_tile32_other:
        return K_TILE_SHARED;
    case KERNEL_k_flash64:
        return K_FLASH_SHARED(64u);
    case KERNEL_k_flash96:
        return K_FLASH_SHARED(96u);
    case KERNEL_k_flash128:
        return K_FLASH_SHARED(128u);
    case KERNEL_k_flash256:
        return K_FLASH_SHARED(256u);
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
        return K_HALF_SHARED;
    default:
        return 0;
    }
}

CUresult device_queue(struct device *d, CUstream stream, const struct tsr_cuda_launch *l)
{
    void      *args[] = { (void *)(uintptr_t)l->args }; /* read only */
    CUfunction f =
        l->own ? ((const struct own *)l->own)->f[l->own_kernel] : d->functions[l->kernel];
    device_kernels_add(&d->since, l->kernel);
    return d->l.p_cuLaunchKernel(f, l->grid[0], l->grid[1], l->grid[2], l->threads, 1, 1,
                                 l->own ? l->shared : device_shared(l->kernel), stream, args, NULL);
}

CUresult device_queue_early(struct device *d, CUstream stream, const struct tsr_cuda_launch *l)
{
#if CUDA_VERSION >= 12030
    if (l->own) /* it does not wait itself */
        return device_queue(d, stream, l);
    void             *args[] = { (void *)(uintptr_t)l->args }; /* read only */
    CUlaunchAttribute early = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                .value = { .programmaticStreamSerializationAllowed = 1 } };
    CUlaunchConfig    config = { .gridDimX = l->grid[0],
                                 .gridDimY = l->grid[1],
                                 .gridDimZ = l->grid[2],
                                 .blockDimX = l->threads,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = device_shared(l->kernel),
                                 .hStream = stream,
                                 .attrs = &early,
                                 .numAttrs = 1 };
    device_kernels_add(&d->since, l->kernel);
    return d->l.p_cuLaunchKernelEx(&config, d->functions[l->kernel], args, NULL);
#else
    return device_queue(d, stream, l);
#endif
}
