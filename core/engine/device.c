#include "engine/device.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

struct tsr_device {
    const struct tsr_backend_v1 *iface;
    void                        *self;
    bool                         owns_self;
    void                        *options;   /* what create() was given */
    struct tsr_registry         *registry;
    struct tsr_device           *fallback;  /* opened when first needed */
    char                         text[96];
    void                       **buffers;
    uint64_t                     n_buffers, cap_buffers;
    struct tsr_weight          **weights;
    uint64_t                     n_weights, cap_weights;
    uint64_t                     tensor_bytes;
    uint32_t                     said_ops;     /* bit per TSR_OP_* */
    uint32_t                     said_formats; /* bit per dtype, or 8 + bits */
};

static const char *const op_name[] = { "?",         "linear", "embed", "norm",  "rope", "kv_store",
                                       "attention", "act",    "add",   "scale", "gather" };

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
    struct tsr_backend_props p = { .struct_size = sizeof p };
    tsr_status st = iface->properties(self, &p, err);
    if (st != TSR_OK) {
        free(d);
        return st;
    }
    (void)snprintf(d->text, sizeof d->text, "%s", p.device ? p.device : "unnamed device");
    *out = d;
    return TSR_OK;
}

/* The options of a component, all at their defaults. */
static tsr_status default_options(const struct tsr_component *c, void **block, struct tsr_err *err)
{
    *block = tsr_new(1, c->options_size ? c->options_size : 1);
    if (!*block)
        return tsr_fail_nomem(err, c->options_size, "backend options");
    struct tsr_optset set = { .options = c->options,
                              .n = c->n_options,
                              .stride = c->option_stride,
                              .into = *block };
    if (c->n_options)
        tsr_options_defaults(&set);
    return TSR_OK;
}

tsr_status tsr_device_open(struct tsr_device **out, struct tsr_registry *r, const char *name,
                           struct tsr_err *err)
{
    struct tsr_found found;
    void            *options = NULL, *self = NULL;
    TSR_TRY(tsr_registry_find(r, TSR_KIND_BACKEND, name ? name : TSR_DEFAULT_BACKEND, &found, err));
    const struct tsr_backend_v1 *iface = found.iface;
    TSR_TRY(default_options(found.component, &options, err));
    tsr_status st = iface->create(tsr_registry_host(r), options, &self, err);
    if (st != TSR_OK) {
        free(options);
        return tsr_err_prefix(err, st, "backend '%s'", found.component->name);
    }
    st = tsr_device_wrap(out, r, iface, self, err);
    if (st != TSR_OK) {
        iface->destroy(self);
        free(options);
        return st;
    }
    (*out)->owns_self = true;
    (*out)->options = options;
    return TSR_OK;
}

