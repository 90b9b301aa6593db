/* batch/run_internal.h - declarations shared by the files that run a batch. */
#ifndef TSR_BATCH_RUN_INTERNAL_H
#define TSR_BATCH_RUN_INTERNAL_H

#include "batch/progress.h"
#include "batch/run.h"

/* A record in work.  One choice of it is one request of the server, whose id is the record's place in taken
 * times 2^32 plus the choice. */
struct tsr_batch_taken {
    bool                     busy, begun; /* begun: it has a token */
    bool                     late;        /* beyond its deadline */
    uint64_t                 index;
    uint64_t                 since_us; /* when its first choice began; 0: it waits for others */
    struct tsr_batch_request request;
    uint32_t    choices, next, open; /* all, the first not in the server yet, in the server */
    uint32_t    failed;              /* the first choice that failed, or choices */
    const char *code;                /* why it failed */
    char       *why;
    json_t     *answer; /* [choices], null where there is none yet */
    uint64_t    new_tokens;
};

struct tsr_batch_work {
    const struct tsr_batch_job       *job;
    struct tsr_server                *server;
    struct tsr_batch                 *batch;
    struct tsr_batch_taken           *taken; /* [slots] */
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

/* A record begins, in a free place of taken; a line that is wrong becomes an error line. */
tsr_status tsr_batch_work_take(struct tsr_batch_work *r, uint64_t index, const char *line,
                               uint64_t len, struct tsr_err *err);
/* Choices that wait go into free slots, record by record in order. */
tsr_status tsr_batch_work_feed(struct tsr_batch_work *r, struct tsr_err *err);
bool       tsr_batch_work_waits(const struct tsr_batch_work *r); /* a choice has no slot yet */
tsr_status tsr_batch_work_end_late(struct tsr_batch_work *r, struct tsr_err *err);
tsr_status tsr_batch_work_error(struct tsr_batch_work *r, uint64_t index, const char *custom_id,
                                const char *code, const char *why, struct tsr_err *err);
uint64_t   tsr_batch_work_number(const struct tsr_batch_work *r, uint64_t index);
void       tsr_batch_taken_free(struct tsr_batch_taken *t);
/* Events of the server; ctx: struct tsr_batch_work. */
tsr_status tsr_batch_work_on_token(void *ctx, uint64_t id, uint32_t token);
tsr_status tsr_batch_work_on_done(void *ctx, const struct tsr_engine_served *s,
                                  struct tsr_err *err);

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
