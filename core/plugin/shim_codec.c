/* Guarded codecs. */
#include "plugin/shim.h"

#include "tessera/codec.h"

struct shim {
    struct tsr_plugin_shim base;
    struct {
        const void              *raw;
        struct tsr_codec_wire_v1 table;
    } wire;
    struct {
        const void                *raw;
        struct tsr_codec_stream_v1 table;
    } stream;
};
#define RAW ((const struct tsr_codec_v1 *)shim->base.place->raw)
#define WIRE                                                                                       \
    ((const struct tsr_codec_wire_v1 *)tsr_shim_raw(&shim->base, &shim->wire.raw, TSR_CODEC_WIRE))
#define STREAM                                                                                     \
    ((const struct tsr_codec_stream_v1 *)tsr_shim_raw(&shim->base, &shim->stream.raw,              \
                                                      TSR_CODEC_STREAM))

static uint32_t exactness(const void *self)
{
    uint32_t answer;
    TSR_CALL_VALUE(shim, RAW, answer, exactness, (shim->base.self));
    return answer;
}

static tsr_status wire_bytes(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                             struct tsr_err *err)
{
    TSR_CALL(shim, RAW, wire_bytes, rows, cols, bytes, err);
}

static tsr_status encode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, encode, job, err);
}

static tsr_status decode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, decode, job, err);
}

static tsr_status decode_add(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, decode_add, job, err);
}

static tsr_status observe(void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    TSR_CALL_STEP(shim, RAW, observe, job, err);
}

static tsr_status freeze(void *self, struct tsr_err *err)
{
    TSR_CALL_LIFE(shim, RAW, freeze, err);
}

static uint64_t state_bytes(const void *self)
{
    uint64_t bytes;
    TSR_CALL_VALUE(shim, RAW, bytes, state_bytes, (shim->base.self));
    return bytes;
}

static tsr_status save(const void *self, void *state, struct tsr_err *err)
{
    TSR_CALL_LIFE(shim, RAW, save, state, err);
}

static tsr_status load(void *self, const void *state, uint64_t bytes, struct tsr_err *err)
{
    TSR_CALL_LIFE(shim, RAW, load, state, bytes, err);
}

static const struct tsr_codec_v1 functions = {
    .destroy = tsr_plugin_shim_destroy,
    .exactness = exactness,
    .wire_bytes = wire_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
    .observe = observe,
    .freeze = freeze,
    .state_bytes = state_bytes,
    .save = save,
    .load = load,
    .extension = tsr_plugin_shim_extension,
};

/* ---- tessera.codec.wire/1 ------------------------------------------------------------------------- */

static tsr_status wire(const void *self, uint32_t site, uint32_t source, uint64_t cols,
                       struct tsr_codec_wire *w, struct tsr_err *err)
{
    TSR_CALL(shim, WIRE, wire, site, source, cols, w, err);
}

static const struct tsr_codec_wire_v1 wires = { .wire = wire };

/* ---- tessera.codec.stream/1 ----------------------------------------------------------------------- */

static uint32_t order(const void *self)
{
    uint32_t answer;
    TSR_CALL_VALUE(shim, STREAM, answer, order, (shim->base.self));
    return answer;
}

static tsr_status stream_bytes(const void *self, uint32_t end, uint64_t rows, uint64_t cols,
                               uint64_t *bytes, struct tsr_err *err)
{
    TSR_CALL(shim, STREAM, state_bytes, end, rows, cols, bytes, err);
}

static const struct tsr_codec_stream_v1 streams = { .order = order, .state_bytes = stream_bytes };

static const struct tsr_plugin_shim_extension extensions[] = {
    TSR_SHIM_EXTENSION(struct shim, TSR_CODEC_WIRE, wire, wires),
    TSR_SHIM_EXTENSION(struct shim, TSR_CODEC_STREAM, stream, streams),
};
static const char *const plain[] = { TSR_CODEC_COUPLED };

const struct tsr_plugin_shim_kind tsr_shim_codec = {
    .id = TSR_KIND_CODEC,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_codec_v1, create),
    .destroy_at = offsetof(struct tsr_codec_v1, destroy),
    .extension_at = offsetof(struct tsr_codec_v1, extension),
    .extensions = extensions,
    .n_extensions = sizeof extensions / sizeof *extensions,
    .plain = plain,
    .n_plain = sizeof plain / sizeof *plain,
};
