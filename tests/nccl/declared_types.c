/* The functions of plugins/comm/nccl/libs.h have the types that cuda.h and, where there is one, nccl.h
 * declare, under the names that the driver and the library export. */
#include <cuda.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
typedef ncclResult_t   nc_result;
typedef ncclDataType_t nc_type;
typedef ncclComm_t     nc_comm;
typedef ncclUniqueId   nc_id;
typedef ncclConfig_t   nc_settings;
#define IS_NCCL IS
#else
typedef int              nc_result, nc_type, nc_id;
typedef void            *nc_comm;
typedef struct nc_config nc_settings;
#define IS_NCCL(name, args)
#endif
typedef CUresult       cu_result;
typedef CUdevice       cu_device;
typedef CUdeviceptr    cu_pointer;
typedef CUcontext      cu_context;
typedef CUstream       cu_stream;
typedef CUevent        cu_event;
typedef CUipcMemHandle cu_ipc;

#define NC_THEIR_TYPES
#include "../../plugins/comm/nccl/libs.h"

#define IS(name, args)                                                                             \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&(name)),                               \
                                                __typeof__(((struct nc_libs *)0)->name)),          \
                   #name " is declared in another way");
CUDA_FUNCTIONS(IS)
NCCL_FUNCTIONS(IS_NCCL)
#if __has_include(<nccl.h>)
IS(ncclGetErrorString, )
IS(ncclGetLastError, )
#endif
