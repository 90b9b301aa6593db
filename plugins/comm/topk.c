/* topk - the largest magnitudes of a row as BF16, zero for the rest: the TopK baseline of
 * arXiv 2411.09510.  Nothing is calibrated; rows are independent.
 *
 * A row on the wire: k numbers as BF16 in ascending order of their columns; then those columns, as many
 * bits each as cols - 1 has, a little-endian bit stream padded with zero bits to a byte.  k is the most
 * that fits into 16 / ratio bits a number, at least 1.  Of equal magnitudes the lower column goes; NaN
 * counts as the largest. */
#include "rows.h"
#include "tessera/f16.h"

#define NAME "topk"

struct topk_options {
    double ratio;
};

struct topk {
    const struct tsr_host *host;
    double                 ratio;
};

static tsr_status topk_create(const struct tsr_host *host, const void *opts, void **self,
                              struct tsr_err *err)
{
    const struct topk_options *o = opts;
    struct topk               *c = host->alloc(host->ctx, sizeof *c, 16);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for codec " NAME, sizeof *c);
    *c = (struct topk){ host, o->ratio };
    *self = c;
    return TSR_OK;
}

static void topk_destroy(void *self)
{
    struct topk *c = self;
    if (c)
        c->host->release(c->host->ctx, c, sizeof *c);
}

static uint32_t topk_exactness(const void *self)
{
    (void)self;
    return TSR_CODEC_LOSSY;
}

/* Bits of a column, numbers of a row, bytes of a row. */
struct shape {
    uint32_t bits;
    uint64_t k, bytes;
};

static struct shape shape_of(const struct topk *c, uint64_t cols)
{
    struct shape s = { .bits = 1 };
    while (s.bits < 32 && (cols - 1) >> s.bits)
        s.bits++;
    if (cols == 0)
        return s;
    s.k = (uint64_t)((double)cols * 16 / c->ratio / (16 + s.bits));
    s.k = s.k == 0 ? 1 : s.k > cols ? cols : s.k;
    s.bytes = 2 * s.k + (s.k * s.bits + 7) / 8;
    return s;
}

static tsr_status topk_wire_bytes(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                                  struct tsr_err *err)
{
    if (cols > UINT32_MAX)
        return tsr_fail(err, TSR_E_UNSUPPORTED, NAME ": rows of %llu elements are too long",
                        U(cols));
    return rows_bytes(NAME, rows, cols, shape_of(self, cols).bytes, bytes, err);
}

static tsr_status check(const struct topk *c, const struct tsr_codec_job *job, const void *data,
                        uint64_t *bytes, struct tsr_err *err)
{
    *bytes = 0;
    tsr_status st = topk_wire_bytes(c, job->rows, job->cols, bytes, err);
    return st == TSR_OK ? rows_message(NAME, job, data, *bytes, err) : st;
}

static uint32_t magnitude(float x)
{
    return tsr_f32_bits(x) & 0x7fffffffu;
}

/* The k-th largest magnitude, and how many of that size are among the k: eleven, ten and ten bits of it
 * at a time. */
static uint32_t kth(const float *x, uint64_t cols, uint64_t k, uint64_t *of_these)
{
    static const uint32_t low[] = { 20, 10, 0 };
    uint32_t              found = 0, mask = 0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t count[2048] = { 0 }, digit = (pass ? 1024 : 2048) - 1, top = digit;
        for (uint64_t i = 0; i < cols; i++) {
            uint32_t m = magnitude(x[i]);
            if ((m & mask) == found)
                count[m >> low[pass] & digit]++;
        }
        for (; top && count[top] < k; top--)
            k -= count[top];
        found |= top << low[pass];
        mask |= digit << low[pass];
    }
    *of_these = k;
    return found;
}

/* Little-endian bit streams. */
struct bits {
    uint8_t *p;
    uint64_t acc;
    uint32_t have;
};

static void bits_put(struct bits *b, uint32_t v, uint32_t n)
{
    b->acc |= (uint64_t)v << b->have;
    for (b->have += n; b->have >= 8; b->have -= 8, b->acc >>= 8)
        *b->p++ = (uint8_t)b->acc;
}

static uint32_t bits_get(struct bits *b, uint32_t n)
{
    for (; b->have < n; b->have += 8)
        b->acc |= (uint64_t)*b->p++ << b->have;
    uint32_t v = (uint32_t)(b->acc & ((UINT64_C(1) << n) - 1));
    b->acc >>= n;
    b->have -= n;
    return v;
}

