/* How many copies of the model: one pipeline, or several on equal parts of the devices. */
#include "base/clock.h"
#include "base/mem.h"
#include "plan/file/write.h"
#include "plan/search/share.h"
#include "planning/planning.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST        1024
#define PARTS_UNTIL 0.75 /* of the time, where groups of nodes are searched after equal parts */

void tsr_planning_replicas_read(struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                                const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "replicas");
    const struct tsr_config_mark *mark = at ? &at->mark : &node->mark;
    char                         *end;
    errno = 0;
    long n = strtol(k->replicas, &end, 10);
    pl->replicas = 1;
    if (strcmp(k->replicas, "auto") == 0)
        pl->replicas = 0;
    else if (errno || *end || end == k->replicas || n < 1 || n > MOST)
        tsr_config_diag_error(d, mark, NULL,
                              "'replicas' is '%.40s'; expected auto, or a number from 1 to %d",
                              k->replicas, MOST);
    else
        pl->replicas = (uint64_t)n;
    if (pl->replicas == 1 || !pl->cluster)
        return;
    if (tsr_planning_copies(pl, k))
        tsr_config_diag_error(d, mark, "leave 'replicas' out",
                              "the copies of %llu nodes are chosen by 'copy_nodes'; 'replicas' is "
                              "for up to 8 nodes without it",
                              (unsigned long long)pl->cluster->n_nodes);
    else if (pl->cluster->fixed && pl->cluster->n_nodes > 1)
        tsr_config_diag_error(d, mark, "leave 'replicas' out, or 'order: fixed' of the cluster",
                              "a fixed order of several nodes is that of one pipeline");
}

/* ---- search -------------------------------------------------------------------------- */

struct searching {
    struct tsr_planning     *pl;
    tsr_planning_one        *one;
    struct tsr_plan_planned *best;
    double                   value, omega; /* of the best */
    double                   bound;        /* of the value, over all that was tried */
    bool                     settled;      /* each was solved to its gap, or has no plan */
    double                   end;          /* of the time; INFINITY: none */
};

static void note(struct searching *z, uint64_t copies, const struct tsr_plan_planned *a)
{
    bool plan = tsr_plan_planned_has_plan(a);
    z->pl->tried[z->pl->n_tried++] =
        (struct tsr_planning_tried){ .copies = copies,
                                     .latency_ms = plan ? a->outcome.latency_ms : (double)NAN,
                                     .omega = plan ? a->outcome.omega : (double)NAN };
}

/* No plan is in time; that of the search is too slow. */
static void drop(struct tsr_plan_planned *a)
{
    tsr_plan_planned_free(a);
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
}

/* What a search proved: least value of a plan with so many copies. */
static void prove(struct searching *z, const struct tsr_plan_problem *p,
                  const struct tsr_plan_planned *a)
{
    z->bound = fmin(z->bound, tsr_plan_share_bound(p, a));
    z->settled =
        z->settled && (a->status == TSR_SOLVED_OPTIMAL || a->status == TSR_SOLVED_INFEASIBLE);
}

/* Less omega within a given time, else less time; as good with more copies is not better. */
static bool better(const struct searching *z, double value, double omega)
{
    if (!(z->value < INFINITY))
        return true;
    if (z->pl->at_most_ms > 0 && fabs(omega - z->omega) > 1e-3 * z->omega)
        return omega < z->omega;
    return value < z->value * (1 - 1e-6);
}

/* Takes the plan of one copy over, with its problem. */
static void take(struct searching *z, struct tsr_plan_planned *a, struct tsr_plan_problem *share,
                 struct tsr_plan_cluster *part, struct tsr_plan_parts *parts)
{
    struct tsr_planning *pl = z->pl;
    if (pl->part)
        tsr_plan_share_close(&pl->problem, pl->part);
    else
        pl->whole = pl->problem;
    tsr_plan_parts_free(&pl->parts);
    tsr_plan_planned_free(z->best);
    *z->best = *a;
    pl->problem = *share;
    pl->part = part;
    pl->parts = *parts;
    if (z->best->built)
        z->best->built->p = &pl->problem;
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    *share = (struct tsr_plan_problem){ 0 };
    *parts = (struct tsr_plan_parts){ 0 };
}

