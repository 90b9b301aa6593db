/* Questions to a cluster, and parts of one. */
#include "plan/cost/cluster.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double tsr_plan_link_ms(const struct tsr_plan_link *l, double bytes)
{
    return l->rate > 0 ? l->alpha_ms + 1e3 * bytes / l->rate : INFINITY;
}

void tsr_plan_cluster_destroy(struct tsr_plan_cluster *c)
{
    if (!c)
        return;
    for (uint64_t i = 0; i < c->n_profiles; i++)
        tsr_plan_profile_destroy(c->profiles[i]);
    free(c->profiles);
    free(c->name);
    free(c->nodes);
    free(c->groups);
    free(c->between);
    tsr_config_doc_destroy(c->doc);
    free(c);
}

uint64_t tsr_plan_cluster_devices(const struct tsr_plan_cluster *c)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < c->n_groups; i++)
        n += c->groups[i].count;
    return n;
}

const struct tsr_plan_link *tsr_plan_cluster_link(const struct tsr_plan_cluster *c,
                                                  uint64_t from_node, uint64_t to_node,
                                                  enum tsr_phase phase)
{
    return &c->between[((uint64_t)phase * c->n_nodes + from_node) * c->n_nodes + to_node];
}

/* One is known to be a CPU, the other one to be none. */
static bool other_memory(const struct tsr_plan_profile *a, const struct tsr_plan_profile *b)
{
    return a->backend && b->backend &&
           (strcmp(a->backend, "cpu") == 0) != (strcmp(b->backend, "cpu") == 0);
}

bool tsr_plan_mesh_beside(const struct tsr_plan_mesh *a, const struct tsr_plan_mesh *b)
{
    return a->node == b->node && other_memory(a->profile, b->profile);
}

void tsr_plan_mesh_of(const struct tsr_plan_cluster *c, uint64_t group, uint32_t way,
                      struct tsr_plan_mesh *m)
{
    const struct tsr_plan_group *g = &c->groups[group];
    uint32_t                     tp = tsr_plan_way_tp(way);
    *m = (struct tsr_plan_mesh){ .profile = g->profile,
                                 .tp = tp,
                                 .whole_experts = tp > 1 && way & TSR_PLAN_WAY_WHOLE,
                                 .node = g->node };
    const struct tsr_plan_node_info *n = &c->nodes[g->node];
    uint64_t                         devices = 0;
    for (uint64_t i = 0; i < n->n_groups; i++) {
        devices += c->groups[n->first_group + i].count;
        m->mixed = m->mixed || other_memory(g->profile, c->groups[n->first_group + i].profile);
    }
    m->cpu = n->cpu;
    m->parts = n->parts;
    m->cpu_share = (double)tp / (double)devices / (double)(n->parts ? n->parts : 1);
    for (int i = 0; i < 2; i++) {
        m->inside[i] = n->link[i];
        m->to_cpu[i] = n->to_cpu[i];
    }
    if (tp > 1)
        (void)snprintf(m->name, sizeof m->name, "%.32s x%u%s", g->profile->name, tp,
                       m->whole_experts ? ", experts whole" : "");
    else
        (void)snprintf(m->name, sizeof m->name, "%.32s", g->profile->name);
}

/* ---- parts ------------------------------------------------------------------------------------ */

/* The devices of a node, or one of k equal parts of them. */
static void part_of_node(struct tsr_plan_cluster *p, const struct tsr_plan_cluster *c,
                         uint64_t node, uint64_t k)
{
    struct tsr_plan_node_info       *to = &p->nodes[p->n_nodes];
    const struct tsr_plan_node_info *from = &c->nodes[node];
    *to = *from;
    to->parts = (from->parts ? from->parts : 1) * k;
    to->first_group = p->n_groups;
    to->n_groups = 0;
    for (uint64_t g = 0; g < from->n_groups; g++) {
        struct tsr_plan_group *group = &p->groups[p->n_groups];
        *group = c->groups[from->first_group + g];
        group->count /= k;
        group->node = p->n_nodes;
        p->n_groups += group->count > 0;
        to->n_groups += group->count > 0;
    }
    p->n_nodes++;
}

