/* Row-parallel linears in parts, for ranks that are simulated. */
#include "engine/split.h"

#include "base/mem.h"

#include <stdlib.h>

tsr_status tsr_engine_split_load(struct tsr_engine *e, const struct tsr_model_linear *l,
                                 const struct tsr_model_packed *p,
                                 struct tsr_engine_linear_dev *out, struct tsr_err *err)
{
    struct tsr_engine_device    *dev = tsr_engine_linear_device(e, out);
    struct tsr_model_cut         cut = tsr_model_cut_of(&l->w, p);
    struct tsr_engine_split_dev *s = out->split = tsr_new(1, sizeof *s);
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, "parts of a linear");
    for (uint32_t r = 0; r < e->split.ranks; r++) {
        struct tsr_engine_split_part *q = &s->part[s->n++];
        TSR_TRY(tsr_model_slice_share(&cut, r, e->split.ranks, &q->s, err));
        if (p) {
            TSR_TRY(tsr_model_packed_slice(p, &q->s, &q->packed, err));
            TSR_TRY(tsr_engine_device_packed(dev, l->w.name, q->packed, &q->w, err));
        } else {
            struct tsr_matrix m = tsr_model_matrix_slice(&l->w, &q->s);
            TSR_TRY(tsr_engine_device_part(dev, &m, q->s.segment, &q->w, err));
        }
    }
    return TSR_OK;
}

tsr_status tsr_engine_split_part(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                 uint32_t rank, const struct tsr_tensor *in,
                                 const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_engine_split_part *q = &l->split->part[rank];
    struct tsr_tensor                   x = *in;
    x.offset += q->s.col * sizeof(float);
    x.cols = q->s.cols;
    struct tsr_op op = { .kind = TSR_OP_LINEAR,
                         .out = out,
                         .in = { &x, rank == 0 && l->bias.buffer ? &l->bias : NULL },
                         .act = l->act };
    return tsr_engine_device_run(tsr_engine_linear_device(e, l), &op, q->w, err);
}

tsr_status tsr_engine_split_keep(struct tsr_engine *e, struct tsr_engine_device *dev, uint32_t rank,
                                 const struct tsr_tensor *out, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_sync(dev, err));
    return tsr_engine_device_download(dev, out, e->split_rows + rank * out->rows * out->cols, err);
}

tsr_status tsr_engine_split_sum(struct tsr_engine *e, struct tsr_engine_device *dev, uint64_t layer,
                                enum tsr_linear_id id, const struct tsr_tensor *out,
                                struct tsr_err *err)
{
    const float *bias = e->model->layers[layer].lin[id].bias;
    const float *partial[TSR_ENGINE_SPLIT_MAX];
    uint64_t     n = out->rows * out->cols;
    float       *sum = e->split_rows + e->split.ranks * n;
    for (uint32_t r = 0; r < e->split.ranks; r++)
        partial[r] = e->split_rows + r * n;
    TSR_TRY(e->split.sum(e->split.ctx, (uint32_t)(2 * layer + (id == TSR_MODEL_DOWN)), partial,
                         out->rows, out->cols, sum, err));
    for (uint64_t i = 0; bias && i < n; i++)
        sum[i] += bias[i % out->cols];
    return tsr_engine_device_upload(dev, out, sum, err);
}

tsr_status tsr_engine_split_run(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                                const struct tsr_tensor *in, const struct tsr_tensor *out,
                                struct tsr_err *err)
{
    for (uint32_t r = 0; r < e->split.ranks; r++) {
        TSR_TRY(tsr_engine_split_part(e, &e->layers[layer].lin[id], r, in, out, err));
        TSR_TRY(tsr_engine_split_keep(e, e->dev, r, out, err));
    }
    return tsr_engine_split_sum(e, e->dev, layer, id, out, err);
}

void tsr_engine_split_drop(struct tsr_engine_device *dev, struct tsr_engine_split_dev *s)
{
    for (uint32_t r = 0; s && r < s->n; r++) {
        if (dev)
            tsr_engine_device_drop_weight(dev, s->part[r].w);
        tsr_model_packed_destroy(s->part[r].packed);
    }
    free(s);
}
