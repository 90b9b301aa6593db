/* What the program writes: whole under its name or not at all, one command at a time on one output,
 * through no link and into no pipe that it was not sent to. */
#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/held.h"
#include "base/mem.h"
#include "base/output.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static char *at(const char *name)
{
    static char path[4][400];
    static int  next;
    char       *p = path[next++ % 4];
    (void)snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

/* How many names are in a folder. */
static int count(const char *path)
{
    int  n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n - 2;
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/test-output-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tsr_temp_folder_remove(tsr_strdup(folder));
    return access(folder, F_OK) == 0 ? -1 : 0;
}

static void content_is(const char *path, const char *text)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *data;
    uint64_t          n;
    if (tsr_file_slurp(path, 1000, &data, &n, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_string_equal(data, text);
    free(data);
}

static void store(const char *path, const char *text)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_file_store(path, text, strlen(text), &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static void test_file(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_writer w;
    assert_int_equal(tsr_writer_open(&w, at("a"), &e.err), TSR_OK);
    tsr_writer_put(&w, "one ", 4);
    tsr_writer_printf(&w, "%d", 2);
    assert_false(tsr_path_exists(at("a")));
    assert_true(tsr_path_exists(w.part));
    assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_OK);
    assert_int_equal(count(folder), 1);
    content_is(at("a"), "one 2");
    tsr_writer_abort(&w); /* nothing after commit */

    assert_int_equal(tsr_writer_open(&w, at("a"), &e.err), TSR_OK);
    tsr_writer_put(&w, "lost", 4);
    tsr_writer_abort(&w);
    content_is(at("a"), "one 2"); /* the old content survives */
    assert_int_equal(count(folder), 1);

    assert_int_equal(tsr_writer_open(&w, at("no/such/a"), &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "a", NULL));
    assert_int_equal(tsr_writer_open(&w, folder, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, folder, NULL));
    assert_int_equal(tsr_writer_open_fresh(&w, at("a"), &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "a", NULL));
    /* what comes while it is written is not replaced either */
    assert_int_equal(tsr_writer_open_fresh(&w, at("f"), &e.err), TSR_OK);
    assert_int_equal(symlink("nowhere", at("f")), 0);
    assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "f", NULL));
    assert_int_equal(count(folder), 2);
    /* a full disk: writing to /dev/full fails at the flush, and commit says so */
    assert_int_equal(tsr_writer_open(&w, at("b"), &e.err), TSR_OK);
    assert_int_equal(fclose(w.file), 0);
    w.file = fopen("/dev/full", "w");
    assert_non_null(w.file);
    tsr_writer_put(&w, "x", 1);
    assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_E_FULL);
    assert_int_equal(count(folder), 2);
}

/* A name with no room for an ending is told by its hash. */
static void test_long_name(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              name[300];
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    store(at(name), "long");
    content_is(at(name), "long");
    assert_int_equal(count(folder), 1);
    name[255] = 'n';
    name[256] = '\0';
    assert_int_equal(tsr_file_store(at(name), "x", 1, &e.err), TSR_E_INPUT);
}

/* A link at the final name is replaced; what it leads to stays as it is. */
static void test_links(void **state)
{
    (void)state;
    struct stat s;
    store(at("far"), "far");
    assert_int_equal(symlink("far", at("near")), 0);
    store(at("near"), "near");
    content_is(at("far"), "far");
    content_is(at("near"), "near");
    assert_int_equal(lstat(at("near"), &s), 0);
    assert_true(S_ISREG(s.st_mode));
    /* names that were guessable once */
    assert_int_equal(symlink(at("far"), at("near.part")), 0);
    assert_int_equal(mkfifo(at("far.part"), 0600), 0);
    store(at("near"), "again");
    store(at("far"), "again");
    content_is(at("far"), "again");
    assert_int_equal(count(folder), 4);
}

