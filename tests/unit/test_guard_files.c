/* A plugin that closes a descriptor of the host, and one that gives its number to another file: the call fails
 * and names it, nothing is published, and the other file stays as it is.   test_guard_files UNRULY.so */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/held.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/pool.h"
#include "batch/journal.h"
#include "plugin/guard.h"
#include "plugin/spec.h"
#include "tessera/backend.h"
#include "tessera/solver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRECIOUS "somebody else's file\n"

static struct tsr_pool     *pool;
static struct tsr_registry *registry;
static char                 folder[64];

static char *at(const char *name)
{
    static char path[8][200];
    static int  next;
    char       *p = path[next++ % 8];
    (void)snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void expect_text(const char *path, const char *text)
{
    char  have[200] = "";
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    have[fread(have, 1, sizeof have - 1, f)] = '\0';
    (void)fclose(f);
    assert_string_equal(have, text);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/test-guard-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    write_file(at("other"), PRECIOUS);
    tsr_plugin_guard_forget();
    return 0;
}

static void destroy_left(void);

static int tear_down(void **state)
{
    (void)state;
    destroy_left();
    tsr_temp_folder_remove(tsr_strdup(folder));
    tsr_plugin_guard_forget();
    return 0;
}

/* ---- the plugin --------------------------------------------------------------------------------- */

/* Backends, whose destroy() would look; for the end of a test. */
static struct {
    struct tsr_plugin_spec spec;
    void                  *self;
} left[16];
static unsigned n_left;

static void destroy_left(void)
{
    while (n_left > 0) {
        const struct tsr_backend_v1 *b = left[--n_left].spec.found.iface;
        b->destroy(left[n_left].self);
        tsr_plugin_spec_close(&left[n_left].spec);
    }
}

/* What an instance of `kind` does to `file` in its call, and the status of the call. */
static tsr_status disturb(const char *kind, const char *call, const char *deed, const char *file,
                          struct tsr_err *err)
{
    struct tsr_plugin_spec spec;
    void                  *self = NULL;
    char                   text[600];
    (void)snprintf(text, sizeof text, "unruly:deed=%s,at=%s,file=%s,other=%s", deed, call, file,
                   at("other"));
    assert_int_equal(tsr_plugin_spec_open(&spec, registry, kind, text, err), TSR_OK);
    const struct tsr_solver_v1  *s = spec.found.iface;
    const struct tsr_backend_v1 *b = spec.found.iface;
    struct tsr_solver_instance   in = { .struct_size = sizeof in };
    struct tsr_solver_solution   out = { .struct_size = sizeof out };
    struct tsr_op                op = { 0 };
    bool                         solver = strcmp(kind, TSR_KIND_SOLVER) == 0;
    assert_int_equal((solver ? s->create : b->create)(spec.found.host, spec.options, &self, err),
                     TSR_OK);
    tsr_status st = solver ? s->solve(self, &in, &out, err) : b->run(self, NULL, &op, err);
    if (solver) {
        s->destroy(self);
        tsr_plugin_spec_close(&spec);
    } else {
        assert_true(n_left < sizeof left / sizeof *left);
        left[n_left].spec = spec;
        left[n_left++].self = self;
    }
    return st;
}

static const char *const deeds[][2] = {
    { "close_file", "closed" },
    { "swap_file", "another" },
};

static void expect_named(const char *text, const char *call, const char *what, const char *path)
{
    assert_true(text_has(text, "unruly.so org.tessera.test.unruly"));
    assert_true(text_has(text, call));
    assert_true(text_has(text, what));
    assert_true(text_has(text, path));
}

/* solve() is looked at: it fails itself. */
static void lose(size_t deed, const char *file, const char *path)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(disturb(TSR_KIND_SOLVER, "solve", deeds[deed][0], file, &e.err), TSR_E_PLUGIN);
    expect_named(e.text, "solve", deeds[deed][1], path);
    assert_non_null(tsr_plugin_guard_fault());
}

/* ---- outputs -------------------------------------------------------------------------------------- */

