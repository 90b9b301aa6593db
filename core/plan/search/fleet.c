#include "plan/search/fleet.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/search/replicas.h"
#include "plan/search/settings.h"
#include "plan/search/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PARTS         256u  /* default number of shares of the batch */
#define MOST_PARTS    4096u /* limit of replicas.h */
#define PART_OF_TIME  20    /* of the time limit, for the search of a group at most */
#define ALL_WIDTHS    8u    /* up to so many nodes each copy has its own widths */
#define LEAST_SECONDS 0.05  /* for the search of a group */

struct fleet {
    const struct tsr_plan_problem *p;
    const struct tsr_plugin_spec  *solver;
    struct tsr_plan_fleet         *f;
    uint64_t                      *type; /* [nodes] */
    uint32_t *widths; /* [groups of the cluster] of the nodes, once they are chosen */
    double    end;    /* of the time; INFINITY: none */
    bool      open;   /* as in the options */
    bool      late;   /* some group was not settled */
};

/* ---- one copy ------------------------------------------------------------------------ */

/* The first nodes of each type that are not used yet; used NULL: of all.  Returns how many. */
static uint64_t pick(const struct fleet *z, const uint64_t *counts, bool *used, uint64_t *nodes)
{
    uint64_t n = 0;
    for (uint64_t t = 0; t < z->f->types; t++) {
        uint64_t left = counts[t];
        for (uint64_t i = 0; i < z->p->cluster->n_nodes && left; i++)
            if (z->type[i] == t && !(used && used[i])) {
                nodes[n++] = i;
                left--;
                if (used)
                    used[i] = true;
            }
    }
    return n;
}

static tsr_status search(struct fleet *z, struct tsr_plan_planned *a,
                         struct tsr_plan_problem *share, struct tsr_err *err)
{
    /* No group takes more than a twentieth of the time: a share far from the one that is taken in
     * the end needs no proof.  A moment is left to each, so that what is quick is still found. */
    if (isfinite(z->end))
        share->o.time_limit =
            fmax(fmin(z->p->o.time_limit / PART_OF_TIME, z->end - tsr_now_s()), LEAST_SECONDS);
    TSR_TRY(z->open ? tsr_plan_settings_search(a, share, z->solver, err)
                    : tsr_search(a, share, z->solver, INFINITY, err));
    if (!tsr_plan_planned_has_plan(a) && a->status != TSR_SOLVED_INFEASIBLE)
        z->late = true;
    return TSR_OK;
}

/* Widths of a share's groups, as the types of its nodes have them. */
static tsr_status fix_widths(const struct fleet *z, struct tsr_plan_problem *share,
                             const uint64_t *nodes, uint64_t n, struct tsr_err *err)
{
    uint32_t *w = tsr_new(share->cluster->n_groups, sizeof *w);
    uint64_t  at = 0;
    if (!w)
        return tsr_fail_nomem(err, share->cluster->n_groups * sizeof *w, "widths of meshes");
    for (uint64_t i = 0; i < n; i++) {
        const struct tsr_plan_node_info *node = &z->p->cluster->nodes[nodes[i]];
        for (uint64_t g = 0; g < node->n_groups; g++)
            w[at++] = z->widths[node->first_group + g];
    }
    share->widths = w;
    return TSR_OK;
}

/* A share whose micro-batches and widths are those of the fleet. */
static tsr_status open_share(const struct fleet *z, struct tsr_plan_problem *share,
                             struct tsr_plan_cluster **part, const uint64_t *nodes, uint64_t n,
                             uint64_t batch, struct tsr_err *err)
{
    struct tsr_plan_share of = { .nodes = nodes, .n = n, .batch = batch };
    TSR_TRY(tsr_plan_share_open(share, part, z->p, &of, err));
    share->few = !z->open;
    if (!z->widths)
        return TSR_OK;
    tsr_status st = fix_widths(z, share, nodes, n, err);
    if (st != TSR_OK) {
        tsr_plan_share_close(share, *part);
        *part = NULL;
    }
    return st;
}

static double value_of(const struct fleet *z, const struct tsr_plan_problem *share,
                       const struct tsr_plan_planned *a)
{
    return z->open ? tsr_plan_share_value(share, a) : a->objective * tsr_plan_problem_rounds(share);
}

