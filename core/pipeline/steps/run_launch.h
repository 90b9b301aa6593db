/* pipeline/steps/run_launch.h - the step `run` on the ranks of a plan: choice of the plan, run statistics. */
#ifndef TSR_PIPELINE_RUN_FLEET_H
#define TSR_PIPELINE_RUN_FLEET_H

#include "launch/launch.h"
#include "pipeline/steps/run_keys.h"

/* Errors of the keys, at their places. */
void tsr_step_run_launch_check(const struct tsr_pipeline_job  *job,
                               const struct tsr_step_run_keys *k,
                               const struct tsr_config_node *node, struct tsr_diag *d);
/* True where there is a plan to run. */
bool tsr_step_run_launch_wanted(const struct tsr_pipeline_job  *job,
                                const struct tsr_step_run_keys *k);

struct tsr_step_run_launch {
    struct tsr_launch *fleet;
    uint64_t           context;
};
/* Ranks at work. key: of the batch; the plan that `auto` chose for it is read from the job's manifest, if
 * recorded. records: how many there are; context 0: the plan's own; stall_us: the longest time that a rank
 * may make no progress. m: the model after the earlier steps, packed or not. [setup] */
tsr_status tsr_step_run_launch_open(struct tsr_step_run_launch *f, struct tsr_pipeline_job *job,
                                    const struct tsr_model *m, const struct tsr_step_run_keys *k,
                                    uint64_t context, uint64_t records, const char *key,
                                    uint64_t stall_us, struct tsr_err *err);
/* Writes the choices of `auto` into the job's manifest, before the first record. folder: of the journal of
 * batch id; if it already has answers of that batch, it is too late: TSR_E_INPUT. */
tsr_status tsr_step_run_launch_note(struct tsr_step_run_launch *f, struct tsr_pipeline_job *job,
                                    const char *key, const char *id, const char *folder,
                                    struct tsr_err *err);
/* Runs the rank of this process, which is not 0, of an MPI job until rank 0 ends it. [setup] */
tsr_status tsr_step_run_launch_serve(struct tsr_pipeline_job *job, const struct tsr_model *m,
                                     const struct tsr_step_run_keys *k, struct tsr_err *err);
/* Ends the ranks, and adds their run statistics to the results. ran: adds the number of packed linears
 * that run with each TSR_ACT_*. */
tsr_status tsr_step_run_launch_report(struct tsr_step_run_launch     *f,
                                      const struct tsr_pipeline_job  *job,
                                      const struct tsr_step_run_keys *k, uint64_t tokens,
                                      double seconds, uint64_t ran[3], json_t *results,
                                      struct tsr_err *err);
void       tsr_step_run_launch_close(struct tsr_step_run_launch *f); /* zeroed or filled */
/* That as lines for a terminal. */
void tsr_step_run_launch_print(const json_t *results, FILE *to);

#endif
