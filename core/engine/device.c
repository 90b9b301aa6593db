#include "engine/device.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- life --------------------------------------------------------------- */

tsr_status tsr_device_wrap(struct tsr_device **out, struct tsr_registry *r,
                           const struct tsr_backend_v1 *iface, void *self, struct tsr_err *err)
{
    struct tsr_device *d = tsr_new(1, sizeof *d);
    if (!d)
        return tsr_fail_nomem(err, sizeof *d, "a device");
    d->iface = iface;
    d->self = self;
    d->registry = r;
    d->numerics = tsr_registry_numerics(r);
    struct tsr_backend_props p = { .struct_size = sizeof p };
    tsr_status               st = iface->properties(self, &p, err);
    if (st != TSR_OK) {
        free(d);
        return st;
    }
    (void)snprintf(d->text, sizeof d->text, "%s", p.device ? p.device : "unnamed device");
    *out = d;
    return TSR_OK;
}

/* The backend "cuda" where it has a device, else the default one; the log says which, and why. */
static tsr_status open_auto(struct tsr_device **out, struct tsr_registry *r, uint32_t numerics,
                            struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    tsr_status        st = tsr_device_open(out, r, "cuda", numerics, &why.err);
    if (st == TSR_OK)
        tsr_logf(TSR_LOG_INFO, "backend auto: %s", (*out)->text);
    if (st == TSR_OK || st == TSR_E_NOMEM || st == TSR_E_CANCELLED)
        return st == TSR_OK ? st : tsr_fail(err, st, "%s", why.text);
    static _Atomic bool said; /* ranks, and steps, find the same */
    TSR_TRY(tsr_device_open(out, r, NULL, numerics, err));
    tsr_logf(atomic_exchange(&said, true) ? TSR_LOG_INFO : TSR_LOG_WARN, "backend auto: %s (%s)",
             (*out)->text, why.text);
    return TSR_OK;
}

tsr_status tsr_device_open(struct tsr_device **out, struct tsr_registry *r, const char *name,
                           uint32_t numerics, struct tsr_err *err)
{
    if (name && strcmp(name, "auto") == 0)
        return open_auto(out, r, numerics, err);
    struct tsr_spec              spec;
    const struct tsr_backend_v1 *iface = NULL;
    void                        *self = NULL;
    tsr_status st = tsr_spec_backend(&spec, r, name ? name : TSR_DEFAULT_BACKEND, numerics, err);
    if (st == TSR_OK) {
        iface = spec.found.iface;
        st = tsr_spec_backend_create(&spec, r, &self, err);
    }
    if (st == TSR_OK && (st = tsr_device_wrap(out, r, iface, self, err)) != TSR_OK)
        iface->destroy(self);
    if (st != TSR_OK) {
        tsr_spec_close(&spec);
        return st;
    }
    (*out)->owns_self = true;
    (*out)->numerics = numerics;
    (*out)->spec = spec;
    return TSR_OK;
}

static void free_weight(struct tsr_device *d, struct tsr_weight *w)
{
    d->iface->weight_free(d->self, w->handle);
    if (w->fallback)
        d->fallback->iface->weight_free(d->fallback->self, w->fallback);
    free(w);
}

void tsr_device_close(struct tsr_device *d)
{
    if (!d)
        return;
    for (uint64_t i = 0; i < d->n_weights; i++)
        free_weight(d, d->weights[i]);
    for (uint64_t i = 0; i < d->n_buffers; i++)
        d->iface->buffer_free(d->self, d->buffers[i]);
    tsr_device_close(d->fallback);
    if (d->owns_self)
        d->iface->destroy(d->self);
    free(d->weights);
    free(d->buffers);
    tsr_spec_close(&d->spec);
    free(d);
}

const char *tsr_device_text(const struct tsr_device *d)
{
    return d->text;
}

void tsr_device_memory(const struct tsr_device *d, uint64_t *tensors, uint64_t *weights)
{
    *tensors = d->tensor_bytes;
    *weights = 0;
    for (uint64_t i = 0; i < d->n_weights; i++)
        *weights += d->iface->weight_bytes(d->self, d->weights[i]->handle);
}

/* ---- tensors ------------------------------------------------------------ */

uint64_t tsr_element_size(uint32_t dtype)
{
    return dtype == TSR_U32 ? 4 : dtype == TSR_I8 || dtype == TSR_U8 ? 1 : tsr_dtype_size(dtype);
}

/* Room for one more pointer in a list. */
static bool list_grow(void *list, uint64_t n, uint64_t *cap)
{
    void **v;
    memcpy(&v, list, sizeof v);
    if (n < *cap)
        return true;
    uint64_t more = *cap ? *cap * 2 : 32;
    v = tsr_renew(v, more, sizeof *v);
    if (!v)
        return false;
    memcpy(list, &v, sizeof v);
    *cap = more;
    return true;
}

