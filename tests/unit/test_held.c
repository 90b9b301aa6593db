/* The table of descriptors that the host holds open: what is lost is found, what other threads and child processes
 * close on purpose is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/held.h"
#include "base/mem.h"
#include "base/output.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static char *at(const char *name)
{
    static char path[8][200];
    static int  next;
    char       *p = path[next++ % 8];
    (void)snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/test-held-XXXXXX");
    return mkdtemp(folder) && tsr_file_store(at("other"), "x", 1, NULL) == TSR_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tsr_temp_folder_remove(tsr_strdup(folder));
    return 0;
}

/* ---- threads and processes ----------------------------------------------------------------------------- */

static atomic_bool stop;

static void *open_and_close(void *name)
{
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_writer w;
        struct tsr_file   f;
        if (tsr_writer_open(&w, name, &e.err) != TSR_OK)
            return (void *)1;
        tsr_writer_printf(&w, "%u", i);
        if (tsr_writer_commit(&w, &e.err) != TSR_OK)
            return (void *)2;
        if (tsr_file_open(&f, name, &e.err) != TSR_OK)
            return (void *)3;
        tsr_file_close(&f);
    }
    return NULL;
}

/* Files that other threads open and close are no loss. */
static void others_at_work(void **state)
{
    (void)state;
    pthread_t t[3];
    char     *names[] = { at("one"), at("two"), at("three") };
    atomic_store(&stop, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, open_and_close, names[i]), 0);
    for (int i = 0; i < 3000; i++) {
        struct tsr_held_loss l;
        if (tsr_held_next_loss(&l, true))
            fail_msg("descriptor %d (%s)", l.fd, l.name);
        pid_t pid = i % 100 == 0 ? fork() : -1; /* the table is whole in a child */
        if (pid == 0)
            _exit(tsr_held_next_loss(&l, true) ? 1 : 0);
        int status = 0;
        if (pid > 0)
            assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) {
        void *r = NULL;
        assert_int_equal(pthread_join(t[i], &r), 0);
        assert_null(r);
    }
}

/* A child closes what it inherited: that is no loss, not there and not here; a loss there is not one here. */
static void child_closes(void **state)
{
    (void)state;
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_file      f, g;
    struct tsr_held_loss l;
    int                  status;
    assert_int_equal(tsr_file_open(&f, at("other"), &e.err), TSR_OK);
    assert_int_equal(tsr_file_open(&g, at("other"), &e.err), TSR_OK);
    pid_t pid = fork();
    if (pid == 0) {
        tsr_file_close(&f);
        if (tsr_held_next_loss(&l, true))
            _exit(1);
        (void)close(g.fd);
        _exit(tsr_held_next_loss(&l, true) && l.fd == g.fd && l.closed ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(tsr_held_next_loss(&l, true));
    tsr_file_close(&f);
    tsr_file_close(&g);
}

/* A long name keeps its end, and what was never added is not watched. */
static void edges(void **state)
{
    (void)state;
    struct tsr_held_loss l;
    char                 name[400];
    int                  fds[2];
    memset(name, 'n', sizeof name);
    (void)snprintf(name + 390, 10, "the end");
    assert_int_equal(pipe(fds), 0);
    tsr_held_add(fds[0], name);
    tsr_held_add(-1, "none");
    assert_int_equal(tsr_held_check(-1), 0);
    assert_int_equal(tsr_held_check(fds[1]), 0);
    assert_int_equal(tsr_held_check(fds[0]), 0);
    assert_int_equal(dup2(fds[1], fds[0]), fds[0]); /* both ends of a pipe are one inode */
    assert_int_equal(dup2(STDIN_FILENO, fds[0]), fds[0]);
    assert_int_equal(tsr_held_check(fds[0]), TSR_ELOST);
    assert_true(tsr_held_next_loss(&l, true));
    assert_int_equal(l.fd, fds[0]);
    assert_false(l.closed);
    assert_int_equal(strlen(l.name), TSR_HELD_NAME - 1);
    assert_string_equal(l.name + TSR_HELD_NAME - 8, "the end");
    assert_false(tsr_held_next_loss(&l, true)); /* told once */
    assert_int_equal(tsr_held_close(fds[0]), TSR_ELOST);
    (void)close(fds[0]);
    assert_int_equal(tsr_held_close(fds[1]), 0);
    assert_int_equal(tsr_held_close(fds[1]), EBADF);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = { TEST(others_at_work), TEST(child_closes), TEST(edges) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
