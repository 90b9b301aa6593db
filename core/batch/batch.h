/* batch/batch.h - a running batch job: which record runs when, and when its line is durable.
 *
 *   open journal -> { poisoned records become error lines; suspects run alone, others fill the
 *   worker; write leases and the previous lines, sync every 50 ms in parallel; one step } ->
 *   output
 *
 * Single-threaded and driven step by step from outside.  Clock, disk and worker are function
 * tables, so the simulation of tests/batch runs this same code.
 */
#ifndef TSR_BATCH_BATCH_H
#define TSR_BATCH_BATCH_H

#include "base/clock.h"
#include "batch/journal.h"
#include "tokenizer/tokenizer.h"

struct tsr_batch;

/* Computes lines and passes each to tsr_batch_line() from within submit() or step(). */
struct tsr_batch_worker {
    void *ctx;
    uint32_t (*room)(void *ctx); /* records that it takes now */
    uint32_t (*busy)(void *ctx); /* that it has */
    tsr_status (*submit)(void *ctx, uint64_t index, struct tsr_err *err);
    tsr_status (*step)(void *ctx, struct tsr_err *err);
    /* The error line of a record that ended `deaths` runs. */
    tsr_status (*poison)(void *ctx, uint64_t index, uint32_t deaths,
                         struct tsr_tokenizer_text *line, struct tsr_err *err);
};

struct tsr_batch_options {
    struct tsr_batch_journal_options journal;
    const struct tsr_clock          *clock;
    const char                      *output;
};

/* Lines are synced at most once in this time.  A power failure loses that much work, or one step if that
 * takes longer. */
#define TSR_SYNC_US 50000u

/* Opens the journal (errors and `about` as there).  w is copied. */
tsr_status tsr_batch_open(struct tsr_batch **b, const struct tsr_batch_options *o,
                          const struct tsr_batch_worker *w, char **about, struct tsr_err *err);
void       tsr_batch_close(struct tsr_batch *b);

/* The line of a record, without newline; copied. */
tsr_status tsr_batch_line(struct tsr_batch *b, uint64_t index, bool error, const char *line,
                          uint64_t bytes, struct tsr_err *err);
/* One round.  *over: every line is written and synced.  After tsr_plugin_cancel(): finished lines
 * are synced, TSR_E_CANCELLED. */
tsr_status tsr_batch_step(struct tsr_batch *b, bool *over, struct tsr_err *err);
/* Publishes the output file after step() set *over; `part` is its name until it is complete, see
 * tsr_batch_journal_finish(). */
tsr_status tsr_batch_finish(struct tsr_batch *b, const char *part, struct tsr_err *err);

const struct tsr_batch_journal_counts *tsr_batch_counts(const struct tsr_batch *b);
/* Time that the rounds spent on the journal so far: leases, lines, commits, waits for syncs. */
uint64_t                        tsr_batch_journal_us(const struct tsr_batch *b);
const struct tsr_batch_journal *tsr_batch_journal(const struct tsr_batch *b);

#endif
