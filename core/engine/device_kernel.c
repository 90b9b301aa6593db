/* Products by a kernel of the plugin that packed the weights (tessera/kernel.h): inputs come to host memory, runs of
 * rows go to the pool, results and bias go back. */
#include "engine/device_internal.h"

#include "base/mem.h"
#include "model/own.h"
#include "plugin/registry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Weights of a run, so that a thread has some microseconds of work; and its units, so that its codes are aligned. */
#define RUN_WEIGHTS (UINT64_C(1) << 16)
#define RUN_UNITS   UINT64_C(64)

struct product {
    const struct tsr_model_packed *p;
    enum tsr_model_own_kernel      how;
    uint64_t                       rows; /* of all units */
    uint64_t                       n, in_stride;
    float                         *in;  /* [n, in_stride], as struct tsr_model_own_product has it */
    float                         *out; /* [n, rows] */
    float                         *bias;
    void                          *inputs; /* what the kernel made of them, or NULL */
    pthread_mutex_t                lock;   /* guards the rest */
    uint64_t                       failed_at;
    struct tsr_errbuf              why;
};

static tsr_status run_body(void *arg, uint64_t begin, uint64_t end)
{
    struct product                    *x = arg;
    const struct tsr_model_own        *o = &x->p->own;
    struct tsr_errbuf                  e = TSR_ERRBUF(e);
    uint64_t                           first = begin * o->unit, last = end * o->unit;
    const struct tsr_model_own_product part = { .how = x->how,
                                                .unit = begin,
                                                .units = end - begin,
                                                .rows = (last < x->rows ? last : x->rows) - first,
                                                .n = x->n,
                                                .in_stride = x->in_stride,
                                                .out_stride = x->rows,
                                                .in = x->in,
                                                .inputs = x->inputs,
                                                .out = x->out + first };
    tsr_status                         st = tsr_model_own_multiply(x->p, &part, &e.err);
    if (st == TSR_OK)
        return st;
    (void)pthread_mutex_lock(&x->lock);
    if (begin < x->failed_at) { /* the earliest rows, whoever was first */
        x->failed_at = begin;
        x->why = (struct tsr_errbuf)TSR_ERRBUF(x->why);
        (void)tsr_err_copy(&x->why.err, st, &e.err);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return st;
}

static tsr_status multiply(struct tsr_engine_device *d, struct product *x, const char *name,
                           struct tsr_err *err)
{
    const struct tsr_model_own *o = &x->p->own;
    uint64_t                    grain = RUN_WEIGHTS / (o->unit * o->cols) + 1;
    grain = (grain + RUN_UNITS - 1) / RUN_UNITS * RUN_UNITS;
    x->failed_at = UINT64_MAX;
    (void)pthread_mutex_init(&x->lock, NULL);
    tsr_status st = tsr_pool_for(d->registry ? tsr_plugin_registry_pool(d->registry) : NULL,
                                 o->units, grain, run_body, x);
    (void)pthread_mutex_destroy(&x->lock);
    return st == TSR_OK ? st : tsr_err_prefix(err, tsr_err_copy(err, st, &x->why.err), "%s", name);
}

/* A kernel of whole rows gets zeros where another rank has the columns. */
static void widen(struct product *x, const float *in, uint64_t in_stride)
{
    const struct tsr_model_packed *p = x->p;
    memset(x->in, 0, x->n * x->in_stride * sizeof *x->in);
    for (uint64_t t = 0; t < x->n; t++)
        memcpy(x->in + t * x->in_stride + p->own.col, in + t * in_stride, p->cols * sizeof *in);
}

/* Into x->in, which it allocates. */
static tsr_status fetch_in(struct tsr_engine_device *d, const struct tsr_tensor *in,
                           struct product *x, struct tsr_err *err)
{
    uint64_t stride = in->row_stride / sizeof(float);
    uint64_t bytes = (x->n - 1) * in->row_stride + in->cols * sizeof(float);
    float   *got = tsr_new_aligned(x->n * stride, sizeof *got);
    if (!got)
        return tsr_fail_nomem(err, x->n * in->row_stride, "inputs of a quantizer's kernel");
    x->in = got;
    x->in_stride = stride;
    TSR_TRY(d->iface->download(d->self, in->buffer, in->offset, got, bytes, err));
    if (x->how != TSR_OWN_WHOLE || x->p->cols == x->p->own.cols)
        return TSR_OK;
    x->in_stride = x->p->own.cols;
    x->in = tsr_new_aligned(x->n * x->in_stride, sizeof *x->in);
    if (x->in)
        widen(x, got, stride);
    free(got);
    return x->in ? TSR_OK
                 : tsr_fail_nomem(err, x->n * x->in_stride * sizeof *got,
                                  "inputs of a quantizer's kernel");
}

static tsr_status fetch(struct tsr_engine_device *d, const struct tsr_op *op, struct product *x,
                        struct tsr_err *err)
{
    const struct tsr_tensor *bias = op->in[1];
    TSR_TRY(tsr_engine_device_sync(d, err));
    TSR_TRY(fetch_in(d, op->in[0], x, err));
    return bias ? d->iface->download(d->self, bias->buffer, bias->offset, x->bias,
                                     x->p->rows * sizeof *x->bias, err)
                : TSR_OK;
}

/* Rows of the part of the matrix, without those of the first unit before it and after the last. */
static tsr_status put(struct tsr_engine_device *d, const struct tsr_op *op, struct product *x,
                      struct tsr_err *err)
{
    const struct tsr_tensor *out = op->out;
    uint64_t                 rows = x->p->rows, bytes = rows * sizeof(float);
    for (uint64_t t = 0; t < x->n; t++) {
        float *y = x->out + t * x->rows + x->p->own.skip;
        for (uint64_t r = 0; op->in[1] && r < rows; r++)
            y[r] += x->bias[r];
        if (out->row_stride != bytes || x->rows != rows)
            TSR_TRY(d->iface->upload(d->self, out->buffer, out->offset + t * out->row_stride, y,
                                     bytes, err));
    }
    return out->row_stride != bytes || x->rows != rows
               ? TSR_OK
               : d->iface->upload(d->self, out->buffer, out->offset, x->out, x->n * bytes, err);
}

/* The kernel's form of all inputs, once for all rows. */
static tsr_status make_inputs(struct product *x, const char *name, struct tsr_err *err)
{
    const struct tsr_model_own_product all = {
        .how = x->how, .n = x->n, .in_stride = x->in_stride, .in = x->in
    };
    return tsr_err_prefix(err, tsr_model_own_inputs(x->p, &all, &x->inputs, err), "%s", name);
}

tsr_status tsr_engine_device_run_kernel(struct tsr_engine_device *d, const struct tsr_op *op,
                                        const struct tsr_engine_weight *w, struct tsr_err *err)
{
    const struct tsr_model_own *o = &w->own->own;
    uint64_t                    left = o->rows - o->first, there = o->units * o->unit;
    struct product              x = {
                     .p = w->own, .how = w->kernel, .rows = there < left ? there : left, .n = op->in[0]->rows
    };
    if (x.n == 0)
        return TSR_OK;
    x.out = tsr_new_aligned(x.n * x.rows, sizeof *x.out);
    x.bias = tsr_new_aligned(x.rows, sizeof *x.bias);
    tsr_status st = x.out && x.bias ? TSR_OK
                                    : tsr_fail_nomem(err, (x.n + 1) * x.rows * sizeof *x.out,
                                                     "results of a quantizer's kernel");
    if (st == TSR_OK)
        st = fetch(d, op, &x, err);
    if (st == TSR_OK)
        st = make_inputs(&x, w->desc.name, err);
    if (st == TSR_OK)
        st = multiply(d, &x, w->desc.name, err);
    if (st == TSR_OK)
        st = put(d, op, &x, err);
    free(x.inputs);
    free(x.in);
    free(x.out);
    free(x.bias);
    return st;
}
