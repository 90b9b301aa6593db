/* Single operations of the backend table, with shapes from their tensors, and hidden rows in host memory. */
#include "engine/internal.h"

struct tsr_tensor tsr_engine_rows(const struct tsr_tensor *t, uint64_t first, uint64_t n)
{
    struct tsr_tensor v = *t;
    v.offset += first * t->row_stride;
    v.rows = n;
    return v;
}

struct tsr_tensor tsr_engine_narrow(const struct tsr_tensor *t, uint64_t n, uint64_t cols)
{
    struct tsr_tensor v = *t;
    v.rows = n;
    v.cols = cols;
    v.row_stride = cols * sizeof(float);
    return v;
}

static const struct tsr_tensor *or_null(const struct tsr_tensor *t)
{
    return t->buffer ? t : NULL;
}

/* A row of a tensor as a column: its elements are the rows that GATHER takes. */
static struct tsr_tensor column_of(const struct tsr_tensor *t, uint64_t row, uint64_t cols)
{
    struct tsr_tensor v = tsr_engine_rows(t, row, cols);
    v.cols = 1;
    v.row_stride = sizeof(float);
    return v;
}

/* For a device of before COLUMNS: a GATHER for each token. */
static tsr_status gather_columns(struct tsr_engine_device *dev, const struct tsr_tensor *in,
                                 const struct tsr_tensor *order, const struct tsr_tensor *out,
                                 struct tsr_err *err)
{
    for (uint64_t t = 0; t < in->rows; t++) {
        struct tsr_tensor from = column_of(in, t, in->cols), to = column_of(out, t, in->cols);
        struct tsr_op     op = { .kind = TSR_OP_GATHER, .out = &to, .in = { &from, order } };
        TSR_TRY(tsr_engine_device_run(dev, &op, NULL, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_put_in_order(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                   const struct tsr_tensor *in, uint64_t first,
                                   struct tsr_tensor *out, struct tsr_err *err)
{
    struct tsr_engine_device *dev = tsr_engine_linear_device(e, l);
    *out = tsr_engine_rows(tsr_engine_ordered(e, l), first, in->rows);
    out->cols = in->cols;
    struct tsr_op op = {
        .struct_size = sizeof op, .kind = TSR_OP_COLUMNS, .out = out, .in = { in, &l->order }
    };
    tsr_status st =
        dev->no_columns ? TSR_E_UNSUPPORTED : dev->iface->run(dev->self, NULL, &op, err);
    if (st != TSR_E_UNSUPPORTED)
        return st;
    dev->no_columns = true;
    return gather_columns(dev, in, &l->order, out, err);
}

struct tsr_op tsr_engine_linear_op(const struct tsr_engine_linear_dev *l,
                                   const struct tsr_tensor *in, const struct tsr_tensor *out)
{
    return (struct tsr_op){ .struct_size = sizeof(struct tsr_op),
                            .kind = TSR_OP_LINEAR,
                            .out = out,
                            .in = { in, or_null(&l->bias) },
                            .weight = l->w ? l->w->handle : NULL,
                            .act = l->act };
}

tsr_status tsr_engine_run_linear_on(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                    const struct tsr_tensor *in, const struct tsr_tensor *out,
                                    struct tsr_err *err)
{
    if (e->on_layer)
        e->on_layer(e->layer_ctx, e->at_layer, false);
    struct tsr_op op = tsr_engine_linear_op(l, in, out);
    return tsr_engine_device_run(tsr_engine_linear_device(e, l), &op, l->w, err);
}

tsr_status tsr_engine_run_linear(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                 const struct tsr_tensor *in, const struct tsr_tensor *out,
                                 struct tsr_err *err)
{
    struct tsr_tensor sorted = *in;
    if (l->order.buffer)
        TSR_TRY(tsr_engine_put_in_order(e, l, in, 0, &sorted, err));
    return tsr_engine_run_linear_on(e, l, &sorted, out, err);
}

tsr_status tsr_engine_run_embed(struct tsr_engine *e, struct tsr_engine_weight *w,
                                const struct tsr_tensor *ids, float scale,
                                const struct tsr_tensor *out, struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_EMBED, .out = out, .in = { ids }, .scale = scale };
    return tsr_engine_device_run(e->dev, &op, w, err);
}

tsr_status tsr_engine_run_norm(struct tsr_engine *e, const struct tsr_engine_norm_dev *norm,
                               const struct tsr_tensor *in, const struct tsr_tensor *out,
                               struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    struct tsr_op                   op = { .kind = TSR_OP_NORM,
                                           .out = out,
                                           .in = { in, &norm->gain, or_null(&norm->bias) },
                                           .norm = hp->norm,
                                           .eps = norm->eps > 0 ? norm->eps : hp->norm_eps,
                                           .gain_offset = hp->norm_gain_offset };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

tsr_status tsr_engine_run_add(struct tsr_engine *e, const struct tsr_tensor *a,
                              const struct tsr_tensor *b, const struct tsr_tensor *out,
                              struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_ADD, .out = out, .in = { a, b } };
    return tsr_engine_device_run(e->dev, &op, NULL, err);
}

tsr_status tsr_engine_hidden_in(struct tsr_engine *e, const float *in, uint64_t n,
                                struct tsr_err *err)
{
    struct tsr_tensor h = tsr_engine_rows(&e->h, 0, n);
    return tsr_engine_device_upload(e->dev, &h, in, err);
}

tsr_status tsr_engine_hidden_out(struct tsr_engine *e, float *out, uint64_t n, struct tsr_err *err)
{
    struct tsr_tensor h = tsr_engine_rows(&e->h, 0, n);
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    return tsr_engine_device_download(e->dev, &h, out, err);
}

bool tsr_engine_all_finite(const float *v, uint64_t n)
{
    /* x - x is 0 for a finite x and NaN else; one sum instead of n branches */
    float sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i] - v[i];
    return sum == 0;
}
