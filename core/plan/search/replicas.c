#include "plan/search/replicas.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* At a given time every group can take a certain share: the largest whose cost is within the time.
 * Which groups to form is then a knapsack over sets of nodes, solved exactly over all sets, and the
 * least time at which the batch fits is found by bisection.  With the groups' lower bounds instead of
 * their plans the same bisection gives the lower bound of the whole. */

#define MOST_SETS  (UINT64_C(1) << 24)
#define MOST_UNITS UINT64_C(4096)
#define NO_GROUP   UINT32_MAX

/* A group that may be formed. */
struct shape {
    uint64_t nodes[TSR_REPLICA_TYPES], n; /* n: together */
    uint64_t step;                        /* of it in the numbering of sets */
    double  *cost[2];                     /* [units + 1] plan and bound; NaN: not solved yet */
};

struct work {
    const struct tsr_plan_replica_problem *p;
    struct tsr_plan_replicas              *r;
    struct shape                          *shapes;
    uint64_t                               n_shapes, units, sets;
    uint64_t        weight[TSR_REPLICA_TYPES]; /* of a node in the numbering */
    double         *costs;
    uint32_t       *most, *choice; /* [sets] units that fit; shape taken */
    uint32_t       *kept; /* [sets] choices of the last time at which the batch fits by plans */
    uint64_t       *kept_share; /* [shapes] of that time */
    double          limit;      /* p->below, or INFINITY */
    uint64_t        nodes;      /* larger groups are not formed yet */
    struct tsr_err *err;
    tsr_status      st;
};

/* ---- costs ------------------------------------------------------------------- */

/* Plan (which 0) or bound (1) of a shape with so many units. */
static double cost_of(struct work *w, struct shape *s, uint64_t units, unsigned which)
{
    if (units == 0)
        return 0;
    if (isnan(s->cost[0][units]) && w->st == TSR_OK) {
        double plan = INFINITY, bound = 0;
        w->st =
            w->p->cost(w->p->arg, s->nodes, units * w->p->unit, w->limit, &plan, &bound, w->err);
        w->r->solves++;
        s->cost[0][units] = plan;
        s->cost[1][units] = bound;
        /* a share that does not fit does not fit with more either */
        for (uint64_t u = units; bound == INFINITY && u <= w->units; u++)
            s->cost[0][u] = s->cost[1][u] = INFINITY;
    }
    return s->cost[which][units];
}