static tsr_status topk_encode(const void *self, const struct tsr_codec_job *job,
                              struct tsr_err *err)
{
    const struct topk *c = self;
    uint64_t           bytes;
    tsr_status         st = check(c, job, job->src, &bytes, err);
    struct shape       s = shape_of(c, job->cols);
    for (uint64_t r = 0; st == TSR_OK && bytes && r < job->rows; r++) {
        const float *x = job->src + r * job->cols;
        uint8_t     *wire = (uint8_t *)job->wire + r * s.bytes;
        struct bits  at = { .p = wire + 2 * s.k };
        uint64_t     equal;
        if (r % 64 == 0 && c->host->cancelled(c->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "topk: stopped");
        uint32_t least = kth(x, job->cols, s.k, &equal);
        for (uint64_t i = 0; i < job->cols; i++) {
            uint32_t m = magnitude(x[i]);
            if (m < least || (m == least && equal == 0))
                continue;
            equal -= m == least;
            uint16_t h = tsr_f32_bf16(x[i]);
            memcpy(wire, &h, 2);
            wire += 2;
            bits_put(&at, (uint32_t)i, s.bits);
        }
        if (at.have)
            *at.p = (uint8_t)at.acc;
    }
    return st;
}

/* A missing number is zero, and is added as zero. */
static void fill(float *dst, uint64_t begin, uint64_t end, int add)
{
    for (uint64_t i = begin; i < end; i++)
        dst[i] = add ? dst[i] + 0.0f : 0.0f;
}

static tsr_status decode_row(const struct shape *s, const struct tsr_codec_job *job, uint64_t r,
                             int add, struct tsr_err *err)
{
    float         *dst = job->dst + r * job->cols;
    const uint8_t *wire = (const uint8_t *)job->wire + r * s->bytes;
    struct bits    at = { .p = (uint8_t *)job->wire + r * s->bytes + 2 * s->k }; /* is read only */
    uint64_t       next = 0;
    for (uint64_t i = 0; i < s->k; i++) {
        uint64_t col = bits_get(&at, s->bits);
        uint16_t h;
        if (col >= job->cols || col < next)
            return tsr_fail(err, TSR_E_INVAL,
                            NAME
                            ": site %u, source %u: row %llu of a message names column %llu past "
                            "%llu of %llu; it is damaged",
                            job->site, job->source, U(r), U(col), U(next), U(job->cols));
        memcpy(&h, wire + 2 * i, 2);
        fill(dst, next, col, add);
        dst[col] = add ? dst[col] + tsr_bf16_f32(h) : tsr_bf16_f32(h);
        next = col + 1;
    }
    fill(dst, next, job->cols, add);
    return TSR_OK;
}

static tsr_status decode(const struct topk *c, const struct tsr_codec_job *job, int add,
                         struct tsr_err *err)
{
    uint64_t     bytes;
    tsr_status   st = check(c, job, job->dst, &bytes, err);
    struct shape s = shape_of(c, job->cols);
    for (uint64_t r = 0; st == TSR_OK && bytes && r < job->rows; r++)
        st = decode_row(&s, job, r, add, err);
    return st;
}

static tsr_status topk_decode(const void *self, const struct tsr_codec_job *job,
                              struct tsr_err *err)
{
    return decode(self, job, 0, err);
}

static tsr_status topk_decode_add(const void *self, const struct tsr_codec_job *job,
                                  struct tsr_err *err)
{
    return decode(self, job, 1, err);
}

static const struct tsr_option options[] = {
    TSR_OPTION_REAL(struct topk_options, ratio, 3.0, 0.25, 1024.0, NULL,
                    "How many times fewer bytes than BF16."),
};

static const struct tsr_codec_v1 table = {
    .struct_size = sizeof table,
    .create = topk_create,
    .destroy = topk_destroy,
    .exactness = topk_exactness,
    .wire_bytes = topk_wire_bytes,
    .encode = topk_encode,
    .decode = topk_decode,
    .decode_add = topk_decode_add,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_CODEC,
    .name = NAME,
    .summary = "The largest magnitudes of a row in BF16, zero for the rest: a baseline.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct topk_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(topk) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.topk", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,
};
