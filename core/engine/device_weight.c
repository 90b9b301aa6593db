/* Weights of a device: loaded, borrowed from a mapped file, or widened if the device declines a format. */
#include "engine/device_internal.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/own.h"
#include "model/packed_slice.h"

#include <stdlib.h>
#include <string.h>

/* The F32 matrix of a weight that the device cannot read. */
static tsr_status widen_weight(const struct tsr_weight_desc *w, const struct tsr_model_packed *p,
                               float **out, struct tsr_err *err)
{
    uint64_t n;
    float   *dense;
    if (!tsr_mul(w->rows, w->cols, &n) || !(dense = tsr_new_aligned(n, sizeof *dense)))
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %s as F32", w->name);
    tsr_status st = TSR_OK;
    if (p)
        st = tsr_model_packed_dequantize(p, 0, w->rows, dense, err);
    else
        for (uint64_t r = 0; r < w->rows; r++)
            tsr_widen(dense + r * w->cols, (const char *)w->codes + r * w->code_stride,
                      w->format->dtype, w->cols);
    if (st != TSR_OK) {
        free(dense);
        return st;
    }
    *out = dense;
    return TSR_OK;
}

/* Once for each layout and width. */
static void say_format(struct tsr_engine_device *d, const struct tsr_format *f, const char *why)
{
    char     name[64];
    uint32_t bit = strcmp(f->id, TSR_FORMAT_FLOAT) == 0   ? f->dtype
                   : strcmp(f->id, TSR_FORMAT_INT) == 0   ? 6 + f->bits
                   : strcmp(f->id, TSR_FORMAT_LUT) == 0   ? 14 + f->bits
                   : strcmp(f->id, TSR_FORMAT_MX) == 0    ? 22 + f->bits
                   : strcmp(f->id, TSR_FORMAT_TABLE) == 0 ? 38 + f->bits
                   : strcmp(f->id, TSR_FORMAT_FP8) == 0   ? 47
                                                          : 30 + f->bits;
    if (d->said_formats >> bit & 1u)
        return;
    d->said_formats |= UINT64_C(1) << bit;
    tsr_model_format_name(f, name, sizeof name);
    tsr_logf(TSR_LOG_WARN, "%s does not read %s (%s): such weights run as F32", d->text, name, why);
}

/* TSR_E_UNSUPPORTED if it is not whole numbers under a table, or if the device does not read these either. */
static tsr_status load_integers(struct tsr_engine_device *d, struct tsr_engine_weight *w,
                                struct tsr_err *err)
{
    struct tsr_engine_integers i;
    TSR_TRY(tsr_engine_integers_make(&i, &w->desc, err));
    tsr_status st = d->iface->weight_load(d->self, &i.desc, &w->handle, err);
    tsr_engine_integers_free(&i);
    return st;
}

/* Loads w->desc, or the same values as integers or F32 if the device declines the format. */
static tsr_status load_weight(struct tsr_engine_device *d, struct tsr_engine_weight *w,
                              const struct tsr_model_packed *p, struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    why.text[0] = 0;
    tsr_status st = d->iface->weight_load(d->self, &w->desc, &w->handle, &why.err);
    if (st != TSR_E_UNSUPPORTED)
        return st == TSR_OK ? st : tsr_fail(err, st, "%s: %s", w->desc.name, why.text);
    st = load_integers(d, w, err);
    if (st != TSR_E_UNSUPPORTED)
        return st;
    say_format(d, &w->format, why.text);
    w->widened = true;
    float *dense = NULL;
    TSR_TRY(widen_weight(&w->desc, p, &dense, err));
    struct tsr_format f32 = { .struct_size = sizeof f32, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    struct tsr_weight_desc desc = { .struct_size = sizeof desc,
                                    .name = w->desc.name,
                                    .format = &f32,
                                    .rows = w->desc.rows,
                                    .cols = w->desc.cols,
                                    .codes = dense,
                                    .code_stride = w->desc.cols * sizeof *dense,
                                    .segment = w->desc.segment };
    st = d->iface->weight_load(d->self, &desc, &w->handle, err);
    free(dense);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "%s as F32", w->desc.name);
}

