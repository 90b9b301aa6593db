/* stream_cuda.c - streams in addition to the device's default stream. */
#include "device_cuda.h"

tsr_status stream_open(void *device, void **stream, struct tsr_err *err)
{
    struct device *d = device;
    CUstream       s = NULL;
    *stream = NULL;
    tsr_status st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    CUresult r = d->l.p_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    *stream = s;
    return device_leave(d, r, "making a stream", err);
}

void stream_close(void *device, void *stream)
{
    struct device *d = device;
    if (!stream || device_enter(d, NULL) != TSR_OK)
        return;
    (void)d->l.p_cuStreamSynchronize(stream);
    (void)device_leave(d, d->l.p_cuStreamDestroy(stream), "ending a stream", NULL);
}

tsr_status stream_behind(void *device, void *stream, void *other, struct tsr_err *err)
{
    struct device *d = device;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    /* a wait is for the record before it: the event is free again at once */
    CUresult r = d->l.p_cuEventRecord(d->behind, other ? other : d->stream);
    if (r == CUDA_SUCCESS)
        r = d->l.p_cuStreamWaitEvent(stream ? stream : d->stream, d->behind, 0);
    return device_leave(d, r, "ordering two streams", err);
}

const void *stream_place(const void *device)
{
    return ((const struct device *)device)->context;
}
