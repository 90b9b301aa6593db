#include "base/f16.h"

#include "tessera/plugin.h"

float tsr_f16_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 0x1fu, m = h & 0x3ffu;
    if (e == 31)
        return tsr_bits_f32(sign | 0x7f800000u | m << 13);
    if (e != 0)
        return tsr_bits_f32(sign | (e + 112) << 23 | m << 13);
    /* subnormal: m * 2^-24, exact in F32 */
    float f = (float)m * 0x1p-24f;
    return tsr_bits_f32(sign | tsr_f32_bits(f));
}

uint16_t tsr_f32_f16(float f)
{
    uint32_t u = tsr_f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) /* rounds to 65536 or above */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* below 2^-14: the sum has its last bit at 2^-24 */
        float t = tsr_bits_f32(a) + 0.5f;
        return (uint16_t)(sign | (tsr_f32_bits(t) - 0x3f000000u));
    }
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

void tsr_widen(float *dst, const void *src, uint32_t dtype, uint64_t n)
{
    const unsigned char *s = src;
    if (dtype == TSR_F32) {
        memcpy(dst, src, n * 4);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, s + 2 * i, 2);
        dst[i] = dtype == TSR_BF16 ? tsr_bf16_f32(h) : tsr_f16_f32(h);
    }
}

uint64_t tsr_dtype_size(uint32_t dtype)
{
    switch (dtype) {
    case TSR_F32:
    case TSR_U32:
        return 4;
    case TSR_F16:
    case TSR_BF16:
        return 2;
    case TSR_U8:
    case TSR_I8:
        return 1;
    default:
        return 0;
    }
}

const char *tsr_dtype_name(uint32_t dtype)
{
    static const char *const name[] = { "?", "F32", "F16", "BF16", "U8", "U32", "I8" };
    return dtype < sizeof name / sizeof *name ? name[dtype] : "?";
}