const struct tsr_backend_layout_v1 *tsr_engine_device_layout(const struct tsr_engine_device *d)
{
    const struct tsr_backend_layout_v1 *t =
        d->iface->extension ? d->iface->extension(d->self, TSR_BACKEND_LAYOUT) : NULL;
    return t && TSR_HAS(struct tsr_backend_layout_v1, t, weight_borrow) && t->weight_layout &&
                   t->weight_read && t->weight_borrow
               ? t
               : NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The device must lay out this weight as the file has it. */
static tsr_status check_layout(struct tsr_engine_device *d, const struct tsr_prepacked *p,
                               const struct tsr_engine_weight *w, const struct tsr_weight_layout *l,
                               struct tsr_err *err)
{
    const struct tsr_prepacked_mapped_weight *m = w->mapped;
    if (!same_text(l->id, p->layout) || l->revision != p->revision ||
        !same_text(l->target, p->target))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its weights are laid out as %s revision %u%s%s, %s has %s revision "
                        "%u%s%s; convert the model again for this backend",
                        p->path, p->layout, p->revision, p->target ? " for " : "",
                        p->target ? p->target : "", d->text, l->id ? l->id : "?", l->revision,
                        l->target ? " for " : "", l->target ? l->target : "");
    if (l->bytes != m->bytes || l->align == 0 || (uintptr_t)m->data % l->align != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"%s\" has %llu bytes, as %s revision %u it takes %llu on a multiple "
                        "of %llu; the file is damaged: convert the model again",
                        p->path, w->desc.name, (unsigned long long)m->bytes, p->layout, p->revision,
                        (unsigned long long)l->bytes, (unsigned long long)l->align);
    return TSR_OK;
}

tsr_status tsr_engine_device_borrow(struct tsr_engine_device *d, const struct tsr_engine_weight *w,
                                    void **handle, struct tsr_err *err)
{
    const struct tsr_backend_layout_v1 *t = tsr_engine_device_layout(d);
    const struct tsr_prepacked         *p = w->file;
    struct tsr_errbuf                   why = TSR_ERRBUF(why);
    struct tsr_weight_layout            l = { .struct_size = sizeof l };
    why.text[0] = '\0';
    if (!t)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its weights are laid out as %s revision %u; %s takes plain weights "
                        "only: use the model that it was made from",
                        p->path, p->layout, p->revision, d->text);
    tsr_status st = t->weight_layout(d->self, &w->desc, &l, &why.err);
    if (st == TSR_OK)
        TSR_TRY(check_layout(d, p, w, &l, err));
    if (st == TSR_OK)
        st = t->weight_borrow(d->self, &w->desc, w->mapped->data, w->mapped->bytes, handle,
                              &why.err);
    if (st == TSR_E_NOMEM)
        return tsr_err_copy(err, st, &why.err);
    return st == TSR_OK ? st
                        : tsr_fail(err, TSR_E_INPUT, "%s: %s: %s; convert the model again", p->path,
                                   d->text, why.text);
}

static tsr_status add_weight(struct tsr_engine_device *d, const struct tsr_engine_weight *proto,
                             const struct tsr_model_packed *p, struct tsr_engine_weight **out,
                             struct tsr_err *err)
{
    if (!tsr_engine_device_grow(&d->weights, d->n_weights, &d->cap_weights))
        return tsr_fail_nomem(err, 16 * d->cap_weights, "a list of weights");
    struct tsr_engine_weight *w = tsr_new(1, sizeof *w);
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, "a weight");
    *w = *proto;
    w->desc.format = &w->format;
    tsr_status st =
        w->mapped ? tsr_engine_device_borrow(d, w, &w->handle, err) : load_weight(d, w, p, err);
    if (st != TSR_OK) {
        free(w);
        return st;
    }
    d->weights[d->n_weights++] = w;
    *out = w;
    return TSR_OK;
}

tsr_status tsr_engine_device_weight(struct tsr_engine_device *d, const struct tsr_matrix *m,
                                    struct tsr_engine_weight **out, struct tsr_err *err)
{
    return tsr_engine_device_part(d, m, 0, out, err);
}

tsr_status tsr_engine_device_part(struct tsr_engine_device *d, const struct tsr_matrix *m,
                                  uint64_t segment, struct tsr_engine_weight **out,
                                  struct tsr_err *err)
{
    struct tsr_engine_weight w = {
        .desc = { .struct_size = sizeof w.desc,
                  .name = m->name ? m->name : "weight",
                  .rows = m->rows,
                  .cols = m->cols,
                  .codes = m->data,
                  .code_stride = m->row_stride,
                  .segment = segment },
        .format = { .struct_size = sizeof w.format, .dtype = m->dtype, .id = TSR_FORMAT_FLOAT },
    };
    return add_weight(d, &w, NULL, out, err);
}

/* Logs a format that is not one of ours, once for each. */
static void say_foreign(struct tsr_engine_device *d, const struct tsr_model_packed *p,
                        enum tsr_model_own_kernel kernel)
{
    if (kernel != TSR_OWN_DECODED || strcmp(d->said_foreign, p->format.id) == 0)
        return;
    (void)snprintf(d->said_foreign, sizeof d->said_foreign, "%s", p->format.id);
    tsr_logf(TSR_LOG_WARN,
             "%s does not read %s, the format of quantizer '%s': its dequantize decodes such "
             "weights a block of rows at a time, for every product",
             d->text, p->format.id, p->plugin);
}

