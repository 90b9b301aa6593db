/* own.c - kernels of other plugins on this device (tessera/draft/launch.h): they are launches of the queue like any
 * other, so they join its graphs. */
#include "backend.h"

#define U(x) ((unsigned long long)(x))

struct own {
    void    *code; /* of the device */
    uint32_t n_kernels;
};

static tsr_status load(void *self, const struct tsr_device_code *code, void **loaded,
                       struct tsr_err *err)
{
    struct tsr_cuda       *c = self;
    const struct tsr_host *host = c->host;
    int named = code->kernels && code->n_kernels >= 1 && code->n_kernels <= TSR_DEVICE_KERNELS;
    for (uint32_t i = 0; named && i < code->n_kernels; i++)
        named = code->kernels[i] && *code->kernels[i];
    if (!named || !code->image || code->bytes == 0)
        return tsr_fail(err, TSR_E_INVAL,
                        "code of %llu bytes with %u kernels, of which each needs a name; a device "
                        "takes 1 to %u",
                        U(code->bytes), code->n_kernels, TSR_DEVICE_KERNELS);
    struct own *o = host->alloc(host->ctx, sizeof *o, 64);
    if (!o)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a plugin's kernels");
    *o = (struct own){ .n_kernels = code->n_kernels };
    TSR_CUDA_ALONE(c);
    tsr_status st = c->api->code_load(c->device, code, &o->code, err);
    if (st != TSR_OK) {
        host->release(host->ctx, o, sizeof *o);
        return st;
    }
    *loaded = o;
    return TSR_OK;
}

static void unload(void *self, void *loaded)
{
    struct tsr_cuda *c = self;
    struct own      *o = loaded;
    if (!o)
        return;
    TSR_CUDA_ALONE(c);
    (void)tsr_cuda_flush(c, NULL);
    (void)c->api->sync(c->device, NULL, NULL);
    tsr_cuda_graphs_free(c); /* some may hold its kernels */
    c->api->code_free(c->device, o->code);
    c->host->release(c->host->ctx, o, sizeof *o);
}

static uint64_t address(const void *self, const void *buffer)
{
    (void)self;
    return ((const struct tsr_cuda_buffer *)buffer)->address;
}

static tsr_status launch(void *self, void *stream, void *loaded, const struct tsr_device_launch *l,
                         struct tsr_err *err)
{
    struct tsr_cuda       *c = self;
    const struct own      *o = loaded;
    struct tsr_cuda_launch own = { .kernel = KERNEL_COUNT,
                                   .threads = l->threads,
                                   .args = l->args,
                                   .args_bytes = l->args_bytes,
                                   .own = o->code,
                                   .own_kernel = l->kernel,
                                   .shared = l->shared };
    for (int i = 0; i < 3; i++)
        own.grid[i] = i && l->grid[i] == 0 ? 1 : l->grid[i];
    if (l->kernel >= o->n_kernels || own.grid[0] == 0 || own.grid[0] > INT32_MAX ||
        own.grid[1] > 65535 || own.grid[2] > 65535 || l->threads == 0 ||
        l->threads > TSR_DEVICE_THREADS || l->shared > TSR_DEVICE_SHARED || l->args_bytes == 0 ||
        l->args_bytes > TSR_DEVICE_ARGS)
        return tsr_fail(
            err, TSR_E_INVAL,
            "a launch of kernel %u of %u, %u by %u by %u blocks of %u threads, %u bytes "
            "of shared memory and %u of arguments; tessera/draft/kernel_device.h has "
            "the ranges",
            l->kernel, o->n_kernels, own.grid[0], own.grid[1], own.grid[2], l->threads, l->shared,
            l->args_bytes);
    TSR_CUDA_ALONE(c);
    tsr_cuda_kept_forget(c); /* it writes where the backend does not see it */
    return tsr_cuda_launch_any(c, stream, &own, err);
}

static tsr_status segments(void *self, void *stream, const struct tsr_tensor *sums, uint32_t n,
                           const struct tsr_tensor *bias, const struct tsr_tensor *out,
                           struct tsr_err *err)
{
    static const char what[] = "SEGMENTS";
    struct tsr_cuda  *c = self;
    struct tsr_view   s, b = { 0 }, o;
    if (n == 0 || n > 8)
        return tsr_fail(err, TSR_E_INVAL, "%s: %u segments, not 1 to 8", what, n);
    tsr_status st = tsr_cuda_view(&o, out, what, "out", TSR_F32, 0, 0, err);
    if (st == TSR_OK)
        st = tsr_cuda_view(&s, sums, what, "sums", TSR_F32, n * o.rows, o.cols, err);
    if (st == TSR_OK && bias)
        st = tsr_cuda_view(&b, bias, what, "bias", TSR_F32, 1, o.cols, err);
    if (st != TSR_OK)
        return st;
    const struct k_segments a = { .out = o.p,
                                  .sums = s.p,
                                  .bias = b.p,
                                  .out_stride = o.stride / 4,
                                  .sums_stride = s.stride / 4,
                                  .sums_segment = o.rows * (s.stride / 4),
                                  .n = o.cols,
                                  .rows = (uint32_t)o.rows,
                                  .segments = n };
    TSR_CUDA_ALONE(c);
    tsr_cuda_kept_forget(c);
    ((struct tsr_cuda_buffer *)out->buffer)->written = 1;
    return tsr_cuda_launch(c, stream, KERNEL_k_segments,
                           cuda_min(cuda_ceil(o.rows * o.cols, 256), 65535), 1, 1, 256, &a,
                           sizeof a, err);
}

struct tsr_backend_launch_v1 tsr_cuda_own(const struct tsr_cuda_api *api)
{
    return (struct tsr_backend_launch_v1){ .struct_size = sizeof(struct tsr_backend_launch_v1),
                                           .target = api->target,
                                           .load = load,
                                           .unload = unload,
                                           .address = address,
                                           .launch = launch,
                                           .segments = segments };
}
