/* plan/cost/cluster.h - the available machines: nodes, devices, links (docs/formats/cluster.md).
 *
 * Identical devices (same profile, same links) are interchangeable: a kind. A tensor-parallel mesh of tp
 * devices of one node is one device of a separate kind.
 */
#ifndef TSR_PLAN_COST_CLUSTER_H
#define TSR_PLAN_COST_CLUSTER_H

#include "plan/cost/device.h"
#include "tessera/codec.h"

/* ms = alpha_ms + bytes / rate, rate in bytes/s; rate 0: no link. */
struct tsr_plan_link {
    double alpha_ms, rate;
};
double tsr_plan_link_ms(const struct tsr_plan_link *l, double bytes); /* +INFINITY without a link */

/* `count` devices of one profile in one node. */
struct tsr_plan_group {
    uint64_t                 node;
    struct tsr_plan_profile *profile; /* borrowed from the cluster */
    uint64_t                 count;
    const char              *emulate; /* backend that does its work here, "": it is real */
    /* backend of a real device, "cuda:device=1"; a list: of its ranks in turn; NULL: the job's */
    const struct tsr_config_node *backend;
    const char                   *transport; /* of sums over its ranks; "": the runtime's choice */
    struct tsr_config_mark        mark;      /* of the entry, for messages */
};

struct tsr_plan_node_info {
    const char                    *name, *host, *model_at; /* host, model_at: "" when absent */
    struct tsr_plan_link           link[2];                /* between its devices, by phase */
    const struct tsr_plan_profile *cpu; /* may run experts out of its memory; NULL: it may not */
    struct tsr_plan_link           to_cpu[2]; /* of each device, by phase */
    uint64_t                       first_group, n_groups;
    uint64_t parts; /* into which its devices are divided, of which the cluster has one; 0: whole */
};

struct tsr_plan_cluster {
    char                      *name; /* file stem; owned */
    struct tsr_plan_node_info *nodes;
    uint64_t                   n_nodes;
    struct tsr_plan_group     *groups; /* in file order: the fixed order is theirs */
    uint64_t                   n_groups;
    struct tsr_plan_link *between; /* [2][n_nodes][n_nodes], by phase, from, to; diagonal: inside */
    bool                  fixed;   /* order: fixed */
    double                slower;  /* of emulated devices; 1 */
    struct tsr_plan_profile **profiles; /* each once; owned */
    uint64_t                  n_profiles;
    struct tsr_config_doc    *doc;
};

/* Reads a cluster and the profiles that it names.  What is wrong with any of the files goes to d;
 * TSR_OK with *c NULL then.  [setup] */
tsr_status tsr_plan_cluster_load(struct tsr_plan_cluster **c, const char *path, struct tsr_diag *d,
                                 struct tsr_err *err);
/* The same from memory; path names the file and sets where profiles are searched. */
tsr_status tsr_plan_cluster_parse(struct tsr_plan_cluster **c, const char *path, const char *text,
                                  uint64_t len, struct tsr_diag *d, struct tsr_err *err);
void       tsr_plan_cluster_destroy(struct tsr_plan_cluster *c); /* NULL is fine */
/* A cluster file by name: a path relative to `beside` (NULL: the current folder), or the name of an
 * installed cluster such as "t4x3-v100". Fresh memory. [setup] */
tsr_status tsr_plan_cluster_find(char **path, const char *name, const char *beside,
                                 struct tsr_err *err);

uint64_t                    tsr_plan_cluster_devices(const struct tsr_plan_cluster *c);
const struct tsr_plan_link *tsr_plan_cluster_link(const struct tsr_plan_cluster *c,
                                                  uint64_t from_node, uint64_t to_node,
                                                  enum tsr_phase phase);

/* Some of the nodes, in that order, as a new cluster. c owns names and profiles and must outlive it. A
 * fixed order stays fixed. each: [n] into how many equal parts the devices of each node and its CPU are divided, of which
 * the new cluster has one; devices that do not divide are left out. NULL: nodes are whole. TSR_E_INVAL where a node is left
 * without devices. [setup] */
tsr_status tsr_plan_cluster_part(struct tsr_plan_cluster **part, const struct tsr_plan_cluster *c,
                                 const uint64_t *nodes, const uint64_t *each, uint64_t n,
                                 struct tsr_err *err);
/* type[n_nodes]: nodes that can change places without any time or size changing have one type,
 * numbered as they come first.  Returns how many types. */
uint64_t tsr_plan_cluster_types(const struct tsr_plan_cluster *c, uint64_t *type);

/* How devices of a group share layers: their number, and what each has of the experts. */
#define TSR_PLAN_WAY_WHOLE (1u << 16) /* experts are whole */
#define TSR_PLAN_WAY_FLAGS TSR_PLAN_WAY_WHOLE
static inline uint32_t tsr_plan_way_tp(uint32_t way)
{
    return way & ~TSR_PLAN_WAY_FLAGS;
}

/* A device of a plan: tp devices of one group. */
struct tsr_plan_mesh {
    const struct tsr_plan_profile *profile;
    uint32_t                       tp;
    bool                           whole_experts; /* of several devices; else some rows of each */
    uint64_t                       node;
    struct tsr_plan_link           inside[2]; /* between its devices, by phase */
    const struct tsr_plan_profile *cpu; /* of the node, which may run experts; NULL: it may not */
    double   cpu_share; /* of the CPU and its memory: devices of a node have equal parts */
    uint64_t parts;     /* of the node, of which the cluster has one; 0: whole */
    bool     mixed;     /* the node has CPUs and other devices; of a stage: the first one is on the
                         * other kind of its node */
    struct tsr_plan_link to_cpu[2]; /* of each device, by phase */
    bool cpu_experts; /* set by a caller that means layers whose experts that CPU runs */
    char name[64];    /* "T4", "T4 x2", "T4 x2, experts whole" */
};
/* The mesh of devices of a group; way: their number, with TSR_PLAN_WAY_*. */
void tsr_plan_mesh_of(const struct tsr_plan_cluster *c, uint64_t group, uint32_t way,
                      struct tsr_plan_mesh *m);
/* Whether one is a CPU and the other one another device of its node. */
bool tsr_plan_mesh_beside(const struct tsr_plan_mesh *a, const struct tsr_plan_mesh *b);
/* Whether they have equal parts of equal CPUs over equal links, or none. */
bool tsr_plan_mesh_same_cpu(const struct tsr_plan_mesh *a, const struct tsr_plan_mesh *b);

/* ---- traffic over links -------------------------------------------------------------------- */

/* A codec at work; iface NULL: none is named, and numbers travel as F32, exactly. */
struct tsr_plan_wire {
    struct tsr_plugin_spec     spec;
    char                      *text; /* as it was opened; owned; NULL: no codec */
    const struct tsr_codec_v1 *iface;
    void                      *self;
    uint32_t                   element; /* without a codec: bytes of a number; 0: 4, uncoded */
};
/* "plain:dtype=bf16"; NULL or "": no codec.  [setup] */
tsr_status tsr_plan_wire_open(struct tsr_plan_wire *w, struct tsr_registry *r, const char *text,
                              struct tsr_err *err);
void       tsr_plan_wire_close(struct tsr_plan_wire *w);
/* Bytes of a message of rows x cols activations.  [any] */
tsr_status tsr_plan_wire_bytes(const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                               uint64_t *bytes, struct tsr_err *err);

#endif
