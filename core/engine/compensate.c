/* Compensation of one site: selects channels, then adds to the outputs of its linears. */
#include "engine/compensator.h"

#include "compensate/compensation.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_engine_compensate_chunk(struct tsr_engine *e, const struct tsr_engine_token *tokens,
                                       uint64_t n, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    if (!c || !c->any)
        return TSR_OK;
    c->n = 0;
    for (uint64_t i = 0; i < n; i++)
        if (c->use.all || tokens[i].decode)
            c->at[c->n++] = (uint32_t)i;
    c->full = c->n == n;
    c->done.tokens += c->n;
    if (c->n > c->most)
        TSR_TRY(tsr_engine_compensate_room(e, c->n, err));
    if (c->n == 0 || c->full || c->dev != e->dev)
        return TSR_OK;
    c->rows.cols = c->n;
    c->rows.row_stride = c->n * sizeof *c->at;
    return tsr_engine_device_upload(e->dev, &c->rows, c->at, err);
}

/* Rows of a tensor of e's device that are compensated, dense, to host memory or back. */
static tsr_status rows_down(struct tsr_engine *e, const struct tsr_tensor *t, float *to,
                            struct tsr_err *err)
{
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    for (uint64_t i = 0; i < e->comp->n; i++) {
        struct tsr_tensor row = tsr_engine_rows(t, e->comp->at[i], 1);
        row.row_stride = t->cols * sizeof *to;
        TSR_TRY(tsr_engine_device_download(e->dev, &row, to + i * t->cols, err));
    }
    return TSR_OK;
}

static tsr_status rows_up(struct tsr_engine *e, const struct tsr_tensor *t, const float *from,
                          struct tsr_err *err)
{
    for (uint64_t i = 0; i < e->comp->n; i++) {
        struct tsr_tensor row = tsr_engine_rows(t, e->comp->at[i], 1);
        row.row_stride = t->cols * sizeof *from;
        TSR_TRY(tsr_engine_device_upload(e->dev, &row, from + i * t->cols, err));
    }
    return TSR_OK;
}

/* ---- which channels ----------------------------------------------------------------------------- */

static struct tsr_tensor lists_of(const struct tsr_engine_compensator *c, uint64_t count)
{
    struct tsr_tensor t = c->list;
    t.rows = c->n;
    t.cols = 1 + count;
    t.row_stride = t.cols * sizeof(uint32_t);
    return t;
}

static uint64_t position_of(const struct tsr_engine *e, uint64_t row)
{
    uint32_t spans[2];
    memcpy(spans,
           e->feed.host + e->feed.spans[TSR_ENGINE_CACHE_CONTEXT].offset + row * sizeof spans,
           sizeof spans);
    return spans[1];
}

/* Lists created by the host, into c->lists; c->x has the inputs if they are needed. */
static void host_lists(struct tsr_engine *e, const struct tsr_engine_comp_site *s, uint64_t number)
{
    struct tsr_engine_compensator *c = e->comp;
    for (uint64_t i = 0; i < c->n; i++) {
        uint32_t *list = c->lists + i * (1 + s->count);
        if (s->fixed)
            memcpy(list, s->fixed, (1 + s->count) * sizeof *list);
        else if (c->use.select == TSR_COMPENSATE_SELECT_RANDOM)
            tsr_compensate_select_random(c->use.seed, number, position_of(e, c->at[i]), s->channels,
                                         s->count, list);
        else
            tsr_compensate_select_exact(c->x + i * s->channels, s->channels, s->count, list,
                                        c->scratch);
    }
}

static void count_recall(struct tsr_engine_compensator *c, const struct tsr_engine_comp_site *s)
{
    for (uint64_t i = 0; i < c->n; i++) {
        tsr_compensate_select_exact(c->x + i * s->channels, s->channels, s->count, c->exact,
                                    c->scratch);
        c->done.exact += c->exact[0];
        c->done.common += tsr_compensate_select_common(c->lists + i * (1 + s->count), c->exact);
    }
}

