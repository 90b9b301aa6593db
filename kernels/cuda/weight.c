/* weight.c - from the plain row-major layouts of tessera/format.h to the panels of k_args.h, and
 * their life on the device. */
#include "../weight/weight.h"
#include "backend.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define U(x)          ((unsigned long long)(x))
#define LLM_COLS_MAX  65536u /* 255 * 127 times as many fit an int32 */
#define PANELS_ID     "tessera.cuda.panels"
#define PANELS_NUMBER 2u

/* ---- sizes ------------------------------------------------------------------------- */

/* Takes a * b bytes, rounded up to 256, from the end of *total; 0 on overflow. */
static int take(uint64_t *total, uint64_t a, uint64_t b, uint64_t *place)
{
    uint64_t n;
    *place = *total;
    return !__builtin_mul_overflow(a, b, &n) && n < (UINT64_C(1) << 60) &&
           !__builtin_add_overflow(*total, (n + 255) / 256 * 256, total);
}

static int plan(struct tsr_cuda_weight *w, const struct tsr_weight_desc *d)
{
    const struct tsr_format *f = d->format;
    struct k_weight         *k = &w->k;
    struct tsr_cuda_places  *p = &w->at;
    int                      lut = k->kind == K_LUT, packed = k->kind != K_FLOAT;
    uint64_t panels = cuda_ceil(d->rows, K_PANEL), rows = panels * K_PANEL, codes, none = 0,
             total = 0;
    uint64_t scale = k->scale_kind == K_SCALE_F32 ? 4 : k->scale_kind == K_SCALE_F16 ? 2 : 1;
    if (__builtin_mul_overflow(cuda_ceil(d->cols, K_STEP), 128u * (uint64_t)k->bits, &codes))
        return 0;
    if (!take(&total, panels, codes, &none) ||
        !take(&total, packed && !lut ? rows * scale : 0, k->groups, &p->scales) ||
        !take(&total, k->kind == K_INT && f->zero == TSR_ZERO_STORED ? rows : 0, k->groups,
              &p->zeros) ||
        !take(&total,
              lut               ? rows * 4
              : k->kind == K_MX ? 4
                                : 0,
              k->entries, &p->table) ||
        !take(&total,
              lut               ? rows
              : k->kind == K_MX ? k->digits
                                : 0,
              k->entries, &p->table8) ||
        !take(&total, lut || k->kind == K_MX ? rows : 0, 4, &p->unit) ||
        !take(&total, rows * 4, k->outliers, &p->column) ||
        !take(&total, rows * 4, k->outliers, &p->value) ||
        !take(&total, rows * 4, k->outliers, &p->delta) || total > PTRDIFF_MAX)
        return 0;
    p->total = total;
    return 1;
}

static void outline_packed(struct tsr_cuda_weight *w, const struct tsr_weight_desc *d)
{
    const struct tsr_format *f = d->format;
    struct k_weight         *k = &w->k;
    int                      int8 = 1;
    k->bits = f->bits;
    k->digits = 1;
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0) {
        k->kind = K_LUT;
        k->entries = 1u << f->bits;
        k->outliers = (uint32_t)f->outliers;
    } else {
        k->group = f->group && f->group < d->cols ? (uint32_t)f->group : (uint32_t)d->cols;
        k->groups = (uint32_t)tsr_format_groups(f, d->cols);
        if (strcmp(f->id, TSR_FORMAT_INT) == 0) {
            k->kind = K_INT;
            k->mid = 1u << (f->bits - 1);
            k->scale_kind = f->scale_dtype == TSR_F16 ? K_SCALE_F16 : K_SCALE_F32;
            w->llm = TSR_HAS(struct tsr_format, f, act8) && f->act8 == TSR_ACT8_LLM;
            k->threshold = w->llm ? (float)f->act8_threshold : 0.0f;
            int8 = !w->llm || d->cols <= LLM_COLS_MAX;
        } else {
            k->kind = K_MX;
            k->entries = 256;
            k->scale_kind = K_SCALE_E8;
            k->digits = tsr_element_digits(f->element, 7);
        }
    }
    w->a8 = int8;
    k->regular = k->groups == 1 || k->group % K_STEP == 0;
}

