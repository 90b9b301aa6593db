/* What a journal file may look like after a crash or on a bad disk: every cut, every zeroed end,
 * flips of bits, other jobs' frames; and that what was synced is never dropped without a word. */
#include "../fixtures/error_is.h"
#include "batch/crc32c.h"
#include "batch/journal.h"
#include "batch/restart.h"
#include "disk.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define N   6u
#define JOB "xxh3:00112233445566778899aabbccddeeff"

static const char *const lines[N] = { "{\"a\":1}", "{\"bb\":\"\\u0001 x\"}",
                                      "{}",        "{\"long\":\"abcdefghijklmnopqrstuvwxyz\"}",
                                      "{\"e\":0}", "{\"f\":null}" };

struct place {
    struct disk         disk;
    struct disk_process p;
    struct tsr_batch_io io;
};

static struct place *place_new(void)
{
    struct place *x = calloc(1, sizeof *x);
    assert_non_null(x);
    disk_init(&x->disk, 1);
    disk_process_start(&x->p, &x->disk, 0, &x->io);
    return x;
}

static void place_free(struct place *x)
{
    disk_free(&x->disk);
    free(x);
}

static void put_file(struct place *x, const char *path, const void *data, uint64_t n)
{
    int f;
    assert_int_equal(x->io.open(&x->p, path, TSR_BATCH_IO_NEW, &f), 0);
    assert_int_equal(tsr_batch_io_put(&x->io, f, 0, data, n), 0);
    assert_int_equal(x->io.sync(&x->p, f), 0);
    assert_int_equal(x->io.close(&x->p, f), 0);
}

static tsr_status open_job(struct place *x, const char *job, enum tsr_verdict verdict, bool retry,
                           struct tsr_batch_journal **j, char **about, struct tsr_err *err)
{
    struct tsr_batch_journal_options o = { .io = &x->io,
                                           .folder = "f",
                                           .job = job,
                                           .about = "{\"x\":1}",
                                           .records = N,
                                           .verdict = verdict,
                                           .retry = retry,
                                           .who = "a test" };
    return tsr_batch_journal_open(j, &o, about, err);
}

static struct tsr_batch_journal *must_open(struct place *x, enum tsr_verdict verdict, bool retry)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_batch_journal *j;
    char                     *about;
    if (open_job(x, JOB, verdict, retry, &j, &about, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return j;
}

static void add(struct tsr_batch_journal *j, uint64_t i, bool error)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_batch_journal_lease(j, i, &e.err), TSR_OK);
    assert_int_equal(tsr_batch_journal_line(j, i, error, lines[i], strlen(lines[i]), &e.err),
                     TSR_OK);
}

static void commit(struct tsr_batch_journal *j)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_batch_journal_commit(j, true, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

/* Adds what is missing and looks at the output. */
static void complete(struct place *x, struct tsr_batch_journal *j)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              want[512] = "";
    for (uint64_t i = 0; i < N; i++) {
        if (tsr_batch_journal_record(j, i)->state == TSR_BATCH_RECORD_OPEN)
            add(j, i, false);
        (void)strcat(strcat(want, lines[i]), "\n");
    }
    if (tsr_batch_journal_finish(j, "out.part", "out", &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    const struct disk_blob *b = disk_file(&x->disk, "out");
    assert_non_null(b);
    assert_int_equal(b->n, strlen(want));
    assert_memory_equal(b->p, want, b->n);
    tsr_batch_journal_close(j);
    struct tsr_batch_journal_view v;
    assert_int_equal(tsr_batch_journal_look(&v, &x->io, "f/journal", &e.err), TSR_OK);
    assert_true(v.seal[0] != 0);
    tsr_batch_journal_look_end(&v);
}

/* A journal of two epochs and three commits; its bytes in fresh memory. */
static char *image(uint64_t *n)
{
    struct place             *x = place_new();
    struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    add(j, 1, false);
    add(j, 0, false);
    commit(j);
    tsr_batch_journal_close(j);
    j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    add(j, 4, false);
    commit(j);
    add(j, 3, false);
    add(j, 5, false);
    commit(j);
    const struct disk_blob *b = disk_file(&x->disk, "f/journal");
    char                   *copy = malloc(b->n);
    assert_non_null(copy);
    memcpy(copy, b->p, b->n);
    *n = b->n;
    tsr_batch_journal_close(j);
    place_free(x);
    return copy;
}

/* How many lines lie wholly in the first n bytes. */
static uint64_t lines_in(const char *image, uint64_t n)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < N; i++)
        for (uint64_t at = 0; at + strlen(lines[i]) + TSR_ENTRY_TAIL <= n; at++)
            if (memcmp(image + at, lines[i], strlen(lines[i])) == 0 && at >= 12 &&
                (unsigned char)image[at - 4] == strlen(lines[i])) {
                found++;
                break;
            }
    return found;
}

