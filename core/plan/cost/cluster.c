/* Clusters: YAML to struct tsr_plan_cluster (docs/formats/cluster.md). */
#include "plan/cost/cluster.h"

#include "base/file.h"
#include "base/mem.h"
#include "plan/cost/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NODES   1024u
#define MOST_GROUPS  4096u
#define MOST_DEVICES 65536

struct head {
    int64_t                       version, order;
    const struct tsr_config_node *nodes, *network, *links;
    double                        slower;
};
struct node {
    const char                   *name, *host, *model_at;
    const struct tsr_config_node *devices, *link;
};
struct device {
    const char                   *profile, *emulate, *transport;
    int64_t                       count;
    const struct tsr_config_node *backend;
};
struct pair {
    const char                   *from, *to, *bandwidth, *latency;
    const struct tsr_config_node *prefill, *decode;
};
struct link {
    const char                   *bandwidth, *latency;
    const struct tsr_config_node *prefill, *decode;
};

enum { FREE, FIXED };
static const struct tsr_choice orders[] = {
    { "free", "any pipeline order", FREE }, { "fixed", "stages in the order of this file", FIXED }
};

#define TEXT(S, f, h)                                                                              \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_REQUIRED,                  \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = ""                                                                                \
        }                                                                                          \
    }
static const struct tsr_option head_options[] = {
    TSR_OPTION_INT(struct head, version, 1, 1, 1, NULL, "Version of this form: 1."),
    TSR_OPTION_ENUM(struct head, order, FREE, orders, "Order of the pipeline."),
    TSR_OPTION_NODE(struct head, nodes, "The machines."),
    TSR_OPTION_NODE(struct head, network, "Between any two nodes."),
    TSR_OPTION_NODE(struct head, links, "Between two nodes that are not like the others."),
    TSR_OPTION_REAL(struct head, slower, 1, 1, 1e6, NULL,
                    "Emulated devices and links take this many times as long as the real ones."),
};
static const struct tsr_option node_options[] = {
    TSR_OPTION_STRING(struct node, name, "", "Name for people and for links."),
    TSR_OPTION_STRING(struct node, host, "", "Host name that runs it."),
    TSR_OPTION_STRING(struct node, model_at, "", "Path of the model there."),
    TSR_OPTION_NODE(struct node, devices, "What it has."),
    TSR_OPTION_NODE(struct node, link, "Between its devices."),
};
static const struct tsr_option device_options[] = {
    TEXT(struct device, profile, "Name or path of a device profile."),
    TSR_OPTION_INT(struct device, count, 1, 1, MOST_DEVICES, NULL, "How many."),
    TSR_OPTION_STRING(struct device, emulate, "",
                      "Backend of this machine that does its work, as fast as the profile says."),
    TSR_OPTION_NODE(struct device, backend,
                    "Backend that runs it; a list: of its ranks, in turn; default: the job's."),
    TSR_OPTION_STRING(struct device, transport, "",
                      "What carries sums over the ranks of a stage; default: local, or mpi."),
};
static const struct tsr_option link_options[] = {
    TSR_OPTION_STRING(struct link, bandwidth, "", "Bytes a second."),
    TSR_OPTION_STRING(struct link, latency, "0 us", "Of a message."),
    TSR_OPTION_NODE(struct link, prefill, "Other values in prefill."),
    TSR_OPTION_NODE(struct link, decode, "Other values in decode."),
};
static const struct tsr_option pair_options[] = {
    TEXT(struct pair, from, "Name of a node."),
    TEXT(struct pair, to, "Name of a node."),
    TSR_OPTION_STRING(struct pair, bandwidth, "", "Bytes a second."),
    TSR_OPTION_STRING(struct pair, latency, "0 us", "Of a message."),
    TSR_OPTION_NODE(struct pair, prefill, "Other values in prefill."),
    TSR_OPTION_NODE(struct pair, decode, "Other values in decode."),
};

struct reading {
    struct tsr_plan_cluster *c;
    struct tsr_diag         *d;
    const char              *folder; /* of the file */
    uint64_t                 before;
    tsr_status               st; /* an error outside the file: out of memory */
    struct tsr_err          *err;
};

#define FILL(r, table, node, what, into)                                                           \
    fill(r, table, sizeof(table) / sizeof *(table), node, what, into)
static void fill(struct reading *r, const struct tsr_option *o, uint64_t n,
                 const struct tsr_config_node *node, const char *what, void *into)
{
    struct tsr_config_optset set = { o, n, sizeof *o, into };
    tsr_config_options_fill(&set, 1, NULL, node, what, r->d);
}

