/* A head on the first stage, and the way of its rows there from the last one.
 *
 * An instance has no link from the last stage to the first, so that way is time of the last stage, and which stage is the first
 * is not known there.  By the slowest way to any that may be it, no plan takes longer than it counts; by the fastest
 * one none takes less, which is a bound.  What a plan takes with the way that it has, tsr_plan_built_price() tells. */
#include "plan/search/build_internal.h"

#include "base/mem.h"
#include "plan/instance/objective.h"

#include <math.h>
#include <stdlib.h>

void tsr_plan_build_pair(const struct tsr_plan_built *b, uint64_t from, uint64_t to,
                         struct tsr_plan_mesh *x, struct tsr_plan_mesh *y)
{
    const struct tsr_plan_meshes *m = &b->meshes;
    *x = m->kinds[from].mesh;
    *y = m->kinds[to].mesh;
    if (from != to || m->kinds[from].n_groups == 1)
        return;
    for (uint64_t g = m->kinds[from].group + 1; g < m->n_groups; g++)
        if (m->pool_of[g] == m->kinds[from].pool) {
            tsr_plan_mesh_of(b->p->cluster, g, m->kinds[from].way, y);
            return;
        }
}

/* From a kind to another, of a micro-batch; a way that is not there is reported where links are made. */
static tsr_status one_way(const struct tsr_plan_built *b, uint64_t from, uint64_t to,
                          enum tsr_phase phase, uint64_t size, double *ms, struct tsr_err *err)
{
    struct tsr_plan_mesh x, y;
    struct tsr_plan_send way;
    tsr_plan_build_pair(b, from, to, &x, &y);
    TSR_TRY(tsr_plan_problem_back(b->p, &x, &y, phase, size, &way, err));
    *ms = isfinite(way.ms) ? way.ms : 0;
    return TSR_OK;
}

tsr_status tsr_plan_build_back(const struct tsr_plan_built *b, uint64_t kind, enum tsr_phase phase,
                               uint64_t size, double *ms, struct tsr_err *err)
{
    bool some = false;
    *ms = 0;
    for (uint64_t j = 0; j < b->whole.n_kinds; j++) {
        double one;
        if (b->kinds[j].no_first || !tsr_plan_meshes_together(&b->meshes, kind, j))
            continue;
        TSR_TRY(one_way(b, kind, j, phase, size, &one, err));
        *ms = !some ? one : b->nearest ? fmin(*ms, one) : fmax(*ms, one);
        some = true;
    }
    return TSR_OK;
}

tsr_status tsr_plan_built_price(const struct tsr_plan_built *b, uint64_t part,
                                const struct tsr_solver_solution *s, double *objective,
                                struct tsr_err *err)
{
    const struct tsr_plan_part     *pt = &b->parts[part];
    struct tsr_solver_instance      in = pt->inst.in;
    struct tsr_solver_option        o = *in.options[s->option];
    const struct tsr_solver_option *list = &o;
    struct tsr_solver_solution      as = *s;
    if (b->p->memory.place != TSR_PLAN_HEAD_FIRST || s->stages < 2)
        return tsr_plan_evaluate(&in, s, objective, err);
    uint64_t n = in.n_kinds, last = s->stage_kind[s->stages - 1], first = s->stage_kind[0];
    double  *head = tsr_new(2 * n, sizeof *head);
    if (!head)
        return tsr_fail_nomem(err, 2 * n * sizeof *head, "the price of a plan");
    double     prefills = (double)tsr_plan_prefill_count(in.batch, o.prefill_mb, o.decode_mb);
    tsr_status st = one_way(b, pt->first_kind + last, pt->first_kind + first, TSR_PLAN_PREFILL,
                            o.prefill_mb, &head[last], err);
    if (st == TSR_OK)
        st = one_way(b, pt->first_kind + last, pt->first_kind + first, TSR_PLAN_DECODE, o.decode_mb,
                     &head[n + last], err);
    head[last] *= o.prefill_jobs > 0 ? prefills / o.prefill_jobs : 1;
    o.head_pre_ms = head;
    o.head_dec_ms = head + n;
    in.options = &list;
    in.n_options = 1;
    as.option = 0;
    if (st == TSR_OK)
        st = tsr_plan_evaluate(&in, &as, objective, err);
    free(head);
    return st;
}

