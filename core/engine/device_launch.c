/* Products by a plugin's code on the device (tessera/draft/kernel_device.h): the packed bytes lie there since the weight
 * was loaded, and a product is two launches between the backend's operations: sums of segments, then their tree. */
#include "engine/device_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/own.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN(n) (((n) + 255) / 256 * 256)

/* Code that the device has. */
struct tsr_engine_loaded {
    const struct tsr_device_code *code;
    void                         *loaded;
};

/* A weight's packed bytes on the device. */
struct tsr_engine_placed {
    void    *loaded, *codes, *meta; /* the plugin's code, borrowed; buffers, meta NULL: none */
    uint64_t rows, segments;        /* of all units */
};

static const struct tsr_backend_launch_v1 *table_of(struct tsr_engine_device *d)
{
    if (!d->asked_launch) {
        const struct tsr_backend_launch_v1 *t =
            d->iface->extension ? d->iface->extension(d->self, TSR_BACKEND_LAUNCH) : NULL;
        d->launch = t && TSR_HAS(struct tsr_backend_launch_v1, t, segments) ? t : NULL;
        d->asked_launch = true;
    }
    return d->launch;
}

static tsr_status load_code(struct tsr_engine_device *d, const struct tsr_device_code *code,
                            void **loaded, struct tsr_err *err)
{
    for (uint64_t i = 0; i < d->n_loaded; i++)
        if (d->loaded[i].code == code) {
            *loaded = d->loaded[i].loaded;
            return TSR_OK;
        }
    struct tsr_engine_loaded *v = tsr_renew(d->loaded, d->n_loaded + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, "a plugin's code");
    d->loaded = v;
    TSR_TRY(d->launch->load(d->self, code, loaded, err));
    d->loaded[d->n_loaded++] = (struct tsr_engine_loaded){ code, *loaded };
    return TSR_OK;
}

static tsr_status put(struct tsr_engine_device *d, const void *from, uint64_t bytes, void **buffer,
                      struct tsr_err *err)
{
    if (bytes == 0)
        return TSR_OK;
    TSR_TRY(d->iface->buffer_alloc(d->self, bytes, buffer, err));
    return d->iface->upload(d->self, *buffer, 0, from, bytes, err);
}

/* Where its products run, once for each format. */
static void say(struct tsr_engine_device *d, const struct tsr_model_packed *p, bool there)
{
    if (strcmp(d->said_own, p->format.id) == 0)
        return;
    (void)snprintf(d->said_own, sizeof d->said_own, "%s", p->format.id);
    if (there)
        tsr_logf(TSR_LOG_INFO, "products of %s run on %s, by code of quantizer '%s'", p->format.id,
                 d->text, p->plugin);
    else
        tsr_logf(TSR_LOG_INFO,
                 "quantizer '%s' has no code for %s: products of %s run on the CPU, and inputs and "
                 "results are copied",
                 p->plugin, d->text, p->format.id);
}

static tsr_status put_all(struct tsr_engine_device *d, const struct tsr_model_packed *p,
                          struct tsr_engine_placed *on, struct tsr_err *err)
{
    const struct tsr_model_own *o = &p->own;
    TSR_TRY(put(d, p->codes, o->units * o->code_bytes, &on->codes, err));
    return put(d, p->meta, o->units * o->meta_bytes, &on->meta, err);
}

tsr_status tsr_engine_device_place(struct tsr_engine_device *d, struct tsr_engine_weight *w,
                                   struct tsr_err *err)
{
    const struct tsr_model_packed      *p = w->own;
    const struct tsr_model_own         *o = &p->own;
    const struct tsr_backend_launch_v1 *t = table_of(d);
    const struct tsr_device_code       *code = NULL;
    const uint64_t                      left = o->rows - o->first, there = o->units * o->unit;
    uint64_t                            bytes = 0;
    if (!t || w->kernel == TSR_OWN_DECODED || o->units == 0)
        return TSR_OK;
    TSR_TRY(tsr_model_own_device_code(p, t->target, &code, err));
    if (!code || (w->kernel == TSR_OWN_WHOLE && p->cols != o->cols)) {
        say(d, p, false);
        return TSR_OK;
    }
    struct tsr_errbuf why = TSR_ERRBUF(why);
    tsr_status        st = tsr_model_own_device_scratch(p, w->kernel, 1, &bytes, &why.err);
    if (st == TSR_E_UNSUPPORTED) {
        say(d, p, false);
        return TSR_OK;
    }
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &why.err);
    struct tsr_engine_placed *on = tsr_new(1, sizeof *on);
    if (!on)
        return tsr_fail_nomem(err, sizeof *on, "a weight");
    const uint64_t segment = tsr_model_own_segment(p);
    on->rows = there < left ? there : left;
    on->segments = w->kernel == TSR_OWN_WHOLE ? 1 : (p->cols + segment - 1) / segment;
    w->on = on;
    say(d, p, true);
    st = load_code(d, code, &on->loaded, err);
    return st == TSR_OK ? put_all(d, p, on, err) : st;
}