tsr_status tsr_cuda_outline(const struct tsr_weight_desc *d, int data, struct tsr_cuda_weight *w,
                            struct tsr_err *err)
{
    tsr_status st = tsr_weight_check(d, data, "CUDA", err);
    if (st != TSR_OK)
        return st;
    const struct tsr_format *f = d->format;
    *w = (struct tsr_cuda_weight){ .k = { .rows = d->rows,
                                          .cols = d->cols,
                                          .kind = K_FLOAT,
                                          .group = (uint32_t)d->cols,
                                          .groups = 1,
                                          .regular = 1 } };
    uint64_t segment = tsr_weight_segment(d) ? tsr_weight_segment(d) : 32 * cuda_ceil(d->cols, 256);
    w->k.segment = (uint32_t)cuda_min(segment, cuda_ceil(d->cols, 32) * 32);
    /* there is a column, so that segments are not 0 wide; the analyzer does not see it */
    w->k.segments = (uint32_t)cuda_ceil(d->cols, w->k.segment ? w->k.segment : 1);
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0) {
        w->k.bits = (uint32_t)tsr_weight_float_size(f->dtype) * 8;
        w->k.bf16 = f->dtype == TSR_BF16;
    } else {
        outline_packed(w, d);
    }
    return plan(w, d) ? TSR_OK : tsr_weight_refuse(err, d, "it is larger than the address space");
}

/* ---- bytes ------------------------------------------------------------------------- */

struct fill {
    const struct tsr_weight_desc *d;
    const struct tsr_cuda_weight *w;
    uint8_t                      *bytes;
};

/* A step's 32 codes of lane r, into the planes of k_args.h. */
static void put_step(uint8_t *step, uint32_t bits, uint64_t r, const uint8_t *code)
{
    for (uint32_t c = 0; c < K_STEP; c++) {
        uint32_t j = c / 4, i = c % 4, v = code[c];
        uint8_t *p = step;
        if (bits == 8) {
            p[c / 16 * 512 + r * 16 + c % 16] = code[c];
            continue;
        }
        if (bits & 4u) {
            p[r * 16 + j / 2 * 4 + i] |= (uint8_t)((v & 15u) << 4 * (j & 1u));
            v >>= 4;
            p += 512;
        }
        if (bits & 2u) {
            p[r * 8 + j / 4 * 4 + i] |= (uint8_t)((v & 3u) << 2 * (j & 3u));
            v >>= 2;
            p += 256;
        }
        if (bits & 1u)
            p[r * 4 + i] |= (uint8_t)((v & 1u) << j);
    }
}

static void fill_codes(const struct fill *f, uint64_t row, const uint8_t *swap, uint64_t n_swap,
                       uint8_t by)
{
    const struct tsr_weight_desc *d = f->d;
    uint32_t                      bits = f->w->k.bits;
    const uint8_t                *src = (const uint8_t *)d->codes + row * d->code_stride;
    uint64_t                      steps = cuda_ceil(d->cols, K_STEP), r = row % K_PANEL, at = 0;
    uint8_t                      *dst = f->bytes + row / K_PANEL * steps * 128u * bits;
    for (uint64_t s = 0; s < steps; s++, dst += 128u * bits) {
        uint8_t code[K_STEP] = { 0 };
        for (uint64_t c = 0; c < cuda_min(K_STEP, d->cols - s * K_STEP); c++) {
            uint64_t bit = (s * K_STEP + c) * bits;
            uint32_t v = (uint32_t)src[bit / 8] >> bit % 8;
            if (bit % 8 + bits > 8)
                v |= (uint32_t)src[bit / 8 + 1] << (8 - bit % 8);
            code[c] = (uint8_t)(v & ((1u << bits) - 1u));
            uint32_t column;
            if (at < n_swap) { /* columns that take another code: outliers */
                memcpy(&column, swap + 4 * at, 4);
                if (column == s * K_STEP + c) {
                    code[c] = by;
                    at++;
                }
            }
        }
        put_step(dst, bits, r, code);
    }
}

