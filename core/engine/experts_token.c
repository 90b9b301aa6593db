/* One token through the experts that it takes, in one call where the device has that: a device can begin with the next
 * expert's gate and up before the last one's down. */
#include "engine/experts.h"
#include "engine/hooks.h"
#include "engine/online.h"

#define TOGETHER 32u /* experts of a call */

struct one {
    struct tsr_tensor gate, up, said;
    struct tsr_op     op[4];
};

/* The operations of one expert; false: the device does not read one of its weights, or in another order of columns. */
static bool list_one(const struct tsr_engine *e, uint64_t layer, uint32_t expert,
                     const struct tsr_tensor *x, struct one *o, struct tsr_gated_op *g)
{
    static const enum tsr_linear_id     ids[] = { TSR_MODEL_GATE, TSR_MODEL_UP, TSR_MODEL_DOWN };
    const struct tsr_engine_linear_dev *lin[3];
    for (int i = 0; i < 3; i++) {
        lin[i] = &e->layers[layer].lin[tsr_model_expert_linear(expert, ids[i])];
        if (!lin[i]->w || !lin[i]->w->handle || lin[i]->order.buffer)
            return false;
    }
    o->op[0] = tsr_engine_linear_op(lin[0], x, &o->gate);
    o->op[1] = tsr_engine_linear_op(lin[1], x, &o->up);
    o->op[2] = tsr_engine_act_op(e, &o->gate, &o->up);
    o->op[3] = tsr_engine_linear_op(lin[2], &o->gate, &o->said);
    *g = (struct tsr_gated_op){ .struct_size = sizeof *g,
                                .gate = &o->op[0],
                                .up = &o->op[1],
                                .act = &o->op[2],
                                .down = &o->op[3] };
    return true;
}

static tsr_status run_listed(struct tsr_engine *e, struct tsr_engine_device *dev,
                             const struct tsr_backend_linears_v1 *table,
                             const struct tsr_gated_op *g, uint32_t n, bool *done,
                             struct tsr_err *err)
{
    if (e->on_layer)
        e->on_layer(e->layer_ctx, e->at_layer, false);
    tsr_status st = table->gated(dev->self, NULL, g, n, err);
    *done = st != TSR_E_UNSUPPORTED;
    return *done ? st : TSR_OK;
}

tsr_status tsr_engine_experts_run_token(struct tsr_engine *e, uint64_t layer,
                                        const struct tsr_engine_experts_at *at,
                                        const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    const struct tsr_backend_linears_v1 *table = tsr_engine_products_table(at->dev);
    const struct tsr_engine_routes      *r = e->routes;
    struct one                           one[TOGETHER];
    struct tsr_gated_op                  g[TOGETHER];
    uint32_t                             n = 0, own = e->share.first_expert + e->share.n_experts;
    *done = false;
    if (x->rows != 1 || e->hooks.input || e->hooks.outputs || e->split.ranks || !table ||
        tsr_engine_online_has(e, layer, TSR_ENGINE_ONLINE_EXPERT) ||
        !TSR_HAS(struct tsr_backend_linears_v1, table, gated))
        return TSR_OK;
    uint64_t base = tsr_engine_experts_first(r, e->share.first_expert);
    for (uint32_t i = e->share.first_expert; i < own; i++) {
        uint64_t row = tsr_engine_experts_first(r, i);
        if (r->count[i] == row)
            continue;
        if (n == TOGETHER)
            return TSR_OK;
        struct tsr_tensor gate = tsr_engine_rows(&at->gate, row - base, 1),
                          up = tsr_engine_rows(&at->up, row - base, 1);
        one[n].gate = tsr_engine_narrow(&gate, 1, e->share.expert);
        one[n].up = tsr_engine_narrow(&up, 1, e->share.expert);
        one[n].said = tsr_engine_rows(&at->said, row, 1);
        if (!list_one(e, layer, i, x, &one[n], &g[n]))
            return TSR_OK;
        n++;
    }
    return n ? run_listed(e, at->dev, table, g, n, done, err) : TSR_OK;
}
