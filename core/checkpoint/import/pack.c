/* What a writer stored, in the layouts of tessera/format.h. */
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/import/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tsr_import_unpack(const void *stream, uint64_t at, uint32_t bits, uint64_t n, uint8_t *codes)
{
    const unsigned char *p = stream;
    for (uint64_t i = 0; i < n; i++, at += bits) {
        uint32_t v = p[at / 8], shift = (uint32_t)(at % 8);
        if (shift + bits > 8)
            v |= (uint32_t)p[at / 8 + 1] << 8;
        codes[i] = (uint8_t)(v >> shift & ((1u << bits) - 1u));
    }
}

void tsr_import_pack(const uint8_t *codes, uint32_t bits, uint64_t n, void *stream)
{
    unsigned char *p = stream;
    uint32_t       acc = 0, have = 0;
    for (uint64_t i = 0; i < n; i++) {
        acc |= (uint32_t)codes[i] << have;
        have += bits;
        if (have >= 8) {
            *p++ = (unsigned char)acc;
            acc >>= 8;
            have -= 8;
        }
    }
    if (have > 0)
        *p = (unsigned char)acc;
}

static tsr_status create(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                         const struct tsr_format *f, struct tsr_model_packed **out)
{
    struct tsr_model_packed *p = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(im->err, sizeof *p, name);
    *out = p;
    p->format = *f;
    p->format.struct_size = sizeof p->format;
    p->rows = rows;
    p->cols = cols;
    p->source_dtype = TSR_F16;
    p->report = (struct tsr_model_pack_report){
        .seconds = NAN, .loss = NAN, .rtn_loss = NAN, .damping = NAN
    };
    p->plugin = tsr_strdup(im->kind->method);
    p->format_id = tsr_strdup(f->id);
    if (!p->plugin || !p->format_id)
        return tsr_fail_nomem(im->err, 64, name);
    p->format.id = p->format_id;
    if (!tsr_model_format_known(&p->format) || !tsr_model_format_fits(&p->format, cols))
        return tsr_fail(im->err, TSR_E_BUG, "%s: imported as %s with impossible parameters", name,
                        f->id);
    p->code_stride = tsr_model_format_code_bytes(&p->format, cols);
    p->meta_stride = tsr_model_format_meta_bytes(&p->format, cols);
    if (im->headers_only)
        return TSR_OK;
    uint64_t bytes;
    if (!tsr_mul(rows, p->code_stride, &bytes) || !(p->codes = tsr_new_aligned(bytes, 1)))
        return tsr_fail_nomem(im->err, rows * p->code_stride, name);
    if (p->meta_stride && !(p->meta = tsr_new(rows, p->meta_stride)))
        return tsr_fail_nomem(im->err, rows * p->meta_stride, name);
    return TSR_OK;
}

static void fill_codes(struct tsr_model_packed *p, uint32_t bits, tsr_import_rows rows,
                       const void *source)
{
    uint32_t tail = (uint32_t)(p->cols * bits % 8);
    for (uint64_t r = 0; r < p->rows; r += TSR_IMPORT_ROWS) {
        uint64_t       n = p->rows - r < TSR_IMPORT_ROWS ? p->rows - r : TSR_IMPORT_ROWS;
        unsigned char *at = (unsigned char *)p->codes + r * p->code_stride;
        rows(source, r, n, at, p->code_stride);
        for (uint64_t i = 0; tail && i < n;
             i++) /* a foreign file may have any padding after a row */
            at[(i + 1) * p->code_stride - 1] &= (unsigned char)((1u << tail) - 1u);
    }
}

static bool all_middle(const struct tsr_import_int *s, uint64_t n)
{
    for (uint64_t i = 0; s->zeros && i < n; i++)
        if (s->zeros[i] != 1u << (s->bits - 1))
            return false;
    return true;
}

static void fill_int_meta(struct tsr_model_packed *p, const struct tsr_import_int *s,
                          uint64_t groups)
{
    for (uint64_t r = 0; r < p->rows; r++) {
        unsigned char *at = (unsigned char *)p->meta + r * p->meta_stride;
        for (uint64_t g = 0; g < groups; g++) {
            float    v = s->scales[r * groups + g];
            uint16_t h = s->f16 ? tsr_f32_f16(v) : 0;
            if (s->f16)
                memcpy(at + 2 * g, &h, 2);
            else
                memcpy(at + 4 * g, &v, 4);
        }
        if (p->format.zero == TSR_ZERO_STORED)
            memcpy(at + groups * (s->f16 ? 2 : 4), s->zeros + r * groups, groups);
    }
}

/* ---- columns in another order ---------------------------------------------------------- */

struct ordered {
    const struct tsr_import_int *s;
    const uint32_t              *order; /* as in tsr_model_packed */
    uint64_t                     cols, groups, stride;
    unsigned char               *stream;         /* TSR_IMPORT_ROWS rows */
    uint8_t                     *codes, *sorted; /* one row */
};