/* A number of copies: the problem of one. */
struct copy {
    struct tsr_plan_parts    parts;
    struct tsr_plan_problem  share;
    struct tsr_plan_cluster *part;
};

static void close_copy(struct copy *c)
{
    tsr_plan_share_close(&c->share, c->part);
    tsr_plan_parts_free(&c->parts);
}

static tsr_status open_copy(struct copy *c, const struct tsr_plan_problem *whole, uint64_t copies,
                            struct tsr_err *err)
{
    uint64_t batch = whole->work.batch;
    *c = (struct copy){ 0 };
    TSR_TRY(tsr_plan_parts_make(&c->parts, whole->cluster, copies, err));
    struct tsr_plan_share of = { .nodes = c->parts.nodes,
                                 .each = c->parts.each,
                                 .n = c->parts.n_nodes,
                                 .batch = batch / copies + (batch % copies != 0),
                                 .copies = copies };
    tsr_status            st = TSR_OK;
    if (c->parts.n_nodes == 0 || copies > batch)
        st = tsr_fail(err, TSR_E_INPUT,
                      "replicas: %llu copies need as many requests, and as many equal parts of the "
                      "devices; the batch has %llu requests, %s has %llu devices",
                      (unsigned long long)copies, (unsigned long long)batch, whole->cluster->name,
                      (unsigned long long)tsr_plan_cluster_devices(whole->cluster));
    else
        st = tsr_plan_share_open(&c->share, &c->part, whole, &of, err);
    if (st != TSR_OK)
        tsr_plan_parts_free(&c->parts);
    return st;
}

/* The best plan of one copy; *late: with so many none is in time, and others may be. */
static tsr_status search_copy(struct searching *z, struct copy *c, struct tsr_plan_planned *a,
                              bool only, bool *late, struct tsr_err *err)
{
    struct tsr_plan_problem *p = &c->share;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    double                   seconds = p->o.time_limit;
    bool                     knee = p->knee;
    if (isfinite(z->end))
        p->o.time_limit = fmax(z->end - tsr_now_s(), 1e-3);
    p->knee = knee && only; /* else within the quality of one pipeline */
    tsr_status st = z->one(z->pl, p, a, &e.err);
    p->o.time_limit = seconds;
    p->knee = knee;
    *late = st == TSR_E_INFEASIBLE && z->pl->at_most_ms > 0 && !only;
    if (*late)
        drop(a);
    else if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    else
        prove(z, p, a);
    return TSR_OK;
}

/* `copies` of the model. only: no other number is searched. */
static tsr_status several(struct searching *z, uint64_t copies, bool only, struct tsr_err *err)
{
    struct tsr_planning    *pl = z->pl;
    struct copy             c;
    struct tsr_plan_planned a = { .status = TSR_SOLVED_UNKNOWN };
    bool                    late;
    TSR_TRY(open_copy(&c, pl->part ? &pl->whole : &pl->problem, copies, err));
    tsr_status st = search_copy(z, &c, &a, only, &late, err);
    if (st == TSR_OK) {
        bool   plan = tsr_plan_planned_has_plan(&a);
        double value = plan ? tsr_plan_share_value(&c.share, &a) : INFINITY,
               omega = a.outcome.omega;
        note(z, copies, &a);
        if (only || (plan && better(z, value, omega))) {
            z->value = value;
            z->omega = omega;
            take(z, &a, &c.share, c.part, &c.parts);
            c.part = NULL;
        }
    }
    tsr_plan_planned_free(&a);
    close_copy(&c);
    return st;
}

/* One pipeline, with half of the time. */
static tsr_status whole(struct searching *z, bool *late, struct tsr_errbuf *e)
{
    struct tsr_plan_problem *p = &z->pl->problem;
    double                   seconds = p->o.time_limit;
    p->o.time_limit = seconds / 2;
    tsr_status st = z->one(z->pl, p, z->best, &e->err);
    p->o.time_limit = seconds;
    *late = st == TSR_E_INFEASIBLE && z->pl->at_most_ms > 0;
    if (*late)
        drop(z->best);
    else if (st != TSR_OK)
        return st;
    else
        prove(z, p, z->best);
    note(z, 1, z->best);
    if (tsr_plan_planned_has_plan(z->best)) {
        z->value = tsr_plan_share_value(p, z->best);
        z->omega = z->best->outcome.omega;
    }
    return TSR_OK;
}

