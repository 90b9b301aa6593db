/* kivi - KV cache of 2, 4 or 8 bits: keys by channel, values by token (KIVI, Liu et al., arXiv:2402.02750).
 *
 *   keys    a block of 32 positions: F16 scale of each channel, F16 minimum of each channel, then 32 codes of each channel
 *   values  a position: for each group of 32 channels, of which the last may be short, F16 scale, F16 minimum, and the codes of each
 *           16 channels, of which the last may be short
 *
 * An element is scale * code + minimum.  n codes of b bits take n * b / 8 bytes; byte j has the codes j, j + n * b / 8, ... from its
 * low bits on.  With 4 bits these are the bytes of TSR_Q4_CHANNEL and TSR_Q4 (tessera/kv_cache.h); int4 is that, and says so, for
 * which backends run their own kernels over it. */
#include "tessera/kv.h"

#include "tessera/f16.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define GROUP TSR_KV_GROUP
#define BLOCK TSR_KV_BLOCK

struct options {
    int64_t bits;
};

struct kivi {
    const struct tsr_host *host;
    unsigned               bits;
    bool                   typed; /* units of a type of backends */
};

static tsr_status make(const struct tsr_host *host, int64_t bits, bool typed, void **self,
                       struct tsr_err *err)
{
    struct kivi *k = host->alloc(host->ctx, sizeof *k, 16);
    if (!k)
        return tsr_fail(err, TSR_E_NOMEM, "kivi: out of memory: %zu bytes", sizeof *k);
    *k = (struct kivi){ host, (unsigned)bits, typed };
    *self = k;
    return TSR_OK;
}

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    return make(host, ((const struct options *)opts)->bits, false, self, err);
}

static tsr_status create_int4(const struct tsr_host *host, const void *opts, void **self,
                              struct tsr_err *err)
{
    (void)opts;
    return make(host, 4, true, self, err);
}

static void destroy(void *self)
{
    struct kivi *k = self;
    if (k)
        k->host->release(k->host->ctx, k, sizeof *k);
}

/* Bytes of a block of keys; those of TSR_Q4_CHANNEL may have zeros at their end. */
static uint64_t key_bytes(const struct kivi *k, uint64_t head_dim)
{
    return k->typed ? BLOCK * tsr_kv_head_bytes(TSR_Q4_CHANNEL, head_dim)
                    : head_dim * (4 + 4 * k->bits);
}

/* Bytes of a head of values. */
static uint64_t value_bytes(unsigned bits, uint64_t head_dim)
{
    return (head_dim + GROUP - 1) / GROUP * 4 + (head_dim + 15) / 16 * 2 * bits;
}

static tsr_status layout(const void *self, uint32_t side, uint64_t head_dim,
                         struct tsr_kv_layout *l, struct tsr_err *err)
{
    const struct kivi *k = self;
    unsigned           bits = k->bits;
    (void)err;
    l->positions = side == TSR_KV_KEYS ? BLOCK : 1;
    l->bytes = side == TSR_KV_KEYS ? key_bytes(k, head_dim) : value_bytes(bits, head_dim);
    /* half a step of a range of twice the largest element, and what F16 takes from scale and minimum */
    l->error = 1.0 / ((1u << bits) - 1) + 0x1p-7;
    if (k->typed)
        TSR_SET(struct tsr_kv_layout, l, type, side == TSR_KV_KEYS ? TSR_Q4_CHANNEL : TSR_Q4);
    return TSR_OK;
}

/* ---- codes -------------------------------------------------------------------------- */

/* Codes of n elements, at most 32, with the F16 of their scale and minimum.  A group that F16 cannot describe is NaN. */
static void quantize(unsigned bits, const float *x, unsigned n, uint8_t *code, uint16_t half[2])
{
    float lo = x[0], hi = x[0], zero = 0.0f, most = (float)((1u << bits) - 1), inv = 0.0f;
    for (unsigned i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        zero += x[i] * 0.0f; /* NaN for an element that is not finite */
    }
    half[0] = tsr_f32_f16((hi - lo) / most);
    half[1] = tsr_f32_f16(lo);
    float scale = tsr_f16_f32(half[0]), minimum = tsr_f16_f32(half[1]);
    if (zero != 0.0f || !(scale <= FLT_MAX) || !(fabsf(minimum) <= FLT_MAX))
        half[0] = half[1] = 0x7e00;
    else if (scale > 0.0f)
        inv = 1.0f / scale;
    for (unsigned i = 0; i < n; i++) {
        float y = inv > 0.0f ? rintf((x[i] - minimum) * inv) : 0.0f;
        code[i] = y > 0.0f ? (uint8_t)(y < most ? y : most) : 0;
    }
}