/* Codes group by group, columns of a group in order. */
static void sorted_rows(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                        uint64_t stride)
{
    const struct ordered        *o = source;
    const struct tsr_import_int *s = o->s;
    s->rows(s->source, first, n, o->stream, o->stride);
    for (uint64_t r = 0; r < n; r++) {
        tsr_import_unpack(o->stream + r * o->stride, 0, s->bits, o->cols, o->codes);
        for (uint64_t j = 0; j < o->cols; j++)
            o->sorted[j] = o->codes[o->order[j]];
        memset(dst + r * stride, 0, stride);
        tsr_import_pack(o->sorted, s->bits, o->cols, dst + r * stride);
    }
}

static void wide_rows(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                      uint64_t stride)
{
    const struct ordered        *o = source;
    const struct tsr_import_int *s = o->s;
    s->rows(s->source, first, n, o->stream, o->stride);
    for (uint64_t r = 0; r < n; r++) {
        float         *out = (float *)(void *)(dst + r * stride);
        const float   *scale = s->scales + (first + r) * o->groups;
        const uint8_t *zero = s->zeros ? s->zeros + (first + r) * o->groups : NULL;
        tsr_import_unpack(o->stream + r * o->stride, 0, s->bits, o->cols, o->codes);
        for (uint64_t k = 0; k < o->cols; k++) {
            uint32_t g = s->order[k];
            int      z = zero ? zero[g] : 1 << (s->bits - 1);
            out[k] = (float)((int)o->codes[k] - z) * scale[g];
        }
    }
}

/* The columns sorted by group; false where a group has other than its number of columns, so that no
 * order of columns makes groups of them. */
static bool sort_columns(const struct tsr_import_int *s, uint64_t cols, uint64_t groups,
                         uint64_t *at, uint32_t *order)
{
    for (uint64_t g = 0; g < groups; g++)
        at[g] = g * s->group;
    for (uint64_t k = 0; k < cols; k++) {
        uint32_t g = s->order[k];
        uint64_t end = g + 1 == groups ? cols : (g + 1) * s->group;
        if (at[g] == end)
            return false;
        order[at[g]++] = (uint32_t)k;
    }
    return true;
}

static tsr_status put_sorted(struct tsr_import *im, const char *name, const struct ordered *o,
                             const struct tsr_format *f, uint32_t **order, uint64_t rows,
                             struct tsr_model_packed **out)
{
    TSR_TRY(create(im, name, rows, o->cols, f, out));
    (*out)->ordered = true;
    im->packed++;
    if (im->headers_only)
        return TSR_OK;
    fill_codes(*out, o->s->bits, sorted_rows, o);
    fill_int_meta(*out, o->s, o->groups);
    (*out)->order = *order;
    *order = NULL;
    return TSR_OK;
}

static tsr_status put_ordered(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                              const struct tsr_import_int *s, const struct tsr_format *f,
                              uint64_t groups, struct tsr_model_packed **out)
{
    struct ordered o = {
        .s = s, .cols = cols, .groups = groups, .stride = (cols * s->bits + 7) / 8
    };
    uint32_t *order = tsr_new(cols, sizeof *order);
    uint64_t *at = tsr_new(groups, sizeof *at);
    o.stream = tsr_new(TSR_IMPORT_ROWS, o.stride + 8);
    o.codes = tsr_new(cols, 1);
    o.sorted = tsr_new(cols, 1);
    o.order = order;
    bool       ok = order && at && o.stream && o.codes && o.sorted && cols <= UINT32_MAX;
    tsr_status st = TSR_OK;
    if (!ok)
        st = tsr_fail_nomem(im->err, TSR_IMPORT_ROWS * (o.stride + 8) + 6 * cols, name);
    else if (sort_columns(s, cols, groups, at, order))
        st = put_sorted(im, name, &o, f, &order, rows, out);
    else
        st = tsr_import_put_wide(im, name, rows, cols, wide_rows, &o,
                                 "their groups of columns (g_idx) are of different sizes, which no "
                                 "packed layout has",
                                 out);
    free(order);
    free(at);
    free(o.stream);
    free(o.codes);
    free(o.sorted);
    return st;
}

tsr_status tsr_import_put_int(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                              const struct tsr_import_int *s, struct tsr_model_packed **out)
{
    struct tsr_format f = { .struct_size = sizeof f,
                            .id = TSR_FORMAT_INT,
                            .bits = s->bits,
                            .group = s->group >= cols ? 0 : s->group,
                            .zero = TSR_ZERO_MID,
                            .scale_dtype = s->f16 ? TSR_F16 : TSR_F32,
                            .act8 = s->act8,
                            .act8_threshold = s->act8_threshold };
    uint64_t          groups = tsr_format_groups(&f, cols);
    if (!all_middle(s, rows * groups))
        f.zero = TSR_ZERO_STORED;
    if (s->order && f.group)
        return put_ordered(im, name, rows, cols, s, &f, groups, out);
    TSR_TRY(create(im, name, rows, cols, &f, out));
    im->packed++;
    if (im->headers_only)
        return TSR_OK;
    fill_codes(*out, s->bits, s->rows, s->source);
    fill_int_meta(*out, s, groups);
    return TSR_OK;
}