static void every_cut_is_recovered(void **state)
{
    uint64_t size;
    char    *whole = image(&size);
    (void)state;
    assert_int_equal(lines_in(whole, size), 5);
    for (int zeros = 0; zeros < 2; zeros++)
        for (uint64_t n = 0; n <= size; n++) {
            struct place *x = place_new();
            char         *bytes = calloc(1, size + 1);
            assert_non_null(bytes);
            memcpy(bytes, whole, n);
            put_file(x, "f/journal", bytes, zeros ? size : n);
            struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
            assert_int_equal(tsr_batch_journal_counts(j)->done, lines_in(whole, n));
            complete(x, j);
            place_free(x);
            free(bytes);
        }
    free(whole);
}

/* A flipped bit in what was synced before later commits is said, in the last commit it is a torn end; a
 * wrong line never comes out. */
static void no_flip_is_believed(void **state)
{
    const char *env = getenv("TSR_TEST_SEED");
    uint64_t    seed = env ? strtoull(env, NULL, 10) : (uint64_t)time(NULL), size, refused = 0;
    char       *whole = image(&size);
    int         bits = getenv("TSR_TEST_ALL") ? 8 : 1;
    (void)state;
    for (uint64_t at = 0; at < size; at++)
        for (int b = 0; b < bits; b++) {
            struct tsr_errbuf         e = TSR_ERRBUF(e);
            struct place             *x = place_new();
            struct tsr_batch_journal *j;
            char                     *about, *bytes = malloc(size);
            assert_non_null(bytes);
            memcpy(bytes, whole, size);
            bytes[at] ^= (char)(1 << (bits == 8 ? (uint64_t)b : (seed + at * 7) % 8));
            put_file(x, "f/journal", bytes, size);
            tsr_status st = open_job(x, JOB, TSR_BATCH_VERDICT_OUTSIDE, false, &j, &about, &e.err);
            if (st == TSR_OK) {
                complete(x, j);
            } else {
                assert_int_equal(st, TSR_E_CHECK);
                refused++;
            }
            free(about);
            free(bytes);
            place_free(x);
        }
    assert_true(refused > size / 2); /* most of it lies in front of a later commit */
    free(whole);
}

