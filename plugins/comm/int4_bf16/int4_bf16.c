/* int4_bf16 - small integers with a scale for each rank and feature, calibrated once on a text; the features
 * with the widest ranges travel as BF16 (arXiv 2411.07942). Every rank has the scales and the list of
 * features, so none is on the wire. Rows are independent.
 *
 * A row on the wire: the kept features as BF16 in ascending order; then the codes of the others by place
 * (int4_bf16.h), `bits` each, a little-endian bit stream padded with zero bits. code = rint(x / scale)
 * within -q..q plus q + 1, q = 2^(bits-1) - 1, scale = range / 2 / q; code 0 encodes NaN and infinities,
 * which decode as NaN. */
#include "int4_bf16.h"

#include <math.h>
#include <string.h>

#include "tessera/f16.h"

#define SOME UINT64_C(256) /* codes of the tail that are worked on at once; a multiple of 8 */

static tsr_status i4_create(const struct tsr_host *host, const void *opts, void **self,
                            struct tsr_err *err)
{
    const struct i4_options *o = opts;
    struct i4               *c = host->alloc(host->ctx, sizeof *c, 16);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for codec " NAME, sizeof *c);
    *c = (struct i4){ .host = host,
                      .bits = (uint32_t)o->bits,
                      .one_in = o->features == FEATURES_NONE ? 0 : (uint64_t)o->one_in,
                      .features = (uint32_t)o->features,
                      .seed = (uint64_t)o->seed,
                      .gamma = o->gamma };
    tsr_status st = tsr_encode_pick(&c->encode, err);
    if (st != TSR_OK) {
        host->release(host->ctx, c, sizeof *c);
        return st;
    }
    *self = c;
    return TSR_OK;
}

static void i4_destroy(void *self)
{
    struct i4 *c = self;
    if (!c)
        return;
    i4_sites_free(c);
    c->host->release(c->host->ctx, c, sizeof *c);
}

static uint32_t i4_exactness(const void *self)
{
    (void)self;
    return TSR_CODEC_LOSSY;
}

static uint64_t row_bytes(const struct i4 *c, uint64_t cols)
{
    uint64_t k = i4_kept(c, cols);
    return 2 * k + ((cols - k) * c->bits + 7) / 8;
}

static tsr_status i4_wire_bytes(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                                struct tsr_err *err)
{
    const struct i4 *c = self;
    if (cols > UINT32_MAX)
        return tsr_fail(err, TSR_E_UNSUPPORTED, NAME ": rows of %llu elements are too long",
                        U(cols));
    return rows_bytes(NAME, rows, cols, row_bytes(c, cols), bytes, err);
}

static tsr_status look_up(const struct i4 *c, uint32_t site, uint32_t source, uint64_t cols,
                          const struct i4_site **at, const struct i4_source **from,
                          struct tsr_err *err)
{
    if (!c->frozen)
        return tsr_fail(err, TSR_E_CONFIG,
                        NAME ": it is not calibrated: `calibrate: {codecs: ...}` "
                             "makes the state that it needs");
    const struct i4_site *s = site < c->sites ? c->site[site] : NULL;
    if (!s || s->cols != cols || source >= s->sources || !s->source[source].range)
        return tsr_fail(err, TSR_E_CONFIG,
                        NAME
                        ": site %u, source %u with %llu features was not calibrated; the state is "
                        "of another model or width",
                        site, source, U(cols));
    *at = s;
    *from = &s->source[source];
    return TSR_OK;
}

/* The site and the source of a message that fits. */
static tsr_status find(const struct i4 *c, const struct tsr_codec_job *job, const void *data,
                       const struct i4_site **site, const struct i4_source **source,
                       struct tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = i4_wire_bytes(c, job->rows, job->cols, &bytes, err);
    if (st == TSR_OK)
        st = rows_message(NAME, job, data, bytes, err);
    *site = NULL;
    return st != TSR_OK || bytes == 0
               ? st
               : look_up(c, job->site, job->source, job->cols, site, source, err);
}

