/* One decoder layer: attention and feed-forward, with the norms where the family puts them. */
#include "engine/split.h"

#include "base/mem.h"

/* Hands the rows of x to the tap, if one is set. */
static tsr_status tap(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                      const struct tsr_tensor *x, struct tsr_err *err)
{
    if (!e->tap)
        return TSR_OK;
    if (!e->tap_rows) {
        uint64_t widest = e->h.cols, n;
        if (e->a.cols > widest)
            widest = e->a.cols;
        if (e->up.cols > widest)
            widest = e->up.cols;
        if (!tsr_mul(widest, e->chunk, &n) || !(e->tap_rows = tsr_new_aligned(n, sizeof(float))))
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: rows for calibration");
    }
    TSR_TRY(tsr_device_sync(e->dev, err));
    TSR_TRY(tsr_device_download(e->dev, x, e->tap_rows, err));
    return e->tap(e->tap_ctx, layer, site, e->tap_rows, x->rows, x->cols, err);
}

static tsr_status rotate(struct tsr_engine *e, const struct tsr_tensor *t, uint32_t heads,
                         struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_ROPE,
                         .out = t,
                         .in = { t, &e->feed.cosine, &e->feed.sine },
                         .heads = heads,
                         .head_dim = e->model->hp.head_dim,
                         .rotary_dim = e->model->hp.rope.dim };
    return tsr_device_run(e->dev, &op, NULL, err);
}

static tsr_status store(struct tsr_engine *e, const struct tsr_tensor *t,
                        const struct tsr_tensor *cache, struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_KV_STORE,
                         .out = cache,
                         .in = { t, &e->feed.rows },
                         .kv_heads = e->share.kv_heads,
                         .head_dim = e->model->hp.head_dim };
    return tsr_device_run(e->dev, &op, NULL, err);
}

/* The other ranks' parts are added on the device; *done false: they are not. */
static tsr_status sum_there(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                            const struct tsr_tensor *out, bool *done, struct tsr_err *err)
{
    const struct tsr_tensor *bias = &e->layers[layer].lin[id].behind;
    *done = false;
    if (!e->tp.sum_on)
        return TSR_OK;
    TSR_TRY(e->tp.sum_on(e->tp.ctx, (uint32_t)(2 * layer + (id == TSR_DOWN)), e->dev->iface,
                         e->dev->self, out, done, err));
    for (uint64_t r = 0; *done && bias->buffer && r < out->rows; r++) {
        struct tsr_tensor row = tsr_rows(out, r, 1);
        struct tsr_op     op = { .kind = TSR_OP_ADD, .out = &row, .in = { &row, bias } };
        TSR_TRY(tsr_device_run(e->dev, &op, NULL, err));
    }
    return TSR_OK;
}

/* With the parts of the other ranks. */
static tsr_status over_ranks(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                             const struct tsr_tensor *in, const struct tsr_tensor *out,
                             struct tsr_err *err)
{
    const float *bias = e->model->layers[layer].lin[id].bias;
    bool         done;
    if (e->split.ranks)
        return tsr_split_run(e, layer, id, in, out, err);
    TSR_TRY(tsr_run_linear(e, &e->layers[layer].lin[id], in, out, err));
    TSR_TRY(sum_there(e, layer, id, out, &done, err));
    if (done)
        return TSR_OK;
    TSR_TRY(tsr_device_sync(e->dev, err));
    TSR_TRY(tsr_device_download(e->dev, out, e->parts, err));
    TSR_TRY(e->tp.sum(e->tp.ctx, (uint32_t)(2 * layer + (id == TSR_DOWN)), e->parts, out->rows,
                      out->cols, err));
    for (uint64_t r = 0; bias && r < out->rows; r++)
        for (uint64_t c = 0; c < out->cols; c++)
            e->parts[r * out->cols + c] += bias[c];
    return tsr_device_upload(e->dev, out, e->parts, err);
}

/* out = o or down over in, which ends a sub-layer, with its compensation. */
static tsr_status whole(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                        const struct tsr_tensor *in, const struct tsr_tensor *out,
                        struct tsr_err *err)
{
    enum tsr_site site = tsr_linear_site(id);
    if (e->split.ranks == 0 && e->tp.ranks == 1)
        return tsr_run_site(e, layer, site, in, &out, err);
    TSR_TRY(over_ranks(e, layer, id, in, out, err));
    return tsr_compensate_site(e, layer, site, in, &out, err);
}

