/* weight.c - the panels of k_args.h: how large they are, and their life on the device. */
#include "../weight/weight.h"
#include "backend.h"

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
    struct k_weight        *k = &w->k;
    struct tsr_cuda_places *p = &w->at;
    int                     lut = k->kind == K_LUT, packed = k->kind != K_FLOAT;
    uint64_t panels = cuda_ceil(d->rows, K_PANEL), rows = panels * K_PANEL, codes, none = 0,
             total = 0;
    uint64_t scale = k->scale_kind == K_SCALE_F32 ? 4 : k->scale_kind == K_SCALE_F16 ? 2 : 1;
    int      minimums = k->affine && k->scale_kind != K_SCALE_NIBBLES;
    if (__builtin_mul_overflow(cuda_ceil(d->cols, K_STEP), 128u * (uint64_t)k->bits, &codes))
        return 0;
    if (!take(&total, panels, codes, &none) ||
        !take(&total, packed && !lut ? rows * scale : 0, k->groups, &p->scales) ||
        !take(&total, minimums ? rows * scale : 0, k->groups, &p->minimums) ||
        !take(&total,
              k->records                      ? rows * 2 * (1 + k->affine)
              : k->scale_kind == K_SCALE_E4M3 ? rows * 4
                                              : 0,
              k->records ? k->records : 1, &p->factors) ||
        !take(&total, w->zeros ? rows : 0, k->groups, &p->zeros) ||
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

/* Scales as codes of records of 256 columns. */
static void outline_records(struct k_weight *k, const struct tsr_format *f, uint64_t cols)
{
    k->records = (uint32_t)cuda_ceil(cols, 256);
    while (f->group << k->record_shift < 256)
        k->record_shift++;
}

static void outline_affine(struct k_weight *k, const struct tsr_format *f, uint64_t cols)
{
    k->kind = K_INT;
    k->affine = 1;
    k->scale_kind = f->scale_bits == 4          ? K_SCALE_NIBBLES
                    : f->scale_bits             ? K_SCALE_LEVELS
                    : f->scale_dtype == TSR_F16 ? K_SCALE_F16
                                                : K_SCALE_F32;
    if (f->scale_bits)
        outline_records(k, f, cols);
}

static void outline_table(struct k_weight *k, const struct tsr_format *f, uint64_t cols)
{
    k->kind = f->bits > 4 ? K_INT : K_MX;
    k->mid = 1u << (f->bits - 1);
    k->entries = f->bits > 4 ? 0 : 256;
    k->scale_kind = f->element                  ? K_SCALE_E4M3
                    : f->scale_bits             ? K_SCALE_LEVELS
                    : f->scale_dtype == TSR_F16 ? K_SCALE_F16
                                                : K_SCALE_F32;
    if (k->scale_kind == K_SCALE_LEVELS) {
        k->bias = 1u << (f->scale_bits - 1);
        outline_records(k, f, cols);
    }
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
        if (strcmp(f->id, TSR_FORMAT_AFFINE) == 0) {
            outline_affine(k, f, d->cols);
        } else if (strcmp(f->id, TSR_FORMAT_TABLE) == 0) {
            outline_table(k, f, d->cols);
        } else if (strcmp(f->id, TSR_FORMAT_INT) == 0) {
            k->kind = K_INT;
            k->mid = 1u << (f->bits - 1);
            w->zeros = f->zero == TSR_ZERO_STORED;
            k->scale_kind = f->scale_dtype == TSR_F16 ? K_SCALE_F16 : K_SCALE_F32;
            w->llm = TSR_HAS(struct tsr_format, f, act8) && f->act8 == TSR_ACT8_LLM;
            k->threshold = w->llm ? (float)f->act8_threshold : 0.0f;
            int8 = !w->llm || d->cols <= LLM_COLS_MAX;
        } else {
            k->kind = K_MX;
            k->entries = 256;
            k->scale_kind = strcmp(f->id, TSR_FORMAT_FP8) == 0 ? K_SCALE_F32 : K_SCALE_E8;
            k->digits = tsr_element_digits(f->element, 7);
        }
    }
    w->a8 = int8;
    k->regular = k->groups == 1 || k->group % K_STEP == 0 ? 1 : k->group % K_HALF == 0 ? 2 : 0;
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

/* ---- on the device ------------------------------------------------------------------ */

static void place(struct tsr_cuda_weight *w)
{
    uint64_t base = w->address;
    w->k.codes = base;
    w->k.scales = base + w->at.scales;
    w->k.minimums = base + w->at.minimums;
    w->k.factors = base + w->at.factors;
    w->k.zeros = w->zeros ? base + w->at.zeros : 0;
    w->k.table = base + w->at.table;
    w->k.table8 = base + w->at.table8;
    w->k.unit = base + w->at.unit;
    w->k.column = base + w->at.column;
    w->k.value = base + w->at.value;
    w->k.delta = base + w->at.delta;
}

/* Whether a zero point is above K_ZERO_MOST.  bytes: the layout's. */
static int has_far_zeros(const struct tsr_cuda_weight *w, const uint8_t *bytes)
{
    const uint64_t n = cuda_ceil(w->k.rows, K_PANEL) * K_PANEL * w->k.groups;
    uint8_t        most = 0;
    for (uint64_t i = 0; i < n && w->zeros; i++)
        most = bytes[w->at.zeros + i] > most ? bytes[w->at.zeros + i] : most;
    return most > K_ZERO_MOST;
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
    place(w);
    w->far = has_far_zeros(w, data ? data : bytes);
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
    TSR_CUDA_ALONE(self);
    return make(self, d, NULL, weight, err);
}

void tsr_cuda_weight_free(void *self, void *weight)
{
    struct tsr_cuda        *c = self;
    struct tsr_cuda_weight *w = weight;
    if (!w)
        return;
    TSR_CUDA_ALONE(c);
    (void)tsr_cuda_flush(c, NULL); /* queued launches may use it */
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
    TSR_CUDA_ALONE(c);
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
    TSR_CUDA_ALONE(self);
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
