#include "plan/search/meshes.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Both come from the same file, so equal links have equal numbers. */
static bool same_link(const struct tsr_plan_link *a, const struct tsr_plan_link *b)
{
    return !(a->alpha_ms < b->alpha_ms) && !(b->alpha_ms < a->alpha_ms) && !(a->rate < b->rate) &&
           !(b->rate < a->rate);
}

static bool same_links(const struct tsr_plan_cluster *c, uint64_t a, uint64_t b, uint64_t x,
                       uint64_t y)
{
    return same_link(tsr_plan_cluster_link(c, a, b, TSR_PLAN_PREFILL),
                     tsr_plan_cluster_link(c, x, y, TSR_PLAN_PREFILL)) &&
           same_link(tsr_plan_cluster_link(c, a, b, TSR_PLAN_DECODE),
                     tsr_plan_cluster_link(c, x, y, TSR_PLAN_DECODE));
}

/* Ways of a group in a space. */
struct ways {
    const uint32_t *v;
    uint64_t        n;
};

static struct ways ways_of(const struct tsr_plan_space *s, uint64_t group)
{
    return (struct ways){ s->ways + group * s->stride, s->n ? s->n[group] : 1 };
}

static bool same_ways(const struct ways *a, const struct ways *b)
{
    return a->n == b->n && memcmp(a->v, b->v, a->n * sizeof *a->v) == 0;
}

/* Whether meshes of these ways on several groups of so many devices are limited by the sum of their devices alone: each width
 * is a multiple of the next smaller one and divides both. */
static bool packs(const struct ways *w, uint64_t na, uint64_t nb)
{
    for (uint64_t i = 0; i < w->n; i++) {
        uint32_t tp = tsr_plan_way_tp(w->v[i]);
        if (na % tp || nb % tp || (i && tp % tsr_plan_way_tp(w->v[i - 1])))
            return false;
    }
    return true;
}

/* Two groups whose devices are the same towards everything: same profile, same links to each other
 * group, and the way between them is the way inside each (which one mesh alone does not have).
 * s NULL: whole groups that may change places, counts included. */
static bool alike(const struct tsr_plan_problem *p, uint64_t a, uint64_t b,
                  const struct tsr_plan_space *s)
{
    const struct tsr_plan_cluster *c = p->cluster;
    const struct tsr_plan_group   *g = &c->groups[a], *h = &c->groups[b];
    uint64_t             na = tsr_plan_problem_devices(p, a), nb = tsr_plan_problem_devices(p, b);
    struct tsr_plan_mesh x, y;
    bool                 wide = !s; /* links inside a mesh matter */
    uint32_t             least = 1;
    if (g->profile != h->profile || p->more_bytes[a] != p->more_bytes[b])
        return false;
    tsr_plan_mesh_of(c, a, 1, &x);
    tsr_plan_mesh_of(c, b, 1, &y);
    if (!tsr_plan_mesh_same_cpu(&x, &y))
        return false;
    if (s && s->n && c->fixed) /* a mesh is of devices that are next to each other in the order */
        return false;
    if (s) {
        struct ways v = ways_of(s, a), w = ways_of(s, b);
        if (!same_ways(&v, &w) || !packs(&v, na, nb))
            return false;
        least = tsr_plan_way_tp(v.v[0]);
        wide = tsr_plan_way_tp(v.v[v.n - 1]) > 1;
    }
    if (!s && na != nb)
        return false;
    if (wide && !same_links(c, g->node, g->node, h->node, h->node))
        return false;
    if (!same_links(c, g->node, h->node, h->node, g->node))
        return false;
    if (s && na / least > 1 && !same_links(c, g->node, g->node, g->node, h->node))
        return false;
    if (s && nb / least > 1 && !same_links(c, h->node, h->node, g->node, h->node))
        return false;
    for (uint64_t i = 0; i < c->n_groups; i++) {
        uint64_t n = c->groups[i].node;
        if (i == a || i == b)
            continue;
        if (!same_links(c, g->node, n, h->node, n) || !same_links(c, n, g->node, n, h->node))
            return false;
    }
    return true;
}

