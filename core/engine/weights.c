/* The model and its overlay, onto the device. */
#include "engine/split.h"

#include "base/log.h"
#include "base/pool.h"
#include "checkpoint/prepacked/prepacked.h"

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

/* The norm of some heads; one gain serves all heads, or each has its own. */
static tsr_status load_qk_norm(struct tsr_engine *e, const struct tsr_model_norm *n, uint32_t head,
                               uint32_t heads, struct tsr_engine_norm_dev *out, struct tsr_err *err)
{
    uint64_t              dim = e->model->hp.head_dim;
    bool                  shared = e->model->hp.qk_norm == TSR_MODEL_QK_NORM_HEAD;
    struct tsr_model_norm own = *n;
    if (!n->gain)
        return TSR_OK;
    if (!shared)
        own.gain += head * dim;
    return load_norm(e, &own, NULL, shared ? dim : heads * dim, out, err);
}

/* The activation type of a packed weight if `act` is requested.  A plugin's own layout is stored as
 * F32. */
static uint32_t packed_act(struct tsr_engine *e, const struct tsr_model_packed *p, uint32_t act)
{
    char name[64];
    if (p->dense || !tsr_model_format_known(&p->format))
        return TSR_ACT_F32;
    if (act != TSR_ACT_A8 || tsr_model_format_a8(&p->format, p->cols))
        return act;
    if (!e->said_act) {
        tsr_model_format_name(&p->format, name, sizeof name);
        tsr_logf(TSR_LOG_WARN, "%s has no int8 form%s: under act a8 it runs with F32 activations",
                 name,
                 p->format.act8 == TSR_ACT8_LLM ? " for rows of more than 65536 columns" : "");
        e->said_act = true;
    }
    return TSR_ACT_F32;
}

