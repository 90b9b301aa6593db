/* Weight formats of bench: minimums, tables, MX and FP8 elements, LLM.int8 by name, and what stands next to codes. */
#include "cli/bench/bench.h"

#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

/* Tables with the range of their writers' and, of nvfp4, the values: kernels take small ones another way. */
static bool parse_table(const char *name, struct tsr_format *f)
{
    static const struct {
        const char *name;
        uint32_t    bits, group, scale, level, element;
        float       step;
    } all[] = { { "nf4", 4, 64, TSR_F32, 0, 0, 15 },
                { "iq4_nl", 4, 32, TSR_F16, 0, 0, 15 },
                { "iq4_xs", 4, 32, 0, 6, 0, 15 },
                { "q3_k", 3, 16, 0, 6, 0, 1 },
                { "q6_k", 6, 16, 0, 8, 0, 1 },
                { "tq2_0", 2, 256, TSR_F16, 0, 0, 1 },
                { "nvfp4", 4, 16, 0, 8, TSR_MX_FP8_E4M3, 1 } };
    static const float e2m1[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i].name) != 0)
            continue;
        f->id = TSR_FORMAT_TABLE;
        f->bits = all[i].bits;
        f->group = all[i].group;
        f->scale_dtype = all[i].scale;
        f->scale_bits = all[i].level;
        f->element = all[i].element;
        for (uint32_t c = 0; f->bits <= 4 && c >> f->bits == 0; c++)
            f->table[c] = f->element ? (c < 8 ? e2m1[c] : 0.0f - e2m1[c - 8])
                                     : all[i].step * ((float)c - (float)(1u << f->bits) / 2);
        return true;
    }
    return false;
}

bool bench_format_parse(const char *name, uint64_t cols, struct tsr_format *f)
{
    static const struct {
        const char *name;
        uint32_t    element;
    } mx[] = { { "fp8_e4m3", TSR_MX_FP8_E4M3 }, { "fp8_e5m2", TSR_MX_FP8_E5M2 },
               { "fp6_e3m2", TSR_MX_FP6_E3M2 }, { "fp6_e2m3", TSR_MX_FP6_E2M3 },
               { "fp5_e3m1", TSR_MX_FP5_E3M1 }, { "fp5_e2m2", TSR_MX_FP5_E2M2 },
               { "fp5_e1m3", TSR_MX_FP5_E1M3 }, { "fp4_e2m1", TSR_MX_FP4_E2M1 },
               { "fp4_e1m2", TSR_MX_FP4_E1M2 }, { "fp3_e1m1", TSR_MX_FP3_E1M1 } };
    size_t len = strlen(name);
    *f = (struct tsr_format){ .struct_size = sizeof *f };
    for (size_t i = 0; i < sizeof mx / sizeof *mx; i++)
        if (strcmp(name, mx[i].name) == 0)
            f->element = mx[i].element;
    if (len == 6 && memcmp(name, "mxint", 5) == 0 && name[5] >= '2' && name[5] <= '8')
        f->element = TSR_MX_INT((uint32_t)(name[5] - '0'));
    if (f->element) {
        f->id = TSR_FORMAT_MX;
        f->bits = 1 + (f->element >> 8) + (f->element & 255);
        f->group = 32;
        f->scale_bits = 8;
        return true;
    }
    if (strcmp(name, "llm8") == 0) {
        f->id = TSR_FORMAT_INT;
        f->bits = 8;
        f->scale_dtype = TSR_F16;
        f->act8 = TSR_ACT8_LLM;
        f->act8_threshold = 0.9995; /* of activations from -1 to 1: 0.1 % are outliers */
        return true;
    }
    if (len == 7 && memcmp(name, "affine", 6) == 0 && name[6] >= '2' && name[6] <= '8') {
        f->id = TSR_FORMAT_AFFINE;
        f->bits = (uint32_t)(name[6] - '0');
        f->group = f->bits == 2 ? 16 : 32;
        f->scale_bits = f->bits == 2 ? 4 : 6;
        return true;
    }
    if (strcmp(name, "fp8_block") == 0) { /* as models published in blocks of 128 x 128 */
        f->id = TSR_FORMAT_FP8;
        f->bits = 8;
        f->element = TSR_MX_FP8_E4M3;
        f->group = 128;
        f->scale_dtype = TSR_F32;
        return true;
    }
    if (parse_table(name, f))
        return true;
    if ((len != 4 && len != 5) || memcmp(name, "lut", 3) != 0 || name[3] < '2' || name[3] > '8' ||
        (len == 5 && name[4] != 'o'))
        return false;
    f->id = TSR_FORMAT_LUT;
    f->bits = (uint32_t)(name[3] - '0');
    f->scale_dtype = TSR_F32;
    f->outliers = len == 5 ? cols / 200 : 0;
    return true;
}

