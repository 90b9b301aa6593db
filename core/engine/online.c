/* Transforms that run with a model (model.h: struct tsr_model_online) or a packed layer (packed.h): HADAMARD over queries and keys, after they
 * rotated, and over the inputs of down.  The small matrix of a run that is no power of two is a tensor of the device. */
#include "engine/online.h"

#include "base/hadamard.h"
#include "base/mem.h"

#include <stdlib.h>

/* The small matrix of runs of some columns. */
struct base {
    uint32_t          run;
    struct tsr_tensor own, host; /* host: of inputs of experts, on their device */
};

struct tsr_engine_online {
    struct tsr_model_online *layer; /* [layers] */
    struct base             *base;  /* [n], one for each width */
    uint64_t                 n;
};

/* The base of n rows on a device; none where n is a power of two. */
static tsr_status put_base(struct tsr_engine_device *dev, uint64_t n, struct tsr_tensor *t,
                           struct tsr_err *err)
{
    struct tsr_hadamard h;
    uint64_t            cells;
    TSR_TRY(tsr_hadamard_create(&h, n, err));
    float *sign = NULL;
    if (h.base == 1) {
        tsr_hadamard_free(&h);
        return TSR_OK;
    }
    cells = h.base * h.base;
    tsr_status st =
        tsr_engine_device_tensor(dev, TSR_F32, h.base, h.base, 0, "a Hadamard matrix", t, err);
    if (st == TSR_OK && !(sign = tsr_new(cells, sizeof *sign)))
        st = tsr_fail_nomem(err, cells * sizeof *sign, "a Hadamard matrix");
    for (uint64_t i = 0; st == TSR_OK && i < cells; i++)
        sign[i] = h.sign[i];
    if (st == TSR_OK)
        st = tsr_engine_device_upload(dev, t, sign, err);
    free(sign);
    tsr_hadamard_free(&h);
    return st;
}

static tsr_status add_base(struct tsr_engine *e, uint32_t run, bool host, struct tsr_err *err)
{
    struct tsr_engine_online *o = e->online;
    uint64_t                  i = 0;
    while (i < o->n && o->base[i].run != run)
        i++;
    if (run == 0)
        return TSR_OK;
    if (i == o->n) {
        struct base *more = tsr_renew(o->base, o->n + 1, sizeof *more);
        if (!more)
            return tsr_fail_nomem(err, (o->n + 1) * sizeof *more, "transforms");
        o->base = more;
        more[o->n++] = (struct base){ .run = run };
        TSR_TRY(put_base(e->dev, run, &more[i].own, err));
    }
    return host && e->host && !o->base[i].host.buffer
               ? put_base(e->host, run, &o->base[i].host, err)
               : TSR_OK;
}

tsr_status tsr_engine_online_create(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_online *m = &e->model->hp.online;
    const uint64_t                 layers = e->model->hp.layers;
    struct tsr_engine_online      *o = e->online = tsr_new(1, sizeof *o);
    if (!o || !(o->layer = tsr_new(layers, sizeof *o->layer)))
        return tsr_fail_nomem(err, layers * sizeof *o->layer, "transforms");
    for (uint64_t l = 0; l < layers; l++)
        o->layer[l] = *m;
    TSR_TRY(add_base(e, m->keys, false, err));
    TSR_TRY(add_base(e, m->down, false, err));
    TSR_TRY(add_base(e, m->expert, true, err));
    return add_base(e, m->shared, false, err);
}

tsr_status tsr_engine_online_set(struct tsr_engine *e, uint64_t layer,
                                 const struct tsr_model_online *packed, struct tsr_err *err)
{
    struct tsr_model_online *o = &e->online->layer[layer];
    *o = e->model->hp.online;
    if (!packed)
        return TSR_OK;
    if ((packed->keys && o->keys) || (packed->down && o->down))
        return tsr_fail(err, TSR_E_INPUT,
                        "layer %llu: its packed weights need a transform where the rotated model "
                        "has one already",
                        (unsigned long long)layer);
    o->keys = packed->keys ? packed->keys : o->keys;
    o->down = packed->down ? packed->down : o->down;
    TSR_TRY(add_base(e, o->keys, false, err));
    return add_base(e, o->down, false, err);
}

void tsr_engine_online_destroy(struct tsr_engine *e)
{
    if (e->online) {
        free(e->online->layer);
        free(e->online->base);
    }
    free(e->online);
    e->online = NULL;
}

static uint32_t run_of(const struct tsr_engine *e, uint64_t layer, enum tsr_engine_online_site site)
{
    const struct tsr_model_online *o = &e->online->layer[layer];
    const uint32_t                 runs[TSR_ENGINE_ONLINE] = { [TSR_ENGINE_ONLINE_KEYS] = o->keys,
                                                               [TSR_ENGINE_ONLINE_DOWN] = o->down,
                                                               [TSR_ENGINE_ONLINE_EXPERT] = o->expert,
                                                               [TSR_ENGINE_ONLINE_SHARED] = o->shared };
    return runs[site];
}

bool tsr_engine_online_has(const struct tsr_engine *e, uint64_t layer,
                           enum tsr_engine_online_site site)
{
    return run_of(e, layer, site) != 0;
}

tsr_status tsr_engine_online_run(struct tsr_engine *e, struct tsr_engine_device *dev,
                                 uint64_t layer, enum tsr_engine_online_site site,
                                 const struct tsr_tensor *t, struct tsr_err *err)
{
    const uint32_t run = run_of(e, layer, site);
    uint64_t       i = 0;
    if (!run)
        return TSR_OK;
    while (e->online->base[i].run != run)
        i++;
    const struct tsr_tensor *base =
        dev == e->dev ? &e->online->base[i].own : &e->online->base[i].host;
    struct tsr_op op = {
        .kind = TSR_OP_HADAMARD, .out = t, .in = { t, base->buffer ? base : NULL }, .head_dim = run
    };
    return tsr_engine_device_run(dev, &op, NULL, err);
}
