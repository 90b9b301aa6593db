/* @NAME@ - activations as BF16: the upper half of each F32, rounded to nearest, ties to even.
 * The wire is rows * cols elements of 2 bytes.  Infinities stay, a NaN becomes a quiet NaN of the
 * same sign, and what is above the largest BF16 becomes an infinity. */
#include "@NAME@.h"

#include <bit>
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
    for (uint64_t i = 0; st == TSR_OK && i < job->rows * job->cols; i++)
        put(job->wire, i, job->src[i]);
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

const tsr_codec_v1 table = {
    .struct_size = sizeof table, .reserved = 0, .create = tsr_guard<create>, .destroy = destroy,
    .exactness = exactness, .wire_bytes = tsr_guard<wire_bytes>, .encode = tsr_guard<encode>,
    .decode = tsr_guard<decode>, .decode_add = tsr_guard<decode_add>, .observe = nullptr,
    .freeze = nullptr, .state_bytes = nullptr, .save = nullptr, .load = nullptr,
    .extension = nullptr,
};
