/* plain - the codec that sends numbers as they are: F32, or rounded to BF16 or F16.
 *
 * The wire is rows * cols elements, little-endian, no header.  f32 keeps every bit, NaN payloads
 * too.  bf16 and f16 round to nearest, ties to even; NaN stays a (quiet) NaN of the same sign,
 * infinities stay, and what is too large for f16 becomes an infinity. */
#include "tessera/codec.h"
#include "tessera/f16.h"

#include <stdbool.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

struct plain_opts {
    int64_t dtype;
};

struct plain {
    const struct tsr_host *host;
    uint32_t               dtype;
};

static uint64_t width(const struct plain *p)
{
    return p->dtype == TSR_F32 ? 4 : 2;
}

static tsr_status plain_create(const struct tsr_host *host, const void *opts, void **self,
                               struct tsr_err *err)
{
    const struct plain_opts *o = opts;
    struct plain            *p = host->alloc(host->ctx, sizeof *p, _Alignof(struct plain));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for codec plain", sizeof *p);
    p->host = host;
    p->dtype = (uint32_t)o->dtype;
    *self = p;
    return TSR_OK;
}

static void plain_destroy(void *self)
{
    struct plain *p = self;
    if (p)
        p->host->release(p->host->ctx, p, sizeof *p);
}

static uint32_t plain_exactness(const void *self)
{
    const struct plain *p = self;
    return p->dtype == TSR_F32 ? TSR_CODEC_EXACT : TSR_CODEC_LOSSY;
}

static tsr_status plain_wire_bytes(const void *self, uint64_t rows, uint64_t cols, uint64_t *bytes,
                                   struct tsr_err *err)
{
    uint64_t w = width(self);
    if (rows && cols > UINT64_MAX / w / rows)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "plain: %llu x %llu elements are too many",
                        (unsigned long long)rows, (unsigned long long)cols);
    *bytes = rows * cols * w;
    return TSR_OK;
}

/* Checks a message and gives its number of elements. */
static tsr_status message(const struct plain *p, const struct tsr_codec_job *job, const void *data,
                          uint64_t *n, struct tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = plain_wire_bytes(p, job->rows, job->cols, &bytes, err);
    if (st != TSR_OK)
        return st;
    if (bytes != job->wire_bytes || (bytes && (!data || !job->wire)))
        return tsr_fail(
            err, TSR_E_INVAL,
            "plain: site %u, source %u: %llu wire bytes were given for %llu x %llu, %llu "
            "are needed, with both buffers",
            job->site, job->source, (unsigned long long)job->wire_bytes,
            (unsigned long long)job->rows, (unsigned long long)job->cols,
            (unsigned long long)bytes);
    *n = bytes / width(p);
    return TSR_OK;
}

/* BF16 and F32 eight and four at a time where the machine is sure to have vectors; the rest one by
 * one, to the same bits. */
static uint64_t encode_bf16_wide(uint64_t n, const float *x, unsigned char *wire)
{
    uint64_t i = 0;
#if defined(__SSE2__)
    const __m128i half = _mm_set1_epi32(0x7fff), one = _mm_set1_epi32(1);
    const __m128i quiet = _mm_set1_epi32(0x40);
    for (; i + 8 <= n; i += 8) {
        __m128i h[2];
        for (size_t k = 0; k < 2; k++) {
            __m128  f = _mm_loadu_ps(x + i + 4 * k);
            __m128i u = _mm_castps_si128(f), nan = _mm_castps_si128(_mm_cmpunord_ps(f, f));
            __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 16), one);
            __m128i r = _mm_srai_epi32(_mm_add_epi32(_mm_add_epi32(u, half), odd), 16);
            __m128i q = _mm_or_si128(_mm_srai_epi32(u, 16), quiet);
            h[k] = _mm_or_si128(_mm_and_si128(nan, q), _mm_andnot_si128(nan, r));
        }
        /* the sign is in all upper bits, so that nothing saturates */
        _mm_storeu_si128((__m128i *)(void *)(wire + 2 * i), _mm_packs_epi32(h[0], h[1]));
    }
#else
    (void)n, (void)x, (void)wire;
#endif
    return i;
}

static uint64_t decode_bf16_wide(uint64_t n, const unsigned char *wire, float *dst, const int onto)
{
    uint64_t i = 0;
#if defined(__SSE2__)
    for (; i + 8 <= n; i += 8) {
        const __m128i zero = _mm_setzero_si128();
        __m128i       h = _mm_loadu_si128((const __m128i *)(const void *)(wire + 2 * i));
        __m128        a = _mm_castsi128_ps(_mm_unpacklo_epi16(zero, h));
        __m128        b = _mm_castsi128_ps(_mm_unpackhi_epi16(zero, h));
        _mm_storeu_ps(dst + i, onto ? _mm_add_ps(_mm_loadu_ps(dst + i), a) : a);
        _mm_storeu_ps(dst + i + 4, onto ? _mm_add_ps(_mm_loadu_ps(dst + i + 4), b) : b);
    }
#else
    (void)n, (void)wire, (void)dst, (void)onto;
#endif
    return i;
}

