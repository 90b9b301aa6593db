/* Times the linears of one kind followed by compensation: the data of the tuner's table. */
#include "engine/compensator.h"

#include "base/clock.h"
#include "base/mem.h"
#include "compensate/compensation.h"

#include <math.h>
#include <stdlib.h>

tsr_status tsr_engine_compensate_k(struct tsr_engine *e, const uint32_t (*k)[TSR_MODEL_SITES],
                                   uint32_t each, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    if (!c)
        return tsr_fail(err, TSR_E_INVAL, "this engine compensates nothing");
    for (uint64_t l = e->first; l < e->end; l++)
        for (int i = 0; i < TSR_MODEL_SITES; i++) {
            const struct tsr_compensate_site_profile *p = &c->use.from->site[l][i];
            struct tsr_engine_comp_site              *s = &c->site[l][i];
            uint32_t                                  want = k ? k[l][i] : each;
            float                                     b0 = 0, b15 = 0;
            uint64_t count = s->there ? tsr_compensate_select_count(want, s->channels) : 0;
            if (want > TSR_COMPENSATE_CHUNK || count > c->room)
                return tsr_fail(err, TSR_E_INVAL,
                                "%u of 1024 channels are more than were requested", want);
            s->k = count ? want : 0;
            s->count = count;
            if (count && tsr_compensate_select_borders(p->top, p->cols, want, &b0, &b15))
                tsr_compensate_select_floors(b0, b15, s->floors);
            if (p->top)
                TSR_TRY(tsr_engine_compensate_fix(c, p, s, err));
        }
    return TSR_OK;
}

/* A row with a heavy tail, the same each time. */
static tsr_status make_input(struct tsr_engine *e, const struct tsr_tensor *t, struct tsr_err *err)
{
    float *x = tsr_new(t->cols, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, t->cols * sizeof *x, "an input");
    for (uint64_t i = 0; i < t->cols; i++) {
        float u = (float)((double)(i * 2654435761u % 4096) / 2048 - 1);
        x[i] = u * u * u;
    }
    tsr_status st = tsr_engine_device_upload(e->dev, t, x, err);
    free(x);
    return st;
}

struct kind {
    struct tsr_tensor  in, out[TSR_COMPENSATE_LINEARS];
    enum tsr_linear_id id[TSR_COMPENSATE_LINEARS];
    uint32_t           n;
};

static void add(struct kind *s, enum tsr_linear_id id, const struct tsr_tensor *out)
{
    s->id[s->n] = id;
    s->out[s->n++] = tsr_engine_rows(out, 0, 1);
}

static void kind_of(const struct tsr_engine *e, enum tsr_site site, struct kind *s)
{
    *s = (struct kind){ .n = 0 };
    switch (site) {
    case TSR_MODEL_SITE_ATTN_IN:
        s->in = tsr_engine_rows(&e->x, 0, 1);
        add(s, TSR_MODEL_Q, &e->q);
        add(s, TSR_MODEL_K, &e->k);
        add(s, TSR_MODEL_V, &e->v);
        break;
    case TSR_MODEL_SITE_O_IN:
        s->in = tsr_engine_rows(&e->a, 0, 1);
        add(s, TSR_MODEL_O, &e->y);
        break;
    case TSR_MODEL_SITE_FFN_IN:
        s->in = tsr_engine_rows(&e->x, 0, 1);
        add(s, TSR_MODEL_GATE, e->model->hp.gated ? &e->gate : &e->up);
        add(s, TSR_MODEL_UP, &e->up);
        break;
    default:
        s->in = tsr_engine_rows(e->model->hp.gated ? &e->gate : &e->up, 0, 1);
        add(s, TSR_MODEL_DOWN, &e->y);
        break;
    }
}

static tsr_status run_once(struct tsr_engine *e, enum tsr_site site, const struct kind *s,
                           struct tsr_err *err)
{
    const struct tsr_tensor *outs[TSR_COMPENSATE_LINEARS] = { NULL };
    for (uint64_t l = e->first; l < e->end; l++) {
        for (uint32_t i = 0; i < s->n; i++)
            outs[i] = e->layers[l].lin[s->id[i]].w ? &s->out[i] : NULL;
        TSR_TRY(tsr_engine_run_site(e, l, site, &s->in, outs, err));
    }
    return tsr_engine_device_sync(e->dev, err);
}

tsr_status tsr_engine_time_site(struct tsr_engine *e, enum tsr_site site, uint32_t repeats,
                                double *seconds, struct tsr_err *err)
{
    struct kind s;
    if (!e->comp || e->tp.ranks > 1)
        return tsr_fail(err, TSR_E_INVAL, "this engine has no compensation");
    kind_of(e, site, &s);
    TSR_TRY(make_input(e, &s.in, err));
    e->comp->n = 1;
    e->comp->full = true;
    e->comp->at[0] = 0;
    TSR_TRY(run_once(e, site, &s, err));
    *seconds = INFINITY;
    for (uint32_t i = 0; i < repeats; i++) {
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        double t0 = tsr_now_s();
        TSR_TRY(run_once(e, site, &s, err));
        double t = tsr_now_s() - t0;
        *seconds = t < *seconds ? t : *seconds;
    }
    return TSR_OK;
}
