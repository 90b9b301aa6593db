/* The model and its overlay, onto the device. */
#include "engine/weights.h"

#include "base/pool.h"
#include "checkpoint/prepacked/prepacked.h"
#include "engine/online.h"

#include <string.h>

/* folded: replaces n if it has a gain; may be NULL. */
static tsr_status load_norm(struct tsr_engine *e, const struct tsr_model_norm *n,
                            const struct tsr_model_norm *folded, uint64_t width,
                            struct tsr_engine_norm_dev *out, struct tsr_err *err)
{
    if (folded && folded->gain)
        n = folded;
    if (n->gain)
        TSR_TRY(tsr_engine_device_vector(e->dev, n->gain, width, &out->gain, err));
    if (n->bias)
        TSR_TRY(tsr_engine_device_vector(e->dev, n->bias, width, &out->bias, err));
    return TSR_OK;
}

/* The norm of some heads; one gain serves all heads, or each has its own.  Over the whole width: of all heads. */
static tsr_status load_qk_norm(struct tsr_engine *e, const struct tsr_model_norm *n, uint32_t all,
                               uint32_t head, uint32_t heads, struct tsr_engine_norm_dev *out,
                               struct tsr_err *err)
{
    uint64_t              dim = e->model->hp.head_dim;
    bool                  shared = e->model->hp.qk_norm == TSR_MODEL_QK_NORM_HEAD;
    struct tsr_model_norm own = *n;
    if (!n->gain)
        return TSR_OK;
    if (e->model->hp.qk_norm == TSR_MODEL_QK_NORM_WIDTH)
        return load_norm(e, &own, NULL, all * dim, out, err);
    if (!shared)
        own.gain += head * dim;
    return load_norm(e, &own, NULL, shared ? dim : heads * dim, out, err);
}

/* Sinks of this rank's heads, after a row of slopes that are zero. */
static tsr_status load_sinks(struct tsr_engine *e, const float *sinks, struct tsr_tensor *out,
                             struct tsr_err *err)
{
    uint64_t n = e->share.heads;
    if (!sinks)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_tensor(e->dev, TSR_F32, 2, n, 0, "attention sinks", out, err));
    struct tsr_tensor row = tsr_engine_rows(out, 1, 1);
    return tsr_engine_device_upload(e->dev, &row, sinks + e->share.head, err);
}

/* The device has the layer: host memory of what was streamed can go. */
static tsr_status release_layer(struct tsr_engine *e, uint64_t i, struct tsr_err *err)
{
    struct tsr_engine_layer_dev *d = &e->layers[i];
    if (!e->release)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    for (uint64_t k = 0; k < e->model->hp.linears; k++)
        tsr_engine_linear_release(&d->lin[k]);
    if (d->open)
        tsr_model_close_layer(e->model, i);
    d->open = false;
    return TSR_OK;
}

/* One linear from a source, which packs the next ones meanwhile. */
static tsr_status load_fetched(struct tsr_engine *e, uint64_t i, enum tsr_linear_id id,
                               uint32_t act, struct tsr_err *err)
{
    const struct tsr_engine_source *s = e->source;
    struct tsr_engine_linear_dev   *d = &e->layers[i].lin[id];
    struct tsr_model_linear         l = e->model->layers[i].lin[id];
    struct tsr_engine_fetched       f = { .w = l.w };
    bool                            last = i + 1 == e->end && id + 1 == e->model->hp.linears;
    TSR_TRY(s->fetch(s->ctx, i, id, &f, err));
    tsr_pool_set_serial(!last);
    tsr_status st = TSR_OK;
    if (f.part) {
        st = tsr_engine_linear_load_cut(e, id, &l, &f, act, d, err);
    } else {
        l.w = f.w;
        st = tsr_engine_linear_load(e, i, id, &l, f.packed, NULL, act, d, err);
    }
    if (st == TSR_OK)
        st = tsr_engine_device_sync(e->dev, err);
    tsr_pool_set_serial(false);
    if (st != TSR_OK)
        return st;
    tsr_engine_linear_release(d);
    s->placed(s->ctx, i, id);
    return TSR_OK;
}

static bool same_order(const struct tsr_model_packed *a, const struct tsr_model_packed *b)
{
    return a && b && a->order && b->order && a->cols == b->cols &&
           memcmp(a->order, b->order, a->cols * sizeof *a->order) == 0;
}

/* Linears of a site whose columns have one order get one tensor of it, so that their input is put into that
 * order once. */
