/* cli/doctor/doctor.h - the parts of `tessera doctor`: the facts of each host, and their evaluation. */
#ifndef TSR_CLI_DOCTOR_DOCTOR_H
#define TSR_CLI_DOCTOR_DOCTOR_H

#include "base/hash.h"
#include "cli/cli.h"
#include "comm/probe.h"
#include "plan/cost/cluster.h"

struct doctor_options {
    const char *model;
    double      deadline; /* s */
    int32_t     headers;
};

/* The facts of one process; sent between hosts uncoded. */
struct doctor_facts {
    char     version[32], plugins[TSR_HASH_TEXT], model[48];
    char     model_error[160]; /* why the hash is missing; "" */
    uint64_t memory;           /* bytes available */
    double   clock_s;          /* ahead of rank 0 */
};

enum doctor_verdict { DOCTOR_OK, DOCTOR_BAD, DOCTOR_NOT_CHECKED };

struct doctor_line {
    const char         *check;
    char                where[160], found[200], wanted[160];
    enum doctor_verdict verdict;
};

struct doctor {
    struct tsr_cli              *cli;
    const struct doctor_options *o;
    struct tsr_registry         *registry;
    struct tsr_plan_cluster     *cluster;
    char                        *model; /* path, or NULL: no model is named */
    bool                         launched;
    uint32_t                     rank, ranks;
    struct tsr_comm_map          map;   /* of all ranks; hosts without a launcher too */
    struct doctor_facts         *facts; /* [ranks] */
    struct doctor_line          *line;
    uint64_t                     n_lines;
};

/* Asks this process, then all others; the same on every rank.  Every wait has the deadline. */
tsr_status doctor_gather(struct doctor *d, struct tsr_err *err);
/* Makes the lines from the collected facts; rank 0 only. */
tsr_status doctor_judge(struct doctor *d, struct tsr_err *err);
/* The node of a rank: by `host:`, else hosts in order of their first rank; NULL: none is left. */
const struct tsr_plan_node_info *doctor_node(const struct doctor *d, uint32_t rank);

/* cli/profile/links.c: every pair of `ranks` threads of this process. */
tsr_status profile_links_threads(struct tsr_registry *r, const char *transport, uint32_t ranks,
                                 struct tsr_comm_map *map, struct tsr_err *err);

#endif
