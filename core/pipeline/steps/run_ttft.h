/* pipeline/steps/run_ttft.h - times to first tokens in the results of the step `run`. */
#ifndef TSR_PIPELINE_STEPS_RUN_TTFT_H
#define TSR_PIPELINE_STEPS_RUN_TTFT_H

#include "batch/ttft.h"
#include "pipeline/step.h"

#define TSR_TTFT_EACH 1024u /* most records that are reported one by one */

/* Adds "ttft_s": {records, least, median, most, each: by record, null if it has none}. Omits `each` beyond
 * TSR_TTFT_EACH records, and the whole object if no record had a first token. */
tsr_status tsr_step_run_ttft_put(const struct tsr_batch_ttft *t, json_t *results,
                                 struct tsr_err *err);
/* That as a line for a terminal. */
void tsr_step_run_ttft_print(const json_t *results, FILE *to);

#endif
