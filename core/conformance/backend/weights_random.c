/* Backends: a matrix in any format, with random codes and scales that a quantizer could write. */
#include "conformance/backend/backend.h"

#include "base/f16.h"
#include "base/rng.h"
#include "model/packed.h"

#include <string.h>

static void random_bytes(const struct tsr_conformance_case *c, uint64_t stream, unsigned char *p,
                         uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 16) {
        uint32_t r[4];
        tsr_philox(r, i, stream, c->seed);
        memcpy(p + i, r, n - i < 16 ? n - i : 16);
    }
}

static void store(unsigned char *p, uint32_t dtype, uint64_t i, float v)
{
    uint16_t h = dtype == TSR_F16 ? tsr_f32_f16(v) : tsr_f32_bf16(v);
    if (dtype == TSR_F32)
        memcpy(p + 4 * i, &v, 4);
    else
        memcpy(p + 2 * i, &h, 2);
}

/* Scales and minimums of a row: plain, or codes under those of a superblock. */
static void fill_affine(const struct tsr_conformance_case *c, uint64_t stream,
                        const struct tsr_format *f, uint64_t cols, unsigned char *meta)
{
    uint64_t record = f->scale_bits ? tsr_format_affine_record_bytes(f) : 0;
    for (uint64_t s = 0; record && s * TSR_AFFINE_SUPER < cols; s++) {
        unsigned char *p = meta + s * record;
        random_bytes(c, stream, p, record);
        store(p, TSR_F16, 0, 0.001f * (1 + (float)tsr_uniform(c->seed, stream, 2 * s)));
        store(p, TSR_F16, 1, 0.001f * (1 + (float)tsr_uniform(c->seed, stream, 2 * s + 1)));
    }
    for (uint64_t i = 0; !record && i < 2 * tsr_format_groups(f, cols); i++)
        store(meta, f->scale_dtype, i, 0.01f * (float)tsr_normal(c->seed, stream, i));
}

/* Scales of a row: plain, codes under those of a superblock, or elements under a divisor. */
static void fill_table(const struct tsr_conformance_case *c, uint64_t stream,
                       const struct tsr_format *f, uint64_t cols, unsigned char *meta)
{
    uint64_t groups = tsr_format_groups(f, cols);
    for (uint64_t g = 0; f->scale_bits == 0 && g < groups; g++)
        store(meta, f->scale_dtype, g, 0.01f * (float)tsr_normal(c->seed, stream, g));
    for (uint64_t g = 0; f->element && g < groups; g++) /* of 2^-3 to 2 */
        meta[4 + g] = (unsigned char)(32 + tsr_conformance_rule_below(c, stream, g, 32));
    if (f->element)
        store(meta, TSR_F32, 0, 100.0f * (1 + (float)tsr_uniform(c->seed, stream, groups)));
    uint64_t record = f->scale_bits && !f->element ? tsr_format_table_record_bytes(f) : 0;
    for (uint64_t s = 0; record && s * TSR_TABLE_SUPER < cols; s++) {
        random_bytes(c, stream, meta + s * record, record);
        store(meta + s * record, TSR_F16, 0, 0.001f * (1 + (float)tsr_uniform(c->seed, stream, s)));
    }
}

/* What a row's meta holds; meta is zeroed. */
static void fill_meta(const struct tsr_conformance_case *c, uint64_t stream,
                      const struct tsr_format *f, uint64_t cols, unsigned char *meta)
{
    uint64_t groups = tsr_format_groups(f, cols), entries = UINT64_C(1) << f->bits;
    if (strcmp(f->id, TSR_FORMAT_INT) == 0) {
        uint64_t size = groups * tsr_dtype_size(f->scale_dtype);
        for (uint64_t g = 0; g < groups; g++) {
            store(meta, f->scale_dtype, g, 0.01f * (1 + (float)tsr_uniform(c->seed, stream, g)));
            if (f->zero == TSR_ZERO_STORED)
                meta[size + g] =
                    (unsigned char)tsr_conformance_rule_below(c, stream, 1000 + g, entries);
        }
    } else if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0) {
        fill_affine(c, stream, f, cols, meta);
    } else if (strcmp(f->id, TSR_FORMAT_TABLE) == 0) {
        fill_table(c, stream, f, cols, meta);
    } else if (strcmp(f->id, TSR_FORMAT_FP8) == 0) {
        for (uint64_t g = 0; g < groups; g++)
            store(meta, f->scale_dtype, g, 0.01f * (1 + (float)tsr_uniform(c->seed, stream, g)));
    } else if (strcmp(f->id, TSR_FORMAT_MX) == 0) {
        for (uint64_t g = 0; g < groups; g++)
            meta[g] = (unsigned char)((1u << (f->scale_bits - 1)) - 5 +
                                      tsr_conformance_rule_below(c, stream, g, 8));
    } else {
        unsigned char *columns = meta + tsr_model_format_meta_bytes(f, cols) - 4 * f->outliers;
        for (uint64_t i = 0; i < entries + f->outliers; i++)
            store(meta, f->scale_dtype, i, (float)tsr_normal(c->seed, stream, i));
        for (uint64_t i = 0; i < f->outliers; i++) {
            uint32_t at =
                (uint32_t)(cols / f->outliers * i + tsr_conformance_rule_below(c, stream, i, 3));
            memcpy(columns + 4 * i, &at, 4);
        }
    }
}

void tsr_conformance_weight_random(struct tsr_conformance_case *c, uint64_t stream,
                                   const struct tsr_format *f, uint64_t rows, uint64_t cols,
                                   struct tsr_weight_desc *w)
{
    bool     plain = strcmp(f->id, TSR_FORMAT_FLOAT) == 0;
    uint64_t code = plain ? cols * tsr_dtype_size(f->dtype) : tsr_model_format_code_bytes(f, cols);
    uint64_t meta = plain ? 0 : tsr_model_format_meta_bytes(f, cols);
    *w = (struct tsr_weight_desc){ .struct_size = sizeof *w,
                                   .name = "w",
                                   .format = f,
                                   .rows = rows,
                                   .cols = cols,
                                   .code_stride = plain ? code : code + 3, /* rows need not touch */
                                   .meta_stride = meta ? meta + 4 : 0 };
    unsigned char *codes = tsr_conformance_rule_memory(c, rows * w->code_stride);
    unsigned char *metas = tsr_conformance_rule_memory(c, rows * w->meta_stride + 1);
    for (uint64_t i = 0; plain && i < rows * cols; i++)
        store(codes, f->dtype, i, (float)tsr_normal(c->seed, stream, i));
    for (uint64_t r = 0; !plain && r < rows; r++) {
        unsigned char *row = codes + r * w->code_stride;
        random_bytes(c, stream + r, row, code);
        for (uint64_t i = 0; i < code && f->element && f->bits == 8; i++)
            row[i] &= 0xbf;     /* the largest codes of E4M3 and E5M2 are not numbers */
        if (cols * f->bits % 8) /* the row is padded with zero bits */
            row[code - 1] &= (unsigned char)((1u << cols * f->bits % 8) - 1);
        fill_meta(c, stream + r, f, cols, metas + r * w->meta_stride);
    }
    w->codes = codes;
    w->meta = meta ? metas : NULL;
}