static void share_orders(struct tsr_engine *e, struct tsr_model_packed *const *p, uint64_t i)
{
    struct tsr_engine_linear_dev *lin = e->layers[i].lin;
    for (uint64_t k = 1; k < e->model->hp.linears; k++)
        for (uint64_t j = 0; j < k && lin[k].order.buffer && !lin[k].order_shared; j++) {
            if (!lin[j].order.buffer || lin[j].dev != lin[k].dev ||
                tsr_model_linear_site((enum tsr_linear_id)j) !=
                    tsr_model_linear_site((enum tsr_linear_id)k) ||
                !same_order(p[j], p[k]))
                continue;
            tsr_engine_device_drop_tensor(tsr_engine_linear_device(e, &lin[k]), &lin[k].order);
            lin[k].order = lin[j].order;
            lin[k].order_shared = true;
        }
}

tsr_status tsr_engine_load_layer(struct tsr_engine *e, const struct tsr_model_overlay *o,
                                 uint64_t i, uint32_t act, struct tsr_err *err)
{
    const struct tsr_model_layer *l = &e->model->layers[i];
    struct tsr_engine_layer_dev  *d = &e->layers[i];
    struct tsr_prepacked         *p = e->model->prepacked;
    o = o ? o : e->model->packed;
    if (!e->source)
        TSR_TRY(tsr_model_open_layer(e->model, i, err));
    d->open = !e->source;
    for (uint64_t k = 0; k < e->model->hp.linears; k++) {
        enum tsr_linear_id id = (enum tsr_linear_id)k;
        d->lin[k].dev = tsr_engine_experts_device(e, i, id);
        if (e->source)
            TSR_TRY(load_fetched(e, i, id, act, err));
        else
            TSR_TRY(tsr_engine_linear_load(e, i, id, &l->lin[k], o ? o->lin[i][k] : NULL,
                                           p ? &p->lin[i][k] : NULL, act, &d->lin[k], err));
    }
    if (o && !e->source)
        share_orders(e, o->lin[i], i);
    const struct tsr_model_norm *f = o && o->norm ? o->norm[i] : NULL;
    uint64_t                     hidden = e->model->hp.hidden;
    TSR_TRY(load_norm(e, &l->attn_in, f ? &f[TSR_MODEL_OVERLAY_ATTN_IN] : NULL, hidden, &d->attn_in,
                      err));
    TSR_TRY(load_norm(e, &l->attn_out, NULL, hidden, &d->attn_out, err));
    TSR_TRY(
        load_norm(e, &l->ffn_in, f ? &f[TSR_MODEL_OVERLAY_FFN_IN] : NULL, hidden, &d->ffn_in, err));
    TSR_TRY(load_norm(e, &l->ffn_out, NULL, hidden, &d->ffn_out, err));
    TSR_TRY(load_norm(e, &l->q_a_norm, f ? &f[TSR_MODEL_OVERLAY_Q_B_IN] : NULL,
                      e->model->hp.latent.q_rank, &d->q_a_norm, err));
    TSR_TRY(load_norm(e, &l->kv_a_norm, f ? &f[TSR_MODEL_OVERLAY_KV_B_IN] : NULL,
                      e->model->hp.latent.rank, &d->kv_a_norm, err));
    d->q_a_norm.eps = d->kv_a_norm.eps = e->model->hp.latent.eps;
    TSR_TRY(load_qk_norm(e, &l->q_norm, e->model->hp.heads, e->share.head, e->share.heads,
                         &d->q_norm, err));
    TSR_TRY(load_qk_norm(e, &l->k_norm, e->model->hp.kv_heads, e->share.kv_head, e->share.kv_heads,
                         &d->k_norm, err));
    TSR_TRY(load_sinks(e, l->sinks, &d->sinks, err));
    TSR_TRY(tsr_engine_online_set(e, i, o && o->online ? &o->online[i] : NULL, err));
    return release_layer(e, i, err);
}

static tsr_status check(const struct tsr_engine *e, const struct tsr_model_overlay *o,
                        struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    if (m->prepacked && o && o != m->packed)
        return tsr_model_plain(m, "replaced", err);
    const struct tsr_model_overlay *packed = o ? o : m->packed;
    if (!m->embed.data && !(m->prepacked && m->prepacked->embed.data) && !(packed && packed->embed))
        return tsr_fail(err, TSR_E_INVAL, "%s was loaded without its weights", m->path);
    if (o && o->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INVAL, "packed weights for %llu layers, the model has %llu",
                        (unsigned long long)o->layers, (unsigned long long)m->hp.layers);
    return TSR_OK;
}