/* The order of a weight's columns, and a place for inputs in that order. */
static tsr_status load_order(struct tsr_engine *e, const struct tsr_model_packed *p,
                             struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    uint64_t                        widest = (uint64_t)hp->heads * hp->head_dim,
             values = (uint64_t)hp->delta.value_heads * hp->delta.value_dim,
             more[] = { hp->hidden, hp->ffn, hp->expert_ffn, hp->shared_ffn, values, p->cols };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        widest = more[i] > widest ? more[i] : widest;
    if (!p->order)
        return tsr_fail(err, TSR_E_INVAL, "the order of packed columns is not in memory");
    if (!e->ordered.buffer)
        TSR_TRY(tsr_engine_device_tensor(e->dev, TSR_F32, e->chunk, widest, 0, "activations",
                                         &e->ordered, err));
    TSR_TRY(tsr_engine_device_tensor(e->dev, TSR_U32, 1, p->cols, 0, "an order of columns",
                                     &out->order, err));
    return tsr_engine_device_upload(e->dev, &out->order, p->order, err);
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

/* From the prepacked file if m has a place in one, else from the model's memory. */
static tsr_status load_matrix(struct tsr_engine *e, const struct tsr_matrix *w,
                              const struct tsr_prepacked_mapped_weight *m,
                              struct tsr_engine_weight **out, struct tsr_err *err)
{
    return m ? tsr_engine_device_mapped(e->dev, w->name, e->model->prepacked, m, out, err)
             : tsr_engine_device_weight(e->dev, w, out, err);
}

static tsr_status load_bias(struct tsr_engine *e, const float *bias, uint64_t n,
                            struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    return bias ? tsr_engine_device_vector(e->dev, bias, n, &out->bias, err) : TSR_OK;
}

/* A part's bias; that of o and down is added after the sum over ranks. */
static tsr_status load_part_bias(struct tsr_engine *e, enum tsr_linear_id id,
                                 const struct tsr_model_linear *l, const struct tsr_model_slice *s,
                                 struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    enum tsr_linear_id kind = tsr_model_linear_kind(id);
    if (id != TSR_MODEL_DOWN &&
        kind == TSR_MODEL_DOWN) /* of an expert, inside of a weighed sum: one rank adds it */
        return e->tp.rank == 0 ? load_bias(e, l->bias, l->w.rows, out, err) : TSR_OK;
    if (kind == TSR_MODEL_O || kind == TSR_MODEL_DOWN)
        return l->bias && e->tp.sum_on
                   ? tsr_engine_device_vector(e->dev, l->bias, l->w.rows, &out->behind, err)
                   : TSR_OK;
    return load_bias(e, l->bias ? l->bias + s->row : NULL, s->rows, out, err);
}

/* This rank's part of a linear of a layer. */
static tsr_status load_part(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                            const struct tsr_model_linear *l, const struct tsr_model_packed *p,
                            uint32_t act, struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    struct tsr_model_slice s;
    TSR_TRY(tsr_engine_share_linear(&e->share, &e->model->hp, layer, id, &l->w, p, &s, err));
    if (p) {
        TSR_TRY(tsr_model_packed_slice(p, &s, &out->part, err));
        out->act = packed_act(e, p, act);
        e->ran[out->act]++;
        if (p->ordered)
            TSR_TRY(load_order(e, p, out, err));
        TSR_TRY(tsr_engine_device_packed(e->dev, l->w.name, out->part, &out->w, err));
    } else {
        struct tsr_matrix part = tsr_model_matrix_slice(&l->w, &s);
        TSR_TRY(tsr_engine_device_part(e->dev, &part, s.segment, &out->w, err));
    }
    return load_part_bias(e, id, l, &s, out, err);
}

/* The same of a part that a source has cut out. */
static tsr_status load_cut(struct tsr_engine *e, enum tsr_linear_id id,
                           const struct tsr_model_linear *l, const struct tsr_engine_fetched *f,
                           uint32_t act, struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    const struct tsr_model_packed *p = f->packed;
    const struct tsr_model_slice  *s = f->part;
    uint64_t                       rows = p ? p->rows : f->w.rows, cols = p ? p->cols : f->w.cols;
    if (rows != s->rows || cols != s->cols || (!p && !f->w.data) || (p && p->ordered))
        return tsr_fail(err, TSR_E_BUG, "%s: a part of %llux%llu, %llux%llu was cut out", l->w.name,
                        (unsigned long long)rows, (unsigned long long)cols,
                        (unsigned long long)s->rows, (unsigned long long)s->cols);
    if (p) {
        out->act = packed_act(e, p, act);
        e->ran[out->act]++;
        TSR_TRY(tsr_engine_device_packed(e->dev, l->w.name, p, &out->w, err));
    } else {
        out->act = TSR_ACT_F32;
        TSR_TRY(tsr_engine_device_part(e->dev, &f->w, s->segment, &out->w, err));
    }
    return load_part_bias(e, id, l, s, out, err);
}

#define NO_LAYER                                                                                   \
    ((enum tsr_linear_id)UINT32_MAX) /* a weight outside the layers, which is never split */

/* act: for a packed weight; a dense one is F32 by definition.  m: its place in a prepacked file, or NULL. */
static tsr_status load_linear(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                              const struct tsr_model_linear *l, const struct tsr_model_packed *p,
                              const struct tsr_prepacked_mapped_weight *m, uint32_t act,
                              struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    if (l->w.rows == 0)
        return TSR_OK;
    if (!p && !m && !l->w.data)
        return tsr_fail(err, TSR_E_INVAL, "%s: its weights are not in memory", l->w.name);
    out->act = TSR_ACT_F32;
    if (p) {
        if (p->rows != l->w.rows || p->cols != l->w.cols)
            return tsr_fail(err, TSR_E_INVAL, "%s: packed as %llux%llu, the model has %llux%llu",
                            l->w.name, (unsigned long long)p->rows, (unsigned long long)p->cols,
                            (unsigned long long)l->w.rows, (unsigned long long)l->w.cols);
    }
    if (e->tp.ranks > 1 && id != NO_LAYER)
        return load_part(e, layer, id, l, p, act, out, err);
    if (p) {
        out->act = packed_act(e, p, act);
        e->ran[out->act]++;
        if (p->ordered)
            TSR_TRY(load_order(e, p, out, err));
    }
    if (e->split.ranks && id >= TSR_MODEL_EXPERTS && id != NO_LAYER)
        return tsr_fail(err, TSR_E_CONFIG, "%s: ranks are not simulated for experts", l->w.name);
    if (e->split.ranks && (id == TSR_MODEL_O || id == TSR_MODEL_DOWN))
        return tsr_engine_split_load(e, l, p, out, err);
    if (p && !m)
        TSR_TRY(tsr_engine_device_packed(e->dev, l->w.name, p, &out->w, err));
    else
        TSR_TRY(load_matrix(e, &l->w, m, &out->w, err));
    return load_bias(e, l->bias, l->w.rows, out, err);
}

/* The device has it: the host's copy is no longer read. */
static void release_linear(struct tsr_engine_linear_dev *l)
{
    if (l->w && !l->w->mapped)
        l->w->desc.codes = l->w->desc.meta = NULL;
    tsr_model_packed_destroy(l->part);
    l->part = NULL;
}

/* The device has the layer: host memory of what was streamed can go. */
static tsr_status release_layer(struct tsr_engine *e, uint64_t i, struct tsr_err *err)
{
    struct tsr_engine_layer_dev *d = &e->layers[i];
    if (!e->release)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    for (uint64_t k = 0; k < e->model->hp.linears; k++)
        release_linear(&d->lin[k]);
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
        st = load_cut(e, id, &l, &f, act, d, err);
    } else {
        l.w = f.w;
        st = load_linear(e, i, id, &l, f.packed, NULL, act, d, err);
    }
    if (st == TSR_OK)
        st = tsr_engine_device_sync(e->dev, err);
    tsr_pool_set_serial(false);
    if (st != TSR_OK)
        return st;
    release_linear(d);
    s->placed(s->ctx, i, id);
    return TSR_OK;
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
        if (e->source)
            TSR_TRY(load_fetched(e, i, id, act, err));
        else
            TSR_TRY(load_linear(e, i, id, &l->lin[k], o ? o->lin[i][k] : NULL,
                                p ? &p->lin[i][k] : NULL, act, &d->lin[k], err));
    }
    const struct tsr_model_norm *f = o && o->norm ? o->norm[i] : NULL;
    uint64_t                     hidden = e->model->hp.hidden;
    TSR_TRY(load_norm(e, &l->attn_in, f ? &f[TSR_MODEL_OVERLAY_ATTN_IN] : NULL, hidden, &d->attn_in,
                      err));
    TSR_TRY(load_norm(e, &l->attn_out, NULL, hidden, &d->attn_out, err));
    TSR_TRY(
        load_norm(e, &l->ffn_in, f ? &f[TSR_MODEL_OVERLAY_FFN_IN] : NULL, hidden, &d->ffn_in, err));
    TSR_TRY(load_norm(e, &l->ffn_out, NULL, hidden, &d->ffn_out, err));
    TSR_TRY(load_norm(e, &l->q_a_norm, NULL, e->model->hp.latent.q_rank, &d->q_a_norm, err));
    TSR_TRY(load_norm(e, &l->kv_a_norm, NULL, e->model->hp.latent.rank, &d->kv_a_norm, err));
    d->q_a_norm.eps = d->kv_a_norm.eps = e->model->hp.latent.eps;
    TSR_TRY(load_qk_norm(e, &l->q_norm, e->share.head, e->share.heads, &d->q_norm, err));
    TSR_TRY(load_qk_norm(e, &l->k_norm, e->share.kv_head, e->share.kv_heads, &d->k_norm, err));
    TSR_TRY(load_sinks(e, l->sinks, &d->sinks, err));
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
        TSR_TRY(tsr_engine_device_packed(e->dev, m->embed.name, o->embed, &e->embed, err));
    else
        TSR_TRY(load_matrix(e, &m->embed, p ? &p->embed : NULL, &e->embed, err));
    if (m->hp.positions == TSR_MODEL_POSITIONS_LEARNED)
        TSR_TRY(load_matrix(e, &m->positions, p ? &p->positions : NULL, &e->positions, err));
    TSR_TRY(load_norm(e, &m->embed_norm, NULL, m->hp.hidden, &e->embed_norm, err));
    return load_linear(e, 0, NO_LAYER, &m->project_in, NULL, p ? &p->project_in : NULL, TSR_ACT_F32,
                       &e->project_in, err);
}