static void fill_float(const struct fill *f, uint64_t row)
{
    const struct tsr_weight_desc *d = f->d;
    uint64_t                      size = f->w->k.bits / 8, each = 16 / size, r = row % K_PANEL;
    uint64_t                      steps = cuda_ceil(d->cols, K_STEP);
    const uint8_t                *src = (const uint8_t *)d->codes + row * d->code_stride;
    uint8_t                      *dst = f->bytes + row / K_PANEL * steps * 128u * f->w->k.bits;
    for (uint64_t k = 0; k < d->cols; k += each)
        memcpy(dst + k / each * 512 + r * 16, src + k * size, cuda_min(each, d->cols - k) * size);
}

static void fill_scales(const struct fill *f, uint64_t row)
{
    const struct k_weight   *k = &f->w->k;
    const struct tsr_format *form = f->d->format;
    const uint8_t           *meta = (const uint8_t *)f->d->meta + row * f->d->meta_stride;
    uint64_t                 size = k->scale_kind == K_SCALE_F32 ? 4 : 2;
    int                      lim = (1 << (form->scale_bits ? form->scale_bits - 1 : 0)) - 1;
    for (uint64_t g = 0; g < k->groups; g++) {
        uint64_t at = (row / K_PANEL * k->groups + g) * K_PANEL + row % K_PANEL;
        if (k->kind == K_MX) {
            f->bytes[f->w->at.scales + at] =
                meta[g] > 2 * lim ? 255 : (uint8_t)(meta[g] - lim + 127);
            continue;
        }
        memcpy(f->bytes + f->w->at.scales + at * size, meta + g * size, size);
        if (form->zero == TSR_ZERO_STORED)
            f->bytes[f->w->at.zeros + at] = meta[k->groups * size + g];
    }
}

static void fill_lut(const struct fill *f, uint64_t row)
{
    const struct k_weight        *k = &f->w->k;
    const struct tsr_cuda_places *at = &f->w->at;
    const struct tsr_format      *form = f->d->format;
    const uint8_t                *meta = (const uint8_t *)f->d->meta + row * f->d->meta_stride;
    const uint8_t *columns = meta + tsr_format_lut_meta_bytes(form) - 4u * k->outliers;
    float          table[256];
    int8_t         t[256] = { 0 };
    uint32_t       zero = 0;
    for (uint32_t i = 0; i < k->entries; i++)
        table[i] = tsr_weight_entry(form, meta, i);
    float unit = tsr_weight_round_table(table, k->entries, t);
    memcpy(f->bytes + at->unit + 4 * row, &unit, 4);
    for (uint32_t i = 0; i < k->entries; i++) {
        uint64_t place = (row / K_PANEL * k->entries + i) * K_PANEL + row % K_PANEL;
        memcpy(f->bytes + at->table + 4 * place, &table[i], 4);
        memcpy(f->bytes + at->table8 + place, &t[i], 1);
        if ((t[i] < 0 ? -t[i] : t[i]) < (t[zero] < 0 ? -t[zero] : t[zero]))
            zero = i;
    }
    fill_codes(f, row, columns, k->outliers, (uint8_t)zero);
    for (uint64_t i = 0; i < k->outliers; i++) {
        float v = tsr_weight_entry(form, meta, k->entries + i), delta = v - (float)t[zero] * unit;
        uint64_t place = 4 * (row * k->outliers + i);
        memcpy(f->bytes + at->column + place, columns + 4 * i, 4);
        memcpy(f->bytes + at->value + place, &v, 4);
        memcpy(f->bytes + at->delta + place, &delta, 4);
    }
}

/* What the digits of a row count; NaN where it holds a code that is no number. */
static void fill_unit(const struct fill *f, uint64_t row)
{
    const struct tsr_weight_desc *d = f->d;
    uint32_t                      element = d->format->element, bits = d->format->bits;
    const uint8_t                *codes = (const uint8_t *)d->codes + row * d->code_stride;
    float                         unit = ldexpf(1.0f, -tsr_element_unit(element));
    for (uint64_t k = 0; k < d->cols && bits == 8; k++)
        if (!tsr_element_finite(element, codes[k] & 127u))
            unit = NAN;
    memcpy(f->bytes + f->w->at.unit + 4 * row, &unit, 4);
}

