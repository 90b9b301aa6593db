/* device_context.c - the context of a device: entering and leaving it, what failed in it, and kernels on its
 * streams. */
#include "device_cuda.h"

#include <stdio.h>

#define KERNEL_NAME(name) #name,
const char *const device_kernel_names[KERNEL_COUNT] = { TSR_CUDA_KERNELS(KERNEL_NAME) };

/* The names of a set of kernels, as many as fit. */
static void kernels_text(uint64_t set, char *text, size_t cap)
{
    size_t at = 0;
    text[0] = '\0';
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (set >> k & 1) {
            int n = snprintf(text + at, cap - at, "%s%s",
                             at ? ", " : "; kernels since the last wait: ", device_kernel_names[k]);
            if (n < 0 || (size_t)n >= cap - at) {
                text[at] = '\0';
                return;
            }
            at += (size_t)n;
        }
}

tsr_status device_failed(struct device *d, CUresult r, const char *what, struct tsr_err *err)
{
    const char *name = NULL, *text = NULL;
    char        kernels[400];
    (void)d->l.p_cuGetErrorName(r, &name);
    (void)d->l.p_cuGetErrorString(r, &text);
    kernels_text(d->since, kernels, sizeof kernels);
    tsr_status st = r == CUDA_ERROR_OUT_OF_MEMORY ? TSR_E_NOMEM : TSR_E_DEVICE;
    return tsr_fail(err, st, "%s: %s: %s (%s)%s", d->name, what, text ? text : "unknown error",
                    name ? name : "?", kernels);
}

tsr_status device_enter(struct device *d, struct tsr_err *err)
{
    CUresult r = d->l.p_cuCtxPushCurrent(d->context);
    return r == CUDA_SUCCESS ? TSR_OK : device_failed(d, r, "entering the context", err);
}

tsr_status device_leave(struct device *d, CUresult r, const char *what, struct tsr_err *err)
{
    CUcontext own;
    (void)d->l.p_cuCtxPopCurrent(&own);
    return r == CUDA_SUCCESS ? TSR_OK : device_failed(d, r, what, err);
}

CUresult device_queue(struct device *d, CUstream stream, const struct tsr_cuda_launch *l)
{
    void *args[] = { (void *)(uintptr_t)l->args }; /* read only */
    d->since |= UINT64_C(1) << l->kernel;
    return d->l.p_cuLaunchKernel(d->functions[l->kernel], l->grid[0], l->grid[1], l->grid[2],
                                 l->threads, 1, 1, 0, stream, args, NULL);
}