static uint64_t add_f32_wide(uint64_t n, const unsigned char *wire, float *dst)
{
    uint64_t i = 0;
#if defined(__SSE2__)
    for (; i + 4 <= n; i += 4) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(wire + 4 * i));
        _mm_storeu_ps(dst + i, _mm_add_ps(_mm_loadu_ps(dst + i), _mm_castsi128_ps(v)));
    }
#else
    (void)n, (void)wire, (void)dst;
#endif
    return i;
}

static float element(const struct plain *p, const unsigned char *wire, uint64_t i)
{
    if (p->dtype == TSR_F32) {
        float f;
        memcpy(&f, wire + 4 * i, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, wire + 2 * i, 2);
    return p->dtype == TSR_BF16 ? tsr_bf16_f32(h) : tsr_f16_f32(h);
}

static tsr_status plain_encode(const void *self, const struct tsr_codec_job *job,
                               struct tsr_err *err)
{
    const struct plain *p = self;
    const float        *x = job->src;
    unsigned char      *wire = job->wire;
    uint64_t            n;
    tsr_status          st = message(p, job, x, &n, err);
    if (st != TSR_OK || n == 0)
        return st;
    if (p->dtype == TSR_F32) {
        memcpy(wire, x, n * 4);
        return TSR_OK;
    }
    bool bf16 = p->dtype == TSR_BF16;
    for (uint64_t i = bf16 ? encode_bf16_wide(n, x, wire) : 0; i < n; i++) {
        uint16_t h = bf16 ? tsr_f32_bf16(x[i]) : tsr_f32_f16(x[i]);
        memcpy(wire + 2 * i, &h, 2);
    }
    return TSR_OK;
}

static tsr_status plain_decode(const void *self, const struct tsr_codec_job *job,
                               struct tsr_err *err)
{
    const struct plain *p = self;
    uint64_t            n = 0;
    tsr_status          st = message(p, job, job->dst, &n, err);
    if (st != TSR_OK || n == 0)
        return st;
    if (p->dtype == TSR_F32) {
        memcpy(job->dst, job->wire, n * 4);
        return TSR_OK;
    }
    for (uint64_t i = p->dtype == TSR_BF16 ? decode_bf16_wide(n, job->wire, job->dst, 0) : 0; i < n;
         i++)
        job->dst[i] = element(p, job->wire, i);
    return TSR_OK;
}

static tsr_status plain_decode_add(const void *self, const struct tsr_codec_job *job,
                                   struct tsr_err *err)
{
    const struct plain *p = self;
    uint64_t            n = 0, i = 0;
    tsr_status          st = message(p, job, job->dst, &n, err);
    if (st != TSR_OK || n == 0)
        return st;
    if (p->dtype == TSR_F32)
        i = add_f32_wide(n, job->wire, job->dst);
    else if (p->dtype == TSR_BF16)
        i = decode_bf16_wide(n, job->wire, job->dst, 1);
    for (; i < n; i++)
        job->dst[i] = job->dst[i] + element(p, job->wire, i);
    return TSR_OK;
}

#if TSR_ABI_MINOR >= 1
static tsr_status plain_wire(const void *self, uint32_t site, uint32_t source, uint64_t cols,
                             struct tsr_codec_wire *w, struct tsr_err *err)
{
    const struct plain *p = self;
    (void)site;
    (void)source;
    w->kind = TSR_WIRE_PLAIN;
    w->same = 1;
    w->cols = cols;
    w->dtype = p->dtype;
    return plain_wire_bytes(p, 1, cols, &w->row_bytes, err);
}

static const struct tsr_codec_wire_v1 wires = { .struct_size = sizeof wires, .wire = plain_wire };

static const void *plain_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_CODEC_WIRE) == 0 ? &wires : NULL;
}
#endif

static const struct tsr_codec_v1 plain_iface = {
    .struct_size = sizeof plain_iface,
    .create = plain_create,
    .destroy = plain_destroy,
    .exactness = plain_exactness,
    .wire_bytes = plain_wire_bytes,
    .encode = plain_encode,
    .decode = plain_decode,
    .decode_add = plain_decode_add,
#if TSR_ABI_MINOR >= 1
    .extension = plain_extension,
#endif
};

static const struct tsr_choice dtypes[] = {
    { "f32", "as they are, exact", TSR_F32 },
    { "bf16", "rounded to 8 significant bits, the range of f32", TSR_BF16 },
    { "f16", "rounded to 11 significant bits, up to 65504", TSR_F16 },
};

static const struct tsr_option plain_options[] = {
    TSR_OPTION_ENUM(struct plain_opts, dtype, TSR_F32, dtypes, "Element type on the wire."),
};

static const struct tsr_component plain_component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_CODEC,
    .name = "plain",
    .summary = "Sends numbers as F32, BF16 or F16, without any coding.",
    .iface = &plain_iface,
    .options = plain_options,
    .n_options = sizeof plain_options / sizeof plain_options[0],
    .options_size = sizeof(struct plain_opts),
};

static const struct tsr_component *const components[] = { &plain_component };

TSR_PLUGIN_SYMBOL(plain) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.plain", .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,  .n_components = 1,
};
