/* batch/batch.h - a batch job at work: which record runs when, and when its line is safe.
 *
 *   open journal -> { poisoned records become error lines; suspects run alone, others fill the
 *   worker; leases and the lines before written, every 50 ms synced beside the work; one step } ->
 *   output
 *
 * Single-threaded, and driven from outside step by step through a clock, a disk and a worker that
 * are tables: the simulation of tests/batch runs this very code.
 */
#ifndef TSR_BATCH_BATCH_H
#define TSR_BATCH_BATCH_H

#include "base/clock.h"
#include "batch/journal.h"
#include "model/tokenizer.h"

struct tsr_batch;

/* Computes lines.  A line goes to tsr_batch_line() from within submit() or step(). */
struct tsr_batch_worker {
    void *ctx;
    uint32_t (*room)(void *ctx); /* records that it takes now */
    uint32_t (*busy)(void *ctx); /* that it has */
    tsr_status (*submit)(void *ctx, uint64_t index, struct tsr_err *err);
    tsr_status (*step)(void *ctx, struct tsr_err *err);
    /* The error line of a record that ended `deaths` runs. */
    tsr_status (*poison)(void *ctx, uint64_t index, uint32_t deaths, struct tsr_text *line,
                         struct tsr_err *err);
};

struct tsr_batch_options {
    struct tsr_journal_options journal;
    const struct tsr_clock    *clock;
    const char                *output;
};

/* Lines are synced at most once in this time, so that as much work, or one step where that takes longer,
 * is lost with the power. */
#define TSR_SYNC_US 50000u

/* Opens the journal (errors and `about` as there).  w is copied. */
tsr_status tsr_batch_open(struct tsr_batch **b, const struct tsr_batch_options *o,
                          const struct tsr_batch_worker *w, char **about, struct tsr_err *err);
void       tsr_batch_close(struct tsr_batch *b);

/* The line of a record, without newline; copied. */
tsr_status tsr_batch_line(struct tsr_batch *b, uint64_t index, bool error, const char *line,
                          uint64_t bytes, struct tsr_err *err);
/* One round.  *over: every line is there and synced.  tsr_cancel(): what is done is synced,
 * TSR_E_CANCELLED. */
tsr_status tsr_batch_step(struct tsr_batch *b, bool *over, struct tsr_err *err);
/* The output file, after step() said over; `part` is its name until it is whole, and as of
 * tsr_journal_finish(). */
tsr_status tsr_batch_finish(struct tsr_batch *b, const char *part, struct tsr_err *err);

const struct tsr_journal_counts *tsr_batch_counts(const struct tsr_batch *b);
/* Time that the rounds spent on the journal so far: leases, lines, commits, waits for syncs. */
uint64_t                  tsr_batch_journal_us(const struct tsr_batch *b);
const struct tsr_journal *tsr_batch_journal(const struct tsr_batch *b);

#endif
