/* Compensation of one site: selects channels, then adds to the outputs of its linears. */
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
        .n = taken, .full = taken == n, .at = c->at, .on = tsr_engine_narrow(&c->rows, 1, taken)
    };
    c->now = c->chunk;
    c->done.tokens += taken;
    if (taken > c->most)
        TSR_TRY(tsr_engine_compensate_room(e, taken, err));
    if (taken == 0 || c->chunk.full || c->dev != e->dev)
        return TSR_OK;
    return tsr_engine_device_upload(e->dev, &c->chunk.on, c->at, err);
}

/* Of every expert's rows those whose tokens are compensated. */
tsr_status tsr_engine_compensate_routes(struct tsr_engine *e, const uint32_t *tokens,
                                        const uint64_t *end, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    uint64_t                       n = 0, experts = e->model->hp.experts;
    if (!c || !c->any || c->chunk.n == 0 || c->chunk.full)
        return TSR_OK;
    for (uint64_t i = 0, row = 0; i < experts; i++) {
        for (uint64_t first = row; row < end[i]; row++)
            if (c->taken[tokens[row]])
                c->expert_at[n++] = (uint32_t)(row - first);
        c->expert_end[i] = n;
    }
    struct tsr_tensor all = tsr_engine_narrow(&c->expert_rows, 1, n);
    return n && c->dev == e->dev ? tsr_engine_device_upload(e->dev, &all, c->expert_at, err)
                                 : TSR_OK;
}

void tsr_engine_compensate_expert(struct tsr_engine *e, uint32_t expert, const uint32_t *tokens,
                                  uint64_t n)
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
        c->now.on = tsr_engine_narrow(&c->expert_rows, 1, c->now.n);
        c->now.on.offset += from * sizeof *c->expert_at;
    }
}

/* Rows of a tensor of e's device that are compensated, dense, to host memory or back. */
static tsr_status rows_down(struct tsr_engine *e, const struct tsr_tensor *t, float *to,
                            struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    for (uint64_t i = 0; i < e->comp->now.n; i++) {
        struct tsr_tensor row = tsr_engine_rows(t, e->comp->now.at[i], 1);
        row.row_stride = t->cols * sizeof *to;
        TSR_TRY(tsr_engine_device_download(e->dev, &row, to + i * t->cols, err));
    }
    return TSR_OK;
}

static tsr_status rows_up(struct tsr_engine *e, const struct tsr_tensor *t, const float *from,
                          struct tsr_err *err)
{
    for (uint64_t i = 0; i < e->comp->now.n; i++) {
        struct tsr_tensor row = tsr_engine_rows(t, e->comp->now.at[i], 1);
        row.row_stride = t->cols * sizeof *from;
        TSR_TRY(tsr_engine_device_upload(e->dev, &row, from + i * t->cols, err));
    }
    return TSR_OK;
}

/* ---- which channels ----------------------------------------------------------------------------- */

static struct tsr_tensor lists_of(const struct tsr_engine_compensator *c, uint64_t count)
{
    struct tsr_tensor t = c->list;
    t.rows = c->now.n;
    t.cols = 1 + count;
    t.row_stride = t.cols * sizeof(uint32_t);
    return t;
}

/* Of a compensated row. */
static uint64_t position_of(const struct tsr_engine *e, uint64_t i)
{
    const struct tsr_engine_comp_rows *now = &e->comp->now;
    uint64_t                           row = now->at[i];
    uint32_t                           spans[2];
    row = now->tokens ? now->tokens[row] : row;
    memcpy(spans,
           e->feed.host + e->feed.spans[TSR_ENGINE_CACHE_CONTEXT].offset + row * sizeof spans,
           sizeof spans);
    return spans[1];
}

/* Lists created by the host, into c->lists; c->x has the inputs if they are needed. */
static void host_lists(struct tsr_engine *e, const struct tsr_engine_comp_site *s)
{
    struct tsr_engine_compensator *c = e->comp;
    for (uint64_t i = 0; i < c->now.n; i++) {
        uint32_t *list = c->lists + i * (1 + s->count);
        if (s->fixed)
            memcpy(list, s->fixed, (1 + s->count) * sizeof *list);
        else if (c->use.select == TSR_COMPENSATE_SELECT_RANDOM)
            tsr_compensate_select_random(c->use.seed, s->number, position_of(e, i), s->channels,
                                         s->count, list);
        else
            tsr_compensate_select_exact(c->x + i * s->channels, s->channels, s->count, list,
                                        c->scratch);
    }
}

static void count_recall(struct tsr_engine_compensator *c, const struct tsr_engine_comp_site *s)
{
    for (uint64_t i = 0; i < c->now.n; i++) {
        tsr_compensate_select_exact(c->x + i * s->channels, s->channels, s->count, c->exact,
                                    c->scratch);
        c->done.exact += c->exact[0];
        c->done.common += tsr_compensate_select_common(c->lists + i * (1 + s->count), c->exact);
    }
}

