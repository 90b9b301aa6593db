#include "plan/search/share.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

static uint64_t at_once(const struct tsr_plan_problem *p, const struct tsr_plan_share *of)
{
    uint64_t once = p->work.concurrency ? p->work.concurrency : p->work.batch, n;
    if (of->copies) /* as the runtime deals slots to replicas */
        n = once / of->copies + (once % of->copies != 0);
    else
        n = (uint64_t)ceil((double)once * (double)of->batch / (double)p->work.batch);
    return n < of->batch ? n : of->batch;
}

tsr_status tsr_plan_share_open(struct tsr_plan_problem *share, struct tsr_plan_cluster **part,
                               const struct tsr_plan_problem *p, const struct tsr_plan_share *of,
                               struct tsr_err *err)
{
    *share = (struct tsr_plan_problem){ 0 };
    TSR_TRY(tsr_plan_cluster_part(part, p->cluster, of->nodes, of->each, of->n, err));
    *share = *p;
    share->cluster = *part;
    share->widths = NULL;
    share->more_bytes = tsr_new((*part)->n_groups, sizeof *share->more_bytes);
    share->more = tsr_new((*part)->n_groups, sizeof *share->more);
    share->work.batch = of->batch;
    share->work.concurrency = at_once(p, of);
    if (share->o.decode_mb > share->work.concurrency)
        share->o.decode_mb = share->work.concurrency;
    if (share->o.prefill_mb > share->work.concurrency)
        share->o.prefill_mb = share->work.concurrency;
    tsr_plan_problem_refresh(share);
    if (share->more_bytes && share->more)
        return TSR_OK;
    tsr_plan_share_close(share, *part);
    *part = NULL;
    return tsr_fail_nomem(err, 16, "a share of a planning problem");
}

void tsr_plan_share_close(struct tsr_plan_problem *share, struct tsr_plan_cluster *part)
{
    free(share->more_bytes);
    free(share->more);
    free((void *)(uintptr_t)share->widths);
    *share = (struct tsr_plan_problem){ 0 };
    tsr_plan_cluster_destroy(part);
}

double tsr_plan_share_value(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a)
{
    if (p->o.objective == TSR_OBJECTIVE_PAPER)
        return a->objective * tsr_plan_problem_rounds(p);
    return a->outcome.latency_ms + p->o.theta * a->outcome.omega;
}

double tsr_plan_share_bound(const struct tsr_plan_problem *p, const struct tsr_plan_planned *a)
{
    if (tsr_plan_planned_has_plan(a) && a->objective > 0)
        return tsr_plan_share_value(p, a) * fmin(fmax(a->bound / a->objective, 0), 1);
    return a->status == TSR_SOLVED_INFEASIBLE ? INFINITY : 0;
}
