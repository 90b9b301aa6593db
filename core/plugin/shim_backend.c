/* Guarded backends; their optional tables are in shim_backend_tables.c. */
#include "plugin/shim_backend.h"

#define RAW ((const struct tsr_backend_v1 *)shim->base.place->raw)

static tsr_status properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err)
{
    TSR_CALL_STEP(tsr_plugin_shim_device, RAW, properties, p, err);
}

static tsr_status buffer_alloc(void *self, uint64_t bytes, void **buffer, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, RAW, buffer_alloc, bytes, buffer, err);
}

static void buffer_free(void *self, void *buffer)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, RAW, buffer_free, (shim->base.self, buffer));
}

static tsr_status upload(void *self, void *buffer, uint64_t offset, const void *src, uint64_t bytes,
                         struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, RAW, upload, buffer, offset, src, bytes, err);
}

static tsr_status download(void *self, const void *buffer, uint64_t offset, void *dst,
                           uint64_t bytes, struct tsr_err *err)
{
    TSR_CALL(tsr_plugin_shim_device, RAW, download, buffer, offset, dst, bytes, err);
}

static tsr_status weight_load(void *self, const struct tsr_weight_desc *w, void **weight,
                              struct tsr_err *err)
{
    TSR_CALL_STEP(tsr_plugin_shim_device, RAW, weight_load, w, weight, err);
}

static void weight_free(void *self, void *weight)
{
    TSR_CALL_VOID(tsr_plugin_shim_device, RAW, weight_free, (shim->base.self, weight));
}

static uint64_t weight_bytes(const void *self, const void *weight)
{
    uint64_t bytes;
    TSR_CALL_VALUE(tsr_plugin_shim_device, RAW, bytes, weight_bytes, (shim->base.self, weight));
    return bytes;
}

static tsr_status run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    TSR_CALL_QUEUED(tsr_plugin_shim_device, RAW, run, stream, op, err);
}

static tsr_status sync_stream(void *self, void *stream, struct tsr_err *err)
{
    TSR_CALL_STEP(tsr_plugin_shim_device, RAW, sync, stream, err);
}

static const struct tsr_backend_v1 functions = {
    .destroy = tsr_plugin_shim_destroy,
    .properties = properties,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .upload = upload,
    .download = download,
    .weight_load = weight_load,
    .weight_free = weight_free,
    .weight_bytes = weight_bytes,
    .run = run,
    .sync = sync_stream,
    .extension = tsr_plugin_shim_extension,
};

static const char *const plain[] = { TSR_LINALG };

const struct tsr_plugin_shim_kind tsr_shim_backend = {
    .id = TSR_KIND_BACKEND,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct tsr_plugin_shim_device),
    .create_at = offsetof(struct tsr_backend_v1, create),
    .destroy_at = offsetof(struct tsr_backend_v1, destroy),
    .extension_at = offsetof(struct tsr_backend_v1, extension),
    .extensions = tsr_shim_backend_tables,
    .n_extensions = TSR_SHIM_BACKEND_TABLES,
    .plain = plain,
    .n_plain = sizeof plain / sizeof *plain,
};
