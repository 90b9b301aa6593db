/* @NAME@ - activations as BF16: the upper half of each F32, rounded to nearest, ties to even.
 * The wire is rows * cols elements of 2 bytes.  Infinities stay, a NaN becomes a quiet NaN of the
 * same sign, and what is above the largest BF16 becomes an infinity. */
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
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++) {
        uint16_t half = tsr_f32_bf16(job->src[i]);
        memcpy(wire + 2 * i, &half, 2);
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

static const struct tsr_codec_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .exactness = exactness,
    .wire_bytes = wire_bytes, .encode = encode, .decode = decode, .decode_add = decode_add,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_CODEC, .name = "@NAME@", .iface = &table,
    .summary = "Sends activations as BF16.",
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
