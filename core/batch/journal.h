/* batch/journal.h - the record of a batch job: one writer, append only.
 *
 *   open: lock -> scan -> cut a torn end -> new epoch, synced -> work
 *   a record is done when its frame is synced; leases are advice and are not synced
 *   finish: all records present -> temporary output -> seal, synced -> rename -> read again, compare
 *
 * After a crash at any moment the next open continues: synced records are never lost and no record
 * is duplicated.  A failed write or sync is final: nothing more is written, because the state of
 * the kernel's buffers is unknown.  File format: docs/formats/journal.md.
 *
 * Files in the job's folder: `journal`, and `lock`, which holds the epoch of the current writer.
 */
#ifndef TSR_BATCH_JOURNAL_H
#define TSR_BATCH_JOURNAL_H

#include "base/hash.h"
#include "batch/entry.h"
#include "batch/io.h"
#include "batch/record.h"

struct tsr_batch_journal;

struct tsr_batch_journal_options {
    const struct tsr_batch_io *io;
    const char                *folder;
    const char                *job;   /* id: TSR_HASH_TEXT */
    const char                *about; /* the job's identity, JSON, for the header */
    uint64_t                   records;
    enum tsr_verdict           verdict;
    bool                       retry; /* records with an error line are open again */
    const char                *who;   /* "pid 4711 on host", for the error when the lock is taken */
    tsr_batch_line_check       check; /* of the lines that are there, or NULL */
    void                      *check_ctx;
};

/* Opens or makes the journal, and begins an epoch.  TSR_E_INPUT: another process works there, or it
 * belongs to another job (*about is then its header's text, to be freed, else NULL), or has a line that
 * `check` refuses, which is named.  TSR_E_CHECK:
 * damaged in the middle; `tessera journal repair` says what can be saved. */
tsr_status tsr_batch_journal_open(struct tsr_batch_journal              **j,
                                  const struct tsr_batch_journal_options *o, char **about,
                                  struct tsr_err *err);
/* Writes nothing. */
void tsr_batch_journal_close(struct tsr_batch_journal *j);

const struct tsr_batch_record         *tsr_batch_journal_record(const struct tsr_batch_journal *j,
                                                                uint64_t                        index);
const struct tsr_batch_journal_counts *tsr_batch_journal_counts(const struct tsr_batch_journal *j);
/* The text of the header of a journal that was there; NULL: it was made by this open. */
const char *tsr_batch_journal_about(const struct tsr_batch_journal *j);
/* The line of a record that has one and is committed, in fresh memory. */
tsr_status tsr_batch_journal_read_line(const struct tsr_batch_journal *j, uint64_t index,
                                       char **line, struct tsr_err *err);

/* Puts a frame into the next commit.  A line for a record that has one is TSR_E_BUG. */
tsr_status tsr_batch_journal_lease(struct tsr_batch_journal *j, uint64_t index,
                                   struct tsr_err *err);
tsr_status tsr_batch_journal_line(struct tsr_batch_journal *j, uint64_t index, bool error,
                                  const char *line, uint64_t bytes, struct tsr_err *err);
/* Lines that are not on the disk yet. */
uint64_t tsr_batch_journal_pending(const struct tsr_batch_journal *j);
/* Writes the frames of the next commit, so that a crash of this process cannot lose them, and starts
 * no sync; reports the result of a running sync that ended.  TSR_E_DEVICE: another run has taken over.
 * After a failure every further call fails. */
tsr_status tsr_batch_journal_spill(struct tsr_batch_journal *j, struct tsr_err *err);
/* Like spill(), and starts a background sync if there is more than leases and no sync is
 * running; wait: returns when everything is on disk. */
tsr_status tsr_batch_journal_commit(struct tsr_batch_journal *j, bool wait, struct tsr_err *err);

/* Requires a line for every record: writes them in order to the file `part`, seals, renames it to
 * `output` and compares.  After a failure `part` may exist: the caller removes it. */
tsr_status tsr_batch_journal_finish(struct tsr_batch_journal *j, const char *part,
                                    const char *output, struct tsr_err *err);

/* ---- looking at a journal without working on it ----------------------------- */

struct tsr_batch_journal_view {
    const struct tsr_batch_io      *io;
    int                             file;
    char                            job[TSR_HASH_TEXT];
    char                           *about; /* of the header */
    struct tsr_batch_record        *records;
    uint64_t                        n; /* records seen: 1 + the largest index */
    struct tsr_batch_journal_counts counts;
    char                            seal[TSR_HASH_TEXT]; /* "": not sealed */
    uint64_t                        end;                 /* of the last good frame */
    uint64_t                        size;                /* of the file */
    uint64_t                        next;    /* a good frame after a damaged range, or 0 */
    bool                            damaged; /* in the middle */
};
/* Reads a journal without a lock and changes nothing.  Damage is not an error here. */
tsr_status tsr_batch_journal_look(struct tsr_batch_journal_view *v, const struct tsr_batch_io *io,
                                  const char *path, struct tsr_err *err);
void       tsr_batch_journal_look_end(struct tsr_batch_journal_view *v);
/* Whether `output`, with its journal in OUTPUT.job, is missing or differs from the sealed one.  A missing or
 * unreadable journal, or one without a seal, makes no statement about an existing output. */
tsr_status tsr_batch_journal_spoilt(const char *output, bool *yes, struct tsr_err *err);
/* The line of a record that has one, in fresh memory. */
tsr_status tsr_batch_journal_view_line(const struct tsr_batch_journal_view *v, uint64_t index,
                                       char **line, struct tsr_err *err);
/* Looks at the line of every record that has one.  bad [v->n], or NULL: set to 1 for each that `check` refuses;
 * *n_bad of them; why: of the first.  TSR_E_INPUT alone is a refusal; another failure of check is returned. */
tsr_status tsr_batch_journal_view_check(const struct tsr_batch_journal_view *v, const char *path,
                                        tsr_batch_line_check check, void *ctx, unsigned char *bad,
                                        uint64_t *n_bad, struct tsr_err *why, struct tsr_err *err);
/* Writes every good frame of v to `to`, in order, as a journal without damage.  bad [v->n], or NULL: records whose line
 * is left out, and then the seal too. */
tsr_status tsr_batch_journal_salvage(const struct tsr_batch_journal_view *v, const char *path,
                                     const char *to, const unsigned char *bad, uint64_t *kept,
                                     uint64_t *lost, struct tsr_err *err);

#endif
