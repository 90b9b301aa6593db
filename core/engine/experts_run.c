/* The products of experts.  Rows of a chunk lie by expert, and as many experts as fit go together:
 *
 *   their rows of x -> `in` -> gate, up of each -> func(gate) * up of all rows, transformed -> down of each -> rows of `said`
 *
 * The products of a line need nothing of each other: a device may run them in one call. */
#include "engine/experts.h"
#include "engine/hooks.h"
#include "engine/online.h"
#include "engine/split.h"

/* The input of a linear of an expert, for who observes it. */
static tsr_status show(struct tsr_engine *e, struct tsr_engine_device *dev, uint64_t layer,
                       enum tsr_site site, const struct tsr_tensor *in, struct tsr_err *err)
{
    if (!e->hooks.input)
        return TSR_OK;
    e->tap_dev = dev;
    tsr_status st = e->hooks.input(e, layer, site, in, err);
    e->tap_dev = e->dev;
    return st;
}

/* gate = func(gate) * up, transformed if the site is */
static tsr_status act(struct tsr_engine *e, struct tsr_engine_device *dev, uint64_t layer,
                      enum tsr_engine_online_site site, struct tsr_tensor *gate,
                      const struct tsr_tensor *up, struct tsr_err *err)
{
    struct tsr_op op = tsr_engine_act_op(e, gate, up);
    TSR_TRY(tsr_engine_device_run(dev, &op, NULL, err));
    return tsr_engine_online_run(e, dev, layer, site, gate, err);
}

/* Experts [begin, end), whose rows in the order are [first, upto). */
struct group {
    uint32_t begin, end;
    uint64_t first, upto;
};

/* The experts from `begin`, of this rank's, whose rows fit into `room`; begin == end: none is left. */
static struct group next_group(const struct tsr_engine *e, uint32_t begin, uint64_t room)
{
    const struct tsr_engine_routes *r = e->routes;
    uint32_t                        own = e->share.first_expert + e->share.n_experts;
    struct group                    g = { .begin = begin, .end = begin };
    g.first = g.upto = tsr_engine_experts_first(r, begin);
    while (g.end < own && r->count[g.end] - g.first <= room)
        g.upto = r->count[g.end++];
    return g;
}

/* Expert i's rows of a tensor that has those of the group. */
static struct tsr_tensor rows_of(const struct tsr_engine_routes *r, const struct group *g,
                                 uint32_t i, const struct tsr_tensor *t)
{
    uint64_t first = tsr_engine_experts_first(r, i);
    return tsr_engine_rows(t, first - g->first, r->count[i] - first);
}

/* in, and the rows of it that the group takes; one token is the row of all. */
static tsr_status gather(const struct tsr_engine_experts_at *at, const struct group *g,
                         const struct tsr_tensor *x, struct tsr_tensor *in, struct tsr_err *err)
{
    struct tsr_tensor which = tsr_engine_part_of_row(&at->rows, g->first, g->upto - g->first);
    struct tsr_op     op = { .kind = TSR_OP_GATHER, .out = in, .in = { x, &which } };
    *in = *x;
    if (x->rows == 1)
        return TSR_OK;
    *in = tsr_engine_rows(&at->in, 0, g->upto - g->first);
    return tsr_engine_device_run(at->dev, &op, NULL, err);
}

/* One expert's rows in the group, of the layer's input. */
static tsr_status compensated(struct tsr_engine *e, uint64_t layer, uint32_t expert,
                              enum tsr_site kind, const struct tsr_tensor *in,
                              const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    const struct tsr_engine_routes *r = e->routes;
    uint64_t                        first = tsr_engine_experts_first(r, expert);
    tsr_engine_compensate_expert(e, layer, expert, r->host_rows + first, r->count[expert] - first);
    return tsr_engine_run_site(e, layer, tsr_model_expert_site(expert, kind), in, outs, err);
}

