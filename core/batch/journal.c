#include "base/file.h"
#include "base/mem.h"
#include "batch/crc32c.h"
#include "batch/journal_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_BYTES 128u /* "<20 digits of the epoch> <who>\n" */
#define DIGITS     20u

/* ---- the lock file ------------------------------------------------------ */

static tsr_status read_lock(struct tsr_batch_journal *j, char text[LOCK_BYTES + 1], uint64_t *epoch,
                            struct tsr_err *err)
{
    uint64_t got = 0;
    int      e = j->io->read(j->io->ctx, j->lock, 0, text, LOCK_BYTES, &got);
    if (e)
        return tsr_fail_errno(err, e, j->lock_path, "read");
    text[got] = '\0';
    *epoch = got >= DIGITS ? strtoull(text, NULL, 10) : 0;
    return TSR_OK;
}

static tsr_status write_lock(struct tsr_batch_journal *j, const char *who, struct tsr_err *err)
{
    char text[LOCK_BYTES + 1];
    int  n = snprintf(text, sizeof text, "%020llu %.100s", (unsigned long long)j->epoch, who);
    memset(text + n, ' ', LOCK_BYTES - (size_t)n);
    text[LOCK_BYTES - 1] = '\n';
    int e = tsr_batch_io_put(j->io, j->lock, 0, text, LOCK_BYTES);
    return e ? tsr_fail_errno(err, e, j->lock_path, "write") : TSR_OK;
}

static tsr_status take_lock(struct tsr_batch_journal *j, struct tsr_err *err)
{
    char     text[LOCK_BYTES + 1];
    uint64_t epoch = 0;
    int      e = j->io->open(j->io->ctx, j->lock_path, TSR_BATCH_IO_UPDATE, &j->lock);
    if (e)
        return tsr_fail_errno(err, e, j->lock_path, "open");
    e = j->io->lock(j->io->ctx, j->lock);
    if (e == EWOULDBLOCK && read_lock(j, text, &epoch, err) == TSR_OK) {
        size_t n = strlen(text);
        while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\n'))
            text[--n] = '\0';
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: another run works on this job (%s); wait for it or stop it",
                        j->lock_path, n > DIGITS ? text + DIGITS + 1 : "it has not said who it is");
    }
    /* a file system without locks is accepted: epochs fence off stale writers */
    return e && e != ENOLCK && e != EOPNOTSUPP && e != EINVAL
               ? tsr_fail_errno(err, e, j->lock_path, "lock")
               : TSR_OK;
}

/* ---- frames out --------------------------------------------------------- */

tsr_status tsr_batch_journal_put(struct tsr_batch_journal *j, const struct tsr_batch_entry *in,
                                 struct tsr_err *err)
{
    struct tsr_batch_entry f = *in;
    if (f.type == TSR_BATCH_ENTRY_LEASE || f.type == TSR_BATCH_ENTRY_EPOCH)
        f.len = 8;
    uint64_t bytes = tsr_batch_entry_bytes(f.len), total;
    if (j->dead)
        return tsr_fail(err, j->dead, "%s: a write failed before; run again", j->path);
    if (!tsr_add(j->n, bytes, &total))
        return tsr_fail_nomem(err, bytes, "a journal frame");
    if (total > j->cap) {
        char *p = tsr_renew(j->buffer, total * 2, 1);
        if (!p)
            return tsr_fail_nomem(err, total * 2, "a journal frame");
        j->buffer = p;
        j->cap = total * 2;
    }
    unsigned char synced[8];
    if (f.type == TSR_BATCH_ENTRY_LEASE || f.type == TSR_BATCH_ENTRY_EPOCH) {
        tsr_batch_entry_put_synced(synced, j->synced);
        f.payload = (const char *)synced;
    }
    f.epoch = j->epoch;
    if (f.type != TSR_BATCH_ENTRY_HEADER)
        TSR_TRY(tsr_batch_scan_apply(&j->scan, &f, j->scan.end + j->n, err));
    tsr_batch_entry_write(&f, j->scan.seed, j->buffer + j->n);
    j->n = total;
    return TSR_OK;
}