static void damage_is_shown_and_salvaged(void **state)
{
    uint64_t      size, kept, lost;
    char         *whole = image(&size), path[] = "/tmp/tessera-journal-XXXXXX", to[64];
    struct place *x = place_new();
    (void)state;
    char *hit = memmem(whole, size, lines[1], strlen(lines[1])); /* in the first commit */
    assert_non_null(hit);
    *hit ^= 4;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "wb");
    assert_int_equal(fwrite(whole, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct tsr_batch_journal_view v;
    if (tsr_batch_journal_look(&v, &tsr_io_system, path, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_true(v.damaged && v.next > v.end);
    (void)snprintf(to, sizeof to, "%s.repaired", path);
    assert_int_equal(tsr_batch_journal_salvage(&v, path, to, NULL, &kept, &lost, &e.err), TSR_OK);
    assert_true(lost > 0 && kept > 5);
    uint64_t lines_kept = v.counts.done;
    tsr_batch_journal_look_end(&v);
    assert_int_equal(tsr_batch_journal_look(&v, &tsr_io_system, to, &e.err), TSR_OK);
    assert_false(v.damaged);
    assert_int_equal(v.counts.done, lines_kept);
    assert_int_equal(lines_kept, 4); /* of five one was hit */
    char *line;
    assert_int_equal(tsr_batch_journal_view_line(&v, 3, &line, &e.err), TSR_OK);
    assert_string_equal(line, lines[3]);
    free(line);
    tsr_batch_journal_look_end(&v);
    (void)remove(path);
    (void)remove(to);
    free(whole);
    place_free(x);
}

/* The same on the system's files, whose syncs are another thread's. */
static void on_the_system(void **state)
{
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct tsr_batch_journal_view v;
    struct tsr_batch_journal     *j;
    char                          folder[] = "/tmp/tessera-journal-XXXXXX", path[64], *about, *line;
    enum { MANY = 200 };
    struct tsr_batch_journal_options o = { .io = &tsr_io_system,
                                           .folder = folder,
                                           .job = JOB,
                                           .about = "{}",
                                           .records = MANY,
                                           .who = "a test" };
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (uint64_t half = 0; half < 2;
         half++) { /* closed with a sync on its way, and gone on with */
        if (tsr_batch_journal_open(&j, &o, &about, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        for (uint64_t i = half * MANY / 2; i < (half + 1) * MANY / 2; i++) {
            assert_int_equal(tsr_batch_journal_lease(j, i, &e.err), TSR_OK);
            assert_int_equal(tsr_batch_journal_line(j, i, false, lines[i % N], strlen(lines[i % N]),
                                                    &e.err),
                             TSR_OK);
            assert_int_equal(tsr_batch_journal_commit(j, i % 50 == 49, &e.err), TSR_OK);
            assert_true(i % 50 != 49 || tsr_batch_journal_pending(j) == 0);
        }
        tsr_batch_journal_close(j);
    }
    (void)snprintf(path, sizeof path, "%s/journal", folder);
    assert_int_equal(tsr_batch_journal_look(&v, &tsr_io_system, path, &e.err), TSR_OK);
    assert_true(v.counts.done == MANY && v.counts.starts == 2 && !v.damaged && v.end == v.size);
    for (uint64_t i = 0; i < MANY; i++) {
        assert_int_equal(tsr_batch_journal_view_line(&v, i, &line, &e.err), TSR_OK);
        assert_string_equal(line, lines[i % N]);
        free(line);
    }
    tsr_batch_journal_look_end(&v);
    assert_int_equal(remove(path), 0);
    (void)snprintf(path, sizeof path, "%s/lock", folder);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(folder), 0);
}

static void other_jobs_are_refused(void **state)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct place             *x = place_new();
    struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false), *k;
    char                     *about;
    (void)state;
    add(j, 2, false);
    commit(j);
    /* a second run while the first one works */
    struct disk_process other;
    struct tsr_batch_io io;
    disk_process_start(&other, &x->disk, 1, &io);
    struct tsr_batch_journal_options o = {
        .io = &io, .folder = "f", .job = JOB, .about = "{}", .records = N, .who = "another"
    };
    assert_int_equal(tsr_batch_journal_open(&k, &o, &about, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "f/lock", NULL));
    tsr_batch_journal_close(j);
    /* another job */
    assert_int_equal(open_job(x, "xxh3:ffffffffffffffffffffffffffffffff", TSR_BATCH_VERDICT_OUTSIDE,
                              false, &j, &about, &e.err),
                     TSR_E_INPUT);
    assert_string_equal(about, "{\"x\":1}");
    free(about);
    complete(x, must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false));
    place_free(x);
}

/* Who is to blame follows from the journal alone. */
static void blame(void **state)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct place             *x = place_new();
    struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(tsr_batch_journal_lease(j, i, &e.err), TSR_OK);
    add(j, 3, false);
    commit(j);
    tsr_batch_journal_close(j);
    j = must_open(x, TSR_BATCH_VERDICT_OWN, false); /* one of three */
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(tsr_batch_journal_record(j, i)->suspect, i < 3);
        assert_int_equal(tsr_batch_journal_record(j, i)->deaths, 0);
    }
    assert_int_equal(tsr_batch_journal_lease(j, 1, &e.err), TSR_OK);
    commit(j);
    tsr_batch_journal_close(j);
    j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false); /* SIGKILL: nobody */
    assert_int_equal(tsr_batch_journal_record(j, 1)->deaths, 0);
    for (unsigned n = 1; n <= 2; n++) {
        assert_int_equal(tsr_batch_journal_lease(j, 1, &e.err), TSR_OK);
        commit(j);
        tsr_batch_journal_close(j);
        j = must_open(x, TSR_BATCH_VERDICT_OWN, false);
        assert_int_equal(tsr_batch_journal_record(j, 1)->deaths, n);
        assert_int_equal(tsr_batch_journal_record(j, 0)->deaths, 0);
    }
    add(j, 1, true);
    assert_int_equal(tsr_batch_journal_line(j, 1, true, "{}", 2, &e.err), TSR_E_BUG);
    commit(j);
    tsr_batch_journal_close(j);
    j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, true); /* errors again */
    assert_int_equal(tsr_batch_journal_record(j, 1)->state, TSR_BATCH_RECORD_OPEN);
    assert_int_equal(tsr_batch_journal_record(j, 1)->deaths, 0);
    assert_int_equal(tsr_batch_journal_record(j, 3)->state, TSR_BATCH_RECORD_RESULT);
    complete(x, j);
    place_free(x);
}