static double greatest(const double *v, uint64_t n)
{
    double most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = fmax(most, v[i]);
    return most;
}

/* The forms of tsr_plan_evaluate(), whose slowest stage is longer by the way at most; as is each sum where the way is not the
 * fastest one. One micro-batch is on its way through all stages, and waits for none. */
double tsr_plan_built_over(const struct tsr_plan_built *b)
{
    const struct tsr_solver_instance *in = &b->whole;
    double                            over = 0, steps = (double)in->tokens - 1;
    if (b->p->memory.place == TSR_PLAN_HEAD_FIRST && in->max_first_ms > 0)
        return INFINITY; /* prompts may be done in time where an instance has none */
    for (uint64_t i = 0; i < in->n_options && b->p->memory.place == TSR_PLAN_HEAD_FIRST; i++) {
        const struct tsr_solver_option *o = in->options[i];
        double                          mu = ceil((double)in->batch / (double)o->decode_mb);
        double                          jobs =
            o->prefill_jobs > 0 ? o->prefill_jobs : ceil((double)in->batch / (double)o->prefill_mb);
        double pre = jobs - 1, dec = mu > 1 ? steps * mu - 1 : 0;
        over = fmax(over, pre * greatest(o->head_pre_ms, in->n_kinds) +
                              (steps > 0 ? dec * greatest(o->head_dec_ms, in->n_kinds) : 0));
    }
    return over;
}

/* ---- the nodes of first stages ----------------------------------------------------- */

/* Whether the group of kind k has a twin in one of the nodes, whose devices have the same kinds: a plan that begins on it is
 * as good as one that begins there. */
static bool has_twin(const struct tsr_plan_built *b, uint64_t k, const uint64_t *node, uint64_t n)
{
    const struct tsr_plan_meshes    *m = &b->meshes;
    const struct tsr_plan_mesh_kind *of = &m->kinds[k];
    for (uint64_t h = 0; h < m->n_groups; h++) {
        uint64_t i = 0;
        int64_t  more = 0; /* kinds of h than those that both have */
        while (i < n && node[i] != b->p->cluster->groups[h].node)
            i++;
        if (i == n || !tsr_plan_meshes_twins(b->p, h, of->group))
            continue;
        for (uint64_t j = 0; j < m->n_kinds; j++) {
            const struct tsr_plan_mesh_kind *x = &m->kinds[j];
            more += x->pool == m->pool_of[h];
            if (x->pool != of->pool)
                continue;
            uint64_t y = tsr_plan_meshes_find(m, h, x->way, x->sum, x->role);
            more -= y < m->n_kinds && b->kinds[y].no_first == b->kinds[j].no_first;
        }
        if (!more)
            return true;
    }
    return false;
}

uint64_t tsr_plan_built_nodes(const struct tsr_plan_built *b, uint64_t *node, uint64_t *all)
{
    const struct tsr_plan_cluster *c = b->p->cluster;
    uint64_t                       n = 0, kept = 0;
    for (uint64_t k = 0; k < b->meshes.n_kinds; k++) {
        uint64_t of = c->groups[b->meshes.kinds[k].group].node, i = 0;
        while (i < n && node[i] != of)
            i++;
        if (b->kinds[k].no_first || i < n)
            continue;
        node[n++] = of;
    }
    *all = n;
    for (uint64_t i = 0; i < n; i++) {
        bool twin = true;
        for (uint64_t k = 0; k < b->meshes.n_kinds && twin; k++)
            if (!b->kinds[k].no_first && c->groups[b->meshes.kinds[k].group].node == node[i])
                twin = has_twin(b, k, node, kept);
        if (!twin)
            node[kept++] = node[i];
    }
    return kept;
}
