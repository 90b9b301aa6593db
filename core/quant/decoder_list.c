/* The quantizers that decode weights in their own formats, made when first needed. */
#include "quant/decoder_internal.h"

#include "base/f16.h"
#include "base/mem.h"
#include "plugin/spec.h"
#include "quant/quant.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A plan that was compared with stored bytes. */
struct shape {
    uint64_t rows, cols, scratch;
    uint32_t dtype;
};

struct decoder {
    char                    *use;
    struct tsr_plugin_spec   spec;
    struct tsr_quant_decoder d;
    struct shape            *shapes;
    uint64_t                 n_shapes;
};

static struct {
    pthread_mutex_t      lock; /* guards the rest */
    struct tsr_registry *registry;
    struct decoder     **v;
    uint64_t             n;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void decoder_free(struct decoder *d)
{
    if (d->d.q.iface)
        d->d.q.iface->destroy(d->d.q.self);
    tsr_plugin_spec_close(&d->spec);
    free(d->shapes);
    free(d->use);
    free(d);
}

static const struct tsr_quantizer_kernel_v1 *kernel_of(const struct tsr_quantizer_v1 *t,
                                                       const void                    *self)
{
    const struct tsr_quantizer_kernel_v1 *k =
        t->extension ? t->extension(self, TSR_QUANTIZER_KERNEL) : NULL;
    return k && TSR_HAS(struct tsr_quantizer_kernel_v1, k, linear) && k->scratch ? k : NULL;
}

static const struct tsr_quantizer_kernel_device_v1 *device_of(const struct tsr_quantizer_v1 *t,
                                                              const void                    *self)
{
    const struct tsr_quantizer_kernel_device_v1 *k =
        t->extension ? t->extension(self, TSR_QUANTIZER_KERNEL_DEVICE) : NULL;
    return k && TSR_HAS(struct tsr_quantizer_kernel_device_v1, k, launch) && k->code && k->scratch
               ? k
               : NULL;
}

/* The lock is held. */
static tsr_status make(const char *use, struct decoder **out, struct tsr_err *err)
{
    struct decoder **v = tsr_renew(all.v, all.n + 1, sizeof *v);
    struct decoder  *d = tsr_new(1, sizeof *d);
    if (v)
        all.v = v;
    if (!v || !d || !(d->use = tsr_strdup(use))) {
        free(d);
        return tsr_fail_nomem(err, sizeof *d, "a quantizer");
    }
    tsr_status st = tsr_plugin_spec_open(&d->spec, all.registry, TSR_KIND_QUANTIZER, use, err);
    if (st == TSR_OK) {
        const struct tsr_quantizer_v1 *t = d->spec.found.iface;
        st = t->create(d->spec.found.host, d->spec.options, &d->d.q.self, err);
        if (st == TSR_OK) {
            d->d.q.iface = t;
            d->d.kernel = kernel_of(t, d->d.q.self);
            d->d.device = d->d.kernel ? device_of(t, d->d.q.self) : NULL;
        }
        d->d.q.name = d->spec.found.component->name;
    }
    if (st != TSR_OK) {
        decoder_free(d);
        return tsr_err_prefix(err, st == TSR_E_NOMEM ? st : TSR_E_INPUT,
                              "weights in the own format of quantizer '%s'", use);
    }
    *out = all.v[all.n++] = d;
    return TSR_OK;
}

/* The lock is held. */
static tsr_status find_shape(struct decoder *d, const struct tsr_model_packed *p,
                             struct shape **out, struct tsr_err *err)
{
    const struct tsr_model_own *o = &p->own;
    struct tsr_quant_plan       plan;
    for (uint64_t i = 0; i < d->n_shapes; i++) {
        *out = &d->shapes[i];
        if ((*out)->rows == o->rows && (*out)->cols == o->cols && (*out)->dtype == p->source_dtype)
            return TSR_OK;
    }
    struct tsr_matrix w = { .struct_size = sizeof w,
                            .dtype = p->source_dtype,
                            .name = "a stored matrix",
                            .rows = o->rows,
                            .cols = o->cols,
                            .row_stride = o->cols * tsr_dtype_size(p->source_dtype) };
    TSR_TRY(tsr_quantizer_plan(&d->d.q, &w, &plan, err));
    uint64_t unit = plan.rows_per_unit ? plan.rows_per_unit : o->rows;
    if (!plan.format.id || strcmp(plan.format.id, p->format.id) != 0 || unit != o->unit ||
        plan.code_bytes != o->code_bytes || plan.meta_bytes != o->meta_bytes)
        return tsr_fail(
            err, TSR_E_INPUT,
            "a matrix of %llux%llu is stored as %s, %llu + %llu bytes for %llu rows, and "
            "quantizer '%s' packs it as %s, %llu + %llu bytes for %llu rows; use the "
            "version of the plugin that packed it",
            (unsigned long long)o->rows, (unsigned long long)o->cols, p->format.id,
            (unsigned long long)o->code_bytes, (unsigned long long)o->meta_bytes,
            (unsigned long long)o->unit, o->use, plan.format.id ? plan.format.id : "?",
            (unsigned long long)plan.code_bytes, (unsigned long long)plan.meta_bytes,
            (unsigned long long)unit);
    struct shape *v = tsr_renew(d->shapes, d->n_shapes + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, "a quantizer's plan");
    d->shapes = v;
    *out = &v[d->n_shapes++];
    **out = (struct shape){ o->rows, o->cols, plan.scratch_bytes, p->source_dtype };
    return TSR_OK;
}

tsr_status tsr_quant_decoder_of(const struct tsr_model_packed   *p,
                                const struct tsr_quant_decoder **out, uint64_t *scratch,
                                struct tsr_err *err)
{
    struct decoder *d = NULL;
    struct shape   *s = NULL;
    (void)pthread_mutex_lock(&all.lock);
    for (uint64_t i = 0; i < all.n && !d; i++)
        d = strcmp(all.v[i]->use, p->own.use) == 0 ? all.v[i] : NULL;
    tsr_status st = d ? TSR_OK : make(p->own.use, &d, err);
    if (st == TSR_OK)
        st = find_shape(d, p, &s, err);
    if (st == TSR_OK) {
        *out = &d->d;
        *scratch = s->scratch;
    }
    (void)pthread_mutex_unlock(&all.lock);
    return st;
}

tsr_status tsr_quant_decoders_begin(struct tsr_registry *r, struct tsr_err *err)
{
    if (all.registry)
        return tsr_fail(err, TSR_E_BUG, "weights are decoded by another registry already");
    all.registry = r;
    return TSR_OK;
}

void tsr_quant_decoders_end(void)
{
    for (uint64_t i = 0; i < all.n; i++)
        decoder_free(all.v[i]);
    free(all.v);
    all.v = NULL;
    all.n = 0;
    all.registry = NULL;
}