/* x: the whole input on c->dev, rows NULL: all of its rows; c->x contains it if host_x. */
static tsr_status select_channels(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                                  const struct tsr_tensor *x, const struct tsr_tensor *rows,
                                  struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              list = lists_of(c, s->count);
    c->done.selected += c->now.n * s->count;
    if (c->use.select != TSR_COMPENSATE_SELECT_DYNAMIC) {
        host_lists(e, s);
        TSR_TRY(tsr_engine_device_upload(c->dev, &list, c->lists, err));
    } else {
        struct tsr_select_op op = { .struct_size = sizeof op,
                                    .k = s->k,
                                    .x = x,
                                    .rows = rows,
                                    .floors = s->floors,
                                    .list = &list };
        TSR_TRY(c->table->select(c->dev->self, NULL, &op, err));
    }
    if (!c->use.recall)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_sync(c->dev, err));
    TSR_TRY(tsr_engine_device_download(c->dev, &list, c->lists, err));
    count_recall(c, s);
    return TSR_OK;
}

/* ---- adding the compensation ---- */

static tsr_status add(struct tsr_engine_compensator *c, const struct tsr_engine_comp_site *s,
                      const struct tsr_tensor *x, const struct tsr_tensor *rows,
                      const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    struct tsr_tensor        list = lists_of(c, s->count);
    struct tsr_compensate_op op = {
        .struct_size = sizeof op, .n = (uint32_t)s->n, .x = x, .rows = rows, .list = &list
    };
    for (uint64_t j = 0; j < s->n; j++) {
        op.residual[j] = s->residual[j];
        op.out[j] = outs[s->which[j]];
    }
    return c->table->compensate(c->dev->self, NULL, &op, err);
}

/* The device compensates itself. */
static tsr_status run_here(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                           const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                           struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    const struct tsr_tensor       *rows = c->now.full ? NULL : &c->now.on;
    if (c->use.recall || c->use.select == TSR_COMPENSATE_SELECT_EXACT)
        TSR_TRY(rows_down(e, in, c->x, err));
    TSR_TRY(select_channels(e, s, in, rows, err));
    return add(c, s, in, rows, outs, err);
}

/* A dense tensor of n rows on c->dev with these values; to be dropped. */
static tsr_status stage(struct tsr_engine_compensator *c, const float *v, uint64_t cols,
                        struct tsr_tensor *t, struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_tensor(c->dev, TSR_F32, c->now.n, cols, 0, "staged compensation", t,
                                     err));
    return tsr_engine_device_upload(c->dev, t, v, err);
}

/* The default device compensates: rows go there and back. */
static tsr_status run_staged(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                             const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                             struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              x = { 0 }, out[TSR_COMPENSATE_LINEARS] = { { 0 } };
    const struct tsr_tensor       *there[TSR_COMPENSATE_LINEARS] = { NULL };
    TSR_TRY(rows_down(e, in, c->x, err));
    tsr_status st = stage(c, c->x, in->cols, &x, err);
    if (st == TSR_OK)
        st = select_channels(e, s, &x, NULL, err);
    for (uint64_t j = 0; j < s->n && st == TSR_OK; j++) {
        const struct tsr_tensor *o = outs[s->which[j]];
        float                   *v = tsr_new_aligned(c->now.n, o->cols * sizeof *v);
        if (!v)
            st = tsr_fail_nomem(err, c->now.n * o->cols * sizeof *v, "staged compensation");
        if (st == TSR_OK)
            st = rows_down(e, o, v, err);
        if (st == TSR_OK)
            st = stage(c, v, o->cols, &out[j], err);
        there[s->which[j]] = &out[j];
        free(v);
    }
    if (st == TSR_OK)
        st = add(c, s, &x, NULL, there, err);
    if (st == TSR_OK)
        st = tsr_engine_device_sync(c->dev, err);
    for (uint64_t j = 0; j < s->n && st == TSR_OK; j++) {
        const struct tsr_tensor *o = outs[s->which[j]];
        float                   *v = tsr_new_aligned(c->now.n, o->cols * sizeof *v);
        if (!v)
            st = tsr_fail_nomem(err, c->now.n * o->cols * sizeof *v, "staged compensation");
        if (st == TSR_OK)
            st = tsr_engine_device_download(c->dev, &out[j], v, err);
        if (st == TSR_OK)
            st = rows_up(e, o, v, err);
        free(v);
    }
    tsr_engine_device_drop_tensor(c->dev, &x);
    for (uint64_t j = 0; j < s->n; j++)
        tsr_engine_device_drop_tensor(c->dev, &out[j]);
    return st;
}

/* ---- ranks ----------------------------------------------------------------------------------------- */