static uint32_t get_code(const uint8_t *codes, uint64_t i, uint32_t bits)
{
    uint64_t at = i * bits;
    uint32_t v = codes[at / 8];
    if (at % 8 + bits > 8)
        v |= (uint32_t)codes[at / 8 + 1] << 8;
    return v >> at % 8 & ((1u << bits) - 1);
}

static void put_code(uint8_t *codes, uint64_t i, uint32_t bits, uint32_t code)
{
    uint64_t at = i * bits;
    uint32_t mask = ((1u << bits) - 1) << at % 8, v = code << at % 8;
    codes[at / 8] = (uint8_t)((codes[at / 8] & ~mask) | v);
    if (at % 8 + bits > 8)
        codes[at / 8 + 1] = (uint8_t)((codes[at / 8 + 1] & ~(mask >> 8)) | v >> 8);
}

static void encode_row(const struct i4 *c, const struct i4_site *s, const struct i4_source *q,
                       const float *x, uint8_t *wire)
{
    uint8_t *codes = wire + 2 * s->k, some[SOME];
    float    tail[SOME];
    for (uint64_t i = 0; i < s->k; i++) {
        uint16_t h = tsr_f32_bf16(x[s->chosen[i]]);
        memcpy(wire + 2 * i, &h, 2);
    }
    c->encode->scaled_encode(c->bits, s->cols - s->k, x, q->inv, codes);
    for (uint64_t at = 0; at < s->holes; at += SOME) {
        uint64_t n = s->holes - at < SOME ? s->holes - at : SOME;
        for (uint64_t i = 0; i < n; i++)
            tail[i] = x[s->tail[at + i]];
        c->encode->scaled_encode(c->bits, n, tail, q->tail_inv + at, some);
        for (uint64_t i = 0; i < n; i++)
            put_code(codes, s->hole[at + i], c->bits, get_code(some, i, c->bits));
    }
}

/* The features stored in holes, SOME of them from `at` on. */
static void decode_tail(const struct i4 *c, const struct i4_site *s, const struct i4_source *q,
                        const uint8_t *codes, uint64_t at, uint64_t n, float *dst, int add)
{
    uint8_t some[SOME] = { 0 };
    float   tail[SOME];
    for (uint64_t i = 0; i < n; i++)
        put_code(some, i, c->bits, get_code(codes, s->hole[at + i], c->bits));
    c->encode->scaled_decode(c->bits, n, some, q->tail_scale + at, tail, 0);
    for (uint64_t i = 0; i < n; i++) {
        float *d = &dst[s->tail[at + i]];
        *d = add ? *d + tail[i] : tail[i];
    }
}

/* What the places of holes are given goes nowhere: the numbers there are BF16 features, written or, with
 * `add`, put back before they are added to. */
static void decode_row(const struct i4 *c, const struct i4_site *s, const struct i4_source *q,
                       const uint8_t *wire, float *dst, int add)
{
    const uint8_t *codes = wire + 2 * s->k;
    uint64_t       places = s->cols - s->k, step = places < 8 * SOME ? places : 8 * SOME;
    for (uint64_t at = 0, h = 0; at < places; at += step) {
        uint64_t n = places - at < step ? places - at : step, first = h;
        float    kept[8 * SOME];
        for (; h < s->holes && s->hole[h] < at + n; h++)
            if (add)
                kept[h - first] = dst[s->hole[h]];
        c->encode->scaled_decode(c->bits, n, codes + at / 8 * c->bits, q->scale + at, dst + at,
                                 add);
        for (uint64_t i = first; add && i < h; i++)
            dst[s->hole[i]] = kept[i - first];
    }
    for (uint64_t at = 0; at < s->holes; at += SOME)
        decode_tail(c, s, q, codes, at, s->holes - at < SOME ? s->holes - at : SOME, dst, add);
    for (uint64_t i = 0; i < s->k; i++) {
        uint16_t h;
        memcpy(&h, wire + 2 * i, 2);
        float *d = &dst[s->chosen[i]];
        *d = add ? *d + tsr_bf16_f32(h) : tsr_bf16_f32(h);
    }
}

