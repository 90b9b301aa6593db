/* When a line is in the file and when it is on the disk, by a clock that only the work and the disk move:
 * what a dead process and what a power cut can take at each moment. */
#include "batch/batch.h"
#include "disk.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST 400u
#define JOB  "xxh3:00112233445566778899aabbccddeeff"

struct world {
    struct disk_process p; /* in front: what the disk is called with */
    struct disk         disk;
    struct tsr_batch_io io, plain;
    struct tsr_clock    clock;
    struct tsr_batch   *batch;
    uint64_t            records, step_us, sync_us; /* that a step and a sync take */
    uint64_t            at_once;  /* every so manieth record has its line from the start */
    uint64_t            stop;     /* the step of this number is cancelled, or 0 */
    uint64_t            worst_us; /* the oldest line that was not on the disk */
    uint64_t            behind;   /* most steps that began with a line not on it */
    uint64_t            us, opened_us, begun_us, syncs, waits, steps, lines;
    uint64_t            fresh; /* lines that submit() had since the last step */
    bool                flying;
    uint64_t            born[MOST], born_step[MOST], slot[4];
    uint32_t            busy;
};

static uint64_t now_us(void *ctx)
{
    return ((struct world *)ctx)->us;
}

static int sync_begin(void *ctx, int file)
{
    struct world *w = ctx;
    assert_false(w->flying);
    w->flying = true;
    w->begun_us = w->us;
    w->syncs++;
    return w->plain.sync_begin(ctx, file);
}

static int sync_end(void *ctx, int file, bool wait)
{
    struct world *w = ctx;
    assert_true(w->flying);
    if (w->us < w->begun_us + w->sync_us) {
        if (!wait)
            return EAGAIN;
        w->us = w->begun_us + w->sync_us;
        w->waits++;
    }
    w->flying = false;
    return w->plain.sync_end(ctx, file, true);
}

static uint64_t lines_in(const struct disk_blob *b)
{
    uint64_t n = 0, left = b->n;
    for (const char *at = b->p, *hit; (hit = memmem(at, left, "{\"line\"", 7)) != NULL; n++) {
        left -= (uint64_t)(hit + 7 - at);
        at = hit + 7;
    }
    return n;
}

static const struct disk_inode *journal(const struct world *w)
{
    for (int i = 0; i < w->disk.n_live; i++)
        if (strcmp(w->disk.live[i].path, "f/journal") == 0)
            return &w->disk.inodes[w->disk.live[i].inode];
    fail_msg("there is no journal");
    return NULL;
}

static void deliver(struct world *w, uint64_t index)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              line[32];
    (void)snprintf(line, sizeof line, "{\"line\":%u}", (unsigned)index);
    w->born[w->lines] = w->us;
    w->born_step[w->lines++] = w->steps;
    assert_int_equal(tsr_batch_line(w->batch, index, false, line, strlen(line), &e.err), TSR_OK);
}

static uint32_t room(void *ctx)
{
    return 4 - ((struct world *)ctx)->busy;
}

static uint32_t busy(void *ctx)
{
    return ((struct world *)ctx)->busy;
}

static tsr_status submit(void *ctx, uint64_t index, struct tsr_err *err)
{
    struct world *w = ctx;
    (void)err;
    if (w->at_once && index % w->at_once == 0) {
        w->fresh++;
        deliver(w, index);
    } else {
        w->slot[w->busy++] = index;
    }
    return TSR_OK;
}

/* Each step ends one record.  When it begins, what the step before it ended is in the file. */
static tsr_status step(void *ctx, struct tsr_err *err)
{
    struct world            *w = ctx;
    const struct disk_inode *j = journal(w);
    uint64_t                 durable = lines_in(&j->durable);
    assert_true(lines_in(&j->live) >= w->lines - w->fresh);
    w->fresh = 0;
    if (durable < w->lines) {
        uint64_t age = w->us - w->born[durable], late = w->steps - w->born_step[durable];
        w->worst_us = age > w->worst_us ? age : w->worst_us;
        w->behind = late > w->behind ? late : w->behind;
    }
    w->us += w->step_us;
    if (++w->steps == w->stop)
        return tsr_fail(err, TSR_E_CANCELLED, "stopped");
    deliver(w, w->slot[--w->busy]);
    return TSR_OK;
}