/* The whole input of o or down: every rank's columns, from `at` on, to c->x and c->whole. */
static tsr_status gather_input(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                               uint32_t number, const struct tsr_tensor *in, uint64_t at,
                               struct tsr_tensor *x, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    float                         *own = tsr_new_aligned(c->now.n, in->cols * sizeof *own);
    if (!own)
        return tsr_fail_nomem(err, c->now.n * in->cols * sizeof *own, "a part of an input");
    tsr_status st = rows_down(e, in, own, err);
    if (st == TSR_OK) {
        memset(c->x, 0, c->now.n * s->channels * sizeof *c->x);
        for (uint64_t i = 0; i < c->now.n; i++)
            memcpy(c->x + i * s->channels + at, own + i * in->cols, in->cols * sizeof *own);
        st = e->tp.sum(e->tp.ctx, number, c->x, c->now.n, s->channels, err);
    }
    free(own);
    TSR_TRY(st);
    *x = tsr_engine_rows(&c->whole, 0, c->now.n);
    x->cols = s->channels;
    x->row_stride = s->channels * sizeof(float);
    return tsr_engine_device_upload(c->dev, x, c->x, err);
}

/* What is added to this rank's outputs, into a part of c->sum; e->parts becomes +0. */
static tsr_status sum_part(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                           const struct tsr_tensor *x, uint64_t cols, struct tsr_tensor *sum,
                           struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    const struct tsr_tensor       *sums = sum;
    memset(e->parts, 0, c->now.n * cols * sizeof *e->parts);
    *sum = tsr_engine_narrow(&c->sum, c->now.n, s->part);
    if (!s->n)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_upload(c->dev, sum, e->parts, err));
    return add(c, s, x, NULL, &sums, err);
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
    TSR_TRY(tsr_engine_device_sync(c->dev, err));
    for (uint64_t i = 0; i < c->now.n; i++) {
        struct tsr_tensor row = tsr_engine_rows(&sum, i, 1);
        TSR_TRY(tsr_engine_device_download(c->dev, &row, e->parts + i * cols + s->at, err));
    }
    return TSR_OK;
}

static tsr_status select_whole(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                               uint32_t number, const struct tsr_tensor *in, uint64_t at,
                               struct tsr_tensor *x, struct tsr_err *err)
{
    if (e->comp->dev != e->dev)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s does not compensate, and ranks cannot stage it elsewhere",
                        e->dev->text);
    TSR_TRY(gather_input(e, s, number, in, at, x, err));
    return select_channels(e, s, x, NULL, err);
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
        TSR_TRY(tsr_engine_run_add(e, &y, &z, &y, err));
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
    struct tsr_tensor              x, sum = tsr_engine_rows(&c->sum, 0, c->now.n);
    TSR_TRY(select_whole(e, s, number, in, at, &x, err));
    TSR_TRY(add_part(e, s, &x, out->cols, err));
    TSR_TRY(e->tp.sum(e->tp.ctx, number, e->parts, c->now.n, out->cols, err));
    TSR_TRY(tsr_engine_device_upload(e->dev, &sum, e->parts, err));
    for (uint64_t i = 0; i < c->now.n; i++) {
        struct tsr_tensor y = tsr_engine_rows(out, c->now.at[i], 1),
                          z = tsr_engine_rows(&sum, i, 1);
        TSR_TRY(tsr_engine_run_add(e, &y, &z, &y, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_compensate_site(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                      const struct tsr_tensor        *in,
                                      const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    const struct tsr_engine_compensator *c = e->comp;
    const struct tsr_engine_comp_site   *s = c && c->site ? &c->site[layer][site] : NULL;
    const struct tsr_model_hparams      *hp = &e->model->hp;
    uint64_t                             value = tsr_model_is_recurrent(hp, layer)
                                                     ? e->share.value_head * (uint64_t)hp->delta.value_dim
                                                     : e->share.head * (tsr_model_o_cols(hp) / hp->heads);
    uint64_t                             expert =
        site == TSR_MODEL_SITE_SHARED_DOWN_IN ? e->share.shared_at : e->share.expert_at;
    tsr_status st;
    if (!s || !s->there || s->count == 0 || c->now.n == 0)
        return TSR_OK;
    if (e->tp.ranks > 1 && site == TSR_MODEL_SITE_O_IN)
        st = run_split(e, s, (uint32_t)(2 * layer), in, value, outs[0], err);
    else if (e->tp.ranks > 1 && site == TSR_MODEL_SITE_DOWN_IN)
        st = run_split(e, s, (uint32_t)(2 * layer + 1), in, e->share.ffn_at, outs[0], err);
    else if (e->tp.ranks > 1 && tsr_model_site_kind(site) == TSR_MODEL_SITE_DOWN_IN)
        st = run_expert(e, s, (uint32_t)(2 * layer + 1), in, expert, outs[0], err);
    else
        st = c->dev == e->dev ? run_here(e, s, in, outs, err) : run_staged(e, s, in, outs, err);
    return st == TSR_OK ? st
                        : tsr_err_prefix(err, st, "compensation of layer %llu, %s",
                                         (unsigned long long)layer, TSR_MODEL_SITE_NAME(site));
}
