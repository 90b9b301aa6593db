/* check.c - checks a weight's description (tessera/format.h). */
#include "weight.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

tsr_status tsr_weight_refuse(struct tsr_err *err, const struct tsr_weight_desc *d, const char *why)
{
    return tsr_fail(err, TSR_E_INVAL, "weight '%s': %s", d->name ? d->name : "?", why);
}

tsr_status tsr_weight_not_read(struct tsr_err *err, const struct tsr_weight_desc *d,
                               const char *device)
{
    return tsr_fail(err, TSR_E_UNSUPPORTED,
                    "weight '%s': format '%s' is not read by the %s backend",
                    d->name ? d->name : "?", d->format->id, device);
}

uint64_t tsr_weight_segment(const struct tsr_weight_desc *d)
{
    return TSR_HAS(struct tsr_weight_desc, d, segment) ? d->segment : 0;
}

uint64_t tsr_weight_float_size(uint32_t dtype)
{
    return dtype == TSR_F32 ? 4 : 2;
}

static int is_scale(uint32_t dtype)
{
    return dtype == TSR_F16 || dtype == TSR_F32;
}

static int element_known(uint32_t element)
{
    static const uint32_t floats[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                       TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1, TSR_MX_FP5_E2M2,
                                       TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2,
                                       TSR_MX_FP3_E1M1 };
    for (unsigned i = 0; i < sizeof floats / sizeof *floats; i++)
        if (element == floats[i])
            return 1;
    return element >= TSR_MX_INT(2) && element <= TSR_MX_INT(8);
}

static const char *act8_wrong(const struct tsr_format *f)
{
    if (!TSR_HAS(struct tsr_format, f, act8))
        return NULL;
    if (strcmp(f->id, TSR_FORMAT_INT) != 0)
        return "act8 is not for this format";
    if (f->act8 != TSR_ACT8_LLM)
        return "act8 is not known";
    if (f->bits != 8 || f->group != 0 || f->zero != TSR_ZERO_MID)
        return "LLM.int8 is for 8 bits, group 0 and an implicit zero point";
    return isfinite(f->act8_threshold) && f->act8_threshold >= 0
               ? NULL
               : "LLM.int8's threshold must be 0 or a positive number";
}

static const char *affine_wrong(const struct tsr_format *f)
{
    int group = f->group == 16 || f->group == 32 || f->group == 64 || f->group == 128;
    if (f->zero != 0)
        return "tessera.int/2 has no zero points";
    if (f->scale_bits == 0) {
        if (!is_scale(f->scale_dtype))
            return "scales must be F16 or F32";
        return group || f->group == 0 ? NULL : "groups must be 16, 32, 64 or 128, or 0: the row";
    }
    if (f->scale_bits != 4 && f->scale_bits != 6 && f->scale_bits != 8)
        return "scale_bits must be 0, 4, 6 or 8";
    return group ? NULL : "groups under scale_bits must be 16, 32, 64 or 128";
}

static const char *table_wrong(const struct tsr_format *f)
{
    int power = f->group >= 16 && (f->group & (f->group - 1)) == 0;
    if (!TSR_HAS(struct tsr_format, f, table))
        return "its format's struct_size has no room for a table";
    if (f->zero != 0)
        return "tessera.table/1 has no zero points";
    for (uint32_t i = 0; i < TSR_TABLE_ENTRIES; i++)
        if (!isfinite(f->table[i]) || ((f->bits > 4 || i >> f->bits != 0) && f->table[i] != 0.0f))
            return "entries of its table must be finite, and 0 past the last";
    if (f->scale_bits == 0 && !is_scale(f->scale_dtype))
        return "scales must be F16 or F32";
    if (f->element != 0 && (f->element != TSR_MX_FP8_E4M3 || f->scale_bits != 8))
        return "scales that are elements must be FP8 E4M3 with scale_bits 8";
    if (f->scale_bits == 0 || f->element != 0)
        return power || f->group == 0 ? NULL : "groups must be a power of two from 16 on, or 0";
    if (f->scale_bits != 6 && f->scale_bits != 8)
        return "scale_bits must be 0, 6 or 8";
    return power && f->group <= 128 ? NULL : "groups under scale_bits must be 16, 32, 64 or 128";
}

static const char *fp8_wrong(const struct tsr_format *f)
{
    if ((f->element != TSR_MX_FP8_E4M3 && f->element != TSR_MX_FP8_E5M2) || f->bits != 8)
        return "elements must be FP8 E4M3 or E5M2, with bits 8";
    if (f->zero != 0 || f->scale_bits != 0)
        return "tessera.fp8/1 has stored scales and no zero points";
    return f->scale_dtype == TSR_F32 || f->scale_dtype == TSR_BF16 ? act8_wrong(f)
                                                                   : "scales must be F32 or BF16";
}

