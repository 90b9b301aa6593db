/* product.c - a product with a weight through its table (product.h). */
#include "product.h"

#include "weight_extra.h"

const struct tsr_quantizer_kernel_v1 *tsr_cpu_kernel_of(const struct tsr_cpu_weight *w,
                                                        uint32_t asked, uint64_t tokens)
{
    const uint32_t act = tsr_cpu_extra_act(w, asked);
    if (cpu_of(w)->bf16 && w->layout == W_BF16 && tokens > DIRECT_MAX)
        return &tsr_cpu_kernel_fast;
    if (act == TSR_ACT_A16)
        return &tsr_cpu_kernel_rounded;
    if (act != TSR_ACT_A8 || w->layout < W_I8)
        return &tsr_cpu_kernel_floats;
    return w->extra.llm         ? &tsr_cpu_kernel_llm
           : w->layout == W_TAB ? &tsr_cpu_kernel_tables
           : w->layout == W_FPX ? &tsr_cpu_kernel_digits
                                : &tsr_cpu_kernel_integers;
}

struct tsr_kernel_weight tsr_cpu_rows_of(const struct tsr_cpu_weight *w)
{
    return (struct tsr_kernel_weight){ .struct_size = sizeof(struct tsr_kernel_weight),
                                       .rows = w->rows,
                                       .cols = w->cols,
                                       .n_rows = w->rows,
                                       .n_cols = w->cols,
                                       .segment = w->seg,
                                       .prepared = w->data,
                                       .prepared_rows = w->rows };
}

struct tsr_cpu_product tsr_cpu_product_of(const struct tsr_op *op, const struct tsr_op_parts *parts)
{
    const struct tsr_cpu_weight *w = op->weight;
    struct tsr_view              out = tsr_cpu_at(&parts->out), x = tsr_cpu_at(&parts->in[0]),
                    bias = tsr_cpu_at(&parts->in[1]);
    return (struct tsr_cpu_product){
        .k = tsr_cpu_kernel_of(w, op->act, out.rows),
        .w = w,
        .of = tsr_cpu_rows_of(w),
        .job = { .struct_size = sizeof(struct tsr_kernel_job),
                 .n = out.rows,
                 .in = (const float *)(const void *)x.p,
                 .in_stride = x.stride / 4,
                 .out = (float *)(void *)out.p,
                 .out_stride = out.stride / 4,
                 .tokens = out.rows,
                 .bias = (const float *)(const void *)bias.p },
    };
}

tsr_status tsr_cpu_product_view(const struct tsr_op *op, struct tsr_cpu_product *p,
                                struct tsr_err *err)
{
    struct tsr_op_parts parts;
    if (op->kind != TSR_OP_LINEAR)
        return tsr_fail(err, TSR_E_INVAL, "LINEAR: the operation is %u", op->kind);
    tsr_status st = tsr_cpu_check(op, &parts, err);
    if (st == TSR_OK)
        *p = tsr_cpu_product_of(op, &parts);
    return st;
}

uint64_t tsr_cpu_product_room(const struct tsr_cpu_product *p)
{
    uint64_t bytes = 0;
    return p->k->input_bytes(p->w, &p->of, p->job.tokens, &bytes, NULL) == TSR_OK ? bytes
                                                                                  : CPU_NO_ROOM;
}

tsr_status tsr_cpu_product_prepare(struct tsr_cpu_product *p, uint8_t *room, struct tsr_err *err)
{
    struct tsr_kernel_job job = p->job;
    job.weight = &p->of;
    p->job.inputs = room;
    return p->k->inputs(p->w, &job, room, err);
}

int tsr_cpu_product_alike(const struct tsr_cpu_product *b, const struct tsr_cpu_product *p)
{
    return b->job.in == p->job.in && b->k == p->k && p->k->alike &&
           b->job.tokens == p->job.tokens && p->k->alike(p->w, &p->of, b->w, &b->of, p->job.tokens);
}

static tsr_status run_rows(const struct tsr_cpu_product *p, struct tsr_cpu_part part,
                           uint64_t apart)
{
    struct tsr_kernel_weight of = p->of;
    struct tsr_kernel_job    job = p->job;
    const uint64_t           row = part.panel * PANEL;
    of.first_row = row;
    of.n_rows = cpu_min(part.n * PANEL, of.rows - row);
    of.apart = apart * PANEL;
    job.weight = &of;
    job.first = part.t0;
    job.n = part.t1 - part.t0;
    job.in += part.t0 * job.in_stride;
    job.out += part.t0 * job.out_stride + row;
    job.bias = job.bias ? job.bias + row : NULL;
    return p->k->linear(p->w, &job, NULL);
}

tsr_status tsr_cpu_product_panels(const struct tsr_cpu_product *p, uint64_t panel, uint64_t n,
                                  uint64_t t0, uint64_t t1)
{
    return run_rows(p, (struct tsr_cpu_part){ panel, n, t0, t1 }, 0);
}

static int in_pairs(const struct tsr_cpu_product *p, uint64_t from)
{
    return (p->k->flags & TSR_KERNEL_PAIRS) && p->w->aligned && p->w->panels >= from * 2;
}

uint64_t tsr_cpu_product_units(const struct tsr_cpu_product *p, uint64_t from)
{
    return in_pairs(p, from) ? cpu_ceil(p->w->panels, 2) : p->w->panels;
}

/* In pairs: the first half of the panels, each with its like in the second half. */
tsr_status tsr_cpu_product_run(const struct tsr_cpu_product *p, uint64_t from, uint64_t begin,
                               uint64_t end)
{
    const uint64_t half = p->w->panels / 2, tokens = p->job.tokens;
    tsr_status     st = TSR_OK;
    if (!in_pairs(p, from))
        return tsr_cpu_product_panels(p, begin, end - begin, 0, tokens);
    if (begin < half)
        st = run_rows(p, (struct tsr_cpu_part){ begin, cpu_min(end, half) - begin, 0, tokens },
                      half);
    if (st == TSR_OK && end > half) /* the last of an odd number */
        st = tsr_cpu_product_panels(p, 2 * half, 1, 0, tokens);
    return st;
}
