#include "checkpoint/export/prepacked_out.h"

#include "base/held.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file is written in pieces of this size at multiples of it. */
#define STAGE (UINT64_C(8) << 20)

tsr_status tsr_export_prepacked_begin(struct tsr_export_prepacked_out *o, const char *path,
                                      bool replace, struct tsr_err *err)
{
    static const unsigned char head[TSR_PREPACKED_HEAD];
    *o = (struct tsr_export_prepacked_out){ .path = path, .err = err };
    o->stage = tsr_new_aligned(STAGE, 1);
    o->index = json_pack("{s:s, s:s}", "format", TSR_PREPACKED_FORMAT, "tessera", TSR_VERSION);
    o->weights = json_object();
    o->kinds = json_array();
    o->details = json_object();
    if (!o->stage || !o->index || !o->details || json_object_set(o->index, "kinds", o->kinds) ||
        json_object_set(o->index, "weights", o->weights))
        return tsr_fail_nomem(err, STAGE, path);
    TSR_TRY(replace ? tsr_writer_open(&o->file, path, err)
                    : tsr_writer_open_fresh(&o->file, path, err));
    if (!o->file.part)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is a device or pipe; a prepacked file is read back, so name a file",
                        path);
    tsr_export_prepacked_put(o, head, sizeof head);
    return TSR_OK;
}

static void flush(struct tsr_export_prepacked_out *o)
{
    tsr_writer_put(&o->file, o->stage, o->staged);
    o->staged = 0;
}

void tsr_export_prepacked_put(struct tsr_export_prepacked_out *o, const void *data, uint64_t bytes)
{
    const unsigned char *p = data;
    while (bytes) {
        uint64_t n = bytes < STAGE - o->staged ? bytes : STAGE - o->staged;
        memcpy(o->stage + o->staged, p, n);
        o->staged += n;
        o->at += n;
        p += n;
        bytes -= n;
        if (o->staged == STAGE)
            flush(o);
    }
}

uint64_t tsr_export_prepacked_page(struct tsr_export_prepacked_out *o)
{
    static const unsigned char zeros[TSR_PREPACKED_PAGE];
    uint64_t                   over = o->at % TSR_PREPACKED_PAGE;
    if (over)
        tsr_export_prepacked_put(o, zeros, TSR_PREPACKED_PAGE - over);
    return o->at;
}

/* The place of a kind in the list of those so far, to which a new one is added. */
static json_int_t place_of(json_t *kinds, json_t *kind)
{
    size_t i = 0, n = json_array_size(kinds);
    while (i < n && !json_equal(json_array_get(kinds, i), kind))
        i++;
    return i < n || json_array_append(kinds, kind) == 0 ? (json_int_t)i : -1;
}

tsr_status tsr_export_prepacked_weight(struct tsr_export_prepacked_out *o, const char *name,
                                       uint64_t at, uint64_t bytes, const char *hash, json_t *kind,
                                       json_t *details)
{
    json_int_t place = kind ? place_of(o->kinds, kind) : -1;
    tsr_json_set(&details, "hash", json_string(hash));
    json_t *entry = json_pack("[I, I, I]", (json_int_t)at, (json_int_t)bytes, place);
    bool    there = place >= 0 && details && entry &&
                 json_object_set(o->details, name, details) == 0 &&
                 json_object_set(o->weights, name, entry) == 0;
    json_decref(kind);
    json_decref(details);
    json_decref(entry);
    return there ? TSR_OK : tsr_fail_nomem(o->err, 256, "the index");
}

tsr_status tsr_export_prepacked_block(struct tsr_export_prepacked_out *o, json_t *to,
                                      const char *name, const void *data, uint64_t bytes)
{
    char     hash[TSR_HASH_TEXT];
    uint64_t at = tsr_export_prepacked_page(o);
    tsr_hash_bytes(data, bytes, hash);
    tsr_export_prepacked_put(o, data, bytes);
    json_t *j = json_pack("{s:I, s:I, s:s}", "at", (json_int_t)at, "bytes", (json_int_t)bytes,
                          "hash", hash);
    return j && json_object_set_new(to, name, j) == 0 ? TSR_OK
                                                      : tsr_fail_nomem(o->err, 256, "the index");
}

static tsr_status failed(const struct tsr_export_prepacked_out *o)
{
    int e = o->file.error ? o->file.error : errno, lost = tsr_held_check(o->file.fd);
    return tsr_fail_errno(o->err, lost ? lost : e, o->path, "write");
}

/* What a start does not need: without it the index is a quarter as long. */
static tsr_status put_details(struct tsr_export_prepacked_out *o)
{
    char    *text = NULL;
    uint64_t len = 0;
    TSR_TRY(tsr_json_text(o->details, JSON_COMPACT | JSON_REAL_PRECISION(17), &text, &len, o->err));
    tsr_status st = tsr_export_prepacked_block(o, o->index, "details", text, len);
    free(text);
    return st;
}

/* The index, and the head with its position. */
static tsr_status finish(struct tsr_export_prepacked_out *o, uint64_t *bytes)
{
    struct tsr_prepacked_head h = { .index_at = tsr_export_prepacked_page(o) };
    unsigned char             head[TSR_PREPACKED_HEAD];
    char                     *text = NULL;
    uint64_t                  len = 0;
    TSR_TRY(tsr_json_text(o->index, JSON_COMPACT | JSON_REAL_PRECISION(17), &text, &len, o->err));
    h.index_bytes = len;
    h.file_bytes = h.index_at + len;
    tsr_status st = tsr_prepacked_head_hash(&h, text, h.hash, o->err);
    tsr_export_prepacked_put(o, text, len);
    flush(o);
    free(text);
    TSR_TRY(st);
    tsr_prepacked_head_write(&h, head);
    if (o->file.error || fflush(o->file.file) != 0 || fseek(o->file.file, 0, SEEK_SET) != 0)
        return failed(o);
    tsr_writer_put(&o->file, head, sizeof head);
    *bytes = h.file_bytes;
    return TSR_OK;
}

/* Verifies the bytes on the disk: reads them back from there and not from memory.  That also brings
 * the file into the page cache in large pages, which speeds up the next start. */
static tsr_status read_back(struct tsr_export_prepacked_out *o, struct tsr_pool *pool)
{
    struct tsr_prepacked p;
    int                  fd = o->file.fd;
    if (o->file.error || fflush(o->file.file) != 0 || (fsync(fd) != 0 && errno != EINVAL))
        return failed(o);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* if it is on a disk */
    TSR_TRY(tsr_prepacked_open(&p, o->file.part, o->err));
    tsr_status st = tsr_prepacked_verify(&p, pool, NULL, o->err);
    tsr_prepacked_close(&p);
    return st;
}

tsr_status tsr_export_prepacked_end(struct tsr_export_prepacked_out *o, struct tsr_pool *pool,
                                    uint64_t *bytes)
{
    TSR_TRY(put_details(o));
    TSR_TRY(finish(o, bytes));
    TSR_TRY(read_back(o, pool));
    return tsr_writer_commit(&o->file, o->err);
}

void tsr_export_prepacked_abort(struct tsr_export_prepacked_out *o)
{
    tsr_writer_abort(&o->file);
    json_decref(o->weights);
    json_decref(o->kinds);
    json_decref(o->details);
    json_decref(o->index);
    free(o->stage);
}