tsr_status tsr_device_tensor(struct tsr_device *d, uint32_t dtype, uint64_t rows, uint64_t cols,
                             uint64_t row_stride, const char *what, struct tsr_tensor *t,
                             struct tsr_err *err)
{
    uint64_t dense, bytes;
    if (!tsr_mul(cols, tsr_element_size(dtype), &dense))
        return tsr_fail(err, TSR_E_NOMEM, "the sizes of %s overflow", what);
    if (row_stride == 0)
        row_stride = dense;
    if (!tsr_mul(rows, row_stride, &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "the sizes of %s overflow", what);
    if (!list_grow(&d->buffers, d->n_buffers, &d->cap_buffers))
        return tsr_fail_nomem(err, 16 * d->cap_buffers, "a list of buffers");
    void      *buffer = NULL;
    tsr_status st = d->iface->buffer_alloc(d->self, bytes ? bytes : 1, &buffer, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "%s on %s", what, d->text);
    d->buffers[d->n_buffers++] = buffer;
    d->tensor_bytes += bytes;
    *t = (struct tsr_tensor){ .struct_size = sizeof *t,
                              .dtype = dtype,
                              .buffer = buffer,
                              .rows = rows,
                              .cols = cols,
                              .row_stride = row_stride };
    return TSR_OK;
}

tsr_status tsr_device_vector(struct tsr_device *d, const float *v, uint64_t n, struct tsr_tensor *t,
                             struct tsr_err *err)
{
    TSR_TRY(tsr_device_tensor(d, TSR_F32, 1, n, 0, "a norm or bias", t, err));
    return tsr_device_upload(d, t, v, err);
}

void tsr_device_drop_tensor(struct tsr_device *d, struct tsr_tensor *t)
{
    for (uint64_t i = d->n_buffers; t->buffer && i-- > 0;) /* what goes came last, as a rule */
        if (d->buffers[i] == t->buffer) {
            d->iface->buffer_free(d->self, t->buffer);
            d->tensor_bytes -= t->rows * t->row_stride;
            d->buffers[i] = d->buffers[--d->n_buffers];
            break;
        }
    *t = (struct tsr_tensor){ 0 };
}

tsr_status tsr_device_upload(struct tsr_device *d, const struct tsr_tensor *t, const void *src,
                             struct tsr_err *err)
{
    uint64_t bytes = t->rows * t->row_stride;
    return bytes ? d->iface->upload(d->self, t->buffer, t->offset, src, bytes, err) : TSR_OK;
}

tsr_status tsr_device_download(struct tsr_device *d, const struct tsr_tensor *t, void *dst,
                               struct tsr_err *err)
{
    uint64_t bytes = t->rows * t->row_stride;
    return bytes ? d->iface->download(d->self, t->buffer, t->offset, dst, bytes, err) : TSR_OK;
}

tsr_status tsr_device_sync(struct tsr_device *d, struct tsr_err *err)
{
    return d->iface->sync(d->self, NULL, err);
}

/* ---- weights ------------------------------------------------------------ */

/* The F32 matrix of a weight that the device cannot read. */
static tsr_status widen_weight(const struct tsr_weight_desc *w, const struct tsr_packed *p,
                               float **out, struct tsr_err *err)
{
    uint64_t n;
    float   *dense;
    if (!tsr_mul(w->rows, w->cols, &n) || !(dense = tsr_new_aligned(n, sizeof *dense)))
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %s as F32", w->name);
    tsr_status st = TSR_OK;
    if (p)
        st = tsr_packed_dequantize(p, 0, w->rows, dense, err);
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
static void say_format(struct tsr_device *d, const struct tsr_format *f, const char *why)
{
    char     name[64];
    uint32_t bit = strcmp(f->id, TSR_FORMAT_FLOAT) == 0 ? f->dtype
                   : strcmp(f->id, TSR_FORMAT_INT) == 0 ? 6 + f->bits
                   : strcmp(f->id, TSR_FORMAT_LUT) == 0 ? 14 + f->bits
                                                        : 22 + f->bits;
    if (d->said_formats >> bit % 32 & 1u)
        return;
    d->said_formats |= 1u << bit % 32;
    tsr_format_name(f, name, sizeof name);
    tsr_logf(TSR_LOG_WARN, "%s does not read %s (%s): such weights run as F32", d->text, name, why);
}

/* Loads w->desc; where the device declines the format, its F32 matrix. */
static tsr_status load_weight(struct tsr_device *d, struct tsr_weight *w,
                              const struct tsr_packed *p, struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    why.text[0] = 0;
    tsr_status st = d->iface->weight_load(d->self, &w->desc, &w->handle, &why.err);
    if (st != TSR_E_UNSUPPORTED)
        return st == TSR_OK ? st : tsr_fail(err, st, "%s: %s", w->desc.name, why.text);
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

const struct tsr_backend_layout_v1 *tsr_device_layout(const struct tsr_device *d)
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

/* The device has to lay such a weight out as the file has it. */
static tsr_status check_layout(struct tsr_device *d, const struct tsr_prepacked *p,
                               const struct tsr_weight *w, const struct tsr_weight_layout *l,
                               struct tsr_err *err)
{
    const struct tsr_mapped_weight *m = w->mapped;
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

tsr_status tsr_device_borrow(struct tsr_device *d, const struct tsr_weight *w, void **handle,
                             struct tsr_err *err)
{
    const struct tsr_backend_layout_v1 *t = tsr_device_layout(d);
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
        return tsr_fail(err, st, "%s", why.text);
    return st == TSR_OK ? st
                        : tsr_fail(err, TSR_E_INPUT, "%s: %s: %s; convert the model again", p->path,
                                   d->text, why.text);
}

static tsr_status add_weight(struct tsr_device *d, const struct tsr_weight *proto,
                             const struct tsr_packed *p, struct tsr_weight **out,
                             struct tsr_err *err)
{
    if (!list_grow(&d->weights, d->n_weights, &d->cap_weights))
        return tsr_fail_nomem(err, 16 * d->cap_weights, "a list of weights");
    struct tsr_weight *w = tsr_new(1, sizeof *w);
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, "a weight");
    *w = *proto;
    w->desc.format = &w->format;
    tsr_status st =
        w->mapped ? tsr_device_borrow(d, w, &w->handle, err) : load_weight(d, w, p, err);
    if (st != TSR_OK) {
        free(w);
        return st;
    }
    d->weights[d->n_weights++] = w;
    *out = w;
    return TSR_OK;
}

tsr_status tsr_device_weight(struct tsr_device *d, const struct tsr_matrix *m,
                             struct tsr_weight **out, struct tsr_err *err)
{
    return tsr_device_part(d, m, 0, out, err);
}

tsr_status tsr_device_part(struct tsr_device *d, const struct tsr_matrix *m, uint64_t segment,
                           struct tsr_weight **out, struct tsr_err *err)
{
    struct tsr_weight w = {
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

/* A layout that is none of ours, once for each. */
static void say_foreign(struct tsr_device *d, const struct tsr_packed *p)
{
    if (strcmp(d->said_foreign, p->format.id) == 0)
        return;
    (void)snprintf(d->said_foreign, sizeof d->said_foreign, "%s", p->format.id);
    tsr_logf(TSR_LOG_WARN,
             "%s does not read %s, the format of quantizer '%s': such weights run as F32, as its "
             "dequantize gives them",
             d->text, p->format.id, p->plugin);
}

tsr_status tsr_device_packed(struct tsr_device *d, const char *name, const struct tsr_packed *p,
                             struct tsr_weight **out, struct tsr_err *err)
{
    if (p->dense) { /* a layout of the plugin's own: what it decodes to */
        say_foreign(d, p);
        struct tsr_matrix m = { .struct_size = sizeof m,
                                .dtype = TSR_F32,
                                .name = name,
                                .data = p->dense,
                                .rows = p->rows,
                                .cols = p->cols,
                                .row_stride = p->cols * sizeof(float) };
        return tsr_device_part(d, &m, p->segment, out, err);
    }
    struct tsr_weight w = {
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
    struct tsr_packed as_stored =
        *p; /* widened or not, its columns stay in the order of the codes */
    as_stored.order = NULL;
    return add_weight(d, &w, &as_stored, out, err);
}

tsr_status tsr_device_mapped(struct tsr_device *d, const char *name, const struct tsr_prepacked *p,
                             const struct tsr_mapped_weight *m, struct tsr_weight **out,
                             struct tsr_err *err)
{
    struct tsr_weight w = {
        .desc = { .struct_size = sizeof w.desc, .name = name, .rows = m->rows, .cols = m->cols },
        .format = m->format,
        .file = p,
        .mapped = m,
    };
    return add_weight(d, &w, NULL, out, err);
}

void tsr_device_drop_weight(struct tsr_device *d, struct tsr_weight *w)
{
    for (uint64_t i = d->n_weights; w && i-- > 0;)
        if (d->weights[i] == w) {
            free_weight(d, w);
            d->weights[i] = d->weights[--d->n_weights];
            return;
        }
}
