/* backend.c - creation, memory, copies. */
#include "backend.h"
#include "../tensor/tensor.h"
#include "bench.h"
#include "tessera/backend_candidates.h"
#include "tessera/backend_codec.h"
#include "tessera/draft/compensate.h"
#include "tessera/draft/peaks.h"

#include <stdio.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

/* Without a library, prompts run on the kernels of numerics: exact, and this logs it. */
static void find_library(struct tsr_cuda *c)
{
    char           text[320], line[400];
    struct tsr_err why = { .struct_size = sizeof why, .cap = sizeof text, .text = text };
    text[0] = '\0';
    if (c->api->matmul_find && c->api->matmul_find(c->device, &why) == TSR_OK) {
        c->matmul = 1;
        return;
    }
    (void)snprintf(line, sizeof line, "%s: numerics: %s has no library for prompts: %s", c->text,
                   c->fast ? "fast" : "auto", *text ? text : "this device has none");
    c->host->log(c->host->ctx, c->fast ? TSR_LOG_WARN : TSR_LOG_INFO, line);
}

static void begin_early(struct tsr_cuda *c)
{
    char line[320];
    c->launching = TSR_CUDA_GRAPHS;
    if (c->api->graphs_overlap && c->api->graphs_overlap(c->device))
        return;
    (void)snprintf(line, sizeof line,
                   "%s: launching: overlap wants a device of sm_90 or newer and a driver for CUDA "
                   "12.3 or newer: kernels begin one after the other",
                   c->text);
    c->host->log(c->host->ctx, TSR_LOG_WARN, line);
}

tsr_status tsr_cuda_create(const struct tsr_host *host, const struct tsr_cuda_api *api,
                           const struct tsr_cuda_options *o, void **self, struct tsr_err *err)
{
    struct tsr_cuda *c = host->alloc(host->ctx, sizeof *c, 64);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for the CUDA backend",
                        sizeof *c);
    *c = (struct tsr_cuda){ .host = host, .api = api, .own = tsr_cuda_own(api) };
    c->weights = o && o->weights ? TSR_CUDA_MAPPED : TSR_CUDA_DEVICE;
    tsr_status st = api->open(host, o ? o->device : 0, o ? o->seed : 0, &c->device, err);
    if (st != TSR_OK) {
        host->release(host->ctx, c, sizeof *c);
        return st;
    }
    (void)snprintf(c->text, sizeof c->text, "%s", api->name(c->device));
    c->launching = o ? (enum tsr_cuda_launching)o->launching : TSR_CUDA_GRAPHS;
    if (c->launching == TSR_CUDA_OVERLAP)
        begin_early(c);
    c->fast = o && o->numerics == TSR_CUDA_FAST;
    c->tensor = o && o->numerics != TSR_CUDA_EXACT;
    (void)pthread_mutex_init(&c->lock, NULL);
    tsr_cuda_linalg_init(c);
    if (c->tensor)
        find_library(c);
    st = tsr_cuda_queue_open(c, err);
    if (st == TSR_OK)
        st = api->alloc(c->device, K_DONE * sizeof(uint32_t), TSR_CUDA_DEVICE, &c->done, err);
    if (st != TSR_OK) {
        tsr_cuda_destroy(c);
        return st;
    }
    *self = c;
    return TSR_OK;
}

void tsr_cuda_destroy(void *self)
{
    struct tsr_cuda *c = self;
    if (!c)
        return;
    const struct tsr_host *host = c->host;
    tsr_cuda_queue_close(c);
    tsr_cuda_candidates_free(c);
    tsr_cuda_linalg_free(c);
    c->api->release(c->device, c->work, TSR_CUDA_DEVICE);
    c->api->release(c->device, c->done, TSR_CUDA_DEVICE);
    c->api->close(c->device);
    (void)pthread_mutex_destroy(&c->lock);
    host->release(host->ctx, c->indices, c->indices_bytes);
    host->release(host->ctx, c, sizeof *c);
}

tsr_status tsr_cuda_properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err)
{
    const struct tsr_cuda *c = self;
    p->deterministic = !c->tensor;
    p->device = c->text;
    return c->api->sizes(c->device, &p->memory_bytes, &p->free_bytes, err);
}

tsr_status tsr_cuda_buffer_alloc(void *self, uint64_t bytes, void **buffer, struct tsr_err *err)
{
    struct tsr_cuda        *c = self;
    const struct tsr_host  *host = c->host;
    struct tsr_cuda_buffer *b = host->alloc(host->ctx, sizeof *b, 64);
    if (!b)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a device buffer");
    TSR_CUDA_ALONE(c);
    *b = (struct tsr_cuda_buffer){ .bytes = bytes };
    tsr_status st = TSR_E_NOMEM;
    if (bytes <= PTRDIFF_MAX)
        st = c->api->alloc(c->device, bytes ? bytes : 1, TSR_CUDA_DEVICE, &b->address, err);
    else
        (void)tsr_fail(err, st, "out of memory: %llu bytes for a device buffer", U(bytes));
    if (st != TSR_OK) {
        host->release(host->ctx, b, sizeof *b);
        return st;
    }
    *buffer = b;
    return TSR_OK;
}