static tsr_status i4_encode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    const struct i4        *c = self;
    const struct i4_site   *s;
    const struct i4_source *q;
    tsr_status              st = find(c, job, job->src, &s, &q, err);
    uint64_t                step = row_bytes(c, job->cols);
    for (uint64_t r = 0; st == TSR_OK && s && r < job->rows; r++)
        encode_row(c, s, q, job->src + r * job->cols, (uint8_t *)job->wire + r * step);
    return st;
}

static tsr_status decode(const struct i4 *c, const struct tsr_codec_job *job, int add,
                         struct tsr_err *err)
{
    const struct i4_site   *s;
    const struct i4_source *q;
    tsr_status              st = find(c, job, job->dst, &s, &q, err);
    uint64_t                step = row_bytes(c, job->cols);
    for (uint64_t r = 0; st == TSR_OK && s && r < job->rows; r++)
        decode_row(c, s, q, (const uint8_t *)job->wire + r * step, job->dst + r * job->cols, add);
    return st;
}

static tsr_status i4_decode(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    return decode(self, job, 0, err);
}

static tsr_status i4_decode_add(const void *self, const struct tsr_codec_job *job,
                                struct tsr_err *err)
{
    return decode(self, job, 1, err);
}

/* ---- for devices ------------------------------------------------------------------ */

static tsr_status i4_wire(const void *self, uint32_t site, uint32_t source, uint64_t cols,
                          struct tsr_codec_wire *w, struct tsr_err *err)
{
    const struct i4        *c = self;
    const struct i4_site   *s = NULL;
    const struct i4_source *q = NULL;
    tsr_status              st = i4_wire_bytes(c, 1, cols, &w->row_bytes, err);
    if (st == TSR_OK)
        st = look_up(c, site, source, cols, &s, &q, err);
    if (st != TSR_OK)
        return st;
    w->kind = TSR_WIRE_SCALED;
    w->cols = cols;
    w->bits = c->bits;
    w->kept = s->k;
    w->feature = s->chosen;
    w->place = s->place;
    w->inv = q->inv;
    w->scale = q->scale;
    return TSR_OK;
}

static const struct tsr_codec_wire_v1 wires = { .struct_size = sizeof wires, .wire = i4_wire };

static const void *i4_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_CODEC_WIRE) == 0 ? &wires : NULL;
}

static const struct tsr_choice features_choices[] = {
    { "selected", "those with the largest range, summed over the ranks", FEATURES_SELECTED },
    { "random", "drawn by seed: a baseline", FEATURES_RANDOM },
    { "none", "every feature is an integer: a baseline", FEATURES_NONE },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct i4_options, bits, 4, 2, 8, "bits", "Width of the integers."),
    TSR_OPTION_ENUM(struct i4_options, features, FEATURES_SELECTED, features_choices,
                    "Which features are kept in BF16."),
    TSR_OPTION_INT(struct i4_options, one_in, 64, 1, 1 << 20, "features",
                   "One in so many features is kept in BF16."),
    TSR_OPTION_INT(struct i4_options, seed, 0, 0, INT64_MAX, NULL, "Draws the random features."),
    TSR_OPTION_REAL(struct i4_options, gamma, 0.01, 0.0, 1.0, NULL,
                    "Weight of a sequence in the moving average of the ranges."),
};

static const struct tsr_codec_v1 table = {
    .struct_size = sizeof table,
    .create = i4_create,
    .destroy = i4_destroy,
    .exactness = i4_exactness,
    .wire_bytes = i4_wire_bytes,
    .encode = i4_encode,
    .decode = i4_decode,
    .decode_add = i4_decode_add,
    .observe = i4_observe,
    .freeze = i4_freeze,
    .state_bytes = i4_state_bytes,
    .save = i4_save,
    .load = i4_load,
    .extension = i4_extension,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_CODEC,
    .name = NAME,
    .summary = "Integers of 2 to 8 bits under calibrated scales, the widest features in BF16.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct i4_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(int4_bf16) = {
    TSR_PLUGIN_HEADER,       .id = "org.tessera.int4_bf16", .version = "1.0.0",
    .license = "Apache-2.0", .build = __VERSION__,          .components = components,
    .n_components = 1,
};
