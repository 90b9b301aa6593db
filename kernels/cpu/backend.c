/* backend.c - creation, memory, dispatch by instruction set. */
#include "backend.h"
#include "../tensor/tensor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "compensate.h"
#include "probe.h"

#define HUGE_PAGE (UINT64_C(2) << 20)
#define LARGE     (UINT64_C(32) << 20) /* the host has smaller blocks side by side in such pages */

static void *plain_get(const struct tsr_host *host, uint64_t bytes)
{
    uint64_t align = bytes > LARGE ? HUGE_PAGE : 64;
    void    *p = host->alloc(host->ctx, bytes, align);
    if (!p)
        return NULL;
    if (align == HUGE_PAGE) /* a hint: without it the kernels only run slower */
        (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return p;
}

static void plain_put(const struct tsr_host *host, void *p, uint64_t bytes)
{
    host->release(host->ctx, p, bytes);
}

static void plain_touch(void *p, uint64_t bytes)
{
    (void)p;
    (void)bytes;
}

const struct tsr_cpu_memory tsr_cpu_memory_plain = { plain_get, plain_put, plain_touch, plain_touch,
                                                     1 };

tsr_status tsr_cpu_create(const struct tsr_host *host, const struct tsr_cpu_memory *mem,
                          void **self, struct tsr_err *err)
{
    const struct tsr_cpu_kernels     *k = NULL;
    const struct tsr_cpu_amx_kernels *amx = NULL;
    tsr_status                        st = tsr_cpu_pick(&k, &amx, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cpu *c = host->alloc(host->ctx, sizeof *c, 64);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for the CPU backend",
                        sizeof *c);
    *c = (struct tsr_cpu){ .host = host, .k = k, .amx = amx, .mem = mem };
    c->permute = tsr_cpu_permutes(k);
    c->device = tsr_cpu_device(k, amx);
    tsr_cpu_linalg_init(c);
    *self = c;
    return TSR_OK;
}

void tsr_cpu_destroy(void *self)
{
    struct tsr_cpu *c = self;
    if (!c)
        return;
    const struct tsr_host *host = c->host;
    tsr_cpu_linalg_free(c);
    host->release(host->ctx, c->scratch, c->scratch_bytes);
    host->release(host->ctx, c, sizeof *c);
}

tsr_status tsr_cpu_properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err)
{
    const struct tsr_cpu *c = self;
    struct sysinfo        s;
    if (sysinfo(&s) != 0)
        return tsr_fail(err, TSR_E_DEVICE, "cannot read the size of the memory");
    p->deterministic = c->bf16 == NULL;
    p->device = c->device;
    p->memory_bytes = (uint64_t)s.totalram * s.mem_unit;
    p->free_bytes = ((uint64_t)s.freeram + s.bufferram) * s.mem_unit;
    return TSR_OK;
}

tsr_status tsr_cpu_buffer_alloc(void *self, uint64_t bytes, void **buffer, struct tsr_err *err)
{
    struct tsr_cpu        *c = self;
    struct tsr_cpu_buffer *b = NULL;
    if (bytes <= PTRDIFF_MAX)
        b = c->host->alloc(c->host->ctx, sizeof *b, 64);
    if (b)
        b->data = c->mem->get(c->host, bytes ? bytes : 1);
    if (!b || !b->data) {
        c->host->release(c->host->ctx, b, sizeof *b);
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a device buffer",
                        (unsigned long long)bytes);
    }
    c->mem->open(b->data, bytes);
    memset(b->data, 0, bytes);
    c->mem->close(b->data, bytes);
    b->bytes = bytes;
    *buffer = b;
    return TSR_OK;
}

void tsr_cpu_buffer_free(void *self, void *buffer)
{
    struct tsr_cpu        *c = self;
    struct tsr_cpu_buffer *b = buffer;
    if (!b)
        return;
    c->mem->put(c->host, b->data, b->bytes ? b->bytes : 1);
    c->host->release(c->host->ctx, b, sizeof *b);
}

static tsr_status check_range(const struct tsr_cpu_buffer *b, uint64_t offset, uint64_t bytes,
                              const char *what, struct tsr_err *err)
{
    if (!b)
        return tsr_fail(err, TSR_E_INVAL, "%s: the buffer is NULL", what);
    return tsr_tensor_range(b->bytes, offset, bytes, what, err);
}

tsr_status tsr_cpu_upload(void *self, void *buffer, uint64_t offset, const void *src,
                          uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cpu        *c = self;
    struct tsr_cpu_buffer *b = buffer;
    tsr_status             st = check_range(b, offset, bytes, "upload", err);
    if (st != TSR_OK || bytes == 0)
        return st;
    c->mem->open(b->data, b->bytes);
    memcpy(b->data + offset, src, bytes);
    c->mem->close(b->data, b->bytes);
    return TSR_OK;
}

tsr_status tsr_cpu_download(void *self, const void *buffer, uint64_t offset, void *dst,
                            uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cpu              *c = self;
    const struct tsr_cpu_buffer *b = buffer;
    tsr_status                   st = check_range(b, offset, bytes, "download", err);
    if (st != TSR_OK || bytes == 0)
        return st;
    c->mem->open(b->data, b->bytes);
    memcpy(dst, b->data + offset, bytes);
    c->mem->close(b->data, b->bytes);
    return TSR_OK;
}

tsr_status tsr_cpu_sync(void *self, void *stream, struct tsr_err *err)
{
    (void)self; /* run() is done when it returns */
    (void)stream;
    (void)err;
    return TSR_OK;
}

const void *tsr_cpu_extension(const void *self, const char *id)
{
    if (strcmp(id, TSR_PROBE_EXTENSION) == 0)
        return tsr_cpu_probe(self);
    if (strcmp(id, TSR_LINALG) == 0)
        return tsr_cpu_linalg(self);
    if (strcmp(id, TSR_SIZES_EXTENSION) == 0)
        return tsr_cpu_sizes();
    if (strcmp(id, TSR_BACKEND_COMPENSATE) == 0)
        return tsr_cpu_compensate();
    if (strcmp(id, TSR_BACKEND_LINEARS) == 0)
        return tsr_cpu_linears();
    return strcmp(id, TSR_BACKEND_LAYOUT) == 0 ? tsr_cpu_layout() : NULL;
}