static tsr_status cost(void *arg, const uint64_t *counts, uint64_t batch, double cutoff,
                       double *objective, double *bound, struct tsr_err *err)
{
    struct fleet            *z = arg;
    struct tsr_plan_problem  share;
    struct tsr_plan_cluster *part = NULL;
    struct tsr_plan_planned  a = { .status = TSR_SOLVED_UNKNOWN };
    uint64_t                 nodes[TSR_REPLICA_NODES];
    (void)cutoff;
    if (tsr_plugin_cancelled())
        return tsr_fail(err, TSR_E_CANCELLED, "while planning");
    if (z->open && tsr_now_s() > z->end) { /* what else was found is there to be taken */
        z->late = true;
        *objective = INFINITY;
        *bound = 0;
        return TSR_OK;
    }
    uint64_t n = pick(z, counts, NULL, nodes);
    TSR_TRY(open_share(z, &share, &part, nodes, n, batch, err));
    tsr_status st = search(z, &a, &share, err);
    if (st == TSR_OK) {
        *objective = tsr_plan_planned_has_plan(&a) ? value_of(z, &share, &a) : INFINITY;
        *bound = z->open ? tsr_plan_share_bound(&share, &a)
                 : a.status == TSR_SOLVED_INFEASIBLE
                     ? INFINITY
                     : fmax(a.bound, 0) * tsr_plan_problem_rounds(&share);
    }
    tsr_logf(TSR_LOG_DEBUG, "%llu + %llu + %llu + %llu nodes with %llu requests: %.6g ms, %.3g s",
             (unsigned long long)counts[0], (unsigned long long)(z->f->types > 1 ? counts[1] : 0),
             (unsigned long long)(z->f->types > 2 ? counts[2] : 0),
             (unsigned long long)(z->f->types > 3 ? counts[3] : 0), (unsigned long long)batch,
             *objective, a.seconds);
    tsr_plan_planned_free(&a);
    tsr_plan_share_close(&share, part);
    return st;
}

/* ---- widths ---------------------------------------------------------------------------- */

/* The way of most layers of a plan on a group; the narrowest that it can have where the plan does not use it. */
static uint32_t most_taken(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                           uint64_t group)
{
    uint32_t w[TSR_PLAN_MESH_WIDTHS], n = tsr_plan_meshes_widths(p, group, true, w, NULL, 0);
    uint64_t most = 0;
    uint32_t best = w[0];
    for (uint32_t i = 0; i < n; i++) {
        uint64_t layers = 0;
        for (uint64_t s = 0; s < o->n_stages; s++) {
            const struct tsr_plan_mesh *m = &o->stages[s].mesh;
            bool                        whole = w[i] & TSR_PLAN_WAY_WHOLE;
            if (o->stages[s].group == group && m->tp == tsr_plan_way_tp(w[i]) &&
                m->whole_experts == whole)
                layers += o->stages[s].count;
        }
        best = layers > most ? w[i] : best;
        most = layers > most ? layers : most;
    }
    return best;
}

/* The best widths of n nodes like `node` with a share of the batch; *found false: no plan. */
static tsr_status best_widths(struct fleet *z, uint64_t node, uint64_t n, uint64_t share_of,
                              uint32_t *widths, bool *found, struct tsr_err *err)
{
    struct tsr_plan_problem  share;
    struct tsr_plan_cluster *part = NULL;
    struct tsr_plan_planned  a = { .status = TSR_SOLVED_UNKNOWN };
    uint64_t                 counts[TSR_REPLICA_TYPES] = { 0 }, nodes[TSR_REPLICA_NODES];
    counts[z->type[node]] = n;
    (void)pick(z, counts, NULL, nodes);
    TSR_TRY(open_share(z, &share, &part, nodes, n, share_of, err));
    /* which widths are best shows in coarse plans, too */
    if (share.o.together < share.shape->layers / 20)
        share.o.together = share.shape->layers / 20;
    share.o.gap = fmax(share.o.gap, 0.01);
    tsr_status st = search(z, &a, &share, err);
    *found = st == TSR_OK && tsr_plan_planned_has_plan(&a);
    tsr_logf(TSR_LOG_DEBUG, "widths of node %s by %llu requests: %.3g s, %llu choices",
             z->p->cluster->nodes[node].name, (unsigned long long)share_of, a.seconds,
             (unsigned long long)a.choices);
    for (uint64_t g = 0; *found && g < z->p->cluster->nodes[node].n_groups; g++)
        widths[g] = most_taken(&share, &a.outcome, g);
    tsr_plan_planned_free(&a);
    tsr_plan_share_close(&share, part);
    return st;
}

/* Every node of a type has the widths that are best where nodes of the type do an even share by
 * themselves: one of them, or as many as it takes.  Where even max_nodes cannot, the widest. */
