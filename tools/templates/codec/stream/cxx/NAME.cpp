/* @NAME@ - activations as BF16 with error feedback: what rounding cut off a row at one exchange is added to the row at
 * the next exchange of the pass.  The wire is rows * cols elements of 2 bytes.  Infinities stay, a NaN becomes a quiet NaN
 * of the same sign, and what is above the largest BF16 becomes an infinity; these leave no error behind. */
#include "@NAME@.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <tessera/guard.hpp>

struct codec {
    const tsr_host *host;
};

static tsr_status create(const tsr_host *host, const void *, void **self, tsr_err *err)
{
    void *p = host->alloc(host->ctx, sizeof(codec), alignof(codec));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof(codec));
    *self = new (p) codec{ host };
    return TSR_OK;
}

static void destroy(void *self)
{
    if (auto *c = static_cast<codec *>(self))
        c->host->release(c->host->ctx, c, sizeof *c);
}

static uint32_t exactness(const void *)
{
    return TSR_CODEC_LOSSY;
}

static tsr_status wire_bytes(const void *, uint64_t rows, uint64_t cols, uint64_t *bytes,
                             tsr_err *err)
{
    if (rows && cols > UINT64_MAX / 2 / rows)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: a message has too many elements");
    *bytes = rows * cols * 2;
    return TSR_OK;
}

/* A stream is a pass of the model: the same rows at one exchange after the other. */
static uint32_t order(const void *)
{
    return TSR_CODEC_ORDER_PASS;
}

/* The end that encodes keeps an error for each element; the other end needs nothing. */
static tsr_status stream_bytes(const void *self, uint32_t end, uint64_t rows, uint64_t cols,
                               uint64_t *bytes, tsr_err *err)
{
    tsr_status st = wire_bytes(self, rows, cols, bytes, err);
    if (st == TSR_OK && *bytes > UINT64_MAX / 2)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: a message has too many elements");
    *bytes = end == TSR_CODEC_ENCODES ? 2 * *bytes : 0;
    return st;
}

/* A message that does not fit its buffers is refused before the first byte. */
static tsr_status check(const void *self, const tsr_codec_job *job, const void *floats,
                        tsr_err *err)
{
    uint64_t   bytes = 0;
    tsr_status st = wire_bytes(self, job->rows, job->cols, &bytes, err);
    if (st == TSR_OK && (bytes != job->wire_bytes || (bytes && (!floats || !job->wire))))
        st = tsr_fail(err, TSR_E_INVAL, "@NAME@: %llu wire bytes were given, %llu are needed",
                      static_cast<unsigned long long>(job->wire_bytes),
                      static_cast<unsigned long long>(bytes));
    return st;
}

/* The wire may lie at any address, so elements are copied, not cast. */
static void put(void *wire, uint64_t i, float f)
{
    auto u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffff) > 0x7f800000) /* NaN: rounding could carry it to infinity */
        u |= 0x400000;
    else
        u += 0x7fff + (u >> 16 & 1);
    auto half = static_cast<uint16_t>(u >> 16);
    std::memcpy(static_cast<char *>(wire) + 2 * i, &half, 2);
}

static float get(const void *wire, uint64_t i)
{
    uint16_t half;
    std::memcpy(&half, static_cast<const char *>(wire) + 2 * i, 2);
    return std::bit_cast<float>(uint32_t{ half } << 16);
}

static tsr_status encode(const void *self, const tsr_codec_job *job, tsr_err *err)
{
    tsr_status st = check(self, job, job->src, err);
    auto *left = static_cast<float *>(job->state); /* nullptr: the first message of a stream */
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++) {
        float x = left ? job->src[i] + left[i] : job->src[i];
        put(job->wire, i, x);
        float sent = get(job->wire, i);
        if (left)
            left[i] = std::isfinite(sent) ? x - sent : 0.0f;
    }
    return st;
}

static tsr_status decode(const void *self, const tsr_codec_job *job, tsr_err *err)
{
    tsr_status st = check(self, job, job->dst, err);
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++)
        job->dst[i] = get(job->wire, i);
    return st;
}

static tsr_status decode_add(const void *self, const tsr_codec_job *job, tsr_err *err)
{
    tsr_status st = check(self, job, job->dst, err);
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++)
        job->dst[i] += get(job->wire, i);
    return st;
}

static const tsr_codec_stream_v1 stream = {
    .struct_size = sizeof stream, .reserved = 0, .order = order,
    .state_bytes = tsr_guard<stream_bytes>,
};

static const void *extension(const void *, const char *id)
{
    return std::strcmp(id, TSR_CODEC_STREAM) == 0 ? &stream : nullptr;
}

const tsr_codec_v1 table = {
    .struct_size = sizeof table, .reserved = 0, .create = tsr_guard<create>, .destroy = destroy,
    .exactness = exactness, .wire_bytes = tsr_guard<wire_bytes>, .encode = tsr_guard<encode>,
    .decode = tsr_guard<decode>, .decode_add = tsr_guard<decode_add>, .observe = nullptr,
    .freeze = nullptr, .state_bytes = nullptr, .save = nullptr, .load = nullptr,
    .extension = extension,
};
