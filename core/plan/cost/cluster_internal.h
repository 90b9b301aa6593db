/* plan/cost/cluster_internal.h - declarations shared by the files that read a cluster. */
#ifndef TSR_PLAN_COST_CLUSTER_INTERNAL_H
#define TSR_PLAN_COST_CLUSTER_INTERNAL_H

#include "plan/cost/cluster.h"

/* A text that must be given. */
#define TSR_PLAN_CLUSTER_TEXT(S, f, h)                                                             \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_REQUIRED,                  \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = ""                                                                                \
        }                                                                                          \
    }

struct tsr_plan_cluster_reading {
    struct tsr_plan_cluster *c;
    struct tsr_diag         *d;
    const char              *folder; /* of the file */
    uint64_t                 before;
    tsr_status               st; /* an error outside the file: out of memory */
    struct tsr_err          *err;
};

#define TSR_PLAN_CLUSTER_FILL(r, table, node, what, into)                                          \
    tsr_plan_cluster_fill(r, table, sizeof(table) / sizeof *(table), node, what, into)
static inline void tsr_plan_cluster_fill(struct tsr_plan_cluster_reading *r,
                                         const struct tsr_option *o, uint64_t n,
                                         const struct tsr_config_node *node, const char *what,
                                         void *into)
{
    struct tsr_config_optset set = { o, n, sizeof *o, into };
    tsr_config_options_fill(&set, 1, NULL, node, what, r->d);
}

/* Reads one link, by phase. */
void tsr_plan_cluster_read_link(struct tsr_plan_cluster_reading *r,
                                const struct tsr_config_node *map, const char *what,
                                struct tsr_plan_link l[2]);
/* Sets all links between nodes, which are there; network and links may be NULL. */
void tsr_plan_cluster_read_links(struct tsr_plan_cluster_reading *r,
                                 const struct tsr_config_node    *network,
                                 const struct tsr_config_node    *links,
                                 const struct tsr_config_node    *root);

#endif
