/* One linear, whole or a rank's part of it, onto the device that runs it. */
#include "engine/split.h"
#include "engine/weights.h"

#include "base/log.h"

uint32_t tsr_engine_packed_act(struct tsr_engine *e, const struct tsr_model_packed *p, uint32_t act)
{
    char name[64];
    if (p->dense || p->own.unit || !tsr_model_format_known(&p->format))
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
    struct tsr_engine_device *dev = tsr_engine_linear_device(e, out);
    struct tsr_tensor        *ordered = tsr_engine_ordered(e, out);
    if (!ordered->buffer)
        TSR_TRY(tsr_engine_device_tensor(dev, TSR_F32, e->chunk, widest, 0, "activations", ordered,
                                         err));
    TSR_TRY(tsr_engine_device_tensor(dev, TSR_U32, 1, p->cols, 0, "an order of columns",
                                     &out->order, err));
    return tsr_engine_device_upload(dev, &out->order, p->order, err);
}

tsr_status tsr_engine_linear_load_matrix(struct tsr_engine *e, struct tsr_engine_device *dev,
                                         const struct tsr_matrix                  *w,
                                         const struct tsr_prepacked_mapped_weight *m,
                                         struct tsr_engine_weight **out, struct tsr_err *err)
{
    return m ? tsr_engine_device_mapped(dev, w->name, e->model->prepacked, m, out, err)
             : tsr_engine_device_weight(dev, w, out, err);
}

static tsr_status load_bias(struct tsr_engine *e, const float *bias, uint64_t n,
                            struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    return bias ? tsr_engine_device_vector(tsr_engine_linear_device(e, out), bias, n, &out->bias,
                                           err)
                : TSR_OK;
}

/* A part's bias; that of o and down is added after the sum over ranks. */
static tsr_status load_part_bias(struct tsr_engine *e, enum tsr_linear_id id,
                                 const struct tsr_model_linear *l, const struct tsr_model_slice *s,
                                 struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    enum tsr_linear_id kind = tsr_model_linear_kind(id);
    bool               own = id >= TSR_MODEL_EXPERTS && e->share.whole_experts;
    if (id != TSR_MODEL_DOWN &&
        kind == TSR_MODEL_DOWN) /* of an expert, inside of a weighed sum: one rank adds it */
        return own || e->tp.rank == 0 ? load_bias(e, l->bias, l->w.rows, out, err) : TSR_OK;
    if (kind == TSR_MODEL_O || kind == TSR_MODEL_DOWN)
        return l->bias && e->tp.sum_on
                   ? tsr_engine_device_vector(tsr_engine_linear_device(e, out), l->bias, l->w.rows,
                                              &out->behind, err)
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
    if (s.rows == 0) /* another rank's expert */
        return TSR_OK;
    if (p) {
        TSR_TRY(tsr_model_packed_slice(p, &s, &out->part, err));
        out->act = tsr_engine_packed_act(e, p, act);
        e->ran[out->act]++;
        if (p->ordered)
            TSR_TRY(load_order(e, p, out, err));
        TSR_TRY(tsr_engine_device_packed(tsr_engine_linear_device(e, out), l->w.name, out->part,
                                         &out->w, err));
    } else {
        struct tsr_matrix part = tsr_model_matrix_slice(&l->w, &s);
        TSR_TRY(tsr_engine_device_part(tsr_engine_linear_device(e, out), &part, s.segment, &out->w,
                                       err));
    }
    return load_part_bias(e, id, l, &s, out, err);
}

tsr_status tsr_engine_linear_load_cut(struct tsr_engine *e, enum tsr_linear_id id,
                                      const struct tsr_model_linear   *l,
                                      const struct tsr_engine_fetched *f, uint32_t act,
                                      struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    const struct tsr_model_packed *p = f->packed;
    const struct tsr_model_slice  *s = f->part;
    uint64_t                       rows = p ? p->rows : f->w.rows, cols = p ? p->cols : f->w.cols;
    if (s->rows == 0) /* another rank's expert */
        return TSR_OK;
    if (rows != s->rows || cols != s->cols || (!p && !f->w.data) || (p && p->ordered))
        return tsr_fail(err, TSR_E_BUG, "%s: a part of %llux%llu, %llux%llu was cut out", l->w.name,
                        (unsigned long long)rows, (unsigned long long)cols,
                        (unsigned long long)s->rows, (unsigned long long)s->cols);
    if (p) {
        out->act = tsr_engine_packed_act(e, p, act);
        e->ran[out->act]++;
        TSR_TRY(
            tsr_engine_device_packed(tsr_engine_linear_device(e, out), l->w.name, p, &out->w, err));
    } else {
        out->act = TSR_ACT_F32;
        TSR_TRY(tsr_engine_device_part(tsr_engine_linear_device(e, out), &f->w, s->segment, &out->w,
                                       err));
    }
    return load_part_bias(e, id, l, s, out, err);
}

tsr_status tsr_engine_linear_load(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                                  const struct tsr_model_linear            *l,
                                  const struct tsr_model_packed            *p,
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
    if (e->tp.ranks > 1 && id != TSR_ENGINE_NO_LAYER)
        return load_part(e, layer, id, l, p, act, out, err);
    if (p) {
        out->act = tsr_engine_packed_act(e, p, act);
        e->ran[out->act]++;
        if (p->ordered)
            TSR_TRY(load_order(e, p, out, err));
    }
    if (e->split.ranks && id != TSR_ENGINE_NO_LAYER && tsr_engine_is_row_parallel(id)) {
        TSR_TRY(tsr_engine_split_load(e, l, p, out, err));
        return id == TSR_MODEL_O || id == TSR_MODEL_DOWN
                   ? TSR_OK /* the bias follows the sum */
                   : load_bias(e, l->bias, l->w.rows, out, err);
    }
    if (p && !m)
        TSR_TRY(
            tsr_engine_device_packed(tsr_engine_linear_device(e, out), l->w.name, p, &out->w, err));
    else
        TSR_TRY(tsr_engine_linear_load_matrix(e, tsr_engine_linear_device(e, out), &l->w, m,
                                              &out->w, err));
    return load_bias(e, l->bias, l->w.rows, out, err);
}

void tsr_engine_linear_release(struct tsr_engine_linear_dev *l)
{
    if (l->w && !l->w->mapped)
        l->w->desc.codes = l->w->desc.meta = NULL;
    tsr_model_packed_destroy(l->part);
    l->part = NULL;
}

void tsr_engine_linear_drop(struct tsr_engine *e, struct tsr_engine_linear_dev *l)
{
    struct tsr_engine_device *dev = tsr_engine_linear_device(e, l);
    tsr_engine_device_drop_weight(dev, l->w);
    tsr_engine_device_drop_tensor(dev, &l->bias);
    tsr_engine_device_drop_tensor(dev, &l->behind);
    if (!l->order_shared)
        tsr_engine_device_drop_tensor(dev, &l->order);
    tsr_model_packed_destroy(l->part);
    tsr_engine_split_drop(dev, l->split);
    *l = (struct tsr_engine_linear_dev){ 0 };
}