tsr_status tsr_engine_load_embed(struct tsr_engine *e, const struct tsr_model_overlay *o,
                                 struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    o = o ? o : m->packed;
    TSR_TRY(check(e, o, err));
    struct tsr_prepacked *p = m->prepacked;
    if (o && o->embed && !p) /* rows are read out of the packed ones */
        TSR_TRY(tsr_engine_device_packed_rows(e->dev, m->embed.name, o->embed, &e->embed, err));
    else
        TSR_TRY(tsr_engine_linear_load_matrix(e, e->dev, &m->embed, p ? &p->embed : NULL, &e->embed,
                                              err));
    if (m->hp.positions == TSR_MODEL_POSITIONS_LEARNED)
        TSR_TRY(tsr_engine_linear_load_matrix(e, e->dev, &m->positions, p ? &p->positions : NULL,
                                              &e->positions, err));
    TSR_TRY(load_norm(e, &m->embed_norm, NULL, m->hp.hidden, &e->embed_norm, err));
    return tsr_engine_linear_load(e, 0, TSR_ENGINE_NO_LAYER, &m->project_in, NULL,
                                  p ? &p->project_in : NULL, TSR_ACT_F32, &e->project_in, err);
}

tsr_status tsr_engine_load_head(struct tsr_engine *e, const struct tsr_model_overlay *o,
                                uint32_t act, struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    o = o ? o : m->packed;
    TSR_TRY(check(e, o, err));
    TSR_TRY(load_norm(e, &m->final_norm, NULL, m->hp.hidden, &e->final_norm, err));
    struct tsr_prepacked *p = m->prepacked;
    TSR_TRY(tsr_engine_linear_load(e, 0, TSR_ENGINE_NO_LAYER, &m->project_out, NULL,
                                   p ? &p->project_out : NULL, act, &e->project_out, err));
    if (m->hp.tied && !(o && o->head) && e->embed) {
        e->head.w = e->embed; /* one copy serves both ends */
        e->head.act = TSR_ACT_F32;
        return TSR_OK;
    }
    if (o && o->head && o->head == o->embed && e->embed) { /* likewise */
        e->head.w = e->embed;
        e->head.act = tsr_engine_packed_act(e, o->head, act);
        e->ran[e->head.act]++;
        return TSR_OK;
    }
    return tsr_engine_linear_load(e, 0, TSR_ENGINE_NO_LAYER, &m->head, o ? o->head : NULL,
                                  p ? &p->head : NULL, act, &e->head, err);
}

tsr_status tsr_engine_load(struct tsr_engine *e, const struct tsr_model_overlay *o, uint32_t act,
                           struct tsr_err *err)
{
    TSR_TRY(check(e, o, err));
    if (e->model->prepacked)
        tsr_map_want(&e->model->prepacked->map, 0, e->model->prepacked->bytes);
    if (e->model->prepacked && (e->tp.ranks > 1 || e->split.ranks))
        return tsr_model_plain(e->model, "shared between ranks", err);
    if (e->has_embed)
        TSR_TRY(tsr_engine_load_embed(e, o, err));
    for (uint64_t i = e->first; i < e->end; i++) {
        if (e->on_layer)
            e->on_layer(e->layer_ctx, i, true);
        TSR_TRY(tsr_engine_load_layer(e, o, i, act, err));
    }
    return e->has_head ? tsr_engine_load_head(e, o, act, err) : TSR_OK;
}

static void drop_norm(struct tsr_engine *e, struct tsr_engine_norm_dev *n)
{
    tsr_engine_device_drop_tensor(e->dev, &n->gain);
    tsr_engine_device_drop_tensor(e->dev, &n->bias);
}

void tsr_engine_drop_embed(struct tsr_engine *e)
{
    tsr_engine_device_drop_weight(e->dev, e->embed);
    tsr_engine_device_drop_weight(e->dev, e->positions);
    if (e->head.w == e->embed)
        e->head.w = NULL;
    e->embed = e->positions = NULL;
    drop_norm(e, &e->embed_norm);
    tsr_engine_linear_drop(e, &e->project_in);
}

void tsr_engine_drop_layer(struct tsr_engine *e, uint64_t i)
{
    struct tsr_engine_layer_dev *d = &e->layers[i];
    for (uint64_t k = 0; k < e->model->hp.linears; k++)
        tsr_engine_linear_drop(e, &d->lin[k]);
    drop_norm(e, &d->attn_in);
    drop_norm(e, &d->attn_out);
    drop_norm(e, &d->ffn_in);
    drop_norm(e, &d->ffn_out);
    drop_norm(e, &d->q_a_norm);
    drop_norm(e, &d->kv_a_norm);
    drop_norm(e, &d->q_norm);
    drop_norm(e, &d->k_norm);
    tsr_engine_device_drop_tensor(e->dev, &d->sinks);
    if (d->open)
        tsr_model_close_layer(e->model, i);
    d->open = false;
}

void tsr_engine_drop_head(struct tsr_engine *e)
{
    drop_norm(e, &e->final_norm);
    tsr_engine_linear_drop(e, &e->project_out);
    if (e->head.w == e->embed)
        e->head.w = NULL;
    tsr_engine_linear_drop(e, &e->head);
}
