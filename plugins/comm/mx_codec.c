/* mx - the codec of MX blocks: every row becomes blocks of small floats or integers with a power of two as
 * scale (docs/formats/codecs.md). Nothing is calibrated; rows are independent.
 *
 * With `feedback` the error of a message is added to the next one (error feedback, arXiv 1901.09847), either
 * along the layers or along the tokens. The wire stays the same, and decoding keeps no state.
 *
 * A row on the wire: the blocks' scales, scale_bits each, padded with zero bits to a byte; then the codes,
 * padded in the same way; both little-endian bit streams as in docs/formats/mx.md. A block with NaN, an
 * infinity, or a number outside the range of its scale becomes NaN. */
#include "../quant/mx/choices.h"
#include "rows.h"

#include <math.h>
#include <string.h>

#define BLOCKS 64u /* whose scales wait to be packed; a multiple of 8 */

enum { FEEDBACK_NONE, FEEDBACK_LAYERS, FEEDBACK_TOKENS };
static const struct tsr_choice feedback_choices[] = {
    { "none", "each message alone", FEEDBACK_NONE },
    { "layers", "to the next message of the same row, in one pass of the model", FEEDBACK_LAYERS },
    { "tokens", "to the next token at the same place; order: required", FEEDBACK_TOKENS },
};

struct mx_options {
    int64_t element, block, scale_bits, rounding, scale_rule, feedback;
};

struct mx {
    const struct tsr_host   *host;
    const struct tsr_encode *encode;
    struct tsr_encode_mx     spec;
    struct tsr_decode_mx     back;
    int64_t                  feedback;
};

static tsr_status mx_create(const struct tsr_host *host, const void *opts, void **self,
                            struct tsr_err *err)
{
    const struct mx_options *o = opts;
    struct mx               *c = host->alloc(host->ctx, sizeof *c, 16);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for codec mx", sizeof *c);
    c->host = host;
    c->feedback = o->feedback;
    c->spec = (struct tsr_encode_mx){ .element = (uint32_t)o->element,
                                      .scale_bits = (uint32_t)o->scale_bits,
                                      .rounding = (uint32_t)o->rounding,
                                      .scale_rule = (uint32_t)o->scale_rule,
                                      .block = (uint64_t)o->block };
    tsr_status st = tsr_encode_pick(&c->encode, err);
    if (st == TSR_OK)
        st = tsr_encode_mx_check(&c->spec, err);
    if (st != TSR_OK) {
        host->release(host->ctx, c, sizeof *c);
        return st;
    }
    tsr_decode_mx_init(&c->back, &c->spec, c->spec.block);
    *self = c;
    return TSR_OK;
}

static void mx_destroy(void *self)
{
    struct mx *c = self;
    if (c)
        c->host->release(c->host->ctx, c, sizeof *c);
}

static uint32_t mx_exactness(const void *self)
{
    (void)self;
    return TSR_CODEC_LOSSY;
}

/* Bytes of a row's scales, and of its scales and codes. */
static uint64_t scale_bytes(const struct mx *c, uint64_t cols)
{
    uint64_t blocks = cols / c->spec.block + (cols % c->spec.block != 0);
    return (blocks * c->spec.scale_bits + 7) / 8;
}

static uint64_t row_bytes(const struct mx *c, uint64_t cols)
{
    return scale_bytes(c, cols) + (cols * c->back.bits + 7) / 8;
}

static tsr_status mx_wire_bytes(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                                struct tsr_err *err)
{
    const struct mx *c = self;
    if (cols > UINT64_C(1) << 58)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "mx: rows of %llu elements are too long", U(cols));
    return rows_bytes("mx", rows, cols, row_bytes(c, cols), bytes, err);
}

static tsr_status check(const struct mx *c, const struct tsr_codec_job *job, const void *data,
                        struct tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = mx_wire_bytes(c, job->rows, job->cols, &bytes, err);
    return st == TSR_OK ? rows_message("mx", job, data, bytes, err) : st;
}

static void pack_scales(uint8_t *to, const uint8_t *scales, uint64_t n, uint32_t bits)
{
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t x = 0, m = n - i < 8 ? n - i : 8;
        memcpy(&x, scales + i, m);
        x = tsr_squeeze8(x, bits);
        memcpy(to + i / 8 * bits, &x, (m * bits + 7) / 8);
    }
}

