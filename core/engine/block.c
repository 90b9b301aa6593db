/* One decoder layer over e->h, from the top: forward.c calls tsr_engine_block_run(), which runs attention and
 * feed-forward, each in its residual with the norms where the family puts them.  What else may happen at a
 * linear (calibration, sums over ranks, compensation) hangs on hooks.h. */
#include "engine/kv_codec.h"
#include "engine/online.h"
#include "engine/recurrent.h"

typedef tsr_status (*sublayer)(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                               const struct tsr_tensor *out, struct tsr_err *err);

static tsr_status residual(struct tsr_engine *e, uint64_t layer, uint64_t n, sublayer f,
                           const struct tsr_engine_norm_dev *before,
                           const struct tsr_engine_norm_dev *after, struct tsr_err *err);
static tsr_status side_by_side(struct tsr_engine *e, uint64_t layer, uint64_t n,
                               struct tsr_err *err);
static tsr_status add_scaled(struct tsr_engine *e, const struct tsr_tensor *a,
                             const struct tsr_tensor *y, const struct tsr_tensor *out,
                             struct tsr_err *err);
static tsr_status norm_heads(struct tsr_engine *e, const struct tsr_tensor *t, uint32_t heads,
                             const struct tsr_engine_norm_dev *norm, struct tsr_err *err);
static tsr_status rotate(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *t,
                         uint32_t heads, struct tsr_err *err);
static tsr_status store(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *t,
                        const struct tsr_tensor *cache, struct tsr_err *err);
static tsr_status attend_after(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *q,
                               const struct tsr_tensor *k, const struct tsr_tensor *out,
                               struct tsr_err *err);
static tsr_status attend_in_pieces(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *q,
                                   const struct tsr_tensor *k, const struct tsr_tensor *out,
                                   struct tsr_err *err);

tsr_status tsr_engine_block_run(struct tsr_engine *e, uint64_t layer, uint64_t n,
                                struct tsr_err *err)
{
    const struct tsr_engine_layer_dev *l = &e->layers[layer];
    if (e->model->hp.norm_place == TSR_MODEL_NORM_PARALLEL)
        return side_by_side(e, layer, n, err);
    TSR_TRY(residual(e, layer, n, tsr_engine_block_attention, &l->attn_in, &l->attn_out, err));
    return residual(e, layer, n, tsr_engine_block_feed_forward, &l->ffn_in, &l->ffn_out, err);
}

/* h += attention(norm(h)) + feed_forward(norm(h)), with one norm for both */
static tsr_status side_by_side(struct tsr_engine *e, uint64_t layer, uint64_t n,
                               struct tsr_err *err)
{
    struct tsr_tensor h = tsr_engine_rows(&e->h, 0, n), x = tsr_engine_rows(&e->x, 0, n);
    struct tsr_tensor y = tsr_engine_rows(&e->y, 0, n);
    TSR_TRY(tsr_engine_run_norm(e, &e->layers[layer].attn_in, &h, &x, err));
    TSR_TRY(tsr_engine_block_attention(e, layer, &x, &y, err));
    TSR_TRY(add_scaled(e, &h, &y, &h, err));
    TSR_TRY(tsr_engine_block_feed_forward(e, layer, &x, &y, err));
    return add_scaled(e, &h, &y, &h, err);
}

/* out = a + residual_scale * y; y is overwritten */
static tsr_status add_scaled(struct tsr_engine *e, const struct tsr_tensor *a,
                             const struct tsr_tensor *y, const struct tsr_tensor *out,
                             struct tsr_err *err)
{
    float scale = e->model->hp.residual_scale;
    if (scale != 1) {
        struct tsr_op op = { .kind = TSR_OP_SCALE, .out = y, .in = { y }, .scale = scale };
        TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
    }
    return tsr_engine_run_add(e, a, y, out, err);
}