static tsr_status sync_now(struct tsr_batch_journal *j, struct tsr_err *err)
{
    int e = j->io->sync(j->io->ctx, j->file);
    if (e)
        return tsr_fail_errno(err, e, j->path, "sync");
    j->synced = j->scan.end;
    j->scan.counts.syncs++;
    return TSR_OK;
}

/* The running sync, if it has ended. */
static tsr_status land(struct tsr_batch_journal *j, bool wait, struct tsr_err *err)
{
    if (!j->flying)
        return TSR_OK;
    int e = j->io->sync_end(j->io->ctx, j->file, wait);
    if (e == EAGAIN)
        return TSR_OK;
    j->flying = false;
    if (e)
        return tsr_fail_errno(err, e, j->path, "sync");
    j->synced = j->flying_end;
    j->flying_lines = 0;
    j->scan.counts.syncs++;
    return TSR_OK;
}

/* One for all that is written now. */
static tsr_status take_off(struct tsr_batch_journal *j, struct tsr_err *err)
{
    int e = j->io->sync_begin(j->io->ctx, j->file);
    if (e)
        return tsr_fail_errno(err, e, j->path, "sync");
    j->flying = true;
    j->flying_end = j->scan.end;
    j->flying_lines = j->lines;
    j->lines = 0;
    j->must_sync = false;
    return TSR_OK;
}

/* Whoever began a later epoch has written its number into the lock file. */
static tsr_status check_fence(struct tsr_batch_journal *j, struct tsr_err *err)
{
    char     text[LOCK_BYTES + 1];
    uint64_t epoch = 0;
    TSR_TRY(read_lock(j, text, &epoch, err));
    if (epoch != j->epoch)
        return tsr_fail(err, TSR_E_DEVICE,
                        "%s: another run has taken this job over (epoch %llu after %llu)", j->path,
                        (unsigned long long)epoch, (unsigned long long)j->epoch);
    return TSR_OK;
}

static tsr_status write_out(struct tsr_batch_journal *j, struct tsr_err *err)
{
    if (j->n == 0)
        return TSR_OK;
    TSR_TRY(check_fence(j, err));
    int e = tsr_batch_io_put(j->io, j->file, j->scan.end, j->buffer, j->n);
    if (e)
        return tsr_fail_errno(err, e, j->path, "write");
    j->scan.end += j->n;
    j->scan.counts.bytes += j->n;
    j->scan.counts.commits++;
    j->n = 0;
    return TSR_OK;
}

static tsr_status commit(struct tsr_batch_journal *j, bool sync, bool wait, struct tsr_err *err)
{
    TSR_TRY(write_out(j, err));
    TSR_TRY(land(j, wait, err));
    if (sync && j->must_sync && !j->flying)
        TSR_TRY(take_off(j, err));
    return land(j, wait, err);
}

static tsr_status commit_or_die(struct tsr_batch_journal *j, bool sync, bool wait,
                                struct tsr_err *err)
{
    if (j->dead)
        return tsr_fail(err, j->dead, "%s: a write failed before; run again", j->path);
    tsr_status st = commit(j, sync, wait, err);
    if (st != TSR_OK)
        j->dead = st; /* the system may have dropped unwritten data */
    return st;
}

tsr_status tsr_batch_journal_spill(struct tsr_batch_journal *j, struct tsr_err *err)
{
    return commit_or_die(j, false, false, err);
}

tsr_status tsr_batch_journal_commit(struct tsr_batch_journal *j, bool wait, struct tsr_err *err)
{
    return commit_or_die(j, true, wait, err);
}

tsr_status tsr_batch_journal_lease(struct tsr_batch_journal *j, uint64_t index, struct tsr_err *err)
{
    const struct tsr_batch_record *r = tsr_batch_journal_record(j, index);
    struct tsr_batch_entry         f = { .type = TSR_BATCH_ENTRY_LEASE,
                                         .index = index,
                                         .attempt = (uint16_t)(r->deaths + 1) };
    return tsr_batch_journal_put(j, &f, err);
}