/* A weight in a plugin's own format, p, of which it keeps a copy.  rows: some of them are decoded, too. */
static tsr_status load_own(struct tsr_engine_device *d, const char *name,
                           const struct tsr_model_packed *p, bool rows,
                           struct tsr_engine_weight **out, struct tsr_err *err)
{
    const struct tsr_model_slice all = { .rows = p->rows, .cols = p->cols, .segment = p->segment };
    struct tsr_model_packed     *own = NULL;
    enum tsr_model_own_kernel    kernel = TSR_OWN_DECODED;
    if (!tsr_engine_device_grow(&d->weights, d->n_weights, &d->cap_weights))
        return tsr_fail_nomem(err, 16 * d->cap_weights, "a list of weights");
    TSR_TRY(tsr_err_prefix(err, tsr_model_own_kernel_of(p, &kernel, err), "%s", name));
    say_foreign(d, p, kernel);
    TSR_TRY(tsr_model_packed_slice(p, &all, &own, err));
    struct tsr_engine_weight *w = tsr_new(1, sizeof *w);
    if (!w) {
        tsr_model_packed_destroy(own);
        return tsr_fail_nomem(err, sizeof *w, "a weight");
    }
    *w = (struct tsr_engine_weight){
        .own = own,
        .kernel = kernel,
        .desc = { .struct_size = sizeof w->desc,
                  .name = name,
                  .rows = p->rows,
                  .cols = p->cols,
                  .code_stride = p->cols * sizeof(float),
                  .segment = p->segment },
        .format = { .struct_size = sizeof w->format, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT },
    };
    w->desc.format = &w->format;
    tsr_status st = tsr_engine_device_place(d, w, err);
    if (st == TSR_OK)
        st = tsr_model_own_prepare(own, kernel, rows, err);
    if (st != TSR_OK) {
        tsr_engine_device_free_weight(d, w);
        return tsr_err_prefix(err, st, "%s", name);
    }
    d->weights[d->n_weights++] = w;
    *out = w;
    return TSR_OK;
}

tsr_status tsr_engine_device_packed(struct tsr_engine_device *d, const char *name,
                                    const struct tsr_model_packed *p,
                                    struct tsr_engine_weight **out, struct tsr_err *err)
{
    if (p->own.unit)
        return load_own(d, name, p, false, out, err);
    if (p->dense) { /* a plugin's own format, stored dequantized */
        struct tsr_matrix m = { .struct_size = sizeof m,
                                .dtype = TSR_F32,
                                .name = name,
                                .data = p->dense,
                                .rows = p->rows,
                                .cols = p->cols,
                                .row_stride = p->cols * sizeof(float) };
        return tsr_engine_device_part(d, &m, p->segment, out, err);
    }
    struct tsr_engine_weight w = {
        .desc = { .struct_size = sizeof w.desc,
                  .name = name,
                  .rows = p->rows,
                  .cols = p->cols,
                  .codes = p->codes,
                  .meta = p->meta,
                  .code_stride = p->code_stride,
                  .meta_stride = p->meta_stride,
                  .segment = p->segment },
        .format = p->format,
    };
    struct tsr_model_packed as_stored =
        *p; /* widened or not, its columns stay in the order of the codes */
    as_stored.order = NULL;
    return add_weight(d, &w, &as_stored, out, err);
}

tsr_status tsr_engine_device_packed_rows(struct tsr_engine_device *d, const char *name,
                                         const struct tsr_model_packed *p,
                                         struct tsr_engine_weight **out, struct tsr_err *err)
{
    return p->own.unit ? load_own(d, name, p, true, out, err)
                       : tsr_engine_device_packed(d, name, p, out, err);
}

tsr_status tsr_engine_device_mapped(struct tsr_engine_device *d, const char *name,
                                    const struct tsr_prepacked               *p,
                                    const struct tsr_prepacked_mapped_weight *m,
                                    struct tsr_engine_weight **out, struct tsr_err *err)
{
    struct tsr_engine_weight w = {
        .desc = { .struct_size = sizeof w.desc, .name = name, .rows = m->rows, .cols = m->cols },
        .format = m->format,
        .file = p,
        .mapped = m,
    };
    return add_weight(d, &w, NULL, out, err);
}

void tsr_engine_device_drop_weight(struct tsr_engine_device *d, struct tsr_engine_weight *w)
{
    for (uint64_t i = d->n_weights; w && i-- > 0;)
        if (d->weights[i] == w) {
            tsr_engine_device_free_weight(d, w);
            d->weights[i] = d->weights[--d->n_weights];
            return;
        }
}
