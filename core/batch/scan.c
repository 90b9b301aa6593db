#include "batch/scan.h"

#include "base/mem.h"
#include "batch/crc32c.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define WINDOW (1u << 20)

uint64_t tsr_batch_line_hash(const char *line, uint64_t bytes)
{
    return XXH3_64bits(line, bytes);
}

/* ---- rules -------------------------------------------------------------- */

tsr_status tsr_batch_scan_reach(struct tsr_batch_scan *s, uint64_t index, struct tsr_err *err)
{
    if (index >= s->records || index >= UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_CHECK, "%s: has a frame for record %llu of %llu", s->path,
                        (unsigned long long)index + 1, (unsigned long long)s->records);
    if (index >= s->cap) {
        uint64_t                 cap = index + 1 > 2 * s->cap ? index + 64 : 2 * s->cap;
        struct tsr_batch_record *r = tsr_renew(s->r, cap, sizeof *r);
        if (!r)
            return tsr_fail_nomem(err, cap * sizeof *r, "the records of a batch");
        memset(r + s->cap, 0, (cap - s->cap) * sizeof *r);
        s->r = r;
        s->cap = cap;
    }
    if (index >= s->n)
        s->n = index + 1;
    return TSR_OK;
}

/* Records in progress when a run died by its own fault: a single one is to blame; several are each
 * run alone to find it. */
static void blame(struct tsr_batch_scan *s, enum tsr_verdict verdict)
{
    uint64_t leased = 0;
    for (uint64_t i = 0; i < s->n; i++)
        leased += s->r[i].leased;
    for (uint64_t i = 0; i < s->n && leased; i++) {
        struct tsr_batch_record *r = &s->r[i];
        if (r->leased && verdict == TSR_BATCH_VERDICT_OWN) {
            r->suspect = 1;
            if (leased == 1 && r->deaths < UINT8_MAX)
                r->deaths++;
        }
        r->leased = 0;
    }
}

static void forget_errors(struct tsr_batch_scan *s)
{
    for (uint64_t i = 0; i < s->n; i++)
        if (s->r[i].state == TSR_BATCH_RECORD_ERROR) {
            s->r[i] = (struct tsr_batch_record){ .at = 0 };
            s->counts.done--;
            s->counts.errors--;
        }
}

static tsr_status apply_line(struct tsr_batch_scan *s, const struct tsr_batch_entry *f, uint64_t at,
                             struct tsr_err *err)
{
    TSR_TRY(tsr_batch_scan_reach(s, f->index, err));
    struct tsr_batch_record *r = &s->r[f->index];
    uint64_t                 hash = tsr_batch_line_hash(f->payload, f->len);
    if (r->state != TSR_BATCH_RECORD_OPEN) { /* the first one counts */
        s->counts.doubled++;
        s->counts.unlike += r->hash != hash || r->len != f->len;
        return TSR_OK;
    }
    bool error = f->type == TSR_BATCH_ENTRY_ERROR;
    *r = (struct tsr_batch_record){ .at = at,
                                    .hash = hash,
                                    .len = f->len,
                                    .state =
                                        error ? TSR_BATCH_RECORD_ERROR : TSR_BATCH_RECORD_RESULT };
    s->counts.done++;
    s->counts.errors += error;
    return TSR_OK;
}

tsr_status tsr_batch_scan_apply(struct tsr_batch_scan *s, const struct tsr_batch_entry *f,
                                uint64_t at, struct tsr_err *err)
{
    if (f->type == TSR_BATCH_ENTRY_EPOCH) {
        if (f->epoch <= s->counts.epoch) {
            s->counts.stale++;
            return TSR_OK;
        }
        blame(s, f->attempt == TSR_BATCH_VERDICT_OWN ? TSR_BATCH_VERDICT_OWN
                                                     : TSR_BATCH_VERDICT_OUTSIDE);
        if (f->flags & TSR_ENTRY_RETRY) {
            forget_errors(s);
            s->seal[0] = '\0';
        }
        s->counts.epoch = f->epoch;
        s->counts.starts++;
        return TSR_OK;
    }
    if (f->epoch != s->counts.epoch || f->type == TSR_BATCH_ENTRY_HEADER) {
        s->counts.stale++; /* a writer that was given up for dead */
        return TSR_OK;
    }
    switch (f->type) {
    case TSR_BATCH_ENTRY_RESULT:
    case TSR_BATCH_ENTRY_ERROR:
        return apply_line(s, f, at, err);
    case TSR_BATCH_ENTRY_LEASE:
        TSR_TRY(tsr_batch_scan_reach(s, f->index, err));
        s->r[f->index].leased = s->r[f->index].state == TSR_BATCH_RECORD_OPEN;
        return TSR_OK;
    default: /* SEAL */
        if (f->len != TSR_HASH_TEXT - 1)
            return tsr_fail(err, TSR_E_CHECK, "%s: has a seal of %u bytes", s->path, f->len);
        memcpy(s->seal, f->payload, f->len);
        s->seal[f->len] = '\0';
        return TSR_OK;
    }
}

/* ---- the header --------------------------------------------------------- */

static tsr_status header(struct tsr_batch_scan *s, const struct tsr_batch_entry *f,
                         struct tsr_err *err)
{
    if (f->len < TSR_HASH_TEXT - 1)
        return tsr_fail(err, TSR_E_CHECK, "%s: the header of the journal is too short", s->path);
    memcpy(s->id, f->payload, TSR_HASH_TEXT - 1);
    s->id[TSR_HASH_TEXT - 1] = '\0';
    s->about = tsr_strndup(f->payload + TSR_HASH_TEXT - 1, f->len - (TSR_HASH_TEXT - 1));
    if (!s->about)
        return tsr_fail_nomem(err, f->len, "the header of a journal");
    s->foreign = s->job && strcmp(s->job, s->id) != 0;
    s->seed = tsr_batch_crc32c(0, s->id, TSR_HASH_TEXT - 1);
    return TSR_OK;
}