static void unpack_scales(uint8_t *scales, const uint8_t *from, uint64_t n, uint32_t bits)
{
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t x = 0, m = n - i < 8 ? n - i : 8;
        memcpy(&x, from + i / 8 * bits, (m * bits + 7) / 8);
        x = tsr_spread8(x, bits);
        memcpy(scales + i, &x, m);
    }
}

static void encode_row(const struct mx *c, uint64_t cols, const float *x, uint8_t *wire)
{
    uint8_t *codes = wire + scale_bytes(c, cols), scales[BLOCKS];
    if (c->spec.scale_bits == 8) {
        (void)c->encode->mx_row(&c->spec, cols, x, codes, wire);
        return;
    }
    for (uint64_t at = 0; at < cols; at += BLOCKS * c->spec.block) {
        uint64_t n = cols - at < BLOCKS * c->spec.block ? cols - at : BLOCKS * c->spec.block;
        (void)c->encode->mx_row(&c->spec, n, x + at, codes + at / 8 * c->back.bits, scales);
        pack_scales(wire + at / c->spec.block / 8 * c->spec.scale_bits, scales,
                    (n - 1) / c->spec.block + 1, c->spec.scale_bits);
    }
}

static void decode_row(const struct mx *c, uint64_t cols, const uint8_t *wire, float *dst, int add)
{
    const uint8_t *codes = wire + scale_bytes(c, cols);
    uint8_t        scales[BLOCKS];
    if (c->spec.scale_bits == 8) {
        c->encode->mx_decode(&c->back, cols, codes, wire, dst, add);
        return;
    }
    for (uint64_t at = 0; at < cols; at += BLOCKS * c->spec.block) {
        uint64_t n = cols - at < BLOCKS * c->spec.block ? cols - at : BLOCKS * c->spec.block;
        unpack_scales(scales, wire + at / c->spec.block / 8 * c->spec.scale_bits,
                      (n - 1) / c->spec.block + 1, c->spec.scale_bits);
        c->encode->mx_decode(&c->back, n, codes + at / 8 * c->back.bits, scales, dst + at, add);
    }
}

/* A row with the error of the last one.  `minus` is the state: the error with its sign turned, so that
 * decode_row() can add to it. */
static void encode_fed(const struct mx *c, uint64_t cols, const float *x, float *minus,
                       uint8_t *wire)
{
    for (uint64_t i = 0; i < cols; i++)
        minus[i] = x[i] - minus[i];
    encode_row(c, cols, minus, wire);
    for (uint64_t i = 0; i < cols; i++)
        minus[i] = -minus[i];
    decode_row(c, cols, wire, minus, 1);
    for (uint64_t i = 0; i < cols; i++)
        if (!isfinite(minus[i])) /* a NaN stays in its message */
            minus[i] = 0;
}

static tsr_status mx_encode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    const struct mx *c = self;
    tsr_status       st = check(c, job, job->src, err);
    uint64_t         step = row_bytes(c, job->cols), cols = job->cols;
    float *minus = c->feedback != FEEDBACK_NONE && TSR_HAS(struct tsr_codec_job, job, state)
                       ? job->state
                       : NULL;
    for (uint64_t r = 0; st == TSR_OK && step && r < job->rows; r++) {
        const float *x = job->src + r * cols;
        uint8_t     *wire = (uint8_t *)job->wire + r * step;
        if (!minus)
            encode_row(c, cols, x, wire);
        else
            encode_fed(c, cols, x, minus + (c->feedback == FEEDBACK_LAYERS ? r * cols : 0), wire);
    }
    return st;
}

static tsr_status decode(const struct mx *c, const struct tsr_codec_job *job, int add,
                         struct tsr_err *err)
{
    tsr_status st = check(c, job, job->dst, err);
    uint64_t   step = row_bytes(c, job->cols);
    for (uint64_t r = 0; st == TSR_OK && step && r < job->rows; r++)
        decode_row(c, job->cols, (const uint8_t *)job->wire + r * step, job->dst + r * job->cols,
                   add);
    return st;
}

static tsr_status mx_decode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    return decode(self, job, 0, err);
}

static tsr_status mx_decode_add(const void *self, const struct tsr_codec_job *job,
                                struct tsr_err *err)
{
    return decode(self, job, 1, err);
}

/* ---- for devices ------------------------------------------------------------------ */

