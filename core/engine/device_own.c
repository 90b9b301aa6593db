/* Weights in a plugin's own format: they stay packed, and a product decodes a block of rows, gives it to the backend
 * as F32 and runs on it, then goes on with the next block.  The backend's arithmetic, and so each result's bits, are
 * those of the whole matrix as F32: a row of a product depends on no other row. */
#include "engine/device_internal.h"

#include "base/mem.h"
#include "model/own.h"
#include "plugin/registry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define GRAIN_VALUES (UINT64_C(1) << 14)

/* ---- a product ------------------------------------------------------------------ */

struct block {
    const struct tsr_engine_weight *w;
    uint64_t                        unit; /* the first, counted from own->skip rows before row 0 */
    uint64_t                        first, rows;
    float                          *values;
    pthread_mutex_t                 lock; /* guards the rest */
    uint64_t                        failed_at;
    struct tsr_errbuf               why;
};

/* Rows of units [begin, end) of the block, as far as the matrix has them. */
static tsr_status decode_body(void *arg, uint64_t begin, uint64_t end)
{
    struct block                  *b = arg;
    const struct tsr_model_packed *p = b->w->own;
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    uint64_t                       from = (b->unit + begin) * p->own.unit;
    uint64_t                       to = (b->unit + end) * p->own.unit;
    from = from > p->own.skip ? from - p->own.skip : 0;
    to = to - p->own.skip < p->rows ? to - p->own.skip : p->rows;
    tsr_status st =
        tsr_model_own_rows(p, from, to - from, b->values + (from - b->first) * p->cols, &e.err);
    if (st == TSR_OK)
        return st;
    (void)pthread_mutex_lock(&b->lock);
    if (begin < b->failed_at) { /* the earliest rows, whoever was first */
        b->failed_at = begin;
        b->why = (struct tsr_errbuf)TSR_ERRBUF(b->why);
        (void)tsr_err_copy(&b->why.err, st, &e.err);
    }
    (void)pthread_mutex_unlock(&b->lock);
    return st;
}

static tsr_status decode_block(struct tsr_engine_device *d, struct block *b, struct tsr_err *err)
{
    const struct tsr_model_own *o = &b->w->own->own;
    uint64_t                    units = (o->skip + b->first + b->rows - 1) / o->unit + 1 - b->unit;
    uint64_t                    grain = GRAIN_VALUES / (o->unit * o->cols) + 1;
    b->failed_at = UINT64_MAX;
    (void)pthread_mutex_init(&b->lock, NULL);
    tsr_status st = tsr_pool_for(d->registry ? tsr_plugin_registry_pool(d->registry) : NULL, units,
                                 grain, decode_body, b);
    (void)pthread_mutex_destroy(&b->lock);
    return st == TSR_OK
               ? st
               : tsr_err_prefix(err, tsr_err_copy(err, st, &b->why.err), "%s", b->w->desc.name);
}

/* Rows of the weight as F32 on the device, for one product. */
static tsr_status load_block(struct tsr_engine_device *d, const struct block *b,
                             struct tsr_engine_weight *as, struct tsr_err *err)
{
    *as = *b->w;
    as->own = NULL;
    as->desc.format = &as->format;
    as->desc.rows = b->rows;
    as->desc.codes = b->values;
    return tsr_err_prefix(err, d->iface->weight_load(d->self, &as->desc, &as->handle, err), "%s",
                          b->w->desc.name);
}

static void free_block(struct tsr_engine_device *d, struct tsr_engine_weight *as)
{
    d->iface->weight_free(d->self, as->handle);
    if (as->fallback)
        d->fallback->iface->weight_free(d->fallback->self, as->fallback);
}

static tsr_status product(struct tsr_engine_device *d, const struct tsr_op *op, struct block *b,
                          struct tsr_err *err)
{
    struct tsr_engine_weight as;
    struct tsr_op            part = *op;
    struct tsr_tensor        out = *op->out, bias;
    out.offset += b->first * sizeof(float);
    out.cols = b->rows;
    part.out = &out;
    if (op->in[1]) {
        bias = *op->in[1];
        bias.offset += b->first * sizeof(float);
        bias.cols = b->rows;
        part.in[1] = &bias;
    }
    TSR_TRY(decode_block(d, b, err));
    TSR_TRY(load_block(d, b, &as, err));
    tsr_status st = tsr_engine_device_run_plain(d, &part, &as, err);
    if (st == TSR_OK)
        st = tsr_engine_device_sync(d, err);
    free_block(d, &as);
    return st;
}

