/* Latent attention, from the normed input to the output of o:
 *
 *   in -> q_a -> norm -> q_b                         queries; or in -> q
 *   in -> kv_a = [row of rank | rope key];   row -> norm -> kv_b = per head [key that does not rotate | value]
 *   per head q and k = [what rotates | what does not | zeros], v = [value | zeros], each head_dim columns wide
 *   q and k rotate, k and v go into the cache, attention, and the values' columns of its output -> o -> out
 *
 * Zeros add nothing to a product, so that attention and cache are those of every other layer.  What rotates comes first,
 * as ROPE wants it; a score is a sum over other columns in another order, which is fixed as well. */
#include "engine/hooks.h"
#include "engine/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct tsr_engine_latent {
    struct tsr_tensor q_row;  /* [chunk, q_rank] */
    struct tsr_tensor kv;     /* [chunk, rank + rope] */
    struct tsr_tensor kv_row; /* [chunk, rank] */
    struct tsr_tensor
        heads; /* [chunk, heads * (nope + v)]: keys and values, and then the input of o */
    struct tsr_tensor tokens; /* U32 [1, chunk * heads]: the token of a head's row */
};

/* q, k and v begin as zeros; the columns that make up a head's width are never written. */
static tsr_status clear(struct tsr_engine *e, struct tsr_err *err)
{
    uint64_t n = e->chunk * e->share.heads * e->model->hp.head_dim;
    float   *zeros = tsr_new_aligned(n, sizeof *zeros);
    if (!zeros)
        return tsr_fail_nomem(err, n * sizeof *zeros, "activations");
    memset(zeros, 0, n * sizeof *zeros);
    tsr_status st = tsr_engine_device_upload(e->dev, &e->q, zeros, err);
    if (st == TSR_OK)
        st = tsr_engine_device_upload(e->dev, &e->k, zeros, err);
    if (st == TSR_OK)
        st = tsr_engine_device_upload(e->dev, &e->v, zeros, err);
    if (st == TSR_OK)
        st = tsr_engine_device_sync(e->dev, err);
    free(zeros);
    return st;
}

static tsr_status put_tokens(struct tsr_engine *e, struct tsr_err *err)
{
    uint64_t  n = e->chunk * e->share.heads;
    uint32_t *token = tsr_new(n, sizeof *token);
    if (!token)
        return tsr_fail_nomem(err, n * sizeof *token, "activations");
    for (uint64_t i = 0; i < n; i++)
        token[i] = (uint32_t)(i / e->share.heads);
    tsr_status st = tsr_engine_device_upload(e->dev, &e->latent->tokens, token, err);
    if (st == TSR_OK)
        st = tsr_engine_device_sync(e->dev, err);
    free(token);
    return st;
}

tsr_status tsr_engine_latent_create(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_latent *l = &e->model->hp.latent;
    struct tsr_engine_latent      *r = e->latent = tsr_new(1, sizeof *r);
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, "latent attention");
    const struct {
        struct tsr_tensor *t;
        uint32_t           dtype;
        uint64_t           rows, cols;
    } plan[] = {
        { &r->q_row, TSR_F32, e->chunk, l->q_rank },
        { &r->kv, TSR_F32, e->chunk, (uint64_t)l->rank + l->rope },
        { &r->kv_row, TSR_F32, e->chunk, l->rank },
        { &r->heads, TSR_F32, e->chunk, (uint64_t)e->share.heads * (l->nope + l->v) },
        { &r->tokens, TSR_U32, 1, e->chunk * e->share.heads },
    };
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++)
        if (plan[i].cols)
            TSR_TRY(tsr_engine_device_tensor(e->dev, plan[i].dtype, plan[i].rows, plan[i].cols, 0,
                                             "latent attention", plan[i].t, err));
    TSR_TRY(clear(e, err));
    return put_tokens(e, err);
}

void tsr_engine_latent_destroy(struct tsr_engine *e)
{
    free(e->latent);
    e->latent = NULL;
}

/* Columns first .. first + cols of every head of t, whose rows are heads of `width` columns: a row for each. */
static struct tsr_tensor of_heads(const struct tsr_tensor *t, uint64_t width, uint64_t first,
                                  uint64_t cols)
{
    struct tsr_tensor v = *t;
    v.rows = t->rows * (t->cols / width);
    v.cols = cols;
    v.row_stride = width * sizeof(float);
    v.offset += first * sizeof(float);
    return v;
}

