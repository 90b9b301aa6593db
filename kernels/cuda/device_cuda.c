/* device_cuda.c - the device of device.h over libcuda, which is found at run time: one build serves
 * machines with and without a driver. The current context of the calling thread is restored.
 */
#include "device_cuda.h"
#include "here.h"

#include <stdio.h>

/* ---- libcuda ------------------------------------------------------------------------ */

#define LOOK_UP(f) { NAME_OF(f), offsetof(struct libcuda, p_##f) },

static tsr_status load_libcuda(struct device *d, struct tsr_err *err)
{
    static const struct library_function all[] = {
        { "cuEventElapsedTime", offsetof(struct libcuda, p_cuEventElapsedTime) }, FUNCTIONS(LOOK_UP)
    };
    static const struct library_function graphs[] = { GRAPH_FUNCTIONS(LOOK_UP) };
    static const struct library_function load[] = { { "cuFuncLoad",
                                                      offsetof(struct libcuda, p_cuFuncLoad) } };
    static const char                    absent[] =
        "there is no CUDA device: libcuda.so.1 is not found, so no NVIDIA driver is "
        "installed; use backend cpu";
    static const char old[] = "the NVIDIA driver has no %s: it is too old; install one for CUDA 12 "
                              "or newer, or use backend cpu";
    void             *again = NULL;
    const size_t      n = sizeof all / sizeof all[0], n_graphs = sizeof graphs / sizeof graphs[0];
    tsr_status st = library_open(&d->l.handle, "libcuda.so.1", 1, &d->l, all, n, absent, old, err);
    if (st != TSR_OK)
        return st;
    d->has_graphs =
        library_open(&again, "libcuda.so.1", 0, &d->l, graphs, n_graphs, "", "%s", NULL) == TSR_OK;
    if (again)
        (void)dlclose(again);
    if (library_open(&again, "libcuda.so.1", 0, &d->l, load, 1, "", "%s", NULL) == TSR_OK)
        (void)dlclose(again);
#if CUDA_VERSION >= 12030
    static const struct library_function early[] = {
        { "cuLaunchKernelEx", offsetof(struct libcuda, p_cuLaunchKernelEx) }
    };
    if (library_open(&again, "libcuda.so.1", 0, &d->l, early, 1, "", "%s", NULL) == TSR_OK)
        (void)dlclose(again);
#endif
    return TSR_OK;
}

static void close_device(void *device)
{
    struct device         *d = device;
    const struct tsr_host *host = d->host;
    device_closed(d);
    if (d->context && d->l.p_cuCtxPushCurrent(d->context) == CUDA_SUCCESS) {
        CUcontext own;
        if (d->stream)
            (void)d->l.p_cuStreamSynchronize(d->stream);
        cublas_close(d);
        blas_close(d);
        for (int i = 0; i < 2; i++)
            if (d->marks[i])
                (void)d->l.p_cuEventDestroy(d->marks[i]);
        if (d->behind)
            (void)d->l.p_cuEventDestroy(d->behind);
        if (d->stream)
            (void)d->l.p_cuStreamDestroy(d->stream);
        if (d->ring)
            (void)d->l.p_cuMemFreeHost(d->ring);
        for (int i = 0; i < IMAGE_COUNT; i++)
            if (d->modules[i])
                (void)d->l.p_cuModuleUnload(d->modules[i]);
        (void)d->l.p_cuCtxPopCurrent(&own);
    }
    if (d->context)
        (void)d->l.p_cuDevicePrimaryCtxRelease(d->index);
    (void)dlclose(d->l.handle);
    host->release(host->ctx, d, sizeof *d);
}

static tsr_status no_driver(struct device *d, CUresult r, struct tsr_err *err)
{
    return r == CUDA_ERROR_NOT_INITIALIZED
               ? tsr_fail(err, TSR_E_DEVICE,
                          "the driver does not start in a process that was forked after another "
                          "had started it; let ranks be threads")
               : device_failed(d, r, "starting the driver", err);
}