static tsr_status run_linear(struct tsr_engine_device *d, const struct tsr_op *op,
                             const struct tsr_engine_weight *w, struct tsr_err *err)
{
    const struct tsr_model_own *o = &w->own->own;
    uint64_t                    step = tsr_model_own_block(o->unit, o->cols);
    uint64_t                    most = step < w->own->rows ? step : w->own->rows;
    struct block                b = { .w = w };
    b.values = tsr_new_aligned(most * w->own->cols, sizeof *b.values);
    if (!b.values)
        return tsr_fail_nomem(err, most * w->own->cols * sizeof *b.values, "decoded weights");
    tsr_status st = TSR_OK;
    for (uint64_t end; b.first < w->own->rows && st == TSR_OK; b.first = end) {
        b.unit = (o->skip + b.first) / o->unit;
        end = b.unit * o->unit + step - o->skip;
        end = end < w->own->rows ? end : w->own->rows;
        b.rows = end - b.first;
        st = product(d, op, &b, err);
    }
    free(b.values);
    return st;
}

/* ---- rows of an embedding ----------------------------------------------------------- */

/* The rows that are asked for, decoded in their order, then embedded by 0, 1, 2, ... */
static tsr_status run_embed(struct tsr_engine_device *d, const struct tsr_op *op,
                            const struct tsr_engine_weight *w, struct tsr_err *err)
{
    uint64_t                 n = op->in[0]->cols;
    struct tsr_tensor        at = { 0 };
    struct tsr_engine_weight as;
    struct block             b = { .w = w, .rows = n };
    uint32_t                *ids = tsr_new(n, sizeof *ids);
    b.values = tsr_new_aligned(n * w->own->cols, sizeof *b.values);
    tsr_status st = ids && b.values ? TSR_OK
                                    : tsr_fail_nomem(err, n * w->own->cols * sizeof *b.values,
                                                     "rows of an embedding");
    if (st == TSR_OK)
        st = tsr_engine_device_sync(d, err);
    if (st == TSR_OK)
        st = tsr_engine_device_download(d, op->in[0], ids, err);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        if (ids[i] >= w->own->rows)
            st = tsr_fail(err, TSR_E_INVAL, "%s: row %u of %llu", w->desc.name, ids[i],
                          (unsigned long long)w->own->rows);
        else
            st = tsr_model_own_rows(w->own, ids[i], 1, b.values + i * w->own->cols, err);
        ids[i] = (uint32_t)i;
    }
    if (st == TSR_OK)
        st = tsr_engine_device_tensor(d, TSR_U32, 1, n, 0, "rows of an embedding", &at, err);
    if (st == TSR_OK)
        st = tsr_engine_device_upload(d, &at, ids, err);
    if (st == TSR_OK)
        st = load_block(d, &b, &as, err);
    if (st == TSR_OK) {
        struct tsr_op part = *op;
        part.in[0] = &at;
        st = tsr_engine_device_run_plain(d, &part, &as, err);
        if (st == TSR_OK)
            st = tsr_engine_device_sync(d, err);
        free_block(d, &as);
    }
    tsr_engine_device_drop_tensor(d, &at);
    free(b.values);
    free(ids);
    return st;
}

tsr_status tsr_engine_device_run(struct tsr_engine_device *d, struct tsr_op *op,
                                 struct tsr_engine_weight *w, struct tsr_err *err)
{
    if (!w || !w->own)
        return tsr_engine_device_run_plain(d, op, w, err);
    if (op->kind == TSR_OP_LINEAR && w->on) {
        struct tsr_errbuf why = TSR_ERRBUF(why);
        tsr_status        st = tsr_engine_device_run_launch(d, op, w, &why.err);
        if (st != TSR_E_UNSUPPORTED)
            return st == TSR_OK
                       ? st
                       : tsr_err_prefix(err, tsr_err_copy(err, st, &why.err), "%s", w->desc.name);
    }
    if (op->kind == TSR_OP_LINEAR)
        return w->kernel == TSR_OWN_DECODED ? run_linear(d, op, w, err)
                                            : tsr_engine_device_run_kernel(d, op, w, err);
    if (op->kind == TSR_OP_EMBED)
        return run_embed(d, op, w, err);
    return tsr_fail(err, TSR_E_BUG, "operation %u with weights in a plugin's own format", op->kind);
}