static tsr_status copy(struct tsr_engine *e, struct tsr_tensor from, struct tsr_tensor to,
                       struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_SCALE, .out = &to, .in = { &from }, .scale = 1 };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

/* A site's linears, after who observes their input. */
static tsr_status run(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                      const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                      struct tsr_err *err)
{
    if (e->hooks.input)
        TSR_TRY(e->hooks.input(e, layer, site, in, err));
    return tsr_engine_run_site(e, layer, site, in, outs, err);
}

/* Queries as q or q_b has them, [does not rotate | rotates] per head, and the row of keys and values. */
static tsr_status queries(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                          const struct tsr_tensor *out, const struct tsr_tensor *kv,
                          struct tsr_err *err)
{
    bool                     two = e->model->hp.latent.q_rank != 0;
    struct tsr_tensor        row = tsr_engine_rows(&e->latent->q_row, 0, in->rows);
    const struct tsr_tensor *outs[] = { two ? NULL : out, two ? &row : NULL, kv };
    TSR_TRY(run(e, layer, TSR_MODEL_SITE_ATTN_IN, in, outs, err));
    if (!two)
        return TSR_OK;
    TSR_TRY(tsr_engine_run_norm(e, &e->layers[layer].q_a_norm, &row, &row, err));
    return run(e, layer, TSR_MODEL_SITE_Q_B_IN, &row, &out, err);
}

/* Keys and values as kv_b has them, [does not rotate | value] per head; the rope key is a part of latent.kv. */
static tsr_status keys(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *kv,
                       const struct tsr_tensor *out, struct tsr_err *err)
{
    struct tsr_tensor row = tsr_engine_rows(&e->latent->kv_row, 0, kv->rows), part = *kv;
    part.cols = row.cols;
    TSR_TRY(tsr_engine_run_norm(e, &e->layers[layer].kv_a_norm, &part, &row, err));
    return run(e, layer, TSR_MODEL_SITE_KV_B_IN, &row, &out, err);
}

tsr_status tsr_engine_latent_heads(struct tsr_engine *e, uint64_t layer,
                                   const struct tsr_tensor *in, const struct tsr_tensor *q,
                                   const struct tsr_tensor *k, const struct tsr_tensor *v,
                                   struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    uint64_t          nope = hp->latent.nope, rope = hp->latent.rope, value = hp->latent.v;
    uint64_t          heads = e->share.heads, width = hp->head_dim, n = in->rows;
    struct tsr_tensor raw = tsr_engine_narrow(&e->a, n, heads * (nope + rope));
    struct tsr_tensor kv = tsr_engine_rows(&e->latent->heads, 0, n);
    struct tsr_tensor rows = tsr_engine_rows(&e->latent->kv, 0, n), rope_key = rows;
    struct tsr_tensor tokens = e->latent->tokens, rotated = of_heads(k, width, 0, rope);
    rope_key.offset += hp->latent.rank * sizeof(float);
    rope_key.cols = rope;
    tokens.cols = n * heads;
    tokens.row_stride = tokens.cols * sizeof(uint32_t);
    TSR_TRY(queries(e, layer, in, &raw, &rows, err));
    TSR_TRY(keys(e, layer, &rows, &kv, err));
    TSR_TRY(copy(e, of_heads(&raw, nope + rope, nope, rope), of_heads(q, width, 0, rope), err));
    TSR_TRY(copy(e, of_heads(&raw, nope + rope, 0, nope), of_heads(q, width, rope, nope), err));
    TSR_TRY(copy(e, of_heads(&kv, nope + value, 0, nope), of_heads(k, width, rope, nope), err));
    TSR_TRY(copy(e, of_heads(&kv, nope + value, nope, value), of_heads(v, width, 0, value), err));
    struct tsr_op op = { .kind = TSR_OP_GATHER, .out = &rotated, .in = { &rope_key, &tokens } };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

tsr_status tsr_engine_latent_values(struct tsr_engine *e, const struct tsr_tensor *a,
                                    struct tsr_tensor *o_in, struct tsr_err *err)
{
    uint64_t          value = e->model->hp.latent.v, width = e->model->hp.head_dim;
    struct tsr_tensor from = of_heads(a, width, 0, value);
    *o_in = tsr_engine_narrow(&e->latent->heads, a->rows, e->share.heads * value);
    return copy(e, from, of_heads(o_in, value, 0, value), err);
}