/* A linear's columns that each simulated rank has: of the first into `said`, of the others `apart` rows behind the one
 * before. */
static tsr_status run_parts(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                            const struct tsr_tensor *in, const struct tsr_tensor *said,
                            uint64_t apart, struct tsr_err *err)
{
    for (uint32_t k = 0; k < e->split.ranks; k++) {
        struct tsr_tensor own = tsr_engine_rows(said, k * apart, in->rows);
        TSR_TRY(tsr_engine_split_part(e, &e->layers[layer].lin[id], k, in, &own, err));
    }
    return TSR_OK;
}

/* gate and up of the group's experts; with compensation one expert after the other. */
static tsr_status run_gates(struct tsr_engine *e, uint64_t layer,
                            const struct tsr_engine_experts_at *at, const struct group *g,
                            const struct tsr_tensor *x, const struct tsr_tensor *gate,
                            const struct tsr_tensor *up, struct tsr_err *err)
{
    struct tsr_engine_routes           *r = e->routes;
    const struct tsr_engine_linear_dev *lin = e->layers[layer].lin;
    uint64_t                            n = 0;
    struct tsr_tensor                   in;
    TSR_TRY(gather(at, g, x, &in, err));
    for (uint32_t i = g->begin; i < g->end; i++) {
        struct tsr_tensor own = x->rows == 1 ? *x : rows_of(r, g, i, &in);
        struct tsr_tensor own_gate = rows_of(r, g, i, gate), own_up = rows_of(r, g, i, up);
        if (own_gate.rows == 0)
            continue;
        TSR_TRY(
            show(e, at->dev, layer, tsr_model_expert_site(i, TSR_MODEL_SITE_FFN_IN), &own, err));
        if (e->hooks.outputs) {
            const struct tsr_tensor *outs[] = { &own_gate, &own_up };
            TSR_TRY(compensated(e, layer, i, TSR_MODEL_SITE_FFN_IN, &own, outs, err));
            continue;
        }
        r->products[n++] =
            (struct tsr_engine_product){ &lin[tsr_model_expert_linear(i, TSR_MODEL_GATE)], own,
                                         own_gate };
        r->products[n++] =
            (struct tsr_engine_product){ &lin[tsr_model_expert_linear(i, TSR_MODEL_UP)], own,
                                         own_up };
    }
    return tsr_engine_run_products(e, r->products, n, err);
}

static tsr_status run_group(struct tsr_engine *e, uint64_t layer,
                            const struct tsr_engine_experts_at *at, const struct group *g,
                            const struct tsr_tensor *x, struct tsr_err *err)
{
    struct tsr_engine_routes *r = e->routes;
    uint64_t                  n = 0, rows = g->upto - g->first;
    struct tsr_tensor         gate = tsr_engine_narrow(&at->gate, rows, e->share.expert),
                      up = tsr_engine_narrow(&at->up, rows, e->share.expert),
                      said = tsr_engine_rows(&at->said, g->first, rows);
    TSR_TRY(run_gates(e, layer, at, g, x, &gate, &up, err));
    TSR_TRY(act(e, at->dev, layer, TSR_ENGINE_ONLINE_EXPERT, &gate, &up, err));
    for (uint32_t i = g->begin; i < g->end; i++) {
        struct tsr_tensor  own = rows_of(r, g, i, &gate), into = rows_of(r, g, i, &said);
        enum tsr_linear_id id = tsr_model_expert_linear(i, TSR_MODEL_DOWN);
        if (own.rows == 0)
            continue;
        TSR_TRY(
            show(e, at->dev, layer, tsr_model_expert_site(i, TSR_MODEL_SITE_DOWN_IN), &own, err));
        if (e->split.ranks) {
            TSR_TRY(run_parts(e, layer, id, &own, &into, x->rows * r->each, err));
        } else if (e->hooks.outputs) {
            const struct tsr_tensor *out = &into;
            TSR_TRY(compensated(e, layer, i, TSR_MODEL_SITE_DOWN_IN, &own, &out, err));
        } else {
            r->products[n++] = (struct tsr_engine_product){ &e->layers[layer].lin[id], own, into };
        }
    }
    return tsr_engine_run_products(e, r->products, n, err);
}

