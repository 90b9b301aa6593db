/* batch/scan.h - a journal read from its start: what holds, and where it ends. */
#ifndef TSR_BATCH_SCAN_H
#define TSR_BATCH_SCAN_H

#include "batch/journal.h"

struct tsr_scan {
    /* in */
    const struct tsr_io *io;
    int                  file;
    const char          *path;    /* for messages */
    const char          *job;     /* NULL: whatever the header says */
    uint64_t             records; /* UINT64_MAX: as many as there are */
    /* Sees every good frame and its place; may be NULL. */
    tsr_status (*see)(void *ctx, const struct tsr_entry *f, uint64_t at, struct tsr_err *err);
    void *ctx;
    bool  all; /* goes on behind bad places */
    /* out */
    struct tsr_record        *r;
    uint64_t                  n, cap; /* entries that r has */
    struct tsr_journal_counts counts;
    char                      id[TSR_HASH_TEXT], seal[TSR_HASH_TEXT];
    char                     *about;
    uint32_t                  seed;      /* of the sums */
    uint64_t                  size, end; /* end: behind the last good frame before a bad place */
    uint64_t                  next;      /* a good frame behind the bad place, or 0 */
    uint64_t                  lost;      /* bytes between good frames (all) */
    bool damaged;        /* a frame behind a bad place says that the place was synced */
    bool empty, foreign; /* no header; the header of another job */
};
tsr_status tsr_scan_run(struct tsr_scan *s, struct tsr_err *err);
void       tsr_scan_free(struct tsr_scan *s);

/* The rules, applied frame by frame by scan and by writer alike.  TSR_E_CHECK: an index beyond
 * `records`. */
tsr_status tsr_scan_apply(struct tsr_scan *s, const struct tsr_entry *f, uint64_t at,
                          struct tsr_err *err);
/* Makes the entries up to index. */
tsr_status tsr_scan_reach(struct tsr_scan *s, uint64_t index, struct tsr_err *err);
/* The line of a record, from its frame in a file; fresh memory, NUL-terminated. */
tsr_status tsr_scan_line(const struct tsr_io *io, int file, const char *path,
                         const struct tsr_record *r, char **line, struct tsr_err *err);
/* As tsr_journal_view_check(), of n records. */
tsr_status tsr_scan_check(const struct tsr_io *io, int file, const char *path,
                          const struct tsr_record *r, uint64_t n, tsr_line_check check, void *ctx,
                          unsigned char *bad, uint64_t *n_bad, struct tsr_err *why,
                          struct tsr_err *err);
uint64_t   tsr_line_hash(const char *line, uint64_t bytes);

#endif
