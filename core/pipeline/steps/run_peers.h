/* pipeline/steps/run_peers.h - the step `run` as one of several processes of an MPI job, perhaps on several hosts. */
#ifndef TSR_PIPELINE_STEPS_RUN_PEERS_H
#define TSR_PIPELINE_STEPS_RUN_PEERS_H

#include "pipeline/steps/run_keys.h"
#include "runtime/peers.h"

/* Errors of a job that is run so, at their places. */
void tsr_step_run_peers_check(const struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                              const struct tsr_config_node *node, struct tsr_diag *d);
/* Before the model is read: takes it from where the plan's node of this rank has it (model_at). */
tsr_status tsr_step_run_peers_place(struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                                    const struct tsr_config_node *node, struct tsr_err *err);
/* Sends this rank's facts and receives those of the peers. zero: requests, context and links of rank 0 in,
 * rank 0's out. Rank 0 also checks that every rank is on its node's host. */
tsr_status tsr_step_run_peers_meet(struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                                   uint32_t act, struct tsr_runtime_peer_facts *zero,
                                   struct tsr_err *err);

#endif
