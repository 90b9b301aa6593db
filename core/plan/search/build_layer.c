/* The time of a layer under an item of a problem. */
#include "plan/search/build_internal.h"

#include "plugin/choices.h"

#include <math.h>

#define KV_BITS 16u /* of the cache that a prompt's jobs are counted with, whatever layers take */

uint64_t tsr_plan_build_piece(const struct tsr_plan_problem *p, uint64_t size)
{
    return p->o.objective == TSR_OBJECTIVE_PAPER ? p->work.s
                                                 : tsr_plan_workload_piece(&p->work, size);
}

/* Whether an earlier group has the same devices: one alone takes as long there. */
static bool seen(const struct tsr_plan_cluster *c, uint64_t group)
{
    uint64_t g = 0;
    while (c->groups[g].profile != c->groups[group].profile)
        g++;
    return g < group;
}

/* Not by the kinds and items of a build: a plan that is read back has fewer of them, and would have another price. */
tsr_status tsr_plan_build_jobs(const struct tsr_plan_problem *p, uint64_t size, double *jobs,
                               struct tsr_err *err)
{
    struct tsr_plan_workload    w = p->work;
    struct tsr_plan_latency_job job = p->latency;
    uint64_t                    last;
    w.chunk = tsr_plan_build_piece(p, size);
    job.kv_bits = KV_BITS;
    *jobs = (double)tsr_plan_workload_chunks(&w, &last);
    for (uint64_t g = 0; *jobs > 1 && g < p->cluster->n_groups; g++) {
        struct tsr_plan_mesh m;
        tsr_plan_mesh_of(p->cluster, g, 1, &m);
        for (uint64_t i = 0; i < p->candidates.n && !seen(p->cluster, g); i++)
            for (uint64_t c = 0; c < p->shape->classes && !p->candidates.v[i].mixed; c++) {
                struct tsr_plan_time t;
                TSR_TRY(
                    tsr_plan_latency_prompt(&job, &m, c, &p->candidates.v[i], &w, size, &t, err));
                if (t.most_ms > 0) /* it runs there */
                    *jobs = fmin(*jobs, t.ms / t.most_ms);
            }
    }
    return TSR_OK;
}

tsr_status tsr_plan_built_base(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                               const struct tsr_plan_item *item, enum tsr_phase phase,
                               uint64_t size, struct tsr_plan_time *t, struct tsr_err *err)
{
    const struct tsr_plan_problem   *p = b->p;
    struct tsr_plan_mesh             m = b->meshes.kinds[kind].mesh;
    const struct tsr_plan_codec     *sum = &p->sums[b->meshes.kinds[kind].sum];
    const struct tsr_plan_candidate *c = &p->candidates.v[item->candidate];
    struct tsr_plan_latency_job      job = p->latency;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    job.tp_wire[TSR_PLAN_PREFILL] = &sum->wire[TSR_PLAN_PREFILL];
    job.tp_wire[TSR_PLAN_DECODE] = &sum->wire[TSR_PLAN_DECODE];
    *t = (struct tsr_plan_time){ .ms = NAN };
    m.cpu_experts = item->on_cpu;
    job.kv_bits = tsr_plugin_kv_bits(item->kv);
    if (m.tp > 1 && tsr_plan_candidate_splits(c, p->shape, m.tp, m.whole_experts, &e.err) != TSR_OK)
        return TSR_OK; /* this candidate cannot be cut so */
    if (phase == TSR_PLAN_PREFILL) {
        struct tsr_plan_workload w = p->work;
        w.chunk = tsr_plan_build_piece(p, size);
        return tsr_plan_latency_prompt(&job, &m, cls, c, &w, size, t, err);
    }
    return tsr_plan_latency_layer(&job, &m, cls, c, TSR_PLAN_DECODE, (double)size, 1,
                                  tsr_plan_workload_past(&p->work,
                                                         p->o.objective == TSR_OBJECTIVE_PAPER),
                                  t, err);
}

tsr_status tsr_plan_built_layer(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls,
                                uint64_t bits, enum tsr_phase phase, uint64_t size,
                                struct tsr_plan_time *t, struct tsr_err *err)
{
    const struct tsr_plan_item  *item = tsr_plan_built_item(b, bits);
    struct tsr_plan_mesh         m = b->meshes.kinds[kind].mesh;
    struct tsr_plan_compensation c;
    TSR_TRY(tsr_plan_built_base(b, kind, cls, item, phase, size, t, err));
    if (!item->k || isnan(t->ms))
        return TSR_OK;
    TSR_TRY(tsr_plan_build_compensation(b, kind, cls, item, &c, err));
    if (m.tp > 1 && b->p->shape->lossy_sums && c.bytes && !b->p->k_of) { /* a run refuses that */
        t->ms = NAN;
        return TSR_OK;
    }
    if (phase == TSR_PLAN_PREFILL) /* of prompts nothing is compensated */
        return TSR_OK;
    m.cpu_experts = item->on_cpu;
    double ms = tsr_plan_compensation_ms(&c, &m, t->ms, (double)size);
    t->ms = isnan(ms) && b->p->k_of ? t->ms : ms; /* of a checked plan it is then not counted */
    return TSR_OK;
}
