/* @NAME@ - activations as BF16 with error feedback: what rounding cut off a row at one exchange is added to the row at
 * the next exchange of the pass.  The wire is rows * cols elements of 2 bytes.  Infinities stay, a NaN becomes a quiet NaN
 * of the same sign, and what is above the largest BF16 becomes an infinity; these leave no error behind. */
#include <math.h>
#include <string.h>
#include <tessera/codec.h>
#include <tessera/f16.h>

struct codec {
    const struct tsr_host *host;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    (void)opts; /* no options; the quantizer's template has some */
    struct codec *c = host->alloc(host->ctx, sizeof *c, 16);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *c);
    c->host = host;
    *self = c;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct codec *c = self;
    if (c)
        c->host->release(c->host->ctx, c, sizeof *c);
}

static uint32_t exactness(const void *self)
{
    (void)self;
    return TSR_CODEC_LOSSY;
}

static tsr_status wire_bytes(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                             struct tsr_err *err)
{
    (void)self;
    if (rows && cols > UINT64_MAX / 2 / rows)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: %llu x %llu elements are too many",
                        (unsigned long long)rows, (unsigned long long)cols);
    *bytes = rows * cols * 2;
    return TSR_OK;
}

/* A stream is a pass of the model: the same rows at one exchange after the other. */
static uint32_t order(const void *self)
{
    (void)self;
    return TSR_CODEC_ORDER_PASS;
}

/* The end that encodes keeps an error for each element; the other end needs nothing. */
static tsr_status stream_bytes(const void *self, uint32_t end, uint64_t rows, uint64_t cols,
                               uint64_t *bytes, struct tsr_err *err)
{
    tsr_status st = wire_bytes(self, rows, cols, bytes, err);
    if (st == TSR_OK && *bytes > UINT64_MAX / 2)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: %llu x %llu elements are too many",
                        (unsigned long long)rows, (unsigned long long)cols);
    *bytes = end == TSR_CODEC_ENCODES ? 2 * *bytes : 0;
    return st;
}

/* A message that does not fit its buffers is refused before the first byte. */
static tsr_status check(const void *self, const struct tsr_codec_job *job, const void *floats,
                        struct tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = wire_bytes(self, job->rows, job->cols, &bytes, err);
    if (st == TSR_OK && (bytes != job->wire_bytes || (bytes && (!floats || !job->wire))))
        st = tsr_fail(err, TSR_E_INVAL, "@NAME@: %llu wire bytes were given, %llu are needed",
                      (unsigned long long)job->wire_bytes, (unsigned long long)bytes);
    return st;
}

static tsr_status encode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    tsr_status     st = check(self, job, job->src, err);
    unsigned char *wire = job->wire;
    float         *left = job->state; /* NULL: the first message of a stream that has no other */
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++) {
        float    x = left ? job->src[i] + left[i] : job->src[i];
        uint16_t half = tsr_f32_bf16(x);
        memcpy(wire + 2 * i, &half, 2);
        if (left)
            left[i] = isfinite(tsr_bf16_f32(half)) ? x - tsr_bf16_f32(half) : 0.0f;
    }
    return st;
}

static float element(const void *wire, uint64_t i)
{
    uint16_t half;
    memcpy(&half, (const unsigned char *)wire + 2 * i, 2);
    return tsr_bf16_f32(half);
}

static tsr_status decode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    tsr_status st = check(self, job, job->dst, err);
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++)
        job->dst[i] = element(job->wire, i);
    return st;
}

static tsr_status decode_add(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    tsr_status st = check(self, job, job->dst, err);
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++)
        job->dst[i] += element(job->wire, i);
    return st;
}

static const struct tsr_codec_stream_v1 stream = {
    .struct_size = sizeof stream, .order = order, .state_bytes = stream_bytes,
};

static const void *extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_CODEC_STREAM) == 0 ? &stream : NULL;
}

static const struct tsr_codec_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .exactness = exactness,
    .wire_bytes = wire_bytes, .encode = encode, .decode = decode, .decode_add = decode_add,
    .extension = extension,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_CODEC, .name = "@NAME@", .iface = &table,
    .summary = "Sends activations as BF16, with error feedback.",
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