static void pack(unsigned bits, const uint8_t *code, unsigned n, uint8_t *to)
{
    unsigned bytes = n * bits / 8;
    for (unsigned j = 0; j < bytes; j++) {
        unsigned byte = 0;
        for (unsigned k = 0; k < 8 / bits; k++)
            byte |= (unsigned)code[j + k * bytes] << (k * bits);
        to[j] = (uint8_t)byte;
    }
}

static void unpack(unsigned bits, const uint8_t *from, unsigned n, uint8_t *code)
{
    unsigned bytes = n * bits / 8, mask = (1u << bits) - 1;
    for (unsigned k = 0; k < 8 / bits; k++)
        for (unsigned j = 0; j < bytes; j++)
            code[j + k * bytes] = (uint8_t)(from[j] >> (k * bits) & mask);
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return tsr_f16_f32(h);
}

/* ---- units -------------------------------------------------------------------------- */

static void encode_keys(unsigned bits, uint64_t dim, const float *x, uint8_t *to)
{
    for (uint64_t d = 0; d < dim; d++) {
        float    channel[BLOCK];
        uint8_t  code[BLOCK];
        uint16_t half[2];
        for (unsigned j = 0; j < BLOCK; j++)
            channel[j] = x[j * dim + d];
        quantize(bits, channel, BLOCK, code, half);
        memcpy(to + 2 * d, &half[0], 2);
        memcpy(to + 2 * (dim + d), &half[1], 2);
        pack(bits, code, BLOCK, to + 4 * dim + (uint64_t)4 * bits * d);
    }
}

static void decode_keys(unsigned bits, uint64_t dim, const uint8_t *from, float *x)
{
    for (uint64_t d = 0; d < dim; d++) {
        float   scale = half_at(from + 2 * d), minimum = half_at(from + 2 * (dim + d));
        uint8_t code[BLOCK];
        unpack(bits, from + 4 * dim + (uint64_t)4 * bits * d, BLOCK, code);
        for (unsigned j = 0; j < BLOCK; j++)
            x[j * dim + d] = scale * (float)code[j] + minimum;
    }
}

static void encode_values(unsigned bits, uint64_t dim, const float *x, uint8_t *to)
{
    for (uint64_t d = 0; d < dim; d += GROUP) {
        unsigned n = (unsigned)(dim - d < GROUP ? dim - d : GROUP);
        uint8_t  code[GROUP] = { 0 };
        uint16_t half[2];
        quantize(bits, x + d, n, code, half);
        memcpy(to, half, 4);
        to += 4;
        for (unsigned i = 0; i < n; i += 16, to += (size_t)2 * bits)
            pack(bits, code + i, 16, to);
    }
}

static void decode_values(unsigned bits, uint64_t dim, const uint8_t *from, float *x)
{
    for (uint64_t d = 0; d < dim; d += GROUP) {
        unsigned n = (unsigned)(dim - d < GROUP ? dim - d : GROUP);
        float    scale = half_at(from), minimum = half_at(from + 2);
        uint8_t  code[GROUP] = { 0 };
        from += 4;
        for (unsigned i = 0; i < n; i += 16, from += (size_t)2 * bits)
            unpack(bits, from, 16, code + i);
        for (unsigned i = 0; i < n; i++)
            x[d + i] = scale * (float)code[i] + minimum;
    }
}

static tsr_status encode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const float *x, void *units, struct tsr_err *err)
{
    unsigned bits = ((const struct kivi *)self)->bits;
    uint64_t keys = key_bytes(self, head_dim), used = head_dim * (4 + 4 * bits);
    uint8_t *to = units;
    (void)err;
    for (uint64_t i = 0; i < n; i++)
        if (side == TSR_KV_KEYS) {
            encode_keys(bits, head_dim, x + i * BLOCK * head_dim, to + i * keys);
            memset(to + i * keys + used, 0, keys - used);
        } else
            encode_values(bits, head_dim, x + i * head_dim, to + i * value_bytes(bits, head_dim));
    return TSR_OK;
}