static void outputs(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < 3; i++) { /* the file, its lock, its folder */
            struct tsr_errbuf e = TSR_ERRBUF(e);
            struct tsr_writer w;
            char              own[80];
            (void)snprintf(own, sizeof own, "%s$", folder);
            assert_int_equal(tsr_writer_open(&w, at("out.json"), &e.err), TSR_OK);
            tsr_writer_put(&w, "first half, ", 12);
            lose(d, i == 0 ? ".part$" : i == 1 ? ".out.json.lock$" : own, "out.json");
            tsr_writer_put(&w, "second half", 11);
            assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_E_PLUGIN);
            expect_named(e.text, "solve", deeds[d][1], "out.json");
            assert_int_equal(access(at("out.json"), F_OK), -1);
            expect_text(at("other"), PRECIOUS);
            tsr_plugin_guard_forget();
        }
}

/* The folder of an output: its file would get its name somewhere else. */
static void output_folders(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_output_folder f;
    for (size_t d = 0; d < 2; d++) {
        assert_int_equal(tsr_output_folder_begin(&f, at("made"), false, &e.err), TSR_OK);
        lose(d, ".made.lock$", "made");
        assert_int_equal(tsr_output_folder_commit(&f, &e.err), TSR_E_PLUGIN);
        expect_named(e.text, "solve", deeds[d][1], "made");
        assert_int_equal(access(at("made"), F_OK), -1);
        expect_text(at("other"), PRECIOUS);
        tsr_plugin_guard_forget();
    }
}

/* run() is not looked at; the output is compared before it gets its name, and before each write. */
static void between_looks(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++)
        for (int written = 0; written < 2; written++) {
            struct tsr_errbuf e = TSR_ERRBUF(e);
            struct tsr_writer w;
            char              much[100000];
            memset(much, 'x', sizeof much);
            assert_int_equal(tsr_writer_open(&w, at("out"), &e.err), TSR_OK);
            tsr_writer_put(&w, "text", 4);
            if (written)
                assert_int_equal(fflush(w.file), 0);
            assert_int_equal(disturb(TSR_KIND_BACKEND, "run", deeds[d][0], ".part$", &e.err),
                             TSR_OK);
            assert_null(tsr_plugin_guard_fault());
            if (!written)
                tsr_writer_put(&w, much, sizeof much);
            assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_E_PLUGIN);
            expect_named(e.text, "run", deeds[d][1], "/out");
            assert_int_equal(access(at("out"), F_OK), -1);
            expect_text(at("other"), PRECIOUS);
            assert_non_null(tsr_plugin_guard_fault());
            tsr_plugin_guard_forget();
        }
}

/* The next file that the host opens has the number: neither takes the other's place. */
static void number_again(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_writer w, v;
    assert_int_equal(tsr_writer_open(&w, at("out"), &e.err), TSR_OK);
    tsr_writer_put(&w, "text", 4);
    assert_int_equal(disturb(TSR_KIND_BACKEND, "run", "close_file", ".part$", &e.err), TSR_OK);
    for (int n = 0; n < 8 && fcntl(w.fd, F_GETFD) < 0; n++) /* the lowest number is given first */
        assert_int_equal(tsr_writer_open(&v, at(n % 2 ? "b" : "a"), &e.err), TSR_OK);
    assert_true(fcntl(w.fd, F_GETFD) >= 0);
    tsr_plugin_guard_look_held();
    expect_named(tsr_plugin_guard_fault(), "run", "descriptor", "/out");
    assert_int_equal(tsr_writer_commit(&w, &e.err), TSR_E_PLUGIN);
    assert_int_equal(access(at("out"), F_OK), -1);
    tsr_writer_abort(&v);
}

/* ---- the journal ------------------------------------------------------------------------------------ */