tsr_status tsr_import_put_mx(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             uint32_t element, uint64_t group, const uint8_t *scales,
                             tsr_import_rows codes, const void *source,
                             struct tsr_model_packed **out)
{
    struct tsr_format f = { .struct_size = sizeof f,
                            .id = TSR_FORMAT_MX,
                            .bits = 1 + (element >> 8) + (element & 255),
                            .group = group >= cols ? 0 : group,
                            .element = element,
                            .scale_bits = 8 };
    uint64_t          groups = tsr_format_groups(&f, cols);
    TSR_TRY(create(im, name, rows, cols, &f, out));
    im->packed++;
    if (im->headers_only)
        return TSR_OK;
    struct tsr_model_packed *p = *out;
    fill_codes(p, f.bits, codes, source);
    for (uint64_t r = 0; r < rows; r++)
        memcpy((unsigned char *)p->meta + r * p->meta_stride, scales + r * groups, groups);
    return TSR_OK;
}

/* BF16 holds every one of n scales. */
static bool all_bf16(const float *scales, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (tsr_f32_bits(scales[i]) & 0xffffu)
            return false;
    return true;
}

tsr_status tsr_import_put_fp8(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                              uint64_t group, const float *scales, tsr_import_rows codes,
                              const void *source, struct tsr_model_packed **out)
{
    struct tsr_format f = { .struct_size = sizeof f,
                            .id = TSR_FORMAT_FP8,
                            .bits = 8,
                            .group = group >= cols ? 0 : group,
                            .element = TSR_MX_FP8_E4M3 };
    uint64_t          groups = tsr_format_groups(&f, cols);
    f.scale_dtype = all_bf16(scales, rows * groups) ? TSR_BF16 : TSR_F32;
    TSR_TRY(create(im, name, rows, cols, &f, out));
    im->packed++;
    if (im->headers_only)
        return TSR_OK;
    struct tsr_model_packed *p = *out;
    fill_codes(p, f.bits, codes, source);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t g = 0; g < groups; g++) {
            unsigned char *at = (unsigned char *)p->meta + r * p->meta_stride;
            uint16_t       h = tsr_f32_bf16(scales[r * groups + g]);
            if (f.scale_dtype == TSR_F32)
                memcpy(at + 4 * g, &scales[r * groups + g], 4);
            else
                memcpy(at + 2 * g, &h, 2);
        }
    return TSR_OK;
}

tsr_status tsr_import_put_table(struct tsr_import *im, const char *name, uint64_t rows,
                                uint64_t cols, const struct tsr_import_table *t,
                                struct tsr_model_packed **out)
{
    struct tsr_format f = { .struct_size = sizeof f,
                            .id = TSR_FORMAT_TABLE,
                            .bits = t->bits,
                            .group = t->group >= cols ? 0 : t->group,
                            .scale_dtype = t->elements ? 0 : TSR_F32,
                            .scale_bits = t->elements ? 8 : 0,
                            .element = t->elements ? TSR_MX_FP8_E4M3 : 0 };
    uint64_t          groups = tsr_format_groups(&f, cols);
    memcpy(f.table, t->table, sizeof(float) << t->bits);
    TSR_TRY(create(im, name, rows, cols, &f, out));
    im->packed++;
    if (im->headers_only)
        return TSR_OK;
    struct tsr_model_packed *p = *out;
    fill_codes(p, t->bits, t->rows, t->source);
    for (uint64_t r = 0; r < rows; r++) {
        unsigned char *at = (unsigned char *)p->meta + r * p->meta_stride;
        if (t->elements) {
            memcpy(at, &t->divisor, 4);
            memcpy(at + 4, t->elements + r * groups, groups);
        } else {
            memcpy(at, t->scales + r * groups, 4 * groups);
        }
    }
    return TSR_OK;
}

tsr_status tsr_import_put_wide(struct tsr_import *im, const char *name, uint64_t rows,
                               uint64_t cols, tsr_import_rows values, const void *source,
                               const char *why, struct tsr_model_packed **out)
{
    struct tsr_format f = { .struct_size = sizeof f, .id = TSR_FORMAT_FLOAT, .dtype = TSR_F32 };
    TSR_TRY(create(im, name, rows, cols, &f, out));
    tsr_import_note(im, why);
    if (im->headers_only)
        return TSR_OK;
    struct tsr_model_packed *p = *out;
    for (uint64_t r = 0; r < rows; r += TSR_IMPORT_ROWS)
        values(source, r, rows - r < TSR_IMPORT_ROWS ? rows - r : TSR_IMPORT_ROWS,
               (unsigned char *)p->codes + r * p->code_stride, p->code_stride);
    return TSR_OK;
}