/* What is wrong with the format for d->cols columns, or NULL and the bytes of a row's codes and meta. */
static const char *format_wrong(const struct tsr_weight_desc *d, uint64_t *code, uint64_t *meta)
{
    const struct tsr_format *f = d->format;
    *meta = 0;
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0) {
        *code = d->cols * tsr_weight_float_size(f->dtype);
        return f->dtype == TSR_F32 || f->dtype == TSR_F16 || f->dtype == TSR_BF16
                   ? NULL
                   : "elements must be F32, F16 or BF16";
    }
    *code = tsr_format_int_code_bytes(f, d->cols);
    if (f->bits < 2 || f->bits > 8)
        return "bits must be 2 to 8";
    if (strcmp(f->id, TSR_FORMAT_INT) == 0) {
        *meta = tsr_format_int_meta_bytes(f, d->cols);
        if (f->zero != TSR_ZERO_MID && f->zero != TSR_ZERO_STORED)
            return "zero must be mid or stored";
        return is_scale(f->scale_dtype) ? act8_wrong(f) : "scales must be F16 or F32";
    }
    if (f->struct_size < offsetof(struct tsr_format, act8))
        return "its format's struct_size has no room for the format's parameters";
    if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0) {
        const char *why = affine_wrong(f);
        if (why)
            return why;
        *meta = tsr_format_affine_meta_bytes(f, d->cols);
        return act8_wrong(f);
    }
    if (strcmp(f->id, TSR_FORMAT_TABLE) == 0) {
        const char *why = table_wrong(f);
        if (why)
            return why;
        *meta = tsr_format_table_meta_bytes(f, d->cols);
        return act8_wrong(f);
    }
    if (strcmp(f->id, TSR_FORMAT_FP8) == 0) {
        *meta = tsr_format_fp8_meta_bytes(f, d->cols);
        return fp8_wrong(f);
    }
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0) {
        if (!is_scale(f->scale_dtype))
            return "tables must be F16 or F32";
        if (f->outliers > d->cols)
            return "it has more outliers than columns";
        *meta = tsr_format_lut_meta_bytes(f);
        return act8_wrong(f);
    }
    if (!element_known(f->element) || f->bits != 1 + (f->element >> 8) + (f->element & 255))
        return "element and bits do not fit tessera.mx/1";
    if (f->scale_bits < 4 || f->scale_bits > 8)
        return "scale_bits must be 4 to 8";
    *meta = tsr_format_mx_meta_bytes(f, d->cols);
    return act8_wrong(f);
}

/* Columns of outliers ascend within the row. */
static tsr_status check_outliers(const struct tsr_weight_desc *d, struct tsr_err *err)
{
    const struct tsr_format *f = d->format;
    for (uint64_t r = 0; r < d->rows; r++) {
        const uint8_t *p = (const uint8_t *)d->meta + r * d->meta_stride +
                           tsr_format_lut_meta_bytes(f) - 4 * f->outliers;
        uint32_t last = 0, column;
        for (uint64_t i = 0; i < f->outliers; i++, last = column) {
            memcpy(&column, p + 4 * i, 4);
            if (column >= d->cols || (i > 0 && column <= last))
                return tsr_fail(err, TSR_E_INVAL,
                                "weight '%s': row %llu: the columns of its outliers do not ascend "
                                "within the row",
                                d->name ? d->name : "?", (unsigned long long)r);
        }
    }
    return TSR_OK;
}

tsr_status tsr_weight_check(const struct tsr_weight_desc *d, int data, const char *device,
                            struct tsr_err *err)
{
    const struct tsr_format *f = d->format;
    uint64_t                 code, meta, segment = tsr_weight_segment(d);
    const char              *why;
    if (!f || !f->id || (data && !d->codes))
        return tsr_weight_refuse(err, d, "the format or the codes are missing");
    if (strcmp(f->id, TSR_FORMAT_FLOAT) != 0 && strcmp(f->id, TSR_FORMAT_INT) != 0 &&
        strcmp(f->id, TSR_FORMAT_AFFINE) != 0 && strcmp(f->id, TSR_FORMAT_LUT) != 0 &&
        strcmp(f->id, TSR_FORMAT_MX) != 0 && strcmp(f->id, TSR_FORMAT_TABLE) != 0 &&
        strcmp(f->id, TSR_FORMAT_FP8) != 0)
        return tsr_weight_not_read(err, d, device);
    if (d->rows == 0 || d->cols == 0 || d->rows > UINT32_MAX || d->cols > UINT32_MAX / 2)
        return tsr_weight_refuse(err, d, "rows and columns must be 1 to 2^31");
    if (segment % 32 != 0)
        return tsr_weight_refuse(err, d, "segments must be a multiple of 32 columns");
    if (segment != 0 && (d->cols - 1) / segment >= WEIGHT_SEGMENTS)
        return tsr_weight_refuse(err, d, "its columns are more than 8 segments");
    if ((why = format_wrong(d, &code, &meta)))
        return tsr_weight_refuse(err, d, why);
    if (!data)
        return TSR_OK;
    if (meta && !d->meta)
        return tsr_weight_refuse(err, d, "the scales or tables are missing");
    if (d->code_stride < code || d->meta_stride < meta)
        return tsr_weight_refuse(err, d, "code_stride or meta_stride is shorter than a row");
    return strcmp(f->id, TSR_FORMAT_LUT) == 0 ? check_outliers(d, err) : TSR_OK;
}
