/* weight.c - from the plain row-major layouts of tessera/format.h to panels. */
#include "../weight/weight.h"
#include "product.h"
#include "weight_affine.h"
#include "weight_extra.h"
#include "weight_mapped.h"

#include <stdlib.h>
#include <string.h>

void tsr_cpu_segments(struct tsr_cpu_weight *w, const struct tsr_weight_desc *d)
{
    uint64_t seg = tsr_weight_segment(d);
    w->seg = seg ? seg : 32 * cpu_ceil(d->cols, 256);
    w->nseg = cpu_ceil(d->cols, w->seg);
}

/* Fills w->runs when it is set, else counts. */
static uint64_t cut_runs(struct tsr_cpu_weight *w)
{
    uint64_t n = 0, block = 0, step = cpu_step(w->layout);
    int      aligned = 1;
    for (uint64_t s = 0; s < w->nseg; s++) {
        uint64_t end = cpu_min((s + 1) * w->seg, w->cols);
        for (uint64_t b = s * w->seg; b < end; b += BLOCK, block++) {
            uint64_t last = cpu_min(b + BLOCK, end);
            for (uint64_t k = b; k < last; n++) {
                uint64_t g = k / w->group, k1 = cpu_min((g + 1) * w->group, last);
                if (w->runs)
                    w->runs[n] = (struct tsr_cpu_run){ (uint32_t)k, (uint32_t)k1, (uint32_t)g,
                                                       (uint32_t)block, (uint32_t)s };
                aligned &= k % step == 0;
                k = k1;
            }
        }
    }
    w->nblocks = block;
    w->aligned = (uint32_t)aligned;
    return n;
}

/* 2, 3, 5 and 6 bits are stored in units of 16, 32, 32 and 16 columns; if a group begins inside a unit, a wider
 * layout of smaller steps is faster. */
static enum tsr_cpu_layout packed_layout(uint32_t bits, uint64_t group, uint64_t groups, int mapped)
{
    enum tsr_cpu_layout l = bits == 2   ? W_I2
                            : bits == 3 ? W_I3
                            : bits == 4 ? W_I4
                            : bits <= 6 ? W_I6
                                        : W_I8;
    if (!mapped && bits == 5 && (groups == 1 || group % cpu_step(W_I5) == 0))
        return W_I5;
    if (groups > 1 && group % cpu_step(l) != 0)
        return bits < 4 ? W_I4 : l == W_I6 ? W_I8 : l;
    return l;
}

/* Sizes of everything; false on overflow. */
static int plan(struct tsr_cpu_weight *w, const struct tsr_weight_desc *d)
{
    const struct tsr_format *f = d->format;
    uint64_t                 per_panel, scales = 0, zeros = 0, codes;
    w->rows = d->rows;
    w->cols = d->cols;
    w->panels = cpu_ceil(d->rows, PANEL);
    tsr_cpu_segments(w, d);
    w->group = d->cols;
    w->groups = 1;
    if (strcmp(f->id, TSR_FORMAT_FLOAT) == 0) {
        w->layout = f->dtype == TSR_F32 ? W_F32 : f->dtype == TSR_F16 ? W_F16 : W_BF16;
        per_panel = w->cols * PANEL * tsr_weight_float_size(f->dtype);
    } else {
        w->group = f->group && f->group < d->cols ? f->group : d->cols;
        w->groups = tsr_format_groups(f, d->cols);
        w->layout = packed_layout(f->bits, w->group, w->groups, tsr_cpu_is_mapped(f));
        w->mid = 1u << (f->bits - 1);
        w->scale_f16 = f->scale_dtype == TSR_F16;
        per_panel = cpu_ceil(w->cols, cpu_step(w->layout)) * 2 * cpu_unit(w->layout);
        if (tsr_cpu_is_affine(f) && !tsr_cpu_affine_plan(w, f, &scales))
            return 0;
        if (tsr_cpu_is_mapped(f) && !tsr_cpu_mapped_plan(w, f, &scales))
            return 0;
        if (!w->affine && !w->mapped &&
            __builtin_mul_overflow(w->panels, w->groups * PANEL * (w->scale_f16 ? 2u : 4u),
                                   &scales))
            return 0;
        if (!w->affine && !w->mapped && f->zero == TSR_ZERO_STORED)
            zeros = w->panels * w->groups * PANEL;
    }
    w->panel_bytes = per_panel;
    return !__builtin_mul_overflow(w->panels, per_panel, &codes) &&
           !__builtin_add_overflow(codes, scales, &w->data_bytes) &&
           !__builtin_add_overflow(w->data_bytes, zeros, &w->data_bytes) &&
           w->data_bytes <= PTRDIFF_MAX;
}

