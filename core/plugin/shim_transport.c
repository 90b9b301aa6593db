/* Guarded transports. */
#include "plugin/shim.h"
#include "tessera/draft/window.h"

struct shim {
    struct tsr_plugin_shim base;
    struct {
        const void                    *raw;
        struct tsr_transport_counts_v1 table;
    } counts;
    struct {
        const void                    *raw;
        struct tsr_transport_device_v1 table;
    } device;
    struct {
        const void                    *raw;
        struct tsr_transport_window_v1 table;
    } window;
};
#define RAW ((const struct tsr_transport_v1 *)shim->base.place->raw)
#define COUNTS                                                                                     \
    ((const struct tsr_transport_counts_v1 *)tsr_shim_raw(&shim->base, &shim->counts.raw,          \
                                                          TSR_TRANSPORT_COUNTS))
#define DEVICE                                                                                     \
    ((const struct tsr_transport_device_v1 *)tsr_shim_raw(&shim->base, &shim->device.raw,          \
                                                          TSR_TRANSPORT_DEVICE))

#define WINDOW                                                                                     \
    ((const struct tsr_transport_window_v1 *)tsr_shim_raw(&shim->base, &shim->window.raw,          \
                                                          TSR_TRANSPORT_WINDOW))

static tsr_status send_bytes(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, send, stream, to, buf, bytes, request, err);
}

static tsr_status recv_bytes(void *self, void *stream, uint32_t from, void *buf, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, recv, stream, from, buf, bytes, request, err);
}

static tsr_status all_gather(void *self, void *stream, const void *mine, void *all, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, all_gather, stream, mine, all, bytes, request, err);
}

static tsr_status all_to_all(void *self, void *stream, const void *mine, void *all, uint64_t bytes,
                             void **request, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, all_to_all, stream, mine, all, bytes, request, err);
}

static tsr_status test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, test, request, done, err);
}

static tsr_status wait_for(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    TSR_CALL_STEP(shim, RAW, wait, request, deadline_us, err);
}

static void abort_group(void *self)
{
    TSR_CALL_VOID(shim, RAW, abort, (shim->base.self));
}

/* create(), world_bytes() and via() have no instance: shim.c. */
static const struct tsr_transport_v1 functions = {
    .destroy = tsr_plugin_shim_destroy,
    .send = send_bytes,
    .recv = recv_bytes,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .test = test,
    .wait = wait_for,
    .abort = abort_group,
    .extension = tsr_plugin_shim_extension,
};

/* ---- optional tables ------------------------------------------------------------------------------ */

static void read_counts(const void *self, struct tsr_transport_counts *to)
{
    TSR_CALL_VOID(shim, COUNTS, read, (shim->base.self, to));
}

static const struct tsr_transport_counts_v1 counts = { .read = read_counts };

static tsr_status queued(void *self, void *request, int32_t *is, struct tsr_err *err)
{
    TSR_CALL(shim, DEVICE, queued, request, is, err);
}

static const void *place(const void *self)
{
    const void *answer;
    TSR_CALL_VALUE(shim, DEVICE, answer, place, (shim->base.self));
    return answer;
}

static const struct tsr_transport_device_v1 device = { .queued = queued, .place = place };

static tsr_status meet(void *self, int32_t able, uint64_t wait_us, struct tsr_window *w,
                       struct tsr_err *err)
{
    TSR_CALL_STEP(shim, WINDOW, meet, able, wait_us, w, err);
}

static const struct tsr_transport_window_v1 window = { .meet = meet };

static const struct tsr_plugin_shim_extension extensions[] = {
    TSR_SHIM_EXTENSION(struct shim, TSR_TRANSPORT_COUNTS, counts, counts),
    TSR_SHIM_EXTENSION(struct shim, TSR_TRANSPORT_DEVICE, device, device),
    TSR_SHIM_EXTENSION(struct shim, TSR_TRANSPORT_WINDOW, window, window),
};

const struct tsr_plugin_shim_kind tsr_shim_transport = {
    .id = TSR_KIND_TRANSPORT,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_transport_v1, create),
    .destroy_at = offsetof(struct tsr_transport_v1, destroy),
    .extension_at = offsetof(struct tsr_transport_v1, extension),
    .extensions = extensions,
    .n_extensions = sizeof extensions / sizeof *extensions,
};