/* A sub-layer in its residual:
 *   BEFORE  h += f(norm(h)), or h = norm(h) + f(norm(h)) with residual_from_norm
 *   AROUND  h += norm_out(f(norm(h)))
 *   OUT     h += norm_out(f(h))
 *   AFTER   h = norm(h + f(h))                                                        */
static tsr_status residual(struct tsr_engine *e, uint64_t layer, uint64_t n, sublayer f,
                           const struct tsr_engine_norm_dev *before,
                           const struct tsr_engine_norm_dev *after, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_tensor h = tsr_engine_rows(&e->h, 0, n), x = tsr_engine_rows(&e->x, 0, n);
    struct tsr_tensor y = tsr_engine_rows(&e->y, 0, n);

    if (hp->norm_place == TSR_MODEL_NORM_AFTER) {
        TSR_TRY(f(e, layer, &h, &y, err));
        TSR_TRY(add_scaled(e, &h, &y, &h, err));
        return tsr_engine_run_norm(e, before, &h, &h, err);
    }
    if (hp->norm_place != TSR_MODEL_NORM_OUT)
        TSR_TRY(tsr_engine_run_norm(e, before, &h, &x, err));
    TSR_TRY(f(e, layer, hp->norm_place == TSR_MODEL_NORM_OUT ? &h : &x, &y, err));
    if (hp->norm_place == TSR_MODEL_NORM_AROUND || hp->norm_place == TSR_MODEL_NORM_OUT)
        TSR_TRY(tsr_engine_run_norm(e, after, &y, &y, err));
    return add_scaled(e, hp->residual_from_norm ? &x : &h, &y, &h, err);
}

/* in -> q, k, v, z (latent attention: latent.c) -> q and k normed, rotated, transformed -> v and k into the cache -> attention ->
 * times sigmoid(z), if there is a z -> o -> out */
tsr_status tsr_engine_block_attention(struct tsr_engine *e, uint64_t layer,
                                      const struct tsr_tensor *in, const struct tsr_tensor *out,
                                      struct tsr_err *err)
{
    const struct tsr_engine_layer_dev *l = &e->layers[layer];
    uint64_t                           n = in->rows, dim = e->model->hp.head_dim;
    uint64_t                           wide = e->share.heads * dim, kv = e->share.kv_heads * dim;
    struct tsr_tensor q = tsr_engine_narrow(&e->q, n, wide), a = tsr_engine_narrow(&e->a, n, wide);
    struct tsr_tensor k = tsr_engine_narrow(&e->k, n, kv), v = tsr_engine_narrow(&e->v, n, kv), z;
    bool              gated = e->model->hp.attn_gate;
    const struct tsr_tensor *qkv[] = { &q, &k, &v, gated ? &z : NULL, NULL, NULL };

    if (tsr_model_is_recurrent(&e->model->hp, layer))
        return tsr_engine_recurrent_run(e, layer, in, out, err);
    if (gated)
        z = tsr_engine_gate_rows(e, n);
    TSR_TRY(e->latent ? tsr_engine_latent_heads(e, layer, in, &q, &k, &v, err)
                      : tsr_engine_run_linears(e, layer, TSR_MODEL_SITE_ATTN_IN, in, qkv, err));
    if (e->whole_norm) {
        TSR_TRY(tsr_engine_whole_norm_run(e, layer, &q, &k, err));
    } else {
        TSR_TRY(norm_heads(e, &q, e->share.heads, &l->q_norm, err));
        TSR_TRY(norm_heads(e, &k, e->share.kv_heads, &l->k_norm, err));
    }
    TSR_TRY(rotate(e, layer, &q, e->share.heads, err));
    TSR_TRY(rotate(e, layer, &k, e->share.kv_heads, err));
    TSR_TRY(tsr_engine_online_run(e, e->dev, layer, TSR_ENGINE_ONLINE_KEYS, &q, err));
    TSR_TRY(tsr_engine_online_run(e, e->dev, layer, TSR_ENGINE_ONLINE_KEYS, &k, err));
    TSR_TRY(tsr_engine_cache_move(e, layer, err));
    if (tsr_engine_kv_store_of(e, layer)) {
        TSR_TRY(tsr_engine_kv_attend(e, layer, &q, &k, &v, &a, err));
    } else {
        TSR_TRY(store(e, layer, &v, &l->v, err));
        TSR_TRY(l->k.dtype == TSR_Q4_CHANNEL ? attend_in_pieces(e, layer, &q, &k, &a, err)
                                             : attend_after(e, layer, &q, &k, &a, err));
    }
    if (e->latent)
        TSR_TRY(tsr_engine_latent_values(e, &a, &a, err));
    if (gated)
        TSR_TRY(tsr_engine_gate_attention(e, &a, err));
    return tsr_engine_run_linears(e, layer, TSR_MODEL_SITE_O_IN, &a, &out, err);
}

