/* @NAME@ - keys and values as the upper halves of F32, which are BF16. */
#include "@NAME@.h"

#include <cmath>
#include <cstring>
#include <tessera/guard.hpp>

struct codec {
    const tsr_host *host;
    const options  *o;
};

static tsr_status create(const tsr_host *host, const void *opts, void **self, tsr_err *err)
{
    void *p = host->alloc(host->ctx, sizeof(codec), alignof(codec));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof(codec));
    *self = new (p) codec{ host, static_cast<const options *>(opts) };
    return TSR_OK;
}

static void destroy(void *self)
{
    if (auto *c = static_cast<codec *>(self))
        c->host->release(c->host->ctx, c, sizeof *c);
}

/* A unit is one position, for keys and values alike.  A unit of TSR_KV_BLOCK positions could scale each channel. */
static tsr_status layout(const void *self, uint32_t, uint64_t head_dim, tsr_kv_layout *l, tsr_err *)
{
    l->positions = 1;
    l->bytes = 2 * head_dim;
    l->error = static_cast<const codec *>(self)->o->nearest ? 1.0 / 256 : 1.0 / 128;
    return TSR_OK;
}

/* Units have no alignment, hence memcpy. */
static tsr_status encode(const void *self, uint32_t, uint64_t head_dim, uint64_t n, const float *x,
                         void *units, tsr_err *)
{
    bool nearest = static_cast<const codec *>(self)->o->nearest != 0;
    for (uint64_t i = 0; i < n * head_dim; i++) {
        uint32_t bits;
        std::memcpy(&bits, x + i, 4);
        if (std::isnan(x[i]))
            bits = 0x7fc00000u; /* the upper half of another NaN may be an infinity */
        else if (nearest)
            bits += 0x7fffu + (bits >> 16 & 1u);
        auto half = static_cast<uint16_t>(bits >> 16);
        std::memcpy(static_cast<char *>(units) + 2 * i, &half, 2);
    }
    return TSR_OK;
}

static tsr_status decode(const void *, uint32_t, uint64_t head_dim, uint64_t n, const void *units,
                         float *x, tsr_err *)
{
    for (uint64_t i = 0; i < n * head_dim; i++) {
        uint16_t half;
        std::memcpy(&half, static_cast<const char *>(units) + 2 * i, 2);
        uint32_t bits = static_cast<uint32_t>(half) << 16;
        std::memcpy(x + i, &bits, 4);
    }
    return TSR_OK;
}

/* score() and mix() are null: the host decodes.  They save that, where products with the units themselves are faster. */
const tsr_kv_v1 table = {
    .struct_size = sizeof table, .reserved = 0, .create = tsr_guard<create>, .destroy = destroy,
    .layout = tsr_guard<layout>, .encode = tsr_guard<encode>, .decode = tsr_guard<decode>,
    .score = nullptr, .mix = nullptr, .extension = nullptr,
};