tsr_status tsr_engine_load_head(struct tsr_engine *e, const struct tsr_model_overlay *o,
                                uint32_t act, struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    o = o ? o : m->packed;
    TSR_TRY(check(e, o, err));
    TSR_TRY(load_norm(e, &m->final_norm, NULL, m->hp.hidden, &e->final_norm, err));
    struct tsr_prepacked *p = m->prepacked;
    TSR_TRY(load_linear(e, 0, NO_LAYER, &m->project_out, NULL, p ? &p->project_out : NULL, act,
                        &e->project_out, err));
    if (m->hp.tied && !(o && o->head) && e->embed) {
        e->head.w = e->embed; /* one copy serves both ends */
        e->head.act = TSR_ACT_F32;
        return TSR_OK;
    }
    return load_linear(e, 0, NO_LAYER, &m->head, o ? o->head : NULL, p ? &p->head : NULL, act,
                       &e->head, err);
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

static void drop_linear(struct tsr_engine *e, struct tsr_engine_linear_dev *l)
{
    tsr_engine_device_drop_weight(e->dev, l->w);
    tsr_engine_device_drop_tensor(e->dev, &l->bias);
    tsr_engine_device_drop_tensor(e->dev, &l->behind);
    tsr_engine_device_drop_tensor(e->dev, &l->order);
    tsr_model_packed_destroy(l->part);
    tsr_engine_split_drop(e, l->split, true);
    *l = (struct tsr_engine_linear_dev){ 0 };
}

void tsr_engine_drop_embed(struct tsr_engine *e)
{
    tsr_engine_device_drop_weight(e->dev, e->embed);
    tsr_engine_device_drop_weight(e->dev, e->positions);
    if (e->head.w == e->embed)
        e->head.w = NULL;
    e->embed = e->positions = NULL;
    drop_norm(e, &e->embed_norm);
    drop_linear(e, &e->project_in);
}

void tsr_engine_drop_layer(struct tsr_engine *e, uint64_t i)
{
    struct tsr_engine_layer_dev *d = &e->layers[i];
    for (uint64_t k = 0; k < e->model->hp.linears; k++)
        drop_linear(e, &d->lin[k]);
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
    drop_linear(e, &e->project_out);
    if (e->head.w == e->embed)
        e->head.w = NULL;
    drop_linear(e, &e->head);
}