static tsr_status choose_widths(struct fleet *z, const struct tsr_plan_replica_problem *r,
                                struct tsr_err *err)
{
    const struct tsr_plan_cluster *c = z->p->cluster;
    uint32_t                      *widths = tsr_new(c->n_groups, sizeof *widths);
    uint64_t                       units = r->unit ? r->batch / r->unit : 0;
    tsr_status                     st = TSR_OK;
    if (!widths)
        return tsr_fail_nomem(err, c->n_groups * sizeof *widths, "widths of meshes");
    for (uint64_t t = 0, i = 0; t < z->f->types && st == TSR_OK; t++) {
        while (z->type[i] != t)
            i++;
        const struct tsr_plan_node_info *first = &c->nodes[i];
        bool                             found = false;
        uint64_t most = r->max_nodes < r->count[t] ? r->max_nodes : r->count[t];
        for (uint64_t n = 1; n <= most && n <= c->n_nodes && !found && st == TSR_OK; n++) {
            uint64_t parts = units * n / c->n_nodes;
            uint64_t even = (parts ? parts : 1) * r->unit;
            st = best_widths(z, i, n, even, widths + first->first_group, &found, err);
        }
        for (uint64_t g = 0; g < first->n_groups && !found; g++) {
            uint32_t w[TSR_PLAN_MESH_WIDTHS],
                n = tsr_plan_meshes_widths(z->p, first->first_group + g, false, w, NULL, 0);
            widths[first->first_group + g] = w[n - 1];
        }
        for (uint64_t k = 0; k < c->n_nodes; k++)
            for (uint64_t g = 0; z->type[k] == t && g < first->n_groups; g++)
                widths[c->nodes[k].first_group + g] = widths[first->first_group + g];
    }
    z->widths = widths;
    return st;
}

/* ---- the whole ----------------------------------------------------------------------- */

/* Parts of the batch: as many as divide it, up to 256, or up to 4,096 where only few would. */
static uint64_t unit_of(uint64_t batch)
{
    uint64_t few = 1, many = 1;
    for (uint64_t n = 1; n <= MOST_PARTS && n <= batch; n++)
        if (batch % n == 0) {
            few = n <= PARTS ? n : few;
            many = n;
        }
    return batch / (few < 16 ? many : few);
}

static tsr_status prepare(struct fleet *z, const struct tsr_plan_fleet_options *o,
                          struct tsr_plan_replica_problem *r, struct tsr_err *err)
{
    const struct tsr_plan_cluster *c = z->p->cluster;
    uint64_t batch = z->p->work.batch, unit = o->unit ? o->unit : unit_of(batch);
    z->type = tsr_new(c->n_nodes, sizeof *z->type);
    if (!z->type)
        return tsr_fail_nomem(err, c->n_nodes * sizeof *z->type, "types of nodes");
    z->f->types = tsr_plan_cluster_types(c, z->type);
    z->f->unit = unit;
    if (z->f->types > TSR_REPLICA_TYPES)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: %llu types of nodes, copies of the model are formed from at most %u; "
                        "plan parts of the cluster",
                        c->name, (unsigned long long)z->f->types, TSR_REPLICA_TYPES);
    if (unit == 0 || batch % unit != 0 || batch / unit > MOST_PARTS)
        return tsr_fail(err, TSR_E_INPUT,
                        "share_unit: a batch of %llu is not up to %u parts of %llu requests; try "
                        "%llu",
                        (unsigned long long)batch, MOST_PARTS, (unsigned long long)unit,
                        (unsigned long long)unit_of(batch));
    *r = (struct tsr_plan_replica_problem){ .types = z->f->types,
                                            .batch = batch,
                                            .unit = unit,
                                            .max_nodes = o->max_nodes,
                                            .gap = z->p->o.gap,
                                            .below = o->below,
                                            .cost = cost,
                                            .arg = z };
    for (uint64_t i = 0; i < c->n_nodes; i++)
        r->count[z->type[i]]++;
    return TSR_OK;
}