_Static_assert(TSR_WIRE_NEAREST == TSR_ENCODE_NEAREST && TSR_WIRE_EVEN == TSR_ENCODE_EVEN &&
                   TSR_WIRE_FLOOR == TSR_ENCODE_FLOOR &&
                   TSR_WIRE_SCALE_FLOOR == TSR_ENCODE_SCALE_FLOOR &&
                   TSR_WIRE_SCALE_EVEN == TSR_ENCODE_SCALE_EVEN &&
                   TSR_WIRE_SCALE_CEIL == TSR_ENCODE_SCALE_CEIL,
               "the wire's numbers are those of the options");

static tsr_status mx_wire(const void *self, uint32_t site, uint32_t source, uint64_t cols,
                          struct tsr_codec_wire *w, struct tsr_err *err)
{
    const struct mx *c = self;
    (void)site;
    (void)source;
    if (c->feedback != FEEDBACK_NONE)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "mx: a device keeps no errors of messages, which "
                        "'feedback' needs");
    w->kind = TSR_WIRE_MX;
    w->same = 1;
    w->cols = cols;
    w->element = c->spec.element;
    w->scale_bits = c->spec.scale_bits;
    w->rounding = c->spec.rounding;
    w->scale_rule = c->spec.scale_rule;
    w->block = c->spec.block;
    return mx_wire_bytes(c, 1, cols, &w->row_bytes, err);
}

static const struct tsr_codec_wire_v1 wires = { .struct_size = sizeof wires, .wire = mx_wire };

/* ---- error feedback --------------------------------------------------------------- */

static uint32_t mx_order(const void *self)
{
    return ((const struct mx *)self)->feedback == FEEDBACK_TOKENS ? TSR_CODEC_ORDER_REQUIRED
                                                                  : TSR_CODEC_ORDER_PASS;
}

static tsr_status mx_state_bytes(const void *self, uint32_t end, uint64_t rows, uint64_t cols,
                                 uint64_t *bytes, struct tsr_err *err)
{
    uint64_t   wire;
    tsr_status st = mx_wire_bytes(self, rows, cols, &wire, err);
    if (st != TSR_OK)
        return st;
    *bytes = end != TSR_CODEC_ENCODES                     ? 0
             : mx_order(self) == TSR_CODEC_ORDER_REQUIRED ? cols * sizeof(float)
                                                          : rows * cols * sizeof(float);
    return TSR_OK;
}

static const struct tsr_codec_stream_v1 streams = { .struct_size = sizeof streams,
                                                    .order = mx_order,
                                                    .state_bytes = mx_state_bytes };

static const void *mx_extension(const void *self, const char *id)
{
    const struct mx *c = self;
    if (strcmp(id, TSR_CODEC_STREAM) == 0)
        return c->feedback != FEEDBACK_NONE ? &streams : NULL;
    return strcmp(id, TSR_CODEC_WIRE) == 0 ? &wires : NULL;
}

static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct mx_options, element, TSR_MX_FP4_E2M1, element_choices,
                    "Type of the elements."),
    TSR_OPTION_INT(struct mx_options, block, 32, 1, 4096, "features",
                   "Features that share a scale."),
    TSR_OPTION_INT(struct mx_options, scale_bits, 8, 4, 8, "bits",
                   "Width of the shared exponent: 8 is E8M0, 4 is E4M0."),
    TSR_OPTION_ENUM(struct mx_options, rounding, TSR_ENCODE_EVEN, rounding_choices,
                    "How a number becomes an element."),
    TSR_OPTION_ENUM(struct mx_options, scale_rule, TSR_ENCODE_SCALE_FLOOR, rule_choices,
                    "How a block's scale is found."),
    TSR_OPTION_ENUM(struct mx_options, feedback, FEEDBACK_NONE, feedback_choices,
                    "To which message the error of a message is added."),
};

static const struct tsr_codec_v1 table = {
    .struct_size = sizeof table,
    .create = mx_create,
    .destroy = mx_destroy,
    .exactness = mx_exactness,
    .wire_bytes = mx_wire_bytes,
    .encode = mx_encode,
    .decode = mx_decode,
    .decode_add = mx_decode_add,
    .extension = mx_extension,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_CODEC,
    .name = "mx",
    .summary = "MX block formats on the wire: FP8 to FP3 and integers with a shared power of two.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct mx_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(mx_codec) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.mx_codec", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,     .n_components = 1,
};
