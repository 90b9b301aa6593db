/* tessera.table/1 as tessera.int/1, for a device that does not read tables: whole numbers times a power of two,
 * as IQ4_NL, NVFP4 and ternary weights have, and codes of more than 4 bits, which have no table. */
#include "engine/device_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the codes are, as whole numbers of the returned unit; 0: they are not. */
static float whole_numbers(const struct tsr_format *f, int value[TSR_TABLE_ENTRIES], uint32_t *bits)
{
    *bits = f->bits;
    if (f->bits > 4)
        return 1.0f;
    for (int u = 0; u <= 6; u++) { /* as numerics.md takes it for a8 */
        uint32_t i = 0;
        *bits = 2;
        for (; i >> f->bits == 0; i++) {
            float v = ldexpf(f->table[i], u);
            if (v != rintf(v) || fabsf(v) > 127.0f)
                break;
            value[i] = (int)v;
            while (value[i] < -(1 << (*bits - 1)) || value[i] >= 1 << (*bits - 1))
                ++*bits;
        }
        if (i >> f->bits != 0)
            return ldexpf(1.0f, -u);
    }
    return 0.0f;
}

/* Scales of a row: what a table with 1 at the code 0 makes of zeros. */
static void row_scales(const struct tsr_weight_desc *w, uint64_t r, float unit,
                       const unsigned char *zeros, float *columns, unsigned char *meta)
{
    struct tsr_format one = *w->format;
    uint64_t          groups = tsr_format_groups(&one, w->cols);
    one.bits = 2;
    memset(one.table, 0, sizeof one.table);
    one.table[0] = unit;
    tsr_model_format_decode_row(&one, w->cols, zeros,
                                (const unsigned char *)w->meta + r * w->meta_stride, columns);
    for (uint64_t g = 0; g < groups; g++)
        memcpy(meta + 4 * g, columns + (groups > 1 ? g * one.group : 0), 4);
}

static void row_codes(const struct tsr_weight_desc *w, uint64_t r, const int *value, uint32_t bits,
                      unsigned char *dst)
{
    const unsigned char *src = (const unsigned char *)w->codes + r * w->code_stride;
    uint32_t             from = w->format->bits, in = 0, have = 0, out = 0, put = 0;
    for (uint64_t k = 0; k < w->cols; k++) {
        for (; have < from; have += 8)
            in |= (uint32_t)*src++ << have;
        uint32_t code = in & ((1u << from) - 1u);
        in >>= from;
        have -= from;
        if (from <= 4)
            code = (uint32_t)(value[code] + (1 << (bits - 1)));
        out |= code << put;
        for (put += bits; put >= 8; put -= 8, out >>= 8)
            *dst++ = (unsigned char)out;
    }
    if (put)
        *dst = (unsigned char)out;
}

void tsr_engine_integers_free(struct tsr_engine_integers *i)
{
    free(i->codes);
    free(i->meta);
}

tsr_status tsr_engine_integers_make(struct tsr_engine_integers *i, const struct tsr_weight_desc *w,
                                    struct tsr_err *err)
{
    int      value[TSR_TABLE_ENTRIES] = { 0 };
    uint32_t bits = 0;
    memset(i, 0, sizeof *i);
    if (strcmp(w->format->id, TSR_FORMAT_TABLE) != 0)
        return TSR_E_UNSUPPORTED;
    float unit = whole_numbers(w->format, value, &bits);
    if (unit == 0.0f)
        return TSR_E_UNSUPPORTED;
    i->format = (struct tsr_format){ .struct_size = sizeof i->format,
                                     .id = TSR_FORMAT_INT,
                                     .bits = bits,
                                     .group = w->format->group,
                                     .scale_dtype = TSR_F32 };
    i->desc = *w;
    i->desc.format = &i->format;
    i->desc.code_stride = tsr_model_format_code_bytes(&i->format, w->cols);
    i->desc.meta_stride = tsr_model_format_meta_bytes(&i->format, w->cols);
    unsigned char *zeros = tsr_new(w->cols, 1);
    float         *columns = tsr_new(w->cols, sizeof *columns);
    i->codes = tsr_new(w->rows, i->desc.code_stride);
    i->meta = tsr_new(w->rows, i->desc.meta_stride);
    i->desc.codes = i->codes;
    i->desc.meta = i->meta;
    bool ok = zeros && columns && i->codes && i->meta;
    for (uint64_t r = 0; ok && r < w->rows; r++) {
        row_scales(w, r, unit, zeros, columns, i->meta + r * i->desc.meta_stride);
        row_codes(w, r, value, bits, i->codes + r * i->desc.code_stride);
    }
    free(zeros);
    free(columns);
    if (ok)
        return TSR_OK;
    tsr_engine_integers_free(i);
    return tsr_fail(err, TSR_E_NOMEM, "out of memory: %s as integers", w->name);
}