static void place(struct tsr_cpu_weight *w, const struct tsr_format *f)
{
    uint64_t codes = w->panels * w->panel_bytes;
    w->codes = w->data;
    if (w->affine) {
        tsr_cpu_affine_place(w, w->data + codes);
    } else if (w->mapped) {
        tsr_cpu_mapped_place(w, w->data + codes);
    } else if (cpu_packed(w->layout)) {
        w->scales = w->data + codes;
        if (f->zero == TSR_ZERO_STORED)
            w->zeros = w->scales + w->panels * w->groups * PANEL * (w->scale_f16 ? 2u : 4u);
    }
}

static void fill_float(const struct tsr_cpu_weight *w, const struct tsr_weight_desc *d,
                       uint64_t panel)
{
    uint64_t       size = tsr_weight_float_size(d->format->dtype), row0 = panel * PANEL;
    uint64_t       n = cpu_min(w->rows - row0, PANEL);
    uint8_t       *dst = w->codes + panel * w->panel_bytes;
    const uint8_t *src = (const uint8_t *)d->codes + row0 * d->code_stride;
    if (n < PANEL)
        memset(dst, 0, w->panel_bytes);
    for (uint64_t k0 = 0; k0 < w->cols; k0 += 32) { /* blocks: both sides stay in cache lines */
        uint64_t k1 = cpu_min(k0 + 32, w->cols);
        for (uint64_t r = 0; r < n; r++) {
            const uint8_t *p = src + r * d->code_stride;
            if (size == 4)
                for (uint64_t k = k0; k < k1; k++)
                    memcpy(dst + (k * PANEL + r) * 4, p + 4 * k, 4);
            else
                for (uint64_t k = k0; k < k1; k++)
                    memcpy(dst + (k * PANEL + r) * 2, p + 2 * k, 2);
        }
    }
}

/* One panel's codes, scales and zero points; rows past the last are zeros. */
static void fill_codes(const struct tsr_cpu_weight *w, const struct tsr_weight_desc *d,
                       uint64_t panel)
{
    const struct tsr_format *f = d->format;
    uint64_t                 row0 = panel * PANEL, n = cpu_min(w->rows - row0, PANEL);
    uint64_t                 ssize = w->scale_f16 ? 2 : 4, meta = panel * w->groups * PANEL;
    cpu_of(w)->k->place(w->layout, w->codes + panel * w->panel_bytes,
                        (const uint8_t *)d->codes + row0 * d->code_stride, d->code_stride, n,
                        w->cols, f->bits);
    if (w->affine) {
        tsr_cpu_affine_fill(w, d, panel);
        return;
    }
    if (w->mapped) {
        tsr_cpu_mapped_fill(w, d, panel);
        return;
    }
    if (n < PANEL)
        memset(w->scales + meta * ssize, 0, w->groups * PANEL * ssize);
    if (n < PANEL && w->zeros)
        memset(w->zeros + meta, 0, w->groups * PANEL);
    for (uint64_t r = 0; r < n; r++) {
        const uint8_t *m = (const uint8_t *)d->meta + (row0 + r) * d->meta_stride;
        for (uint64_t g = 0; g < w->groups; g++) {
            uint64_t at = meta + g * PANEL + r;
            memcpy(w->scales + at * ssize, m + g * ssize, ssize);
            if (w->zeros)
                w->zeros[at] = m[w->groups * ssize + g];
        }
    }
}

