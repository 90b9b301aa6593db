/* batch/progress.h - the progress line of a batch: records, tokens/s, remaining time. */
#ifndef TSR_BATCH_PROGRESS_H
#define TSR_BATCH_PROGRESS_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>

struct tsr_batch_progress {
    const struct tsr_clock *clock;
    uint64_t                start_us, said_us;
    uint64_t                before; /* records that were done at the start */
};

struct tsr_batch_state {
    uint64_t records, done, errors; /* of the batch; done: errors too */
    uint64_t tokens;                /* generated since begin() */
};

void tsr_batch_progress_begin(struct tsr_batch_progress *p, const struct tsr_clock *clock,
                              uint64_t done);
/* True when a line is due: every_us after begin(), or after the last one that was. */
bool tsr_batch_progress_due(struct tsr_batch_progress *p, uint64_t every_us);
/* "12 of 40 records, 35.0 tokens/s, ETA 3 min, 1 errors".  tokens/s: generated tokens over the time
 * since begin().  The ETA assumes that each remaining record takes the average time of the records
 * finished since begin(); "?" if there is none yet. */
void tsr_batch_progress_text(const struct tsr_batch_progress *p, const struct tsr_batch_state *s,
                             char *buf, size_t cap);

#endif
