/* batch/scan.h - reads a journal from its start: the valid frames, and where it ends. */
#ifndef TSR_BATCH_SCAN_H
#define TSR_BATCH_SCAN_H

#include "base/hash.h"
#include "batch/entry.h"
#include "batch/io.h"
#include "batch/record.h"

struct tsr_batch_scan {
    /* in */
    const struct tsr_batch_io *io;
    int                        file;
    const char                *path;    /* for messages */
    const char                *job;     /* NULL: any header */
    uint64_t                   records; /* UINT64_MAX: as many as there are */
    /* Receives every good frame and its place; may be NULL. */
    tsr_status (*see)(void *ctx, const struct tsr_batch_entry *f, uint64_t at, struct tsr_err *err);
    void *ctx;
    bool  all; /* continues after damaged ranges */
    /* out */
    struct tsr_batch_record        *r;
    uint64_t                        n, cap; /* entries that r has */
    struct tsr_batch_journal_counts counts;
    char                            id[TSR_HASH_TEXT], seal[TSR_HASH_TEXT];
    char                           *about;
    uint32_t                        seed; /* of the sums */
    uint64_t size, end;                   /* end: after the last good frame before the damage */
    uint64_t next;                        /* a good frame after the damage, or 0 */
    uint64_t lost;                        /* bytes between good frames (all) */
    bool     damaged;        /* a frame after the damage shows that the damaged range was synced */
    bool     empty, foreign; /* no header; the header of another job */
};
tsr_status tsr_batch_scan_run(struct tsr_batch_scan *s, struct tsr_err *err);
void       tsr_batch_scan_free(struct tsr_batch_scan *s);

/* The rules, applied frame by frame by scan and by writer alike.  TSR_E_CHECK: an index beyond
 * `records`. */
tsr_status tsr_batch_scan_apply(struct tsr_batch_scan *s, const struct tsr_batch_entry *f,
                                uint64_t at, struct tsr_err *err);
/* Makes the entries up to index. */
tsr_status tsr_batch_scan_reach(struct tsr_batch_scan *s, uint64_t index, struct tsr_err *err);
/* The line of a record, from its frame in a file; fresh memory, NUL-terminated. */
tsr_status tsr_batch_scan_line(const struct tsr_batch_io *io, int file, const char *path,
                               const struct tsr_batch_record *r, char **line, struct tsr_err *err);
/* As tsr_batch_journal_view_check(), of n records. */
tsr_status tsr_batch_scan_check(const struct tsr_batch_io *io, int file, const char *path,
                                const struct tsr_batch_record *r, uint64_t n,
                                tsr_batch_line_check check, void *ctx, unsigned char *bad,
                                uint64_t *n_bad, struct tsr_err *why, struct tsr_err *err);
uint64_t   tsr_batch_line_hash(const char *line, uint64_t bytes);

#endif
