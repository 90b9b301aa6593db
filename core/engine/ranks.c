/* o and down where every rank of a group, real or simulated, has some of their columns: each rank's product
 * is a partial sum, and what ends the sub-layer is the sum over the ranks. */
#include "engine/split.h"

/* The number by which ranks know this sum: two for each layer. */
static uint32_t number_of(uint64_t layer, enum tsr_linear_id id)
{
    return (uint32_t)(2 * layer + (id == TSR_MODEL_DOWN));
}

/* The other ranks' parts are added on the device; *done false: they are not. */
static tsr_status sum_there(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                            const struct tsr_tensor *out, bool *done, struct tsr_err *err)
{
    const struct tsr_tensor *bias = &e->layers[layer].lin[id].behind;
    *done = false;
    if (!e->tp.sum_on)
        return TSR_OK;
    TSR_TRY(
        e->tp.sum_on(e->tp.ctx, number_of(layer, id), e->dev->iface, e->dev->self, out, done, err));
    for (uint64_t r = 0; *done && bias->buffer && r < out->rows; r++) {
        struct tsr_tensor row = tsr_engine_rows(out, r, 1);
        TSR_TRY(tsr_engine_run_add(e, &row, bias, &row, err));
    }
    return TSR_OK;
}

/* The same through host memory. */
static tsr_status sum_here(struct tsr_engine *e, struct tsr_engine_device *dev, uint64_t layer,
                           enum tsr_linear_id id, const struct tsr_tensor *out, struct tsr_err *err)
{
    const float *bias = e->model->layers[layer].lin[id].bias;
    TSR_TRY(tsr_engine_device_sync(dev, err));
    TSR_TRY(tsr_engine_device_download(dev, out, e->parts, err));
    TSR_TRY(e->tp.sum(e->tp.ctx, number_of(layer, id), e->parts, out->rows, out->cols, err));
    for (uint64_t r = 0; bias && r < out->rows; r++)
        for (uint64_t c = 0; c < out->cols; c++)
            e->parts[r * out->cols + c] += bias[c];
    return tsr_engine_device_upload(dev, out, e->parts, err);
}

tsr_status tsr_engine_sum_over_ranks(struct tsr_engine *e, struct tsr_engine_device *dev,
                                     uint64_t layer, enum tsr_linear_id id,
                                     const struct tsr_tensor *out, struct tsr_err *err)
{
    bool done = false;
    if (dev == e->dev)
        TSR_TRY(sum_there(e, layer, id, out, &done, err));
    return done ? TSR_OK : sum_here(e, dev, layer, id, out, err);
}

static tsr_status run_ranks(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                            const struct tsr_tensor *in, const struct tsr_tensor *out,
                            struct tsr_err *err)
{
    TSR_TRY(tsr_engine_run_linear(e, &e->layers[layer].lin[id], in, out, err));
    return tsr_engine_sum_over_ranks(e, e->dev, layer, id, out, err);
}

tsr_status tsr_engine_run_site_over_ranks(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                          const struct tsr_tensor        *in,
                                          const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    enum tsr_linear_id id = site == TSR_MODEL_SITE_O_IN ? TSR_MODEL_O : TSR_MODEL_DOWN;
    TSR_TRY(e->split.ranks ? tsr_engine_split_run(e, layer, id, in, outs[0], err)
                           : run_ranks(e, layer, id, in, outs[0], err));
    return e->hooks.outputs ? e->hooks.outputs(e, layer, site, in, outs, err) : TSR_OK;
}
