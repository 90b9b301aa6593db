/* ops.c - this device's part of the check of operations, the dispatch, and the row-wise operations. */
#include "backend.h"

#include <string.h>

static uint64_t buffer_bytes(const void *buffer)
{
    return ((const struct tsr_cpu_buffer *)buffer)->bytes;
}

static void weight_shape(const void *weight, uint64_t *rows, uint64_t *cols)
{
    const struct tsr_cpu_weight *w = weight;
    *rows = w->rows;
    *cols = w->cols;
}

/* The device's memory is the host's. */
static tsr_status indices(void *self, const struct tsr_tensor *t, const uint32_t **p,
                          uint64_t *stride, struct tsr_err *err)
{
    const struct tsr_cpu_buffer *b = t->buffer;
    (void)self;
    (void)err;
    *p = (const uint32_t *)(const void *)(b->data + t->offset);
    *stride = t->row_stride / 4;
    return TSR_OK;
}

static const struct tsr_op_source source = {
    .device = "CPU", .buffer_bytes = buffer_bytes, .weight_shape = weight_shape, .indices = indices
};

struct tsr_view tsr_cpu_at(const struct tsr_op_part *part)
{
    const struct tsr_cpu_buffer *b = part->buffer;
    return b ? (struct tsr_view){ b->data + part->offset, part->stride, part->rows, part->cols }
             : (struct tsr_view){ 0 };
}

tsr_status tsr_cpu_check(const struct tsr_op *op, struct tsr_op_parts *parts, struct tsr_err *err)
{
    return tsr_op_check(&source, op, parts, err);
}

tsr_status tsr_cpu_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                        const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                        struct tsr_err *err)
{
    struct tsr_op_part part;
    tsr_status         st = tsr_op_part(&source, t, op, what, dtype, rows, cols, &part, err);
    if (st == TSR_OK)
        *v = tsr_cpu_at(&part);
    return st;
}

struct rows {
    const struct tsr_cpu *c;
    const struct tsr_op  *op;
    struct tsr_view       out, a, b, e;
    const uint32_t       *index;
};

static float *row_f32(const struct tsr_view *v, uint64_t t)
{
    return v->p ? (float *)(void *)(v->p + t * v->stride) : NULL;
}

static tsr_status norm_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = begin; t < end; t++)
        r->c->k->norm(row_f32(&r->out, t), row_f32(&r->a, t), row_f32(&r->b, 0), row_f32(&r->e, 0),
                      r->out.cols, r->op->norm, r->op->eps, r->op->gain_offset);
    return TSR_OK;
}

static tsr_status rope_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = begin; t < end; t++)
        r->c->k->rope(row_f32(&r->out, t), row_f32(&r->a, t), row_f32(&r->b, t), row_f32(&r->e, t),
                      r->op->heads, r->op->head_dim, r->op->rotary_dim);
    return TSR_OK;
}

static tsr_status act_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = begin; t < end; t++)
        r->c->k->act(row_f32(&r->out, t), row_f32(&r->a, t), row_f32(&r->b, t), r->out.cols,
                     r->op->func);
    return TSR_OK;
}

static tsr_status add_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = begin; t < end; t++)
        r->c->k->add(row_f32(&r->out, t), row_f32(&r->a, t), row_f32(&r->b, t), r->out.cols);
    return TSR_OK;
}

static tsr_status scale_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = begin; t < end; t++)
        r->c->k->scale(row_f32(&r->out, t), row_f32(&r->a, t), r->out.cols, r->op->scale,
                       r->op->softcap);
    return TSR_OK;
}

static tsr_status gather_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    if (r->out.cols == 1) { /* columns put into another order: one element each */
        for (uint64_t t = begin; t < end; t++)
            *row_f32(&r->out, t) = *row_f32(&r->a, r->index[t]);
        return TSR_OK;
    }
    for (uint64_t t = begin; t < end; t++)
        memcpy(row_f32(&r->out, t), row_f32(&r->a, r->index[t]), r->out.cols * 4);
    return TSR_OK;
}

/* What a row costs is in units of tsr_cpu_for(): about the bytes that it touches. */
static tsr_status run_rows(const struct tsr_cpu *c, const struct tsr_op *op,
                           const struct tsr_op_parts *p)
{
    struct rows r = { .c = c,
                      .op = op,
                      .out = tsr_cpu_at(&p->out),
                      .a = tsr_cpu_at(&p->in[0]),
                      .b = tsr_cpu_at(&p->in[1]),
                      .e = tsr_cpu_at(&p->in[2]),
                      .index = p->index };
    uint64_t    n = r.out.cols;
    switch (op->kind) {
    case TSR_OP_NORM:
        return tsr_cpu_for(c, r.out.rows, n * 8, norm_rows, &r);
    case TSR_OP_ROPE:
        return tsr_cpu_for(c, r.out.rows, n * 4, rope_rows, &r);
    case TSR_OP_ACT:
        return tsr_cpu_for(c, r.out.rows, n * 32, act_rows, &r);
    case TSR_OP_ADD:
        return tsr_cpu_for(c, r.out.rows, n * 12, add_rows, &r);
    case TSR_OP_SCALE:
        return tsr_cpu_for(c, r.out.rows, n * (op->softcap > 0 ? 32 : 8), scale_rows, &r);
    default:
        return tsr_cpu_for(c, r.out.rows, n * 4, gather_rows, &r);
    }
}

static tsr_status dispatch(struct tsr_cpu *c, const struct tsr_op *op, struct tsr_err *err)
{
    struct tsr_op_parts parts;
    tsr_status          st = tsr_cpu_check(op, &parts, err);
    if (st != TSR_OK)
        return st;
    switch (op->kind) {
    case TSR_OP_LINEAR:
        return tsr_cpu_linear_op(c, op, &parts, err);
    case TSR_OP_EMBED:
        return tsr_cpu_embed_op(c, op, &parts, err);
    case TSR_OP_KV_STORE:
        return tsr_cpu_kv_store_op(c, op, &parts, err);
    case TSR_OP_ATTENTION:
        return tsr_cpu_attention_op(c, op, &parts, err);
    default:
        return run_rows(c, op, &parts);
    }
}

void tsr_cpu_touch(const struct tsr_tensor *t, void (*how)(void *p, uint64_t bytes))
{
    if (t && t->buffer) {
        const struct tsr_cpu_buffer *b = t->buffer;
        how(b->data, b->bytes ? b->bytes : 1);
    }
}

void tsr_cpu_touch_op(const struct tsr_op *op, void (*how)(void *p, uint64_t bytes))
{
    for (int i = -1; i < TSR_OP_INPUTS; i++)
        tsr_cpu_touch(i < 0 ? op->out : op->in[i], how);
    const struct tsr_cpu_weight *w = op->weight;
    if (w && !w->borrowed)
        how(w->data, w->data_bytes);
}

tsr_status tsr_cpu_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    (void)stream; /* one queue, in order, done on return */
    tsr_cpu_touch_op(op, c->mem->open);
    tsr_status st = dispatch(c, op, err);
    tsr_cpu_touch_op(op, c->mem->close);
    return st;
}
