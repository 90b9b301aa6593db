/* Chooses the backend of each rank from a cluster file. */
#include "launch/backends.h"

#include "base/mem.h"
#include "plan/cost/cluster.h"

#include <stdlib.h>
#include <string.h>

/* The entry of the devices of a stage, whose first rank it is: of several with its profile the first with devices that are not
 * taken.  NULL: the plan leaves it open, or the cluster lacks it. */
static const struct tsr_plan_group *group_of(const struct tsr_plan_cluster *c,
                                             const struct tsr_plan_file *p, uint32_t rank,
                                             const uint64_t *taken)
{
    const struct tsr_plan_stage *s = tsr_plan_file_stage(p, rank);
    const char                  *node = tsr_plan_file_node(p, rank);
    const struct tsr_plan_group *first = NULL;
    for (uint64_t g = 0; s && node && g < c->n_groups; g++)
        if (strcmp(c->groups[g].profile->name, s->device) == 0 &&
            strcmp(c->nodes[c->groups[g].node].name, node) == 0) {
            first = first ? first : &c->groups[g];
            if (taken[g] + (uint64_t)s->tp <= c->groups[g].count)
                return &c->groups[g];
        }
    return first;
}

/* Of the entry's rank number `at`; NULL: it names none. */
static const char *text_of(const struct tsr_plan_group *g, uint64_t at)
{
    if (*g->emulate)
        return g->emulate;
    if (!g->backend)
        return NULL;
    return g->backend->kind == TSR_CONFIG_NODE_LIST ? g->backend->items[at % g->backend->n]->text
                                                    : g->backend->text;
}

static tsr_status fill(struct tsr_runtime_layout *l, const struct tsr_plan_file *p,
                       const struct tsr_plan_cluster *c, struct tsr_err *err)
{
    uint32_t  ranks = tsr_runtime_layout_ranks(l);
    uint64_t *taken = tsr_new(c->n_groups, sizeof *taken); /* ranks of each entry so far */
    l->backends = tsr_new(ranks, sizeof *l->backends);
    tsr_status st = l->backends && taken ? TSR_OK : tsr_fail_nomem(err, ranks, "ranks");
    bool       any = false;
    for (uint32_t i = 0, stage = 0; st == TSR_OK && i < ranks; stage++) {
        const struct tsr_plan_group     *g = group_of(c, p, i, taken);
        struct tsr_runtime_layout_stage *to = &l->stages[stage % l->n_stages];
        if (g && *g->transport && !to->collective_over &&
            !(to->collective_over = tsr_strdup(g->transport)))
            st = tsr_fail_nomem(err, strlen(g->transport), "ranks");
        for (uint32_t end = i + to->ranks; i < end && st == TSR_OK; i++) {
            const char *text = g ? text_of(g, taken[g - c->groups]++) : NULL;
            if (text && !(l->backends[i] = tsr_strdup(text)))
                st = tsr_fail_nomem(err, strlen(text), "ranks");
            any = any || text;
        }
    }
    if (!any) {
        free(l->backends);
        l->backends = NULL;
    }
    free(taken);
    return st;
}

tsr_status tsr_launch_backends(struct tsr_runtime_layout *layout, const struct tsr_plan_file *p,
                               const char *cluster, const char *beside, struct tsr_diag *d,
                               struct tsr_err *err)
{
    struct tsr_plan_cluster *c = NULL;
    char                    *path = NULL;
    tsr_status               st = tsr_plan_cluster_find(&path, cluster, beside, err);
    if (st == TSR_OK)
        st = tsr_plan_cluster_load(&c, path, d, err);
    free(path);
    if (st == TSR_OK && c && !tsr_config_diag_errors(d))
        st = fill(layout, p, c, err);
    tsr_plan_cluster_destroy(c);
    return st;
}
