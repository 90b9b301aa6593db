/* The device of an instance, and its context. */
#include "here.h"
#include "nccl.h"

bool nc_enter(struct nccl *s)
{
    return s->l.cuCtxPushCurrent_v2(s->context) == CU_OK;
}

void nc_leave(struct nccl *s)
{
    cu_context own;
    (void)s->l.cuCtxPopCurrent_v2(&own);
}

tsr_status nc_device_open(struct nccl *s, int64_t index, int *devices, struct tsr_err *err)
{
    int       n = 0;
    cu_result e = s->l.cuInit(0);
    if (e == CU_OK)
        e = s->l.cuDeviceGetCount(&n);
    if (e == CU_NO_DEVICE || (e == CU_OK && n == 0))
        return tsr_fail(err, TSR_E_DEVICE,
                        "nccl: there is no CUDA device: the driver finds none; use transport "
                        "local or mpi");
    if (e != CU_OK)
        return nc_cuda_fail(s, e, "starting the driver", err);
    *devices = n;
    index = here_device(s->host, index, s->rank, n);
    if (index >= n)
        return tsr_fail(err, TSR_E_CONFIG,
                        "nccl: there is no CUDA device %lld, the last one is %d; choose another "
                        "with device=",
                        (long long)index, n - 1);
    e = s->l.cuDeviceGet(&s->device, (int)index);
    if (e == CU_OK)
        e = s->l.cuDevicePrimaryCtxRetain(&s->context, s->device);
    if (e != CU_OK) {
        s->context = NULL;
        return nc_cuda_fail(s, e, "opening the device", err);
    }
    return TSR_OK;
}
