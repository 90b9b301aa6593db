/* Transforms that run with a rotated model (model.h: struct tsr_model_online): HADAMARD over queries and keys, after they
 * rotated, and over the inputs of down.  The small matrix of a run that is no power of two is a tensor of the device. */
#include "engine/online.h"

#include "base/hadamard.h"
#include "base/mem.h"

#include <stdlib.h>

struct tsr_engine_online {
    uint32_t          run[TSR_ENGINE_ONLINE]; /* columns; 0: no transform */
    struct tsr_tensor base[TSR_ENGINE_ONLINE];
    struct tsr_tensor host_base; /* of TSR_ENGINE_ONLINE_EXPERT, on the device of the experts */
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

tsr_status tsr_engine_online_create(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_online *o = &e->model->hp.online;
    struct tsr_engine_online      *r = e->online = tsr_new(1, sizeof *r);
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, "transforms");
    r->run[TSR_ENGINE_ONLINE_KEYS] = o->keys;
    r->run[TSR_ENGINE_ONLINE_DOWN] = o->down;
    r->run[TSR_ENGINE_ONLINE_EXPERT] = o->expert;
    r->run[TSR_ENGINE_ONLINE_SHARED] = o->shared;
    for (int i = 0; i < TSR_ENGINE_ONLINE; i++)
        if (r->run[i])
            TSR_TRY(put_base(e->dev, r->run[i], &r->base[i], err));
    return o->expert && e->host ? put_base(e->host, o->expert, &r->host_base, err) : TSR_OK;
}

void tsr_engine_online_destroy(struct tsr_engine *e)
{
    free(e->online);
    e->online = NULL;
}

bool tsr_engine_online_has(const struct tsr_engine *e, enum tsr_engine_online_site site)
{
    return e->online && e->online->run[site];
}

tsr_status tsr_engine_online_run(struct tsr_engine *e, struct tsr_engine_device *dev,
                                 enum tsr_engine_online_site site, const struct tsr_tensor *t,
                                 struct tsr_err *err)
{
    if (!tsr_engine_online_has(e, site))
        return TSR_OK;
    const struct tsr_tensor *base = dev == e->dev ? &e->online->base[site] : &e->online->host_base;
    struct tsr_op            op = { .kind = TSR_OP_HADAMARD,
                                    .out = t,
                                    .in = { t, base->buffer ? base : NULL },
                                    .head_dim = e->online->run[site] };
    return tsr_engine_device_run(dev, &op, NULL, err);
}
