/* batch/run.h - a batch from file to file, with a model: records -> requests -> server -> journal ->
 * output. */
#ifndef TSR_BATCH_RUN_H
#define TSR_BATCH_RUN_H

#include "batch/adopt.h"
#include "batch/batch.h"
#include "batch/reasons.h"
#include "batch/records.h"
#include "batch/request.h"
#include "batch/ttft.h"

#include <jansson.h>

struct tsr_batch_job {
    const struct tsr_records   *records;
    struct tsr_request_defaults defaults; /* pass is set from here */
    struct tsr_pass             pass;
    struct tsr_answer_ids       ids;
    const char                 *output; /* OUT.jsonl */
    const char                 *folder; /* OUT.jsonl.job, there already */
    char                        id[TSR_HASH_TEXT];
    const char                 *about; /* JSON of what the job is */
    bool                        retry, quiet;
    uint64_t                    deadline_us; /* of a record; 0: none */
    /* Whether what answers are made of is still what it was at the start.  Asked after each step, before its lines are
     * written, and with `end` before the output is.  NULL: nobody asks. */
    tsr_status (*same)(void *ctx, bool end, struct tsr_err *err);
    void *same_ctx;
};

/* Tokens and seconds are of this run, workers that somebody replaced included; a record that one of
 * them had not yet committed counts where it was answered again. */
struct tsr_batch_summary {
    uint64_t                  records, errors, prompt_tokens, new_tokens;
    double                    seconds, journal_s; /* of them for the journal */
    struct tsr_journal_counts counts;
    struct tsr_ttft           ttft; /* of this worker; to be freed, after a failure too */
    struct tsr_reasons        reasons;
};

/* Runs what is missing and publishes the output.  TSR_E_INPUT with *about (to be freed) when the
 * folder holds another job.  Cancelled: TSR_E_CANCELLED; run again.  [worker] */
tsr_status tsr_batch_run(const struct tsr_batch_job *job, struct tsr_batch_summary *s, char **about,
                         struct tsr_err *err);

#endif