static struct tsr_batch_journal *open_journal(void)
{
    static char       job[TSR_HASH_TEXT];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_hash_bytes("job", 3, job);
    struct tsr_batch_journal        *j;
    struct tsr_batch_journal_options o = { .io = &tsr_io_system,
                                           .folder = folder,
                                           .job = job,
                                           .about = "{}",
                                           .records = 4,
                                           .who = "test" };
    char                            *about = NULL;
    if (tsr_batch_journal_open(&j, &o, &about, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return j;
}

static void journals(void **state)
{
    (void)state;
    static const char *const files[] = { "/journal", "/lock" }, *const ends[] = { "/journal$",
                                                                                  "/lock$" };
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < 2; i++) {
            struct tsr_errbuf         e = TSR_ERRBUF(e);
            struct tsr_batch_journal *j = open_journal();
            uint64_t                  index = 2 * d + i;
            assert_int_equal(tsr_batch_journal_line(j, index, false, "{\"a\":1}", 7, &e.err),
                             TSR_OK);
            assert_int_equal(disturb(TSR_KIND_BACKEND, "run", deeds[d][0], ends[i], &e.err),
                             TSR_OK);
            assert_int_equal(tsr_batch_journal_commit(j, true, &e.err), TSR_E_PLUGIN);
            expect_named(e.text, "run", deeds[d][1], files[i]);
            assert_int_equal(tsr_batch_journal_finish(j, at("part"), at("answers"), &e.err),
                             TSR_E_PLUGIN); /* it writes nothing more */
            tsr_batch_journal_close(j);
            assert_int_equal(access(at("answers"), F_OK), -1);
            expect_text(at("other"), PRECIOUS);
            tsr_plugin_guard_forget();
        }
    struct tsr_batch_journal *j = open_journal(); /* whole, and without any of these lines */
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(tsr_batch_journal_record(j, i)->state, TSR_BATCH_RECORD_OPEN);
    tsr_batch_journal_close(j);
}

/* ---- what is read, and the rest ------------------------------------------------------------------------ */

static void inputs(void **state)
{
    (void)state;
    write_file(at("model"), "weights and weights\n");
    for (size_t d = 0; d < 2; d++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_file   f;
        char              have[7];
        assert_int_equal(tsr_file_open(&f, at("model"), &e.err), TSR_OK);
        assert_int_equal(disturb(TSR_KIND_BACKEND, "run", deeds[d][0], "/model$", &e.err), TSR_OK);
        assert_int_equal(tsr_file_read(&f, 0, have, sizeof have, &e.err), TSR_E_PLUGIN);
        expect_named(e.text, "run", deeds[d][1], "/model");
        assert_int_equal(tsr_file_unchanged(&f, &e.err), TSR_E_PLUGIN);
        tsr_file_close(&f);
        tsr_plugin_guard_forget();
    }
}

static void memory_and_locks(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_sealed s;
        int               lock, lost;
        assert_int_equal(tsr_sealed_create(&s, 5000, "weights of a model", &e.err), TSR_OK);
        lose(d, "/memfd:tessera ", "weights of a model");
        assert_int_equal(tsr_sealed_seal(&s, &e.err), TSR_E_PLUGIN);
        lost = s.fd;
        tsr_sealed_destroy(&s);
        assert_int_equal(fcntl(lost, F_GETFD) >= 0, d == 1); /* not the host's to close */
        if (d == 1)
            (void)close(lost);
        assert_int_equal(tsr_output_lock_folder(&lock, at("job"), &e.err), TSR_OK);
        lose(d, "/job$", "/job");
        assert_int_equal(tsr_held_close(lock), TSR_ELOST);
        tsr_plugin_guard_forget();
    }
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(outputs),  TEST(output_folders), TEST(between_looks),    TEST(number_again),
        TEST(journals), TEST(inputs),         TEST(memory_and_locks),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_guard_files UNRULY.so\n");
        return 2;
    }
    if (tsr_pool_create(&pool, 2, NULL) != TSR_OK ||
        tsr_plugin_registry_create(&registry, pool, NULL) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, argv[1], NULL) != TSR_OK)
        return 2;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    tsr_plugin_registry_destroy(registry);
    tsr_pool_destroy(pool);
    return rc;
}
