/* Compensation of one site: adds to the outputs of its linears. */
#include "engine/compensator.h"

#include "base/mem.h"
#include "compensate/compensation.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_engine_compensate_chunk(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                       uint64_t n, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    if (!c || !c->any)
        return TSR_OK;
    uint64_t taken = 0;
    for (uint64_t i = 0; i < n; i++) {
        bool with = c->use.all || tokens[i].decode;
        if (c->taken)
            c->taken[i] = with;
        if (with)
            c->at[taken++] = (uint32_t)i;
    }
    c->chunk = (struct tsr_engine_comp_rows){
        .n = taken, .full = taken == n, .at = c->at, .on = tsr_engine_narrow(&c->own.rows, 1, taken)
    };
    c->now = c->chunk;
    c->done.tokens += taken;
    if (taken > c->most)
        TSR_TRY(tsr_engine_compensate_room(e, taken, err));
    if (taken == 0 || c->chunk.full || c->own.dev != c->own.data)
        return TSR_OK;
    return tsr_engine_device_upload(c->own.dev, &c->chunk.on, c->at, err);
}

/* Of every expert's rows those whose tokens are compensated. */
tsr_status tsr_engine_compensate_routes(struct tsr_engine *e, uint64_t layer,
                                        const uint32_t *tokens, const uint64_t *end,
                                        struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    uint64_t                       n = 0, experts = e->model->hp.experts;
    if (!c || !c->any || c->chunk.n == 0 || c->chunk.full)
        return TSR_OK;
    const struct tsr_engine_comp_place *p = tsr_engine_comp_place(e, layer, TSR_MODEL_SITE_EXPERTS);
    for (uint64_t i = 0, row = 0; i < experts; i++) {
        for (uint64_t first = row; row < end[i]; row++)
            if (c->taken[tokens[row]])
                c->expert_at[n++] = (uint32_t)(row - first);
        c->expert_end[i] = n;
    }
    struct tsr_tensor all = tsr_engine_narrow(&p->expert_rows, 1, n);
    return n && p->dev == p->data ? tsr_engine_device_upload(p->dev, &all, c->expert_at, err)
                                  : TSR_OK;
}

void tsr_engine_compensate_expert(struct tsr_engine *e, uint64_t layer, uint32_t expert,
                                  const uint32_t *tokens, uint64_t n)
{
    struct tsr_engine_compensator *c = e->comp;
    if (!c || !c->any)
        return;
    c->now = c->chunk;
    if (!tokens || c->chunk.n == 0)
        return;
    c->now.tokens = tokens;
    if (c->chunk.full) { /* the rows' numbers are those of as many tokens */
        c->now.n = n;
    } else {
        uint64_t from = expert ? c->expert_end[expert - 1] : 0;
        c->now.n = c->expert_end[expert] - from;
        c->now.full = c->now.n == n;
        c->now.at = c->expert_at + from;
        c->now.on =
            tsr_engine_narrow(&tsr_engine_comp_place(e, layer, TSR_MODEL_SITE_EXPERTS)->expert_rows,
                              1, c->now.n);
        c->now.on.offset += from * sizeof *c->expert_at;
    }
}

tsr_status tsr_engine_comp_down(struct tsr_engine *e, const struct tsr_tensor *t, float *to,
                                struct tsr_err *err)
{
    struct tsr_engine_device *dev = e->comp->here->data;
    TSR_TRY(tsr_engine_device_sync(dev, err));
    for (uint64_t i = 0; i < e->comp->now.n; i++) {
        struct tsr_tensor row = tsr_engine_rows(t, e->comp->now.at[i], 1);
        row.row_stride = t->cols * sizeof *to;
        TSR_TRY(tsr_engine_device_download(dev, &row, to + i * t->cols, err));
    }
    return TSR_OK;
}

/* Back to their places. */
static tsr_status rows_up(struct tsr_engine *e, const struct tsr_tensor *t, const float *from,
                          struct tsr_err *err)
{
    for (uint64_t i = 0; i < e->comp->now.n; i++) {
        struct tsr_tensor row = tsr_engine_rows(t, e->comp->now.at[i], 1);
        row.row_stride = t->cols * sizeof *from;
        TSR_TRY(tsr_engine_device_upload(e->comp->here->data, &row, from + i * t->cols, err));
    }
    return TSR_OK;
}

