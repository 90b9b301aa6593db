/* The model and its overlay, onto the device. */
#include "engine/internal.h"

#include "base/log.h"

/* folded: takes the place of n where it has a gain; may be NULL. */
static tsr_status load_norm(struct tsr_engine *e, const struct tsr_norm *n,
                            const struct tsr_norm *folded, struct tsr_norm_dev *out,
                            struct tsr_err *err)
{
    if (folded && folded->gain)
        n = folded;
    uint64_t width = e->model->hp.hidden;
    if (n->gain)
        TSR_TRY(tsr_device_vector(e->dev, n->gain, width, &out->gain, err));
    if (n->bias)
        TSR_TRY(tsr_device_vector(e->dev, n->bias, width, &out->bias, err));
    return TSR_OK;
}

/* How activations enter a packed weight when `act` is asked for.  A layout of the plugin's own is
 * there as F32; some of ours have no integers. */
static uint32_t packed_act(struct tsr_engine *e, const struct tsr_packed *p, uint32_t act)
{
    char     name[64];
    uint64_t bit = UINT64_C(1) << (p->format.element % 61);
    if (p->dense)
        return TSR_ACT_F32;
    if (act != TSR_ACT_A8 || tsr_format_a8(&p->format, p->cols))
        return act;
    if (!(e->said_act & bit)) {
        tsr_format_name(&p->format, name, sizeof name);
        tsr_logf(TSR_LOG_WARN, "%s has no int8 form%s: under act a8 it runs with F32 activations",
                 name,
                 p->format.act8 == TSR_ACT8_LLM ? " for rows of more than 65536 columns" : "");
        e->said_act |= bit;
    }
    return TSR_ACT_F32;
}

/* act: for a packed weight; a dense one is F32 by definition. */
static tsr_status load_linear(struct tsr_engine *e, const struct tsr_linear *l,
                              const struct tsr_packed *p, uint32_t act, struct tsr_linear_dev *out,
                              struct tsr_err *err)
{
    if (l->w.rows == 0)
        return TSR_OK;
    if (!p && !l->w.data)
        return tsr_fail(err, TSR_E_INVAL, "%s: its weights are not in memory", l->w.name);
    out->act = TSR_ACT_F32;
    if (p) {
        if (p->rows != l->w.rows || p->cols != l->w.cols)
            return tsr_fail(err, TSR_E_INVAL, "%s: packed as %llux%llu, the model has %llux%llu",
                            l->w.name, (unsigned long long)p->rows, (unsigned long long)p->cols,
                            (unsigned long long)l->w.rows, (unsigned long long)l->w.cols);
        out->act = packed_act(e, p, act);
        e->ran[out->act]++;
        TSR_TRY(tsr_device_packed(e->dev, l->w.name, p, &out->w, err));
    } else {
        TSR_TRY(tsr_device_weight(e->dev, &l->w, &out->w, err));
    }
    if (l->bias)
        TSR_TRY(tsr_device_vector(e->dev, l->bias, l->w.rows, &out->bias, err));
    return TSR_OK;
}

tsr_status tsr_engine_load_layer(struct tsr_engine *e, const struct tsr_overlay *o, uint64_t i,
                                 uint32_t act, struct tsr_err *err)
{
    const struct tsr_layer *l = &e->model->layers[i];
    struct tsr_layer_dev   *d = &e->layers[i];
    o = o ? o : e->model->packed;
    TSR_TRY(tsr_model_open_layer(e->model, i, err));
    d->open = true;
    for (int k = 0; k < TSR_LINEARS; k++)
        TSR_TRY(load_linear(e, &l->lin[k], o ? o->lin[i][k] : NULL, act, &d->lin[k], err));
    const struct tsr_norm *f = o && o->norm ? o->norm[i] : NULL;
    TSR_TRY(load_norm(e, &l->attn_in, f ? &f[TSR_OVERLAY_ATTN_IN] : NULL, &d->attn_in, err));
    TSR_TRY(load_norm(e, &l->attn_out, NULL, &d->attn_out, err));
    TSR_TRY(load_norm(e, &l->ffn_in, f ? &f[TSR_OVERLAY_FFN_IN] : NULL, &d->ffn_in, err));
    return load_norm(e, &l->ffn_out, NULL, &d->ffn_out, err);
}

