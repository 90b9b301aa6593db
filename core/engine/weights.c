/* The model and its overlay, onto the device. */
#include "engine/internal.h"

#include <string.h>

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

/* act: for a packed weight; a dense one is F32 by definition. */
static tsr_status load_linear(struct tsr_engine *e, const struct tsr_linear *l,
                              const struct tsr_packed *p, uint32_t act, struct tsr_linear_dev *out,
                              struct tsr_err *err)
{
    if (!l->w.data)
        return TSR_OK;
    out->act = TSR_ACT_F32;
    if (p) {
        if (p->rows != l->w.rows || p->cols != l->w.cols)
            return tsr_fail(err, TSR_E_INVAL, "%s: packed as %llux%llu, the model has %llux%llu",
                            l->w.name, (unsigned long long)p->rows, (unsigned long long)p->cols,
                            (unsigned long long)l->w.rows, (unsigned long long)l->w.cols);
        if (!p->dense && strcmp(p->format.id, TSR_FORMAT_INT) == 0)
            out->act = act;
        TSR_TRY(tsr_device_packed(e->dev, l->w.name, p, &out->w, err));
    } else {
        TSR_TRY(tsr_device_weight(e->dev, &l->w, &out->w, err));
    }
    if (l->bias)
        TSR_TRY(tsr_device_vector(e->dev, l->bias, l->w.rows, &out->bias, err));
    return TSR_OK;
}

static tsr_status load_layer(struct tsr_engine *e, const struct tsr_overlay *o, uint64_t i,
                             uint32_t act, struct tsr_err *err)
{
    const struct tsr_layer *l = &e->model->layers[i];
    struct tsr_layer_dev   *d = &e->layers[i];
    for (int k = 0; k < TSR_LINEARS; k++)
        TSR_TRY(load_linear(e, &l->lin[k], o ? o->lin[i][k] : NULL, act, &d->lin[k], err));
    const struct tsr_norm *f = o && o->norm ? o->norm[i] : NULL;
    TSR_TRY(load_norm(e, &l->attn_in, f ? &f[TSR_OVERLAY_ATTN_IN] : NULL, &d->attn_in, err));
    TSR_TRY(load_norm(e, &l->attn_out, NULL, &d->attn_out, err));
    TSR_TRY(load_norm(e, &l->ffn_in, f ? &f[TSR_OVERLAY_FFN_IN] : NULL, &d->ffn_in, err));
    return load_norm(e, &l->ffn_out, NULL, &d->ffn_out, err);
}

tsr_status tsr_engine_load(struct tsr_engine *e, const struct tsr_overlay *o, uint32_t act,
                           struct tsr_err *err)
{
    const struct tsr_model *m = e->model;
    if (!m->embed.data)
        return tsr_fail(err, TSR_E_INVAL, "%s was loaded without its weights", m->path);
    if (o && o->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INVAL, "packed weights for %llu layers, the model has %llu",
                        (unsigned long long)o->layers, (unsigned long long)m->hp.layers);
    TSR_TRY(tsr_device_weight(e->dev, &m->embed, &e->embed, err));
    if (m->hp.positions == TSR_POS_LEARNED)
        TSR_TRY(tsr_device_weight(e->dev, &m->positions, &e->positions, err));
    TSR_TRY(load_norm(e, &m->embed_norm, NULL, &e->embed_norm, err));
    TSR_TRY(load_norm(e, &m->final_norm, NULL, &e->final_norm, err));
    TSR_TRY(load_linear(e, &m->project_in, NULL, act, &e->project_in, err));
    TSR_TRY(load_linear(e, &m->project_out, NULL, act, &e->project_out, err));
    for (uint64_t i = 0; i < m->hp.layers; i++)
        TSR_TRY(load_layer(e, o, i, act, err));
    if (m->hp.tied && !(o && o->head)) {
        e->head.w = e->embed; /* one copy serves both ends */
        e->head.act = TSR_ACT_F32;
        return TSR_OK;
    }
    return load_linear(e, &m->head, o ? o->head : NULL, act, &e->head, err);
}