tsr_status tsr_batch_journal_line(struct tsr_batch_journal *j, uint64_t index, bool error,
                                  const char *line, uint64_t bytes, struct tsr_err *err)
{
    const struct tsr_batch_record *r = tsr_batch_journal_record(j, index);
    if (r->state != TSR_BATCH_RECORD_OPEN)
        return tsr_fail(err, TSR_E_BUG, "record %llu was finished twice",
                        (unsigned long long)index + 1);
    if (bytes > TSR_ENTRY_MOST)
        return tsr_fail(err, TSR_E_INPUT,
                        "the output line of record %llu has %llu bytes, more than "
                        "%u; ask for fewer tokens or logprobs",
                        (unsigned long long)index + 1, (unsigned long long)bytes, TSR_ENTRY_MOST);
    struct tsr_batch_entry f = { .type = error ? TSR_BATCH_ENTRY_ERROR : TSR_BATCH_ENTRY_RESULT,
                                 .index = index,
                                 .attempt = (uint16_t)(r->deaths + 1),
                                 .len = (uint32_t)bytes,
                                 .payload = line };
    TSR_TRY(tsr_batch_journal_put(j, &f, err));
    j->lines++;
    j->must_sync = true;
    return TSR_OK;
}

/* ---- opening ------------------------------------------------------------ */

static tsr_status cut(struct tsr_batch_journal *j, uint64_t end, struct tsr_err *err)
{
    int e = j->io->truncate(j->io->ctx, j->file, end);
    if (e)
        return tsr_fail_errno(err, e, j->path, "cut the torn end of");
    j->scan.counts.cut += j->scan.size - end;
    j->scan.size = j->scan.end = end;
    return sync_now(j, err);
}

static tsr_status begin(struct tsr_batch_journal *j, const char *about, struct tsr_err *err)
{
    uint64_t len = TSR_HASH_TEXT - 1 + strlen(about);
    char    *payload = tsr_new(len + 1, 1);
    if (!payload || len > TSR_ENTRY_MOST) {
        free(payload);
        return tsr_fail_nomem(err, len, "the header of a journal");
    }
    (void)snprintf(payload, len + 1, "%s%s", j->job, about);
    struct tsr_batch_entry f = { .type = TSR_BATCH_ENTRY_HEADER,
                                 .len = (uint32_t)len,
                                 .payload = payload };
    tsr_status             st = j->scan.size ? cut(j, 0, err) : TSR_OK;
    if (st == TSR_OK)
        st = tsr_batch_journal_put(j, &f, err);
    j->must_sync = true;
    free(payload);
    return st;
}

static tsr_status start_epoch(struct tsr_batch_journal               *j,
                              const struct tsr_batch_journal_options *o, struct tsr_err *err)
{
    bool                   fresh = j->scan.empty;
    struct tsr_batch_entry f = { .type = TSR_BATCH_ENTRY_EPOCH,
                                 .attempt = (uint16_t)o->verdict,
                                 .flags = o->retry ? TSR_ENTRY_RETRY : 0 };
    if (fresh) {
        TSR_TRY(begin(j, o->about, err));
    } else {
        if (j->scan.end < j->scan.size)
            TSR_TRY(cut(j, j->scan.end, err));
        else /* the last writes of the previous run may be only in memory */
            TSR_TRY(sync_now(j, err));
    }
    j->epoch = j->scan.counts.epoch + 1;
    TSR_TRY(write_lock(j, o->who, err));
    TSR_TRY(tsr_batch_journal_put(j, &f, err));
    j->must_sync = true;
    TSR_TRY(tsr_batch_journal_commit(j, true, err));
    /* also of an old one: the run that made it may have ended before this */
    int e = j->io->sync_folder(j->io->ctx, j->path);
    return e ? tsr_fail_errno(err, e, j->path, "sync the folder of") : TSR_OK;
}

/* A frame with a valid checksum may still contain anything: it may be forged, or memory failed before the
 * checksum was computed. */
static tsr_status check_lines(const struct tsr_batch_journal         *j,
                              const struct tsr_batch_journal_options *o, struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    uint64_t          bad = 0;
    if (o->check)
        TSR_TRY(tsr_batch_scan_check(j->io, j->file, j->path, j->scan.r, j->scan.n, o->check,
                                     o->check_ctx, NULL, &bad, &why.err, err));
    return bad ? tsr_err_copy(err, TSR_E_INPUT, &why.err) : TSR_OK;
}

