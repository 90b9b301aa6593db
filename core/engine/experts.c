/* A layer with experts, from the normed input to the weighed sum of what the chosen experts say:
 *
 *   in -> router -> scores, in host memory     route.c: the experts of each token, and their weights
 *   in -> the chosen experts -> rows of `said`                                         experts_run.c
 *   the shared expert, where the layer has one, over all rows likewise; its weight is 1, or the sigmoid of a score
 *   out = the sum over a token's experts of weight * row of `said`, in rising order of the expert, the shared one last
 *
 * A product does not depend on the rows beside it, and the sum has a fixed order: neither batch nor chunk changes a bit.
 * The chosen experts and the sum are on the engine's device or, of some layers, on the host: `in`,
 * rows of the shared expert and `out` cross the border. */
#include "engine/experts.h"
#include "engine/hooks.h"
#include "engine/route.h"
#include "engine/split.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

/* Layers of this engine whose experts are on the host; else on its device. */
static uint64_t count_layers(const struct tsr_engine *e, bool host)
{
    uint64_t n = 0;
    for (uint64_t l = e->first; l < e->end; l++)
        n += tsr_engine_experts_on_host(e, l) == host;
    return n;
}

tsr_status tsr_engine_experts_place(struct tsr_engine *e, const struct tsr_plugin_run_on *on,
                                    struct tsr_err *err)
{
    if (!on->cpu_experts && !on->cpu_experts_of)
        return TSR_OK;
    if (!e->model->hp.experts)
        return tsr_fail(err, TSR_E_CONFIG,
                        "%s: the model has no experts for cpu_experts; leave the key out",
                        e->model->path);
    TSR_TRY(tsr_engine_device_other(e->dev, &e->host, err)); /* NULL: all is there already */
    e->host_experts = on->cpu_experts;
    e->host_experts_of = on->cpu_experts_of;
    uint64_t layers = count_layers(e, true);
    if (layers)
        tsr_logf(TSR_LOG_INFO, "the experts of %llu of the layers %llu to %llu run on %s",
                 (unsigned long long)layers, (unsigned long long)e->first,
                 (unsigned long long)e->end - 1, tsr_engine_device_text(e->host));
    return TSR_OK;
}

struct planned {
    struct tsr_tensor *t;
    uint32_t           dtype;
    uint64_t           rows, cols; /* cols 0: absent */
};

static tsr_status make(struct tsr_engine_device *dev, const struct planned *plan, size_t n,
                       struct tsr_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (plan[i].cols)
            TSR_TRY(tsr_engine_device_tensor(dev, plan[i].dtype, plan[i].rows, plan[i].cols, 0,
                                             "experts", plan[i].t, err));
    return TSR_OK;
}

/* Tensors of experts on a device; on the host, whose layers have no others, also those of their ends. */
static tsr_status make_place(struct tsr_engine *e, struct tsr_engine_device *dev,
                             struct tsr_engine_experts_at *at, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    uint64_t                        pairs = e->chunk * hp->experts_used;
    uint64_t                        each = e->routes->each, hidden = hp->hidden;
    uint64_t cols = tsr_engine_expert_columns(hp->experts_used, e->share.expert, e->chunk);
    bool     host = dev != e->dev;
    at->dev = dev;
    if (!host) {
        at->gate = e->gate;
        at->up = e->up;
    }
    const struct planned plan[] = {
        { &at->rows, TSR_U32, 1, pairs },
        { &at->places, TSR_U32, e->chunk, each },
        { &at->weights, TSR_F32, e->chunk, each },
        { &at->in, TSR_F32, e->chunk, hidden },
        { &at->said, TSR_F32, e->chunk * each * (e->split.ranks ? e->split.ranks : 1), hidden },
        { &at->zero, TSR_F32, 1, e->share.whole_experts ? hidden : 0 },
        { &at->zeros, TSR_U32, 1, e->share.whole_experts ? pairs : 0 },
        { &at->gate, TSR_F32, e->chunk, host ? cols : 0 },
        { &at->up, TSR_F32, e->chunk, host ? cols : 0 },
        { &at->x, TSR_F32, e->chunk, host ? hidden : 0 },
        { &at->out, TSR_F32, e->chunk, host ? hidden : 0 },
    };
    return make(dev, plan, sizeof plan / sizeof *plan, err);
}

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
    r->products = tsr_new(UINT64_C(2) * hp->experts, sizeof *r->products);
    r->border =
        count_layers(e, true) ? tsr_new_aligned(e->chunk, hp->hidden * sizeof *r->border) : NULL;
    if (!r->chosen || !r->weight || !r->scores || !r->scratch || !r->shared || !r->count ||
        !r->host_rows || !r->host_places || !r->products || (count_layers(e, true) && !r->border))
        return tsr_fail_nomem(err, e->chunk * hp->experts * sizeof *r->scores, "routes");
    const struct planned plan[] = {
        { &r->score, TSR_F32, e->chunk, hp->experts },
        { &r->shared_score, TSR_F32, e->chunk, hp->shared_gated ? 1 : 0 },
        { &r->shared_said, TSR_F32, e->chunk * (e->split.ranks ? e->split.ranks : 1),
          r->border && hp->shared_ffn ? hp->hidden : 0 },
    };
    TSR_TRY(make(e->dev, plan, sizeof plan / sizeof *plan, err));
    if (count_layers(e, false))
        TSR_TRY(make_place(e, e->dev, &r->own, err));
    return count_layers(e, true) ? make_place(e, e->host, &r->host, err) : TSR_OK;
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
    free(r->products);
    free(r->border);
    free(r);
    e->routes = NULL;
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
    return tsr_engine_compensate_routes(e, layer, r->host_rows, r->count, err);
}

