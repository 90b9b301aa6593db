#include "late.h"

#include "backend.h"
#include "plugin/registry.h"
#include "simt/simt.h"
#include "standin.h"

#include <stdlib.h>
#include <string.h>

static struct tsr_cuda_api api;
static int                 failed, elsewhere;
static uint64_t            taken;

int late_failed(void)
{
    return failed;
}

uint64_t late_taken(void)
{
    return taken + standin_taken();
}

void late_elsewhere(int other_device)
{
    elsewhere = other_device;
}

/* ---- memory -------------------------------------------------------------------------- */

static tsr_status alloc(void *device, uint64_t bytes, enum tsr_cuda_memory kind, uint64_t *address,
                        struct tsr_err *err)
{
    taken++;
    return tsr_cuda_simt.alloc(device, bytes, kind, address, err);
}

static void release(void *device, uint64_t address, enum tsr_cuda_memory kind)
{
    taken += address != 0;
    tsr_cuda_simt.release(device, address, kind);
}

/* ---- streams ------------------------------------------------------------------------- */

struct launch {
    void                  *device;
    struct tsr_cuda_launch l;
    uint64_t               args[64];
};

static bool run_launch(void *arg)
{
    struct launch *l = arg;
    char           text[400] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    if (tsr_cuda_simt.launch(l->device, NULL, &l->l, &err) != TSR_OK) {
        (void)fprintf(stderr, "on a stream: %s\n", text);
        failed++;
    }
    free(l);
    return true;
}

static void push(void *stream, bool (*run)(void *), void *arg)
{
    standin_lock();
    (void)standin_push(stream, run, arg);
    standin_unlock();
}

static tsr_status launch(void *device, void *stream, const struct tsr_cuda_launch *l,
                         struct tsr_err *err)
{
    struct launch *late = stream ? malloc(sizeof *late) : NULL;
    if (!stream)
        return tsr_cuda_simt.launch(device, NULL, l, err);
    if (!late || l->args_bytes > sizeof late->args)
        abort();
    late->device = device;
    late->l = *l;
    memcpy(late->args, l->args, l->args_bytes);
    late->l.args = late->args;
    push(stream, run_launch, late);
    return TSR_OK;
}

static tsr_status sync_stream(void *device, void *stream, struct tsr_err *err)
{
    (void)device;
    (void)err;
    while (stream && cuStreamQuery(stream) == CU_NOT_READY) {
    }
    return TSR_OK;
}

/* Calls of the driver are made in a context. */
static cu_context enter(void)
{
    cu_context c = NULL;
    if (cuDevicePrimaryCtxRetain(&c, 0) != CU_OK || cuCtxPushCurrent_v2(c) != CU_OK)
        abort();
    return c;
}

static void leave(void)
{
    cu_context c;
    (void)cuCtxPopCurrent_v2(&c);
    (void)cuDevicePrimaryCtxRelease_v2(0);
}

static tsr_status stream_open(void *device, void **stream, struct tsr_err *err)
{
    cu_stream s = NULL;
    (void)device;
    (void)enter();
    cu_result r = cuStreamCreate(&s, CU_STREAM_ALONE);
    leave();
    *stream = s;
    return r == CU_OK ? TSR_OK : tsr_fail(err, TSR_E_DEVICE, "no stream");
}

static void stream_close(void *device, void *stream)
{
    (void)sync_stream(device, stream, NULL);
    if (stream)
        (void)cuStreamDestroy_v2(stream);
}

/* The default stream runs at once: what comes on it waits here, what is on it is over. */
static tsr_status stream_behind(void *device, void *stream, void *other, struct tsr_err *err)
{
    if (stream && other)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "no test needs it");
    return sync_stream(device, other, err);
}

static const void *place(const void *device)
{
    (void)device;
    cu_context c = enter();
    leave();
    return elsewhere ? (const void *)&elsewhere : (const void *)c;
}

/* ---- the backend --------------------------------------------------------------------- */

const struct tsr_backend_v1 *late_table(void)
{
    static const struct tsr_backend_v1 table = { TSR_CUDA_TABLE };
    return &table;
}

static struct tsr_registry *registry;

tsr_status late_use(struct tsr_registry *r, struct tsr_err *err)
{
    (void)err;
    registry = r;
    return TSR_OK;
}

tsr_status late_open(void **self, struct tsr_err *err)
{
    static const struct tsr_cuda_options o = { .seed = 3 };
    if (cuInit(0) != CU_OK)
        return tsr_fail(err, TSR_E_DEVICE, "no device");
    api = tsr_cuda_simt;
    api.alloc = alloc;
    api.release = release;
    api.launch = launch;
    api.sync = sync_stream;
    api.stream_open = stream_open;
    api.stream_close = stream_close;
    api.stream_behind = stream_behind;
    api.place = place;
    standin_memory(simt_place);
    return tsr_cuda_create(tsr_plugin_registry_host(registry), &api, &o, self, err);
}

void late_close(void *self)
{
    tsr_cuda_destroy(self);
}