tsr_status tsr_engine_experts_run_chosen(struct tsr_engine *e, uint64_t layer,
                                         const struct tsr_engine_experts_at *at,
                                         const struct tsr_tensor *x, struct tsr_err *err)
{
    uint64_t     room = x->rows == 1 ? UINT64_MAX : e->chunk;
    struct group g = next_group(e, e->share.first_expert, room);
    bool         done;
    TSR_TRY(tsr_engine_experts_run_token(e, layer, at, x, &done, err));
    for (; !done && g.end > g.begin; g = next_group(e, g.end, room))
        if (g.upto > g.first)
            TSR_TRY(run_group(e, layer, at, &g, x, err));
    tsr_engine_compensate_expert(e, layer, 0, NULL,
                                 0); /* what follows has the rows of all tokens again */
    return TSR_OK;
}

/* x through gate and up of a site, FFN_IN for the shared expert's: func(gate) * up into `inner` of `cols` columns. */
static tsr_status run_gated(struct tsr_engine *e, uint64_t layer, enum tsr_site site, uint64_t cols,
                            const struct tsr_tensor *x, struct tsr_tensor *inner,
                            struct tsr_err *err)
{
    struct tsr_tensor        up = tsr_engine_narrow(&e->up, x->rows, cols);
    const struct tsr_tensor *both[] = { inner, &up };
    *inner = tsr_engine_narrow(&e->gate, x->rows, cols);
    TSR_TRY(tsr_engine_run_site(e, layer, site, x, both, err));
    return act(e, e->dev, layer,
               site == TSR_MODEL_SITE_FFN_IN ? TSR_ENGINE_ONLINE_SHARED : TSR_ENGINE_ONLINE_EXPERT,
               inner, &up, err);
}

tsr_status tsr_engine_experts_run_shared(struct tsr_engine *e, uint64_t layer,
                                         const struct tsr_tensor *x, const struct tsr_tensor *said,
                                         uint64_t apart, struct tsr_err *err)
{
    const enum tsr_site site = TSR_MODEL_SITE_SHARED_DOWN_IN;
    struct tsr_tensor   inner;
    TSR_TRY(run_gated(e, layer, TSR_MODEL_SITE_FFN_IN, e->share.shared, x, &inner, err));
    TSR_TRY(show(e, e->dev, layer, site, &inner, err));
    if (tsr_engine_experts_shared_apart(e)) {
        TSR_TRY(tsr_engine_run_linear(e, &e->layers[layer].lin[TSR_MODEL_SHARED_DOWN], &inner, said,
                                      err));
        TSR_TRY(tsr_engine_sum_over_ranks(e, e->dev, layer, TSR_MODEL_DOWN, said, err));
        return tsr_engine_compensate_site(e, layer, site, &inner, &said, err);
    }
    return e->split.ranks ? run_parts(e, layer, TSR_MODEL_SHARED_DOWN, &inner, said, apart, err)
                          : tsr_engine_run_site(e, layer, site, &inner, &said, err);
}

tsr_status tsr_engine_experts_show(struct tsr_engine *e, uint64_t layer, uint32_t expert,
                                   const struct tsr_tensor *x, struct tsr_err *err)
{
    enum tsr_site     site = tsr_model_expert_site(expert, TSR_MODEL_SITE_FFN_IN);
    struct tsr_tensor inner;
    TSR_TRY(show(e, e->dev, layer, site, x, err));
    TSR_TRY(run_gated(e, layer, site, e->share.expert, x, &inner, err));
    return show(e, e->dev, layer, tsr_model_expert_site(expert, TSR_MODEL_SITE_DOWN_IN), &inner,
                err);
}
