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
    uint64_t nodes[TSR_REPLICA_TYPES];
    uint64_t step;    /* of it in the numbering of sets */
    double  *cost[2]; /* [units + 1] plan and bound; NaN: not solved yet */
};

struct work {
    const struct tsr_plan_replica_problem *p;
    struct tsr_plan_replicas              *r;
    struct shape                          *shapes;
    uint64_t                               n_shapes, units, sets;
    uint64_t        weight[TSR_REPLICA_TYPES]; /* of a node in the numbering */
    double         *costs;
    uint32_t       *most, *choice; /* [sets] units that fit; shape taken */
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
            w->p->cost(w->p->arg, s->nodes, units * w->p->unit, INFINITY, &plan, &bound, w->err);
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
    while (hi - lo > 1 && w->st == TSR_OK) {
        /* doubling first: shares are small compared with the batch where there are many groups */
        uint64_t mid = hi == w->units + 1 && 2 * lo + 1 < hi ? 2 * lo + 1 : lo + (hi - lo) / 2;
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
    if (p->types == 0 || p->types > TSR_REPLICA_TYPES || p->max_nodes == 0 || p->max_nodes > 4 ||
        p->unit == 0 || p->batch == 0 || p->batch % p->unit != 0 || p->batch / p->unit > MOST_UNITS)
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
    if (!w->shapes || !w->costs || !w->most || !w->choice)
        return tsr_fail_nomem(w->err, w->sets * 8 + n * stride * 16, "groups of nodes");
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

/* Units that all nodes can take within a time; w->choice holds the split. */
static uint64_t fill(struct work *w, double time, unsigned which)
{
    uint64_t  digit[TSR_REPLICA_TYPES] = { 0 };
    uint64_t  share[80], n = w->n_shapes; /* 69 shapes of 4 types: prepare() limits them */
    uint64_t *all = n > 80 ? tsr_new(n, sizeof *all) : share;
    if (!all) {
        w->st = tsr_fail_nomem(w->err, n * sizeof *all, "shares of groups");
        return 0;
    }
    for (uint64_t i = 0; i < n && w->st == TSR_OK; i++)
        all[i] = share_within(w, &w->shapes[i], time, which);
    for (uint64_t s = 0; s < w->sets && w->st == TSR_OK; s++) {
        uint32_t best = 0, choice = NO_GROUP;
        /* a node of the first type that there is stays unused */
        for (uint64_t t = 0; t < w->p->types; t++)
            if (digit[t] && w->most[s - w->weight[t]] > best) {
                best = w->most[s - w->weight[t]];
                choice = (uint32_t)(n + t);
            }
        for (uint64_t i = 0; i < n; i++) {
            if (all[i] == 0 || !holds(w, digit, &w->shapes[i]))
                continue;
            uint64_t v = w->most[s - w->shapes[i].step] + all[i];
            v = v > UINT32_MAX ? UINT32_MAX : v;
            if (v > best) {
                best = (uint32_t)v;
                choice = (uint32_t)i;
            }
        }
        w->most[s] = best;
        w->choice[s] = choice;
        for (uint64_t t = 0; t < w->p->types && ++digit[t] > w->p->count[t]; t++)
            digit[t] = 0;
    }
    if (all != share)
        free(all);
    return w->st == TSR_OK ? w->most[w->sets - 1] : 0;
}

/* ---- the whole --------------------------------------------------------------------- */

/* The least time (within gap) at which the batch fits; lo: one at which it does not. */
static double least_time(struct work *w, double lo, double hi, double gap, unsigned which,
                         double *below)
{
    while (w->st == TSR_OK && hi - lo > gap * hi) {
        double mid = lo + (hi - lo) / 2;
        if (fill(w, mid, which) >= w->units)
            hi = mid;
        else
            lo = mid;
    }
    *below = lo;
    return hi;
}

/* A time at which the batch fits by plans, doubled from that of one unit; INFINITY: none. */
static double some_time(struct work *w)
{
    double first = INFINITY;
    for (uint64_t i = 0; i < w->n_shapes && w->st == TSR_OK; i++)
        first = fmin(first, cost_of(w, &w->shapes[i], 1, 0));
    double t = first;
    /* 2^60 above the least cost of a unit no share grows any more */
    for (unsigned i = 0; i < 60 && t < INFINITY && w->st == TSR_OK; i++) {
        if (fill(w, t, 0) >= w->units)
            return t;
        t *= 2;
    }
    return INFINITY;
}

static tsr_status take(struct work *w, double time)
{
    uint64_t set = w->sets - 1, left = w->units, n = 0;
    w->r->groups = tsr_new(w->units + w->n_shapes, sizeof *w->r->groups);
    if (!w->r->groups)
        return tsr_fail_nomem(w->err, w->units * sizeof *w->r->groups, "groups of nodes");
    while (left && w->choice[set] != NO_GROUP) {
        uint32_t c = w->choice[set];
        if (c >= w->n_shapes) {
            set -= w->weight[c - w->n_shapes];
            continue;
        }
        struct shape *s = &w->shapes[c];
        uint64_t      share = share_within(w, s, time, 0);
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

static tsr_status plan(struct work *w)
{
    double below = 0, hi = some_time(w);
    if (w->st == TSR_OK && hi == INFINITY)
        return tsr_fail(w->err, TSR_E_INFEASIBLE,
                        "the batch does not fit: no choice of groups of at most %llu nodes holds "
                        "the model for all of its requests",
                        (unsigned long long)w->p->max_nodes);
    double gap = w->p->gap > 1e-6 ? w->p->gap : 1e-6;
    hi = least_time(w, 0, hi, gap / 4, 0, &below);
    if (w->st != TSR_OK)
        return w->st;
    double lo = 0;
    (void)least_time(w, 0, hi, gap / 4, 1, &lo);
    w->r->bound = lo;
    /* The choices of the plan again.  Where costs fall with a share after all, as those of plans that
     * were not searched to the end may, what has been asked since can have moved it. */
    bool fits = false;
    for (unsigned i = 0; i < 60 && w->st == TSR_OK && !fits; i++) {
        fits = fill(w, hi, 0) >= w->units;
        hi = fits ? hi : 2 * hi;
    }
    if (w->st == TSR_OK && fits)
        w->st = take(w, hi);
    w->r->bound = fmin(w->r->bound, w->r->objective);
    return w->st;
}

tsr_status tsr_plan_replicas_plan(struct tsr_plan_replicas              *r,
                                  const struct tsr_plan_replica_problem *p, struct tsr_err *err)
{
    struct work w = { .p = p, .r = r, .err = err };
    memset(r, 0, sizeof *r);
    tsr_status st = prepare(&w);
    if (st == TSR_OK)
        st = plan(&w);
    free(w.shapes);
    free(w.costs);
    free(w.most);
    free(w.choice);
    return st;
}

void tsr_plan_replicas_free(struct tsr_plan_replicas *r)
{
    free(r->groups);
    memset(r, 0, sizeof *r);
}