bool tsr_plan_meshes_twins(const struct tsr_plan_problem *p, uint64_t a, uint64_t b)
{
    return !p->cluster->fixed && alike(p, a, b, NULL); /* else identical positions differ */
}

/* Groups into pools: every pair of members is alike, for similarity is not transitive. */
static void make_pools(struct tsr_plan_meshes *m, const struct tsr_plan_problem *p,
                       const struct tsr_plan_space *s)
{
    for (uint64_t g = 0; g < m->n_groups; g++) {
        uint64_t k = 0;
        for (; k < m->n_pools; k++) {
            bool all = true;
            for (uint64_t h = 0; h < g && all; h++)
                all = m->pool_of[h] != k || alike(p, h, g, s);
            if (all)
                break;
        }
        m->pool_of[g] = (uint32_t)k;
        m->n_pools += k == m->n_pools;
        m->devices[k] += tsr_plan_problem_devices(p, g);
        m->total += tsr_plan_problem_devices(p, g) / tsr_plan_way_tp(*ways_of(s, g).v);
    }
}

/* One kind: the meshes of a way over all groups of a pool. */
static void add_kind(struct tsr_plan_meshes *m, const struct tsr_plan_problem *p,
                     const struct tsr_plan_mesh_kind *of)
{
    struct tsr_plan_mesh_kind *k = &m->kinds[m->n_kinds++];
    uint64_t                   pool = of->pool;
    uint32_t                   way = of->way;
    *k = *of;
    for (uint64_t g = 0; g < m->n_groups; g++) {
        if (m->pool_of[g] != pool)
            continue;
        if (!k->n_groups) {
            tsr_plan_mesh_of(p->cluster, g, way, &k->mesh);
            k->group = g;
        }
        k->count += tsr_plan_problem_devices(p, g) / tsr_plan_way_tp(way);
        k->n_groups++;
    }
}

/* Queries and keys that are normed over all heads are not rounded before. */
static bool sums_by(const struct tsr_plan_problem *p, const struct tsr_plan_space *s, uint64_t sum)
{
    if (!s->codecs)
        return sum == p->least_sum;
    return !(p->shape->whole_qk_norm && p->sums[sum].lossy) || p->n_sums == 1;
}

/* All kinds of a pool; into NULL: how many of them, without roles. */
static uint64_t pool_kinds(struct tsr_plan_meshes *into, const struct tsr_plan_meshes *m,
                           const struct tsr_plan_problem *p, const struct tsr_plan_space *s,
                           uint64_t pool)
{
    uint64_t n = 0, g = 0;
    while (m->pool_of[g] != pool)
        g++;
    struct ways w = ways_of(s, g);
    for (uint64_t i = 0; i < w.n; i++)
        for (uint64_t c = 0; c < p->n_sums; c++) {
            bool wide = tsr_plan_way_tp(w.v[i]) > 1;
            if (wide ? !sums_by(p, s, c) : c != p->least_sum)
                continue;
            n++;
            bool                      roles = into && into->roles && wide;
            struct tsr_plan_mesh_kind k = {
                .way = w.v[i], .sum = c, .pool = pool, .role = TSR_PLAN_ANY_STAGE
            };
            if (into && !roles)
                add_kind(into, p, &k);
            for (int role = TSR_PLAN_FIRST_STAGE; roles && role <= TSR_PLAN_LAST_STAGE; role++) {
                k.role = (enum tsr_plan_role)role;
                add_kind(into, p, &k);
            }
        }
    return n;
}