/* After a failed write or sync nothing is written any more, and the number of syncs is as it must be. */
static void failure_is_final(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 5; at++) {
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        struct place             *x = place_new();
        struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
        add(j, 0, false);
        x->disk.fault = DISK_ERRNO;
        x->disk.fault_errno = ENOSPC;
        x->disk.fault_at =
            x->disk.ops + at; /* read of the fence, write, begin and end of the sync */
        tsr_status st = tsr_batch_journal_commit(j, true, &e.err);
        if (at < 4) {
            assert_int_equal(st, TSR_E_FULL);
            uint64_t ops = x->disk.ops;
            assert_int_not_equal(tsr_batch_journal_commit(j, true, &e.err), TSR_OK);
            assert_int_not_equal(tsr_batch_journal_lease(j, 2, &e.err), TSR_OK);
            assert_int_not_equal(tsr_batch_journal_finish(j, "out.part", "out", &e.err), TSR_OK);
            assert_int_equal(x->disk.ops, ops);
        } else {
            assert_int_equal(st, TSR_OK);
            x->disk.fault_at = UINT64_MAX;
            uint64_t syncs = tsr_batch_journal_counts(j)->syncs;
            assert_int_equal(tsr_batch_journal_lease(j, 2, &e.err), TSR_OK);
            commit(j); /* a lease is written and not synced */
            assert_int_equal(tsr_batch_journal_counts(j)->syncs, syncs);
            add(j, 2, false);
            commit(j);
            assert_int_equal(tsr_batch_journal_counts(j)->syncs, syncs + 1);
        }
        tsr_batch_journal_close(j);
        place_free(x);
    }
}

/* Two writers on a disk without locks: the first one is fenced off, and what it might still have written is
 * not believed. */
static void stale_writers(void **state)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct place             *x = place_new();
    struct disk_process       other;
    struct tsr_batch_io       io;
    struct tsr_batch_journal *j, *k;
    char                     *about, frame[128];
    int                       f;
    (void)state;
    x->disk.no_locks = true;
    j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    disk_process_start(&other, &x->disk, 1, &io);
    struct tsr_batch_journal_options o = {
        .io = &io, .folder = "f", .job = JOB, .about = "{}", .records = N, .who = "another"
    };
    assert_int_equal(tsr_batch_journal_open(&k, &o, &about, &e.err), TSR_OK);
    add(j, 0, false);
    uint64_t before = disk_file(&x->disk, "f/journal")->n;
    assert_int_equal(tsr_batch_journal_commit(j, true, &e.err), TSR_E_DEVICE);
    assert_int_equal(disk_file(&x->disk, "f/journal")->n, before);
    tsr_batch_journal_close(j);
    tsr_batch_journal_close(k);
    /* past the fence: a line of epoch 1 behind the frame of epoch 2 */
    struct tsr_batch_entry late = {
        .type = TSR_BATCH_ENTRY_RESULT, .epoch = 1, .index = 2, .len = 7, .payload = "{\"z\":9}"
    };
    tsr_batch_entry_write(&late, tsr_batch_crc32c(0, JOB, TSR_HASH_TEXT - 1), frame);
    assert_int_equal(x->io.open(&x->p, "f/journal", TSR_BATCH_IO_APPEND, &f), 0);
    assert_int_equal(tsr_batch_io_put(&x->io, f, 0, frame, tsr_batch_entry_bytes(7)), 0);
    assert_int_equal(x->io.close(&x->p, f), 0);
    j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    assert_int_equal(tsr_batch_journal_counts(j)->stale, 1);
    assert_int_equal(tsr_batch_journal_record(j, 2)->state, TSR_BATCH_RECORD_OPEN);
    complete(x, j);
    place_free(x);
}

