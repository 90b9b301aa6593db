/* ops.c - the dispatch, and the row-wise operations. */
#include "backend.h"

#include <string.h>

struct rows {
    const struct tsr_cpu *c;
    const struct tsr_op  *op;
    struct tsr_view       out, a, b, e;
    const uint32_t       *index;
    uint64_t              index_stride;
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
                      r->op->heads, r->op->head_dim, r->op->rotary_dim,
                      r->op->func == TSR_ROPE_ADJACENT);
    return TSR_OK;
}

void tsr_cpu_act_run(const struct tsr_cpu *c, const struct tsr_cpu_act *a)
{
    if (a->op->func == TSR_FUNC_CLAMPED)
        c->k->clamped(a->out, a->a, a->b, a->n, a->op->scale, a->op->softcap);
    else
        c->k->act(a->out, a->a, a->b, a->n, a->op->func);
}

int tsr_cpu_act_take(const struct tsr_op *op, struct tsr_cpu_act *a)
{
    struct tsr_op_parts parts;
    if (op->kind != TSR_OP_ACT || tsr_cpu_check(op, &parts, NULL) != TSR_OK || parts.out.rows != 1)
        return 0;
    struct tsr_view out = tsr_cpu_at(&parts.out), x = tsr_cpu_at(&parts.in[0]),
                    y = tsr_cpu_at(&parts.in[1]);
    *a = (struct tsr_cpu_act){ op, row_f32(&out, 0), row_f32(&x, 0), row_f32(&y, 0), out.cols };
    return 1;
}

static tsr_status act_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = begin; t < end; t++) {
        struct tsr_cpu_act a = { r->op, row_f32(&r->out, t), row_f32(&r->a, t), row_f32(&r->b, t),
                                 r->out.cols };
        tsr_cpu_act_run(r->c, &a);
    }
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
    for (uint64_t t = begin; t < end; t++)
        memcpy(row_f32(&r->out, t), row_f32(&r->a, r->index[t]), r->out.cols * 4);
    return TSR_OK;
}

/* Work items: columns; a column of all rows reads its index once, and one row goes to several threads. */
static tsr_status take_columns(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = 0; t < r->out.rows; t++) {
        const float *from = row_f32(&r->a, t);
        float       *to = row_f32(&r->out, t);
        for (uint64_t i = begin; i < end; i++)
            to[i] = from[r->index[i]];
    }
    return TSR_OK;
}

static tsr_status mix_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    for (uint64_t t = begin; t < end; t++)
        r->c->k->mix(row_f32(&r->out, t), r->a.p, r->a.stride, row_f32(&r->b, t),
                     r->index + t * r->index_stride, r->b.cols, r->out.cols);
    return TSR_OK;
}

/* Work items: runs of head_dim columns, so that one token goes to several threads. */
static tsr_status hadamard_runs(void *arg, uint64_t begin, uint64_t end)
{
    const struct rows *r = arg;
    const uint64_t     n = r->op->head_dim, each = r->out.cols / n;
    for (uint64_t i = begin; i < end; i++)
        r->c->k->hadamard(row_f32(&r->out, i / each) + i % each * n,
                          row_f32(&r->a, i / each) + i % each * n, n, r->b.p ? r->b.cols : 1,
                          row_f32(&r->b, 0), r->b.stride / 4);
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
                      .index = p->index,
                      .index_stride = p->index_stride };
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
    case TSR_OP_MIX:
        return tsr_cpu_for(c, r.out.rows, n * 4 * (1 + r.b.cols), mix_rows, &r);
    case TSR_OP_HADAMARD:
        return tsr_cpu_for(c, r.out.rows * (n / op->head_dim),
                           (uint64_t)op->head_dim * 4 * (8 + r.b.cols), hadamard_runs, &r);
    case TSR_OP_COLUMNS:
        return tsr_cpu_for(c, n, r.out.rows * 8, take_columns, &r);
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

tsr_status tsr_cpu_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    (void)stream; /* one queue, in order, done on return */
    tsr_cpu_touch_op(op, c->mem->open);
    tsr_status st = dispatch(c, op, err);
    tsr_cpu_touch_op(op, c->mem->close);
    return st;
}