/* out = attention over the normed input in. */
tsr_status tsr_block_attention(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                               const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_hparams   *hp = &e->model->hp;
    const struct tsr_layer_dev *l = &e->layers[layer];
    struct tsr_tensor           q = tsr_rows(&e->q, 0, in->rows), k = tsr_rows(&e->k, 0, in->rows);
    struct tsr_tensor           v = tsr_rows(&e->v, 0, in->rows), a = tsr_rows(&e->a, 0, in->rows);

    TSR_TRY(tap(e, layer, TSR_SITE_ATTN_IN, in, err));
    const struct tsr_tensor *qkv[] = { &q, &k, &v };
    TSR_TRY(tsr_run_site(e, layer, TSR_SITE_ATTN_IN, in, qkv, err));
    if (hp->positions == TSR_POS_ROPE) {
        TSR_TRY(rotate(e, &q, e->share.heads, err));
        TSR_TRY(rotate(e, &k, e->share.kv_heads, err));
    }
    TSR_TRY(store(e, &k, &l->k, err));
    TSR_TRY(store(e, &v, &l->v, err));
    struct tsr_op op = { .kind = TSR_OP_ATTENTION,
                         .out = &a,
                         .in = { &q, &l->k, &l->v, &e->feed.spans,
                                 e->slopes.buffer ? &e->slopes : NULL },
                         .heads = e->share.heads,
                         .kv_heads = e->share.kv_heads,
                         .head_dim = hp->head_dim,
                         .window = hp->window ? hp->window[layer] : 0,
                         .scale = hp->attn_scale,
                         .softcap = hp->attn_softcap };
    TSR_TRY(tsr_device_run(e->dev, &op, NULL, err));
    TSR_TRY(tap(e, layer, TSR_SITE_O_IN, &a, err));
    return whole(e, layer, TSR_O, &a, out, err);
}

tsr_status tsr_block_feed_forward(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                                  const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_hparams *hp = &e->model->hp;
    struct tsr_tensor         up = tsr_rows(&e->up, 0, in->rows);
    struct tsr_tensor         gate = hp->gated ? tsr_rows(&e->gate, 0, in->rows) : up;

    TSR_TRY(tap(e, layer, TSR_SITE_FFN_IN, in, err));
    const struct tsr_tensor *both[] = { hp->gated ? &gate : NULL, &up };
    TSR_TRY(tsr_run_site(e, layer, TSR_SITE_FFN_IN, in, both, err));
    struct tsr_op op = {
        .kind = TSR_OP_ACT, .out = &gate, .in = { &gate, hp->gated ? &up : NULL }, .func = hp->func
    };
    TSR_TRY(tsr_device_run(e->dev, &op, NULL, err));
    TSR_TRY(tap(e, layer, TSR_SITE_DOWN_IN, &gate, err));
    return whole(e, layer, TSR_DOWN, &gate, out, err);
}

typedef tsr_status (*sublayer)(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                               const struct tsr_tensor *out, struct tsr_err *err);

/* A sub-layer in its residual:
 *   BEFORE  h += f(norm(h)), or h = norm(h) + f(norm(h)) with residual_from_norm
 *   AROUND  h += norm_out(f(norm(h)))
 *   AFTER   h = norm(h + f(h))                                                        */
static tsr_status residual(struct tsr_engine *e, uint64_t layer, uint64_t n, sublayer f,
                           const struct tsr_norm_dev *before, const struct tsr_norm_dev *behind,
                           struct tsr_err *err)
{
    const struct tsr_hparams *hp = &e->model->hp;
    struct tsr_tensor         h = tsr_rows(&e->h, 0, n), x = tsr_rows(&e->x, 0, n);
    struct tsr_tensor         y = tsr_rows(&e->y, 0, n);

    if (hp->norm_place == TSR_NORM_AFTER) {
        TSR_TRY(f(e, layer, &h, &y, err));
        TSR_TRY(tsr_run_add(e, &h, &y, &h, err));
        return tsr_run_norm(e, before, &h, &h, err);
    }
    TSR_TRY(tsr_run_norm(e, before, &h, &x, err));
    TSR_TRY(f(e, layer, &x, &y, err));
    if (hp->norm_place == TSR_NORM_AROUND)
        TSR_TRY(tsr_run_norm(e, behind, &y, &y, err));
    return tsr_run_add(e, hp->residual_from_norm ? &x : &h, &y, &h, err);
}

tsr_status tsr_block_run(struct tsr_engine *e, uint64_t layer, uint64_t n, struct tsr_err *err)
{
    const struct tsr_layer_dev *l = &e->layers[layer];
    TSR_TRY(residual(e, layer, n, tsr_block_attention, &l->attn_in, &l->attn_out, err));
    return residual(e, layer, n, tsr_block_feed_forward, &l->ffn_in, &l->ffn_out, err);
}
