/* Checks the nodes that a plan file names: they exist, and every replica has the same devices of nodes that are alike. */
#include "plan/file/check.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The number of a node by its name; their number where there is none. */
static uint64_t find(const struct tsr_plan_cluster *c, const char *name)
{
    uint64_t node = 0;
    while (node < c->n_nodes && strcmp(c->nodes[node].name, name) != 0)
        node++;
    return node;
}

bool tsr_plan_node(const struct tsr_plan_cluster *c, const struct tsr_config_mark *at,
                   const char *name, struct tsr_diag *d, uint64_t *node)
{
    const char *names[256];
    uint64_t    n = c->n_nodes < 256 ? c->n_nodes : 256;
    char        hint[120] = "";
    *node = find(c, name);
    if (*node < c->n_nodes)
        return true;
    for (uint64_t i = 0; i < n; i++)
        names[i] = c->nodes[i].name;
    const char *near = tsr_config_nearest(name, names, n);
    if (near)
        (void)snprintf(hint, sizeof hint, "did you mean '%.60s'?", near);
    tsr_config_diag_error(d, at, hint, "the cluster %s has no node '%.60s'", c->name, name);
    return false;
}

struct finding {
    const struct tsr_plan_cluster *c;
    const struct tsr_plan_file    *f;
    struct tsr_diag               *d;
    uint64_t                      *nodes, *each, n; /* of the first replica */
    uint64_t                      *type;            /* [nodes of the cluster] */
    uint64_t                      *taken, *place;   /* [nodes] replicas on it; their place for it */
};

static void named_by_stages(struct finding *z)
{
    for (uint64_t i = 0; i < z->f->n_stages; i++) {
        const struct tsr_plan_stage  *s = &z->f->stages[i];
        const struct tsr_config_node *at = tsr_config_node_get(s->map, "node");
        uint64_t                      node, k = 0;
        if (!tsr_plan_node(z->c, at ? &at->mark : &s->map->mark, s->node, z->d, &node))
            return;
        while (k < z->n && z->nodes[k] != node)
            k++;
        z->each[k] = 1;
        if (k == z->n)
            z->nodes[z->n++] = node;
    }
}

/* Replicas that the devices of a node suffice for, if each has the stages that are on node `of` of the first one. A device
 * that the node lacks is reported by the check of its stage. */
static uint64_t room(const struct finding *z, uint64_t of)
{
    const struct tsr_plan_cluster   *c = z->c;
    const struct tsr_plan_node_info *node = &c->nodes[of];
    uint64_t                         least = UINT64_MAX;
    for (uint64_t g = node->first_group; g < node->first_group + node->n_groups; g++) {
        const char *name = c->groups[g].profile->name;
        uint64_t    want = 0, have = 0;
        for (uint64_t h = node->first_group; h < node->first_group + node->n_groups; h++)
            have += strcasecmp(c->groups[h].profile->name, name) == 0 ? c->groups[h].count : 0;
        for (uint64_t i = 0; i < z->f->n_stages; i++)
            if (strcmp(z->f->stages[i].node, node->name) == 0 &&
                strcasecmp(z->f->stages[i].device, name) == 0)
                want += (uint64_t)z->f->stages[i].tp;
        if (want && have / want < least)
            least = have / want;
    }
    return least;
}

/* One more replica on a node that others have, at place k. */
static bool shared(struct finding *z, const struct tsr_config_node *name, uint64_t node, uint64_t k,
                   uint64_t first)
{
    uint64_t fit = room(z, first);
    if (z->place[node] != k) {
        tsr_config_diag_error(z->d, &name->mark, NULL,
                              "node '%.60s' is in two replicas, at another place in each, or twice "
                              "in one",
                              name->text);
        return false;
    }
    if (z->taken[node] < fit)
        return true;
    tsr_config_diag_error(z->d, &name->mark, NULL,
                          "node '%.60s' is in %llu replicas; its devices suffice for %llu",
                          name->text, (unsigned long long)z->taken[node] + 1,
                          (unsigned long long)fit);
    return false;
}

/* One replica's list; first[n]: the first one's nodes, filled in by that one. */
static bool one_list(struct finding *z, const struct tsr_config_node *one, uint64_t *first,
                     bool is_first)
{
    for (uint64_t k = 0; k < one->n; k++) {
        const struct tsr_config_node *name = one->items[k];
        uint64_t                      node;
        if (!tsr_plan_node(z->c, &name->mark, name->text, z->d, &node))
            return false;
        if (z->taken[node] && (is_first || !shared(z, name, node, k, first[k]))) {
            if (is_first)
                tsr_config_diag_error(z->d, &name->mark, NULL,
                                      "node '%.60s' is twice in one replica", name->text);
            return false;
        }
        z->taken[node]++;
        z->place[node] = k;
        if (is_first) {
            first[k] = node;
        } else if (z->type[node] != z->type[first[k]]) {
            tsr_config_diag_error(z->d, &name->mark, "replicas are on nodes that are alike",
                                  "node '%.60s' has other devices or links than '%.60s'",
                                  name->text, z->c->nodes[first[k]].name);
            return false;
        }
    }
    return true;
}

