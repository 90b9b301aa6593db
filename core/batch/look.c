/* A journal looked at from outside: what is in it, and what of it can be saved. */
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "batch/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_scan scan_of(const struct tsr_journal_view *v, const char *path)
{
    return (struct tsr_scan){
        .io = v->io, .file = v->file, .path = path, .records = UINT64_MAX, .all = true
    };
}

static tsr_status look(struct tsr_journal_view *v, const char *path, struct tsr_err *err)
{
    int e = v->io->open(v->io->ctx, path, TSR_IO_READ, &v->file);
    if (e) {
        v->file = -1;
        return tsr_fail_errno(err, e, path, "open");
    }
    struct tsr_scan s = scan_of(v, path);
    tsr_status      st = tsr_scan_run(&s, err);
    if (st == TSR_OK && s.empty)
        st = tsr_fail(err, TSR_E_INPUT, "%s: does not begin with the header of a journal", path);
    v->records = s.r;
    v->about = s.about;
    v->n = s.n;
    v->counts = s.counts;
    v->end = s.end;
    v->size = s.size;
    v->next = s.next;
    v->damaged = s.damaged;
    memcpy(v->job, s.id, sizeof v->job);
    memcpy(v->seal, s.seal, sizeof v->seal);
    return st;
}

tsr_status tsr_journal_look(struct tsr_journal_view *v, const struct tsr_io *io, const char *path,
                            struct tsr_err *err)
{
    *v = (struct tsr_journal_view){ .io = io, .file = -1 };
    tsr_status st = look(v, path, err);
    if (st != TSR_OK)
        tsr_journal_look_end(v);
    return st;
}

void tsr_journal_look_end(struct tsr_journal_view *v)
{
    if (v->file >= 0)
        (void)v->io->close(v->io->ctx, v->file);
    free(v->records);
    free(v->about);
    *v = (struct tsr_journal_view){ .file = -1 };
}

static bool is_other(const char *output, const char *journal)
{
    struct tsr_journal_view v;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    char                    hash[TSR_HASH_TEXT];
    if (!tsr_path_exists(journal) ||
        tsr_journal_look(&v, &tsr_io_system, journal, &e.err) != TSR_OK)
        return false;
    bool other =
        v.seal[0] && (tsr_hash_file(output, hash, &e.err) != TSR_OK || strcmp(hash, v.seal) != 0);
    tsr_journal_look_end(&v);
    return other;
}

tsr_status tsr_journal_spoilt(const char *output, bool *yes, struct tsr_err *err)
{
    uint64_t n = strlen(output) + sizeof ".job/journal";
    char    *journal = tsr_new(n, 1);
    if (!journal)
        return tsr_fail_nomem(err, n, "a path");
    (void)snprintf(journal, n, "%s.job/journal", output);
    *yes = !tsr_path_exists(output) || is_other(output, journal);
    free(journal);
    return TSR_OK;
}

tsr_status tsr_journal_view_line(const struct tsr_journal_view *v, uint64_t index, char **line,
                                 struct tsr_err *err)
{
    const struct tsr_record *r = &v->records[index];
    uint64_t                 got = 0;
    char                    *p = tsr_new((uint64_t)r->len + 1, 1);
    if (!p)
        return tsr_fail_nomem(err, r->len, "an output line");
    int e = v->io->read(v->io->ctx, v->file, r->at + TSR_ENTRY_HEAD, p, r->len, &got);
    if (e || got != r->len || tsr_line_hash(p, r->len) != r->hash) {
        free(p);
        return e ? tsr_fail_errno(err, e, "journal", "read")
                 : tsr_fail(err, TSR_E_INPUT, "journal: changed while it was read");
    }
    *line = p;
    return TSR_OK;
}

/* ---- salvage ------------------------------------------------------------ */

struct salvage {
    struct tsr_scan  *scan;
    struct tsr_writer w;
    char             *buffer;
    uint64_t          cap, kept;
};

static tsr_status keep(void *ctx, const struct tsr_entry *f, uint64_t at, struct tsr_err *err)
{
    struct salvage *s = ctx;
    uint64_t        bytes = tsr_entry_bytes(f->len);
    (void)at;
    if (bytes > s->cap) {
        char *p = tsr_renew(s->buffer, bytes, 1);
        if (!p)
            return tsr_fail_nomem(err, bytes, "a journal frame");
        s->buffer = p;
        s->cap = bytes;
    }
    tsr_entry_write(f, s->scan->seed, s->buffer);
    tsr_writer_put(&s->w, s->buffer, bytes);
    s->kept++;
    return TSR_OK;
}

tsr_status tsr_journal_salvage(const struct tsr_journal_view *v, const char *path, const char *to,
                               uint64_t *kept, uint64_t *lost, struct tsr_err *err)
{
    struct tsr_scan scan = scan_of(v, path);
    struct salvage  s = { .scan = &scan };
    scan.see = keep;
    scan.ctx = &s;
    TSR_TRY(tsr_writer_open(&s.w, to, err));
    tsr_status st = tsr_scan_run(&scan, err);
    if (st == TSR_OK)
        st = tsr_writer_commit(&s.w, err);
    else
        tsr_writer_abort(&s.w);
    *kept = s.kept;
    *lost = scan.lost;
    free(s.buffer);
    tsr_scan_free(&scan);
    return st;
}
