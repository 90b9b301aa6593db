/* batch/record.h - what a journal knows about its records. */
#ifndef TSR_BATCH_RECORD_H
#define TSR_BATCH_RECORD_H

#include "base/err.h"

#include <stdbool.h>

/* How the previous run ended, as observed by its supervisor. */
enum tsr_verdict {
    TSR_BATCH_VERDICT_OUTSIDE, /* unknown, or not caused by a record: none is blamed */
    TSR_BATCH_VERDICT_OWN,     /* its own fatal signal, memory limit or deadline of a record */
};

enum tsr_record_state { TSR_BATCH_RECORD_OPEN, TSR_BATCH_RECORD_RESULT, TSR_BATCH_RECORD_ERROR };

/* What is known of one record. */
struct tsr_batch_record {
    uint64_t at;   /* of the frame */
    uint64_t hash; /* of the line */
    uint32_t len;
    uint8_t  state; /* enum tsr_record_state */
    uint8_t  leased;
    uint8_t  suspect; /* was leased when a run died by its own fault: runs alone */
    uint8_t  deaths;  /* of runs that had leased it alone */
};
#define TSR_POISON_DEATHS 2u /* so many, and the record becomes an error line */

struct tsr_batch_journal_counts {
    uint64_t done, errors;    /* records with a line; of them errors */
    uint64_t stale;           /* frames of an epoch that was over */
    uint64_t doubled, unlike; /* lines for records that had one; of them with other bytes */
    uint64_t cut;             /* bytes of a torn end */
    uint64_t epoch;           /* of the last start */
    uint64_t starts;
    uint64_t bytes, commits, syncs; /* written by this process */
};

/* Looks at a line before it is taken for that of a record; error: the line of one that failed. */
typedef tsr_status (*tsr_batch_line_check)(void *ctx, uint64_t index, bool error, const char *line,
                                           uint64_t len, struct tsr_err *err);

#endif