void tsr_device_close(struct tsr_device *d)
{
    if (!d)
        return;
    for (uint64_t i = 0; i < d->n_weights; i++) {
        struct tsr_weight *w = d->weights[i];
        d->iface->weight_free(d->self, w->handle);
        if (w->fallback)
            d->fallback->iface->weight_free(d->fallback->self, w->fallback);
        free(w);
    }
    for (uint64_t i = 0; i < d->n_buffers; i++)
        d->iface->buffer_free(d->self, d->buffers[i]);
    tsr_device_close(d->fallback);
    if (d->owns_self)
        d->iface->destroy(d->self);
    free(d->weights);
    free(d->buffers);
    free(d->options);
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

static uint64_t element_size(uint32_t dtype)
{
    return dtype == TSR_U32 ? 4 : dtype == TSR_I8 || dtype == TSR_U8 ? 1 : tsr_dtype_size(dtype);
}

tsr_status tsr_device_tensor(struct tsr_device *d, uint32_t dtype, uint64_t rows, uint64_t cols,
                             uint64_t row_stride, const char *what, struct tsr_tensor *t,
                             struct tsr_err *err)
{
    uint64_t dense, bytes;
    if (!tsr_mul(cols, element_size(dtype), &dense))
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

tsr_status tsr_device_vector(struct tsr_device *d, const float *v, uint64_t n,
                             struct tsr_tensor *t, struct tsr_err *err)
{
    TSR_TRY(tsr_device_tensor(d, TSR_F32, 1, n, 0, "a norm or bias", t, err));
    return tsr_device_upload(d, t, v, err);
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
        st = tsr_packed_dequantize(p, NULL, 0, w->rows, dense, err);
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

static void say_format(struct tsr_device *d, const struct tsr_format *f, const char *why)
{
    bool     is_int = strcmp(f->id, TSR_FORMAT_INT) == 0;
    uint32_t bit = 1u << (is_int ? 8 + f->bits % 16 : f->dtype % 8);
    if (d->said_formats & bit)
        return;
    d->said_formats |= bit;
    if (is_int)
        tsr_logf(TSR_LOG_WARN, "%s does not read %s with %u bits (%s): such weights run as F32",
                 d->text, f->id, f->bits, why);
    else
        tsr_logf(TSR_LOG_WARN, "%s does not read %s weights (%s): they run as F32", d->text,
                 tsr_dtype_name(f->dtype), why);
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
    float *dense = NULL;
    TSR_TRY(widen_weight(&w->desc, p, &dense, err));
    struct tsr_format f32 = { .struct_size = sizeof f32, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    struct tsr_weight_desc desc = { .struct_size = sizeof desc,
                                    .name = w->desc.name,
                                    .format = &f32,
                                    .rows = w->desc.rows,
                                    .cols = w->desc.cols,
                                    .codes = dense,
                                    .code_stride = w->desc.cols * sizeof *dense };
    st = d->iface->weight_load(d->self, &desc, &w->handle, err);
    free(dense);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "%s as F32", w->desc.name);
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
    tsr_status st = load_weight(d, w, p, err);
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
    struct tsr_weight w = {
        .desc = { .struct_size = sizeof w.desc,
                  .name = m->name ? m->name : "weight",
                  .rows = m->rows,
                  .cols = m->cols,
                  .codes = m->data,
                  .code_stride = m->row_stride },
        .format = { .struct_size = sizeof w.format, .dtype = m->dtype, .id = TSR_FORMAT_FLOAT },
    };
    return add_weight(d, &w, NULL, out, err);
}

tsr_status tsr_device_packed(struct tsr_device *d, const char *name, const struct tsr_packed *p,
                             struct tsr_weight **out, struct tsr_err *err)
{
    if (p->dense) { /* a layout of the plugin's own: what it decodes to */
        struct tsr_matrix m = { .struct_size = sizeof m,
                                .dtype = TSR_F32,
                                .name = name,
                                .data = p->dense,
                                .rows = p->rows,
                                .cols = p->cols,
                                .row_stride = p->cols * sizeof(float) };
        return tsr_device_weight(d, &m, out, err);
    }
    struct tsr_weight w = {
        .desc = { .struct_size = sizeof w.desc,
                  .name = name,
                  .rows = p->rows,
                  .cols = p->cols,
                  .codes = p->codes,
                  .meta = p->meta,
                  .code_stride = p->code_stride,
                  .meta_stride = p->meta_stride },
        .format = p->format,
    };
    return add_weight(d, &w, p, out, err);
}

/* ---- operations --------------------------------------------------------- */

static tsr_status open_fallback(struct tsr_device *d, const char *what, const char *why,
                                struct tsr_err *err)
{
    if (!d->fallback)
        TSR_TRY(tsr_device_open(&d->fallback, d->registry, NULL, err));
    if (d->fallback->iface->run == d->iface->run)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s cannot run %s: %s", d->text, what, why);
    return TSR_OK;
}

/* Bytes from a tensor's first element to its last. */
static uint64_t tensor_span(const struct tsr_tensor *t)
{
    return t->rows ? (t->rows - 1) * t->row_stride + t->cols * element_size(t->dtype) : 0;
}

/* A tensor of the device, copied to the fallback.  Filled also for an output, since an
 * operation may leave parts of it (cache rows, gaps between rows) as they are. */
static tsr_status stage_in(struct tsr_device *d, const struct tsr_tensor *t,
                           struct tsr_tensor *staged, void **host, struct tsr_err *err)
{
    struct tsr_device *f = d->fallback;
    uint64_t           bytes = tensor_span(t);
    *staged = *t;
    staged->offset = 0;
    staged->buffer = NULL;
    *host = tsr_new_aligned(bytes ? bytes : 1, 1);
    if (!*host)
        return tsr_fail_nomem(err, bytes, "staging an operation");
    TSR_TRY(f->iface->buffer_alloc(f->self, bytes ? bytes : 1, &staged->buffer, err));
    if (!bytes)
        return TSR_OK;
    TSR_TRY(d->iface->download(d->self, t->buffer, t->offset, *host, bytes, err));
    return f->iface->upload(f->self, staged->buffer, 0, *host, bytes, err);
}

static bool same_view(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->rows == b->rows &&
           a->cols == b->cols && a->row_stride == b->row_stride;
}

/* Runs op on the fallback with all its tensors staged; slot TSR_OP_INPUTS is the output. */
static tsr_status run_staged(struct tsr_device *d, const struct tsr_op *op, struct tsr_weight *w,
                             struct tsr_err *err)
{
    struct tsr_device *f = d->fallback;
    struct tsr_tensor  staged[TSR_OP_INPUTS + 1];
    void              *host[TSR_OP_INPUTS + 1] = { 0 };
    struct tsr_op      copy = *op;
    const struct tsr_tensor *out = op->out;

    memset(staged, 0, sizeof staged);
    if (w && !w->fallback)
        TSR_TRY(f->iface->weight_load(f->self, &w->desc, &w->fallback, err));
    copy.weight = w ? w->fallback : NULL;
    TSR_TRY(tsr_device_sync(d, err));
    tsr_status st = stage_in(d, out, &staged[TSR_OP_INPUTS], &host[TSR_OP_INPUTS], err);
    copy.out = &staged[TSR_OP_INPUTS];
    for (int i = 0; i < TSR_OP_INPUTS && st == TSR_OK; i++) {
        if (!op->in[i])
            continue;
        if (same_view(op->in[i], out)) { /* in place there, in place here */
            copy.in[i] = copy.out;
            continue;
        }
        st = stage_in(d, op->in[i], &staged[i], &host[i], err);
        copy.in[i] = &staged[i];
    }
    uint64_t bytes = tensor_span(out);
    if (st == TSR_OK)
        st = f->iface->run(f->self, NULL, &copy, err);
    if (st == TSR_OK)
        st = f->iface->sync(f->self, NULL, err);
    if (st == TSR_OK && bytes)
        st = f->iface->download(f->self, copy.out->buffer, 0, host[TSR_OP_INPUTS], bytes, err);
    if (st == TSR_OK && bytes)
        st = d->iface->upload(d->self, out->buffer, out->offset, host[TSR_OP_INPUTS], bytes, err);
    for (int i = 0; i <= TSR_OP_INPUTS; i++) {
        f->iface->buffer_free(f->self, staged[i].buffer);
        free(host[i]);
    }
    return st;
}

tsr_status tsr_device_run(struct tsr_device *d, struct tsr_op *op, struct tsr_weight *w,
                          struct tsr_err *err)
{
    op->struct_size = sizeof *op;
    op->weight = w ? w->handle : NULL;
    tsr_status st = d->iface->run(d->self, NULL, op, err);
    if (st != TSR_E_UNSUPPORTED)
        return st;
    const char *name = op->kind < sizeof op_name / sizeof op_name[0] ? op_name[op->kind] : "?";
    char        why[256];
    (void)snprintf(why, sizeof why, "%s", err && err->cap ? err->text : "no reason given");
    TSR_TRY(open_fallback(d, name, why, err));
    if (!(d->said_ops & (1u << (op->kind % 32)))) {
        d->said_ops |= 1u << (op->kind % 32);
        tsr_logf(TSR_LOG_WARN, "%s does not run '%s' (%s): it runs on %s, with copies", d->text,
                 name, why, d->fallback->text);
    }
    return run_staged(d, op, w, err);
}
