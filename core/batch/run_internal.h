/* batch/run_internal.h - declarations shared by the files that run a batch. */
#ifndef TSR_BATCH_RUN_INTERNAL_H
#define TSR_BATCH_RUN_INTERNAL_H

#include "batch/progress.h"
#include "batch/run.h"

/* A record in the server. */
struct tsr_batch_taken {
    bool                     busy, begun; /* begun: it has a token */
    uint64_t                 index, since_us;
    struct tsr_batch_request request;
};

struct tsr_batch_work {
    const struct tsr_batch_job       *job;
    struct tsr_server                *server;
    struct tsr_batch                 *batch;
    struct tsr_batch_taken           *taken; /* [slots]; a request's id is its place here */
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
