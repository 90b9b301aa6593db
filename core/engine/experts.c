/* A layer with experts, from the normed input to the weighed sum of what the chosen experts say:
 *
 *   in -> router -> scores, in host memory     route.c: the experts of each token, and their weights
 *   for each expert that a token takes:
 *     its rows of in -> gate, up -> func(gate) * up -> down -> rows of `said`
 *   the shared expert, where the layer has one, over all rows likewise; its weight is 1, or the sigmoid of a score
 *   out = the sum over a token's experts of weight * row of `said`, in rising order of the expert, the shared one last
 *
 * A product does not depend on the rows beside it, and the sum has a fixed order: neither batch nor chunk changes a bit. */
#include "engine/hooks.h"
#include "engine/internal.h"
#include "engine/route.h"

#include "base/mem.h"

#include <stdlib.h>

struct tsr_engine_routes {
    uint64_t          each;   /* experts of a token, with the shared one */
    uint32_t         *chosen; /* [chunk, used] of each token */
    float            *weight; /* [chunk, each] */
    float            *scores, *scratch;
    uint64_t          spread;       /* tokens that went by a count */
    float            *shared;       /* [chunk]: scores of the shared expert; or NULL */
    uint64_t         *count;        /* [experts + 1]: where an expert's rows begin */
    uint32_t         *host_rows;    /* [chunk * used]: tokens, by expert */
    uint32_t         *host_places;  /* [chunk, each]: rows of `said` */
    struct tsr_tensor score;        /* [chunk, experts] */
    struct tsr_tensor shared_score; /* [chunk, 1] */
    struct tsr_tensor rows;         /* U32 [1, chunk * used] */
    struct tsr_tensor places;       /* U32 [chunk, each] */
    struct tsr_tensor weights;      /* [chunk, each] */
    struct tsr_tensor in;           /* [chunk, hidden]: rows of one expert */
    struct tsr_tensor said; /* [chunk * each, hidden]; the shared expert's rows are the last */
};

tsr_status tsr_engine_experts_create(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_engine_routes       *r = e->routes = tsr_new(1, sizeof *r);
    uint64_t                        pairs = e->chunk * hp->experts_used, all;
    if (!r)
        return tsr_fail_nomem(err, sizeof *r, "routes");
    r->each = hp->experts_used + (hp->shared_ffn ? 1u : 0u);
    all = e->chunk * r->each;
    r->chosen = tsr_new(pairs, sizeof *r->chosen);
    r->weight = tsr_new(all, sizeof *r->weight);
    r->scores = tsr_new_aligned(e->chunk * hp->experts, sizeof *r->scores);
    r->scratch = tsr_new(hp->experts + (uint64_t)hp->router_groups, sizeof *r->scratch);
    r->shared = tsr_new_aligned(e->chunk, sizeof *r->shared);
    r->count = tsr_new(hp->experts + UINT64_C(1), sizeof *r->count);
    r->host_rows = tsr_new(pairs, sizeof *r->host_rows);
    r->host_places = tsr_new(all, sizeof *r->host_places);
    if (!r->chosen || !r->weight || !r->scores || !r->scratch || !r->shared || !r->count ||
        !r->host_rows || !r->host_places)
        return tsr_fail_nomem(err, e->chunk * hp->experts * sizeof *r->scores, "routes");
    const struct {
        struct tsr_tensor *t;
        uint32_t           dtype;
        uint64_t           rows, cols;
    } plan[] = {
        { &r->score, TSR_F32, e->chunk, hp->experts },
        { &r->shared_score, TSR_F32, e->chunk, hp->shared_gated ? 1 : 0 },
        { &r->rows, TSR_U32, 1, pairs },
        { &r->places, TSR_U32, e->chunk, r->each },
        { &r->weights, TSR_F32, e->chunk, r->each },
        { &r->in, TSR_F32, e->chunk, hp->hidden },
        { &r->said, TSR_F32, all, hp->hidden },
    };
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++)
        if (plan[i].cols)
            TSR_TRY(tsr_engine_device_tensor(e->dev, plan[i].dtype, plan[i].rows, plan[i].cols, 0,
                                             "experts", plan[i].t, err));
    return TSR_OK;
}

void tsr_engine_experts_destroy(struct tsr_engine *e)
{
    struct tsr_engine_routes *r = e->routes;
    if (!r)
        return;
    free(r->chosen);
    free(r->weight);
    free(r->scores);
    free(r->scratch);
    free(r->shared);
    free(r->count);
    free(r->host_rows);
    free(r->host_places);
    free(r);
    e->routes = NULL;
}

