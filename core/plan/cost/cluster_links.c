/* Links of a cluster: inside a node, between any two, between two that are not like the others. */
#include "plan/cost/cluster_internal.h"

#include "plan/cost/quantity.h"

#include <string.h>

struct pair {
    const char                   *from, *to, *bandwidth, *latency;
    const struct tsr_config_node *prefill, *decode;
};
struct link {
    const char                   *bandwidth, *latency;
    const struct tsr_config_node *prefill, *decode;
};

static const struct tsr_option link_options[] = {
    TSR_OPTION_STRING(struct link, bandwidth, "", "Bytes a second."),
    TSR_OPTION_STRING(struct link, latency, "0 us", "Of a message."),
    TSR_OPTION_NODE(struct link, prefill, "Other values in prefill."),
    TSR_OPTION_NODE(struct link, decode, "Other values in decode."),
};
static const struct tsr_option pair_options[] = {
    TSR_PLAN_CLUSTER_TEXT(struct pair, from, "Name of a node."),
    TSR_PLAN_CLUSTER_TEXT(struct pair, to, "Name of a node."),
    TSR_OPTION_STRING(struct pair, bandwidth, "", "Bytes a second."),
    TSR_OPTION_STRING(struct pair, latency, "0 us", "Of a message."),
    TSR_OPTION_NODE(struct pair, prefill, "Other values in prefill."),
    TSR_OPTION_NODE(struct pair, decode, "Other values in decode."),
};

static void set_link(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *map,
                     struct tsr_plan_link *l)
{
    const struct tsr_config_node *b = tsr_config_node_get(map, "bandwidth"),
                                 *a = tsr_config_node_get(map, "latency");
    if (b && tsr_plan_quantity_node(b, "bandwidth", TSR_PLAN_QUANTITY_RATE, &l->rate, r->d) &&
        !(l->rate > 0))
        tsr_config_diag_error(r->d, &b->mark, NULL, "'bandwidth' must be more than 0");
    if (a)
        (void)tsr_plan_quantity_node(a, "latency", TSR_PLAN_QUANTITY_TIME, &l->alpha_ms, r->d);
}

/* {bandwidth, latency}, and what differs by phase. */
static void read_link(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *map,
                      const struct tsr_config_node *pre, const struct tsr_config_node *dec,
                      struct tsr_plan_link l[2])
{
    const struct tsr_config_node *of[2] = { pre, dec };
    struct link                   one;
    struct tsr_plan_link          both = { 0 };
    set_link(r, map, &both);
    for (int i = 0; i < 2; i++) {
        l[i] = both;
        if (!of[i])
            continue;
        one = (struct link){ 0 };
        TSR_PLAN_CLUSTER_FILL(r, link_options, of[i], i ? "'decode'" : "'prefill'", &one);
        set_link(r, of[i], &l[i]);
    }
    if (tsr_config_diag_errors(r->d) == r->before && !(l[0].rate > 0 && l[1].rate > 0))
        tsr_config_diag_error(r->d, &map->mark, "as in {bandwidth: 12 GB/s, latency: 10 us}",
                              "a link needs 'bandwidth'");
}

void tsr_plan_cluster_read_link(struct tsr_plan_cluster_reading *r,
                                const struct tsr_config_node *map, const char *what,
                                struct tsr_plan_link l[2])
{
    struct link one = { 0 };
    TSR_PLAN_CLUSTER_FILL(r, link_options, map, what, &one);
    if (map->kind == TSR_CONFIG_NODE_MAP)
        read_link(r, map, one.prefill, one.decode, l);
}

static struct tsr_plan_link *between(const struct tsr_plan_cluster *c, int phase, uint64_t from,
                                     uint64_t to)
{
    return &c->between[((uint64_t)phase * c->n_nodes + from) * c->n_nodes + to];
}

static bool node_index(const struct tsr_plan_cluster *c, const char *name, uint64_t *at)
{
    for (*at = 0; *at < c->n_nodes; ++*at)
        if (strcmp(c->nodes[*at].name, name) == 0)
            return true;
    return false;
}

static void read_pair(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *map)
{
    struct pair          p = { 0 };
    struct tsr_plan_link l[2];
    uint64_t             ends[2], before = tsr_config_diag_errors(r->d);
    TSR_PLAN_CLUSTER_FILL(r, pair_options, map, "a link", &p);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    const char *names[2] = { p.from, p.to }, *keys[2] = { "from", "to" };
    for (int i = 0; i < 2; i++)
        if (!node_index(r->c, names[i], &ends[i])) {
            tsr_config_diag_error(r->d, &tsr_config_node_get(map, keys[i])->mark, NULL,
                                  "there is no node '%.60s'", names[i]);
            return;
        }
    read_link(r, map, p.prefill, p.decode, l);
    if (ends[0] == ends[1]) {
        tsr_config_diag_error(r->d, &map->mark, "links inside a node are its own 'link'",
                              "a link goes from a node to itself");
        return;
    }
    for (int i = 0; i < 2; i++)
        *between(r->c, i, ends[0], ends[1]) = l[i];
}

void tsr_plan_cluster_read_links(struct tsr_plan_cluster_reading *r,
                                 const struct tsr_config_node    *network,
                                 const struct tsr_config_node    *links,
                                 const struct tsr_config_node    *root)
{
    struct tsr_plan_cluster *c = r->c;
    struct tsr_plan_link     net[2] = { { 0 } };
    if (network)
        tsr_plan_cluster_read_link(r, network, "'network'", net);
    for (int p = 0; p < 2; p++)
        for (uint64_t i = 0; i < c->n_nodes; i++)
            for (uint64_t k = 0; k < c->n_nodes; k++)
                *between(c, p, i, k) = i == k ? c->nodes[i].link[p] : net[p];
    if (links && links->kind != TSR_CONFIG_NODE_LIST)
        tsr_config_diag_error(r->d, &links->mark, NULL, "'links' must be a list");
    for (uint64_t i = 0; links && links->kind == TSR_CONFIG_NODE_LIST && i < links->n; i++)
        read_pair(r, links->items[i]);
    for (uint64_t i = 0; i < c->n_nodes && tsr_config_diag_errors(r->d) == r->before; i++)
        for (uint64_t k = 0; k < c->n_nodes; k++)
            if (i != k && !(between(c, 0, i, k)->rate > 0)) {
                tsr_config_diag_error(r->d, &root->mark, "as in network: {bandwidth: 100 Gbit/s}",
                                      "nothing says how node '%s' reaches node '%s'",
                                      c->nodes[i].name, c->nodes[k].name);
                return;
            }
}
