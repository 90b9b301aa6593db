/* libs.h - the parts of libcuda and NCCL that the transport nccl uses, declared here, so that it builds
 * without either; both are found at run time. tests/nccl/declared.c checks the declarations against nccl.h
 * and cuda.h where those are installed: NC_THEIR_TYPES maps these names to their types. */
#ifndef TSR_NCCL_LIBS_H
#define TSR_NCCL_LIBS_H

#include "tessera/plugin.h"

#include <limits.h>

/* ---- libcuda ----------------------------------------------------------------- */

#ifndef NC_THEIR_TYPES
typedef int                  cu_result;
typedef int                  cu_device;
typedef unsigned long long   cu_pointer; /* CUdeviceptr */
typedef struct cu_context_s *cu_context;
typedef struct cu_stream_s  *cu_stream;
typedef struct cu_event_s   *cu_event;
typedef struct {
    char bytes[64];
} cu_ipc; /* CUipcMemHandle */
#endif

#define CU_OK            0
#define CU_OUT_OF_MEMORY 2
#define CU_NO_DEVICE     100
#define CU_NOT_READY     600
#define CU_STREAM_ALONE  1u /* does not wait for the legacy stream */
#define CU_EVENT_UNTIMED 2u
#define CU_HOST_ANY      1u /* pinned for every context */
#define CU_HOST_MAPPED   2u /* with an address on the device */
#define CU_IPC_LAZY      1u /* its device is seen from then on */

#define CUDA_FUNCTIONS(X)                                                                          \
    X(cuInit, (unsigned))                                                                          \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGet, (cu_device *, int))                                                             \
    X(cuDevicePrimaryCtxRetain, (cu_context *, cu_device))                                         \
    X(cuDevicePrimaryCtxRelease_v2, (cu_device))                                                   \
    X(cuCtxPushCurrent_v2, (cu_context))                                                           \
    X(cuCtxPopCurrent_v2, (cu_context *))                                                          \
    X(cuMemAlloc_v2, (cu_pointer *, size_t))                                                       \
    X(cuMemFree_v2, (cu_pointer))                                                                  \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemHostGetDevicePointer_v2, (cu_pointer *, void *, unsigned))                              \
    X(cuMemsetD8Async, (cu_pointer, unsigned char, size_t, cu_stream))                             \
    X(cuDeviceGetPCIBusId, (char *, int, cu_device))                                               \
    X(cuDeviceGetByPCIBusId, (cu_device *, const char *))                                          \
    X(cuDeviceCanAccessPeer, (int *, cu_device, cu_device))                                        \
    X(cuCtxEnablePeerAccess, (cu_context, unsigned))                                               \
    X(cuIpcGetMemHandle, (cu_ipc *, cu_pointer))                                                   \
    X(cuIpcOpenMemHandle_v2, (cu_pointer *, cu_ipc, unsigned))                                     \
    X(cuIpcCloseMemHandle, (cu_pointer))                                                           \
    X(cuMemcpyHtoDAsync_v2, (cu_pointer, const void *, size_t, cu_stream))                         \
    X(cuMemcpyDtoHAsync_v2, (void *, cu_pointer, size_t, cu_stream))                               \
    X(cuMemcpyDtoDAsync_v2, (cu_pointer, cu_pointer, size_t, cu_stream))                           \
    X(cuStreamCreate, (cu_stream *, unsigned))                                                     \
    X(cuStreamDestroy_v2, (cu_stream))                                                             \
    X(cuStreamQuery, (cu_stream))                                                                  \
    X(cuEventCreate, (cu_event *, unsigned))                                                       \
    X(cuEventDestroy_v2, (cu_event))                                                               \
    X(cuEventRecord, (cu_event, cu_stream))                                                        \
    X(cuEventQuery, (cu_event))                                                                    \
    X(cuGetErrorString, (cu_result, const char **))

/* ---- NCCL --------------------------------------------------------------------- */

#ifndef NC_THEIR_TYPES
typedef int               nc_result; /* ncclResult_t */
typedef int               nc_type;   /* ncclDataType_t */
typedef struct nc_comm_s *nc_comm;
typedef struct {
    char bytes[128];
} nc_id;                              /* ncclUniqueId */
typedef struct nc_config nc_settings; /* ncclConfig_t */
#endif

#define NC_OK          0
#define NC_IN_PROGRESS 7
#define NC_UINT8       1
#define NC_UNDEFINED   INT_MIN
#define NC_MAGIC       0xcafebeefu
#define NC_VERSION     21801 /* of the struct below; every later NCCL takes it */
#define NC_LEAST       21800

struct nc_config { /* ncclConfig_t of that version */
    size_t      size;
    unsigned    magic, version;
    int         blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int         split_share;
};

#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclGetVersion, (int *))                                                                     \
    X(ncclGetUniqueId, (nc_id *))                                                                  \
    X(ncclCommInitRankConfig, (nc_comm *, int, nc_id, int, nc_settings *))                         \
    X(ncclCommFinalize, (nc_comm))                                                                 \
    X(ncclCommDestroy, (nc_comm))                                                                  \
    X(ncclCommAbort, (nc_comm))                                                                    \
    X(ncclCommGetAsyncError, (nc_comm, nc_result *))                                               \
    X(ncclSend, (const void *, size_t, nc_type, int, nc_comm, cu_stream))                          \
    X(ncclRecv, (void *, size_t, nc_type, int, nc_comm, cu_stream))                                \
    X(ncclAllGather, (const void *, void *, size_t, nc_type, nc_comm, cu_stream))                  \
    X(ncclGroupStart, (void))                                                                      \
    X(ncclGroupEnd, (void))

#define CUDA_POINTER(name, args) cu_result(*name) args;
#define NCCL_POINTER(name, args) nc_result(*name) args;
struct nc_libs {
    void *cuda_handle, *nccl_handle;
    CUDA_FUNCTIONS(CUDA_POINTER)
    NCCL_FUNCTIONS(NCCL_POINTER)
    const char *(*ncclGetErrorString)(nc_result);
    const char *(*ncclGetLastError)(nc_comm);
};
#undef CUDA_POINTER
#undef NCCL_POINTER

/* TSR_E_DEVICE, with one sentence, where a library is missing or too old.  [setup] */
tsr_status nc_libs_open(struct nc_libs *l, struct tsr_err *err);
void       nc_libs_close(struct nc_libs *l);

#endif
