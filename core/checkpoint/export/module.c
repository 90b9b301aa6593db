/* A matrix of the model, row by row, in any stored form. */
#include "checkpoint/export/internal.h"

#include "base/f16.h"
#include "model/packed_table.h"

#include <math.h>
#include <string.h>

static bool same_order(const struct tsr_model_packed *a, const struct tsr_model_packed *b)
{
    return a->ordered == b->ordered && a->cols == b->cols &&
           (a->order == b->order ||
            (a->order && b->order && memcmp(a->order, b->order, a->cols * sizeof *a->order) == 0));
}

static bool same_format(const struct tsr_format *a, const struct tsr_format *b)
{
    return strcmp(a->id, b->id) == 0 && a->bits == b->bits && a->zero == b->zero &&
           a->group == b->group && a->scale_dtype == b->scale_dtype && a->element == b->element &&
           a->scale_bits == b->scale_bits && tsr_model_same_table(a->table, b->table);
}

/* A packed matrix that holds plain numbers. */
static uint32_t plain_dtype(const struct tsr_model_packed *p)
{
    return p->dense || p->own.unit                       ? TSR_F32
           : strcmp(p->format.id, TSR_FORMAT_FLOAT) == 0 ? p->format.dtype
                                                         : 0;
}

static void dense(struct tsr_export_module *m)
{
    const struct tsr_model_stored_view *v = m->v;
    m->form = TSR_EXPORT_FORM_DENSE;
    for (unsigned i = 0; i < v->n; i++) {
        uint32_t d = v->packed[i] ? plain_dtype(v->packed[i]) : v->w[i]->dtype;
        if (d == 0)
            m->form = TSR_EXPORT_FORM_OTHER;
        m->dtype = i == 0 || m->dtype == d ? d : TSR_F32;
    }
}

void tsr_export_module_of(struct tsr_export_module *m, const struct tsr_model_stored_view *v)
{
    memset(m, 0, sizeof *m);
    m->v = v;
    if (v->kind == TSR_MODEL_STORED_VECTOR) {
        m->dtype = TSR_F32;
        return;
    }
    const struct tsr_model_packed *p = v->packed[0];
    bool                           alike = p && plain_dtype(p) == 0;
    for (unsigned i = 1; i < v->n; i++)
        alike = alike && v->packed[i] && same_format(&p->format, &v->packed[i]->format) &&
                same_order(p, v->packed[i]);
    if (!alike) {
        dense(m);
        return;
    }
    m->f = p->format;
    m->order = p->order;
    m->form = strcmp(p->format.id, TSR_FORMAT_INT) == 0     ? TSR_EXPORT_FORM_INT
              : strcmp(p->format.id, TSR_FORMAT_MX) == 0    ? TSR_EXPORT_FORM_MX
              : strcmp(p->format.id, TSR_FORMAT_TABLE) == 0 ? TSR_EXPORT_FORM_TABLE
              : strcmp(p->format.id, TSR_FORMAT_FP8) == 0   ? TSR_EXPORT_FORM_FP8
                                                            : TSR_EXPORT_FORM_OTHER;
    if (m->f.group >= v->cols)
        m->f.group = 0;
    m->groups = tsr_format_groups(&m->f, v->cols);
}

bool tsr_export_is_fp8(const struct tsr_export_module *m)
{
    bool bytes = m->form == TSR_EXPORT_FORM_MX && m->f.scale_bits == 8;
    return (m->form == TSR_EXPORT_FORM_FP8 || bytes) && m->f.element == TSR_MX_FP8_E4M3;
}

bool tsr_export_is_mxfp4(const struct tsr_export_module *m)
{
    return m->form == TSR_EXPORT_FORM_MX && m->f.element == TSR_MX_FP4_E2M1 && m->f.bits == 4 &&
           m->f.scale_bits == 8 && (m->f.group == 32 || (m->f.group == 0 && m->v->cols == 32));
}

const unsigned char *tsr_export_module_codes(const struct tsr_export_module *m, uint64_t r)
{
    unsigned i;
    tsr_model_stored_row(m->v, r, &i, &r);
    const struct tsr_model_packed *p = m->v->packed[i];
    return (const unsigned char *)p->codes + r * p->code_stride;
}

const unsigned char *tsr_export_module_meta(const struct tsr_export_module *m, uint64_t r)
{
    unsigned i;
    tsr_model_stored_row(m->v, r, &i, &r);
    const struct tsr_model_packed *p = m->v->packed[i];
    return p->meta ? (const unsigned char *)p->meta + r * p->meta_stride : NULL;
}