/* The routing of n tokens, to where the experts run. */
static tsr_status send_routes(struct tsr_engine *e, const struct tsr_engine_experts_at *at,
                              uint64_t n, struct tsr_err *err)
{
    const struct tsr_engine_routes *r = e->routes;
    struct tsr_tensor rows = tsr_engine_part_of_row(&at->rows, 0, n * e->model->hp.experts_used);
    struct tsr_tensor places = tsr_engine_rows(&at->places, 0, n);
    struct tsr_tensor weights = tsr_engine_rows(&at->weights, 0, n);
    if (n > 1)
        TSR_TRY(tsr_engine_device_upload(at->dev, &rows, r->host_rows, err));
    TSR_TRY(tsr_engine_device_upload(at->dev, &places, r->host_places, err));
    return tsr_engine_device_upload(at->dev, &weights, r->weight, err);
}

/* What the experts said of each token, weighed and added; of simulated ranks one after the other. */
static tsr_status mix(struct tsr_engine *e, uint64_t layer, const struct tsr_engine_experts_at *at,
                      const struct tsr_tensor *out, struct tsr_err *err)
{
    uint64_t          n = out->rows * e->routes->each;
    struct tsr_tensor weights = tsr_engine_rows(&at->weights, 0, out->rows);
    struct tsr_tensor places = tsr_engine_rows(&at->places, 0, out->rows);
    for (uint32_t k = 0; k == 0 || k < e->split.ranks; k++) {
        struct tsr_tensor said = tsr_engine_rows(&at->said, k * n, n);
        struct tsr_op op = { .kind = TSR_OP_MIX, .out = out, .in = { &said, &weights, &places } };
        TSR_TRY(tsr_engine_device_run(at->dev, &op, NULL, err));
        if (e->split.ranks)
            TSR_TRY(tsr_engine_split_keep(e, at->dev, k, out, err));
    }
    return e->split.ranks ? tsr_engine_split_sum(e, at->dev, layer, TSR_MODEL_DOWN, out, err)
                          : TSR_OK;
}

/* Of whole experts: rows of `said` of experts that other ranks have are zeros here, and the sum over ranks fills them
 * in.  Each then is what one rank computed, so that MIX is that of one engine, to the bit.  The shared expert's rows are
 * added up with them, if that has not been done: experts_run.c. */
static tsr_status fill_in(struct tsr_engine *e, uint64_t layer,
                          const struct tsr_engine_experts_at *at, uint64_t n, struct tsr_err *err)
{
    const struct tsr_engine_routes *r = e->routes;
    uint64_t                        all = n * e->model->hp.experts_used;
    uint64_t                        rows = tsr_engine_experts_shared_apart(e) ? all : n * r->each;
    uint64_t                        first = tsr_engine_experts_first(r, e->share.first_expert);
    uint64_t       end = tsr_engine_experts_first(r, e->share.first_expert + e->share.n_experts);
    const uint64_t others[2][2] = { { 0, first }, { end, all } };
    if (!e->share.whole_experts)
        return TSR_OK;
    for (int i = 0; i < 2; i++) {
        uint64_t          some = others[i][1] - others[i][0];
        struct tsr_tensor out = tsr_engine_rows(&at->said, others[i][0], some);
        struct tsr_tensor zeros = tsr_engine_part_of_row(&at->zeros, 0, some);
        struct tsr_op     op = { .kind = TSR_OP_GATHER, .out = &out, .in = { &at->zero, &zeros } };
        if (some)
            TSR_TRY(tsr_engine_device_run(at->dev, &op, NULL, err));
    }
    for (uint64_t at_row = 0, some; at_row < rows; at_row += some) {
        some = rows - at_row < e->chunk ? rows - at_row : e->chunk;
        struct tsr_tensor said = tsr_engine_rows(&at->said, at_row, some);
        TSR_TRY(tsr_engine_sum_over_ranks(e, at->dev, layer, TSR_MODEL_DOWN, &said, err));
    }
    return TSR_OK;
}