/* ---- adding the compensation ---- */

tsr_status tsr_engine_comp_add(struct tsr_engine_compensator     *c,
                               const struct tsr_engine_comp_site *s, const struct tsr_tensor *x,
                               const struct tsr_tensor *rows, const struct tsr_tensor *const *outs,
                               struct tsr_err *err)
{
    struct tsr_tensor        list = tsr_engine_comp_lists(c, s);
    struct tsr_compensate_op op = { .struct_size = sizeof op,
                                    .n = (uint32_t)s->n,
                                    .x = x,
                                    .rows = rows,
                                    .list = &list,
                                    .blocks = s->blocks };
    for (uint64_t j = 0; j < s->n; j++) {
        op.residual[j] = s->residual[j];
        op.out[j] = outs[s->which[j]];
    }
    return c->here->table->compensate(c->here->dev->self, NULL, &op, err);
}

/* The device compensates itself. */
static tsr_status run_here(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                           const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                           struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    const struct tsr_tensor       *rows = c->now.full ? NULL : &c->now.on;
    if (c->use.recall || c->use.select == TSR_COMPENSATE_SELECT_EXACT)
        TSR_TRY(tsr_engine_comp_down(e, in, c->x, err));
    TSR_TRY(tsr_engine_comp_select(e, s, in, rows, err));
    return tsr_engine_comp_add(c, s, in, rows, outs, err);
}

/* A dense tensor of n rows on c->here->dev with these values; to be dropped. */
static tsr_status stage(struct tsr_engine_compensator *c, const float *v, uint64_t cols,
                        struct tsr_tensor *t, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_tensor(c->here->dev, TSR_F32, c->now.n, cols, 0,
                                     "staged compensation", t, err));
    return tsr_engine_device_upload(c->here->dev, t, v, err);
}

/* The default device compensates: rows go there and back. */
static tsr_status run_staged(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                             const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                             struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              x = { 0 }, out[TSR_COMPENSATE_LINEARS] = { { 0 } };
    const struct tsr_tensor       *there[TSR_COMPENSATE_LINEARS] = { NULL };
    TSR_TRY(tsr_engine_comp_down(e, in, c->x, err));
    tsr_status st = stage(c, c->x, in->cols, &x, err);
    if (st == TSR_OK)
        st = tsr_engine_comp_select(e, s, &x, NULL, err);
    for (uint64_t j = 0; j < s->n && st == TSR_OK; j++) {
        const struct tsr_tensor *o = outs[s->which[j]];
        float                   *v = tsr_new_aligned(c->now.n, o->cols * sizeof *v);
        if (!v)
            st = tsr_fail_nomem(err, c->now.n * o->cols * sizeof *v, "staged compensation");
        if (st == TSR_OK)
            st = tsr_engine_comp_down(e, o, v, err);
        if (st == TSR_OK)
            st = stage(c, v, o->cols, &out[j], err);
        there[s->which[j]] = &out[j];
        free(v);
    }
    if (st == TSR_OK)
        st = tsr_engine_comp_add(c, s, &x, NULL, there, err);
    if (st == TSR_OK)
        st = tsr_engine_device_sync(c->here->dev, err);
    for (uint64_t j = 0; j < s->n && st == TSR_OK; j++) {
        const struct tsr_tensor *o = outs[s->which[j]];
        float                   *v = tsr_new_aligned(c->now.n, o->cols * sizeof *v);
        if (!v)
            st = tsr_fail_nomem(err, c->now.n * o->cols * sizeof *v, "staged compensation");
        if (st == TSR_OK)
            st = tsr_engine_device_download(c->here->dev, &out[j], v, err);
        if (st == TSR_OK)
            st = rows_up(e, o, v, err);
        free(v);
    }
    tsr_engine_device_drop_tensor(c->here->dev, &x);
    for (uint64_t j = 0; j < s->n; j++)
        tsr_engine_device_drop_tensor(c->here->dev, &out[j]);
    return st;
}

tsr_status tsr_engine_comp_run(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                               const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                               struct tsr_err *err)
{
    const struct tsr_engine_comp_place *here = e->comp->here;
    return here->dev == here->data ? run_here(e, s, in, outs, err)
                                   : run_staged(e, s, in, outs, err);
}