void tsr_cuda_buffer_free(void *self, void *buffer)
{
    struct tsr_cuda        *c = self;
    struct tsr_cuda_buffer *b = buffer;
    if (!b)
        return;
    TSR_CUDA_ALONE(c);
    (void)tsr_cuda_flush(c, NULL); /* queued launches may use it */
    tsr_cuda_kept_forget(c);
    c->api->release(c->device, b->address, TSR_CUDA_DEVICE);
    if (b->mirror)
        c->host->release(c->host->ctx, b->mirror, b->bytes);
    c->host->release(c->host->ctx, b, sizeof *b);
}

static tsr_status check_range(const struct tsr_cuda_buffer *b, uint64_t offset, uint64_t bytes,
                              const char *what, struct tsr_err *err)
{
    if (!b)
        return tsr_fail(err, TSR_E_INVAL, "%s: the buffer is NULL", what);
    return tsr_tensor_range(b->bytes, offset, bytes, what, err);
}

tsr_status tsr_cuda_upload(void *self, void *buffer, uint64_t offset, const void *src,
                           uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cuda        *c = self;
    struct tsr_cuda_buffer *b = buffer;
    tsr_status              st = check_range(b, offset, bytes, "upload", err);
    if (st != TSR_OK || bytes == 0)
        return st;
    TSR_CUDA_ALONE(c);
    if (!b->mirror && !b->written && b->bytes <= TSR_CUDA_MIRROR) {
        /* without one, indices are fetched from the device */
        b->mirror = c->host->alloc(c->host->ctx, b->bytes, 64);
        if (b->mirror)
            memset(b->mirror, 0, b->bytes);
        b->written = !b->mirror;
    }
    tsr_cuda_kept_forget(c);
    if ((st = tsr_cuda_flush(c, err)) != TSR_OK)
        return st;
    if (b->mirror)
        memcpy(b->mirror + offset, src, bytes);
    return c->api->put(c->device, b->address + offset, src, bytes, err);
}

tsr_status tsr_cuda_download(void *self, const void *buffer, uint64_t offset, void *dst,
                             uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cuda              *c = self;
    const struct tsr_cuda_buffer *b = buffer;
    tsr_status                    st = check_range(b, offset, bytes, "download", err);
    if (st != TSR_OK || bytes == 0)
        return st;
    TSR_CUDA_ALONE(c);
    if ((st = tsr_cuda_flush(c, err)) != TSR_OK)
        return st;
    c->busy = 0;
    return tsr_cuda_waited(c, c->api->get(c->device, dst, b->address + offset, bytes, err), err);
}

tsr_status tsr_cuda_sync(void *self, void *stream, struct tsr_err *err)
{
    struct tsr_cuda *c = self;
    TSR_CUDA_ALONE(c);
    tsr_cuda_kept_forget(c); /* the caller may write to an address that it has */
    tsr_status st = tsr_cuda_flush(c, err);
    c->busy = 0;
    return st != TSR_OK ? st : tsr_cuda_waited(c, c->api->sync(c->device, stream, err), err);
}

const void *tsr_cuda_extension(const void *self, const char *id)
{
    if (strcmp(id, TSR_LINALG) == 0) /* which is found the first time, under a lock */
        return tsr_cuda_linalg((struct tsr_cuda *)(uintptr_t)self);
    if (strcmp(id, TSR_SIZES_EXTENSION) == 0)
        return tsr_cuda_sizes();
    if (strcmp(id, TSR_PEAKS) == 0)
        return tsr_cuda_peaks();
    if (strcmp(id, TSR_CUDA_BENCH) == 0)
        return tsr_cuda_bench();
    if (strcmp(id, TSR_BACKEND_CANDIDATES) == 0)
        return tsr_cuda_candidates();
    if (strcmp(id, TSR_BACKEND_WINDOW) == 0)
        return tsr_cuda_window();
    if (strcmp(id, TSR_BACKEND_CODEC) == 0)
        return tsr_cuda_codec();
    if (strcmp(id, TSR_BACKEND_COMPENSATE) == 0)
        return tsr_cuda_compensation();
    if (strcmp(id, TSR_BACKEND_LAUNCH) == 0)
        return ((const struct tsr_cuda *)self)->api->code_load
                   ? &((const struct tsr_cuda *)self)->own
                   : NULL;
    return strcmp(id, TSR_BACKEND_LAYOUT) == 0 ? tsr_cuda_layout() : NULL;
}
