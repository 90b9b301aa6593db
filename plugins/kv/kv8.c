/* kv8 - KV caches of 8 bits: int8 and fp8, each with a scale for each head and position.
 *
 * A unit is a position of a head: F32 scale, then a byte for each element, as TSR_I8 and TSR_E4M3 of tessera/kv_cache.h.  Backends
 * run their own kernels over these units; the functions here say what the bytes are. */
#include "tessera/kv.h"

#include "tessera/f16.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct eight {
    const struct tsr_host *host;
    uint32_t               type;
};

static tsr_status make(const struct tsr_host *host, uint32_t type, void **self, struct tsr_err *err)
{
    struct eight *k = host->alloc(host->ctx, sizeof *k, 16);
    if (!k)
        return tsr_fail(err, TSR_E_NOMEM, "kv8: out of memory: %zu bytes", sizeof *k);
    *k = (struct eight){ host, type };
    *self = k;
    return TSR_OK;
}

static tsr_status create_int8(const struct tsr_host *host, const void *opts, void **self,
                              struct tsr_err *err)
{
    (void)opts;
    return make(host, TSR_I8, self, err);
}

static tsr_status create_fp8(const struct tsr_host *host, const void *opts, void **self,
                             struct tsr_err *err)
{
    (void)opts;
    return make(host, TSR_E4M3, self, err);
}

static void destroy(void *self)
{
    struct eight *k = self;
    if (k)
        k->host->release(k->host->ctx, k, sizeof *k);
}

static tsr_status layout(const void *self, uint32_t side, uint64_t head_dim,
                         struct tsr_kv_layout *l, struct tsr_err *err)
{
    uint32_t type = ((const struct eight *)self)->type;
    (void)side;
    (void)err;
    l->positions = 1;
    l->bytes = tsr_kv_head_bytes(type, head_dim);
    /* half a step of 127, or half of the 32 between E4M3 above 256; and what F32 rounds */
    l->error = type == TSR_I8 ? 1.0 / 253 : 16.0 / 447;
    TSR_SET(struct tsr_kv_layout, l, type, type);
    return TSR_OK;
}

/* ---- codes -------------------------------------------------------------------------- */

/* The nearest E4M3, ties to even; |y| is below 464. */
static uint8_t to_e4m3(float y)
{
    uint32_t bits = tsr_f32_bits(y), sign = bits >> 24 & 128, a = bits & INT32_MAX;
    if (a < tsr_f32_bits(0x1p-6f)) /* denormals are multiples of 2^-9 */
        return (uint8_t)(sign | (uint32_t)rintf(tsr_bits_f32(a) * 512.0f));
    a += 0x7ffff + (a >> 20 & 1);
    return (uint8_t)(sign | ((a >> 20) - (120u << 3)));
}

static float e4m3(uint8_t code)
{
    int   exponent = code >> 3 & 15, mantissa = code & 7;
    float y = (code & 127) == 127 ? NAN
              : exponent          ? ldexpf((float)(8 + mantissa), exponent - 10)
                                  : ldexpf((float)mantissa, -9);
    return code & 128 ? -y : y;
}

static float code_value(uint32_t type, uint8_t code)
{
    return type == TSR_E4M3 ? e4m3(code) : (float)(int8_t)code;
}

static uint8_t nearest(uint32_t type, float y)
{
    if (type == TSR_E4M3)
        return to_e4m3(y);
    y = rintf(y);
    return (uint8_t)(int8_t)(y < -127.0f ? -127.0f : y > 127.0f ? 127.0f : y);
}

static void encode_unit(uint32_t type, uint64_t dim, const float *x, uint8_t *to)
{
    float zero = 0.0f, top = 0.0f, scale = NAN, inv = 0.0f;
    for (uint64_t d = 0; d < dim; d++) {
        zero += x[d] * 0.0f; /* NaN for an element that is not finite */
        top = fabsf(x[d]) > top ? fabsf(x[d]) : top;
    }
    if (zero == 0.0f) {
        scale = top / (type == TSR_E4M3 ? 448.0f : 127.0f);
        inv = 1.0f / scale;
        if (!(inv <= FLT_MAX)) /* all zero, or too small to divide by */
            scale = inv = 0.0f;
    }
    memcpy(to, &scale, 4);
    for (uint64_t d = 0; d < dim; d++)
        to[4 + d] = inv > 0.0f ? nearest(type, x[d] * inv) : 0;
}

static float scale_of(const uint8_t *unit)
{
    float scale;
    memcpy(&scale, unit, 4);
    return scale;
}

/* ---- units -------------------------------------------------------------------------- */

static tsr_status encode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const float *x, void *units, struct tsr_err *err)
{
    uint8_t *to = units;
    (void)side;
    (void)err;
    for (uint64_t i = 0; i < n; i++)
        encode_unit(((const struct eight *)self)->type, head_dim, x + i * head_dim,
                    to + i * (4 + head_dim));
    return TSR_OK;
}

static tsr_status decode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const void *units, float *x, struct tsr_err *err)
{
    uint32_t       type = ((const struct eight *)self)->type;
    const uint8_t *unit = units;
    (void)side;
    (void)err;
    for (uint64_t i = 0; i < n; i++, unit += 4 + head_dim)
        for (uint64_t d = 0; d < head_dim; d++)
            x[i * head_dim + d] = scale_of(unit) * code_value(type, unit[4 + d]);
    return TSR_OK;
}

static tsr_status score(const void *self, uint64_t head_dim, const float *query, uint64_t n,
                        const void *units, float *out, struct tsr_err *err)
{
    uint32_t       type = ((const struct eight *)self)->type;
    const uint8_t *unit = units;
    (void)err;
    for (uint64_t i = 0; i < n; i++, unit += 4 + head_dim) {
        float sum = 0.0f;
        for (uint64_t d = 0; d < head_dim; d++)
            sum += query[d] * code_value(type, unit[4 + d]);
        out[i] = scale_of(unit) * sum;
    }
    return TSR_OK;
}

static tsr_status mix(const void *self, uint64_t head_dim, const float *weights, uint64_t n,
                      const void *units, float *sum, struct tsr_err *err)
{
    uint32_t       type = ((const struct eight *)self)->type;
    const uint8_t *unit = units;
    (void)err;
    for (uint64_t i = 0; i < n; i++, unit += 4 + head_dim)
        for (uint64_t d = 0; d < head_dim && weights[i] != 0.0f; d++)
            sum[d] += weights[i] * (scale_of(unit) * code_value(type, unit[4 + d]));
    return TSR_OK;
}

static const struct tsr_kv_v1 int8_table = {
    .struct_size = sizeof int8_table,
    .create = create_int8,
    .destroy = destroy,
    .layout = layout,
    .encode = encode,
    .decode = decode,
    .score = score,
    .mix = mix,
};
static const struct tsr_kv_v1 fp8_table = {
    .struct_size = sizeof fp8_table,
    .create = create_fp8,
    .destroy = destroy,
    .layout = layout,
    .encode = encode,
    .decode = decode,
    .score = score,
    .mix = mix,
};

static const struct tsr_component int8 = {
    .struct_size = sizeof int8,
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_KV,
    .name = "int8",
    .summary = "int8 cache, a scale per head and token.",
    .iface = &int8_table,
};
static const struct tsr_component fp8 = {
    .struct_size = sizeof fp8,
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_KV,
    .name = "fp8",
    .summary = "FP8 E4M3 cache, a scale per head and token.",
    .iface = &fp8_table,
};
static const struct tsr_component *const components[] = { &int8, &fp8 };

TSR_PLUGIN_SYMBOL(kv8) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.kv8",  .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 2,
};