tsr_status tsr_plan_meshes_make(struct tsr_plan_meshes *m, const struct tsr_plan_problem *p,
                                const struct tsr_plan_space *s, struct tsr_err *err)
{
    uint64_t n = p->cluster->n_groups, all = 0;
    *m = (struct tsr_plan_meshes){ .pool_of = tsr_new(n, sizeof *m->pool_of),
                                   .devices = tsr_new(n, sizeof *m->devices),
                                   .n_groups = n };
    if (m->pool_of && m->devices)
        make_pools(m, p, s);
    for (uint64_t k = 0; k < m->n_pools; k++)
        all += pool_kinds(NULL, m, p, s, k);
    m->roles = all > m->n_pools && p->memory.accounting == TSR_PLAN_ACCOUNT_EXACT;
    m->kinds = tsr_new(3 * all, sizeof *m->kinds);
    if (!m->pool_of || !m->devices || !m->kinds) {
        tsr_plan_meshes_free(m);
        return tsr_fail_nomem(err, 3 * all * sizeof *m->kinds, "the devices of a plan");
    }
    for (uint64_t k = 0; k < m->n_pools; k++)
        (void)pool_kinds(m, m, p, s, k);
    return TSR_OK;
}

void tsr_plan_meshes_free(struct tsr_plan_meshes *m)
{
    free(m->pool_of);
    free(m->devices);
    free(m->kinds);
    *m = (struct tsr_plan_meshes){ 0 };
}

uint64_t tsr_plan_meshes_find(const struct tsr_plan_meshes *m, uint64_t group, uint32_t way,
                              uint64_t sum, enum tsr_plan_role role)
{
    uint64_t k = 0;
    for (; k < m->n_kinds; k++) {
        const struct tsr_plan_mesh_kind *of = &m->kinds[k];
        if (of->pool == m->pool_of[group] && of->way == way &&
            (of->mesh.tp == 1 || of->sum == sum) &&
            (of->role == TSR_PLAN_ANY_STAGE || of->role == role))
            break;
    }
    return k;
}

bool tsr_plan_meshes_together(const struct tsr_plan_meshes *m, uint64_t a, uint64_t b)
{
    const struct tsr_plan_mesh_kind *x = &m->kinds[a], *y = &m->kinds[b];
    if (a == b)
        return x->count > 1;
    return x->pool != y->pool || x->mesh.tp + y->mesh.tp <= m->devices[x->pool];
}

/* Whether the user's options have it; ways of one device, or without experts, are those of rows. */
static bool wanted(const struct tsr_plan_problem *p, uint32_t way)
{
    bool choice = tsr_plan_way_tp(way) > 1 && p->shape->experts;
    if (way & TSR_PLAN_WAY_WHOLE)
        return choice && p->o.experts != TSR_PLAN_EXPERTS_ROWS;
    return !choice || p->o.experts != TSR_PLAN_EXPERTS_WHOLE;
}

/* NULL where the width works, else why not. */
static const char *refused(const struct tsr_plan_problem *p, uint64_t group, uint32_t way,
                           struct tsr_errbuf *e)
{
    struct tsr_plan_mesh mesh;
    uint32_t             tp = tsr_plan_way_tp(way);
    bool                 any = false, whole = way & TSR_PLAN_WAY_WHOLE;
    if (tp == 1)
        return NULL;
    if (p->o.max_tp && tp > p->o.max_tp)
        return "wider than the job allows";
    tsr_plan_mesh_of(p->cluster, group, way, &mesh);
    if (!(mesh.inside[TSR_PLAN_PREFILL].rate > 0 && mesh.inside[TSR_PLAN_DECODE].rate > 0))
        return "the node's devices have no link";
    if (tsr_plan_shape_splits(p->shape, tp, whole, 1, &e->err) != TSR_OK)
        return e->text;
    for (uint64_t i = 0; i < p->candidates.n && !any; i++)
        any =
            tsr_plan_shape_splits(p->shape, tp, whole, p->candidates.v[i].group, &e->err) == TSR_OK;
    return any ? NULL : e->text;
}

