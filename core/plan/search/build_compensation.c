/* Layers whose lost bits are added back: what that takes in an instance. */
#include "plan/search/build_internal.h"

static void fill(uint32_t k[TSR_PLAN_LINEARS], uint32_t with)
{
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        k[i] = with;
}

tsr_status tsr_plan_build_compensation(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                                       const struct tsr_plan_item   *item,
                                       struct tsr_plan_compensation *c, struct tsr_err *err)
{
    struct tsr_plan_mesh m = b->meshes.kinds[kind].mesh;
    uint32_t             k[TSR_PLAN_LINEARS];
    *c = (struct tsr_plan_compensation){ 0 };
    if (!item->k || !tsr_plan_compensation_there(b->p->shape, &b->p->candidates.v[item->candidate]))
        return TSR_OK;
    fill(k, item->k);
    m.cpu_experts = item->on_cpu;
    return tsr_plan_compensation_layer(c, b->p->shape, &m, cls, k, b->p->residual_bits, err);
}

tsr_status tsr_plan_build_compensation_work(const struct tsr_plan_built *b, uint64_t kind,
                                            uint64_t prefill_mb, uint64_t *bytes,
                                            struct tsr_err *err)
{
    const struct tsr_plan_mesh  *m = &b->meshes.kinds[kind].mesh;
    struct tsr_plan_compensation c = { 0 };
    uint32_t                     k[TSR_PLAN_LINEARS], most = 0;
    for (uint32_t i = 0; i < b->p->o.n_k; i++)
        if (b->p->o.k[i] <= b->p->work_k && b->p->o.k[i] > most)
            most = b->p->o.k[i];
    *bytes = 0;
    if (!most)
        return TSR_OK;
    fill(k, most);
    for (uint64_t cls = 0; cls < b->p->shape->classes; cls++)
        TSR_TRY(tsr_plan_compensation_layer(&c, b->p->shape, m, cls, k, b->p->residual_bits, err));
    c.scales = 0;
    return tsr_plan_compensation_work(&c, &b->p->memory, m, prefill_mb, bytes, err);
}