/* The shared expert's rows of `said`, of n tokens; of a simulated rank, or of the only one. */
static struct tsr_tensor shared_rows(const struct tsr_engine            *e,
                                     const struct tsr_engine_experts_at *at, uint32_t rank,
                                     uint64_t n)
{
    return tsr_engine_rows(&at->said, n * (rank * e->routes->each + e->model->hp.experts_used), n);
}

static tsr_status run_here(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                           const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_engine_experts_at *at = &e->routes->own;
    TSR_TRY(send_routes(e, at, in->rows, err));
    TSR_TRY(tsr_engine_experts_run_chosen(e, layer, at, in, err));
    if (e->model->hp.shared_ffn) {
        struct tsr_tensor said = shared_rows(e, at, 0, in->rows);
        TSR_TRY(
            tsr_engine_experts_run_shared(e, layer, in, &said, in->rows * e->routes->each, err));
    }
    TSR_TRY(fill_in(e, layer, at, in->rows, err));
    return mix(e, layer, at, out, err);
}

/* Rows of one device to another, through host memory. */
static tsr_status carry(struct tsr_engine *e, struct tsr_engine_device *from,
                        const struct tsr_tensor *src, struct tsr_engine_device *to,
                        const struct tsr_tensor *dst, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_sync(from, err));
    TSR_TRY(tsr_engine_device_download(from, src, e->routes->border, err));
    return tsr_engine_device_upload(to, dst, e->routes->border, err);
}

/* The shared expert is queued on the device first and computes there meanwhile. */
static tsr_status run_on_host(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                              const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_engine_experts_at *at = &e->routes->host;
    struct tsr_tensor                   x = tsr_engine_rows(&at->x, 0, in->rows),
                      sum = tsr_engine_rows(&at->out, 0, in->rows);
    struct tsr_tensor shared = tsr_engine_rows(&e->routes->shared_said, 0, in->rows);
    TSR_TRY(send_routes(e, at, in->rows, err));
    TSR_TRY(carry(e, e->dev, in, at->dev, &x, err));
    if (e->model->hp.shared_ffn)
        TSR_TRY(tsr_engine_experts_run_shared(e, layer, in, &shared, in->rows, err));
    TSR_TRY(tsr_engine_experts_run_chosen(e, layer, at, &x, err));
    for (uint32_t k = 0; e->model->hp.shared_ffn && (k == 0 || k < e->split.ranks); k++) {
        struct tsr_tensor said = shared_rows(e, at, k, in->rows);
        shared = tsr_engine_rows(&e->routes->shared_said, k * in->rows, in->rows);
        TSR_TRY(carry(e, e->dev, &shared, at->dev, &said, err));
    }
    TSR_TRY(fill_in(e, layer, at, in->rows, err));
    TSR_TRY(mix(e, layer, at, &sum, err));
    return carry(e, at->dev, &sum, e->dev, out, err);
}

tsr_status tsr_engine_experts_run(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *in,
                                  const struct tsr_tensor *out, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    bool                            host = tsr_engine_experts_on_host(e, layer);
    if (e->hooks.input)
        TSR_TRY(e->hooks.input(e, layer, TSR_MODEL_SITE_FFN_IN, in, err));
    TSR_TRY(route(e, layer, in, err));
    TSR_TRY(host ? run_on_host(e, layer, in, out, err) : run_here(e, layer, in, out, err));
    for (uint32_t i = 0; e->shown_experts && i < hp->experts; i++)
        if (e->shown_experts[i])
            TSR_TRY(tsr_engine_experts_show(e, layer, i, in, err));
    return e->tp.ranks > 1 && !e->share.whole_experts
               ? tsr_engine_sum_over_ranks(e, e->dev, layer, TSR_MODEL_DOWN, out, err)
               : TSR_OK;
}