/* ---- reading ------------------------------------------------------------ */

/* A stretch of the file in memory. */
struct window {
    char    *data;
    uint64_t at, n, cap;
};

static tsr_status load(struct tsr_batch_scan *s, struct window *w, uint64_t at, uint64_t bytes,
                       struct tsr_err *err)
{
    uint64_t want = bytes > WINDOW ? bytes : WINDOW;
    if (at >= w->at && at + bytes <= w->at + w->n)
        return TSR_OK;
    if (want > s->size - at)
        want = s->size - at;
    if (want > w->cap) {
        char *p = tsr_renew(w->data, want, 1);
        if (!p)
            return tsr_fail_nomem(err, want, "a piece of a journal");
        w->data = p;
        w->cap = want;
    }
    int e = s->io->read(s->io->ctx, s->file, at, w->data, want, &w->n);
    if (e)
        return tsr_fail_errno(err, e, s->path, "read");
    w->at = at;
    return TSR_OK;
}

/* The frame at a place: 1 good, 0 bad or cut. */
static tsr_status frame_at(struct tsr_batch_scan *s, struct window *w, uint64_t at,
                           struct tsr_batch_entry *f, int *good, struct tsr_err *err)
{
    uint64_t need = TSR_ENTRY_HEAD;
    *good = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t left = s->size - at;
        TSR_TRY(load(s, w, at, need < left ? need : left, err));
        uint64_t have = w->at + w->n > at ? w->at + w->n - at : 0;
        int r = have ? tsr_batch_entry_read(w->data + (at - w->at), have, s->seed, f, &need) : 0;
        if (r >= 0) {
            *good = r;
            return TSR_OK;
        }
        if (need > left)
            return TSR_OK; /* cut */
    }
    return TSR_OK;
}

/* Finds a frame after damage: any, or one that shows that the damaged range was on disk when it was
 * written.  Other frames may be pieces of torn writes, which reach the disk in any order. */
static tsr_status search(struct tsr_batch_scan *s, struct window *w, uint64_t from, bool any,
                         uint64_t *found, struct tsr_err *err)
{
    struct tsr_batch_entry f;
    int                    good;
    *found = 0;
    for (uint64_t at = from; at + TSR_ENTRY_HEAD <= s->size; at++) {
        TSR_TRY(load(s, w, at, TSR_ENTRY_HEAD, err));
        const char *p = w->data + (at - w->at);
        const char *hit = memchr(p, 1, w->at + w->n - at); /* first byte of the magic */
        if (!hit) {
            at = w->at + w->n - 1;
            continue;
        }
        at += (uint64_t)(hit - p);
        TSR_TRY(frame_at(s, w, at, &f, &good, err));
        if (good && (any || tsr_batch_entry_synced(&f) >= from)) {
            *found = at;
            return TSR_OK;
        }
        if (good)
            at += tsr_batch_entry_bytes(f.len) - 1;
    }
    return TSR_OK;
}

static tsr_status walk(struct tsr_batch_scan *s, struct window *w, struct tsr_err *err)
{
    struct tsr_batch_entry f;
    int                    good;
    uint64_t               at = 0;
    while (at < s->size) {
        TSR_TRY(frame_at(s, w, at, &f, &good, err));
        if (good && at == 0) {
            if (f.type != TSR_BATCH_ENTRY_HEADER)
                return tsr_fail(err, TSR_E_CHECK, "%s: does not begin with a header", s->path);
            TSR_TRY(header(s, &f, err));
            s->empty = false;
            if (s->foreign)
                return TSR_OK;
        } else if (good) {
            TSR_TRY(tsr_batch_scan_apply(s, &f, at, err));
        }
        if (good) {
            s->damaged = s->damaged || (s->next && tsr_batch_entry_synced(&f) > s->end);
            if (s->see)
                TSR_TRY(s->see(s->ctx, &f, at, err));
            at += tsr_batch_entry_bytes(f.len);
            if (!s->next)
                s->end = at;
            continue;
        }
        uint64_t next;
        if (!s->all) {
            TSR_TRY(search(s, w, at + 1, false, &s->next, err));
            s->damaged = s->next != 0;
            return TSR_OK;
        }
        TSR_TRY(search(s, w, at + 1, true, &next, err));
        if (!s->next)
            s->next = next;
        s->lost += (next ? next : s->size) - at;
        if (!next)
            return TSR_OK;
        at = next;
    }
    return TSR_OK;
}

tsr_status tsr_batch_scan_run(struct tsr_batch_scan *s, struct tsr_err *err)
{
    struct window w = { 0 };
    int           e = s->io->size(s->io->ctx, s->file, &s->size);
    s->empty = true;
    if (s->job) /* so that frames are recognized after an invalid header */
        s->seed = tsr_batch_crc32c(0, s->job, TSR_HASH_TEXT - 1);
    if (e)
        return tsr_fail_errno(err, e, s->path, "stat");
    tsr_status st = walk(s, &w, err);
    free(w.data);
    return st;
}

void tsr_batch_scan_free(struct tsr_batch_scan *s)
{
    free(s->r);
    free(s->about);
    s->r = NULL;
    s->about = NULL;
}