/* ---- links ----------------------------------------------------------------------------------- */

static void set_link(struct reading *r, const struct tsr_config_node *map, struct tsr_plan_link *l)
{
    const struct tsr_config_node *b = tsr_config_node_get(map, "bandwidth"),
                                 *a = tsr_config_node_get(map, "latency");
    if (b && tsr_plan_quantity_node(b, "bandwidth", TSR_RATE, &l->rate, r->d) && !(l->rate > 0))
        tsr_config_diag_error(r->d, &b->mark, NULL, "'bandwidth' must be more than 0");
    if (a)
        (void)tsr_plan_quantity_node(a, "latency", TSR_TIME, &l->alpha_ms, r->d);
}

/* {bandwidth, latency}, and what differs by phase. */
static void read_link(struct reading *r, const struct tsr_config_node *map,
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
        FILL(r, link_options, of[i], i ? "'decode'" : "'prefill'", &one);
        set_link(r, of[i], &l[i]);
    }
    if (tsr_config_diag_errors(r->d) == r->before && !(l[0].rate > 0 && l[1].rate > 0))
        tsr_config_diag_error(r->d, &map->mark, "as in {bandwidth: 12 GB/s, latency: 10 us}",
                              "a link needs 'bandwidth'");
}

static void whole_link(struct reading *r, const struct tsr_config_node *map, const char *what,
                       struct tsr_plan_link l[2])
{
    struct link one = { 0 };
    FILL(r, link_options, map, what, &one);
    if (map->kind == TSR_NODE_MAP)
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

static void read_pair(struct reading *r, const struct tsr_config_node *map)
{
    struct pair          p = { 0 };
    struct tsr_plan_link l[2];
    uint64_t             ends[2], before = tsr_config_diag_errors(r->d);
    FILL(r, pair_options, map, "a link", &p);
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

static void read_links(struct reading *r, const struct head *h, const struct tsr_config_node *root)
{
    struct tsr_plan_cluster *c = r->c;
    struct tsr_plan_link     net[2] = { { 0 } };
    if (h->network)
        whole_link(r, h->network, "'network'", net);
    for (int p = 0; p < 2; p++)
        for (uint64_t i = 0; i < c->n_nodes; i++)
            for (uint64_t k = 0; k < c->n_nodes; k++)
                *between(c, p, i, k) = i == k ? c->nodes[i].link[p] : net[p];
    if (h->links && h->links->kind != TSR_NODE_LIST)
        tsr_config_diag_error(r->d, &h->links->mark, NULL, "'links' must be a list");
    for (uint64_t i = 0; h->links && h->links->kind == TSR_NODE_LIST && i < h->links->n; i++)
        read_pair(r, h->links->items[i]);
    for (uint64_t i = 0; i < c->n_nodes && tsr_config_diag_errors(r->d) == r->before; i++)
        for (uint64_t k = 0; k < c->n_nodes; k++)
            if (i != k && !(between(c, 0, i, k)->rate > 0)) {
                tsr_config_diag_error(r->d, &root->mark, "as in network: {bandwidth: 100 Gbit/s}",
                                      "nothing says how node '%s' reaches node '%s'",
                                      c->nodes[i].name, c->nodes[k].name);
                return;
            }
}

/* ---- devices ----------------------------------------------------------------------------------- */

/* The profile of a name, loaded once.  NULL with errors in d. */
static struct tsr_plan_profile *profile(struct reading *r, const struct tsr_config_node *name)
{
    struct tsr_plan_cluster *c = r->c;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_profile *p = NULL;
    char                    *path = NULL;
    tsr_status               st = tsr_plan_profile_find(&path, name->text, r->folder, &e.err);
    for (uint64_t i = 0; st == TSR_OK && i < c->n_profiles; i++)
        if (strcmp(c->profiles[i]->path, path) == 0) {
            free(path);
            return c->profiles[i];
        }
    if (st == TSR_OK) {
        uint64_t before = tsr_config_diag_errors(r->d);
        st = tsr_plan_profile_load(&p, path, r->d, &e.err);
        if (st == TSR_OK && !p && tsr_config_diag_errors(r->d) == before)
            st = tsr_fail(&e.err, TSR_E_BUG, "%s: refused without a reason", path);
    }
    free(path);
    if (st == TSR_E_INPUT)
        tsr_config_diag_failure(r->d, &name->mark, &e.err);
    else if (st != TSR_OK)
        r->st = tsr_err_copy(r->err, st, &e.err);
    if (!p)
        return NULL;
    struct tsr_plan_profile **all = tsr_renew(c->profiles, c->n_profiles + 1, sizeof *all);
    if (!all) {
        r->st = tsr_fail_nomem(r->err, (c->n_profiles + 1) * sizeof *all, "device profiles");
        tsr_plan_profile_destroy(p);
        return NULL;
    }
    c->profiles = all;
    return c->profiles[c->n_profiles++] = p;
}

/* A text or a list of texts, of a device that is there. */
static void check_backend(struct reading *r, const struct tsr_config_node *map,
                          const struct device *dev)
{
    const struct tsr_config_node *b = dev->backend;
    bool                          list = b && b->kind == TSR_NODE_LIST,
         ok = !b || (list ? b->n > 0 : b->kind == TSR_NODE_SCALAR);
    for (uint64_t i = 0; ok && list && i < b->n; i++)
        ok = b->items[i]->kind == TSR_NODE_SCALAR;
    if (!ok)
        tsr_config_diag_error(
            r->d, &b->mark,
            "as in backend: cuda, or backend: [\"cuda:device=1\", \"cuda:device=2\"]",
            "'backend' is not the name of one, nor a list of names");
    else if (b && dev->emulate && *dev->emulate)
        tsr_config_diag_error(r->d, &b->mark, NULL,
                              "a device that is emulated runs on the backend that 'emulate' names");
    else if (dev->transport && *dev->transport && dev->emulate && *dev->emulate)
        tsr_config_diag_error(
            r->d, &map->mark, NULL,
            "sums over emulated devices travel over paced links: 'transport' has no say");
}

static void read_device(struct reading *r, const struct tsr_config_node *map, uint64_t node)
{
    struct tsr_plan_cluster *c = r->c;
    struct device            dev = { 0 };
    uint64_t                 before = tsr_config_diag_errors(r->d);
    FILL(r, device_options, map, "a device", &dev);
    check_backend(r, map, &dev);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    struct tsr_plan_profile *p = profile(r, tsr_config_node_get(map, "profile"));
    if (p && dev.emulate && *dev.emulate && !p->backend && /* it is planned as what runs it */
        !(p->backend = tsr_strdup(dev.emulate)))
        r->st = tsr_fail_nomem(r->err, strlen(dev.emulate), "a device");
    struct tsr_plan_group *g = p ? tsr_renew(c->groups, c->n_groups + 1, sizeof *g) : NULL;
    if (p && !g)
        r->st = tsr_fail_nomem(r->err, c->n_groups * sizeof *g, "devices");
    if (!g)
        return;
    c->groups = g;
    g[c->n_groups++] = (struct tsr_plan_group){ .node = node,
                                                .profile = p,
                                                .count = (uint64_t)dev.count,
                                                .emulate = dev.emulate ? dev.emulate : "",
                                                .backend = dev.backend,
                                                .transport = dev.transport ? dev.transport : "",
                                                .mark = map->mark };
}

static void read_node(struct reading *r, const struct tsr_config_node *map, uint64_t at)
{
    struct tsr_plan_node_info *n = &r->c->nodes[at];
    struct node                o = { 0 };
    uint64_t                   devices = 0;
    FILL(r, node_options, map, "a node", &o);
    n->name = o.name ? o.name : "";
    n->host = o.host ? o.host : "";
    n->model_at = o.model_at ? o.model_at : "";
    n->first_group = r->c->n_groups;
    if (!o.devices || o.devices->kind != TSR_NODE_LIST || o.devices->n == 0) {
        tsr_config_diag_error(r->d, o.devices ? &o.devices->mark : &map->mark,
                              "as in devices: [{profile: T4, count: 3}]",
                              "a node needs 'devices', a list with at least one");
        return;
    }
    for (uint64_t i = 0; i < o.devices->n && r->st == TSR_OK; i++) {
        if (r->c->n_groups == MOST_GROUPS) {
            tsr_config_diag_error(r->d, &o.devices->items[i]->mark, NULL,
                                  "a cluster has at most %u entries of devices", MOST_GROUPS);
            return;
        }
        read_device(r, o.devices->items[i], at);
    }
    n->n_groups = r->c->n_groups - n->first_group;
    for (uint64_t i = 0; i < n->n_groups; i++)
        devices += r->c->groups[n->first_group + i].count;
    if (o.link)
        whole_link(r, o.link, "'link'", n->link);
    else if (devices > 1)
        tsr_config_diag_error(r->d, &map->mark, "as in link: {bandwidth: 12 GB/s, latency: 10 us}",
                              "a node of %llu devices needs 'link', between them",
                              (unsigned long long)devices);
}

static void read_nodes(struct reading *r, const struct tsr_config_node *list,
                       const struct tsr_config_node *root)
{
    struct tsr_plan_cluster *c = r->c;
    if (!list || list->kind != TSR_NODE_LIST || list->n == 0 || list->n > MOST_NODES) {
        tsr_config_diag_error(r->d, list ? &list->mark : &root->mark, NULL,
                              "a cluster needs 'nodes', a list of 1 to %u", MOST_NODES);
        return;
    }
    c->nodes = tsr_new(list->n, sizeof *c->nodes);
    c->between = tsr_new(2 * list->n * list->n, sizeof *c->between);
    if (!c->nodes || !c->between) {
        r->st = tsr_fail_nomem(r->err, 2 * list->n * list->n * sizeof *c->between, "a cluster");
        return;
    }
    c->n_nodes = list->n;
    for (uint64_t i = 0; i < list->n; i++)
        c->nodes[i].name = c->nodes[i].host = c->nodes[i].model_at = "";
    for (uint64_t i = 0; i < list->n && r->st == TSR_OK; i++) {
        read_node(r, list->items[i], i);
        for (uint64_t k = 0; k < i; k++)
            if (*c->nodes[i].name && strcmp(c->nodes[i].name, c->nodes[k].name) == 0)
                tsr_config_diag_error(r->d, &list->items[i]->mark, NULL,
                                      "a second node is named '%.60s'", c->nodes[i].name);
    }
}

/* ---- the file ---------------------------------------------------------------------------------- */

static tsr_status stem(const char *path, char **name, struct tsr_err *err)
{
    const char *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path;
    const char *dot = strrchr(from, '.');
    *name = tsr_strndup(from, dot && dot > from ? (size_t)(dot - from) : strlen(from));
    return *name ? TSR_OK : tsr_fail_nomem(err, strlen(from), path);
}

static tsr_status read_cluster(struct reading *r, const char *path)
{
    const struct tsr_config_node *root = tsr_config_doc_root(r->c->doc);
    struct head                   h = { 0 };
    TSR_TRY(stem(path, &r->c->name, r->err));
    FILL(r, head_options, root, "a cluster", &h);
    r->c->fixed = h.order == FIXED;
    r->c->slower = h.slower >= 1 ? h.slower : 1;
    read_nodes(r, h.nodes, root);
    if (r->st == TSR_OK && r->c->n_nodes)
        read_links(r, &h, root);
    return r->st;
}

/* Takes doc. */
static tsr_status make(struct tsr_plan_cluster **out, struct tsr_config_doc *doc, const char *path,
                       struct tsr_diag *d, struct tsr_err *err)
{
    char          *folder = tsr_path_dir(path);
    struct reading r = { .c = tsr_new(1, sizeof *r.c),
                         .d = d,
                         .folder = folder,
                         .before = tsr_config_diag_errors(d),
                         .err = err };
    tsr_status     st = r.c && folder ? TSR_OK : tsr_fail_nomem(err, sizeof *r.c, "a cluster");
    if (r.c)
        r.c->doc = doc;
    else
        tsr_config_doc_destroy(doc);
    if (st == TSR_OK)
        st = read_cluster(&r, path);
    free(folder);
    if (st != TSR_OK || tsr_config_diag_errors(d) != r.before)
        tsr_plan_cluster_destroy(r.c);
    else
        *out = r.c;
    return st;
}

tsr_status tsr_plan_cluster_parse(struct tsr_plan_cluster **c, const char *path, const char *text,
                                  uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_config_doc *doc = NULL;
    *c = NULL;
    tsr_status st = tsr_config_doc_parse(&doc, path, text, len, d, err);
    if (st == TSR_OK)
        return make(c, doc, path, d, err);
    return st == TSR_E_INPUT && tsr_config_diag_errors(d) ? TSR_OK : st;
}

tsr_status tsr_plan_cluster_load(struct tsr_plan_cluster **c, const char *path, struct tsr_diag *d,
                                 struct tsr_err *err)
{
    struct tsr_config_doc *doc = NULL;
    uint64_t               before = tsr_config_diag_errors(d);
    *c = NULL;
    tsr_status st = tsr_config_doc_load(&doc, path, d, err);
    if (st == TSR_OK)
        return make(c, doc, path, d, err);
    return st == TSR_E_INPUT && tsr_config_diag_errors(d) != before ? TSR_OK : st;
}
