#include "format_ref.h"

#include <math.h>
#include <string.h>

static float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Little-endian bytes, whatever the host is. */
static uint32_t get_le(const uint8_t *p, unsigned bytes)
{
    uint32_t u = 0;
    for (unsigned i = 0; i < bytes; i++)
        u |= (uint32_t)p[i] << (8 * i);
    return u;
}

/* sign * 2^(e-15) * 1.m, or sign * 2^-14 * 0.m */
static float f16_value(uint32_t h)
{
    int   e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    float v;
    if (e == 31)
        v = m ? NAN : INFINITY;
    else if (e == 0)
        v = ldexpf((float)m, -24);
    else
        v = ldexpf((float)(1024 + m), e - 25);
    return h & 0x8000 ? -v : v;
}

static float float_at(const uint8_t *p, uint32_t dtype, uint64_t i)
{
    if (dtype == TSR_F32)
        return bits_f32(get_le(p + 4 * i, 4));
    if (dtype == TSR_BF16)
        return bits_f32(get_le(p + 2 * i, 2) << 16);
    return f16_value(get_le(p + 2 * i, 2));
}

tsr_status tsr_ref_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                              const void *meta, float *dst)
{
    const uint8_t *c = codes, *m = meta;
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0) {
        if (f->dtype != TSR_F32 && f->dtype != TSR_F16 && f->dtype != TSR_BF16)
            return TSR_E_UNSUPPORTED;
        for (uint64_t k = 0; k < cols; k++)
            dst[k] = float_at(c, f->dtype, k);
        return TSR_OK;
    }
    if (strcmp(f->id, TSR_FORMAT_INT) != 0 || f->bits < 2 || f->bits > 8 ||
        (f->scale_dtype != TSR_F16 && f->scale_dtype != TSR_F32) || f->zero > TSR_ZERO_STORED)
        return TSR_E_UNSUPPORTED;
    uint64_t groups = tsr_format_groups(f, cols);
    for (uint64_t k = 0; k < cols; k++) {
        int32_t code = 0;
        for (uint32_t b = 0; b < f->bits; b++) {
            uint64_t at = k * f->bits + b;
            code |= (int32_t)(c[at / 8] >> (at % 8) & 1) << b;
        }
        uint64_t g = f->group ? k / f->group : 0;
        float    scale = float_at(m, f->scale_dtype, g);
        int32_t  zero = 1 << (f->bits - 1);
        if (f->zero == TSR_ZERO_STORED)
            zero = m[groups * (f->scale_dtype == TSR_F32 ? 4 : 2) + g];
        dst[k] = (float)(code - zero) * scale;
    }
    return TSR_OK;
}
