/* device_cuda.h - a device over libcuda, between its files: device_cuda.c, memory_cuda.c, graph_cuda.c,
 * stream_cuda.c, cublas.c, blas_cuda.c. */
#ifndef TSR_DEVICE_CUDA_H
#define TSR_DEVICE_CUDA_H

#include <cuda.h>
#include <stdatomic.h>

#include "device.h"
#include "library.h"

#define FUNCTIONS(X)                                                                               \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxPopCurrent)                                                                             \
    X(cuMemGetInfo)                                                                                \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemHostGetDevicePointer)                                                                   \
    X(cuMemcpyHtoDAsync)                                                                           \
    X(cuMemcpyDtoHAsync)                                                                           \
    X(cuMemsetD8Async)                                                                             \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamWaitEvent)                                                                           \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuFuncSetAttribute)                                                                          \
    X(cuLaunchKernel)                                                                              \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)

/* Later than the others, and not needed; graphs are for drivers of CUDA 12 and newer. */
#define GRAPH_FUNCTIONS(X)                                                                         \
    X(cuStreamBeginCapture)                                                                        \
    X(cuStreamEndCapture)                                                                          \
    X(cuGraphInstantiate)                                                                          \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphDestroy)                                                                              \
    X(cuGraphExecDestroy)

/* cuda.h renames functions to their versions: the name that is looked up is the renamed one. */
#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x)
#define POINTER(f) __typeof__(&f) p_##f;
struct libcuda {
    void *handle;
    FUNCTIONS(POINTER)
    __typeof__(&cuEventElapsedTime) p_cuEventElapsedTime; /* by its first name: any driver has it */
    GRAPH_FUNCTIONS(POINTER)
    CUresult (*p_cuFuncLoad)(CUfunction); /* of CUDA 12.4 and newer, or NULL */
#if CUDA_VERSION >= 12030
    __typeof__(&cuLaunchKernelEx) p_cuLaunchKernelEx; /* or NULL */
#endif
};

#define IMAGE_COUNT 14
#define RING_BYTES  (UINT64_C(4) << 20)

struct cublas;
struct blas;
/* A set of kernels, a bit for each.  Another thread may read it for the sentence of an error. */
struct device_kernels {
    _Atomic uint64_t bits[2];
};
_Static_assert(KERNEL_COUNT < 128, "a set has a bit for each, and one for kernels of plugins");
static inline void device_kernels_add(struct device_kernels *s, enum tsr_cuda_kernel k)
{
    atomic_fetch_or_explicit(&s->bits[k / 64], UINT64_C(1) << k % 64, memory_order_relaxed);
}
static inline void device_kernels_join(struct device_kernels *s, const struct device_kernels *other)
{
    for (int i = 0; i < 2; i++)
        atomic_fetch_or_explicit(&s->bits[i],
                                 atomic_load_explicit(&other->bits[i], memory_order_relaxed),
                                 memory_order_relaxed);
}
static inline void device_kernels_clear(struct device_kernels *s)
{
    atomic_store_explicit(&s->bits[0], 0, memory_order_relaxed);
    atomic_store_explicit(&s->bits[1], 0, memory_order_relaxed);
}

struct device {
    const struct tsr_host *host;
    struct libcuda         l;
    int                    has_graphs;
    int                    overlaps; /* kernels of a graph begin before the one before has ended */
    CUdevice               index;
    int                    arch;   /* 90: sm_90 */
    int                    units;  /* multiprocessors */
    int                    shared; /* the most bytes of shared memory of a block */
    CUcontext              context;
    CUstream               stream; /* of work without one */
    CUmodule               modules[IMAGE_COUNT];
    CUfunction             functions[KERNEL_COUNT];
    CUevent                marks[2];
    CUevent                behind; /* stream_cuda.c */
    char                   name[96];
    char                   lost[640]; /* the context is: why, else empty */
    struct device_kernels  since;     /* launched since the last wait */
    struct device         *next;      /* opened before it in this process */
    /* Pinned memory that small copies go through, so that an upload need not wait for the device. */
    uint8_t       *ring;
    uint64_t       ring_used;
    struct cublas *blas;     /* cuBLASLt, loaded on first use */
    struct blas   *products; /* cuBLAS and cuSOLVER, the same */
};