static tsr_status poison(void *ctx, uint64_t index, uint32_t deaths,
                         struct tsr_tokenizer_text *line, struct tsr_err *err)
{
    (void)ctx, (void)index, (void)deaths, (void)line;
    return tsr_fail(err, TSR_E_BUG, "nothing died");
}

/* Runs w to its end, or to `stop`; what has a line is on the disk then. */
static void run(struct world *w)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_batch_worker worker = { w, room, busy, submit, step, poison };
    char                   *about;
    bool                    over = false;
    tsr_status              st = TSR_OK;
    disk_init(&w->disk, 1);
    disk_process_start(&w->p, &w->disk, 0, &w->io);
    w->plain = w->io;
    w->io.sync_begin = sync_begin;
    w->io.sync_end = sync_end;
    w->clock = (struct tsr_clock){ w, now_us, NULL };
    w->us = 7;
    struct tsr_batch_options o = { .journal = { .io = &w->io,
                                                .folder = "f",
                                                .job = JOB,
                                                .about = "{}",
                                                .records = w->records,
                                                .who = "a test" },
                                   .clock = &w->clock,
                                   .output = "out" };
    assert_int_equal(tsr_batch_open(&w->batch, &o, &worker, &about, &e.err), TSR_OK);
    w->syncs = w->waits = 0; /* those of opening */
    w->opened_us = w->us;
    while (st == TSR_OK && !over)
        st = tsr_batch_step(w->batch, &over, &e.err);
    assert_int_equal(st, w->stop ? TSR_E_CANCELLED : TSR_OK);
    assert_int_equal(w->lines, tsr_batch_counts(w->batch)->done);
    assert_true(w->stop || w->lines == w->records);
    assert_true(w->waits <= 2); /* for a sync on its way, and the last; never in between */
    assert_int_equal(lines_in(&journal(w)->durable), w->lines);
    tsr_batch_close(w->batch);
    disk_process_end(&w->p);
    disk_free(&w->disk);
}

static struct world *world_of(uint64_t records, uint64_t step_us, uint64_t sync_us)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_true(records <= MOST);
    w->records = records;
    w->step_us = step_us;
    w->sync_us = sync_us;
    return w;
}

/* Short records: a sync every 50 ms, and no line waits for longer. */
static void short_steps(void **state)
{
    (void)state;
    for (uint64_t at_once = 0; at_once < 4; at_once += 3) {
        struct world *w = world_of(MOST, 1000, 800);
        w->at_once = at_once;
        run(w);
        assert_true(w->worst_us <= TSR_SYNC_US + w->step_us);
        assert_true(w->syncs >= 5 && w->syncs <= (w->us - w->opened_us) / TSR_SYNC_US + 1);
        free(w);
    }
}

/* Steps that take longer than that: what one of them ended is synced beside the next. */
static void long_steps(void **state)
{
    struct world *w = world_of(30, 200000, 800);
    (void)state;
    run(w);
    assert_int_equal(w->behind, 0); /* it begins, and the sync with it */
    assert_int_equal(w->syncs, 30);
    free(w);
}

/* A disk that takes 180 ms for a sync: one at a time, and nobody waits for it before the end. */
static void slow_disk(void **state)
{
    struct world *w = world_of(MOST, 1000, 180000);
    (void)state;
    run(w);
    assert_true(w->us - w->opened_us <= w->steps * w->step_us + 2 * w->sync_us);
    assert_true(w->worst_us <= 2 * w->sync_us + TSR_SYNC_US + 2 * w->step_us);
    free(w);
}

/* The end of a job, and a stop, wait for no clock. */
static void few_records(void **state)
{
    (void)state;
    for (uint64_t records = 1; records < 9; records++)
        for (uint64_t stop = 0; stop <= records; stop++) {
            struct world *w = world_of(records, 1000, 3000);
            w->stop = stop;
            run(w);
            assert_true(w->us - w->opened_us <= records * w->step_us + w->sync_us);
            assert_int_equal(w->syncs, stop != 1); /* nothing to sync before the first step */
            free(w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_steps),
        cmocka_unit_test(long_steps),
        cmocka_unit_test(slow_disk),
        cmocka_unit_test(few_records),
    };
    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
