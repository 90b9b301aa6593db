/* linear.c - LINEAR: prepares the inputs once, then runs panels over the threads. */
#include "product.h"

struct job {
    const struct tsr_cpu_product *p;
    uint64_t                      group, per_chunk; /* as struct tsr_cpu_inputs has them */
};

static tsr_status panels(void *arg, uint64_t begin, uint64_t end)
{
    const struct job             *j = arg;
    const struct tsr_cpu_product *p = j->p;
    const uint64_t                groups = cpu_ceil(p->w->panels, j->group);
    tsr_status                    st = TSR_OK;
    for (uint64_t i = begin; i < end && st == TSR_OK; i++) {
        /* token chunks outside: their activations stay in a cache while the weights pass */
        uint64_t panel = i % groups * j->group, t0 = i / groups * j->per_chunk;
        st = tsr_cpu_product_panels(p, panel, cpu_min(j->group, p->w->panels - panel), t0,
                                    cpu_min(t0 + j->per_chunk, p->job.tokens));
    }
    return st;
}

static tsr_status pairs(void *arg, uint64_t begin, uint64_t end)
{
    return tsr_cpu_product_run(arg, CPU_PAIRS_FROM, begin, end);
}

uint64_t tsr_cpu_linear_scratch(const struct tsr_cpu_weight *w, uint32_t act, uint64_t tokens)
{
    const struct tsr_cpu_product p = { .k = tsr_cpu_kernel_of(w, act, tokens),
                                       .w = w,
                                       .of = tsr_cpu_rows_of(w),
                                       .job = { .tokens = tokens } };
    const uint64_t               bytes = tsr_cpu_product_room(&p);
    return bytes == CPU_NO_ROOM ? 0 : bytes;
}

tsr_status tsr_cpu_linear_op(struct tsr_cpu *c, const struct tsr_op *op,
                             const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct tsr_cpu_product       p = tsr_cpu_product_of(op, parts);
    const struct tsr_cpu_weight *w = p.w;
    const uint64_t               T = p.job.tokens;
    const struct tsr_cpu_inputs *in;
    uint64_t                     bytes;
    uint8_t                     *room;
    tsr_status                   st = p.k->input_bytes(w, &p.of, T, &bytes, err);
    if (st == TSR_OK)
        st = tsr_cpu_scratch(c, bytes, &room, err);
    if (st == TSR_OK)
        st = tsr_cpu_product_prepare(&p, room, err);
    if (st != TSR_OK)
        return st;
    const uint64_t units = tsr_cpu_product_units(&p, CPU_PAIRS_FROM);
    if (T <= (w->layout < W_I4 ? 1 : c->k->pair_tokens) && units < w->panels)
        return c->host->parallel_for(c->host->ctx, units, 1, pairs, &p);
    in = p.job.inputs;
    struct job j = { &p, in->group, in->chunk };
    uint64_t   chunks = cpu_ceil(T, j.per_chunk);
    /* groups of panels only where enough work is left for the threads */
    if (w->panels * chunks < 32 * GROUP)
        j.group = 1;
    uint64_t work = w->panel_bytes + cpu_min(T, j.per_chunk) * w->cols * (PANEL / 8);
    return tsr_cpu_for(c, cpu_ceil(w->panels, j.group) * chunks, work * j.group, panels, &j);
}