void tsr_engine_device_unplace(struct tsr_engine_device *d, struct tsr_engine_weight *w)
{
    if (!w->on)
        return;
    d->iface->buffer_free(d->self, w->on->codes);
    d->iface->buffer_free(d->self, w->on->meta);
    free(w->on);
    w->on = NULL;
}

void tsr_engine_device_unload(struct tsr_engine_device *d)
{
    d->iface->buffer_free(d->self, d->room);
    for (uint64_t i = 0; i < d->n_loaded; i++)
        d->launch->unload(d->self, d->loaded[i].loaded);
    free(d->loaded);
}

/* Room for the sums of a product, behind which is its scratch. */
static tsr_status room_of(const struct tsr_engine_weight *w, uint64_t n, uint64_t *sums,
                          uint64_t *all, struct tsr_err *err)
{
    uint64_t scratch = 0, floats = 0;
    TSR_TRY(tsr_model_own_device_scratch(w->own, w->kernel, n, &scratch, err));
    if (!tsr_mul(n, w->on->rows * w->on->segments, &floats) || !tsr_mul(floats, 4, sums) ||
        *sums > INT64_MAX || scratch > INT64_MAX)
        return tsr_fail_nomem(err, INT64_MAX, "results of a quantizer's kernel");
    *sums = ALIGN(*sums);
    *all = *sums + scratch;
    return TSR_OK;
}

static tsr_status take_room(struct tsr_engine_device *d, uint64_t bytes, struct tsr_err *err)
{
    if (bytes <= d->room_bytes)
        return TSR_OK;
    d->iface->buffer_free(d->self, d->room); /* which waits for launches that use it */
    d->room = NULL;
    d->room_bytes = 0;
    TSR_TRY(d->iface->buffer_alloc(d->self, bytes, &d->room, err));
    d->room_bytes = bytes;
    return TSR_OK;
}

tsr_status tsr_engine_device_reserve_own(struct tsr_engine_device       *d,
                                         const struct tsr_engine_weight *w, uint64_t n,
                                         struct tsr_err *err)
{
    uint64_t sums = 0, all = 0;
    if (!w->on)
        return TSR_OK;
    tsr_status st = room_of(w, n, &sums, &all, err);
    if (st == TSR_E_UNSUPPORTED) /* so many tokens are multiplied on the host */
        return TSR_OK;
    return st == TSR_OK ? take_room(d, all, err) : st;
}

static uint64_t address_of(const struct tsr_engine_device *d, const void *buffer)
{
    return buffer ? d->launch->address(d->self, buffer) : 0;
}

tsr_status tsr_engine_device_run_launch(struct tsr_engine_device *d, const struct tsr_op *op,
                                        const struct tsr_engine_weight *w, struct tsr_err *err)
{
    const struct tsr_engine_placed *on = w->on;
    const struct tsr_tensor        *in = op->in[0];
    const uint64_t                  n = in->rows;
    struct tsr_device_launch        l;
    uint64_t                        sums = 0, all = 0;
    if (n == 0)
        return TSR_OK;
    if (in->dtype != TSR_F32 || in->cols != w->own->cols || in->row_stride < 4 * in->cols)
        return tsr_fail(err, TSR_E_BUG, "inputs of %llu columns for a matrix of %llu",
                        (unsigned long long)in->cols, (unsigned long long)w->own->cols);
    TSR_TRY(room_of(w, n, &sums, &all, err));
    TSR_TRY(take_room(d, all, err));
    const uint64_t                    room = address_of(d, d->room);
    const struct tsr_model_own_launch x = { .how = w->kernel,
                                            .rows = on->rows,
                                            .n = n,
                                            .codes = address_of(d, on->codes),
                                            .meta = address_of(d, on->meta),
                                            .in = address_of(d, in->buffer) + in->offset,
                                            .in_stride = in->row_stride / sizeof(float),
                                            .out = room,
                                            .scratch = room + sums };
    const struct tsr_tensor           parts = { .struct_size = sizeof parts,
                                                .dtype = TSR_F32,
                                                .buffer = d->room,
                                                .offset = w->own->own.skip * sizeof(float),
                                                .rows = on->segments * n,
                                                .cols = w->own->rows,
                                                .row_stride = on->rows * sizeof(float) };
    TSR_TRY(tsr_model_own_device_launch(w->own, &x, &l, err));
    TSR_TRY(d->launch->launch(d->self, NULL, on->loaded, &l, err));
    return d->launch->segments(d->self, NULL, &parts, (uint32_t)on->segments, op->in[1], op->out,
                               err);
}
