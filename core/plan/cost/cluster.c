/* Clusters: YAML to struct tsr_plan_cluster (docs/formats/cluster.md). */
#include "plan/cost/cluster_internal.h"

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
    const struct tsr_config_node *devices, *link, *cpu;
};
struct cpu {
    const char                   *profile;
    const struct tsr_config_node *link;
};
struct device {
    const char                   *profile, *emulate, *transport;
    int64_t                       count;
    const struct tsr_config_node *backend;
};

enum { FREE, FIXED };
static const struct tsr_choice orders[] = {
    { "free", "any pipeline order", FREE }, { "fixed", "stages in the order of this file", FIXED }
};

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
    TSR_OPTION_NODE(struct node, cpu, "CPU that may run experts out of its memory."),
};
static const struct tsr_option cpu_options[] = {
    TSR_PLAN_CLUSTER_TEXT(struct cpu, profile, "Name or path of a device profile."),
    TSR_OPTION_NODE(struct cpu, link, "Between it and each device."),
};
static const struct tsr_option device_options[] = {
    TSR_PLAN_CLUSTER_TEXT(struct device, profile, "Name or path of a device profile."),
    TSR_OPTION_INT(struct device, count, 1, 1, MOST_DEVICES, NULL, "How many."),
    TSR_OPTION_STRING(struct device, emulate, "",
                      "Backend of this machine that does its work, as fast as the profile says."),
    TSR_OPTION_NODE(struct device, backend,
                    "Backend that runs it; a list: of its ranks, in turn; default: the job's."),
    TSR_OPTION_STRING(struct device, transport, "",
                      "What carries sums over the ranks of a stage; default: local, or mpi."),
};

/* ---- links ----------------------------------------------------------------------------------- */

/* ---- devices ----------------------------------------------------------------------------------- */

/* The profile of a name, loaded once.  NULL with errors in d. */
static struct tsr_plan_profile *profile(struct tsr_plan_cluster_reading *r,
                                        const struct tsr_config_node    *name)
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
static void check_backend(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *map,
                          const struct device *dev)
{
    const struct tsr_config_node *b = dev->backend;
    bool                          list = b && b->kind == TSR_CONFIG_NODE_LIST,
         ok = !b || (list ? b->n > 0 : b->kind == TSR_CONFIG_NODE_SCALAR);
    for (uint64_t i = 0; ok && list && i < b->n; i++)
        ok = b->items[i]->kind == TSR_CONFIG_NODE_SCALAR;
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

static void read_device(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *map,
                        uint64_t node)
{
    struct tsr_plan_cluster *c = r->c;
    struct device            dev = { 0 };
    uint64_t                 before = tsr_config_diag_errors(r->d);
    TSR_PLAN_CLUSTER_FILL(r, device_options, map, "a device", &dev);
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

/* The CPU next to a node's devices. */
static void read_cpu(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *map,
                     struct tsr_plan_node_info *n)
{
    struct cpu cpu = { 0 };
    uint64_t   before = tsr_config_diag_errors(r->d);
    TSR_PLAN_CLUSTER_FILL(r, cpu_options, map, "'cpu'", &cpu);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    if (!cpu.link) {
        tsr_config_diag_error(r->d, &map->mark, "as in link: {bandwidth: 12 GB/s, latency: 10 us}",
                              "'cpu' needs 'link', between it and each device of the node");
        return;
    }
    tsr_plan_cluster_read_link(r, cpu.link, "'link'", n->to_cpu);
    n->cpu = profile(r, tsr_config_node_get(map, "profile"));
    for (uint64_t i = 0; n->cpu && i < n->n_groups; i++)
        if (r->c->groups[n->first_group + i].profile == n->cpu)
            tsr_config_diag_error(r->d, &map->mark, "leave it out of one of them",
                                  "'%.32s' is one of the node's devices and its 'cpu', and would "
                                  "have its memory twice",
                                  n->cpu->name);
}

static void read_node(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *map,
                      uint64_t at)
{
    struct tsr_plan_node_info *n = &r->c->nodes[at];
    struct node                o = { 0 };
    uint64_t                   devices = 0;
    TSR_PLAN_CLUSTER_FILL(r, node_options, map, "a node", &o);
    n->name = o.name ? o.name : "";
    n->host = o.host ? o.host : "";
    n->model_at = o.model_at ? o.model_at : "";
    n->first_group = r->c->n_groups;
    if (!o.devices || o.devices->kind != TSR_CONFIG_NODE_LIST || o.devices->n == 0) {
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
    if (o.cpu)
        read_cpu(r, o.cpu, n);
    for (uint64_t i = 0; i < n->n_groups; i++)
        devices += r->c->groups[n->first_group + i].count;
    if (o.link)
        tsr_plan_cluster_read_link(r, o.link, "'link'", n->link);
    else if (devices > 1)
        tsr_config_diag_error(r->d, &map->mark, "as in link: {bandwidth: 12 GB/s, latency: 10 us}",
                              "a node of %llu devices needs 'link', between them",
                              (unsigned long long)devices);
}

static void read_nodes(struct tsr_plan_cluster_reading *r, const struct tsr_config_node *list,
                       const struct tsr_config_node *root)
{
    struct tsr_plan_cluster *c = r->c;
    if (!list || list->kind != TSR_CONFIG_NODE_LIST || list->n == 0 || list->n > MOST_NODES) {
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

static tsr_status read_cluster(struct tsr_plan_cluster_reading *r, const char *path)
{
    const struct tsr_config_node *root = tsr_config_doc_root(r->c->doc);
    struct head                   h = { 0 };
    TSR_TRY(stem(path, &r->c->name, r->err));
    TSR_PLAN_CLUSTER_FILL(r, head_options, root, "a cluster", &h);
    r->c->fixed = h.order == FIXED;
    r->c->slower = h.slower >= 1 ? h.slower : 1;
    read_nodes(r, h.nodes, root);
    if (r->st == TSR_OK && r->c->n_nodes)
        tsr_plan_cluster_read_links(r, h.network, h.links, root);
    return r->st;
}

/* Takes doc. */
static tsr_status make(struct tsr_plan_cluster **out, struct tsr_config_doc *doc, const char *path,
                       struct tsr_diag *d, struct tsr_err *err)
{
    char                           *folder = tsr_path_dir(path);
    struct tsr_plan_cluster_reading r = { .c = tsr_new(1, sizeof *r.c),
                                          .d = d,
                                          .folder = folder,
                                          .before = tsr_config_diag_errors(d),
                                          .err = err };
    tsr_status st = r.c && folder ? TSR_OK : tsr_fail_nomem(err, sizeof *r.c, "a cluster");
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
