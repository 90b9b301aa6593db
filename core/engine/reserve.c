/* Scratch of the device for the engine's largest operation, and room for its sums over ranks, taken when the engine is
 * made.  A driver may let whoever takes memory later wait for all work of the device: for another rank's
 * receive, too, which may itself wait for this rank. */
#include "engine/internal.h"
#include "tessera/draft/sizes.h"

struct need {
    const struct tsr_sizes_v1 *sizes;
    uint64_t                   bytes;
};

static void more(struct need *n, uint64_t bytes)
{
    n->bytes = bytes > n->bytes ? bytes : n->bytes;
}

/* A linear with so many tokens. */
static tsr_status add_linear(const struct tsr_engine *e, struct need *n,
                             const struct tsr_engine_linear_dev *l, uint64_t tokens,
                             struct tsr_err *err)
{
    static const struct tsr_format f32 = { .struct_size = sizeof f32,
                                           .dtype = TSR_F32,
                                           .id = TSR_FORMAT_FLOAT };
    uint64_t                       bytes = 0;
    if (!l->w || tsr_engine_linear_device(e, l) != e->dev)
        return TSR_OK;
    if (l->w->on)
        return tsr_engine_device_reserve_own(e->dev, l->w, tokens, err);
    struct tsr_weight_desc d = l->w->desc;
    if (l->w->widened) {
        d.format = &f32;
        d.code_stride = d.cols * sizeof(float);
        d.meta_stride = 0;
    }
    tsr_status st = n->sizes->linear(e->dev->self, &d, l->act, tokens, &bytes, err);
    more(n, bytes);
    return st == TSR_E_UNSUPPORTED ? TSR_OK : st; /* the device has it in another format */
}

static tsr_status add_linears(const struct tsr_engine *e, struct need *n, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    for (uint64_t i = 0; i < hp->layers * hp->linears; i++)
        TSR_TRY(add_linear(e, n, &e->linears[i], e->chunk, err));
    TSR_TRY(add_linear(e, n, &e->project_in, e->chunk, err));
    TSR_TRY(add_linear(e, n, &e->project_out, e->head_rows, err));
    return add_linear(e, n, &e->head, e->head_rows, err);
}

static tsr_status add_attention(const struct tsr_engine *e, struct need *n, struct tsr_err *err)
{
    uint64_t bytes = 0;
    if (e->share.heads == 0)
        return TSR_OK;
    TSR_TRY(n->sizes->attention(e->dev->self, e->chunk, e->context, e->share.heads,
                                e->share.kv_heads, e->model->hp.head_dim, &bytes, err));
    more(n, bytes);
    return TSR_OK;
}

static tsr_status scratch(const struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_backend_v1 *b = e->dev->iface;
    struct need                  n = { .sizes =
                          b->extension ? b->extension(e->dev->self, TSR_SIZES_EXTENSION) : NULL };
    if (!n.sizes || !TSR_HAS(struct tsr_sizes_v1, n.sizes, reserve))
        return TSR_OK;
    TSR_TRY(add_linears(e, &n, err));
    TSR_TRY(add_attention(e, &n, err));
    tsr_status st = n.sizes->reserve(e->dev->self, n.bytes, err);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "scratch on %s", e->dev->text);
}

tsr_status tsr_engine_reserve(const struct tsr_engine *e, struct tsr_err *err)
{
    TSR_TRY(scratch(e, err));
    if (e->tp.ranks == 1 || !e->tp.reserve_on)
        return TSR_OK;
    return e->tp.reserve_on(e->tp.ctx, e->dev->iface, e->dev->self, e->chunk, e->model->hp.hidden,
                            (uint32_t)(2 * e->first), (uint32_t)(2 * e->end), err);
}
