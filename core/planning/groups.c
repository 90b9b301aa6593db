/* `replicas: auto` over several nodes: copies on groups of whole nodes, each with a share of the batch that fits its speed. */
#include "plan/search/share.h"
#include "planning/planning.h"

#include <math.h>

bool tsr_planning_grouped(struct tsr_planning *pl)
{
    bool several = pl->cluster->n_nodes > 1 && pl->work.batch > 1;
    bool out = pl->followed || pl->at_most_ms > 0;
    pl->groups = several && out ? TSR_PLANNING_GROUPS_OUT : TSR_PLANNING_GROUPS_NONE;
    return several && !out;
}

/* The problem of all nodes again, in the place of that of a copy on an equal part. */
static void to_whole(struct tsr_planning *pl, struct tsr_plan_planned *a)
{
    tsr_plan_planned_free(a);
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    if (!pl->part)
        return;
    tsr_plan_share_close(&pl->problem, pl->part);
    pl->problem = pl->whole;
    pl->part = NULL;
    tsr_plan_parts_free(&pl->parts);
}

/* What is said of the whole work: as much at once as all copies have, the rest as the first. */
static void settle(struct tsr_planning *pl)
{
    struct tsr_plan_workload    *w = &pl->problem.work;
    const struct tsr_plan_fleet *f = &pl->fleet;
    uint64_t                     once = 0;
    for (uint64_t i = 0; i < f->n_kinds; i++)
        once += f->kinds[i].copies * f->kinds[i].problem.memory.batch;
    if (pl->problem.o.free_concurrency)
        w->concurrency = once;
    w->chunk = f->kinds[0].problem.work.chunk;
    w->kv = f->kinds[0].problem.work.kv;
    tsr_plan_problem_refresh(&pl->problem);
}

tsr_status tsr_planning_groups_search(struct tsr_planning *pl, struct tsr_plan_planned *a,
                                      double seconds, double value, double *bound,
                                      struct tsr_err *err)
{
    struct tsr_plan_problem      *whole = pl->part ? &pl->whole : &pl->problem;
    struct tsr_plan_fleet        *f = &pl->fleet;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    double                        limit = whole->o.time_limit;
    double                        below = value < INFINITY ? value * (1 - 1e-6) : 0;
    struct tsr_plan_fleet_options o = { .max_nodes = whole->cluster->n_nodes - 1,
                                        .unit = pl->share_unit,
                                        .open = true,
                                        .below = below };
    whole->o.time_limit = seconds;
    tsr_status st = tsr_plan_fleet_plan(f, whole, &pl->solver, &o, &e.err);
    whole->o.time_limit = limit;
    bool late = st == TSR_E_NUMERIC && f->late;
    if (st != TSR_OK && st != TSR_E_INFEASIBLE && !late)
        return tsr_err_copy(err, st, &e.err);
    bool faster = st == TSR_OK && f->n_kinds && (!(below > 0) || f->objective < below);
    /* without a plan of any it is proved that there is none */
    *bound = fmin(*bound, late ? 0 : st == TSR_OK ? f->bound : INFINITY);
    if (!faster) {
        pl->groups = f->late ? TSR_PLANNING_GROUPS_LATE : TSR_PLANNING_GROUPS_SLOWER;
        tsr_plan_fleet_free(f);
        return TSR_OK;
    }
    for (uint64_t i = 0; i < f->n_kinds; i++)
        f->kinds[i].problem.o.time_limit = limit;
    pl->groups = TSR_PLANNING_GROUPS_CHOSEN;
    to_whole(pl, a);
    settle(pl);
    f->bound = *bound;
    f->proved = f->objective - f->bound <= 2 * fmax(pl->problem.o.gap, 1e-6) * f->objective + 1e-6;
    return TSR_OK;
}
