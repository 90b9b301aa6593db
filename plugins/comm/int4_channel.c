/* int4_channel - small integers under a scale for each feature (channel) of a message, found from the
 * message itself: the INT4 baseline of arXiv 2411.09510.  A row's numbers depend on the others of its
 * message, so messages are never cut.
 *
 * The wire: a BF16 scale for each feature; then every row's codes, `bits` each, as int4_bf16 has them.
 * scale = BF16(max |x| / q), q = 2^(bits-1) - 1.  A feature with NaN or an infinity has the scale NaN. */
#include "encode.h"
#include "rows.h"
#include "tessera/f16.h"

#include <math.h>

#define NAME "int4_channel"
#define SOME 512u /* features at once; a multiple of 8 */

struct channel_options {
    int64_t bits;
};

struct channel {
    const struct tsr_host   *host;
    const struct tsr_encode *encode;
    uint32_t                 bits;
};

static tsr_status channel_create(const struct tsr_host *host, const void *opts, void **self,
                                 struct tsr_err *err)
{
    const struct channel_options *o = opts;
    struct channel               *c = host->alloc(host->ctx, sizeof *c, 16);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for codec " NAME, sizeof *c);
    *c = (struct channel){ .host = host, .bits = (uint32_t)o->bits };
    tsr_status st = tsr_encode_pick(&c->encode, err);
    if (st != TSR_OK) {
        host->release(host->ctx, c, sizeof *c);
        return st;
    }
    *self = c;
    return TSR_OK;
}

static void channel_destroy(void *self)
{
    struct channel *c = self;
    if (c)
        c->host->release(c->host->ctx, c, sizeof *c);
}

static uint32_t channel_exactness(const void *self)
{
    (void)self;
    return TSR_CODEC_LOSSY;
}

static uint64_t row_bytes(const struct channel *c, uint64_t cols)
{
    return (cols * c->bits + 7) / 8;
}

static tsr_status channel_wire_bytes(const void *self, uint64_t rows, uint64_t cols,
                                     uint64_t *bytes, struct tsr_err *err)
{
    const struct channel *c = self;
    if (cols > UINT64_C(1) << 58)
        return tsr_fail(err, TSR_E_UNSUPPORTED, NAME ": rows of %llu elements are too long",
                        U(cols));
    tsr_status st = rows_bytes(NAME, rows, cols, row_bytes(c, cols), bytes, err);
    if (st == TSR_OK && rows && __builtin_add_overflow(*bytes, 2 * cols, bytes))
        return tsr_fail(err, TSR_E_UNSUPPORTED, NAME ": %llu x %llu elements are too many", U(rows),
                        U(cols));
    return st;
}

static tsr_status check(const struct channel *c, const struct tsr_codec_job *job, const void *data,
                        uint64_t *bytes, struct tsr_err *err)
{
    *bytes = 0;
    tsr_status st = channel_wire_bytes(c, job->rows, job->cols, bytes, err);
    return st == TSR_OK ? rows_message(NAME, job, data, *bytes, err) : st;
}

/* The scale of one feature: `x` and every `step` numbers on. */
static uint16_t scale_of(const float *x, uint64_t rows, uint64_t step, float most)
{
    uint32_t amax = 0;
    for (uint64_t r = 0; r < rows; r++) {
        uint32_t a = tsr_f32_bits(x[r * step]) & 0x7fffffffu;
        amax = a > amax ? a : amax;
    }
    return amax >= 0x7f800000u ? 0x7fc0 : tsr_f32_bf16(tsr_bits_f32(amax) / most);
}

static tsr_status channel_encode(const void *self, const struct tsr_codec_job *job,
                                 struct tsr_err *err)
{
    const struct channel *c = self;
    uint64_t              cols = job->cols, bytes;
    tsr_status            st = check(c, job, job->src, &bytes, err);
    uint8_t              *scales = job->wire, *codes = scales + 2 * cols;
    for (uint64_t at = 0; st == TSR_OK && bytes && at < cols; at += SOME) {
        uint64_t n = cols - at < SOME ? cols - at : SOME;
        float    inv[SOME];
        for (uint64_t i = 0; i < n; i++) {
            uint16_t h =
                scale_of(job->src + at + i, job->rows, cols, (float)((1 << (c->bits - 1)) - 1));
            memcpy(scales + 2 * (at + i), &h, 2);
            inv[i] = 1 / tsr_bf16_f32(h);
            if (!isfinite(inv[i]))
                inv[i] = 0;
        }
        for (uint64_t r = 0; r < job->rows; r++)
            c->encode->scaled_encode(c->bits, n, job->src + r * cols + at, inv,
                                     codes + r * row_bytes(c, cols) + at / 8 * c->bits);
    }
    return st;
}

static tsr_status decode(const struct channel *c, const struct tsr_codec_job *job, int add,
                         struct tsr_err *err)
{
    uint64_t       cols = job->cols, bytes;
    tsr_status     st = check(c, job, job->dst, &bytes, err);
    const uint8_t *scales = job->wire, *codes = scales + 2 * cols;
    for (uint64_t at = 0; st == TSR_OK && bytes && at < cols; at += SOME) {
        uint64_t n = cols - at < SOME ? cols - at : SOME;
        float    scale[SOME];
        for (uint64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, scales + 2 * (at + i), 2);
            scale[i] = tsr_bf16_f32(h);
        }
        for (uint64_t r = 0; r < job->rows; r++)
            c->encode->scaled_decode(c->bits, n, codes + r * row_bytes(c, cols) + at / 8 * c->bits,
                                     scale, job->dst + r * cols + at, add);
    }
    return st;
}

static tsr_status channel_decode(const void *self, const struct tsr_codec_job *job,
                                 struct tsr_err *err)
{
    return decode(self, job, 0, err);
}

static tsr_status channel_decode_add(const void *self, const struct tsr_codec_job *job,
                                     struct tsr_err *err)
{
    return decode(self, job, 1, err);
}

static const void *channel_extension(const void *self, const char *id)
{
    static const char yes[] = "yes";
    (void)self;
    return strcmp(id, TSR_CODEC_COUPLED) == 0 ? yes : NULL;
}

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct channel_options, bits, 4, 2, 8, "bits", "Width of the integers."),
};

static const struct tsr_codec_v1 table = {
    .struct_size = sizeof table,
    .create = channel_create,
    .destroy = channel_destroy,
    .exactness = channel_exactness,
    .wire_bytes = channel_wire_bytes,
    .encode = channel_encode,
    .decode = channel_decode,
    .decode_add = channel_decode_add,
    .extension = channel_extension,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_CODEC,
    .name = NAME,
    .summary = "Integers of 2 to 8 bits under a scale for each feature of the message: a baseline.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct channel_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(int4_channel) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.int4_channel",
    .version = "1.0.0",   .license = "Apache-2.0",
    .build = __VERSION__, .components = components,
    .n_components = 1,
};
