/* Times the linears of one kind followed by compensation: the data of the tuner's table. */
#include "engine/compensator.h"
#include "engine/experts.h"

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
            uint32_t want = k ? k[l][tsr_compensation_kind((enum tsr_site)i)] : each;
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
            TSR_TRY(tsr_engine_compensate_hold(e, l, (enum tsr_site)i, err));
        }
    return TSR_OK;
}

void tsr_engine_compensate_blocks(struct tsr_engine *e, enum tsr_site kind, uint32_t blocks)
{
    for (uint64_t l = e->first; e->comp && l < e->end; l++)
        for (uint64_t i = 0; i < e->model->hp.sites; i++)
            if (tsr_compensation_kind((enum tsr_site)i) == kind)
                e->comp->site[l][i].blocks = blocks;
}

/* A row with a heavy tail, the same each time. */
static tsr_status make_input(struct tsr_engine_device *dev, const struct tsr_tensor *t,
                             struct tsr_err *err)
{
    float *x = tsr_new(t->cols, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, t->cols * sizeof *x, "an input");
    for (uint64_t i = 0; i < t->cols; i++) {
        float u = (float)((double)(i * 2654435761u % 4096) / 2048 - 1);
        x[i] = u * u * u;
    }
    tsr_status st = tsr_engine_device_upload(dev, t, x, err);
    free(x);
    return st;
}

/* What is timed reads and writes these rows: on the engine's device, and where the host has experts. */
struct timed {
    struct tsr_tensor in[2], out[2]; /* of the widest input, of all outputs of the widest site */
};

static struct tsr_engine_device *device_of(const struct tsr_engine *e, int place)
{
    return place ? e->host : e->dev; /* the latter NULL: no experts are there */
}

/* One token through the linears of a site; the outputs are not used. */
static tsr_status run_site(struct tsr_engine *e, const struct timed *t, uint64_t layer,
                           enum tsr_site site, struct tsr_err *err)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(e->model, layer, site);
    struct tsr_tensor               out[TSR_COMPENSATE_LINEARS], in;
    const struct tsr_tensor        *outs[TSR_COMPENSATE_LINEARS] = { NULL };
    int                             place = tsr_engine_site_device(e, layer, site) != e->dev;
    uint64_t                        at = 0;
    if (of.n == 0)
        return TSR_OK;
    for (uint32_t i = 0; i < of.n; i++) {
        uint64_t rows = e->model->layers[layer].lin[of.id[i]].w.rows;
        if (!rows)
            continue;
        out[i] = tsr_engine_part_of_row(&t->out[place], at, rows);
        outs[i] = &out[i];
        at += (rows + 15) / 16 * 16;
    }
    in = tsr_engine_narrow(&t->in[place], 1, tsr_model_layer_site_cols(e->model, layer, site));
    return tsr_engine_run_site(e, layer, site, &in, outs, err);
}

/* A layer's linears of a kind: in one with experts those of as many as a token takes, others in every turn, and of
 * the shared one. */
static tsr_status run_layer(struct tsr_engine *e, const struct timed *t, uint64_t layer,
                            enum tsr_site kind, uint64_t turn, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    bool ffn = kind == TSR_MODEL_SITE_FFN_IN || kind == TSR_MODEL_SITE_DOWN_IN;
    if (!ffn || !hp->sparse || !hp->sparse[layer]) {
        TSR_TRY(run_site(e, t, layer, kind, err));
        if (kind != TSR_MODEL_SITE_ATTN_IN)
            return TSR_OK;
        TSR_TRY(run_site(e, t, layer, TSR_MODEL_SITE_Q_B_IN, err)); /* where it has them */
        return run_site(e, t, layer, TSR_MODEL_SITE_KV_B_IN, err);
    }
    for (uint64_t i = 0; i < hp->experts_used; i++)
        TSR_TRY(run_site(e, t, layer,
                         tsr_model_expert_site((turn * hp->experts_used + i) % hp->experts, kind),
                         err));
    if (!hp->shared_ffn)
        return TSR_OK;
    return run_site(e, t, layer,
                    kind == TSR_MODEL_SITE_FFN_IN ? kind : TSR_MODEL_SITE_SHARED_DOWN_IN, err);
}

static tsr_status run_once(struct tsr_engine *e, const struct timed *t, enum tsr_site kind,
                           uint64_t turn, struct tsr_err *err)
{
    for (uint64_t l = e->first; l < e->end; l++)
        TSR_TRY(run_layer(e, t, l, kind, turn, err));
    if (e->host)
        TSR_TRY(tsr_engine_device_sync(e->host, err));
    return tsr_engine_device_sync(e->dev, err);
}

static tsr_status make_rows(struct tsr_engine *e, struct timed *t, struct tsr_err *err)
{
    uint64_t widest = 0, most = 0;
    for (uint64_t l = e->first; l < e->end; l++)
        for (uint64_t s = 0; s < e->model->hp.sites; s++) {
            struct tsr_compensation_linears of =
                tsr_compensation_linears(e->model, l, (enum tsr_site)s);
            uint64_t cols = of.n ? tsr_model_layer_site_cols(e->model, l, (enum tsr_site)s) : 0;
            uint64_t sum = 0;
            for (uint32_t i = 0; i < of.n; i++)
                sum += (e->model->layers[l].lin[of.id[i]].w.rows + 15) / 16 * 16;
            widest = cols > widest ? cols : widest;
            most = sum > most ? sum : most;
        }
    for (int i = 0; i < 2 && device_of(e, i); i++) {
        struct tsr_engine_device *dev = device_of(e, i);
        TSR_TRY(
            tsr_engine_device_tensor(dev, TSR_F32, 1, widest, 0, "a timed input", &t->in[i], err));
        TSR_TRY(
            tsr_engine_device_tensor(dev, TSR_F32, 1, most, 0, "timed outputs", &t->out[i], err));
        TSR_TRY(make_input(dev, &t->in[i], err));
    }
    return TSR_OK;
}

static tsr_status time_rows(struct tsr_engine *e, const struct timed *t, enum tsr_site kind,
                            uint32_t repeats, double *seconds, struct tsr_err *err)
{
    e->comp->at[0] = 0;
    e->comp->now = (struct tsr_engine_comp_rows){ .n = 1, .full = true, .at = e->comp->at };
    TSR_TRY(run_once(e, t, kind, 0, err));
    *seconds = INFINITY;
    for (uint32_t i = 0; i < repeats; i++) {
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        double t0 = tsr_now_s();
        TSR_TRY(run_once(e, t, kind, 1 + i, err));
        double now = tsr_now_s() - t0;
        *seconds = now < *seconds ? now : *seconds;
    }
    return TSR_OK;
}

tsr_status tsr_engine_time_site(struct tsr_engine *e, enum tsr_site kind, uint32_t repeats,
                                double *seconds, struct tsr_err *err)
{
    struct timed t = { 0 };
    if (!e->comp || e->tp.ranks > 1)
        return tsr_fail(err, TSR_E_INVAL, "this engine has no compensation");
    tsr_status st = make_rows(e, &t, err);
    if (st == TSR_OK)
        st = time_rows(e, &t, kind, repeats, seconds, err);
    for (int i = 0; i < 2 && device_of(e, i); i++) {
        tsr_engine_device_drop_tensor(device_of(e, i), &t.in[i]);
        tsr_engine_device_drop_tensor(device_of(e, i), &t.out[i]);
    }
    return st;
}