static tsr_status check(const struct tsr_engine *e, const struct tsr_overlay *o,
                        struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    if (!m->embed.data)
        return tsr_fail(err, TSR_E_INVAL, "%s was loaded without its weights", m->path);
    if (o && o->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INVAL, "packed weights for %llu layers, the model has %llu",
                        (unsigned long long)o->layers, (unsigned long long)m->hp.layers);
    return TSR_OK;
}

tsr_status tsr_engine_load_embed(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    TSR_TRY(check(e, NULL, err));
    TSR_TRY(tsr_device_weight(e->dev, &m->embed, &e->embed, err));
    if (m->hp.positions == TSR_POS_LEARNED)
        TSR_TRY(tsr_device_weight(e->dev, &m->positions, &e->positions, err));
    TSR_TRY(load_norm(e, &m->embed_norm, NULL, &e->embed_norm, err));
    return load_linear(e, &m->project_in, NULL, TSR_ACT_F32, &e->project_in, err);
}

tsr_status tsr_engine_load_head(struct tsr_engine *e, const struct tsr_overlay *o, uint32_t act,
                                struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    o = o ? o : m->packed;
    TSR_TRY(check(e, o, err));
    TSR_TRY(load_norm(e, &m->final_norm, NULL, &e->final_norm, err));
    TSR_TRY(load_linear(e, &m->project_out, NULL, act, &e->project_out, err));
    if (m->hp.tied && !(o && o->head) && e->embed) {
        e->head.w = e->embed; /* one copy serves both ends */
        e->head.act = TSR_ACT_F32;
        return TSR_OK;
    }
    return load_linear(e, &m->head, o ? o->head : NULL, act, &e->head, err);
}

tsr_status tsr_engine_load(struct tsr_engine *e, const struct tsr_overlay *o, uint32_t act,
                           struct tsr_err *err)
{
    TSR_TRY(check(e, o, err));
    TSR_TRY(tsr_engine_load_embed(e, err));
    for (uint64_t i = 0; i < e->model->hp.layers; i++)
        TSR_TRY(tsr_engine_load_layer(e, o, i, act, err));
    return tsr_engine_load_head(e, o, act, err);
}

static void drop_norm(struct tsr_engine *e, struct tsr_norm_dev *n)
{
    tsr_device_drop_tensor(e->dev, &n->gain);
    tsr_device_drop_tensor(e->dev, &n->bias);
}

static void drop_linear(struct tsr_engine *e, struct tsr_linear_dev *l)
{
    tsr_device_drop_weight(e->dev, l->w);
    tsr_device_drop_tensor(e->dev, &l->bias);
    *l = (struct tsr_linear_dev){ 0 };
}

void tsr_engine_drop_embed(struct tsr_engine *e)
{
    tsr_device_drop_weight(e->dev, e->embed);
    tsr_device_drop_weight(e->dev, e->positions);
    if (e->head.w == e->embed)
        e->head.w = NULL;
    e->embed = e->positions = NULL;
    drop_norm(e, &e->embed_norm);
    drop_linear(e, &e->project_in);
}

void tsr_engine_drop_layer(struct tsr_engine *e, uint64_t i)
{
    struct tsr_layer_dev *d = &e->layers[i];
    for (int k = 0; k < TSR_LINEARS; k++)
        drop_linear(e, &d->lin[k]);
    drop_norm(e, &d->attn_in);
    drop_norm(e, &d->attn_out);
    drop_norm(e, &d->ffn_in);
    drop_norm(e, &d->ffn_out);
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