static void test_special(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_writer w;
    struct stat       s;
    char              got[8] = "";
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(tsr_writer_open(&w, at("pipe"), &e.err), TSR_E_INPUT); /* and not for ever */
    assert_true(error_is(&e.err, "pipe", "FIFO"));
    int fd = open(at("pipe"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    store(at("pipe"), "x y");
    assert_int_equal(stat(at("pipe"), &s), 0);
    assert_true(S_ISFIFO(s.st_mode));
    assert_int_equal(read(fd, got, sizeof got), 3);
    assert_string_equal(got, "x y");
    assert_int_equal(tsr_writer_open(&w, at("pipe"), &e.err), TSR_OK);
    tsr_writer_abort(&w);
    assert_true(tsr_path_exists(at("pipe")));
    assert_int_equal(close(fd), 0);
    assert_int_equal(count(folder), 1);
    assert_int_equal(tsr_writer_open(&w, "/dev/full", &e.err), TSR_OK);
    tsr_writer_put(&w, "x", 1);
    assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_E_FULL);
    /* a descriptor of the process, at the place where it is */
    char own[40];
    fd = open(at("own"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, "one ", 4) == 4);
    (void)snprintf(own, sizeof own, "/dev/fd/%d", fd);
    store(own, "two");
    assert_int_equal(write(fd, " three", 6), 6);
    assert_int_equal(close(fd), 0);
    content_is(at("own"), "one two three");
}

/* ---- two commands on one output -------------------------------------------------------- */

static void test_lock(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_writer w, v;
    char              pid[32];
    assert_int_equal(mkdir(at("sub"), 0700), 0);
    assert_int_equal(symlink("sub", at("way")), 0);
    assert_int_equal(tsr_writer_open(&w, at("sub/a"), &e.err), TSR_OK);
    tsr_writer_put(&w, "first", 5);
    assert_int_equal(tsr_writer_open(&v, at("way/../sub//a"), &e.err), TSR_E_INPUT);
    (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
    assert_true(error_is(&e.err, "a", NULL));
    if (access("/proc/locks", R_OK) == 0)
        assert_true(error_is(&e.err, "way/../sub//a", pid));
    assert_int_equal(tsr_writer_open(&v, at("way/a"), &e.err), TSR_E_INPUT);
    store(at("sub/b"), "other names are free");
    assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_OK);
    content_is(at("sub/a"), "first");
    store(at("way/a"), "second");
    content_is(at("sub/a"), "second");
    assert_int_equal(count(at("sub")), 2);
    /* what has the lock's name is not taken for one */
    assert_int_equal(symlink("/tmp/elsewhere", at(".c.lock")), 0);
    assert_int_equal(tsr_writer_open(&w, at("c"), &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "c", ".c.lock c.lock"));
    assert_int_equal(unlink(at(".c.lock")), 0);
    assert_int_equal(mkfifo(at(".c.lock"), 0600), 0);
    assert_int_equal(tsr_writer_open(&w, at("c"), &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "c", ".c.lock c.lock"));
}

static void test_lock_folder(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    int               one, two;
    assert_int_equal(tsr_output_lock_folder(&one, at("job/deep"), &e.err), TSR_OK);
    assert_int_equal(tsr_output_lock_folder(&two, at("job/../job/deep"), &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "deep", NULL));
    assert_int_equal(count(at("job/deep")), 0);
    assert_int_equal(tsr_held_close(one), 0);
    assert_int_equal(tsr_output_lock_folder(&two, at("job/deep"), &e.err), TSR_OK);
    assert_int_equal(tsr_held_close(two), 0);
}

/* A process that is killed while it writes: the next one finds no lock, and tidies up. */
static void test_killed(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_writer        w;
    struct tsr_output_folder f;
    int                      status;
    pid_t                    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (tsr_writer_open(&w, at("a"), &e.err) == TSR_OK &&
            tsr_output_folder_begin(&f, at("dir"), false, &e.err) == TSR_OK &&
            tsr_file_store_in(f.part, "x", "x", 1, &e.err) == TSR_OK)
            (void)raise(SIGKILL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count(folder), 4);
    store(at(".a.0123456g.part"), "not one of ours");
    store(at("a"), "after");
    content_is(at("a"), "after");
    assert_int_equal(tsr_output_folder_begin(&f, at("dir"), false, &e.err), TSR_OK);
    assert_int_equal(tsr_output_folder_commit(&f, &e.err), TSR_OK);
    assert_int_equal(count(at("dir")), 0);
    assert_int_equal(count(folder), 3);
}

/* Many processes on one output: each is refused or leaves its own bytes whole. */
/* Who was killed between the last two calls leaves a whole file with a lock that nobody holds. */
static void test_settle(void **state)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_output_lock *held = NULL;
    (void)state;
    assert_int_equal(tsr_file_store(at("whole"), "all", 3, &e.err), TSR_OK);
    assert_int_equal(tsr_file_store(at(".whole.lock"), "", 0, &e.err), TSR_OK);
    assert_int_equal(tsr_file_store(at(".whole.0123abcd.part"), "al", 2, &e.err), TSR_OK);
    assert_int_equal(tsr_file_store(at(".foreign.lock"), "1234", 4, &e.err), TSR_OK);
    assert_int_equal(tsr_file_store(at(".whole.part"), "mine", 4, &e.err), TSR_OK);
    assert_int_equal(tsr_output_lock(&held, at("other"), &e.err), TSR_OK);
    assert_int_equal(tsr_file_store(at(".other.0123abcd.part"), "ot", 2, &e.err), TSR_OK);
    assert_int_equal(tsr_make_dirs(folder, &e.err), TSR_OK);
    content_is(at("whole"), "all");
    assert_int_equal(access(at(".whole.lock"), F_OK), -1);
    assert_int_equal(access(at(".whole.0123abcd.part"), F_OK), -1);
    content_is(at(".foreign.lock"), "1234"); /* not empty: none of ours */
    content_is(at(".whole.part"), "mine");
    content_is(at(".other.0123abcd.part"), "ot"); /* somebody writes it */
    assert_int_equal(access(at(".other.lock"), F_OK), 0);
    tsr_output_unlock(held);
}