uint32_t tsr_plan_meshes_widths(const struct tsr_plan_problem *p, uint64_t group, bool any,
                                uint32_t *w, char *why, size_t cap)
{
    uint64_t count = tsr_plan_problem_devices(p, group);
    uint32_t n = 0, narrow = 0;
    size_t   at = 0;
    if (why && cap)
        why[0] = '\0';
    for (uint32_t tp = 1; tp <= count && tp <= 1024; tp++)
        for (uint32_t whole = 0; whole < 2 && n < TSR_PLAN_MESH_WIDTHS; whole++) {
            struct tsr_errbuf e = TSR_ERRBUF(e);
            uint32_t          way = whole ? tp | TSR_PLAN_WAY_WHOLE : tp;
            if ((count % tp && !any) || !wanted(p, way))
                continue;
            const char *no = refused(p, group, way, &e);
            if (!no)
                w[n++] = way;
            else if (why && at < cap && count % tp == 0)
                at += (size_t)snprintf(why + at, cap - at, "%stp %u of %s: %s", at ? "; " : "", tp,
                                       p->cluster->groups[group].profile->name, no);
        }
    /* ascending, so those below min_tp come first; they stay if nothing wider works */
    while (narrow + 1 < n && tsr_plan_way_tp(w[narrow]) < p->o.min_tp)
        narrow++;
    for (uint32_t i = 0; i < narrow && why && at < cap; i++)
        at += (size_t)snprintf(why + at, cap - at, "%stp %u of %s: narrower than the job allows",
                               at ? "; " : "", tsr_plan_way_tp(w[i]),
                               p->cluster->groups[group].profile->name);
    n -= narrow;
    memmove(w, w + narrow, n * sizeof *w);
    if (!n) /* no device left, after a what-if */
        w[n++] = 1;
    return n;
}

tsr_status tsr_plan_width_choices_make(struct tsr_plan_width_choices *c,
                                       const struct tsr_plan_problem *p, bool any,
                                       struct tsr_err *err)
{
    uint64_t n = p->cluster->n_groups;
    *c = (struct tsr_plan_width_choices){ .w = tsr_new(n * TSR_PLAN_MESH_WIDTHS, sizeof *c->w),
                                          .n = tsr_new(n, sizeof *c->n),
                                          .at = tsr_new(n, sizeof *c->at),
                                          .twin = tsr_new(n, sizeof *c->twin),
                                          .n_groups = n };
    if (!c->w || !c->n || !c->at || !c->twin) {
        tsr_plan_width_choices_free(c);
        return tsr_fail_nomem(err, n * TSR_PLAN_MESH_WIDTHS * sizeof *c->w, "widths of meshes");
    }
    for (uint64_t g = 0; g < n; g++) {
        if (p->widths) {
            c->w[g * TSR_PLAN_MESH_WIDTHS] = p->widths[g];
            c->n[g] = 1;
        } else {
            c->n[g] = tsr_plan_meshes_widths(p, g, any, c->w + g * TSR_PLAN_MESH_WIDTHS, NULL, 0);
        }
        c->twin[g] = g;
        for (uint64_t h = g; h-- > 0;)
            if (tsr_plan_meshes_twins(p, h, g)) {
                c->twin[g] = h;
                break;
            }
    }
    return TSR_OK;
}

/* Of identical groups, only choices with non-decreasing widths are taken. */
bool tsr_plan_width_choices_next(struct tsr_plan_width_choices *c, uint32_t *tp)
{
    if (c->started) {
        uint64_t g = c->n_groups;
        while (g > 0 && c->at[g - 1] + 1 >= c->n[g - 1])
            g--;
        if (g == 0)
            return false;
        c->at[g - 1]++;
        for (uint64_t i = g; i < c->n_groups; i++)
            c->at[i] = c->twin[i] == i ? 0 : c->at[c->twin[i]];
    }
    c->started = true;
    for (uint64_t i = 0; i < c->n_groups; i++)
        tp[i] = c->w[i * TSR_PLAN_MESH_WIDTHS + c->at[i]];
    return true;
}

void tsr_plan_width_choices_free(struct tsr_plan_width_choices *c)
{
    free(c->w);
    free(c->n);
    free(c->at);
    free(c->twin);
    *c = (struct tsr_plan_width_choices){ 0 };
}