static tsr_status fill_panels(void *arg, uint64_t begin, uint64_t end)
{
    const struct fill *f = arg;
    for (uint64_t row = begin * K_PANEL; row < cuda_min(end * K_PANEL, f->d->rows); row++) {
        if (f->w->k.kind == K_FLOAT) {
            fill_float(f, row);
        } else if (f->w->k.kind == K_LUT) {
            fill_lut(f, row);
        } else {
            fill_codes(f, row, NULL, 0, 0);
            fill_scales(f, row);
            if (f->w->k.kind == K_MX)
                fill_unit(f, row);
        }
    }
    return TSR_OK;
}

tsr_status tsr_cuda_pack(const struct tsr_cuda *c, const struct tsr_weight_desc *d,
                         const struct tsr_cuda_weight *w, uint8_t *bytes)
{
    struct fill f = { d, w, bytes };
    if (w->k.kind == K_MX)
        for (uint32_t i = 0; i < 1u << w->k.bits; i++) {
            float    v = tsr_element_value(d->format->element, i);
            uint32_t half = 1u << (w->k.bits - 1),
                     units = tsr_element_units(d->format->element, i & (half - 1));
            memcpy(bytes + w->at.table + 4u * i, &v, 4);
            for (uint32_t n = 0; n < w->k.digits; n++, units >>= 7) {
                int8_t t = (int8_t)(i & half ? -(int)(units & 127u) : (int)(units & 127u));
                memcpy(bytes + w->at.table8 + 256u * n + i, &t, 1);
            }
        }
    return c->host->parallel_for(c->host->ctx, cuda_ceil(d->rows, K_PANEL), 1, fill_panels, &f);
}

/* ---- on the device ------------------------------------------------------------------ */

static void place(struct tsr_cuda_weight *w, const struct tsr_format *f)
{
    uint64_t base = w->address;
    w->k.codes = base;
    w->k.scales = base + w->at.scales;
    w->k.zeros = w->k.kind == K_INT && f->zero == TSR_ZERO_STORED ? base + w->at.zeros : 0;
    w->k.table = base + w->at.table;
    w->k.table8 = base + w->at.table8;
    w->k.unit = base + w->at.unit;
    w->k.column = base + w->at.column;
    w->k.value = base + w->at.value;
    w->k.delta = base + w->at.delta;
}

/* data: the layout's bytes, or NULL: packed from d. */
static tsr_status make(struct tsr_cuda *c, const struct tsr_weight_desc *d, const void *data,
                       void **weight, struct tsr_err *err)
{
    const struct tsr_host  *host = c->host;
    struct tsr_cuda_weight *w = host->alloc(host->ctx, sizeof *w, 64);
    uint8_t                *bytes = NULL;
    if (!w)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a weight");
    tsr_status st = tsr_cuda_outline(d, !data, w, err);
    if (st != TSR_OK)
        goto error_weight;
    w->memory = c->weights;
    uint64_t total = w->at.total;
    if (!data) {
        bytes = host->alloc(host->ctx, total, 64);
        if (!bytes) {
            st = tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes to repack weight '%s'",
                          U(total), d->name ? d->name : "?");
            goto error_weight;
        }
        memset(bytes, 0, total);
        st = tsr_cuda_pack(c, d, w, bytes);
        if (st != TSR_OK) {
            (void)tsr_fail(err, st, "weight '%s': loading was stopped", d->name ? d->name : "?");
            goto error_bytes;
        }
    }
    st = c->api->alloc(c->device, total, w->memory, &w->address, err);
    if (st != TSR_OK)
        goto error_bytes;
    st = c->api->put(c->device, w->address, data ? data : bytes, total, err);
    if (st != TSR_OK) {
        c->api->release(c->device, w->address, w->memory);
        goto error_bytes;
    }
    place(w, d->format);
    *weight = w;
error_bytes:
    if (bytes)
        host->release(host->ctx, bytes, total);
    if (st == TSR_OK)
        return st;
