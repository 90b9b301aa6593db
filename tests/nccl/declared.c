/* What plugins/comm/nccl/libs.h declares is what nccl.h and cuda.h declare. */
#include <cuda.h>
#include <nccl.h>

#include "../../plugins/comm/nccl/libs.h"

#define SAME(a, b)       _Static_assert((a) == (b), #a " is " #b)
#define MEMBER(ours, of) SAME(offsetof(struct nc_config, ours), offsetof(ncclConfig_t, of))

SAME(sizeof(nc_id), sizeof(ncclUniqueId));
SAME(NC_OK, ncclSuccess);
SAME(NC_IN_PROGRESS, ncclInProgress);
SAME(NC_UINT8, ncclUint8);
SAME(NC_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME(NC_VERSION, NCCL_VERSION(2, 18, 1));
MEMBER(size, size);
MEMBER(magic, magic);
MEMBER(version, version);
MEMBER(blocking, blocking);
MEMBER(cga_cluster_size, cgaClusterSize);
MEMBER(min_ctas, minCTAs);
MEMBER(max_ctas, maxCTAs);
MEMBER(net_name, netName);
MEMBER(split_share, splitShare);
SAME(sizeof(nc_result), sizeof(ncclResult_t));
SAME(sizeof(cu_result), sizeof(CUresult));
SAME(sizeof(cu_device), sizeof(CUdevice));
SAME(sizeof(cu_pointer), sizeof(CUdeviceptr));
SAME(CU_OK, CUDA_SUCCESS);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_STREAM_ALONE, CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_UNTIMED, CU_EVENT_DISABLE_TIMING);
SAME(CU_HOST_ANY, CU_MEMHOSTALLOC_PORTABLE);

/* As many arguments, of sizes and kinds that go the same way. */
#define TAKES(f, ...) (void)sizeof(f(__VA_ARGS__))
void nc_declared(void);
void nc_declared(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t   comm = NULL;
    ncclResult_t result;
    cudaStream_t stream = NULL;
    int          n;
    CUcontext    context = NULL;
    CUdeviceptr  p = 0;
    CUevent      event = NULL;
    CUstream     s = NULL;
    void        *host = NULL;
    _Static_assert(NC_MAGIC == 0xcafebeefu, "the magic of NCCL_CONFIG_INITIALIZER");
    TAKES(ncclGetVersion, &n);
    TAKES(ncclGetUniqueId, &id);
    TAKES(ncclCommInitRankConfig, &comm, 2, id, 0, &config);
    TAKES(ncclCommFinalize, comm);
    TAKES(ncclCommDestroy, comm);
    TAKES(ncclCommAbort, comm);
    TAKES(ncclCommGetAsyncError, comm, &result);
    TAKES(ncclSend, host, sizeof n, ncclUint8, 1, comm, stream);
    TAKES(ncclRecv, host, sizeof n, ncclUint8, 1, comm, stream);
    TAKES(ncclAllGather, host, host, sizeof n, ncclUint8, comm, stream);
    TAKES(ncclGetLastError, comm);
    TAKES(cuDevicePrimaryCtxRetain, &context, 0);
    TAKES(cuCtxPushCurrent, context);
    TAKES(cuMemAlloc, &p, sizeof n);
    TAKES(cuMemHostAlloc, &host, sizeof n, CU_HOST_ANY);
    TAKES(cuMemcpyHtoDAsync, p, host, sizeof n, s);
    TAKES(cuMemcpyDtoHAsync, host, p, sizeof n, s);
    TAKES(cuMemcpyDtoDAsync, p, p, sizeof n, s);
    TAKES(cuStreamCreate, &s, CU_STREAM_ALONE);
    TAKES(cuEventCreate, &event, CU_EVENT_UNTIMED);
    TAKES(cuEventRecord, event, s);
    TAKES(cuEventQuery, event);
}
