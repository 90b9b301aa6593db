#include "plan/search/parts.h"

#include "base/mem.h"

#include <stdlib.h>

/* Nodes of a type, and what a copy has of them. */
struct some {
    uint64_t first, nodes; /* the first node; how many there are */
    uint64_t whole;        /* nodes that a copy has; 0: copies share nodes */
    uint64_t sharing;      /* copies on a node */
};

static struct some some_of(const struct tsr_plan_cluster *c, const uint64_t *type, uint64_t t,
                           uint64_t copies)
{
    struct some s = { .first = c->n_nodes };
    for (uint64_t i = 0; i < c->n_nodes; i++)
        if (type[i] == t) {
            s.first = s.nodes++ ? s.first : i;
        }
    s.whole = s.nodes / copies;
    s.sharing = s.whole || !s.nodes ? 1 : copies / s.nodes + (copies % s.nodes != 0);
    return s;
}

/* Devices of one node of the type that a copy has. */
static uint64_t devices_of(const struct tsr_plan_cluster *c, const struct some *s)
{
    const struct tsr_plan_node_info *node = &c->nodes[s->first];
    uint64_t                         n = 0;
    for (uint64_t g = 0; g < node->n_groups; g++)
        n += c->groups[node->first_group + g].count / s->sharing;
    return n;
}

/* Nodes of the type for copy r, in their places; returns how many, also without a list. */
static uint64_t take(const struct tsr_plan_cluster *c, const uint64_t *type, uint64_t t,
                     const struct some *s, uint64_t r, uint64_t *nodes)
{
    uint64_t want = s->whole ? s->whole : 1, from = s->whole ? r * want : r / s->sharing, seen = 0;
    for (uint64_t i = 0; nodes && i < c->n_nodes; i++) {
        if (type[i] != t)
            continue;
        if (seen >= from && seen < from + want)
            *nodes++ = i;
        seen++;
    }
    return want;
}

static tsr_status types_of(const struct tsr_plan_cluster *c, uint64_t **type, uint64_t *types,
                           struct tsr_err *err)
{
    *type = tsr_new(c->n_nodes, sizeof **type);
    if (!*type)
        return tsr_fail_nomem(err, c->n_nodes * sizeof **type, "types of nodes");
    *types = tsr_plan_cluster_types(c, *type);
    return TSR_OK;
}

static tsr_status fill(struct tsr_plan_parts *p, const struct tsr_plan_cluster *c,
                       const uint64_t *type, uint64_t types, struct tsr_err *err)
{
    uint64_t total;
    for (uint64_t t = 0; t < types; t++) {
        struct some s = some_of(c, type, t, p->copies);
        p->n_nodes += devices_of(c, &s) ? take(c, type, t, &s, 0, NULL) : 0;
    }
    if (!tsr_mul(p->copies, p->n_nodes, &total))
        return tsr_fail_nomem(err, p->copies, "parts of a cluster");
    p->nodes = tsr_new(total, sizeof *p->nodes);
    p->each = tsr_new(p->n_nodes, sizeof *p->each);
    if (!p->nodes || !p->each)
        return tsr_fail_nomem(err, total * sizeof *p->nodes, "parts of a cluster");
    for (uint64_t t = 0, at = 0; t < types; t++) {
        struct some s = some_of(c, type, t, p->copies);
        uint64_t    n = 0;
        if (!devices_of(c, &s))
            continue;
        for (uint64_t r = 0; r < p->copies; r++)
            n = take(c, type, t, &s, r, p->nodes + r * p->n_nodes + at);
        for (uint64_t i = 0; i < n; i++)
            p->each[at++] = s.sharing;
        p->devices += n * devices_of(c, &s);
    }
    return TSR_OK;
}

tsr_status tsr_plan_parts_make(struct tsr_plan_parts *p, const struct tsr_plan_cluster *c,
                               uint64_t copies, struct tsr_err *err)
{
    uint64_t *type = NULL, types = 0;
    *p = (struct tsr_plan_parts){ .copies = copies };
    if (copies == 0)
        return tsr_fail(err, TSR_E_INVAL, "no copy of the model");
    tsr_status st = types_of(c, &type, &types, err);
    if (st == TSR_OK)
        st = fill(p, c, type, types, err);
    free(type);
    return st;
}

void tsr_plan_parts_free(struct tsr_plan_parts *p)
{
    free(p->nodes);
    free(p->each);
    *p = (struct tsr_plan_parts){ 0 };
}

/* Whether a copy has the same of every type. */
static bool same_part(const struct tsr_plan_cluster *c, const uint64_t *type, uint64_t types,
                      uint64_t a, uint64_t b)
{
    bool same = true;
    for (uint64_t t = 0; t < types && same; t++) {
        struct some x = some_of(c, type, t, a), y = some_of(c, type, t, b);
        same = x.whole == y.whole;
        for (uint64_t g = 0; g < c->nodes[x.first].n_groups && same; g++) {
            uint64_t count = c->groups[c->nodes[x.first].first_group + g].count;
            same = count / x.sharing == count / y.sharing;
        }
    }
    return same;
}

static bool any_device(const struct tsr_plan_cluster *c, const uint64_t *type, uint64_t types,
                       uint64_t copies)
{
    bool any = false;
    for (uint64_t t = 0; t < types && !any; t++) {
        struct some s = some_of(c, type, t, copies);
        any = devices_of(c, &s) > 0;
    }
    return any;
}

tsr_status tsr_plan_parts_counts(const struct tsr_plan_cluster *c, uint64_t most,
                                 uint64_t v[TSR_PLAN_PARTS_MOST], uint64_t *n, struct tsr_err *err)
{
    uint64_t *type = NULL, types = 0, devices = tsr_plan_cluster_devices(c);
    *n = 0;
    most = most < devices ? most : devices;
    TSR_TRY(types_of(c, &type, &types, err));
    for (uint64_t k = 2; k <= most && *n < TSR_PLAN_PARTS_MOST; k++)
        if (any_device(c, type, types, k) && (k == most || !any_device(c, type, types, k + 1) ||
                                              !same_part(c, type, types, k, k + 1)))
            v[(*n)++] = k;
    free(type);
    return TSR_OK;
}