error_weight:
    host->release(host->ctx, w, sizeof *w);
    return st;
}

tsr_status tsr_cuda_weight_load(void *self, const struct tsr_weight_desc *d, void **weight,
                                struct tsr_err *err)
{
    return make(self, d, NULL, weight, err);
}

void tsr_cuda_weight_free(void *self, void *weight)
{
    struct tsr_cuda        *c = self;
    struct tsr_cuda_weight *w = weight;
    if (!w)
        return;
    (void)tsr_cuda_flush(c, NULL); /* what is queued may use it */
    c->api->release(c->device, w->address, w->memory);
    c->host->release(c->host->ctx, w, sizeof *w);
}

uint64_t tsr_cuda_weight_bytes(const void *self, const void *weight)
{
    (void)self;
    return weight ? ((const struct tsr_cuda_weight *)weight)->at.total : 0;
}

/* ---- tessera/backend_layout.h --------------------------------------------------------- */

static tsr_status weight_layout(const void *self, const struct tsr_weight_desc *d,
                                struct tsr_weight_layout *l, struct tsr_err *err)
{
    struct tsr_cuda_weight w;
    tsr_status             st = tsr_cuda_outline(d, 0, &w, err);
    (void)self;
    if (st != TSR_OK)
        return st;
    l->id = PANELS_ID;
    l->revision = PANELS_NUMBER;
    l->target = NULL;
    l->bytes = w.at.total;
    l->align = 64;
    return TSR_OK;
}

static tsr_status weight_read(void *self, const void *weight, uint64_t offset, void *dst,
                              uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cuda              *c = self;
    const struct tsr_cuda_weight *w = weight;
    if (!w || !dst || offset > w->at.total || bytes > w->at.total - offset)
        return tsr_fail(err, TSR_E_INVAL,
                        "weight_read: %llu bytes at %llu do not lie in a weight of %llu", U(bytes),
                        U(offset), U(w ? w->at.total : 0));
    return bytes ? c->api->get(c->device, dst, w->address + offset, bytes, err) : TSR_OK;
}

/* Columns of outliers index activations, so that a damaged file must not bring others. */
static int columns_hold(const struct tsr_cuda_weight *w, const uint8_t *data)
{
    uint64_t n = w->k.outliers;
    for (uint64_t row = 0; n && row < w->k.rows; row++)
        for (uint64_t i = 0; i < n; i++) {
            uint32_t column, last = 0;
            memcpy(&column, data + w->at.column + 4 * (row * n + i), 4);
            if (i)
                memcpy(&last, data + w->at.column + 4 * (row * n + i - 1), 4);
            if (column >= w->k.cols || (i && column <= last))
                return 0;
        }
    for (uint64_t i = w->k.rows * n; i < cuda_ceil(w->k.rows, K_PANEL) * K_PANEL * n; i++) {
        uint32_t column; /* of rows past the end: all zero */
        memcpy(&column, data + w->at.column + 4 * i, 4);
        if (column)
            return 0;
    }
    return 1;
}

static tsr_status weight_borrow(void *self, const struct tsr_weight_desc *d, const void *data,
                                uint64_t bytes, void **weight, struct tsr_err *err)
{
    struct tsr_cuda_weight w;
    tsr_status             st = tsr_cuda_outline(d, 0, &w, err);
    if (st != TSR_OK)
        return st;
    if (!data || bytes != w.at.total)
        return tsr_fail(err, TSR_E_INVAL, "weight '%s': %llu bytes are given, it takes %llu",
                        d->name ? d->name : "?", U(data ? bytes : 0), U(w.at.total));
    if (!columns_hold(&w, data))
        return tsr_weight_refuse(err, d,
                                 "the columns of its outliers do not ascend within the row");
    return make(self, d, data, weight, err);
}

const struct tsr_backend_layout_v1 *tsr_cuda_layout(void)
{
    static const struct tsr_backend_layout_v1 table = { .struct_size = sizeof table,
                                                        .weight_layout = weight_layout,
                                                        .weight_read = weight_read,
                                                        .weight_borrow = weight_borrow };
    return &table;
}