/* The largest share within a time.  Costs do not fall with the share. */
static uint64_t share_within(struct work *w, struct shape *s, double time, unsigned which)
{
    uint64_t lo = 0, hi = w->units + 1;
    /* known costs already narrow the search */
    for (uint64_t u = 1; u <= w->units; u++)
        if (!isnan(s->cost[which][u])) {
            if (s->cost[which][u] <= time)
                lo = u;
            else {
                hi = u;
                break;
            }
        }
    /* in doubled steps first: shares are small compared with the batch, or near one that was asked for */
    for (uint64_t step = 1; hi - lo > 1 && w->st == TSR_OK; step *= 2) {
        uint64_t mid = hi == w->units + 1 && lo + step < hi ? lo + step : lo + (hi - lo) / 2;
        if (cost_of(w, s, mid, which) <= time)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- shapes and sets ----------------------------------------------------------- */

static tsr_status list_shapes(struct work *w, uint64_t *nodes, uint64_t type, uint64_t left,
                              bool count_only)
{
    const struct tsr_plan_replica_problem *p = w->p;
    if (type == p->types) {
        if (left == p->max_nodes)
            return TSR_OK; /* no node taken */
        if (!count_only) {
            struct shape *s = &w->shapes[w->n_shapes];
            for (uint64_t t = 0; t < p->types; t++) {
                s->nodes[t] = nodes[t];
                s->n += nodes[t];
                s->step += nodes[t] * w->weight[t];
            }
        }
        w->n_shapes++;
        return TSR_OK;
    }
    for (uint64_t n = 0; n <= left && n <= p->count[type]; n++) {
        nodes[type] = n;
        TSR_TRY(list_shapes(w, nodes, type + 1, left - n, count_only));
    }
    nodes[type] = 0;
    return TSR_OK;
}

static tsr_status prepare(struct work *w)
{
    const struct tsr_plan_replica_problem *p = w->p;
    uint64_t                               nodes[TSR_REPLICA_TYPES] = { 0 };
    if (p->types == 0 || p->types > TSR_REPLICA_TYPES || p->max_nodes == 0 ||
        p->max_nodes > TSR_REPLICA_NODES || p->unit == 0 || p->batch == 0 ||
        p->batch % p->unit != 0 || p->batch / p->unit > MOST_UNITS)
        return tsr_fail(w->err, TSR_E_INVAL, "replicas: %llu types, %llu nodes, batch %llu by %llu",
                        (unsigned long long)p->types, (unsigned long long)p->max_nodes,
                        (unsigned long long)p->batch, (unsigned long long)p->unit);
    w->units = p->batch / p->unit;
    w->sets = 1;
    for (uint64_t t = 0; t < p->types; t++) {
        w->weight[t] = w->sets;
        if (!tsr_mul(w->sets, p->count[t] + 1, &w->sets) || w->sets > MOST_SETS)
            return tsr_fail(w->err, TSR_E_UNSUPPORTED,
                            "replicas: more than 2^24 sets of nodes; merge types of nodes that are "
                            "alike, or plan parts of the cluster");
    }
    TSR_TRY(list_shapes(w, nodes, 0, p->max_nodes, true));
    uint64_t n = w->n_shapes, stride = w->units + 1;
    w->n_shapes = 0;
    w->shapes = tsr_new(n, sizeof *w->shapes);
    w->costs = tsr_new(n * 2, stride * sizeof(double));
    w->most = tsr_new(w->sets, sizeof *w->most);
    w->choice = tsr_new(w->sets, sizeof *w->choice);
    w->kept = tsr_new(w->sets, sizeof *w->kept);
    w->kept_share = tsr_new(n, sizeof *w->kept_share);
    if (!w->shapes || !w->costs || !w->most || !w->choice || !w->kept || !w->kept_share)
        return tsr_fail_nomem(w->err, w->sets * 12 + n * stride * 16, "groups of nodes");
    TSR_TRY(list_shapes(w, nodes, 0, p->max_nodes, false));
    for (uint64_t i = 0; i < n; i++)
        for (unsigned k = 0; k < 2; k++) {
            w->shapes[i].cost[k] = w->costs + (2 * i + k) * stride;
            for (uint64_t u = 1; u < stride; u++)
                w->shapes[i].cost[k][u] = NAN;
        }
    return TSR_OK;
}

static bool holds(const struct work *w, const uint64_t *digit, const struct shape *s)
{
    for (uint64_t t = 0; t < w->p->types; t++)
        if (digit[t] < s->nodes[t])
            return false;
    return true;
}

/* The largest share of a group within a time, where that is more than `parts` of its nodes have together; else 0. */
static uint64_t share_above(struct work *w, struct shape *s, uint64_t parts, double time,
                            unsigned which)
{
    if (parts >= w->units || cost_of(w, s, parts + 1, which) > time)
        return 0;
    return share_within(w, s, time, which);
}

/* Units that each set of nodes can take within a time; w->choice holds the splits. share: [shapes]. A group of several nodes is asked
 * only for more than its nodes take apart, whose sets come first. */
static void fill_sets(struct work *w, uint64_t *share, double time, unsigned which)
{
    uint64_t digit[TSR_REPLICA_TYPES] = { 0 }, n = w->n_shapes;
    for (uint64_t s = 0; s < w->sets && w->st == TSR_OK; s++) {
        uint64_t best = 0, own = n;
        uint32_t choice = NO_GROUP;
        /* a node of the first type that there is stays unused */
        for (uint64_t t = 0; t < w->p->types; t++)
            if (digit[t] && w->most[s - w->weight[t]] > best) {
                best = w->most[s - w->weight[t]];
                choice = (uint32_t)(n + t);
            }
        for (uint64_t i = 0; i < n; i++) {
            own = w->shapes[i].step == s ? i : own;
            if (share[i] == 0 || !holds(w, digit, &w->shapes[i]))
                continue;
            uint64_t v = w->most[s - w->shapes[i].step] + share[i];
            if (v > best) {
                best = v;
                choice = (uint32_t)i;
            }
        }
        if (own < n && w->shapes[own].n <= w->nodes &&
            (share[own] = share_above(w, &w->shapes[own], best, time, which)) > best) {
            best = share[own];
            choice = (uint32_t)own;
        }
        w->most[s] = best > UINT32_MAX ? UINT32_MAX : (uint32_t)best;
        w->choice[s] = choice;
        for (uint64_t t = 0; t < w->p->types && ++digit[t] > w->p->count[t]; t++)
            digit[t] = 0;
    }
}

/* Whether the batch fits within a time; for plans, w->kept is then how. */
static bool fill(struct work *w, double time, unsigned which)
{
    uint64_t *share = tsr_new(w->n_shapes, sizeof *share);
    if (share)
        fill_sets(w, share, time, which);
    else
        w->st = tsr_fail_nomem(w->err, w->n_shapes * sizeof *share, "shares of groups");
    bool fits = w->st == TSR_OK && w->most[w->sets - 1] >= w->units;
    if (fits && which == 0) {
        uint32_t *choice = w->kept;
        w->kept = w->choice;
        w->choice = choice;
        memcpy(w->kept_share, share, w->n_shapes * sizeof *share);
    }
    free(share);
    return fits;
}

/* ---- the whole --------------------------------------------------------------------- */

/* The least time (within gap) at which the batch fits; lo: one at which it does not. */
static double least_time(struct work *w, double lo, double hi, double gap, unsigned which,
                         double *below)
{
    double step = hi / 32; /* at first: where hi is near, few shares are asked for */
    while (w->st == TSR_OK && hi - lo > gap * hi) {
        double mid = fmax(lo + (hi - lo) / 2, hi - step);
        step *= 2;
        if (fill(w, mid, which))
            hi = mid;
        else
            lo = mid;
    }
    *below = lo;
    return hi;
}

/* A time at which the batch fits by plans: w->limit, or doubled from that of one unit; INFINITY: none. */
static double some_time(struct work *w)
{
    double first = INFINITY;
    if (isfinite(w->limit))
        return fill(w, w->limit, 0) ? w->limit : INFINITY;
    for (uint64_t i = 0; i < w->n_shapes && w->st == TSR_OK; i++)
        if (w->shapes[i].n <= w->nodes)
            first = fmin(first, cost_of(w, &w->shapes[i], 1, 0));
    double t = first;
    /* 2^60 above the least cost of a unit no share grows any more */
    for (unsigned i = 0; i < 60 && t < INFINITY && w->st == TSR_OK; i++) {
        if (fill(w, t, 0))
            return t;
        t *= 2;
    }
    return INFINITY;
}

static tsr_status take(struct work *w)
{
    uint64_t set = w->sets - 1, left = w->units, n = 0;
    w->r->groups = tsr_new(w->units + w->n_shapes, sizeof *w->r->groups);
    if (!w->r->groups)
        return tsr_fail_nomem(w->err, w->units * sizeof *w->r->groups, "groups of nodes");
    while (left && w->kept[set] != NO_GROUP) {
        uint32_t c = w->kept[set];
        if (c >= w->n_shapes) {
            set -= w->weight[c - w->n_shapes];
            continue;
        }
        struct shape *s = &w->shapes[c];
        uint64_t      share = w->kept_share[c];
        set -= s->step;
        share = share < left ? share : left;
        left -= share;
        double   cost = cost_of(w, s, share, 0);
        uint64_t i = 0;
        while (i < n && !(memcmp(w->r->groups[i].nodes, s->nodes, sizeof s->nodes) == 0 &&
                          w->r->groups[i].batch == share * w->p->unit))
            i++;
        struct tsr_plan_replica_group *g = &w->r->groups[i];
        if (i == n) {
            memcpy(g->nodes, s->nodes, sizeof s->nodes);
            g->batch = share * w->p->unit;
            g->objective = cost;
            n++;
        }
        g->copies++;
        w->r->objective = fmax(w->r->objective, cost);
    }
    w->r->n_groups = n;
    return w->st;
}

/* No split takes w->limit or less; the bounds say whether one may be. */
static tsr_status none_below(struct work *w)
{
    double lo = w->limit;
    if (fill(w, lo, 1))
        (void)least_time(w, 0, w->limit, fmax(w->p->gap, 1e-6) / 4, 1, &lo);
    w->r->objective = INFINITY;
    w->r->bound = lo;
    return w->st;
}

/* The least time for plans, with groups of one node first: a good time is soon known, and most larger groups need one solve
 * each to show that they are no better. */
static double least_of_plans(struct work *w, double gap)
{
    double hi = INFINITY, below;
    for (w->nodes = 1; w->nodes <= w->p->max_nodes && w->st == TSR_OK; w->nodes++) {
        double known = hi;
        hi = known < INFINITY ? known * (1 - gap) : some_time(w);
        if (known < INFINITY && !fill(w, hi, 0))
            hi = known;
        else if (hi < INFINITY)
            hi = least_time(w, 0, hi, gap, 0, &below);
    }
    w->nodes = w->p->max_nodes;
    return hi;
}

static tsr_status plan(struct work *w)
{
    double gap = w->p->gap > 1e-6 ? w->p->gap : 1e-6, hi = least_of_plans(w, gap / 4);
    if (w->st == TSR_OK && hi == INFINITY && isfinite(w->limit))
        return none_below(w);
    if (w->st == TSR_OK && hi == INFINITY)
        return tsr_fail(w->err, TSR_E_INFEASIBLE,
                        "the batch does not fit: no choice of groups of at most %llu nodes holds "
                        "the model for all of its requests",
                        (unsigned long long)w->p->max_nodes);
    if (w->st != TSR_OK)
        return w->st;
    double lo = 0;
    (void)least_time(w, 0, hi, gap / 4, 1, &lo);
    w->r->bound = lo;
    if (w->st == TSR_OK)
        w->st = take(w);
    w->r->bound = fmin(w->r->bound, w->r->objective);
    return w->st;
}

tsr_status tsr_plan_replicas_plan(struct tsr_plan_replicas              *r,
                                  const struct tsr_plan_replica_problem *p, struct tsr_err *err)
{
    struct work w = { .p = p, .r = r, .limit = p->below > 0 ? p->below : INFINITY, .err = err };
    memset(r, 0, sizeof *r);
    tsr_status st = prepare(&w);
    if (st == TSR_OK)
        st = plan(&w);
    free(w.shapes);
    free(w.costs);
    free(w.most);
    free(w.choice);
    free(w.kept);
    free(w.kept_share);
    return st;
}

void tsr_plan_replicas_free(struct tsr_plan_replicas *r)
{
    free(r->groups);
    memset(r, 0, sizeof *r);
}