static tsr_status make_kind(struct fleet *z, const struct tsr_plan_replica_group *g, bool *used,
                            struct tsr_err *err)
{
    struct tsr_plan_fleet_kind *k = &z->f->kinds[z->f->n_kinds];
    uint64_t                    total;
    for (uint64_t t = 0; t < z->f->types; t++)
        k->n_nodes += g->nodes[t];
    if (!tsr_mul(g->copies, k->n_nodes, &total) || !(k->nodes = tsr_new(total, sizeof *k->nodes)))
        return tsr_fail_nomem(err, g->copies * 8, "the nodes of copies");
    k->copies = g->copies;
    k->batch = g->batch;
    z->f->n_kinds++;
    for (uint64_t i = 0; i < k->copies; i++)
        (void)pick(z, g->nodes, used, k->nodes + i * k->n_nodes);
    TSR_TRY(open_share(z, &k->problem, &k->cluster, k->nodes, k->n_nodes, k->batch, err));
    if (z->open && isfinite(z->end)) /* also at the end of the time, as long as for its cost */
        z->end = fmax(z->end, tsr_now_s() + z->p->o.time_limit / PART_OF_TIME);
    TSR_TRY(search(z, &k->planned, &k->problem, err));
    z->late = z->late || !tsr_plan_planned_has_plan(&k->planned);
    if (!tsr_plan_planned_has_plan(&k->planned))
        return tsr_fail(err, TSR_E_NUMERIC,
                        "time ran out while the copies were planned; try a longer time_limit");
    return TSR_OK;
}

static tsr_status take(struct fleet *z, const struct tsr_plan_replicas *r, struct tsr_err *err)
{
    struct tsr_plan_fleet *f = z->f;
    bool                  *used = tsr_new(z->p->cluster->n_nodes, sizeof *used);
    tsr_status             st = TSR_OK;
    f->kinds = tsr_new(r->n_groups, sizeof *f->kinds);
    if (!used || !f->kinds)
        st = tsr_fail_nomem(err, r->n_groups * sizeof *f->kinds, "copies of the model");
    for (uint64_t i = 0; i < r->n_groups && st == TSR_OK; i++)
        st = make_kind(z, &r->groups[i], used, err);
    free(used);
    if (st != TSR_OK)
        return st;
    f->bound = r->bound;
    f->solves = r->solves;
    for (uint64_t i = 0; i < f->n_kinds; i++) {
        const struct tsr_plan_fleet_kind *k = &f->kinds[i];
        f->copies += k->copies;
        f->used += k->copies * k->n_nodes;
        f->objective = fmax(f->objective, value_of(z, &k->problem, &k->planned));
        f->latency_ms = fmax(f->latency_ms, k->planned.outcome.latency_ms);
    }
    const struct tsr_plan_workload *w = &z->p->work;
    f->tokens_per_second = (double)w->batch * (double)w->n / f->latency_ms * 1e3;
    /* the shares are found to a quarter of the gap (at least 1e-6, replicas.c), the groups to the gap */
    f->proved = f->objective - f->bound <= 2 * fmax(z->p->o.gap, 1e-6) * f->objective + 1e-6;
    return TSR_OK;
}

tsr_status tsr_plan_fleet_plan(struct tsr_plan_fleet *f, const struct tsr_plan_problem *p,
                               const struct tsr_plugin_spec        *solver,
                               const struct tsr_plan_fleet_options *o, struct tsr_err *err)
{
    double                          start = tsr_now_s();
    struct tsr_plan_replica_problem problem;
    struct tsr_plan_replicas        r = { 0 };
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct fleet                    z = { .p = p,
                                          .solver = solver,
                                          .f = f,
                                          .open = o->open,
                                          .end = p->o.time_limit > 0 ? start + p->o.time_limit : INFINITY };
    *f = (struct tsr_plan_fleet){ 0 };
    tsr_status st = prepare(&z, o, &problem, err);
    if (st == TSR_OK && !o->open && p->cluster->n_nodes > ALL_WIDTHS)
        st = choose_widths(&z, &problem, err);
    if (st == TSR_OK) {
        st = tsr_plan_replicas_plan(&r, &problem, &e.err);
        if (z.late &&
            (st == TSR_E_INFEASIBLE || (st == TSR_OK && r.n_groups == 0 && !(o->below > 0))))
            st = tsr_fail(err, TSR_E_NUMERIC,
                          "time ran out before copies for the whole batch were found; try a longer "
                          "time_limit");
        else if (st != TSR_OK)
            st = tsr_err_copy(err, st == TSR_E_UNSUPPORTED ? TSR_E_INPUT : st, &e.err);
    }
    if (st == TSR_OK)
        st = take(&z, &r, err);
    tsr_plan_replicas_free(&r);
    free(z.type);
    free(z.widths);
    f->seconds = tsr_now_s() - start;
    f->late = z.late;
    return st;
}

void tsr_plan_fleet_free(struct tsr_plan_fleet *f)
{
    for (uint64_t i = 0; i < f->n_kinds; i++) {
        tsr_plan_planned_free(&f->kinds[i].planned);
        tsr_plan_share_close(&f->kinds[i].problem, f->kinds[i].cluster);
        free(f->kinds[i].nodes);
    }
    free(f->kinds);
    *f = (struct tsr_plan_fleet){ 0 };
}
