/* rows8 - activations as signed bytes: each block of columns of a row has an F32 scale, the largest
 * magnitude over 127.  The wire is, row by row, the scales and then the codes.  A block with a NaN
 * or an infinity in it arrives as NaN; blocks of zeros, or too small for a scale, as zeros. */
#include <math.h>
#include <string.h>
#include <tessera/codec.h>

struct options {
    int64_t block;
};
struct codec {
    const struct tsr_host *host;
    uint64_t               block;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    const struct options *o = opts;
    struct codec         *c = host->alloc(host->ctx, sizeof *c, 16);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "rows8: out of memory: %zu bytes", sizeof *c);
    *c = (struct codec){ host, (uint64_t)o->block };
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

static uint64_t blocks_of(const struct codec *c, uint64_t cols)
{
    return cols / c->block + (cols % c->block != 0);
}

static tsr_status wire_bytes(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                             struct tsr_err *err)
{
    if (rows && cols > UINT64_MAX / 5 / rows)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "rows8: a message has too many elements");
    *bytes = rows * (blocks_of(self, cols) * 4 + cols);
    return TSR_OK;
}

/* A message that does not fit its buffers is refused before the first byte. */
static tsr_status check(const void *self, const struct tsr_codec_job *job, const void *floats,
                        struct tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = wire_bytes(self, job->rows, job->cols, &bytes, err);
    if (st == TSR_OK && (bytes != job->wire_bytes || (bytes && (!floats || !job->wire))))
        st = tsr_fail(err, TSR_E_INVAL, "rows8: %llu wire bytes were given, %llu are needed",
                      (unsigned long long)job->wire_bytes, (unsigned long long)bytes);
    return st;
}

/* NaN for a block that holds what is not finite: everything in it decodes to 0 * NaN. */
static float scale_of(const float *x, uint64_t n)
{
    float largest = 0.0f;
    for (uint64_t k = 0; k < n; k++) {
        if (!isfinite(x[k]))
            return NAN;
        largest = fmaxf(largest, fabsf(x[k]));
    }
    float scale = largest / 127.0f;
    return isfinite(scale * 127.0f) ? scale : nextafterf(scale, 0.0f);
}

static tsr_status encode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    const struct codec *c = self;
    tsr_status          st = check(self, job, job->src, err);
    uint64_t            blocks = blocks_of(c, job->cols);
    for (uint64_t r = 0; st == TSR_OK && r < job->rows; r++) {
        const float *x = job->src + r * job->cols;
        char        *scales = (char *)job->wire + r * (blocks * 4 + job->cols);
        signed char *codes = (signed char *)scales + blocks * 4;
        float        scale = 0.0f;
        for (uint64_t k = 0; k < job->cols; k++) {
            uint64_t left = job->cols - k;
            if (k % c->block == 0) {
                scale = scale_of(x + k, left < c->block ? left : c->block);
                memcpy(scales + k / c->block * 4, &scale, 4); /* the wire may lie anywhere */
            }
            float n = scale > 0.0f ? rintf(x[k] / scale) : 0.0f;
            codes[k] = (signed char)fminf(fmaxf(n, -127.0f), 127.0f);
        }
    }
    return st;
}

static tsr_status unpack(const void *self, const struct tsr_codec_job *job, int add,
                         struct tsr_err *err)
{
    const struct codec *c = self;
    tsr_status          st = check(self, job, job->dst, err);
    uint64_t            blocks = blocks_of(c, job->cols);
    for (uint64_t r = 0; st == TSR_OK && r < job->rows; r++) {
        float             *x = job->dst + r * job->cols;
        const char        *scales = (const char *)job->wire + r * (blocks * 4 + job->cols);
        const signed char *codes = (const signed char *)scales + blocks * 4;
        for (uint64_t k = 0; k < job->cols; k++) {
            float scale;
            memcpy(&scale, scales + k / c->block * 4, 4);
            x[k] = add ? x[k] + (float)codes[k] * scale : (float)codes[k] * scale;
        }
    }
    return st;
}

static tsr_status decode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    return unpack(self, job, 0, err);
}

static tsr_status decode_add(const void *self, const struct tsr_codec_job *job,
                             struct tsr_err *err)
{
    return unpack(self, job, 1, err);
}

static const struct tsr_codec_v1 table = {
    .struct_size = sizeof table, .create = create, .destroy = destroy, .exactness = exactness,
    .wire_bytes = wire_bytes, .encode = encode, .decode = decode, .decode_add = decode_add,
};
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct options, block, 64, 1, 65536, "columns", "Columns that share a scale."),
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof options[0],
    .kind = TSR_KIND_CODEC, .name = "rows8", .iface = &table,
    .summary = "Sends activations as signed bytes with a scale for each block of columns.",
    .options = options, .n_options = 1, .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(rows8) = {
    TSR_PLUGIN_HEADER, .id = "org.example.rows8", .version = "0.1.0", .license = "MIT",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
