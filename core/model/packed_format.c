/* Valid parameters of the packed layouts of tessera/format.h, and their row sizes. */
#include "base/f16.h"
#include "model/packed.h"

#include <math.h>
#include <string.h>

static bool is(const struct tsr_format *f, const char *id)
{
    return strcmp(f->id, id) == 0;
}

static bool scales_known(const struct tsr_format *f)
{
    return f->scale_dtype == TSR_F16 || f->scale_dtype == TSR_F32;
}

static bool int_known(const struct tsr_format *f)
{
    if (f->bits < 2 || f->bits > 8 || !scales_known(f) ||
        (f->zero != TSR_ZERO_MID && f->zero != TSR_ZERO_STORED))
        return false;
    if (f->act8 == TSR_ACT8_BLOCKS)
        return true;
    return f->act8 == TSR_ACT8_LLM && f->bits == 8 && f->group == 0 && f->zero == TSR_ZERO_MID &&
           isfinite(f->act8_threshold) && f->act8_threshold >= 0;
}

static bool affine_known(const struct tsr_format *f)
{
    bool group = f->group == 16 || f->group == 32 || f->group == 64 || f->group == 128;
    if (f->bits < 2 || f->bits > 8 || f->zero != 0)
        return false;
    if (f->scale_bits == 0)
        return scales_known(f) && (group || f->group == 0);
    return group && (f->scale_bits == 4 || f->scale_bits == 6 || f->scale_bits == 8);
}

static bool table_known(const struct tsr_format *f)
{
    bool power = f->group >= 16 && (f->group & (f->group - 1)) == 0;
    if (f->bits < 2 || f->bits > 8 || f->zero != 0)
        return false;
    for (uint32_t i = 0; i < TSR_TABLE_ENTRIES; i++)
        if (!isfinite(f->table[i]) || ((f->bits > 4 || i >> f->bits != 0) && f->table[i] != 0.0f))
            return false;
    if (f->scale_bits == 0)
        return f->element == 0 && scales_known(f) && (power || f->group == 0);
    if (f->element != 0)
        return f->element == TSR_MX_FP8_E4M3 && f->scale_bits == 8 && (power || f->group == 0);
    return power && f->group <= 128 && (f->scale_bits == 6 || f->scale_bits == 8);
}

static bool mx_known(const struct tsr_format *f)
{
    static const uint32_t floats[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                       TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1, TSR_MX_FP5_E2M2,
                                       TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2,
                                       TSR_MX_FP3_E1M1 };
    bool                  element = f->element >= TSR_MX_INT(2) && f->element <= TSR_MX_INT(8);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        element |= f->element == floats[i];
    return element && f->bits == 1 + (f->element >> 8) + (f->element & 255) && f->scale_bits >= 4 &&
           f->scale_bits <= 8;
}

static bool fp8_known(const struct tsr_format *f)
{
    return (f->element == TSR_MX_FP8_E4M3 || f->element == TSR_MX_FP8_E5M2) && f->bits == 8 &&
           f->zero == 0 && f->scale_bits == 0 &&
           (f->scale_dtype == TSR_F32 || f->scale_dtype == TSR_BF16);
}

bool tsr_model_format_known(const struct tsr_format *f)
{
    if (!f->id)
        return false;
    if (is(f, TSR_FORMAT_INT))
        return int_known(f);
    if (f->act8 != TSR_ACT8_BLOCKS)
        return false;
    if (is(f, TSR_FORMAT_FLOAT))
        return f->dtype == TSR_F32 || f->dtype == TSR_F16 || f->dtype == TSR_BF16;
    if (is(f, TSR_FORMAT_AFFINE))
        return affine_known(f);
    if (is(f, TSR_FORMAT_TABLE))
        return table_known(f);
    if (is(f, TSR_FORMAT_FP8))
        return fp8_known(f);
    if (is(f, TSR_FORMAT_LUT))
        return f->bits >= 2 && f->bits <= 8 && scales_known(f) && f->outliers <= UINT32_MAX;
    return is(f, TSR_FORMAT_MX) && mx_known(f);
}

bool tsr_model_format_fits(const struct tsr_format *f, uint64_t cols)
{
    return cols < UINT64_C(1) << 58 && (!is(f, TSR_FORMAT_LUT) || f->outliers <= cols);
}

uint64_t tsr_model_format_code_bytes(const struct tsr_format *f, uint64_t cols)
{
    return is(f, TSR_FORMAT_FLOAT) ? cols * tsr_dtype_size(f->dtype)
                                   : tsr_format_int_code_bytes(f, cols);
}

uint64_t tsr_model_format_meta_bytes(const struct tsr_format *f, uint64_t cols)
{
    return is(f, TSR_FORMAT_FLOAT)    ? 0
           : is(f, TSR_FORMAT_INT)    ? tsr_format_int_meta_bytes(f, cols)
           : is(f, TSR_FORMAT_AFFINE) ? tsr_format_affine_meta_bytes(f, cols)
           : is(f, TSR_FORMAT_TABLE)  ? tsr_format_table_meta_bytes(f, cols)
           : is(f, TSR_FORMAT_LUT)    ? tsr_format_lut_meta_bytes(f)
           : is(f, TSR_FORMAT_FP8)    ? tsr_format_fp8_meta_bytes(f, cols)
                                      : tsr_format_mx_meta_bytes(f, cols);
}

#define LLM_COLS_MAX 65536u /* 255 * 127 times as many fit an int32 */

bool tsr_model_format_a8(const struct tsr_format *f, uint64_t cols)
{
    if (is(f, TSR_FORMAT_INT))
        return f->act8 != TSR_ACT8_LLM || cols <= LLM_COLS_MAX;
    return !is(f, TSR_FORMAT_FLOAT);
}

void tsr_model_format_name(const struct tsr_format *f, char *buf, size_t cap)
{
    static const struct {
        uint32_t    element;
        const char *name;
    } mx[] = { { TSR_MX_FP8_E4M3, "fp8_e4m3" }, { TSR_MX_FP8_E5M2, "fp8_e5m2" },
               { TSR_MX_FP6_E3M2, "fp6_e3m2" }, { TSR_MX_FP6_E2M3, "fp6_e2m3" },
               { TSR_MX_FP5_E3M1, "fp5_e3m1" }, { TSR_MX_FP5_E2M2, "fp5_e2m2" },
               { TSR_MX_FP5_E1M3, "fp5_e1m3" }, { TSR_MX_FP4_E2M1, "fp4_e2m1" },
               { TSR_MX_FP4_E1M2, "fp4_e1m2" }, { TSR_MX_FP3_E1M1, "fp3_e1m1" } };
    if (is(f, TSR_FORMAT_FLOAT)) {
        (void)snprintf(buf, cap, "%s %s", f->id, tsr_dtype_name(f->dtype));
        return;
    }
    if (!is(f, TSR_FORMAT_MX) && !is(f, TSR_FORMAT_FP8)) {
        (void)snprintf(buf, cap, "%s with %u bits", f->id, f->bits);
        return;
    }
    for (size_t i = 0; i < sizeof mx / sizeof *mx; i++)
        if (mx[i].element == f->element) {
            (void)snprintf(buf, cap, "%s with %s", f->id, mx[i].name);
            return;
        }
    (void)snprintf(buf, cap, "%s with int%u", f->id, f->bits);
}