/* What is said of one copy's plan is proved over all numbers of copies. */
static void conclude(struct searching *z)
{
    struct tsr_plan_planned *a = z->best;
    if (!tsr_plan_planned_has_plan(a)) {
        a->status = z->settled ? a->status : TSR_SOLVED_UNKNOWN;
        return;
    }
    if (z->pl->at_most_ms > 0) {
        a->status = z->settled ? a->status : TSR_SOLVED_FEASIBLE;
        return;
    }
    double gap = z->pl->problem.o.gap * fabs(a->objective) + 2e-6 * fabs(a->objective) + 1e-6;
    a->bound = fmin(a->bound, a->objective * fmin(z->bound / z->value, 1));
    a->status = a->objective - a->bound <= gap ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_FEASIBLE;
}

/* The settings of one copy as those of all of them, for the file. */
static void settle(struct tsr_planning *pl)
{
    const struct tsr_plan_problem *p = &pl->problem;
    uint64_t                       once, batch = pl->whole.work.batch;
    if (!pl->part)
        return;
    if (!tsr_mul(p->memory.batch, pl->parts.copies, &once) || once > batch)
        once = batch;
    pl->whole.work.concurrency = once;
    pl->whole.work.chunk = p->work.chunk;
    pl->whole.work.kv = p->work.kv;
    tsr_plan_problem_refresh(&pl->whole);
}

tsr_status tsr_planning_replicas_search(struct tsr_planning *pl, struct tsr_plan_planned *a,
                                        tsr_planning_one *one, struct tsr_err *err)
{
    double            start = tsr_now_s(), limit = pl->problem.o.time_limit;
    uint64_t          counts[TSR_PLAN_PARTS_MOST], n = 0;
    bool              late = false;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct searching  z = { .pl = pl,
                            .one = one,
                            .best = a,
                            .value = INFINITY,
                            .bound = INFINITY,
                            .settled = true,
                            .end = limit > 0 ? start + limit : INFINITY };
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN };
    pl->n_tried = 0;
    if (pl->replicas) {
        TSR_TRY(several(&z, pl->replicas, true, err));
        pl->n_tried = 0; /* the job says how many */
        settle(pl);
        return TSR_OK;
    }
    tsr_status st = whole(&z, &late, &e);
    if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    TSR_TRY(tsr_plan_parts_counts(pl->problem.cluster, pl->problem.work.batch, counts, &n, err));
    bool groups = tsr_planning_grouped(pl);
    if (groups) /* which need some of the time, too */
        z.end = limit > 0 ? start + limit * PARTS_UNTIL : INFINITY;
    for (uint64_t i = 0; i < n; i++)
        TSR_TRY(several(&z, counts[i], false, err));
    if (groups) {
        double left = limit > 0 ? fmax(start + limit - tsr_now_s(), 1e-3) : 0;
        double bound = z.bound;
        TSR_TRY(tsr_planning_groups_search(pl, a, left, z.value, &bound, err));
        z.settled = z.settled && pl->groups != TSR_PLANNING_GROUPS_LATE;
        z.bound = bound;
        if (pl->groups == TSR_PLANNING_GROUPS_CHOSEN) {
            pl->fleet.seconds = tsr_now_s() - start;
            return TSR_OK;
        }
    }
    if (late && !tsr_plan_planned_has_plan(a)) /* no number of copies is fast enough */
        return tsr_err_copy(err, TSR_E_INFEASIBLE, &e.err);
    conclude(&z);
    settle(pl);
    a->seconds = tsr_now_s() - start;
    return TSR_OK;
}

/* ---- the file ------------------------------------------------------------------------ */

tsr_status tsr_planning_write(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                              const char *path, struct tsr_err *err)
{
    struct tsr_plan_copies c = { .whole = &pl->whole,
                                 .copies = pl->parts.copies,
                                 .share = pl->problem.work.batch,
                                 .nodes = pl->parts.nodes,
                                 .n_nodes = pl->parts.n_nodes };
    return tsr_plan_write(&pl->problem, a, pl->part ? &c : NULL, path, err);
}
