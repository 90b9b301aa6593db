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
    const struct tsr_batch_records   *records;
    struct tsr_batch_request_defaults defaults; /* pass is set from here */
    struct tsr_engine_pass            pass;
    struct tsr_batch_answer_ids       ids;
    const char                       *output; /* OUT.jsonl */
    const char                       *folder; /* OUT.jsonl.job, there already */
    char                              id[TSR_HASH_TEXT];
    const char                       *about; /* JSON of the job's identity */
    bool                              retry, quiet;
    uint64_t                          deadline_us; /* of a record; 0: none */
    /* Whether the inputs of the answers are still unchanged since the start.  Called after each step, before
     * its lines are written, and with `end` before the output is written.  NULL: not checked. */
    tsr_status (*same)(void *ctx, bool end, struct tsr_err *err);
    void *same_ctx;
};

/* Tokens and seconds of this run, including replaced workers.  A record that one of them had not
 * committed counts where it was answered again. */
struct tsr_batch_summary {
    uint64_t                        records, errors, prompt_tokens, new_tokens;
    double                          seconds, journal_s; /* of them for the journal */
    struct tsr_batch_journal_counts counts;
    struct tsr_batch_ttft           ttft; /* of this worker; to be freed, after a failure too */
    struct tsr_batch_reasons        reasons;
    struct tsr_engine_drafted       drafts; /* of this worker */
    uint64_t reused; /* tokens of prompts that had been computed before; of this worker */
};

/* Runs the missing records and publishes the output.  TSR_E_INPUT with *about (to be freed) if the
 * folder contains another job.  After an interrupt: TSR_E_CANCELLED; run again to resume.  [worker] */
tsr_status tsr_batch_run(const struct tsr_batch_job *job, struct tsr_batch_summary *s, char **about,
                         struct tsr_err *err);

#endif