/* The first n elements of a row. */
static struct tsr_tensor part_of_row(const struct tsr_tensor *t, uint64_t first, uint64_t n)
{
    struct tsr_tensor v = *t;
    v.offset += first * sizeof(uint32_t);
    v.cols = n;
    return v;
}

/* The shared expert joins the others: every token takes it, and its rows of `said` follow theirs. */
static tsr_status add_shared(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                             struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_engine_routes       *r = e->routes;
    if (!hp->shared_ffn)
        return TSR_OK;
    if (hp->shared_gated) {
        struct tsr_tensor score = tsr_engine_rows(&r->shared_score, 0, in->rows);
        TSR_TRY(tsr_engine_run_linear(e, &e->layers[layer].lin[TSR_MODEL_SHARED_ROUTER], in, &score,
                                      err));
        TSR_TRY(tsr_engine_device_sync(e->dev, err));
        TSR_TRY(tsr_engine_device_download(e->dev, &score, r->shared, err));
    }
    for (uint64_t t = 0; t < in->rows; t++) {
        r->weight[t * r->each + hp->experts_used] =
            hp->shared_gated ? tsr_engine_sigmoid(r->shared[t]) : 1;
        r->host_places[t * r->each + hp->experts_used] =
            (uint32_t)(in->rows * hp->experts_used + t);
    }
    return TSR_OK;
}

/* Experts and weights of the tokens, and their order by expert. */
static tsr_status route(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                        struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_engine_routes       *r = e->routes;
    struct tsr_tensor               score = tsr_engine_rows(&r->score, 0, in->rows);
    uint64_t                        used = hp->experts_used;
    TSR_TRY(tsr_engine_run_linear(e, &e->layers[layer].lin[TSR_MODEL_ROUTER], in, &score, err));
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    TSR_TRY(tsr_engine_device_download(e->dev, &score, r->scores, err));
    for (uint64_t i = 0; i <= hp->experts; i++)
        r->count[i] = 0;
    for (uint64_t t = 0; t < in->rows; t++) {
        tsr_engine_route(hp, r->scores + t * hp->experts, e->model->layers[layer].router_correction,
                         r->chosen + t * used, r->weight + t * r->each, r->scratch);
        if (e->timed)
            tsr_engine_route_spread(hp, r->spread++, r->chosen + t * used, r->weight + t * r->each);
        for (uint64_t j = 0; j < used; j++)
            r->count[r->chosen[t * used + j] + 1]++;
    }
    for (uint64_t i = 0; i < hp->experts; i++)
        r->count[i + 1] += r->count[i];
    for (uint64_t t = 0; t < in->rows; t++) /* count[i] moves on to where the next expert's begin */
        for (uint64_t j = 0; j < used; j++) {
            uint64_t at = r->count[r->chosen[t * used + j]]++;
            r->host_rows[at] = (uint32_t)t;
            r->host_places[t * r->each + j] = (uint32_t)at;
        }
    TSR_TRY(add_shared(e, layer, in, err));
    struct tsr_tensor rows = part_of_row(&r->rows, 0, in->rows * used);
    struct tsr_tensor places = tsr_engine_rows(&r->places, 0, in->rows);
    struct tsr_tensor weights = tsr_engine_rows(&r->weights, 0, in->rows);
    if (in->rows > 1)
        TSR_TRY(tsr_engine_device_upload(e->dev, &rows, r->host_rows, err));
    TSR_TRY(tsr_engine_device_upload(e->dev, &places, r->host_places, err));
    return tsr_engine_device_upload(e->dev, &weights, r->weight, err);
}