static tsr_status decode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const void *units, float *x, struct tsr_err *err)
{
    unsigned       bits = ((const struct kivi *)self)->bits;
    uint64_t       keys = key_bytes(self, head_dim);
    const uint8_t *from = units;
    (void)err;
    for (uint64_t i = 0; i < n; i++)
        if (side == TSR_KV_KEYS)
            decode_keys(bits, head_dim, from + i * keys, x + i * BLOCK * head_dim);
        else
            decode_values(bits, head_dim, from + i * value_bytes(bits, head_dim), x + i * head_dim);
    return TSR_OK;
}

/* query . key = sum of (query * scale) * code, and of query * minimum, which all positions share. */
static tsr_status score(const void *self, uint64_t head_dim, const float *query, uint64_t n,
                        const void *units, float *out, struct tsr_err *err)
{
    unsigned bits = ((const struct kivi *)self)->bits;
    uint64_t keys = key_bytes(self, head_dim);
    (void)err;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *from = (const uint8_t *)units + i * keys;
        float          sum[BLOCK] = { 0 }, shared = 0.0f;
        for (uint64_t d = 0; d < head_dim; d++) {
            float   q = query[d] * half_at(from + 2 * d);
            uint8_t code[BLOCK];
            shared += query[d] * half_at(from + 2 * (head_dim + d));
            unpack(bits, from + 4 * head_dim + (uint64_t)4 * bits * d, BLOCK, code);
            for (unsigned j = 0; j < BLOCK; j++)
                sum[j] += q * (float)code[j];
        }
        for (unsigned j = 0; j < BLOCK; j++)
            out[i * BLOCK + j] = sum[j] + shared;
    }
    return TSR_OK;
}

static tsr_status mix(const void *self, uint64_t head_dim, const float *weights, uint64_t n,
                      const void *units, float *sum, struct tsr_err *err)
{
    unsigned       bits = ((const struct kivi *)self)->bits;
    const uint8_t *unit = units;
    (void)err;
    for (uint64_t i = 0; i < n; i++, unit += value_bytes(bits, head_dim)) {
        const uint8_t *from = unit;
        for (uint64_t d = 0; d < head_dim && weights[i] != 0.0f; d += GROUP) {
            unsigned group = (unsigned)(head_dim - d < GROUP ? head_dim - d : GROUP);
            float    x[GROUP];
            decode_values(bits, group, from, x);
            from += value_bytes(bits, group);
            for (unsigned j = 0; j < group; j++)
                sum[d + j] += weights[i] * x[j];
        }
    }
    return TSR_OK;
}

static const struct tsr_kv_v1 table = {
    .struct_size = sizeof table,
    .create = create,
    .destroy = destroy,
    .layout = layout,
    .encode = encode,
    .decode = decode,
    .score = score,
};
static const struct tsr_kv_v1 int4_table = {
    .struct_size = sizeof int4_table,
    .create = create_int4,
    .destroy = destroy,
    .layout = layout,
    .encode = encode,
    .decode = decode,
    .score = score,
    .mix = mix,
};

static const struct tsr_choice widths[] = { { "2", "a quarter of a byte", 2 },
                                            { "4", "half a byte", 4 },
                                            { "8", "a byte", 8 } };
static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct options, bits, 2, widths, "Bits of a code."),
};

static const struct tsr_component kivi = {
    .struct_size = sizeof kivi,
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_KV,
    .name = "kivi",
    .summary = "KV cache of few bits: keys by channel, values by token.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};
static const struct tsr_component int4 = {
    .struct_size = sizeof int4,
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_KV,
    .name = "int4",
    .summary =
        "4-bit cache: keys with a scale and minimum per channel and 32 positions, values per token "
        "and 32 channels.",
    .iface = &int4_table,
};
static const struct tsr_component *const components[] = { &kivi, &int4 };

TSR_PLUGIN_SYMBOL(kivi) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.kivi", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 2,
};
