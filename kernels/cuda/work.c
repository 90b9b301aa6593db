/* work.c - memory of the device for an operation. */
#include "backend.h"

tsr_status tsr_cuda_work(struct tsr_cuda *c, uint64_t bytes, uint64_t *address, struct tsr_err *err)
{
    tsr_cuda_kept_forget(c); /* the caller writes there */
    if (bytes > c->work_bytes) {
        tsr_status st = tsr_cuda_flush(c, err);
        if (st != TSR_OK)
            return st;
        c->api->release(c->device, c->work, TSR_CUDA_DEVICE); /* waits for its users */
        c->work = c->work_bytes = 0;
        st = c->api->alloc(c->device, bytes, TSR_CUDA_DEVICE, &c->work, err);
        if (st != TSR_OK)
            return st;
        c->work_bytes = bytes;
    }
    *address = c->work;
    return TSR_OK;
}