/* The lists of the file: the first has the stages' nodes, the others are identical, position by position, and no device is in
 * two. */
static void listed(struct finding *z, uint64_t *first)
{
    const struct tsr_config_node *list = z->f->replica_nodes;
    uint64_t                      n = list->items[0]->n;
    for (uint64_t i = 0; i < list->n; i++) {
        if (list->items[i]->n != n) {
            tsr_config_diag_error(z->d, &list->items[i]->mark, NULL,
                                  "a replica has %llu nodes here, the first has %llu",
                                  (unsigned long long)list->items[i]->n, (unsigned long long)n);
            return;
        }
        if (!one_list(z, list->items[i], first, i == 0))
            return;
        for (uint64_t k = 0; k < z->n && i == 0; k++)
            if (!z->taken[z->nodes[k]]) {
                tsr_config_diag_error(z->d, &list->items[0]->mark, NULL,
                                      "a stage is on node '%.60s', which the first replica lacks",
                                      z->c->nodes[z->nodes[k]].name);
                return;
            }
    }
    /* the most replicas on a node at that place */
    for (uint64_t node = 0; node < z->c->n_nodes; node++)
        for (uint64_t k = 0; k < z->n && z->taken[node]; k++)
            if (first[z->place[node]] == z->nodes[k] && z->taken[node] > z->each[k])
                z->each[k] = z->taken[node];
}

/* Without a list: of each type there are enough nodes, or devices in the only one that a replica has. */
static void counted(struct finding *z)
{
    const struct tsr_config_node *at =
        tsr_config_node_get(tsr_config_doc_root(z->f->doc), "replicas");
    uint64_t replicas = (uint64_t)z->f->replicas;
    for (uint64_t k = 0; k < z->n; k++) {
        uint64_t one = 0, have = 0, want, most;
        for (uint64_t i = 0; i < z->n; i++)
            one += z->type[z->nodes[i]] == z->type[z->nodes[k]];
        for (uint64_t i = 0; i < z->c->n_nodes; i++)
            have += z->type[i] == z->type[z->nodes[k]];
        if (tsr_mul(one, replicas, &want) && want <= have)
            continue;
        z->each[k] = replicas / have + (replicas % have != 0);
        if (one == 1 && z->each[k] <= room(z, z->nodes[k]))
            continue;
        if (one > 1 || !tsr_mul(have, room(z, z->nodes[k]), &most))
            most = have / one;
        tsr_config_diag_error(z->d, at ? &at->mark : &z->f->stages[0].map->mark, NULL,
                              "%lld replicas, and the %llu nodes like '%.60s' suffice for %llu",
                              (long long)z->f->replicas, (unsigned long long)have,
                              z->c->nodes[z->nodes[k]].name, (unsigned long long)most);
        return;
    }
}

tsr_status tsr_plan_nodes(const struct tsr_plan_cluster *c, const struct tsr_plan_file *f,
                          uint64_t *nodes, uint64_t *each, uint64_t *n, struct tsr_diag *d,
                          struct tsr_err *err)
{
    uint64_t       before = tsr_config_diag_errors(d), *first;
    uint64_t       many = f->replica_nodes ? f->replica_nodes->items[0]->n : 1;
    struct finding z = { .c = c,
                         .f = f,
                         .d = d,
                         .nodes = nodes,
                         .each = each,
                         .type = tsr_new(c->n_nodes, sizeof *z.type),
                         .taken = tsr_new(c->n_nodes, sizeof *z.taken),
                         .place = tsr_new(c->n_nodes, sizeof *z.place) };
    *n = 0;
    first = tsr_new(many, sizeof *first);
    tsr_status st = z.type && z.taken && z.place && first
                        ? TSR_OK
                        : tsr_fail_nomem(err, c->n_nodes * 24, "nodes");
    if (st == TSR_OK) {
        (void)tsr_plan_cluster_types(c, z.type);
        named_by_stages(&z);
        if (tsr_config_diag_errors(d) == before && f->replica_nodes)
            listed(&z, first);
        else if (tsr_config_diag_errors(d) == before)
            counted(&z);
        *n = z.n;
    }
    free(first);
    free(z.type);
    free(z.taken);
    free(z.place);
    return st;
}

bool tsr_plan_nodes_listed(const struct tsr_plan_cluster *c, const struct tsr_plan_file *f,
                           uint64_t replica, uint64_t k, uint64_t *node)
{
    if (!f->replica_nodes || replica >= f->replica_nodes->n ||
        k >= f->replica_nodes->items[replica]->n)
        return false;
    *node = find(c, f->replica_nodes->items[replica]->items[k]->text);
    return *node < c->n_nodes;
}
