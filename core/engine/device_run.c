/* Operations: on the device, or, if it declines, staged to the default backend. */
#include "engine/device_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "plugin/choices.h"

#include <stdlib.h>
#include <string.h>

static const char *const op_name[] = { "?",        "linear",    "embed",   "norm",    "rope",
                                       "kv_store", "attention", "act",     "add",     "scale",
                                       "gather",   "mix",       "columns", "hadamard" };

tsr_status tsr_engine_device_other(struct tsr_engine_device *d, struct tsr_engine_device **other,
                                   struct tsr_err *err)
{
    if (!d->fallback)
        TSR_TRY(tsr_engine_device_open(&d->fallback, d->registry, NULL, d->numerics, err));
    *other = d->fallback->iface == d->iface ? NULL : d->fallback; /* the registry has one table for
                                                                   * a component */
    return TSR_OK;
}

tsr_status tsr_engine_device_fallback(struct tsr_engine_device *d, const char *what,
                                      const char *why, struct tsr_err *err)
{
    struct tsr_engine_device *other;
    TSR_TRY(tsr_engine_device_other(d, &other, err));
    if (!other)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s cannot run %s: %s", d->text, what, why);
    return TSR_OK;
}

/* Bytes from a tensor's first element to its last. */
static uint64_t tensor_span(const struct tsr_tensor *t)
{
    return t->rows ? (t->rows - 1) * t->row_stride + t->cols * tsr_engine_element_size(t->dtype)
                   : 0;
}

/* Copies a tensor of the device to the fallback.  Outputs are copied too, because an operation may
 * leave parts (cache rows, gaps between rows) unchanged. */
static tsr_status stage_in(struct tsr_engine_device *d, const struct tsr_tensor *t,
                           struct tsr_tensor *staged, void **host, struct tsr_err *err)
{
    struct tsr_engine_device *f = d->fallback;
    uint64_t                  bytes = tensor_span(t);
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
static tsr_status run_staged(struct tsr_engine_device *d, const struct tsr_op *op,
                             struct tsr_engine_weight *w, struct tsr_err *err)
{
    struct tsr_engine_device *f = d->fallback;
    struct tsr_tensor         staged[TSR_OP_INPUTS + 1];
    void                     *host[TSR_OP_INPUTS + 1] = { 0 };
    struct tsr_op             copy = *op;
    const struct tsr_tensor  *out = op->out;

    memset(staged, 0, sizeof staged);
    if (w && !w->fallback && !w->mapped && !w->desc.codes)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s does not run a product with %s, whose host copy is released", d->text,
                        w->desc.name);
    if (w && !w->fallback)
        TSR_TRY(w->mapped ? tsr_engine_device_borrow(f, w, &w->fallback, err)
                          : f->iface->weight_load(f->self, &w->desc, &w->fallback, err));
    copy.weight = w ? w->fallback : NULL;
    TSR_TRY(tsr_engine_device_sync(d, err));
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

/* The option of op's cache, which is the type of its values, if not every device has it, else 0.  A copy of it for each operation would take longer than the
 * model. */
static uint32_t new_cache(const struct tsr_op *op)
{
    const struct tsr_tensor *c = op->kind == TSR_OP_KV_STORE    ? op->out
                                 : op->kind == TSR_OP_ATTENTION ? op->in[1]
                                                                : NULL;
    if (c && c->dtype == TSR_Q4_CHANNEL)
        return TSR_Q4;
    return c && (c->dtype == TSR_E4M3 || c->dtype == TSR_Q4) ? c->dtype : 0;
}

tsr_status tsr_engine_device_run_plain(struct tsr_engine_device *d, struct tsr_op *op,
                                       struct tsr_engine_weight *w, struct tsr_err *err)
{
    op->struct_size = sizeof *op;
    op->weight = w ? w->handle : NULL;
    tsr_status st = d->iface->run(d->self, NULL, op, err);
    if (st != TSR_E_UNSUPPORTED)
        return st;
    const char *name = op->kind < sizeof op_name / sizeof op_name[0] ? op_name[op->kind] : "?";
    uint32_t    cache = new_cache(op);
    if (cache)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s has no KV cache of %s; choose f32, f16 or int8, or the backend cpu",
                        d->text, tsr_plugin_kv_name(cache));
    char why[256];
    (void)snprintf(why, sizeof why, "%s", err && err->cap ? err->text : "no reason given");
    TSR_TRY(tsr_engine_device_fallback(d, name, why, err));
    if (!(d->said_ops & (1u << (op->kind % 32)))) {
        d->said_ops |= 1u << (op->kind % 32);
        tsr_logf(TSR_LOG_WARN, "%s does not run '%s' (%s): it runs on %s, with copies", d->text,
                 name, why, d->fallback->text);
    }
    return run_staged(d, op, w, err);
}
