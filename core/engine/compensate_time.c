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
        for (uint64_t i = 0; i < e->model->hp.sites; i++) {
            const struct tsr_compensate_site_profile *p = &c->use.from->site[l][i];
            struct tsr_engine_comp_site              *s = &c->site[l][i];
            if (!s->channels) /* the layer does not have the site */
                continue;
            uint32_t want = k ? k[l][tsr_model_site_kind((enum tsr_site)i)] : each;
            float    b0 = 0, b15 = 0;
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

/* What the linears of a kind of site read. */
static const struct tsr_tensor *time_input(const struct tsr_engine *e, enum tsr_site kind)
{
    return kind == TSR_MODEL_SITE_O_IN      ? &e->a
           : kind != TSR_MODEL_SITE_DOWN_IN ? &e->x
           : e->model->hp.gated             ? &e->gate
                                            : &e->up;
}

/* One token through the linears of a site; the outputs are not used. */
static tsr_status run_site(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                           struct tsr_err *err)
{
    enum tsr_site            kind = tsr_model_site_kind(site);
    const struct tsr_tensor *from = time_input(e, kind);
    struct tsr_tensor *to[TSR_COMPENSATE_LINEARS] = { &e->y }, out[TSR_COMPENSATE_LINEARS], in;
    const struct tsr_tensor *outs[TSR_ENGINE_SITE_LINEARS] = { NULL };
    uint32_t                 n;
    enum tsr_linear_id       first = tsr_compensation_linears(e->model, layer, site, &n);
    if (kind == TSR_MODEL_SITE_ATTN_IN)
        to[0] = &e->q, to[1] = &e->k, to[2] = &e->v;
    if (kind == TSR_MODEL_SITE_FFN_IN)
        to[0] = &e->gate, to[1] = &e->up;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t rows = e->model->layers[layer].lin[first + i].w.rows;
        if (!rows)
            continue;
        out[i] = tsr_engine_narrow(to[i], 1, rows);
        outs[i] = &out[i];
    }
    in = tsr_engine_narrow(from, 1, tsr_model_layer_site_cols(e->model, layer, site));
    return tsr_engine_run_site(e, layer, site, &in, outs, err);
}

/* A layer's linears of a kind: in one with experts those of as many as a token takes, others in every turn, and of
 * the shared one. */
static tsr_status run_layer(struct tsr_engine *e, uint64_t layer, enum tsr_site kind, uint64_t turn,
                            struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    bool ffn = kind == TSR_MODEL_SITE_FFN_IN || kind == TSR_MODEL_SITE_DOWN_IN;
    if (!ffn || !hp->sparse || !hp->sparse[layer])
        return run_site(e, layer, kind, err);
    for (uint64_t i = 0; i < hp->experts_used; i++)
        TSR_TRY(run_site(e, layer,
                         tsr_model_expert_site((turn * hp->experts_used + i) % hp->experts, kind),
                         err));
    if (!hp->shared_ffn)
        return TSR_OK;
    return run_site(e, layer, kind == TSR_MODEL_SITE_FFN_IN ? kind : TSR_MODEL_SITE_SHARED_DOWN_IN,
                    err);
}

static tsr_status run_once(struct tsr_engine *e, enum tsr_site kind, uint64_t turn,
                           struct tsr_err *err)
{
    for (uint64_t l = e->first; l < e->end; l++)
        TSR_TRY(run_layer(e, l, kind, turn, err));
    return tsr_engine_device_sync(e->dev, err);
}

tsr_status tsr_engine_time_site(struct tsr_engine *e, enum tsr_site kind, uint32_t repeats,
                                double *seconds, struct tsr_err *err)
{
    if (!e->comp || e->tp.ranks > 1)
        return tsr_fail(err, TSR_E_INVAL, "this engine has no compensation");
    struct tsr_tensor in = tsr_engine_rows(time_input(e, kind), 0, 1);
    TSR_TRY(make_input(e, &in, err));
    e->comp->at[0] = 0;
    e->comp->now = (struct tsr_engine_comp_rows){ .n = 1, .full = true, .at = e->comp->at };
    TSR_TRY(run_once(e, kind, 0, err));
    *seconds = INFINITY;
    for (uint32_t i = 0; i < repeats; i++) {
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        double t0 = tsr_now_s();
        TSR_TRY(run_once(e, kind, 1 + i, err));
        double t = tsr_now_s() - t0;
        *seconds = t < *seconds ? t : *seconds;
    }
    return TSR_OK;
}
