/* batch/run_internal.h - declarations shared by the files that run a batch. */
#ifndef TSR_BATCH_RUN_INTERNAL_H
#define TSR_BATCH_RUN_INTERNAL_H

#include "batch/fan.h"
#include "batch/progress.h"
#include "batch/run.h"

struct tsr_batch_work {
    const struct tsr_batch_job       *job;
    struct tsr_batch_fan              fan; /* of the records in work; it has the server */
    struct tsr_batch                 *batch;
    struct tsr_tokenizer_text         line;
    struct tsr_batch_summary         *sum;
    double                            start_s;
    struct tsr_batch_progress         progress;
    uint64_t                          generated; /* tokens, of records that are not done too */
    struct tsr_batch_summary          before;    /* what other workers of this run did */
    struct tsr_batch_answer_ids       ids;       /* the job's, with the values kept from the first
                                                  * run */
    struct tsr_batch_request_defaults defaults;  /* the same */
    json_t                           *kept;      /* owns these texts; NULL: the journal is new */
};

/* ---- run_record.c: the records in work ----------------------------------- */

/* A record begins, in a free place of the fan; a line that is wrong becomes an error line. */
tsr_status tsr_batch_work_take(struct tsr_batch_work *r, uint64_t index, const char *line,
                               uint64_t len, struct tsr_err *err);
/* Ends records beyond their deadline; choices that wait go into free slots. */
tsr_status tsr_batch_work_feed(struct tsr_batch_work *r, struct tsr_err *err);
tsr_status tsr_batch_work_error(struct tsr_batch_work *r, uint64_t index, const char *custom_id,
                                const char *code, const char *why, struct tsr_err *err);
/* Tells the supervisor since when the oldest record runs. */
void     tsr_batch_work_note_oldest(const struct tsr_batch_work *r);
uint64_t tsr_batch_work_number(const struct tsr_batch_work *r, uint64_t index);
/* Of the fan; ctx: struct tsr_batch_work. */
void       tsr_batch_work_on_token(void *ctx);
void       tsr_batch_work_on_begun(void *ctx, const struct tsr_batch_taken *t);
tsr_status tsr_batch_work_on_ended(void *ctx, struct tsr_batch_taken *t, struct tsr_err *err);

/* ---- run_say.c ----------------------------------------------------------- */

/* Takes over what earlier workers of this run did. */
void tsr_batch_work_begin(struct tsr_batch_work *r);
/* One line that is redrawn on a terminal, one every five seconds elsewhere. */
void tsr_batch_work_say(struct tsr_batch_work *r, bool last);
/* Notes what the next worker of this run needs. */
void tsr_batch_work_tell(const struct tsr_batch_work *r);
void tsr_batch_work_warn(const struct tsr_batch_journal_counts *c);
/* Of all workers of this run. */
double tsr_batch_work_seconds(const struct tsr_batch_work *r);
double tsr_batch_work_journal_seconds(const struct tsr_batch_work *r);

#endif