/* x through gate and up: func(gate) * up into `inner` of `cols` columns. */
static tsr_status run_gated(struct tsr_engine *e, const struct tsr_engine_linear_dev *gate,
                            const struct tsr_engine_linear_dev *up_of, uint64_t cols,
                            const struct tsr_tensor *x, struct tsr_tensor *inner,
                            struct tsr_err *err)
{
    struct tsr_tensor up = tsr_engine_narrow(&e->up, x->rows, cols);
    *inner = tsr_engine_narrow(&e->gate, x->rows, cols);
    TSR_TRY(tsr_engine_run_linear(e, gate, x, inner, err));
    TSR_TRY(tsr_engine_run_linear(e, up_of, x, &up, err));
    struct tsr_op op = { .kind = TSR_OP_ACT,
                         .out = inner,
                         .in = { inner, &up },
                         .func = e->model->hp.func,
                         .scale = e->model->hp.func_alpha,
                         .softcap = e->model->hp.func_limit };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

/* The same of an expert. */
static tsr_status run_inner(struct tsr_engine *e, uint64_t layer, uint32_t expert,
                            const struct tsr_tensor *x, struct tsr_tensor *inner,
                            struct tsr_err *err)
{
    const struct tsr_engine_linear_dev *lin = e->layers[layer].lin;
    if (e->hooks.input)
        TSR_TRY(
            e->hooks.input(e, layer, tsr_model_expert_site(expert, TSR_MODEL_SITE_FFN_IN), x, err));
    TSR_TRY(run_gated(e, &lin[tsr_model_expert_linear(expert, TSR_MODEL_GATE)],
                      &lin[tsr_model_expert_linear(expert, TSR_MODEL_UP)], e->share.expert, x,
                      inner, err));
    return e->hooks.input
               ? e->hooks.input(e, layer, tsr_model_expert_site(expert, TSR_MODEL_SITE_DOWN_IN),
                                inner, err)
               : TSR_OK;
}

/* One expert over rows [first, end) of the order. */
static tsr_status run_expert(struct tsr_engine *e, uint64_t layer, uint32_t expert, uint64_t first,
                             uint64_t end, const struct tsr_tensor *in, struct tsr_err *err)
{
    struct tsr_engine_routes           *r = e->routes;
    const struct tsr_engine_linear_dev *lin = e->layers[layer].lin;
    uint64_t                            n = end - first;
    struct tsr_tensor                   x = *in, inner;
    if (in->rows > 1) {
        struct tsr_tensor which = part_of_row(&r->rows, first, n);
        x = tsr_engine_rows(&r->in, 0, n);
        struct tsr_op op = { .kind = TSR_OP_GATHER, .out = &x, .in = { in, &which } };
        TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
    }
    struct tsr_tensor said = tsr_engine_rows(&r->said, first, n);
    TSR_TRY(run_inner(e, layer, expert, &x, &inner, err));
    return tsr_engine_run_linear(e, &lin[tsr_model_expert_linear(expert, TSR_MODEL_DOWN)], &inner,
                                 &said, err);
}

/* The shared expert over all rows; its gate and up have the router's input. */
static tsr_status run_shared(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                             struct tsr_err *err)
{
    const struct tsr_engine_linear_dev *lin = e->layers[layer].lin;
    struct tsr_engine_routes           *r = e->routes;
    struct tsr_tensor                   inner;
    if (!e->model->hp.shared_ffn)
        return TSR_OK;
    struct tsr_tensor said =
        tsr_engine_rows(&r->said, in->rows * e->model->hp.experts_used, in->rows);
    TSR_TRY(run_gated(e, &lin[TSR_MODEL_SHARED_GATE], &lin[TSR_MODEL_SHARED_UP], e->share.shared,
                      in, &inner, err));
    if (e->hooks.input)
        TSR_TRY(e->hooks.input(e, layer, TSR_MODEL_SITE_SHARED_DOWN_IN, &inner, err));
    return tsr_engine_run_linear(e, &lin[TSR_MODEL_SHARED_DOWN], &inner, &said, err);
}

tsr_status tsr_engine_experts_run(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                                  const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_engine_routes       *r = e->routes;
    if (e->hooks.input)
        TSR_TRY(e->hooks.input(e, layer, TSR_MODEL_SITE_FFN_IN, in, err));
    TSR_TRY(route(e, layer, in, err));
    for (uint32_t i = 0; i < hp->experts; i++) {
        uint64_t first = i ? r->count[i - 1] : 0, end = r->count[i];
        if (end > first)
            TSR_TRY(run_expert(e, layer, i, first, end, in, err));
    }
    TSR_TRY(run_shared(e, layer, in, err));
    struct tsr_tensor said = tsr_engine_rows(&r->said, 0, in->rows * r->each);
    struct tsr_tensor weights = tsr_engine_rows(&r->weights, 0, in->rows);
    struct tsr_tensor places = tsr_engine_rows(&r->places, 0, in->rows);
    struct tsr_op     op = { .kind = TSR_OP_MIX, .out = out, .in = { &said, &weights, &places } };
    TSR_TRY(tsr_engine_device_run(e->dev, &op, NULL, err));
    for (uint32_t i = 0; e->shown_experts && i < hp->experts; i++) {
        struct tsr_tensor inner;
        if (e->shown_experts[i])
            TSR_TRY(run_inner(e, layer, i, in, &inner, err));
    }
    return e->tp.ranks > 1 ? tsr_engine_sum_over_ranks(e, layer, TSR_MODEL_DOWN, out, err) : TSR_OK;
}