/* Restarts: who is blamed, how long to wait, when to stop. */
static void restarts(void **state)
{
    static const struct {
        struct tsr_batch_ending e;
        enum tsr_verdict        verdict;
    } cases[] = {
        { { .signal = SIGKILL }, TSR_BATCH_VERDICT_OUTSIDE },
        { { .signal = SIGKILL, .own_fault = true }, TSR_BATCH_VERDICT_OUTSIDE },
        { { .signal = SIGKILL, .memory = true }, TSR_BATCH_VERDICT_OWN },
        { { .signal = SIGSEGV, .own_fault = true }, TSR_BATCH_VERDICT_OWN },
        { { .signal = SIGSEGV }, TSR_BATCH_VERDICT_OUTSIDE }, /* somebody sent it */
        { { .signal = SIGABRT, .own_fault = true }, TSR_BATCH_VERDICT_OWN },
        { { .signal = SIGTERM, .own_fault = true }, TSR_BATCH_VERDICT_OUTSIDE },
        { { .signal = SIGKILL, .stalled = true }, TSR_BATCH_VERDICT_OUTSIDE },
        { { .signal = SIGKILL, .stalled = true, .late = true }, TSR_BATCH_VERDICT_OWN },
        { { .exited = true, .code = 6 }, TSR_BATCH_VERDICT_OUTSIDE },
        { { .exited = true, .code = 6, .own_fault = true }, TSR_BATCH_VERDICT_OWN },
        { { .exited = true, .code = 6, .memory = true }, TSR_BATCH_VERDICT_OWN },
        { { .exited = true, .code = 6, .late = true }, TSR_BATCH_VERDICT_OWN },
        { { .exited = true, .code = 4, .memory = true }, TSR_BATCH_VERDICT_OWN },
        { { .exited = true, .code = 75, .stalled = true }, TSR_BATCH_VERDICT_OUTSIDE },
        { { .exited = true, .code = 75, .stalled = true, .late = true }, TSR_BATCH_VERDICT_OWN },
    };
    enum tsr_verdict          v;
    uint64_t                  wait, sum = 0;
    struct tsr_batch_restarts r = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_batch_restarts fresh = { 0 };
        assert_int_equal(tsr_batch_restart_decide(&fresh, &cases[i].e, &wait, &v),
                         TSR_BATCH_AFTER_RESTART);
        assert_int_equal(v, cases[i].verdict);
        assert_int_equal(wait, 0);
    }
    struct tsr_batch_ending killed = { .signal = SIGKILL }, exited = { .exited = true, .code = 75 };
    struct tsr_batch_ending peer = { .exited = true, .code = 6 };
    struct tsr_batch_restarts fresh = { 0 };
    assert_int_equal(tsr_batch_restart_decide(&r, &exited, &wait, &v), TSR_BATCH_AFTER_STOP);
    struct tsr_batch_ending full = { .exited = true,
                                     .code = 4 }; /* a disk without room blames nobody */
    assert_int_equal(tsr_batch_restart_decide(&r, &full, &wait, &v), TSR_BATCH_AFTER_STOP);
    assert_int_equal(v, TSR_BATCH_VERDICT_OUTSIDE);
    assert_int_equal(tsr_batch_restart_decide(&fresh, &peer, &wait, &v), TSR_BATCH_AFTER_RESTART);
    for (unsigned i = 0; i < TSR_RESTARTS_MOST; i++) {
        assert_int_equal(tsr_batch_restart_decide(&r, &killed, &wait, &v), TSR_BATCH_AFTER_RESTART);
        assert_true(i == 0 ? wait == 0 : wait == TSR_RESTART_US << (i - 1));
        sum += wait;
    }
    assert_int_equal(tsr_batch_restart_decide(&r, &killed, &wait, &v), TSR_BATCH_AFTER_GIVE_UP);
    assert_true(sum < 2000000);
    killed.done = 1; /* progress: the count begins anew */
    assert_int_equal(tsr_batch_restart_decide(&r, &killed, &wait, &v), TSR_BATCH_AFTER_RESTART);
    assert_int_equal(wait, 0);
}