/* in -> gate, up -> func(gate) * up, or func(up) -> transformed -> down -> out */
tsr_status tsr_engine_block_feed_forward(struct tsr_engine *e, uint64_t layer,
                                         const struct tsr_tensor *in, const struct tsr_tensor *out,
                                         struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    if (hp->sparse && hp->sparse[layer])
        return tsr_engine_experts_run(e, layer, in, out, err);
    struct tsr_tensor up = tsr_engine_narrow(&e->up, in->rows, e->share.ffn);
    struct tsr_tensor gate = hp->gated ? tsr_engine_narrow(&e->gate, in->rows, e->share.ffn) : up;
    const struct tsr_tensor *both[] = { hp->gated ? &gate : NULL, &up };

    TSR_TRY(tsr_engine_run_linears(e, layer, TSR_MODEL_SITE_FFN_IN, in, both, err));
    struct tsr_op op = { .kind = TSR_OP_ACT,
                         .out = &gate,
                         .in = { &gate, hp->gated ? &up : NULL },
                         .func = hp->func,
                         .scale = hp->func_alpha,
                         .softcap = hp->func_limit };
    TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
    TSR_TRY(tsr_engine_online_run(e, e->dev, layer, TSR_ENGINE_ONLINE_DOWN, &gate, err));
    return tsr_engine_run_linears(e, layer, TSR_MODEL_SITE_DOWN_IN, &gate, &out, err);
}

/* Columns first .. first + cols of a row are a row of the view: heads of one width become rows. */
static struct tsr_tensor heads_as_rows(const struct tsr_tensor *t, uint64_t dim)
{
    struct tsr_tensor v = *t;
    v.rows = t->rows * (t->cols / dim);
    v.cols = dim;
    v.row_stride = dim * sizeof(float);
    return v;
}

static struct tsr_tensor columns(const struct tsr_tensor *t, uint64_t first, uint64_t n)
{
    struct tsr_tensor v = *t;
    v.offset += first * sizeof(float);
    v.cols = n;
    return v;
}

/* The norm of queries or keys, in place.  Rows of activations lie one behind the other, so that heads with one
 * gain are the rows of one operation. */
static tsr_status norm_heads(struct tsr_engine *e, const struct tsr_tensor *t, uint32_t heads,
                             const struct tsr_engine_norm_dev *norm, struct tsr_err *err)
{
    uint64_t dim = e->model->hp.head_dim;
    if (!norm->gain.buffer)
        return TSR_OK;
    if (e->model->hp.qk_norm == TSR_MODEL_QK_NORM_WIDTH)
        return tsr_engine_run_norm(e, norm, t, t, err);
    if (e->model->hp.qk_norm == TSR_MODEL_QK_NORM_HEAD) {
        struct tsr_tensor v = heads_as_rows(t, dim);
        return tsr_engine_run_norm(e, norm, &v, &v, err);
    }
    for (uint32_t h = 0; h < heads; h++) {
        struct tsr_tensor          v = columns(t, h * dim, dim);
        struct tsr_engine_norm_dev own = { .gain = columns(&norm->gain, h * dim, dim) };
        TSR_TRY(tsr_engine_run_norm(e, &own, &v, &v, err));
    }
    return TSR_OK;
}