static tsr_status open_all(struct tsr_batch_journal *j, const struct tsr_batch_journal_options *o,
                           char **about, struct tsr_err *err)
{
    struct tsr_batch_scan *s = &j->scan;
    j->path = tsr_path_join(o->folder, "journal");
    j->lock_path = tsr_path_join(o->folder, "lock");
    if (!j->path || !j->lock_path)
        return tsr_fail_nomem(err, strlen(o->folder), "a path");
    TSR_TRY(take_lock(j, err));
    int e = j->io->open(j->io->ctx, j->path, TSR_BATCH_IO_APPEND, &j->file);
    if (e)
        return tsr_fail_errno(err, e, j->path, "open");
    *s = (struct tsr_batch_scan){
        .io = j->io, .file = j->file, .path = j->path, .job = j->job, .records = o->records
    };
    TSR_TRY(tsr_batch_scan_run(s, err));
    if (s->foreign) {
        *about = s->about;
        s->about = NULL;
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: belongs to another job; name another output, or remove the folder",
                        j->path);
    }
    if (s->damaged)
        return tsr_fail(err, TSR_E_CHECK,
                        "%s: is damaged at byte %llu, and what was written later follows at byte "
                        "%llu; 'tessera journal repair' shows what can be saved",
                        j->path, (unsigned long long)s->end, (unsigned long long)s->next);
    if (o->records) /* so that every record has its entry */
        TSR_TRY(tsr_batch_scan_reach(s, o->records - 1, err));
    TSR_TRY(check_lines(j, o, err));
    return start_epoch(j, o, err);
}

tsr_status tsr_batch_journal_open(struct tsr_batch_journal              **out,
                                  const struct tsr_batch_journal_options *o, char **about,
                                  struct tsr_err *err)
{
    struct tsr_batch_journal *j = tsr_new(1, sizeof *j);
    *out = NULL;
    *about = NULL;
    if (!j)
        return tsr_fail_nomem(err, sizeof *j, "a journal");
    j->io = o->io;
    j->file = j->lock = -1;
    j->dead = TSR_OK;
    (void)snprintf(j->job, sizeof j->job, "%s", o->job);
    if (strlen(o->job) != TSR_HASH_TEXT - 1) {
        tsr_batch_journal_close(j);
        return tsr_fail(err, TSR_E_INVAL, "'%s' is not an id of a job", o->job);
    }
    tsr_status st = open_all(j, o, about, err);
    if (st != TSR_OK) {
        tsr_batch_journal_close(j);
        return st;
    }
    *out = j;
    return TSR_OK;
}

void tsr_batch_journal_close(struct tsr_batch_journal *j)
{
    if (!j)
        return;
    if (j->flying)
        (void)j->io->sync_end(j->io->ctx, j->file, true);
    if (j->file >= 0)
        (void)j->io->close(j->io->ctx, j->file);
    if (j->lock >= 0)
        (void)j->io->close(j->io->ctx, j->lock);
    tsr_batch_scan_free(&j->scan);
    free(j->buffer);
    free(j->path);
    free(j->lock_path);
    free(j);
}

const struct tsr_batch_record *tsr_batch_journal_record(const struct tsr_batch_journal *j,
                                                        uint64_t                        index)
{
    return &j->scan.r[index];
}

const struct tsr_batch_journal_counts *tsr_batch_journal_counts(const struct tsr_batch_journal *j)
{
    return &j->scan.counts;
}

uint64_t tsr_batch_journal_pending(const struct tsr_batch_journal *j)
{
    return j->lines + j->flying_lines;
}

const char *tsr_batch_journal_about(const struct tsr_batch_journal *j)
{
    return j->scan.about;
}

tsr_status tsr_batch_journal_read_line(const struct tsr_batch_journal *j, uint64_t index,
                                       char **line, struct tsr_err *err)
{
    return tsr_batch_scan_line(j->io, j->file, j->path, &j->scan.r[index], line, err);
}