static tsr_status fill_panels(void *arg, uint64_t begin, uint64_t end)
{
    const struct tsr_cpu_weight *w = arg;
    for (uint64_t p = begin; p < end; p++)
        if (cpu_packed(w->layout))
            fill_codes(w, cpu_loaded(w)->from, p);
        else
            fill_float(w, cpu_loaded(w)->from, p);
    return TSR_OK;
}

/* ---- of the tables of product.h ------------------------------------------------------------------ */

tsr_status tsr_cpu_no_scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err)
{
    (void)self;
    (void)w;
    (void)n;
    (void)err;
    *bytes = 0;
    return TSR_OK;
}

tsr_status tsr_cpu_prepared(const void *self, const struct tsr_kernel_weight *of, uint64_t *bytes,
                            struct tsr_err *err)
{
    (void)of;
    (void)err;
    *bytes = ((const struct tsr_cpu_weight *)self)->data_bytes;
    return TSR_OK;
}

/* All rows; `to` is w->data. */
tsr_status tsr_cpu_prepare(const void *self, const struct tsr_kernel_weight *of, void *to,
                           struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = self;
    (void)of;
    (void)to;
    (void)err;
    return w->layout >= W_TAB ? tsr_cpu_extra_fill(w)
                              : tsr_cpu_for(cpu_of(w), w->panels, w->panel_bytes, fill_panels,
                                            (void *)(uintptr_t)w);
}

uint64_t tsr_cpu_weight_taken(const struct tsr_cpu_weight *w)
{
    return sizeof(struct tsr_cpu_loaded) + w->nruns * sizeof *w->runs + w->data_bytes;
}

tsr_status tsr_cpu_weight_outline(const struct tsr_weight_desc *d, struct tsr_cpu_weight *w,
                                  struct tsr_err *err)
{
    memset(w, 0, sizeof *w);
    tsr_status st = tsr_weight_check(d, 0, "CPU", err);
    if (st != TSR_OK)
        return st;
    if (tsr_cpu_extra_takes(d))
        return tsr_cpu_extra_outline(d, w, err);
    if (!plan(w, d))
        return tsr_weight_refuse(err, d, "it is larger than the address space");
    w->nruns = cut_runs(w);
    tsr_cpu_extra_int(w, d->format);
    return TSR_OK;
}

tsr_status tsr_cpu_weight_data(struct tsr_cpu *c, const struct tsr_weight_desc *d,
                               struct tsr_cpu_weight *w, uint64_t runs, const void *data,
                               uint64_t bytes, struct tsr_err *err)
{
    const struct tsr_host *host = c->host;
    if (data && bytes != w->data_bytes)
        return tsr_fail(err, TSR_E_INVAL, "weight '%s': %llu bytes are given, it takes %llu",
                        d->name ? d->name : "?", (unsigned long long)bytes,
                        (unsigned long long)w->data_bytes);
    w->nruns = runs;
    w->runs = host->alloc(host->ctx, runs * sizeof *w->runs, 64);
    w->borrowed = data != NULL;
    if (data)
        w->data = (uint8_t *)(uintptr_t)data; /* read-only: a loaded weight is never written */
    else
        w->data = w->runs ? c->mem->get(host, w->data_bytes) : NULL;
    if (w->runs && w->data)
        return TSR_OK;
    host->release(host->ctx, w->runs, runs * sizeof *w->runs);
    return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for weight '%s'",
                    (unsigned long long)(data ? runs * sizeof *w->runs : w->data_bytes),
                    d->name ? d->name : "?");
}

