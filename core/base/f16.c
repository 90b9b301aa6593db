#include "base/f16.h"

#include "tessera/plugin.h"

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
    case TSR_E4M3:
    case TSR_Q4:
    case TSR_Q4_CHANNEL:
        return 1;
    default:
        return 0;
    }
}

const char *tsr_dtype_name(uint32_t dtype)
{
    static const char *const name[] = { "?",   "F32", "F16",  "BF16", "U8",
                                        "U32", "I8",  "E4M3", "Q4",   "Q4_CHANNEL" };
    return dtype < sizeof name / sizeof *name ? name[dtype] : "?";
}
