/* Examines a journal from outside: its content, and what can be recovered. */
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/output.h"
#include "batch/journal.h"
#include "batch/scan.h"
#include "plugin/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_batch_scan scan_of(const struct tsr_batch_journal_view *v, const char *path)
{
    return (struct tsr_batch_scan){
        .io = v->io, .file = v->file, .path = path, .records = UINT64_MAX, .all = true
    };
}

static tsr_status look(struct tsr_batch_journal_view *v, const char *path, struct tsr_err *err)
{
    int e = v->io->open(v->io->ctx, path, TSR_BATCH_IO_READ, &v->file);
    if (e) {
        v->file = -1;
        return tsr_fail_errno(err, e, path, "open");
    }
    struct tsr_batch_scan s = scan_of(v, path);
    tsr_status            st = tsr_batch_scan_run(&s, err);
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

tsr_status tsr_batch_journal_look(struct tsr_batch_journal_view *v, const struct tsr_batch_io *io,
                                  const char *path, struct tsr_err *err)
{
    *v = (struct tsr_batch_journal_view){ .io = io, .file = -1 };
    tsr_status st = look(v, path, err);
    if (st != TSR_OK)
        tsr_batch_journal_look_end(v);
    return st;
}

void tsr_batch_journal_look_end(struct tsr_batch_journal_view *v)
{
    if (v->file >= 0)
        (void)v->io->close(v->io->ctx, v->file);
    free(v->records);
    free(v->about);
    *v = (struct tsr_batch_journal_view){ .file = -1 };
}

static bool is_other(const char *output, const char *journal)
{
    struct tsr_batch_journal_view v;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    char                          hash[TSR_HASH_TEXT];
    if (!tsr_path_exists(journal) ||
        tsr_batch_journal_look(&v, &tsr_io_system, journal, &e.err) != TSR_OK)
        return false;
    bool other =
        v.seal[0] && (tsr_hash_file(output, hash, &e.err) != TSR_OK || strcmp(hash, v.seal) != 0);
    tsr_batch_journal_look_end(&v);
    return other;
}

tsr_status tsr_batch_journal_spoilt(const char *output, bool *yes, struct tsr_err *err)
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

tsr_status tsr_batch_scan_line(const struct tsr_batch_io *io, int file, const char *path,
                               const struct tsr_batch_record *r, char **line, struct tsr_err *err)
{
    uint64_t got = 0;
    char    *p = tsr_new((uint64_t)r->len + 1, 1);
    *line = NULL;
    if (!p)
        return tsr_fail_nomem(err, r->len, "an output line");
    int e = io->read(io->ctx, file, r->at + TSR_ENTRY_HEAD, p, r->len, &got);
    if (e || got != r->len || tsr_batch_line_hash(p, r->len) != r->hash) {
        free(p);
        return e ? tsr_fail_errno(err, e, path, "read")
                 : tsr_fail(err, TSR_E_INPUT, "%s: changed while it was read", path);
    }
    *line = p;
    return TSR_OK;
}

/* The place of a rejected line, and what to do. */
static void refuse(const char *path, uint64_t index, const struct tsr_batch_record *r,
                   const char *text, struct tsr_err *why)
{
    (void)
        tsr_fail(why, TSR_E_INPUT,
                 "%s: the entry of record %llu, at byte %llu, is not an answer to its request: %s; "
                 "'tessera journal repair' leaves such entries out, and their records are "
                 "answered again",
                 path, (unsigned long long)index + 1, (unsigned long long)r->at, text);
}

tsr_status tsr_batch_scan_check(const struct tsr_batch_io *io, int file, const char *path,
                                const struct tsr_batch_record *r, uint64_t n,
                                tsr_batch_line_check check, void *ctx, unsigned char *bad,
                                uint64_t *n_bad, struct tsr_err *why, struct tsr_err *err)
{
    *n_bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        char             *line;
        if (r[i].state == TSR_BATCH_RECORD_OPEN)
            continue;
        TSR_TRY(tsr_batch_scan_line(io, file, path, &r[i], &line, err));
        tsr_status st = check(ctx, i, r[i].state == TSR_BATCH_RECORD_ERROR, line, r[i].len, &e.err);
        free(line);
        if (st != TSR_OK && st != TSR_E_INPUT)
            return tsr_err_copy(err, st, &e.err);
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "while %s was read", path);
        if (st == TSR_OK)
            continue;
        if (!*n_bad)
            refuse(path, i, &r[i], e.text, why);
        if (bad)
            bad[i] = 1;
        ++*n_bad;
    }
    return TSR_OK;
}

tsr_status tsr_batch_journal_view_line(const struct tsr_batch_journal_view *v, uint64_t index,
                                       char **line, struct tsr_err *err)
{
    return tsr_batch_scan_line(v->io, v->file, "journal", &v->records[index], line, err);
}

tsr_status tsr_batch_journal_view_check(const struct tsr_batch_journal_view *v, const char *path,
                                        tsr_batch_line_check check, void *ctx, unsigned char *bad,
                                        uint64_t *n_bad, struct tsr_err *why, struct tsr_err *err)
{
    return tsr_batch_scan_check(v->io, v->file, path, v->records, v->n, check, ctx, bad, n_bad, why,
                                err);
}

/* ---- salvage ------------------------------------------------------------ */

struct salvage {
    struct tsr_batch_scan               *scan;
    const struct tsr_batch_journal_view *view;
    const unsigned char                 *bad; /* or NULL */
    bool                                 dropped;
    struct tsr_writer                    w;
    char                                *buffer;
    uint64_t                             cap, kept;
};

static tsr_status keep(void *ctx, const struct tsr_batch_entry *f, uint64_t at, struct tsr_err *err)
{
    struct salvage *s = ctx;
    uint64_t        bytes = tsr_batch_entry_bytes(f->len);
    bool            line = f->type == TSR_BATCH_ENTRY_RESULT || f->type == TSR_BATCH_ENTRY_ERROR;
    if (s->bad && line && f->index < s->view->n && s->bad[f->index] &&
        s->view->records[f->index].at == at) {
        s->dropped = true;
        return TSR_OK;
    }
    if (f->type == TSR_BATCH_ENTRY_SEAL && s->dropped) /* it is of an output with these lines */
        return TSR_OK;
    if (bytes > s->cap) {
        char *p = tsr_renew(s->buffer, bytes, 1);
        if (!p)
            return tsr_fail_nomem(err, bytes, "a journal frame");
        s->buffer = p;
        s->cap = bytes;
    }
    tsr_batch_entry_write(f, s->scan->seed, s->buffer);
    tsr_writer_put(&s->w, s->buffer, bytes);
    s->kept++;
    return TSR_OK;
}

tsr_status tsr_batch_journal_salvage(const struct tsr_batch_journal_view *v, const char *path,
                                     const char *to, const unsigned char *bad, uint64_t *kept,
                                     uint64_t *lost, struct tsr_err *err)
{
    struct tsr_batch_scan scan = scan_of(v, path);
    struct salvage        s = { .scan = &scan, .view = v, .bad = bad };
    scan.see = keep;
    scan.ctx = &s;
    TSR_TRY(tsr_writer_open(&s.w, to, err));
    tsr_status st = tsr_batch_scan_run(&scan, err);
    if (st == TSR_OK)
        st = tsr_writer_commit(&s.w, err);
    else
        tsr_writer_abort(&s.w);
    *kept = s.kept;
    *lost = scan.lost;
    free(s.buffer);
    tsr_batch_scan_free(&scan);
    return st;
}
