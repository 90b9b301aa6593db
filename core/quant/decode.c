/* The core's decoder of the packed layouts of tessera/format.h, a row at a time; held to the
 * reference in kernels/formats/ by a test. */
#include "base/f16.h"
#include "quant/quant.h"

#include <string.h>

bool tsr_format_known(const struct tsr_format *f)
{
    if (!f->id)
        return false;
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0)
        return f->dtype == TSR_F32 || f->dtype == TSR_F16 || f->dtype == TSR_BF16;
    if (strcmp(f->id, TSR_FORMAT_INT) == 0)
        return f->bits >= 2 && f->bits <= 8 &&
               (f->zero == TSR_ZERO_MID || f->zero == TSR_ZERO_STORED) &&
               (f->scale_dtype == TSR_F16 || f->scale_dtype == TSR_F32);
    return false;
}

static float scale_at(const unsigned char *meta, uint64_t g, uint32_t dtype)
{
    float f;
    tsr_widen(&f, meta + g * tsr_dtype_size(dtype), dtype, 1);
    return f;
}

void tsr_format_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                           const void *meta, float *dst)
{
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0) {
        tsr_widen(dst, codes, f->dtype, cols);
        return;
    }
    const unsigned char *c = codes, *m = meta;
    uint64_t             groups = tsr_format_groups(f, cols);
    uint64_t             width = groups == 1 ? cols : f->group;
    const unsigned char *zeros = m + groups * tsr_dtype_size(f->scale_dtype);
    uint32_t             acc = 0, have = 0, mask = (1u << f->bits) - 1;
    for (uint64_t g = 0; g < groups; g++) {
        float    scale = scale_at(m, g, f->scale_dtype);
        int      zero = f->zero == TSR_ZERO_STORED ? zeros[g] : (1 << f->bits) / 2;
        uint64_t end = g + 1 == groups ? cols : (g + 1) * width;
        for (uint64_t k = g * width; k < end; k++) {
            if (have < f->bits) {
                acc |= (uint32_t)*c++ << have;
                have += 8;
            }
            dst[k] = (float)((int)(acc & mask) - zero) * scale;
            acc >>= f->bits;
            have -= f->bits;
        }
    }
}
