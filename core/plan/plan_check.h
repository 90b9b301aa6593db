/* plan/plan_check.h - a plan file on a problem: is it allowed, and what does it come to? */
#ifndef TSR_PLAN_PLAN_CHECK_H
#define TSR_PLAN_PLAN_CHECK_H

#include "plan/plan_file.h"
#include "plan/search.h"

/* Index of a node by its name; false after an error at `at`. */
bool tsr_plan_node(const struct tsr_cluster *c, const struct tsr_mark *at, const char *name,
                   struct tsr_diag *d, uint64_t *node);
/* The nodes that a plan's stages name, in that order, each once, in nodes[f->n_stages]; *n of them.
 * With replicas the cluster has as many sets of nodes like these, none in two, and those that the
 * file lists are such.  What is not so goes to d at its place; TSR_OK then, too.  [setup] */
tsr_status tsr_plan_nodes(const struct tsr_cluster *c, const struct tsr_plan_file *f,
                          uint64_t *nodes, uint64_t *n, struct tsr_diag *d, struct tsr_err *err);

/* candidate: [layers] what each layer takes of p's candidates.  p has the plan's micro-batches and
 * decides layers one by one.  A place that does not exist goes to d, at its line; a plan that does
 * not fit, that a device cannot run or that is not good enough is TSR_E_INFEASIBLE with its place and
 * the bytes.  On success a has the plan, priced anew: TSR_SOLVED_FEASIBLE, without a bound. */
tsr_status tsr_plan_check(struct tsr_planned *a, const struct tsr_problem *p,
                          const struct tsr_plan_file *f, const uint32_t *candidate,
                          struct tsr_diag *d, struct tsr_err *err);

/* Makes links and sums of p cost what the file's codecs send, phase by phase.  One codec stands for all
 * stages of a phase: where they differ the one with the most bytes.  [setup] */
tsr_status tsr_plan_take_codecs(struct tsr_problem *p, const struct tsr_plan_file *f,
                                struct tsr_err *err);

/* What the compensation of a stage takes on that mesh, with residuals of `bits` (0: those that `compensate` keeps
 * by default).  On a device that is
 * the CPU they are its memory and are read at its bandwidth; on others they are the host's, and are
 * read at the rate that the profile has for that, or in a time that is not known.  As if nothing ran
 * beside the reading. */
tsr_status tsr_plan_compensation(const struct tsr_problem *p, const struct tsr_plan_file *f,
                                 uint64_t stage, const struct tsr_mesh *m, uint32_t bits,
                                 struct tsr_stage_compensation *out, struct tsr_err *err);
/* Adds it to a checked plan, with the bits of the residuals that the model has.  TSR_E_INFEASIBLE where it does not fit. */
tsr_status tsr_plan_compensate(struct tsr_planned *a, const struct tsr_problem *p,
                               const struct tsr_plan_file *f, struct tsr_err *err);

#endif
