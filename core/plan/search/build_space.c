/* What depends on all widths and codecs of a space: the order of devices, and what codecs cost in omega. */
#include "plan/search/build_internal.h"

#define NEW(b, v, n)                                                                               \
    if (!((v) = tsr_plan_build_alloc(b, n, sizeof *(v))))                                          \
    return tsr_fail_nomem(err, n, "a planning problem")

/* The order of the cluster file: of pools with each of their devices, or of meshes that are the only kind of their pool. */
tsr_status tsr_plan_build_order(struct tsr_plan_built *b, struct tsr_err *err)
{
    const struct tsr_plan_meshes *m = &b->meshes;
    uint32_t                     *order;
    uint64_t                      n = 0, devices = 0;
    bool                          pools = tsr_plan_meshes_pooled(m);
    for (uint64_t i = 0; i < m->n_pools; i++)
        devices += m->devices[i];
    NEW(b, order, devices);
    for (uint64_t g = 0; g < m->n_groups; g++) {
        uint64_t k = 0, each;
        while (m->kinds[k].pool != m->pool_of[g])
            k++;
        each = pools ? 1 : m->kinds[k].mesh.tp;
        for (uint64_t i = 0; i < tsr_plan_problem_devices(b->p, g) / each; i++)
            order[n++] = pools ? m->pool_of[g] : (uint32_t)k;
    }
    b->whole.order = order;
    b->whole.order_len = n;
    return TSR_OK;
}

/* What codecs cost where they are taken: of sums, each layer has its share; of a link, every boundary costs the same. */
tsr_status tsr_plan_build_codecs(struct tsr_plan_built *b, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    uint64_t                       u = b->units;
    double                        *kind, *link;
    bool                           any_kind = false, any_link = false;
    NEW(b, kind, b->whole.n_kinds * u);
    NEW(b, link, b->n_links * u);
    for (uint64_t k = 0; k < b->whole.n_kinds; k++) {
        const struct tsr_plan_mesh_kind *of = &b->meshes.kinds[k];
        double                           all = of->mesh.tp > 1 ? p->sums[of->sum].cost.kl : 0;
        any_kind = any_kind || all > 0;
        for (uint64_t i = 0; i < u; i++)
            kind[k * u + i] =
                all * (double)(b->unit_first[i + 1] - b->unit_first[i]) / (double)p->shape->layers;
    }
    for (uint64_t v = 0; v < b->n_links; v++)
        for (uint64_t i = 0; i < u; i++) {
            link[v * u + i] = p->links[b->first_link + v].cost.kl;
            any_link = any_link || link[v * u + i] > 0;
        }
    b->whole.kind_omega = any_kind ? kind : NULL;
    b->whole.link_omega = any_link ? link : NULL;
    b->whole.n_links = any_link || b->n_links > 1 ? b->n_links : 0;
    return TSR_OK;
}