struct tsr_cpu_weight *tsr_cpu_weight_new(const struct tsr_cpu *c, struct tsr_err *err)
{
    struct tsr_cpu_loaded *l = c->host->alloc(c->host->ctx, sizeof *l, 64);
    if (!l) {
        (void)tsr_fail(err, TSR_E_NOMEM, "out of memory: a weight");
        return NULL;
    }
    memset(l, 0, sizeof *l);
    l->c = c;
    return &l->w;
}

tsr_status tsr_cpu_weight_fill(struct tsr_cpu *c, const struct tsr_weight_desc *d,
                               struct tsr_cpu_weight *w, struct tsr_err *err)
{
    struct tsr_cpu_loaded   *l = (struct tsr_cpu_loaded *)(void *)w;
    struct tsr_kernel_weight of = tsr_cpu_rows_of(w);
    of.codes = d->codes;
    of.meta = d->meta;
    of.prepared = NULL;
    of.prepared_rows = 0;
    l->from = d;
    c->mem->open(w->data, w->data_bytes);
    tsr_status st = tsr_cpu_kernel_of(w, TSR_ACT_F32, 1)->prepare(w, &of, w->data, err);
    c->mem->close(w->data, w->data_bytes);
    l->from = NULL;
    if (st == TSR_OK)
        return st;
    tsr_cpu_weight_free(c, w);
    return tsr_fail(err, st, "weight '%s': loading was stopped", d->name ? d->name : "?");
}

/* From d's codes and meta, or over `bytes` bytes of panels that stay the caller's. */
static tsr_status make(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                       uint64_t bytes, void **weight, struct tsr_err *err)
{
    const struct tsr_host *host = c->host;
    tsr_status             st = tsr_weight_check(d, !data, "CPU", err);
    if (st != TSR_OK)
        return st;
    if (tsr_cpu_extra_takes(d))
        return tsr_cpu_extra_load(c, d, data, bytes, weight, err);
    struct tsr_cpu_weight *w = tsr_cpu_weight_new(c, err);
    if (!w)
        return TSR_E_NOMEM;
    st = plan(w, d) ? tsr_cpu_weight_data(c, d, w, cut_runs(w), data, bytes, err)
                    : tsr_weight_refuse(err, d, "it is larger than the address space");
    if (st != TSR_OK) {
        host->release(host->ctx, w, sizeof(struct tsr_cpu_loaded));
        return st;
    }
    (void)cut_runs(w);
    place(w, d->format);
    tsr_cpu_extra_int(w, d->format);
    if (!data && (st = tsr_cpu_weight_fill(c, d, w, err)) != TSR_OK)
        return st;
    *weight = w;
    return TSR_OK;
}

tsr_status tsr_cpu_weight_load(void *self, const struct tsr_weight_desc *d, void **weight,
                               struct tsr_err *err)
{
    return make(self, d, NULL, 0, weight, err);
}

tsr_status tsr_cpu_weight_over(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                               uint64_t bytes, void **weight, struct tsr_err *err)
{
    return make(c, d, data, bytes, weight, err);
}

void tsr_cpu_weight_free(void *self, void *weight)
{
    struct tsr_cpu        *c = self;
    struct tsr_cpu_weight *w = weight;
    if (!w)
        return;
    if (!w->borrowed)
        c->mem->put(c->host, w->data, w->data_bytes);
    c->host->release(c->host->ctx, w->runs, w->nruns * sizeof *w->runs);
    c->host->release(c->host->ctx, w, sizeof(struct tsr_cpu_loaded));
}

uint64_t tsr_cpu_weight_bytes(const void *self, const void *weight)
{
    uint64_t bytes = 0;
    (void)self;
    if (weight) {
        const struct tsr_kernel_weight of = tsr_cpu_rows_of(weight);
        (void)tsr_cpu_kernel_of(weight, TSR_ACT_F32, 1)->prepared(weight, &of, &bytes, NULL);
    }
    return bytes;
}
