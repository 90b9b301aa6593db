#include "engine/device_internal.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- life --------------------------------------------------------------- */

tsr_status tsr_engine_device_wrap(struct tsr_engine_device **out, struct tsr_registry *r,
                                  const struct tsr_backend_v1 *iface, void *self,
                                  struct tsr_err *err)
{
    struct tsr_engine_device *d = tsr_new(1, sizeof *d);
    if (!d)
        return tsr_fail_nomem(err, sizeof *d, "a device");
    d->iface = iface;
    d->self = self;
    d->registry = r;
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

/* The backend "cuda" if it has a device, else the default one; the log gives the choice and the
 * reason. */
static tsr_status open_auto(struct tsr_engine_device **out, struct tsr_registry *r,
                            uint32_t numerics, struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    tsr_status        st = tsr_engine_device_open(out, r, "cuda", numerics, &why.err);
    if (st == TSR_OK)
        tsr_logf(TSR_LOG_INFO, "backend auto: %s", (*out)->text);
    if (st == TSR_OK || st == TSR_E_NOMEM || st == TSR_E_CANCELLED)
        return st == TSR_OK ? st : tsr_err_copy(err, st, &why.err);
    static _Atomic bool said; /* ranks, and steps, find the same */
    TSR_TRY(tsr_engine_device_open(out, r, NULL, numerics, err));
    tsr_logf(atomic_exchange(&said, true) ? TSR_LOG_INFO : TSR_LOG_WARN, "backend auto: %s (%s)",
             (*out)->text, why.text);
    return TSR_OK;
}

tsr_status tsr_engine_device_open(struct tsr_engine_device **out, struct tsr_registry *r,
                                  const char *name, uint32_t numerics, struct tsr_err *err)
{
    if (name && strcmp(name, "auto") == 0)
        return open_auto(out, r, numerics, err);
    struct tsr_plugin_spec       spec;
    const struct tsr_backend_v1 *iface = NULL;
    void                        *self = NULL;
    tsr_status                   st =
        tsr_plugin_spec_backend(&spec, r, name ? name : TSR_PLUGIN_DEFAULT_BACKEND, numerics, err);
    if (st == TSR_OK) {
        iface = spec.found.iface;
        st = tsr_plugin_spec_backend_create(&spec, r, &self, err);
    }
    if (st == TSR_OK && (st = tsr_engine_device_wrap(out, r, iface, self, err)) != TSR_OK)
        iface->destroy(self);
    if (st != TSR_OK) {
        tsr_plugin_spec_close(&spec);
        return st;
    }
    (*out)->owns_self = true;
    (*out)->numerics = numerics;
    (*out)->automatic =
        numerics == TSR_NUMERICS_AUTO && tsr_plugin_backend_has_auto(spec.found.component);
    (*out)->spec = spec;
    return TSR_OK;
}

void tsr_engine_device_free_weight(struct tsr_engine_device *d, struct tsr_engine_weight *w)
{
    tsr_engine_device_unplace(d, w);
    if (w->own)
        tsr_model_packed_destroy(w->own);
    else
        d->iface->weight_free(d->self, w->handle);
    if (w->fallback)
        d->fallback->iface->weight_free(d->fallback->self, w->fallback);
    free(w);
}

void tsr_engine_device_close(struct tsr_engine_device *d)
{
    if (!d)
        return;
    for (uint64_t i = 0; i < d->n_weights; i++)
        tsr_engine_device_free_weight(d, d->weights[i]);
    tsr_engine_device_unload(d);
    for (uint64_t i = 0; i < d->n_buffers; i++)
        d->iface->buffer_free(d->self, d->buffers[i]);
    tsr_engine_device_close(d->fallback);
    if (d->owns_self)
        d->iface->destroy(d->self);
    free(d->weights);
    free(d->buffers);
    tsr_plugin_spec_close(&d->spec);
    free(d);
}

const char *tsr_engine_device_text(const struct tsr_engine_device *d)
{
    return d->text;
}

uint64_t tsr_engine_device_weight_bytes(const struct tsr_engine_device *d,
                                        const struct tsr_engine_weight *w)
{
    return w->own ? tsr_model_packed_bytes(w->own) : d->iface->weight_bytes(d->self, w->handle);
}

void tsr_engine_device_memory(const struct tsr_engine_device *d, uint64_t *tensors,
                              uint64_t *weights)
{
    *tensors = d->tensor_bytes;
    *weights = 0;
    for (uint64_t i = 0; i < d->n_weights; i++)
        *weights += tsr_engine_device_weight_bytes(d, d->weights[i]);
}

/* ---- tensors ------------------------------------------------------------ */

uint64_t tsr_engine_element_size(uint32_t dtype)
{
    return dtype == TSR_U32 ? 4 : dtype == TSR_I8 || dtype == TSR_U8 ? 1 : tsr_dtype_size(dtype);
}

bool tsr_engine_device_grow(void *list, uint64_t n, uint64_t *cap)
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

tsr_status tsr_engine_device_tensor(struct tsr_engine_device *d, uint32_t dtype, uint64_t rows,
                                    uint64_t cols, uint64_t row_stride, const char *what,
                                    struct tsr_tensor *t, struct tsr_err *err)
{
    uint64_t dense, bytes;
    if (!tsr_mul(cols, tsr_engine_element_size(dtype), &dense))
        return tsr_fail(err, TSR_E_NOMEM, "the sizes of %s overflow", what);
    if (row_stride == 0)
        row_stride = dense;
    if (!tsr_mul(rows, row_stride, &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "the sizes of %s overflow", what);
    if (!tsr_engine_device_grow(&d->buffers, d->n_buffers, &d->cap_buffers))
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

tsr_status tsr_engine_device_vector(struct tsr_engine_device *d, const float *v, uint64_t n,
                                    struct tsr_tensor *t, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_tensor(d, TSR_F32, 1, n, 0, "a norm or bias", t, err));
    return tsr_engine_device_upload(d, t, v, err);
}

void tsr_engine_device_drop_tensor(struct tsr_engine_device *d, struct tsr_tensor *t)
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

tsr_status tsr_engine_device_upload(struct tsr_engine_device *d, const struct tsr_tensor *t,
                                    const void *src, struct tsr_err *err)
{
    uint64_t bytes = t->rows * t->row_stride;
    return bytes ? d->iface->upload(d->self, t->buffer, t->offset, src, bytes, err) : TSR_OK;
}

tsr_status tsr_engine_device_download(struct tsr_engine_device *d, const struct tsr_tensor *t,
                                      void *dst, struct tsr_err *err)
{
    uint64_t bytes = t->rows * t->row_stride;
    return bytes ? d->iface->download(d->self, t->buffer, t->offset, dst, bytes, err) : TSR_OK;
}

tsr_status tsr_engine_device_sync(struct tsr_engine_device *d, struct tsr_err *err)
{
    return d->iface->sync(d->self, NULL, err);
}