static tsr_status fill_part(struct tsr_plan_cluster *p, const struct tsr_plan_cluster *c,
                            const uint64_t *nodes, const uint64_t *each, uint64_t n,
                            struct tsr_err *err)
{
    uint64_t groups = 0;
    for (uint64_t i = 0; i < n; i++)
        groups += c->nodes[nodes[i]].n_groups;
    p->name = tsr_strdup(c->name);
    p->nodes = tsr_new(n, sizeof *p->nodes);
    p->groups = tsr_new(groups, sizeof *p->groups);
    p->between = tsr_new(2 * n * n, sizeof *p->between);
    if (!p->name || !p->nodes || !p->groups || !p->between)
        return tsr_fail_nomem(err, 2 * n * n * sizeof *p->between, "a part of a cluster");
    p->fixed = c->fixed;
    p->slower = c->slower;
    for (uint64_t i = 0; i < n; i++) {
        part_of_node(p, c, nodes[i], each ? each[i] : 1);
        if (!p->nodes[i].n_groups)
            return tsr_fail(err, TSR_E_INVAL, "%s: node %s has no device for each of %llu parts",
                            c->name, p->nodes[i].name, (unsigned long long)(each ? each[i] : 1));
        for (uint64_t k = 0; k < n; k++)
            for (int ph = 0; ph < 2; ph++)
                p->between[((uint64_t)ph * n + i) * n + k] =
                    *tsr_plan_cluster_link(c, nodes[i], nodes[k], (enum tsr_phase)ph);
    }
    return TSR_OK;
}

tsr_status tsr_plan_cluster_part(struct tsr_plan_cluster **part, const struct tsr_plan_cluster *c,
                                 const uint64_t *nodes, const uint64_t *each, uint64_t n,
                                 struct tsr_err *err)
{
    struct tsr_plan_cluster *p = tsr_new(1, sizeof *p);
    *part = NULL;
    if (!p)
        return tsr_fail_nomem(err, sizeof *p, "a part of a cluster");
    tsr_status st = fill_part(p, c, nodes, each, n, err);
    if (st != TSR_OK) {
        tsr_plan_cluster_destroy(p);
        return st;
    }
    *part = p;
    return TSR_OK;
}

/* Both come from the same file, so equal links have equal numbers. */
static bool same_link(const struct tsr_plan_link *l, const struct tsr_plan_link *m)
{
    return !(l->alpha_ms < m->alpha_ms || l->alpha_ms > m->alpha_ms || l->rate < m->rate ||
             l->rate > m->rate);
}

static bool same_way(const struct tsr_plan_cluster *c, uint64_t a, uint64_t b, uint64_t x,
                     uint64_t y)
{
    for (int p = 0; p < 2; p++)
        if (!same_link(tsr_plan_cluster_link(c, a, b, (enum tsr_phase)p),
                       tsr_plan_cluster_link(c, x, y, (enum tsr_phase)p)))
            return false;
    return true;
}

bool tsr_plan_mesh_same_cpu(const struct tsr_plan_mesh *a, const struct tsr_plan_mesh *b)
{
    if (a->cpu != b->cpu)
        return false;
    return !a->cpu ||
           (same_link(&a->to_cpu[0], &b->to_cpu[0]) && same_link(&a->to_cpu[1], &b->to_cpu[1]) &&
            !(a->cpu_share < b->cpu_share) && !(b->cpu_share < a->cpu_share));
}

/* The same devices in the same order, and the same ways to each other and to all others.  What is
 * alike to the first of a type is alike to all of it: every way between two of them has then the
 * numbers of one. */
static bool same_node(const struct tsr_plan_cluster *c, uint64_t a, uint64_t b)
{
    const struct tsr_plan_node_info *x = &c->nodes[a], *y = &c->nodes[b];
    if (x->n_groups != y->n_groups || !same_way(c, a, a, b, b) || !same_way(c, a, b, b, a))
        return false;
    if (x->cpu != y->cpu || (x->cpu && (!same_link(&x->to_cpu[0], &y->to_cpu[0]) ||
                                        !same_link(&x->to_cpu[1], &y->to_cpu[1]))))
        return false;
    for (uint64_t g = 0; g < x->n_groups; g++) {
        const struct tsr_plan_group *u = &c->groups[x->first_group + g],
                                    *v = &c->groups[y->first_group + g];
        if (u->profile != v->profile || u->count != v->count)
            return false;
    }
    for (uint64_t i = 0; i < c->n_nodes; i++)
        if (i != a && i != b && (!same_way(c, a, i, b, i) || !same_way(c, i, a, i, b)))
            return false;
    return true;
}

uint64_t tsr_plan_cluster_types(const struct tsr_plan_cluster *c, uint64_t *type)
{
    uint64_t types = 0;
    for (uint64_t i = 0; i < c->n_nodes; i++) {
        uint64_t seen = 0;
        type[i] = types;
        for (uint64_t k = 0; k < i && seen < types; k++) {
            if (type[k] != seen)
                continue;
            seen++; /* the first of its type */
            if (same_node(c, k, i)) {
                type[i] = type[k];
                break;
            }
        }
        if (type[i] == types)
            types++;
    }
    return types;
}