static void test_race(void **state)
{
    (void)state;
    enum { WRITERS = 6, ROUNDS = 15, BYTES = 30000 };
    pid_t child[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i])
            continue;
        static char       mine[BYTES];
        struct tsr_errbuf e = TSR_ERRBUF(e);
        memset(mine, 'a' + i, sizeof mine);
        for (int k = 0; k < ROUNDS; k++) {
            tsr_status st = tsr_file_store(at("a"), mine, sizeof mine, &e.err);
            if (st != TSR_OK && !(st == TSR_E_INPUT && error_is(&e.err, "a", NULL)))
                _exit(1);
        }
        _exit(0);
    }
    bool seen = false;
    for (int left = WRITERS; left;) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        char             *data;
        uint64_t          n;
        int               status;
        if (tsr_path_exists(at("a")) &&
            tsr_file_slurp(at("a"), BYTES, &data, &n, &e.err) == TSR_OK) {
            assert_int_equal(n, BYTES);
            for (uint64_t i = 1; i < n; i++)
                if (data[i] != data[0])
                    fail_msg("byte %d is another writer's", (int)i);
            free(data);
            seen = true;
        }
        if (waitpid(-1, &status, WNOHANG) > 0) {
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            left--;
        }
    }
    assert_true(seen);
    assert_int_equal(count(folder), 1);
}

/* ---- folders ---------------------------------------------------------------------------- */

