/* pipeline/run_ttft.h - times to first tokens in the results of the step `run`. */
#ifndef TSR_PIPELINE_RUN_TTFT_H
#define TSR_PIPELINE_RUN_TTFT_H

#include "batch/ttft.h"
#include "pipeline/step.h"

#define TSR_TTFT_EACH 1024u /* most records that are told of one by one */

/* Puts "ttft_s": {records, least, median, most, each: by record, null where there is none} there; `each`
 * is left out beyond TSR_TTFT_EACH records, and all of it where no record had a first token. */
tsr_status tsr_run_ttft_put(const struct tsr_ttft *t, json_t *results, struct tsr_err *err);
/* That as a line for a terminal. */
void tsr_run_ttft_print(const json_t *results, FILE *to);

#endif