/* Scales near 0.001 of a row of tessera.int/1, and zero points in the middle or one below. */
static void fill_int(const struct tsr_format *f, uint64_t cols, uint8_t *meta)
{
    const uint64_t groups = tsr_format_groups(f, cols);
    for (uint64_t g = 0; g < groups; g++) {
        const uint16_t h = (uint16_t)(0x1400u + 2 * g % 256);
        memcpy(meta + 2 * g, &h, 2);
        if (f->zero == TSR_ZERO_STORED)
            meta[2 * groups + g] = (uint8_t)((1u << (f->bits - 1)) - g % 2);
    }
}

/* Scales of a row of tessera.table/1, all 2^-10. */
static void fill_table(const struct tsr_format *f, uint64_t cols, uint8_t *meta)
{
    const uint16_t half = 0x1400, d = 0x0400; /* 2^-10; 2^-14, times 16 */
    const float    whole = 0x1p-10f, divisor = 1024.0f;
    uint64_t       groups = tsr_format_groups(f, cols);
    for (uint64_t g = 0; g < groups && f->scale_bits == 0; g++)
        if (f->scale_dtype == TSR_F16)
            memcpy(meta + 2 * g, &half, 2);
        else
            memcpy(meta + 4 * g, &whole, 4);
    if (f->element) {
        memcpy(meta, &divisor, 4);
        memset(meta + 4, 0x38, groups);
    }
    uint64_t record = f->scale_bits && !f->element ? tsr_format_table_record_bytes(f) : 0;
    for (uint64_t s = 0; record && s * TSR_TABLE_SUPER < cols; s++) {
        memset(meta + s * record, 0xc3, record); /* codes of 6 bits from 3 to 60, of 8 bits 195 */
        memcpy(meta + s * record, &d, 2);
    }
}

void bench_format_fill(const struct tsr_format *f, uint64_t rows, uint64_t stride, uint64_t cols,
                       uint8_t *meta)
{
    for (uint64_t r = 0; r < rows; r++, meta += stride) {
        if (strcmp(f->id, TSR_FORMAT_INT) == 0) {
            fill_int(f, cols, meta);
            continue;
        }
        if (strcmp(f->id, TSR_FORMAT_MX) == 0) {
            memset(meta, 117, tsr_format_groups(f, cols)); /* 2^-10 */
            continue;
        }
        if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0) {
            const uint16_t d = 0x0400, m = 0x0c00; /* 2^-14, 2^-12 */
            uint64_t       record = tsr_format_affine_record_bytes(f);
            for (uint64_t s = 0; s * TSR_AFFINE_SUPER < cols; s++) {
                memset(meta + s * record, (int)(0x55 + r % 64), record);
                memcpy(meta + s * record, &d, 2);
                memcpy(meta + s * record + 2, &m, 2);
            }
            continue;
        }
        if (strcmp(f->id, TSR_FORMAT_TABLE) == 0) {
            fill_table(f, cols, meta);
            continue;
        }
        if (strcmp(f->id, TSR_FORMAT_FP8) == 0) {
            for (uint64_t g = 0; g < tsr_format_groups(f, cols); g++) {
                float scale = 0x1p-10f + 0x1p-18f * (float)((r + g) % 256);
                memcpy(meta + 4 * g, &scale, 4);
            }
            continue;
        }
        uint64_t n = (UINT64_C(1) << f->bits) + f->outliers;
        for (uint64_t i = 0; i < n; i++) { /* -0.02 to 0.02 */
            float v = ((float)(i * 40503 % 4099) - 2049.0f) * 1e-5f;
            memcpy(meta + 4 * i, &v, 4);
        }
        for (uint64_t i = 0; i < f->outliers; i++) {
            uint32_t column = (uint32_t)(i * 200 + (i * 7 + r) % 200);
            memcpy(meta + 4 * (n + i), &column, 4);
        }
    }
}
