/* ops.c - the operations that go row by row, and the dispatch. */
#include "../tensor/tensor.h"
#include "backend.h"

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

static tsr_status run_norm(struct rows *r, struct tsr_err *err)
{
    const struct tsr_op *op = r->op;
    uint64_t             n = r->out.cols;
    tsr_status           st;
    if (op->norm > TSR_NORM_LAYER)
        return tsr_fail(err, TSR_E_INVAL, "NORM: norm %u is none of RMS, LAYER", op->norm);
    if ((st = tsr_cuda_view(&r->b, op->in[1], "NORM", "gain", TSR_F32, 1, n, err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "NORM", err)) != TSR_OK)
        return st;
    if (op->in[2] &&
        ((st = tsr_cuda_view(&r->e, op->in[2], "NORM", "bias", TSR_F32, 1, n, err)) != TSR_OK ||
         (st = tsr_tensor_apart(op->out, op->in[2], 0, "NORM", err)) != TSR_OK))
        return st;
    struct k_rows a = args_of(r);
    a.kind = op->norm;
    return tsr_cuda_launch(r->c, r->stream, KERNEL_k_norm, r->out.rows, 1, 1, 256, &a, sizeof a,
                           err);
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
    if ((st = tsr_cuda_view(&r->b, op->in[1], "ROPE", "cos", TSR_F32, T, half, err)) != TSR_OK ||
        (st = tsr_cuda_view(&r->e, op->in[2], "ROPE", "sin", TSR_F32, T, half, err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "ROPE", err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[2], 0, "ROPE", err)) != TSR_OK)
        return st;
    struct k_rows a = args_of(r);
    return each(r, KERNEL_k_rope, &a, T * op->heads * (op->head_dim - half), err);
}

static tsr_status run_second(struct rows *r, const char *name, int may_be_out, struct tsr_err *err)
{
    const struct tsr_op *op = r->op;
    tsr_status           st =
        tsr_cuda_view(&r->b, op->in[1], name, "in1", TSR_F32, r->out.rows, r->out.cols, err);
    return st != TSR_OK ? st : tsr_tensor_apart(op->out, op->in[1], may_be_out, name, err);
}

static tsr_status run_gather(struct rows *r, struct tsr_err *err)
{
    const struct tsr_op *op = r->op;
    const uint32_t      *index;
    uint64_t             stride;
    tsr_status           st;
    if ((st = tsr_cuda_view(&r->out, op->out, "GATHER", "out", TSR_F32, 0, 0, err)) != TSR_OK ||
        (st = tsr_cuda_view(&r->a, op->in[0], "GATHER", "in", TSR_F32, 0, r->out.cols, err)) !=
            TSR_OK ||
        (st = tsr_cuda_view(&r->b, op->in[1], "GATHER", "rows", TSR_U32, 1, r->out.rows, err)) !=
            TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[0], 0, "GATHER", err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "GATHER", err)) != TSR_OK ||
        (st = tsr_cuda_indices(r->c, op->in[1], &index, &stride, err)) != TSR_OK)
        return st;
    for (uint64_t i = 0; i < r->out.rows; i++)
        if (index[i] >= r->a.rows)
            return tsr_fail(err, TSR_E_INVAL, "GATHER: row %u is not below %llu", index[i],
                            (unsigned long long)r->a.rows);
    struct k_rows a = args_of(r);
    return each(r, KERNEL_k_gather, &a, r->out.rows * r->out.cols, err);
}

/* out and in0 of one shape, in place allowed. */
static tsr_status run_rows(struct rows *r, struct tsr_err *err)
{
    static const char *const name[] = { [TSR_OP_NORM] = "NORM",
                                        [TSR_OP_ROPE] = "ROPE",
                                        [TSR_OP_ACT] = "ACT",
                                        [TSR_OP_ADD] = "ADD",
                                        [TSR_OP_SCALE] = "SCALE" };
    const struct tsr_op     *op = r->op;
    const char              *n = name[op->kind];
    tsr_status               st;
    if ((st = tsr_cuda_view(&r->out, op->out, n, "out", TSR_F32, 0, 0, err)) != TSR_OK ||
        (st = tsr_cuda_view(&r->a, op->in[0], n, "in0", TSR_F32, r->out.rows, r->out.cols, err)) !=
            TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[0], 1, n, err)) != TSR_OK)
        return st;
    if (op->kind == TSR_OP_NORM)
        return run_norm(r, err);
    if (op->kind == TSR_OP_ROPE)
        return run_rope(r, err);
    enum tsr_cuda_kernel kernel = KERNEL_k_scale;
    if (op->kind == TSR_OP_ADD) {
        kernel = KERNEL_k_add;
        if ((st = run_second(r, n, 1, err)) != TSR_OK)
            return st;
    } else if (op->kind == TSR_OP_ACT) {
        kernel = KERNEL_k_act;
        if (op->func > TSR_FUNC_RELU)
            return tsr_fail(err, TSR_E_INVAL, "ACT: func %u is unknown", op->func);
        if (op->in[1] && (st = run_second(r, n, 0, err)) != TSR_OK)
            return st;
    }
    struct k_rows a = args_of(r);
    a.kind = op->func;
    return each(r, kernel, &a, r->out.rows * r->out.cols, err);
}

static tsr_status dispatch(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                           struct tsr_err *err)
{
    struct rows r = { .c = c, .stream = stream, .op = op };
    switch (op->kind) {
    case TSR_OP_LINEAR:
        return tsr_cuda_linear_op(c, stream, op, err);
    case TSR_OP_EMBED:
        return tsr_cuda_embed_op(c, stream, op, err);
    case TSR_OP_KV_STORE:
        return tsr_cuda_kv_store_op(c, stream, op, err);
    case TSR_OP_ATTENTION:
        return tsr_cuda_attention_op(c, stream, op, err);
    case TSR_OP_GATHER:
        return run_gather(&r, err);
    case TSR_OP_NORM:
    case TSR_OP_ROPE:
    case TSR_OP_ACT:
    case TSR_OP_ADD:
    case TSR_OP_SCALE:
        return run_rows(&r, err);
    default:
        return tsr_fail(err, TSR_E_UNSUPPORTED, "operation %u is not known to the CUDA backend",
                        op->kind);
    }
}

tsr_status tsr_cuda_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err)
{
    const struct tsr_cuda *c = self;
    if (c->host->cancelled(c->host->ctx))
        return tsr_fail(err, TSR_E_CANCELLED, "stopped before operation %u", op->kind);
    tsr_status st = dispatch(self, stream, op, err);
    if (st == TSR_OK) {
        struct tsr_cuda_buffer *b = op->out->buffer;
        b->written = 1;
    }
    return st;
}
