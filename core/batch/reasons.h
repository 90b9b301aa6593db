/* batch/reasons.h - why records became error lines: the count by code, and the first of each. */
#ifndef TSR_BATCH_REASONS_H
#define TSR_BATCH_REASONS_H

#include "batch/journal.h"
#include "batch/records.h"

#define TSR_REASONS_MOST 16u /* codes; there are fewer */

struct tsr_batch_reasons {
    uint64_t n;
    struct tsr_batch_reason {
        char     code[48];
        uint64_t records; /* with it */
        uint64_t line;    /* of the first of them in the input, from 1 */
        char     message[240];
    } v[TSR_REASONS_MOST]; /* in the order of their first lines */
};
/* From the error lines of a journal whose records all have lines. */
tsr_status tsr_batch_reasons_read(struct tsr_batch_reasons *s, const struct tsr_batch_journal *j,
                                  const struct tsr_batch_records *r, struct tsr_err *err);

#endif