static tsr_status rotate(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *t,
                         uint32_t heads, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    unsigned                        of = hp->rope_of ? hp->rope_of[layer] : TSR_MODEL_ROPE_OF_ALL;
    if (hp->positions != TSR_MODEL_POSITIONS_ROPE || of == TSR_MODEL_ROPE_OF_NONE)
        return TSR_OK;
    struct tsr_op op = { .kind = TSR_OP_ROPE,
                         .out = t,
                         .in = { t, &e->feed.cosine[of], &e->feed.sine[of] },
                         .func = hp->rope_adjacent ? TSR_ROPE_ADJACENT : TSR_ROPE_HALVES,
                         .heads = heads,
                         .head_dim = hp->head_dim,
                         .rotary_dim = hp->rope.dim };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

static tsr_status store_rows(struct tsr_engine *e, const struct tsr_tensor *t,
                             const struct tsr_tensor *rows, const struct tsr_tensor *cache,
                             struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_KV_STORE,
                         .out = cache,
                         .in = { t, rows },
                         .kv_heads = e->share.kv_heads,
                         .head_dim = e->model->hp.head_dim };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

static tsr_status store(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *t,
                        const struct tsr_tensor *cache, struct tsr_err *err)
{
    return store_rows(e, t, &e->feed.rows[tsr_engine_cache_of(e, layer)], cache, err);
}

static tsr_status attend(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *q,
                         const struct tsr_tensor *spans, const struct tsr_tensor *out,
                         struct tsr_err *err)
{
    const struct tsr_model_hparams    *hp = &e->model->hp;
    const struct tsr_engine_layer_dev *l = &e->layers[layer];
    struct tsr_op                      op = { .kind = TSR_OP_ATTENTION,
                                              .out = out,
                                              .in = { q, &l->k, &l->v, spans,
                                 l->sinks.buffer    ? &l->sinks
                                                      : e->slopes.buffer ? &e->slopes
                                                                         : NULL },
                                              .heads = e->share.heads,
                                              .kv_heads = e->share.kv_heads,
                                              .head_dim = hp->head_dim,
                                              .window = hp->window ? hp->window[layer] : 0,
                                              .scale = hp->attn_scale,
                                              .softcap = hp->attn_softcap };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

static tsr_status attend_after(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *q,
                               const struct tsr_tensor *k, const struct tsr_tensor *out,
                               struct tsr_err *err)
{
    TSR_TRY(store(e, layer, k, &e->layers[layer].k, err));
    return attend(e, layer, q, &e->feed.spans[tsr_engine_cache_of(e, layer)], out, err);
}

/* Keys in blocks: tokens of a block see its keys in a tail, which those of the next block overwrite. */
static tsr_status attend_in_pieces(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *q,
                                   const struct tsr_tensor *k, const struct tsr_tensor *out,
                                   struct tsr_err *err)
{
    int cache = tsr_engine_cache_of(e, layer);
    for (uint64_t i = 0, first = 0; i < e->n_pieces; first = e->pieces[i++]) {
        uint64_t          n = e->pieces[i] - first;
        struct tsr_tensor qs = tsr_engine_rows(q, first, n), ks = tsr_engine_rows(k, first, n);
        struct tsr_tensor to = tsr_engine_rows(out, first, n);
        struct tsr_tensor spans = tsr_engine_rows(&e->feed.block_spans[cache], first, n);
        struct tsr_tensor rows = columns(&e->feed.block_rows[cache], first, n);
        TSR_TRY(store_rows(e, &ks, &rows, &e->layers[layer].k, err));
        TSR_TRY(attend(e, layer, &qs, &spans, &to, err));
    }
    return TSR_OK;
}