/* images_cuda.c: in the context. Kernels that want more shared memory than the device has are not launched. */
CUresult device_load_kernels(struct device *d);

/* device_context.c */
extern const char *const device_kernel_names[KERNEL_COUNT + 1]; /* the last: of other plugins */
/* Ranks that are threads share a context, and what one of them did wrong the next call of any of them reports: devices
 * that are open are known to each other. */
void device_opened(struct device *d);
void device_closed(struct device *d);
/* A message of r: the device, the operation, the error, and the kernels of the context since the last wait. */
tsr_status device_failed(struct device *d, CUresult r, const char *what, struct tsr_err *err);
/* Every function runs in the device's context, between these two calls; leave() restores the thread's
 * context. leave() makes a message of r: the device, the operation, the error, and the kernels since the
 * last wait. */
tsr_status device_enter(struct device *d, struct tsr_err *err);
tsr_status device_leave(struct device *d, CUresult r, const char *what, struct tsr_err *err);
CUresult   device_queue(struct device *d, CUstream stream, const struct tsr_cuda_launch *l);
/* The same after another kernel of the stream, whose end the kernel waits for itself: d->overlaps. */
CUresult device_queue_early(struct device *d, CUstream stream, const struct tsr_cuda_launch *l);
/* Bytes of shared memory that a launch of k asks for. */
unsigned device_shared(enum tsr_cuda_kernel k);

/* What the default stream was given is over: the ring is free, and errors are those of later work. */
CUresult device_wait(struct device *d);

/* memory_cuda.c */
tsr_status memory_sizes(const void *device, uint64_t *total, uint64_t *available,
                        struct tsr_err *err);
tsr_status memory_alloc(void *device, uint64_t bytes, enum tsr_cuda_memory kind, uint64_t *address,
                        struct tsr_err *err);
void       memory_release(void *device, uint64_t address, enum tsr_cuda_memory kind);
tsr_status memory_put(void *device, uint64_t to, const void *from, uint64_t bytes,
                      struct tsr_err *err);
tsr_status memory_get(void *device, void *to, uint64_t from, uint64_t bytes, struct tsr_err *err);

/* graph_cuda.c */
tsr_status graph_make(void *device, const struct tsr_cuda_launch *l, uint64_t n, void **graph,
                      struct tsr_err *err);
tsr_status graph_run(void *device, void *graph, struct tsr_err *err);
void       graph_free(void *device, void *graph);
int        graphs_overlap(void *device);

/* own_cuda.c: kernels of a plugin, `own` of a launch */
struct own {
    CUmodule   module;
    CUfunction f[TSR_DEVICE_KERNELS];
};
tsr_status own_load(void *device, const struct tsr_device_code *code, void **own,
                    struct tsr_err *err);
void       own_free(void *device, void *own);

/* stream_cuda.c */
tsr_status  stream_open(void *device, void **stream, struct tsr_err *err);
void        stream_close(void *device, void *stream);
tsr_status  stream_behind(void *device, void *stream, void *other, struct tsr_err *err);
const void *stream_place(const void *device);

/* cublas.c */
tsr_status cublas_find(void *device, struct tsr_err *err);
tsr_status cublas_matmul(void *device, const struct tsr_cuda_matmul *m, struct tsr_err *err);
void       cublas_close(struct device *d); /* in the context */

/* blas_cuda.c */
tsr_status blas_find(void *device, struct tsr_err *err);
tsr_status blas_work(void *device, const struct tsr_cuda_blas *b, uint64_t *bytes,
                     struct tsr_err *err);
tsr_status blas_run(void *device, const struct tsr_cuda_blas *b, struct tsr_err *err);
void       blas_close(struct device *d); /* in the context */

#endif
