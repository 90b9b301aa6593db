/* ops.c - checks of views, and the operations that go row by row. */
#include "../tensor/tensor.h"
#include "backend.h"

#include <string.h>

tsr_status tsr_cpu_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                        const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                        struct tsr_err *err)
{
    if (!t || !t->buffer)
        return tsr_fail(err, TSR_E_INVAL, "%s: %s is missing", op, what);
    const struct tsr_cpu_buffer *b = t->buffer;
    uint64_t                     stride;
    tsr_status st = tsr_tensor_check(t, b->bytes, op, what, dtype, rows, cols, &stride, err);
    if (st != TSR_OK)
        return st;
    *v = (struct tsr_view){ b->data + t->offset, stride, t->rows, t->cols };
    return TSR_OK;
}

struct rows {
    const struct tsr_cpu *c;
    const struct tsr_op  *op;
    struct tsr_view       out, a, b, e;
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

static uint32_t u32_at(const struct tsr_view *v, uint64_t i)
{
    uint32_t u;
    memcpy(&u, v->p + 4 * i, 4);
    return u;
}

static tsr_status gather_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    if (r->out.cols == 1) { /* columns put into another order: one element each */
        for (uint64_t t = begin; t < end; t++)
            *row_f32(&r->out, t) = *row_f32(&r->a, u32_at(&r->b, t));
        return TSR_OK;
    }
    for (uint64_t t = begin; t < end; t++)
        memcpy(row_f32(&r->out, t), row_f32(&r->a, u32_at(&r->b, t)), r->out.cols * 4);
    return TSR_OK;
}

static tsr_status run_norm(struct rows *r, struct tsr_err *err)
{
    const struct tsr_op *op = r->op;
    uint64_t             n = r->out.cols;
    tsr_status           st;
    if (op->norm > TSR_NORM_LAYER)
        return tsr_fail(err, TSR_E_INVAL, "NORM: norm %u is none of RMS, LAYER", op->norm);
    if ((st = tsr_cpu_view(&r->b, op->in[1], "NORM", "gain", TSR_F32, 1, n, err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "NORM", err)) != TSR_OK)
        return st;
    if (op->in[2] &&
        ((st = tsr_cpu_view(&r->e, op->in[2], "NORM", "bias", TSR_F32, 1, n, err)) != TSR_OK ||
         (st = tsr_tensor_apart(op->out, op->in[2], 0, "NORM", err)) != TSR_OK))
        return st;
    return tsr_cpu_for(r->c, r->out.rows, n * 8, norm_rows, r);
}

static tsr_status run_rope(struct rows *r, struct tsr_err *err)
{
    const struct tsr_op *op = r->op;
    tsr_status           st;
    if (op->rotary_dim == 0 || op->rotary_dim % 2 || op->rotary_dim > op->head_dim)
        return tsr_fail(err, TSR_E_INVAL, "ROPE: rotary_dim %u must be even, 2 to head_dim %u",
                        op->rotary_dim, op->head_dim);
    if ((uint64_t)op->heads * op->head_dim != r->out.cols)
        return tsr_fail(err, TSR_E_INVAL, "ROPE: %u heads of %u are not %llu columns", op->heads,
                        op->head_dim, (unsigned long long)r->out.cols);
    uint64_t T = r->out.rows, half = op->rotary_dim / 2;
    if ((st = tsr_cpu_view(&r->b, op->in[1], "ROPE", "cos", TSR_F32, T, half, err)) != TSR_OK ||
        (st = tsr_cpu_view(&r->e, op->in[2], "ROPE", "sin", TSR_F32, T, half, err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "ROPE", err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[2], 0, "ROPE", err)) != TSR_OK)
        return st;
    return tsr_cpu_for(r->c, T, r->out.cols * 4, rope_rows, r);
}

static tsr_status run_second(struct rows *r, const char *name, int may_be_out, struct tsr_err *err)
{
    const struct tsr_op *op = r->op;
    tsr_status           st =
        tsr_cpu_view(&r->b, op->in[1], name, "in1", TSR_F32, r->out.rows, r->out.cols, err);
    return st != TSR_OK ? st : tsr_tensor_apart(op->out, op->in[1], may_be_out, name, err);
}

