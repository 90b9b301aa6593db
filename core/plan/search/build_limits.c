/* The limits of a build: what several searches of one problem differ in, while the tables stay; and memory. */
#include "plan/search/build.h"

#include <math.h>

static void put(struct tsr_solver_instance *in, const struct tsr_solver_instance *whole)
{
    in->gap = whole->gap;
    in->theta = whole->theta;
    in->max_omega = whole->max_omega;
    in->cutoff = whole->cutoff;
}

static void unlimited(const struct tsr_solver_instance *in)
{
    for (uint64_t k = 0; k < in->n_kinds; k++) {
        struct tsr_solver_kind *kind = (struct tsr_solver_kind *)(uintptr_t)in->kinds[k];
        kind->capacity_bytes = kind->host_capacity_bytes = UINT64_MAX;
    }
}

void tsr_plan_built_unlimited(struct tsr_plan_built *b)
{
    unlimited(&b->whole);
    for (uint64_t i = 0; i < b->n_parts; i++)
        unlimited(&b->parts[i].inst.in);
}

void tsr_plan_built_put(struct tsr_plan_built *b, const struct tsr_plan_problem *p)
{
    double reserve = b->codecs ? 0 : p->wire_omega;
    b->p = p;
    b->whole.gap = p->o.gap;
    b->whole.cutoff = INFINITY;
    /* an instance is one round, a unit of omega is worth theta of the whole batch */
    b->whole.theta = p->o.theta / (p->whole ? 1 : tsr_plan_problem_rounds(p));
    b->whole.max_omega = p->max_omega >= 0
                             ? fmax(p->max_omega - p->kv_omega - p->ends_omega - reserve, 0)
                             : p->max_omega;
    for (uint64_t i = 0; i < b->n_parts; i++) {
        struct tsr_instance *inst = &b->parts[i].inst;
        put(&inst->in, &b->whole);
        inst->features = tsr_instance_features(&inst->in);
    }
}