static void sum_of_the_standard(void **state)
{
    static uint32_t (*const how[])(uint32_t, const void *, uint64_t) = { tsr_batch_crc32c,
                                                                         tsr_crc32c_portable };
    (void)state;
    /* RFC 3720, B.4, and the usual check value */
    for (unsigned k = 0; k < 2; k++) {
        assert_int_equal(how[k](0, "123456789", 9), 0xe3069283);
        unsigned char bytes[32] = { 0 };
        assert_int_equal(how[k](0, bytes, 32), 0x8a9136aa);
        memset(bytes, 0xff, sizeof bytes);
        assert_int_equal(how[k](0, bytes, 32), 0x62a8ab43);
        for (unsigned i = 0; i < 32; i++)
            bytes[i] = (unsigned char)i;
        assert_int_equal(how[k](0, bytes, 32), 0x46dd794e);
        assert_int_equal(how[k](how[k](0, "1234", 4), "56789", 5), 0xe3069283);
    }
    unsigned char data[80];
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * i + 7 * i + 3);
    for (unsigned from = 0; from < 8; from++)
        for (unsigned n = 0; from + n <= sizeof data; n++)
            assert_int_equal(tsr_batch_crc32c(n, data + from, n),
                             tsr_crc32c_portable(n, data + from, n));
}

/* The power goes at each step of an open behind a run whose last leases were never synced: whatever
 * of them is left is a torn end and no damage. */
static void power_goes_while_opening(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 24; at++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct tsr_errbuf         e = TSR_ERRBUF(e);
            struct place             *x = place_new();
            struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
            char                     *about;
            add(j, 0, false);
            commit(j);
            for (uint64_t i = 1; i < N; i++) {
                assert_int_equal(tsr_batch_journal_lease(j, i, &e.err), TSR_OK);
                commit(j);
            }
            tsr_batch_journal_close(j);
            x->disk.rng = seed * 977 + at;
            x->disk.fault = DISK_POWER;
            x->disk.fault_at = x->disk.ops + at;
            if (open_job(x, JOB, TSR_BATCH_VERDICT_OUTSIDE, false, &j, &about, &e.err) == TSR_OK)
                tsr_batch_journal_close(j);
            disk_process_end(&x->p);
            disk_power_cut(&x->disk);
            x->disk.fault_at = UINT64_MAX;
            disk_process_start(&x->p, &x->disk, 2, &x->io);
            j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
            assert_int_equal(tsr_batch_journal_record(j, 0)->state, TSR_BATCH_RECORD_RESULT);
            complete(x, j);
            place_free(x);
        }
}

/* Leases written while a sync is on its way are not said to be on the disk when it is over. */
static void power_goes_behind_a_sync(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        struct place             *x = place_new();
        struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
        x->disk.rng = seed * 31;
        for (uint64_t i = 0; i < N; i++) {
            assert_int_equal(tsr_batch_journal_line(j, i, false, lines[i], strlen(lines[i]),
                                                    &e.err),
                             TSR_OK);
            assert_int_equal(tsr_batch_journal_commit(j, false, &e.err), TSR_OK);
            for (uint64_t k = i + 1; k < N; k++) {
                assert_int_equal(tsr_batch_journal_lease(j, k, &e.err), TSR_OK);
                assert_int_equal(tsr_batch_journal_commit(j, false, &e.err), TSR_OK);
            }
            if (disk_random(&x->disk, 4) == 0)
                break;
        }
        x->p.dead = true;
        tsr_batch_journal_close(j);
        disk_process_end(&x->p);
        disk_power_cut(&x->disk);
        disk_process_start(&x->p, &x->disk, 2, &x->io);
        complete(x, must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false));
        place_free(x);
    }
}