static tsr_status run_gather(struct tsr_cpu *c, const struct tsr_op *op, struct tsr_err *err)
{
    struct rows r = { .c = c, .op = op };
    tsr_status  st;
    if ((st = tsr_cpu_view(&r.out, op->out, "GATHER", "out", TSR_F32, 0, 0, err)) != TSR_OK ||
        (st = tsr_cpu_view(&r.a, op->in[0], "GATHER", "in", TSR_F32, 0, r.out.cols, err)) !=
            TSR_OK ||
        (st = tsr_cpu_view(&r.b, op->in[1], "GATHER", "rows", TSR_U32, 1, r.out.rows, err)) !=
            TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[0], 0, "GATHER", err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "GATHER", err)) != TSR_OK)
        return st;
    for (uint64_t i = 0; i < r.out.rows; i++)
        if (u32_at(&r.b, i) >= r.a.rows)
            return tsr_fail(err, TSR_E_INVAL, "GATHER: row %u is not below %llu", u32_at(&r.b, i),
                            (unsigned long long)r.a.rows);
    return tsr_cpu_for(c, r.out.rows, r.out.cols * 4, gather_rows, &r);
}

/* out and in0 of one shape, in place allowed. */
static tsr_status run_rows(struct tsr_cpu *c, const struct tsr_op *op, struct tsr_err *err)
{
    static const char *const name[] = { [TSR_OP_NORM] = "NORM",
                                        [TSR_OP_ROPE] = "ROPE",
                                        [TSR_OP_ACT] = "ACT",
                                        [TSR_OP_ADD] = "ADD",
                                        [TSR_OP_SCALE] = "SCALE" };
    struct rows              r = { .c = c, .op = op };
    const char              *n = name[op->kind];
    tsr_status               st;
    if ((st = tsr_cpu_view(&r.out, op->out, n, "out", TSR_F32, 0, 0, err)) != TSR_OK ||
        (st = tsr_cpu_view(&r.a, op->in[0], n, "in0", TSR_F32, r.out.rows, r.out.cols, err)) !=
            TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[0], 1, n, err)) != TSR_OK)
        return st;
    if (op->kind == TSR_OP_NORM)
        return run_norm(&r, err);
    if (op->kind == TSR_OP_ROPE)
        return run_rope(&r, err);
    if (op->kind == TSR_OP_SCALE)
        return tsr_cpu_for(c, r.out.rows, r.out.cols * (op->softcap > 0 ? 32 : 8), scale_rows, &r);
    if (op->kind == TSR_OP_ADD) {
        st = run_second(&r, n, 1, err);
        return st != TSR_OK ? st : tsr_cpu_for(c, r.out.rows, r.out.cols * 12, add_rows, &r);
    }
    if (op->func > TSR_FUNC_RELU)
        return tsr_fail(err, TSR_E_INVAL, "ACT: func %u is unknown", op->func);
    if (op->in[1] && (st = run_second(&r, n, 0, err)) != TSR_OK)
        return st;
    return tsr_cpu_for(c, r.out.rows, r.out.cols * 32, act_rows, &r);
}

static tsr_status dispatch(struct tsr_cpu *c, const struct tsr_op *op, struct tsr_err *err)
{
    switch (op->kind) {
    case TSR_OP_LINEAR:
        return tsr_cpu_linear_op(c, op, err);
    case TSR_OP_EMBED:
        return tsr_cpu_embed_op(c, op, err);
    case TSR_OP_KV_STORE:
        return tsr_cpu_kv_store_op(c, op, err);
    case TSR_OP_ATTENTION:
        return tsr_cpu_attention_op(c, op, err);
    case TSR_OP_GATHER:
        return run_gather(c, op, err);
    case TSR_OP_NORM:
    case TSR_OP_ROPE:
    case TSR_OP_ACT:
    case TSR_OP_ADD:
    case TSR_OP_SCALE:
        return run_rows(c, op, err);
    default:
        return tsr_fail(err, TSR_E_UNSUPPORTED, "operation %u is not known to the CPU backend",
                        op->kind);
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