static tsr_status find_device(struct device *d, int64_t index, struct tsr_err *err)
{
    int      count = 0, major = 0, minor = 0;
    CUresult r = d->l.p_cuInit(0);
    if (r == CUDA_SUCCESS)
        r = d->l.p_cuDeviceGetCount(&count);
    if (r == CUDA_ERROR_NO_DEVICE || (r == CUDA_SUCCESS && count == 0))
        return tsr_fail(err, TSR_E_DEVICE,
                        "there is no CUDA device: the driver finds none; use backend cpu");
    if (r != CUDA_SUCCESS)
        return no_driver(d, r, err);
    index = here_device(d->host, index, 0, count);
    if (index >= count)
        return tsr_fail(err, TSR_E_CONFIG,
                        "there is no CUDA device %lld, the last one is %d; choose another with "
                        "device=",
                        (long long)index, count - 1);
    if ((r = d->l.p_cuDeviceGet(&d->index, (int)index)) != CUDA_SUCCESS ||
        (r = d->l.p_cuDeviceGetName(d->name, (int)sizeof d->name, d->index)) != CUDA_SUCCESS ||
        (r = d->l.p_cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                         d->index)) != CUDA_SUCCESS ||
        (r = d->l.p_cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                         d->index)) != CUDA_SUCCESS ||
        (r = d->l.p_cuDeviceGetAttribute(&d->units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                         d->index)) != CUDA_SUCCESS ||
        (r = d->l.p_cuDeviceGetAttribute(&d->shared,
                                         CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                         d->index)) != CUDA_SUCCESS)
        return device_failed(d, r, "reading its properties", err);
    d->arch = major * 10 + minor;
    if (d->arch < TSR_CUDA_LEAST)
        return tsr_fail(err, TSR_E_DEVICE,
                        "%s is of sm_%d%d, these kernels were built for " TSR_CUDA_BUILT
                        "; use backend cpu",
                        d->name, major, minor);
    return TSR_OK;
}

/* Why kernels do not load: a driver accepts the output of toolkits of its generation and older ones. */
static void say_age(const struct device *d, struct tsr_err *err)
{
    int version = 0;
    if (d->l.p_cuDriverGetVersion(&version) != CUDA_SUCCESS || version >= CUDA_VERSION)
        return;
    (void)tsr_fail(
        err, TSR_E_DEVICE,
        "%s: the driver is for CUDA %d.%d and does not load kernels that were built with "
        "CUDA %d.%d; install a driver for that or newer, or use backend cpu",
        d->name, version / 1000, version / 10 % 100, CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100);
}

static void say_place(const struct device *d)
{
    const struct tsr_here_v1 *h = d->host->service(d->host->ctx, TSR_HERE);
    char                      line[256];
    if (!h)
        return;
    (void)snprintf(line, sizeof line, "rank %u of %u on this machine works on device %d, %s",
                   h->rank, h->ranks, (int)d->index, d->name);
    d->host->log(d->host->ctx, TSR_LOG_INFO, line);
}

static tsr_status open_device(const struct tsr_host *host, int64_t index, int64_t seed,
                              void **device, struct tsr_err *err)
{
    struct device *d = host->alloc(host->ctx, sizeof *d, 64);
    (void)seed; /* of the emulation */
    if (!d)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a device");
    memset(d, 0, sizeof *d);
    d->host = host;
    (void)snprintf(d->name, sizeof d->name, "CUDA");
    tsr_status st = load_libcuda(d, err);
    if (st != TSR_OK) {
        host->release(host->ctx, d, sizeof *d);
        return st;
    }
    CUresult r = CUDA_SUCCESS;
    if ((st = find_device(d, index, err)) != TSR_OK)
        goto error;
    if ((r = d->l.p_cuDevicePrimaryCtxRetain(&d->context, d->index)) != CUDA_SUCCESS) {
        d->context = NULL;
        st = device_failed(d, r, "making a context", err);
        goto error;
    }
    device_opened(d);
    if ((st = device_enter(d, err)) != TSR_OK)
        goto error;
    void *ring = NULL;
    if ((r = d->l.p_cuStreamCreate(&d->stream, CU_STREAM_NON_BLOCKING)) == CUDA_SUCCESS &&
        (r = d->l.p_cuEventCreate(&d->marks[0], CU_EVENT_DEFAULT)) == CUDA_SUCCESS &&
        (r = d->l.p_cuEventCreate(&d->marks[1], CU_EVENT_DEFAULT)) == CUDA_SUCCESS &&
        (r = d->l.p_cuEventCreate(&d->behind, CU_EVENT_DISABLE_TIMING)) == CUDA_SUCCESS &&
        (r = d->l.p_cuMemHostAlloc(&ring, RING_BYTES, 0)) == CUDA_SUCCESS) {
        d->ring = ring;
        r = device_load_kernels(d);
    }
    st = device_leave(d, r, "loading the kernels", err);
    if (st == TSR_E_DEVICE)
        say_age(d, err);
    if (st == TSR_OK) {
        say_place(d);
        *device = d;
        return TSR_OK;
    }
error:
    close_device(d);
    return st;
}

