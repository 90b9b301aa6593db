/* batch/journal.h - the record of a batch job: one writer, append only.
 *
 *   open: lock -> scan -> cut a torn end -> new epoch, synced -> work
 *   a record is done when its frame is synced; leases are advice and are not synced
 *   finish: every record there -> output beside -> seal, synced -> rename -> read again, compare
 *
 * What a crash at any moment leaves is continued by the next open: nothing synced is lost, no
 * record is there twice.  A failed write or sync is final: nothing more is written, since what the
 * system still holds is unknown then.  docs/formats/journal.md has the file.
 *
 * Files in the job's folder: `journal`, and `lock`, which holds the epoch of the writer at work.
 */
#ifndef TSR_BATCH_JOURNAL_H
#define TSR_BATCH_JOURNAL_H

#include "base/hash.h"
#include "batch/entry.h"
#include "batch/io.h"

/* How the run before ended, as its supervisor saw it. */
enum tsr_verdict {
    TSR_VERDICT_OUTSIDE, /* unknown, or not by its own fault: nobody is blamed */
    TSR_VERDICT_OWN,     /* its own fatal signal, memory limit or deadline of a record */
};

enum tsr_record_state { TSR_RECORD_OPEN, TSR_RECORD_RESULT, TSR_RECORD_ERROR };

/* What is known of one record. */
struct tsr_record {
    uint64_t at;   /* of the frame */
    uint64_t hash; /* of the line */
    uint32_t len;
    uint8_t  state; /* enum tsr_record_state */
    uint8_t  leased;
    uint8_t  suspect; /* was leased when a run died by its own fault: runs alone */
    uint8_t  deaths;  /* of runs that had leased it alone */
};
#define TSR_POISON_DEATHS 2u /* so many, and the record becomes an error line */

struct tsr_journal_counts {
    uint64_t done, errors;    /* records with a line; of them errors */
    uint64_t stale;           /* frames of an epoch that was over */
    uint64_t doubled, unlike; /* lines for records that had one; of them with other bytes */
    uint64_t cut;             /* bytes of a torn end */
    uint64_t epoch;           /* of the last start */
    uint64_t starts;
    uint64_t bytes, commits, syncs; /* written by this process */
};

struct tsr_journal;

/* Looks at a line before it is taken for that of a record; error: the line of one that failed. */
typedef tsr_status (*tsr_line_check)(void *ctx, uint64_t index, bool error, const char *line,
                                     uint64_t len, struct tsr_err *err);

struct tsr_journal_options {
    const struct tsr_io *io;
    const char          *folder;
    const char          *job;   /* id: TSR_HASH_TEXT */
    const char          *about; /* what the job is, JSON, for the header */
    uint64_t             records;
    enum tsr_verdict     verdict;
    bool                 retry; /* records with an error line are open again */
    const char          *who;   /* "pid 4711 on host", for whoever finds the lock taken */
    tsr_line_check       check; /* of the lines that are there, or NULL */
    void                *check_ctx;
};

/* Opens or makes the journal, and begins an epoch.  TSR_E_INPUT: another process works there, or it
 * belongs to another job (*about is then its header's text, to be freed, else NULL), or has a line that
 * `check` refuses, which is named.  TSR_E_CHECK:
 * damaged in the middle; `tessera journal repair` says what can be saved. */
tsr_status tsr_journal_open(struct tsr_journal **j, const struct tsr_journal_options *o,
                            char **about, struct tsr_err *err);
/* Writes nothing. */
void tsr_journal_close(struct tsr_journal *j);

const struct tsr_record         *tsr_journal_record(const struct tsr_journal *j, uint64_t index);
const struct tsr_journal_counts *tsr_journal_counts(const struct tsr_journal *j);
/* The text of the header of a journal that was there; NULL: it was made by this open. */
const char *tsr_journal_about(const struct tsr_journal *j);
/* The line of a record that has one and is committed, in fresh memory. */
tsr_status tsr_journal_read_line(const struct tsr_journal *j, uint64_t index, char **line,
                                 struct tsr_err *err);
