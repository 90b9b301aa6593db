/* pipeline/run_mates.h - the step `run` as one of several processes of an MPI job, perhaps on several hosts. */
#ifndef TSR_PIPELINE_RUN_MATES_H
#define TSR_PIPELINE_RUN_MATES_H

#include "pipeline/run_launch.h"
#include "runtime/mates.h"

/* Errors of a job that is run so, at their places. */
void tsr_run_mates_check(const struct tsr_job *job, const struct tsr_run_keys *k,
                         const struct tsr_node *node, struct tsr_diag *d);
/* Before the model is read: takes it from where the plan's node of this rank has it (model_at). */
tsr_status tsr_run_mates_place(struct tsr_job *job, const struct tsr_run_keys *k,
                               const struct tsr_node *node, struct tsr_err *err);
/* Says what this rank has and hears what the others have.  zero: requests, context and links of rank 0
 * in, rank 0's out.  Rank 0 also looks whether every rank is on its node's host. */
tsr_status tsr_run_mates_meet(struct tsr_job *job, const struct tsr_run_keys *k, uint32_t act,
                              struct tsr_mate_facts *zero, struct tsr_err *err);

#endif
