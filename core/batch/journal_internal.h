/* batch/journal_internal.h - the writer, for journal.c and finish.c. */
#ifndef TSR_BATCH_JOURNAL_INTERNAL_H
#define TSR_BATCH_JOURNAL_INTERNAL_H

#include "batch/scan.h"

struct tsr_journal {
    const struct tsr_io *io;
    char                *path, *lock_path;
    int                  file, lock; /* -1: not open */
    struct tsr_scan      scan;       /* what the journal says, with what is pending */
    char                 job[TSR_HASH_TEXT];
    uint64_t             epoch;
    char                *buffer; /* frames of the next commit */
    uint64_t             n, cap;
    uint64_t             lines;        /* among them, and written since a sync began */
    bool                 must_sync;    /* there is more than leases */
    bool                 flying;       /* a sync is on its way, */
    uint64_t             flying_end;   /* of all bytes in front of this one, */
    uint64_t             flying_lines; /* with so many lines */
    uint64_t             synced;       /* bytes that are on the disk */
    tsr_status           dead; /* of the failure after which nothing is written, or TSR_OK */
};

/* A frame into the next commit; also applied to j->scan. */
tsr_status tsr_journal_put(struct tsr_journal *j, const struct tsr_entry *f, struct tsr_err *err);

#endif