static void test_folder(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_output_folder f, g;
    assert_int_equal(tsr_output_folder_begin(&f, at("deep/m/"), false, &e.err), TSR_OK);
    assert_int_equal(tsr_output_folder_begin(&g, at("deep/m"), false, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "m", NULL));
    assert_int_equal(tsr_file_store_in(f.part, "x", "1", 1, &e.err), TSR_OK);
    assert_false(tsr_path_exists(at("deep/m")));
    assert_int_equal(tsr_output_folder_commit(&f, &e.err), TSR_OK);
    content_is(at("deep/m/x"), "1");
    assert_int_equal(count(at("deep")), 1);
    assert_int_equal(tsr_output_folder_begin(&f, at("deep/m"), false, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "m", NULL));
    /* replaced as a whole */
    assert_int_equal(tsr_output_folder_begin(&f, at("deep/m"), true, &e.err), TSR_OK);
    assert_int_equal(tsr_file_store_in(f.part, "y", "2", 1, &e.err), TSR_OK);
    content_is(at("deep/m/x"), "1");
    assert_int_equal(tsr_output_folder_commit(&f, &e.err), TSR_OK);
    content_is(at("deep/m/y"), "2");
    assert_int_equal(count(at("deep/m")), 1);
    /* a part goes with all that is in it, and through no link */
    assert_int_equal(tsr_output_folder_begin(&f, at("deep/n"), false, &e.err), TSR_OK);
    char *link = tsr_path_join(f.part, "link");
    assert_non_null(link);
    assert_int_equal(symlink(at("deep/m"), link), 0);
    free(link);
    tsr_output_folder_abort(&f);
    content_is(at("deep/m/y"), "2");
    assert_int_equal(count(at("deep")), 1);
    /* a folder with folders is nobody's export */
    assert_int_equal(mkdir(at("deep/m/own"), 0700), 0);
    assert_int_equal(tsr_output_folder_begin(&f, at("deep/m"), true, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "m", "own"));
    assert_int_equal(count(at("deep/m")), 2);
    assert_int_equal(tsr_output_folder_begin(&f, at("deep/.."), false, &e.err), TSR_E_INPUT);
}

/* A part that cannot be removed keeps its lock file, so that the next command on that output tries again. */
static void test_part_stays(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_output_folder f;
    char                     deep[200];
    assert_int_equal(tsr_output_folder_begin(&f, at("dir"), false, &e.err), TSR_OK);
    (void)snprintf(deep, sizeof deep, "%s/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18", f.part);
    assert_int_equal(tsr_make_dirs(deep, &e.err), TSR_OK); /* deeper than anything of ours */
    tsr_output_folder_abort(&f);
    assert_int_equal(count(folder), 2);
    assert_int_equal(access(at(".dir.lock"), F_OK), 0);
    tsr_output_unmake(); /* the folders can be removed now */
    assert_int_equal(tsr_output_folder_begin(&f, at("dir"), false, &e.err), TSR_OK);
    tsr_output_folder_abort(&f);
    assert_int_equal(count(folder), 0);
}

static void test_unmake(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(mkdir(at("old"), 0700), 0);
    assert_int_equal(tsr_make_dirs(at("old/a/b"), &e.err), TSR_OK);
    assert_int_equal(tsr_make_dirs(at("old/c"), &e.err), TSR_OK);
    store(at("old/c/x"), "x");
    tsr_output_unmake();
    assert_int_equal(count(at("old")), 1);
    assert_int_equal(tsr_output_remove(at("old/c/x"), &e.err), TSR_OK);
    assert_int_equal(tsr_output_remove(at("old/c/x"), &e.err), TSR_OK);
    tsr_output_unmake(); /* what stayed for its file goes later; what was there before stays */
    assert_int_equal(count(at("old")), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_file),        TEST(test_long_name), TEST(test_links),  TEST(test_special),
        TEST(test_lock),        TEST(test_killed),    TEST(test_race),   TEST(test_folder),
        TEST(test_lock_folder), TEST(test_unmake),    TEST(test_settle), TEST(test_part_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
