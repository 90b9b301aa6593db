/* plan/file/check.h - checks a plan file on a problem and computes its cost. */
#ifndef TSR_PLAN_FILE_CHECK_H
#define TSR_PLAN_FILE_CHECK_H

#include "plan/file/plan_file.h"
#include "plan/search/search.h"

/* Index of a node by its name; false after an error at `at`. */
bool tsr_plan_node(const struct tsr_plan_cluster *c, const struct tsr_config_mark *at,
                   const char *name, struct tsr_diag *d, uint64_t *node);
/* The nodes that a plan's stages name, in that order, each once, in nodes[f->n_stages]; *n of them; each: [f->n_stages]
 * replicas that share the node. The cluster must have as many devices for every replica, on nodes that are alike: on nodes of
 * its own, or on an equal part of the devices of one. The nodes that the file lists must be such. Violations go to d at their
 * place, also with TSR_OK. [setup] */
tsr_status tsr_plan_nodes(const struct tsr_plan_cluster *c, const struct tsr_plan_file *f,
                          uint64_t *nodes, uint64_t *each, uint64_t *n, struct tsr_diag *d,
                          struct tsr_err *err);
/* The node that the file lists at place k of a replica; false: it lists none, or one that the cluster lacks.  [any] */
bool tsr_plan_nodes_listed(const struct tsr_plan_cluster *c, const struct tsr_plan_file *f,
                           uint64_t replica, uint64_t k, uint64_t *node);

/* candidate: [layers] index into p's candidates for each layer. p has the plan's micro-batches and decides
 * layers one by one. An invalid placement goes to d, with its line. A plan that does not fit, that a
 * device cannot run or whose quality is too low is TSR_E_INFEASIBLE with its place and the bytes. On
 * success a has the plan, with its cost recomputed: TSR_SOLVED_FEASIBLE, without a bound. */
tsr_status tsr_plan_check(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                          const struct tsr_plan_file *f, const uint32_t *candidate,
                          struct tsr_diag *d, struct tsr_err *err);

/* Puts the codecs of the file's links and sums in place of p's, each pair of phases once. [setup] */
tsr_status tsr_plan_take_codecs(struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                                struct tsr_err *err);
/* Then the codec of a stage's link, of p->links, and of its sums, of p->sums; their number where it has none. */
uint64_t tsr_plan_file_link(const struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                            uint64_t stage);
uint64_t tsr_plan_file_sum(const struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                           uint64_t stage);

/* k of the linears of a layer; *alike: all have the same, and then k has it also for linears that the layer lacks.
 * TSR_E_INPUT where linears with one input differ.  [setup] */
tsr_status tsr_plan_file_channels(const struct tsr_plan_file *f, const struct tsr_plan_shape *shape,
                                  uint64_t layer, uint32_t k[TSR_PLAN_LINEARS], bool *alike,
                                  struct tsr_err *err);
/* Puts the compensation of layers whose linears have different k in the place of p->k_of's in a checked plan: memory and
 * time.  Their quality counts without it.  TSR_E_INFEASIBLE where it does not fit.  [setup] */
tsr_status tsr_plan_compensate(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                               const struct tsr_plan_file *f, struct tsr_err *err);

#endif
