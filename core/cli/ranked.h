/* cli/ranked.h - a verb that runs a job as one of the processes of `mpirun -n N tessera ...`. */
#ifndef TSR_CLI_RANKED_H
#define TSR_CLI_RANKED_H

#include "cli/jobs.h"

/* Whether a launcher started several processes for this job, which has the step `run`. */
bool tsr_cli_launched(void);
/* Continues with a job that was loaded and checked with status st (job may be NULL if st is an error) and
 * errors d: joins the peers, runs, leaves. Rank 0 prints; another rank does if rank 0 cannot be reached. */
tsr_status tsr_cli_ranked(struct tsr_cli *c, struct tsr_pipeline_job *job, struct tsr_diag *d,
                          const char *what, tsr_status st, struct tsr_err *err);

#endif
