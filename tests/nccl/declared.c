/* The types and values of plugins/comm/nccl/libs.h are those of cuda.h and, where there is one, nccl.h.
 * The functions: declared_types.c. */
#include <cuda.h>
#include <stddef.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "../../plugins/comm/nccl/libs.h"

#define SAME(a, b)       _Static_assert((a) == (b), #a " is " #b)
#define MEMBER(ours, of) SAME(offsetof(struct nc_config, ours), offsetof(ncclConfig_t, of))

#if __has_include(<nccl.h>)
SAME(sizeof(nc_id), sizeof(ncclUniqueId));
SAME(_Alignof(nc_id), _Alignof(ncclUniqueId)); /* it is passed by value */
SAME(NC_OK, ncclSuccess);
SAME(NC_IN_PROGRESS, ncclInProgress);
SAME(NC_UINT8, ncclUint8);
#ifdef NCCL_API_MAGIC /* from 2.29 on */
SAME(NC_MAGIC, NCCL_API_MAGIC);
#endif
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
SAME(sizeof(nc_type), sizeof(ncclDataType_t));
#endif
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
SAME(sizeof(cu_ipc), sizeof(CUipcMemHandle));
SAME(CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(CU_IPC_LAZY, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
