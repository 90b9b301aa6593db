/* ops.c - the operations that go row by row, and the dispatch. */
#include "backend.h"

#include <math.h>

#define EACH_BLOCKS 65535u /* more elements go round */

struct rows {
    struct tsr_cuda     *c;
    void                *stream;
    const struct tsr_op *op;
    struct tsr_view      out, a, b, e;
};

static struct k_rows args_of(const struct rows *r)
{
    const struct tsr_op *op = r->op;
    return (struct k_rows){ .out = r->out.p,
                            .a = r->a.p,
                            .b = r->b.p,
                            .c = r->e.p,
                            .out_stride = r->out.stride / 4,
                            .a_stride = r->a.stride / 4,
                            .b_stride = r->b.stride / 4,
                            .c_stride = r->e.stride / 4,
                            .n = r->out.cols,
                            .rows = (uint32_t)r->out.rows,
                            .heads = op->heads,
                            .head_dim = op->head_dim,
                            .rotary_dim = op->rotary_dim,
                            .eps = op->eps,
                            .offset = op->gain_offset,
                            .scale = op->scale,
                            .softcap = op->softcap };
}

/* A thread for each of `work` elements. */
static tsr_status each(const struct rows *r, enum tsr_cuda_kernel kernel, const struct k_rows *a,
                       uint64_t work, struct tsr_err *err)
{
    return tsr_cuda_launch(r->c, r->stream, kernel, cuda_min(cuda_ceil(work, 256), EACH_BLOCKS), 1,
                           1, 256, a, sizeof *a, err);
}

static tsr_status run_hadamard(const struct rows *r, struct k_rows *a, struct tsr_err *err)
{
    const uint32_t n = r->op->head_dim;
    if (n > K_HADAMARD)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "HADAMARD: runs have %u columns, this device takes at most %u", n,
                        K_HADAMARD);
    a->kind = r->b.p ? (uint32_t)r->b.cols : 1;
    a->scale = (float)(1 / sqrt((double)n));
    return tsr_cuda_launch(r->c, r->stream, KERNEL_k_hadamard, r->out.rows * (r->out.cols / n), 1,
                           1, 256, a, sizeof *a, err);
}

static tsr_status run_rows(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                           const struct tsr_op_parts *p, struct tsr_err *err)
{
    struct rows   r = { .c = c,
                        .stream = stream,
                        .op = op,
                        .out = tsr_cuda_at(&p->out),
                        .a = tsr_cuda_at(&p->in[0]),
                        .b = tsr_cuda_at(&p->in[1]),
                        .e = tsr_cuda_at(&p->in[2]) };
    struct k_rows a = args_of(&r);
    uint64_t      all = r.out.rows * r.out.cols;
    switch (op->kind) {
    case TSR_OP_NORM:
        a.kind = op->norm;
        return tsr_cuda_launch(c, stream, KERNEL_k_norm, r.out.rows, 1, 1, 256, &a, sizeof a, err);
    case TSR_OP_ROPE:
        a.kind = op->func;
        return each(&r, KERNEL_k_rope, &a,
                    r.out.rows * op->heads * (op->head_dim - op->rotary_dim / 2), err);
    case TSR_OP_ACT:
        a.kind = op->func;
        return each(&r, KERNEL_k_act, &a, all, err);
    case TSR_OP_ADD:
        return each(&r, KERNEL_k_add, &a, all, err);
    case TSR_OP_SCALE:
        return each(&r, KERNEL_k_scale, &a, all, err);
    case TSR_OP_MIX:
        a.kind = (uint32_t)r.b.cols;
        return each(&r, KERNEL_k_mix, &a, all, err);
    case TSR_OP_HADAMARD:
        return run_hadamard(&r, &a, err);
    case TSR_OP_COLUMNS:
        return each(&r, KERNEL_k_columns, &a, all, err);
    default:
        return each(&r, KERNEL_k_gather, &a, all, err);
    }
}

static tsr_status dispatch(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                           const struct tsr_op_parts *parts, struct tsr_err *err)
{
    switch (op->kind) {
    case TSR_OP_LINEAR:
        return tsr_cuda_linear_op(c, stream, op, parts, err);
    case TSR_OP_EMBED:
        return tsr_cuda_embed_op(c, stream, op, parts, err);
    case TSR_OP_KV_STORE:
        return tsr_cuda_kv_store_op(c, stream, op, parts, err);
    case TSR_OP_ATTENTION:
        return tsr_cuda_attention_op(c, stream, op, parts, err);
    default:
        return run_rows(c, stream, op, parts, err);
    }
}

/* What was quantized before stays of use if this operation did not write to it. */
static void note_output(struct tsr_cuda *c, void *stream, const struct tsr_op_parts *parts,
                        tsr_status st)
{
    struct tsr_view out = tsr_cuda_at(&parts->out); /* elements of a cache have at most 4 bytes */
    if (stream || st != TSR_OK)
        tsr_cuda_kept_forget(c);
    else
        tsr_cuda_kept_wrote(c, out.p, out.p + (out.rows - 1) * out.stride + 4 * out.cols);
}

tsr_status tsr_cuda_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    const struct tsr_cuda *c = self;
    if (c->host->cancelled(c->host->ctx))
        return tsr_fail(err, TSR_E_CANCELLED, "stopped before operation %u", op->kind);
    TSR_CUDA_ALONE(c);
    struct tsr_op_parts parts;
    tsr_status          st = tsr_cuda_check(self, op, &parts, err);
    if (st == TSR_OK) {
        st = dispatch(self, stream, op, &parts, err);
        note_output(self, stream, &parts, st);
    }
    if (st == TSR_OK) {
        struct tsr_cuda_buffer *b = op->out->buffer;
        b->written = 1;
    }
    return st;
}
