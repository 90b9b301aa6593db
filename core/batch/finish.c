/* From a journal with a line for every record to the output file. */
#include "base/mem.h"
#include "batch/journal_internal.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK (1u << 20)

/* The output while it is written, or read again. */
struct output {
    const struct tsr_batch_io *io;
    const char                *path;
    int                        file;
    struct tsr_hasher         *hasher;
    char                      *buffer; /* [CHUNK] */
    uint64_t                   n, at;
    char                      *frame; /* of one record */
    uint64_t                   cap;
};

static tsr_status flush(struct output *o, struct tsr_err *err)
{
    int e = tsr_batch_io_put(o->io, o->file, o->at, o->buffer, o->n);
    if (e)
        return tsr_fail_errno(err, e, o->path, "write");
    o->at += o->n;
    o->n = 0;
    return TSR_OK;
}

static tsr_status add(struct output *o, const char *p, uint64_t bytes, struct tsr_err *err)
{
    tsr_hasher_update(o->hasher, p, bytes);
    while (bytes > 0) {
        uint64_t n = bytes < CHUNK - o->n ? bytes : CHUNK - o->n;
        memcpy(o->buffer + o->n, p, n);
        o->n += n;
        p += n;
        bytes -= n;
        if (o->n == CHUNK)
            TSR_TRY(flush(o, err));
    }
    return TSR_OK;
}

/* Reads a record's frame from the file again: the published bytes are those on disk. */
static tsr_status add_record(struct tsr_batch_journal *j, struct output *o, uint64_t i,
                             struct tsr_err *err)
{
    const struct tsr_batch_record *r = &j->scan.r[i];
    uint64_t                       bytes = tsr_batch_entry_bytes(r->len), got = 0, need;
    struct tsr_batch_entry         f;
    if (bytes > o->cap) {
        char *p = tsr_renew(o->frame, bytes, 1);
        if (!p)
            return tsr_fail_nomem(err, bytes, "an output line");
        o->frame = p;
        o->cap = bytes;
    }
    int e = j->io->read(j->io->ctx, j->file, r->at, o->frame, bytes, &got);
    if (e)
        return tsr_fail_errno(err, e, j->path, "read");
    if (tsr_batch_entry_read(o->frame, got, j->scan.seed, &f, &need) != 1 || f.index != i ||
        f.len != r->len || tsr_batch_line_hash(f.payload, f.len) != r->hash)
        return tsr_fail(err, TSR_E_CHECK,
                        "%s: the frame of record %llu at byte %llu changed after it was written; "
                        "run again",
                        j->path, (unsigned long long)i + 1, (unsigned long long)r->at);
    TSR_TRY(add(o, f.payload, f.len, err));
    return add(o, "\n", 1, err);
}

static tsr_status write_part(struct tsr_batch_journal *j, struct output *o, struct tsr_err *err)
{
    for (uint64_t i = 0; i < j->scan.records; i++) {
        if (j->scan.r[i].state == TSR_BATCH_RECORD_OPEN)
            return tsr_fail(err, TSR_E_BUG, "record %llu has no line", (unsigned long long)i + 1);
        TSR_TRY(add_record(j, o, i, err));
    }
    TSR_TRY(flush(o, err));
    int e = o->io->sync(o->io->ctx, o->file);
    return e ? tsr_fail_errno(err, e, o->path, "sync") : TSR_OK;
}

static tsr_status read_back(struct output *o, char text[TSR_HASH_TEXT], struct tsr_err *err)
{
    int e = o->io->open(o->io->ctx, o->path, TSR_BATCH_IO_READ, &o->file);
    if (e)
        return tsr_fail_errno(err, e, o->path, "open");
    TSR_TRY(tsr_hasher_create(&o->hasher, err));
    for (uint64_t at = 0, got = CHUNK; got == CHUNK; at += got) {
        e = o->io->read(o->io->ctx, o->file, at, o->buffer, CHUNK, &got);
        if (e)
            return tsr_fail_errno(err, e, o->path, "read");
        tsr_hasher_update(o->hasher, o->buffer, got);
    }
    tsr_hasher_finish(o->hasher, text);
    o->hasher = NULL;
    return TSR_OK;
}

static tsr_status close_file(struct output *o, tsr_status st, struct tsr_err *err)
{
    char ignored[TSR_HASH_TEXT];
    if (o->hasher)
        tsr_hasher_finish(o->hasher, ignored);
    o->hasher = NULL;
    int e = o->file >= 0 ? o->io->close(o->io->ctx, o->file) : 0;
    o->file = -1;
    return st == TSR_OK && e ? tsr_fail_errno(err, e, o->path, "close") : st;
}

static tsr_status make_part(struct tsr_batch_journal *j, struct output *o, const char *part,
                            char hash[TSR_HASH_TEXT], struct tsr_err *err)
{
    o->path = part;
    int e = o->io->open(o->io->ctx, part, TSR_BATCH_IO_NEW, &o->file);
    if (e)
        return tsr_fail_errno(err, e, part, "create");
    tsr_status st = tsr_hasher_create(&o->hasher, err);
    if (st == TSR_OK)
        st = write_part(j, o, err);
    if (st == TSR_OK) {
        tsr_hasher_finish(o->hasher, hash);
        o->hasher = NULL;
    }
    return close_file(o, st, err);
}

static tsr_status seal(struct tsr_batch_journal *j, const char hash[TSR_HASH_TEXT],
                       struct tsr_err *err)
{
    struct tsr_batch_entry f = { .type = TSR_BATCH_ENTRY_SEAL,
                                 .len = TSR_HASH_TEXT - 1,
                                 .payload = hash };
    if (j->scan.seal[0])
        return strcmp(j->scan.seal, hash) == 0
                   ? TSR_OK
                   : tsr_fail(err, TSR_E_CHECK,
                              "%s: the output has the hash %s, it was sealed with %s", j->path,
                              hash, j->scan.seal);
    TSR_TRY(tsr_batch_journal_put(j, &f, err));
    j->must_sync = true;
    return tsr_batch_journal_commit(j, true, err);
}

static tsr_status publish(struct tsr_batch_journal *j, struct output *o, const char *part,
                          const char *output, struct tsr_err *err)
{
    char hash[TSR_HASH_TEXT], again[TSR_HASH_TEXT];
    TSR_TRY(make_part(j, o, part, hash, err));
    TSR_TRY(seal(j, hash, err));
    int e = o->io->rename(o->io->ctx, part, output);
    if (e)
        return tsr_fail_errno(err, e, output, "rename the part file to");
    e = o->io->sync_folder(o->io->ctx, output);
    if (e)
        return tsr_fail_errno(err, e, output, "sync the folder of");
    o->path = output;
    TSR_TRY(close_file(o, read_back(o, again, err), err));
    if (strcmp(hash, again) == 0)
        return TSR_OK;
    (void)o->io->rename(o->io->ctx, output, part); /* no wrong file under the final name */
    return tsr_fail(err, TSR_E_IO, "%s: reads back with the hash %s, %s was written; run again",
                    output, again, hash);
}

tsr_status tsr_batch_journal_finish(struct tsr_batch_journal *j, const char *part,
                                    const char *output, struct tsr_err *err)
{
    struct output o = { .io = j->io, .file = -1 };
    o.buffer = tsr_new(CHUNK, 1);
    tsr_status st = o.buffer ? tsr_batch_journal_commit(j, true, err)
                             : tsr_fail_nomem(err, CHUNK, "the output file");
    if (st == TSR_OK)
        st = publish(j, &o, part, output, err);
    free(o.buffer);
    free(o.frame);
    return st;
}
