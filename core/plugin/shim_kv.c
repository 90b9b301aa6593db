/* Guarded KV-cache codecs. */
#include "plugin/shim.h"

#include "tessera/kv.h"

struct shim {
    struct tsr_plugin_shim base;
};
#define RAW ((const struct tsr_kv_v1 *)shim->base.place->raw)

static tsr_status layout(const void *self, uint32_t side, uint64_t head_dim,
                         struct tsr_kv_layout *l, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, layout, side, head_dim, l, err);
}

static tsr_status encode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const float *x, void *units, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, encode, side, head_dim, n, x, units, err);
}

static tsr_status decode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const void *units, float *x, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, decode, side, head_dim, n, units, x, err);
}

static tsr_status score(const void *self, uint64_t head_dim, const float *query, uint64_t n,
                        const void *units, float *out, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, score, head_dim, query, n, units, out, err);
}

static tsr_status mix(const void *self, uint64_t head_dim, const float *weights, uint64_t n,
                      const void *units, float *sum, struct tsr_err *err)
{
    TSR_CALL(shim, RAW, mix, head_dim, weights, n, units, sum, err);
}

static const struct tsr_kv_v1 functions = {
    .destroy = tsr_plugin_shim_destroy,
    .layout = layout,
    .encode = encode,
    .decode = decode,
    .score = score,
    .mix = mix,
    .extension = tsr_plugin_shim_extension,
};

const struct tsr_plugin_shim_kind tsr_shim_kv = {
    .id = TSR_KIND_KV,
    .functions = &functions,
    .size = sizeof functions,
    .shim_bytes = sizeof(struct shim),
    .create_at = offsetof(struct tsr_kv_v1, create),
    .destroy_at = offsetof(struct tsr_kv_v1, destroy),
    .extension_at = offsetof(struct tsr_kv_v1, extension),
};