/* A second line for a record: the first one stays, and that they differ is counted. */
static void the_first_line_counts(void **state)
{
    struct place             *x = place_new();
    struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    char                      frame[128];
    int                       f;
    (void)state;
    add(j, 2, false);
    commit(j);
    tsr_batch_journal_close(j);
    for (int k = 0; k < 2; k++) {
        const char            *line = k ? lines[2] : "{\"z\":9}";
        struct tsr_batch_entry late = { .type = TSR_BATCH_ENTRY_RESULT,
                                        .epoch = 1,
                                        .index = 2,
                                        .len = (uint32_t)strlen(line),
                                        .payload = line };
        tsr_batch_entry_write(&late, tsr_batch_crc32c(0, JOB, TSR_HASH_TEXT - 1), frame);
        assert_int_equal(x->io.open(&x->p, "f/journal", TSR_BATCH_IO_APPEND, &f), 0);
        assert_int_equal(tsr_batch_io_put(&x->io, f, 0, frame, tsr_batch_entry_bytes(late.len)), 0);
        assert_int_equal(x->io.close(&x->p, f), 0);
    }
    j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    assert_int_equal(tsr_batch_journal_counts(j)->doubled, 2);
    assert_int_equal(tsr_batch_journal_counts(j)->unlike, 1);
    assert_int_equal(tsr_batch_journal_counts(j)->done, 1);
    complete(x, j);
    place_free(x);
}

/* Lines larger than the windows through which files are read and written. */
static void long_lines(void **state)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct place             *x = place_new();
    struct tsr_batch_journal *j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE, false);
    const uint64_t            bytes = 3000000;
    char                     *line = malloc(bytes);
    (void)state;
    assert_non_null(line);
    for (uint64_t i = 0; i < bytes; i++)
        line[i] = (char)('a' + i * i % 23);
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(tsr_batch_journal_line(j, i, false, line + i, i == N - 1 ? bytes - i : 10,
                                                &e.err),
                         TSR_OK);
    commit(j);
    tsr_batch_journal_close(j);
    j = must_open(x, TSR_BATCH_VERDICT_OUTSIDE,
                  false); /* the long one is the last before the epoch */
    assert_int_equal(tsr_batch_journal_counts(j)->done, N);
    assert_int_equal(tsr_batch_journal_finish(j, "out.part", "out", &e.err), TSR_OK);
    const struct disk_blob *b = disk_file(&x->disk, "out");
    assert_int_equal(b->n, 11 * (N - 1) + bytes - (N - 1) + 1);
    assert_memory_equal(b->p + 11 * (N - 1), line + N - 1, bytes - (N - 1));
    tsr_batch_journal_close(j);
    free(line);
    place_free(x);
}

static void beats(void **state)
{
    struct tsr_batch_beat b = { 0 };
    (void)state;
    assert_false(tsr_batch_beat_stalled(&b, 0, true, 0, 100));
    assert_false(tsr_batch_beat_stalled(&b, 0, true, 100, 100));
    assert_true(tsr_batch_beat_stalled(&b, 0, true, 101, 100));
    assert_false(tsr_batch_beat_stalled(&b, 1, true, 150, 100)); /* it goes on */
    assert_false(tsr_batch_beat_stalled(&b, 1, true, 250, 100));
    assert_true(tsr_batch_beat_stalled(&b, 1, true, 251, 100));
    assert_false(tsr_batch_beat_stalled(&b, 1, false, 900, 100)); /* it has nothing to do */
    assert_false(tsr_batch_beat_stalled(&b, 1, true, 1000, 100));
    assert_true(tsr_batch_beat_stalled(&b, 1, true, 1001, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_is_recovered),
        cmocka_unit_test(no_flip_is_believed),
        cmocka_unit_test(damage_is_shown_and_salvaged),
        cmocka_unit_test(other_jobs_are_refused),
        cmocka_unit_test(blame),
        cmocka_unit_test(failure_is_final),
        cmocka_unit_test(stale_writers),
        cmocka_unit_test(on_the_system),
        cmocka_unit_test(restarts),
        cmocka_unit_test(sum_of_the_standard),
        cmocka_unit_test(power_goes_while_opening),
        cmocka_unit_test(the_first_line_counts),
        cmocka_unit_test(power_goes_behind_a_sync),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(beats),
    };
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
