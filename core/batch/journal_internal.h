/* batch/journal_internal.h - the writer, for journal.c and finish.c. */
#ifndef TSR_BATCH_JOURNAL_INTERNAL_H
#define TSR_BATCH_JOURNAL_INTERNAL_H

#include "batch/journal.h"
#include "batch/scan.h"

struct tsr_batch_journal {
    const struct tsr_batch_io *io;
    char                      *path, *lock_path;
    int                        file, lock; /* -1: not open */
    struct tsr_batch_scan      scan;       /* state of the journal, including pending frames */
    char                       job[TSR_HASH_TEXT];
    uint64_t                   epoch;
    char                      *buffer; /* frames of the next commit */
    uint64_t                   n, cap;
    uint64_t                   lines;        /* among them, and written since a sync began */
    bool                       must_sync;    /* there is more than leases */
    bool                       flying;       /* a sync is running, */
    uint64_t                   flying_end;   /* of all preceding bytes, */
    uint64_t                   flying_lines; /* with so many lines */
    uint64_t                   synced;       /* bytes that are on the disk */
    tsr_status                 dead; /* of the failure after which nothing is written, or TSR_OK */
};

/* A frame into the next commit; also applied to j->scan. */
tsr_status tsr_batch_journal_put(struct tsr_batch_journal *j, const struct tsr_batch_entry *f,
                                 struct tsr_err *err);

#endif