static const char *name(const void *device)
{
    return ((const struct device *)device)->name;
}

/* ---- work --------------------------------------------------------------------------- */

static tsr_status launch(void *device, void *stream, const struct tsr_cuda_launch *l,
                         struct tsr_err *err)
{
    struct device *d = device;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    return device_leave(d, device_queue(d, stream ? stream : d->stream, l), "launching a kernel",
                        err);
}

static tsr_status sync_stream(void *device, void *stream, struct tsr_err *err)
{
    struct device *d = device;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    return device_leave(d, stream ? d->l.p_cuStreamSynchronize(stream) : device_wait(d), "running",
                        err);
}

static uint32_t units(const void *device)
{
    return (uint32_t)((const struct device *)device)->units;
}

static uint32_t shared(const void *device)
{
    return (uint32_t)((const struct device *)device)->shared;
}

static int has_bf16(const void *device)
{
    return ((const struct device *)device)->arch >= 80;
}

/* Dense BF16 multiply-adds of a multiprocessor in a cycle, from NVIDIA's architecture papers: sm_80 312 TFLOP/s over 108
 * at 1.41 GHz, sm_86 and sm_89 half of that for each, sm_90 989 over 132 at 1.83 GHz. */
static double bf16_rate(const void *device)
{
    const struct device *d = device;
    const double         each = d->arch == 80                    ? 1024
                                : d->arch == 86 || d->arch == 89 ? 512
                                : d->arch == 90                  ? 2048
                                                                 : 0;
    int                  khz = 0;
    if (d->l.p_cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, d->index) != CUDA_SUCCESS)
        return 0;
    return each * d->units * (khz * 1e3);
}

static tsr_status mark(void *device, int which, struct tsr_err *err)
{
    struct device *d = device;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    return device_leave(d, d->l.p_cuEventRecord(d->marks[which != 0], d->stream), "marking a time",
                        err);
}

static tsr_status between(void *device, double *seconds, struct tsr_err *err)
{
    struct device *d = device;
    float          ms = 0.0f;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    CUresult r = d->l.p_cuEventSynchronize(d->marks[1]);
    if (r == CUDA_SUCCESS)
        r = d->l.p_cuEventElapsedTime(&ms, d->marks[0], d->marks[1]);
    *seconds = (double)ms * 1e-3;
    return device_leave(d, r, "reading a time", err);
}

const struct tsr_cuda_api tsr_cuda_driver = { .open = open_device,
                                              .close = close_device,
                                              .name = name,
                                              .sizes = memory_sizes,
                                              .alloc = memory_alloc,
                                              .release = memory_release,
                                              .put = memory_put,
                                              .get = memory_get,
                                              .launch = launch,
                                              .sync = sync_stream,
                                              .stream_open = stream_open,
                                              .stream_close = stream_close,
                                              .stream_behind = stream_behind,
                                              .place = stream_place,
                                              .graph_make = graph_make,
                                              .graph_run = graph_run,
                                              .graph_free = graph_free,
                                              .graphs_overlap = graphs_overlap,
                                              .target = "cuda",
                                              .code_load = own_load,
                                              .code_free = own_free,
                                              .matmul_find = cublas_find,
                                              .matmul = cublas_matmul,
                                              .units = units,
                                              .shared = shared,
                                              .has_bf16 = has_bf16,
                                              .blas_find = blas_find,
                                              .blas_work = blas_work,
                                              .blas = blas_run,
                                              .mark = mark,
                                              .between = between,
                                              .bf16_rate = bf16_rate };