/* Hash of the output when the journal is sealed, or NULL. */
const char *tsr_journal_seal(const struct tsr_journal *j);

/* Puts a frame into the next commit.  A line for a record that has one is TSR_E_BUG. */
tsr_status tsr_journal_lease(struct tsr_journal *j, uint64_t index, struct tsr_err *err);
tsr_status tsr_journal_line(struct tsr_journal *j, uint64_t index, bool error, const char *line,
                            uint64_t bytes, struct tsr_err *err);
/* Lines that are not on the disk yet. */
uint64_t tsr_journal_pending(const struct tsr_journal *j);
/* Writes what is in the next commit, where a death of this process leaves it, and begins no sync; says
 * how one that was on its way ended.  TSR_E_DEVICE: another run has taken over.  After a failure every
 * further call fails. */
tsr_status tsr_journal_spill(struct tsr_journal *j, struct tsr_err *err);
/* The same, and begins a sync beside the work when there is more than leases and none is on its way;
 * wait: returns when everything is on the disk. */
tsr_status tsr_journal_commit(struct tsr_journal *j, bool wait, struct tsr_err *err);

/* Every record has a line: writes them in order to the file `part`, seals, renames it to `output` and
 * compares.  After a failure `part` may be there: the caller removes it. */
tsr_status tsr_journal_finish(struct tsr_journal *j, const char *part, const char *output,
                              struct tsr_err *err);

/* ---- looking at a journal without working on it ----------------------------- */

struct tsr_journal_view {
    const struct tsr_io      *io;
    int                       file;
    char                      job[TSR_HASH_TEXT];
    char                     *about; /* of the header */
    struct tsr_record        *records;
    uint64_t                  n; /* records seen: 1 + the largest index */
    struct tsr_journal_counts counts;
    char                      seal[TSR_HASH_TEXT]; /* "": not sealed */
    uint64_t                  end;                 /* of the last good frame */
    uint64_t                  size;                /* of the file */
    uint64_t                  next;                /* a good frame behind a bad place, or 0 */
    bool                      damaged;             /* in the middle */
};
/* Reads a journal without a lock and changes nothing.  Damage is no error here. */
tsr_status tsr_journal_look(struct tsr_journal_view *v, const struct tsr_io *io, const char *path,
                            struct tsr_err *err);
void       tsr_journal_look_end(struct tsr_journal_view *v);
/* Whether `output`, whose journal lies in OUTPUT.job, is gone, or is not what was sealed.  A journal that is
 * not there, or cannot be read, or has no seal, says nothing of an output that is there. */
tsr_status tsr_journal_spoilt(const char *output, bool *yes, struct tsr_err *err);
/* The line of a record that has one, in fresh memory. */
tsr_status tsr_journal_view_line(const struct tsr_journal_view *v, uint64_t index, char **line,
                                 struct tsr_err *err);
/* Looks at the line of every record that has one.  bad [v->n], or NULL: set to 1 for each that `check` refuses;
 * *n_bad of them; why: of the first.  TSR_E_INPUT alone is a refusal; another failure of check is returned. */
tsr_status tsr_journal_view_check(const struct tsr_journal_view *v, const char *path,
                                  tsr_line_check check, void *ctx, unsigned char *bad,
                                  uint64_t *n_bad, struct tsr_err *why, struct tsr_err *err);
/* Writes every good frame of v to `to`, in order, as a journal without damage.  bad [v->n], or NULL: records whose line
 * is left out, and then the seal too. */
tsr_status tsr_journal_salvage(const struct tsr_journal_view *v, const char *path, const char *to,
                               const unsigned char *bad, uint64_t *kept, uint64_t *lost,
                               struct tsr_err *err);

#endif
