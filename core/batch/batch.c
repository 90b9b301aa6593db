#include "batch/batch.h"

#include "base/mem.h"
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>

struct tsr_batch {
    struct tsr_batch_journal *journal;
    struct tsr_batch_worker   worker;
    const struct tsr_clock   *clock;
    const char               *output;
    uint64_t                  records;
    uint64_t                  next;      /* no preceding record is open and unleased */
    uint64_t                  suspects;  /* open records that must run alone */
    uint64_t                  synced_us; /* when a sync began last */
    uint64_t                  journal_us;
};

static uint64_t now_us(const struct tsr_batch *b)
{
    return b->clock->now_us(b->clock->ctx);
}

tsr_status tsr_batch_line(struct tsr_batch *b, uint64_t index, bool error, const char *line,
                          uint64_t bytes, struct tsr_err *err)
{
    uint64_t t = now_us(b);
    b->suspects -= tsr_batch_journal_record(b->journal, index)->suspect;
    tsr_status st = tsr_batch_journal_line(b->journal, index, error, line, bytes, err);
    b->journal_us += now_us(b) - t;
    return st;
}

/* Records that ended run after run while they were alone in it. */
static tsr_status fail_poisoned(struct tsr_batch *b, struct tsr_err *err)
{
    for (uint64_t i = 0; i < b->records; i++) {
        const struct tsr_batch_record *r = tsr_batch_journal_record(b->journal, i);
        struct tsr_tokenizer_text      line = { 0 };
        if (r->state != TSR_BATCH_RECORD_OPEN || r->deaths < TSR_POISON_DEATHS)
            continue;
        tsr_status st = b->worker.poison(b->worker.ctx, i, r->deaths, &line, err);
        if (st == TSR_OK)
            st = tsr_batch_line(b, i, true, line.v ? line.v : "", line.n, err);
        tsr_tokenizer_text_free(&line);
        TSR_TRY(st);
    }
    return tsr_batch_journal_commit(b->journal, true, err);
}

tsr_status tsr_batch_open(struct tsr_batch **out, const struct tsr_batch_options *o,
                          const struct tsr_batch_worker *w, char **about, struct tsr_err *err)
{
    struct tsr_batch *b = tsr_new(1, sizeof *b);
    *out = NULL;
    *about = NULL;
    if (!b)
        return tsr_fail_nomem(err, sizeof *b, "a batch");
    b->worker = *w;
    b->clock = o->clock;
    b->output = o->output;
    b->records = o->journal.records;
    tsr_status st = tsr_batch_journal_open(&b->journal, &o->journal, about, err);
    for (uint64_t i = 0; i < b->records && st == TSR_OK; i++) {
        const struct tsr_batch_record *r = tsr_batch_journal_record(b->journal, i);
        b->suspects += r->state == TSR_BATCH_RECORD_OPEN && r->suspect;
    }
    if (st == TSR_OK)
        st = fail_poisoned(b, err);
    if (st != TSR_OK) {
        tsr_batch_close(b);
        return st;
    }
    b->synced_us = now_us(b);
    *out = b;
    return TSR_OK;
}

void tsr_batch_close(struct tsr_batch *b)
{
    if (!b)
        return;
    tsr_batch_journal_close(b->journal);
    free(b);
}

/* The next record to run, or `records`. */
static uint64_t choose(struct tsr_batch *b)
{
    const struct tsr_batch_record *r;
    uint64_t                       i = b->suspects ? 0 : b->next;
    for (; i < b->records; i++) {
        r = tsr_batch_journal_record(b->journal, i);
        if (r->state == TSR_BATCH_RECORD_OPEN && !r->leased && (!b->suspects || r->suspect))
            break;
    }
    if (!b->suspects)
        b->next = i;
    return i;
}

static tsr_status commit(struct tsr_batch *b, bool wait, struct tsr_err *err)
{
    uint64_t   t = now_us(b);
    tsr_status st = tsr_batch_journal_commit(b->journal, wait, err);
    b->synced_us = t;
    b->journal_us += now_us(b) - t;
    return st;
}

/* What there is goes into the file, and to the disk when it is time. */
static tsr_status save(struct tsr_batch *b, struct tsr_err *err)
{
    uint64_t t = now_us(b);
    if (t - b->synced_us >= TSR_SYNC_US)
        return commit(b, false, err);
    tsr_status st = tsr_batch_journal_spill(b->journal, err);
    b->journal_us += now_us(b) - t;
    return st;
}

uint64_t tsr_batch_journal_us(const struct tsr_batch *b)
{
    return b->journal_us;
}

/* Leases are in the file before the work begins, so that the next run knows which records to blame.
 * The previous lines are written with them, so that a crash of this process cannot lose them. */
static tsr_status fill(struct tsr_batch *b, struct tsr_err *err)
{
    uint64_t taken[64], n = 0;
    uint32_t room = b->worker.room(b->worker.ctx), busy = b->worker.busy(b->worker.ctx);
    if (b->suspects)
        room = busy ? 0 : 1;
    if (room > sizeof taken / sizeof *taken)
        room = sizeof taken / sizeof *taken;
    uint64_t t = room ? now_us(b) : 0;
    while (n < room) {
        uint64_t i = choose(b);
        if (i == b->records)
            break;
        TSR_TRY(tsr_batch_journal_lease(b->journal, i, err));
        taken[n++] = i;
    }
    if (room)
        b->journal_us += now_us(b) - t;
    if (n || tsr_batch_journal_pending(b->journal))
        TSR_TRY(save(b, err));
    for (uint64_t k = 0; k < n; k++)
        TSR_TRY(b->worker.submit(b->worker.ctx, taken[k], err));
    return TSR_OK;
}

static bool done(const struct tsr_batch *b)
{
    return tsr_batch_journal_counts(b->journal)->done == b->records;
}

tsr_status tsr_batch_step(struct tsr_batch *b, bool *over, struct tsr_err *err)
{
    *over = false;
    if (!done(b)) {
        if (tsr_plugin_cancelled()) {
            TSR_TRY(tsr_batch_journal_commit(b->journal, true, err));
            return tsr_fail(err, TSR_E_CANCELLED, "%llu of %llu records are done",
                            (unsigned long long)tsr_batch_journal_counts(b->journal)->done,
                            (unsigned long long)b->records);
        }
        TSR_TRY(fill(b, err));
        if (b->worker.busy(b->worker.ctx)) {
            tsr_status st = b->worker.step(b->worker.ctx, err);
            if (st == TSR_E_CANCELLED) /* finished lines are kept */
                TSR_TRY(tsr_batch_journal_commit(b->journal, true, err));
            TSR_TRY(st);
        }
        if (done(b))
            TSR_TRY(commit(b, true, err));
    }
    *over = done(b) && tsr_batch_journal_pending(b->journal) == 0;
    return TSR_OK;
}

tsr_status tsr_batch_finish(struct tsr_batch *b, const char *part, struct tsr_err *err)
{
    return tsr_batch_journal_finish(b->journal, part, b->output, err);
}

const struct tsr_batch_journal_counts *tsr_batch_counts(const struct tsr_batch *b)
{
    return tsr_batch_journal_counts(b->journal);
}

const struct tsr_batch_journal *tsr_batch_journal(const struct tsr_batch *b)
{
    return b->journal;
}