/* x: the whole input on c->dev, rows NULL: all of its rows; c->x contains it if host_x. */
static tsr_status select_channels(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                                  uint64_t number, const struct tsr_tensor *x,
                                  const struct tsr_tensor *rows, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              list = lists_of(c, s->count);
    c->done.selected += c->n * s->count;
    if (c->use.select != TSR_COMPENSATE_SELECT_DYNAMIC) {
        host_lists(e, s, number);
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

/* ---- adding the compensation
 * ------------------------------------------------------------------------------- */

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
                           uint64_t number, const struct tsr_tensor *in,
                           const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    const struct tsr_tensor       *rows = c->full ? NULL : &c->rows;
    if (c->use.recall || c->use.select == TSR_COMPENSATE_SELECT_EXACT)
        TSR_TRY(rows_down(e, in, c->x, err));
    TSR_TRY(select_channels(e, s, number, in, rows, err));
    return add(c, s, in, rows, outs, err);
}

/* A dense tensor of n rows on c->dev with these values; to be dropped. */
static tsr_status stage(struct tsr_engine_compensator *c, const float *v, uint64_t cols,
                        struct tsr_tensor *t, struct tsr_err *err)
{
    TSR_TRY(
        tsr_engine_device_tensor(c->dev, TSR_F32, c->n, cols, 0, "staged compensation", t, err));
    return tsr_engine_device_upload(c->dev, t, v, err);
}

/* The default device compensates: rows go there and back. */
static tsr_status run_staged(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                             uint64_t number, const struct tsr_tensor *in,
                             const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              x = { 0 }, out[TSR_COMPENSATE_LINEARS] = { { 0 } };
    const struct tsr_tensor       *there[TSR_COMPENSATE_LINEARS] = { NULL };
    TSR_TRY(rows_down(e, in, c->x, err));
    tsr_status st = stage(c, c->x, in->cols, &x, err);
    if (st == TSR_OK)
        st = select_channels(e, s, number, &x, NULL, err);
    for (uint64_t j = 0; j < s->n && st == TSR_OK; j++) {
        const struct tsr_tensor *o = outs[s->which[j]];
        float                   *v = tsr_new_aligned(c->n, o->cols * sizeof *v);
        if (!v)
            st = tsr_fail_nomem(err, c->n * o->cols * sizeof *v, "staged compensation");
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
        float                   *v = tsr_new_aligned(c->n, o->cols * sizeof *v);
        if (!v)
            st = tsr_fail_nomem(err, c->n * o->cols * sizeof *v, "staged compensation");
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
    float                         *own = tsr_new_aligned(c->n, in->cols * sizeof *own);
    if (!own)
        return tsr_fail_nomem(err, c->n * in->cols * sizeof *own, "a part of an input");
    tsr_status st = rows_down(e, in, own, err);
    if (st == TSR_OK) {
        memset(c->x, 0, c->n * s->channels * sizeof *c->x);
        for (uint64_t i = 0; i < c->n; i++)
            memcpy(c->x + i * s->channels + at, own + i * in->cols, in->cols * sizeof *own);
        st = e->tp.sum(e->tp.ctx, number, c->x, c->n, s->channels, err);
    }
    free(own);
    TSR_TRY(st);
    *x = tsr_engine_rows(&c->whole, 0, c->n);
    x->cols = s->channels;
    x->row_stride = s->channels * sizeof(float);
    return tsr_engine_device_upload(c->dev, x, c->x, err);
}

/* What is added to this rank's outputs, to their place in e->parts; the others' stay +0. */
static tsr_status add_part(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                           const struct tsr_tensor *x, uint64_t cols, struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              sum = tsr_engine_rows(&c->sum, 0, c->n);
    const struct tsr_tensor       *sums = &sum;
    memset(e->parts, 0, c->n * cols * sizeof *e->parts);
    if (!s->n)
        return TSR_OK;
    sum.cols = s->part;
    sum.row_stride = s->part * sizeof(float);
    TSR_TRY(tsr_engine_device_upload(c->dev, &sum, e->parts, err));
    TSR_TRY(add(c, s, x, NULL, &sums, err));
    TSR_TRY(tsr_engine_device_sync(c->dev, err));
    for (uint64_t i = 0; i < c->n; i++) {
        struct tsr_tensor row = tsr_engine_rows(&sum, i, 1);
        TSR_TRY(tsr_engine_device_download(c->dev, &row, e->parts + i * cols + s->at, err));
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
    struct tsr_tensor              x, sum = tsr_engine_rows(&c->sum, 0, c->n);
    if (c->dev != e->dev)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s does not compensate, and ranks cannot stage it elsewhere",
                        e->dev->text);
    TSR_TRY(gather_input(e, s, number, in, at, &x, err));
    TSR_TRY(select_channels(e, s, number, &x, NULL, err));
    TSR_TRY(add_part(e, s, &x, out->cols, err));
    TSR_TRY(e->tp.sum(e->tp.ctx, number, e->parts, c->n, out->cols, err));
    TSR_TRY(tsr_engine_device_upload(e->dev, &sum, e->parts, err));
    for (uint64_t i = 0; i < c->n; i++) {
        struct tsr_tensor y = tsr_engine_rows(out, c->at[i], 1), z = tsr_engine_rows(&sum, i, 1);
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
    uint64_t                             head = (uint64_t)e->share.head * e->model->hp.head_dim;
    tsr_status                           st;
    if (!s || !s->there || s->count == 0 || c->n == 0)
        return TSR_OK;
    if (e->tp.ranks > 1 && site == TSR_MODEL_SITE_O_IN)
        st = run_split(e, s, (uint32_t)(2 * layer), in, head, outs[0], err);
    else if (e->tp.ranks > 1 && site == TSR_MODEL_SITE_DOWN_IN)
        st = run_split(e, s, (uint32_t)(2 * layer + 1), in, e->share.ffn_at, outs[0], err);
    else
        st = c->dev == e->dev ? run_here(e, s, layer * TSR_MODEL_SITES + site, in, outs, err)
                              : run_staged(e, s, layer * TSR_MODEL_SITES + site, in, outs, err);
    return st == TSR_OK ? st
                        : tsr_err_prefix(err, st, "compensation of layer %llu, %s",
                                         (unsigned long long)layer, TSR_MODEL_SITE_NAME(site));
}
