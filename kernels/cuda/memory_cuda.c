/* memory_cuda.c - memory of a device and pinned memory of the host, and copies between them. */
#include "device_cuda.h"

#include <stdio.h>

tsr_status memory_sizes(const void *device, uint64_t *total, uint64_t *available,
                        struct tsr_err *err)
{
    struct device *d =
        (struct device *)(uintptr_t)device; /* the context is the thread's, not d's */
    size_t     t = 0, a = 0;
    tsr_status st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    st = device_leave(d, d->l.p_cuMemGetInfo(&a, &t), "reading the size of its memory", err);
    *total = t;
    *available = a;
    return st;
}

tsr_status memory_alloc(void *device, uint64_t bytes, enum tsr_cuda_memory kind, uint64_t *address,
                        struct tsr_err *err)
{
    struct device *d = device;
    CUdeviceptr    p = 0;
    void          *host = NULL;
    char           what[80];
    CUresult       r;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    (void)snprintf(what, sizeof what, "%llu bytes of %s memory", (unsigned long long)bytes,
                   kind == TSR_CUDA_MAPPED ? "pinned" : "device");
    if (kind == TSR_CUDA_MAPPED) {
        r = d->l.p_cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
        if (r == CUDA_SUCCESS) {
            memset(host, 0, bytes);
            r = d->l.p_cuMemHostGetDevicePointer(&p, host, 0);
        }
        if (r != CUDA_SUCCESS && host)
            (void)d->l.p_cuMemFreeHost(host);
    } else {
        r = d->l.p_cuMemAlloc(&p, bytes);
        if (r == CUDA_SUCCESS &&
            (r = d->l.p_cuMemsetD8Async(p, 0, bytes, d->stream)) != CUDA_SUCCESS)
            (void)d->l.p_cuMemFree(p);
    }
    *address = p;
    return device_leave(d, r, what, err);
}

/* Both frees wait for the work that is queued.  Addresses of mapped memory are the host's (all
 * supported devices have one address space with it). */
void memory_release(void *device, uint64_t address, enum tsr_cuda_memory kind)
{
    struct device *d = device;
    if (!address || device_enter(d, NULL) != TSR_OK)
        return;
    (void)d->l.p_cuStreamSynchronize(d->stream);
    CUresult r = kind == TSR_CUDA_MAPPED ? d->l.p_cuMemFreeHost((void *)(uintptr_t)address)
                                         : d->l.p_cuMemFree(address);
    (void)device_leave(d, r, "freeing memory", NULL);
}

CUresult device_wait(struct device *d)
{
    CUresult r = d->l.p_cuStreamSynchronize(d->stream);
    if (r == CUDA_SUCCESS) {
        d->ring_used = 0;
        device_kernels_clear(&d->since);
    }
    return r;
}

/* Large pieces are read by the driver itself before the call returns, or waited for; small ones go
 * through pinned memory that stays until the stream was waited for. */
tsr_status memory_put(void *device, uint64_t to, const void *from, uint64_t bytes,
                      struct tsr_err *err)
{
    struct device *d = device;
    CUresult       r = CUDA_SUCCESS;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    if (bytes > RING_BYTES / 4) {
        r = d->l.p_cuMemcpyHtoDAsync(to, from, bytes, d->stream);
        if (r == CUDA_SUCCESS)
            r = device_wait(d);
        return device_leave(d, r, "an upload", err);
    }
    if (bytes > RING_BYTES - d->ring_used)
        r = device_wait(d);
    if (r == CUDA_SUCCESS) {
        memcpy(d->ring + d->ring_used, from, bytes);
        r = d->l.p_cuMemcpyHtoDAsync(to, d->ring + d->ring_used, bytes, d->stream);
        d->ring_used += (bytes + 255) / 256 * 256;
    }
    return device_leave(d, r, "an upload", err);
}

tsr_status memory_get(void *device, void *to, uint64_t from, uint64_t bytes, struct tsr_err *err)
{
    struct device *d = device;
    uint8_t       *out = to;
    tsr_status     st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    if (bytes <= RING_BYTES - d->ring_used) { /* after the work that is queued: one wait */
        uint8_t *from_ring = d->ring + d->ring_used;
        CUresult one = d->l.p_cuMemcpyDtoHAsync(from_ring, from, bytes, d->stream);
        if (one == CUDA_SUCCESS)
            one = device_wait(d);
        if (one == CUDA_SUCCESS)
            memcpy(out, from_ring, bytes);
        return device_leave(d, one, "a download", err);
    }
    CUresult r = device_wait(d);
    for (uint64_t at = 0; at < bytes && r == CUDA_SUCCESS; at += RING_BYTES) {
        uint64_t n = bytes - at < RING_BYTES ? bytes - at : RING_BYTES;
        r = d->l.p_cuMemcpyDtoHAsync(d->ring, from + at, n, d->stream);
        if (r == CUDA_SUCCESS)
            r = device_wait(d);
        if (r == CUDA_SUCCESS)
            memcpy(out + at, d->ring, n);
    }
    return device_leave(d, r, "a download", err);
}