float tsr_export_module_scale(const struct tsr_export_module *m, uint64_t r, uint64_t g)
{
    const unsigned char *meta = tsr_export_module_meta(m, r);
    float                s;
    tsr_widen(&s, meta + g * tsr_dtype_size(m->f.scale_dtype), m->f.scale_dtype, 1);
    return s;
}

unsigned tsr_export_module_zero(const struct tsr_export_module *m, uint64_t r, uint64_t g)
{
    if (m->f.zero != TSR_ZERO_STORED)
        return 1u << (m->f.bits - 1);
    return tsr_export_module_meta(m, r)[m->groups * tsr_dtype_size(m->f.scale_dtype) + g];
}

/* dst[j] to dst[order[j]], one cycle after the other, each from its first column. */
static void put_columns(const uint32_t *order, uint64_t cols, float *dst)
{
    for (uint64_t first = 0; first < cols; first++) {
        uint64_t j = order[first];
        while (j > first)
            j = order[j];
        if (j < first) /* moved already */
            continue;
        float has = dst[first];
        for (j = order[first];; j = order[j]) {
            float next = dst[j];
            dst[j] = has;
            has = next;
            if (j == first)
                break;
        }
    }
}

void tsr_export_module_row(const struct tsr_export_module *m, uint64_t r, float *dst)
{
    unsigned i;
    tsr_model_stored_row(m->v, r, &i, &r);
    const struct tsr_model_packed *p = m->v->packed[i];
    const struct tsr_matrix       *w = m->v->w[i];
    if (!p)
        tsr_widen(dst, (const unsigned char *)w->data + r * w->row_stride, w->dtype, w->cols);
    else if (p->dense)
        memcpy(dst, p->dense + r * p->cols, p->cols * sizeof *dst);
    else {
        tsr_model_format_decode_row(&p->format, p->cols,
                                    (const unsigned char *)p->codes + r * p->code_stride,
                                    p->meta ? (const unsigned char *)p->meta + r * p->meta_stride
                                            : NULL,
                                    dst);
        if (p->order)
            put_columns(p->order, p->cols, dst);
    }
}

uint32_t tsr_export_module_scale_dtype(const struct tsr_export_module *m, uint32_t first)
{
    bool f16 = true, bf16 = true;
    if (m->f.scale_dtype == TSR_F16)
        return TSR_F16;
    for (uint64_t r = 0; r < m->v->rows && (f16 || bf16); r++) {
        for (uint64_t g = 0; g < m->groups; g++) {
            float s = tsr_export_module_scale(m, r, g);
            f16 = f16 && tsr_f16_f32(tsr_f32_f16(s)) == s;
            bf16 = bf16 && tsr_bf16_f32(tsr_f32_bf16(s)) == s;
        }
    }
    if (first == TSR_BF16 && bf16)
        return TSR_BF16;
    return f16 ? TSR_F16 : bf16 ? TSR_BF16 : TSR_F32;
}

void tsr_export_module_scales_down(const struct tsr_export_module *m, uint32_t dtype,
                                   unsigned char *dst)
{
    uint64_t rows = m->v->rows, inexact = 0;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t g = 0; g < m->groups; g++)
            (void)tsr_export_put(dst + (g * rows + r) * 2, dtype, tsr_export_module_scale(m, r, g),
                                 &inexact); /* exact: the dtype was chosen for it */
}

unsigned tsr_export_bits_get(const unsigned char *stream, uint64_t at, unsigned bits)
{
    unsigned v = (unsigned)stream[at / 8] >> at % 8;
    if (at % 8 + bits > 8)
        v |= (unsigned)stream[at / 8 + 1] << (8 - at % 8);
    return v & ((1u << bits) - 1);
}

void tsr_export_bits_put(unsigned char *stream, uint64_t at, unsigned bits, unsigned value)
{
    stream[at / 8] = (unsigned char)(stream[at / 8] | value << at % 8);
    if (at % 8 + bits > 8)
        stream[at / 8 + 1] = (unsigned char)(stream[at / 8 + 1] | value >> (8 - at % 8));
}

bool tsr_export_put(void *dst, uint32_t dtype, float value, uint64_t *inexact)
{
    if (dtype == TSR_F32) {
        memcpy(dst, &value, sizeof value);
        return true;
    }
    uint16_t h = dtype == TSR_F16 ? tsr_f32_f16(value) : tsr_f32_bf16(value);
    float    back = dtype == TSR_F16 ? tsr_f16_f32(h) : tsr_bf16_f32(h);
    *inexact += tsr_f32_bits(back) != tsr_f32_bits(value);
    memcpy(dst, &h, sizeof h);
    return isfinite(back) || !isfinite(value);
}
