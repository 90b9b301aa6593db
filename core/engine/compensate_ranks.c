/* Compensation of a site; on one of several ranks that of o, or of a down whose input the ranks share. */
#include "engine/compensator.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The whole input of o or down: every rank's columns, from `at` on, to c->x and to the device. */
static tsr_status gather_input(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                               uint32_t number, const struct tsr_tensor *in, uint64_t at,
                               struct tsr_tensor *x, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    float                         *own = tsr_new_aligned(c->now.n, in->cols * sizeof *own);
    if (!own)
        return tsr_fail_nomem(err, c->now.n * in->cols * sizeof *own, "a part of an input");
    tsr_status st = tsr_engine_comp_down(e, in, own, err);
    if (st == TSR_OK) {
        memset(c->x, 0, c->now.n * s->channels * sizeof *c->x);
        for (uint64_t i = 0; i < c->now.n; i++)
            memcpy(c->x + i * s->channels + at, own + i * in->cols, in->cols * sizeof *own);
        st = e->tp.sum(e->tp.ctx, number, c->x, c->now.n, s->channels, err);
    }
    free(own);
    TSR_TRY(st);
    *x = tsr_engine_rows(&c->here->whole, 0, c->now.n);
    x->cols = s->channels;
    x->row_stride = s->channels * sizeof(float);
    return tsr_engine_device_upload(c->here->dev, x, c->x, err);
}

/* What is added to this rank's outputs, into a part of `sum` of the device; e->parts becomes +0. */
static tsr_status sum_part(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                           const struct tsr_tensor *x, uint64_t cols, struct tsr_tensor *sum,
                           struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    const struct tsr_tensor       *sums = sum;
    memset(e->parts, 0, c->now.n * cols * sizeof *e->parts);
    *sum = tsr_engine_narrow(&c->here->sum, c->now.n, s->part);
    if (!s->n)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_upload(c->here->dev, sum, e->parts, err));
    return tsr_engine_comp_add(c, s, x, NULL, &sums, err);
}

/* The same, to their place in e->parts; the others' stay +0. */
static tsr_status add_part(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                           const struct tsr_tensor *x, uint64_t cols, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              sum;
    TSR_TRY(sum_part(e, s, x, cols, &sum, err));
    if (!s->n)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_sync(c->here->dev, err));
    for (uint64_t i = 0; i < c->now.n; i++) {
        struct tsr_tensor row = tsr_engine_rows(&sum, i, 1);
        TSR_TRY(tsr_engine_device_download(c->here->dev, &row, e->parts + i * cols + s->at, err));
    }
    return TSR_OK;
}

static tsr_status select_whole(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                               uint32_t number, const struct tsr_tensor *in, uint64_t at,
                               struct tsr_tensor *x, struct tsr_err *err)
{
    const struct tsr_engine_comp_place *here = e->comp->here;
    if (here->dev != here->data)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s does not compensate, and ranks cannot stage it elsewhere",
                        here->data->text);
    TSR_TRY(gather_input(e, s, number, in, at, x, err));
    return tsr_engine_comp_select(e, s, x, NULL, err);
}

/* y += z, on the device that has both. */
static tsr_status add_rows(struct tsr_engine_device *dev, const struct tsr_tensor *y,
                           const struct tsr_tensor *z, struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_ADD, .out = y, .in = { y, z } };
    return tsr_engine_device_run(dev, &op, NULL, err);
}

/* One of several ranks, after the down of an expert, whose sum over the ranks is that of the layer: this rank's part
 * of the outputs gets all of what is added. */
static tsr_status run_expert(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                             uint32_t number, const struct tsr_tensor *in, uint64_t at,
                             const struct tsr_tensor *out, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              x, sum;
    TSR_TRY(select_whole(e, s, number, in, at, &x, err));
    TSR_TRY(sum_part(e, s, &x, out->cols, &sum, err));
    for (uint64_t i = 0; s->n && i < c->now.n; i++) {
        struct tsr_tensor y = tsr_engine_rows(out, c->now.at[i], 1);
        struct tsr_tensor z = tsr_engine_rows(&sum, i, 1);
        y.offset += s->at * sizeof(float);
        y.cols = s->part;
        TSR_TRY(add_rows(c->here->dev, &y, &z, err));
    }
    return TSR_OK;
}

/* One of several ranks, after o or down, whose whole output each rank has: every rank selects over the whole
 * input and adds its part of the outputs, so that the sums are those of one engine for any number of ranks. */
static tsr_status run_split(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                            uint32_t number, const struct tsr_tensor *in, uint64_t at,
                            const struct tsr_tensor *out, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              x, sum = tsr_engine_rows(&c->here->sum, 0, c->now.n);
    TSR_TRY(select_whole(e, s, number, in, at, &x, err));
    TSR_TRY(add_part(e, s, &x, out->cols, err));
    TSR_TRY(e->tp.sum(e->tp.ctx, number, e->parts, c->now.n, out->cols, err));
    TSR_TRY(tsr_engine_device_upload(c->here->dev, &sum, e->parts, err));
    for (uint64_t i = 0; i < c->now.n; i++) {
        struct tsr_tensor y = tsr_engine_rows(out, c->now.at[i], 1),
                          z = tsr_engine_rows(&sum, i, 1);
        TSR_TRY(add_rows(c->here->dev, &y, &z, err));
    }
    return TSR_OK;
}

static tsr_status run_ranks(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                            const struct tsr_tensor *in, const struct tsr_tensor *out,
                            struct tsr_err *err)
{
    const struct tsr_engine_comp_site *s = &e->comp->site[layer][site];
    const struct tsr_model_hparams    *hp = &e->model->hp;
    uint32_t                           number = (uint32_t)(2 * layer);
    if (site == TSR_MODEL_SITE_O_IN)
        return run_split(e, s, number, in,
                         tsr_model_is_recurrent(hp, layer)
                             ? e->share.value_head * (uint64_t)hp->delta.value_dim
                             : e->share.head * (tsr_model_o_cols(hp) / hp->heads),
                         out, err);
    if (site == TSR_MODEL_SITE_DOWN_IN)
        return run_split(e, s, number + 1, in, e->share.ffn_at, out, err);
    if (site != TSR_MODEL_SITE_SHARED_DOWN_IN)
        return run_expert(e, s, number + 1, in, e->share.expert_at, out, err);
    return e->share.whole_experts ? run_split(e, s, number + 1, in, e->share.shared_at, out, err)
                                  : run_expert(e, s, number + 1, in, e->share.shared_at, out, err);
}

tsr_status tsr_engine_compensate_site(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                      const struct tsr_tensor        *in,
                                      const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    struct tsr_engine_compensator     *c = e->comp;
    const struct tsr_engine_comp_site *s = c && c->site ? &c->site[layer][site] : NULL;
    bool                               shared =
        e->tp.ranks > 1 && !tsr_engine_comp_is_whole(e, site) &&
        (site == TSR_MODEL_SITE_O_IN || tsr_model_site_kind(site) == TSR_MODEL_SITE_DOWN_IN);
    if (!s || !s->there || s->count == 0 || c->now.n == 0)
        return TSR_OK;
    c->here = tsr_engine_comp_place(e, layer, site);
    tsr_status st = shared ? run_ranks(e, layer, site, in, outs[0], err)
                           : tsr_engine_comp_run(e, s, in, outs, err);
    return st == TSR_OK ? st
                        : tsr_err_prefix(err, st, "compensation of layer %llu, %s",
                                         (unsigned long long)layer, TSR_MODEL_SITE_NAME(site));
}
