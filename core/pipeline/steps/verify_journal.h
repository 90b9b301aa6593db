/* pipeline/steps/verify_journal.h - plans that measured too much, in `verify.json` of the job folder, so that a job that was
 * cut goes on at the attempt where it was.
 */
#ifndef TSR_PIPELINE_STEPS_VERIFY_JOURNAL_H
#define TSR_PIPELINE_STEPS_VERIFY_JOURNAL_H

#include "pipeline/job.h"
#include "planning/options.h"

#define TSR_STEP_VERIFY_AGAIN 3u /* times that a plan is solved again */

/* Where the indicators of a plan are; fresh memory. */
tsr_status tsr_step_verify_indicators(const struct tsr_pipeline_job       *job,
                                      const struct tsr_planning_plan_keys *k, char **path,
                                      struct tsr_err *err);
/* The limit of the search after an attempt {"limit", "kl", "measured"} that measured too much; NAN without one. */
double tsr_step_verify_next(const json_t *attempt);
/* Fills attempts and limit of p, a plan that is verified, from the journal of an earlier run of this job; nothing where there
 * is none, or another job's.  A job that starts anew removes it.  TSR_E_INPUT: it is damaged. */
tsr_status tsr_step_verify_resume(struct tsr_pipeline_job *job, struct tsr_pipeline_job_step *p,
                                  struct tsr_err *err);
/* Writes the attempts of p. */
tsr_status tsr_step_verify_keep(struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *p,
                                const struct tsr_planning_verify_keys *v, struct tsr_err *err);

#endif
