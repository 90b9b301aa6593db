/* What a plugin does to its process is found out, put back and told with its name and the call; an end
 * of the process is named too.   test_guard UNRULY.so */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/pool.h"
#include "plugin/guard.h"
#include "plugin/spec.h"
#include "tessera/backend.h"
#include "tessera/codec.h"
#include "tessera/kv.h"
#include "tessera/quantizer_block.h"
#include "tessera/sampler.h"
#include "tessera/solver.h"
#include "tessera/step.h"
#include "tessera/transport.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char          *file;
static struct tsr_pool     *pool;
static struct tsr_registry *registry;

/* An instance that does `deed` in `at`. */
struct one {
    struct tsr_plugin_spec spec;
    struct tsr_errbuf      e;
    void                  *self;
    tsr_status             st; /* of create() */
};

static struct one *open_one(const char *kind, const char *deed, const char *at)
{
    struct one *o = calloc(1, sizeof *o);
    char        text[80];
    assert_non_null(o);
    o->e = (struct tsr_errbuf)TSR_ERRBUF(o->e);
    (void)snprintf(text, sizeof text, "unruly:deed=%s,at=%s", deed, at);
    if (tsr_plugin_spec_open(&o->spec, registry, kind, text, &o->e.err) != TSR_OK)
        fail_msg("%s", o->e.text);
    const struct tsr_transport_v1 *t = o->spec.found.iface;
    const struct tsr_solver_v1    *s = o->spec.found.iface;
    struct tsr_transport_world     w = { .struct_size = sizeof w, .ranks = 1 };
    if (strcmp(kind, TSR_KIND_TRANSPORT) == 0)
        o->st = t->create(o->spec.found.host, o->spec.options, &w, &o->self, &o->e.err);
    else if (strcmp(kind, TSR_KIND_SOLVER) == 0)
        o->st = s->create(o->spec.found.host, o->spec.options, &o->self, &o->e.err);
    else if (strcmp(kind, TSR_KIND_QUANTIZER) == 0)
        o->st = ((const struct tsr_quantizer_v1 *)o->spec.found.iface)
                    ->create(o->spec.found.host, o->spec.options, &o->self, &o->e.err);
    else if (strcmp(kind, TSR_KIND_CODEC) == 0)
        o->st = ((const struct tsr_codec_v1 *)o->spec.found.iface)
                    ->create(o->spec.found.host, o->spec.options, &o->self, &o->e.err);
    else if (strcmp(kind, TSR_KIND_SAMPLER) == 0)
        o->st = ((const struct tsr_sampler_v1 *)o->spec.found.iface)
                    ->create(o->spec.found.host, o->spec.options, &o->self, &o->e.err);
    else if (strcmp(kind, TSR_KIND_KV) == 0)
        o->st = ((const struct tsr_kv_v1 *)o->spec.found.iface)
                    ->create(o->spec.found.host, o->spec.options, &o->self, &o->e.err);
    else if (strcmp(kind, TSR_KIND_STEP) == 0)
        o->st = ((const struct tsr_step_v1 *)o->spec.found.iface)
                    ->create(o->spec.found.host, o->spec.options, &o->self, &o->e.err);
    else
        o->st = ((const struct tsr_backend_v1 *)o->spec.found.iface)
                    ->create(o->spec.found.host, o->spec.options, &o->self, &o->e.err);
    return o;
}

static void close_one(struct one *o)
{
    tsr_plugin_spec_close(&o->spec);
    free(o);
}

static tsr_status solve(struct one *o)
{
    const struct tsr_solver_v1 *s = o->spec.found.iface;
    struct tsr_solver_instance  in = { .struct_size = sizeof in };
    struct tsr_solver_solution  out = { .struct_size = sizeof out };
    return s->solve(o->self, &in, &out, &o->e.err);
}

static void expect_fault(struct one *o, tsr_status st, const char *call, const char *facts)
{
    char who[1200];
    if (st != TSR_E_PLUGIN)
        fail_msg("%s: status %d: %s", call, st, o->e.text);
    (void)snprintf(who, sizeof who, "unruly.so: %s \"unruly\" of org.tessera.test.unruly",
                   strchr(o->spec.found.component->kind, '.') + 1);
    char *end = strchr(who, '/'); /* "solver/1" */
    if (end)
        memmove(end, end + 2, strlen(end + 2) + 1);
    assert_true(error_is(&o->e.err, who, call));
    assert_true(error_is(&o->e.err, who, facts));
    assert_non_null(tsr_plugin_guard_fault());
    tsr_plugin_guard_forget();
}

/* ---- calls that are looked at whole ----------------------------------------------------------- */

static void put_back(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        { "flush", "floating-point" },
        { "round", "floating-point" },
        { "pool_flush", "floating-point" },
        { "folder", "folder" },
        { "mask", "15" },
        { "handler", "handler 2" },
        { "locale", "locale C.UTF-8" },
        { "uselocale", "thread locale" },
        { "umask", "umask 022 777" },
        { "close_stdout", "stdout" },
        { "swap_stderr", "stderr" },
        { "status", "12345" },
        { "unknown", "-77 later minor" },
    };
    (void)umask(022);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct one             *o = open_one(TSR_KIND_SOLVER, all[i][0], "solve");
        struct tsr_plugin_state was;
        char                    what[400];
        assert_int_equal(o->st, TSR_OK);
        tsr_plugin_state_take(&was);
        tsr_status st = solve(o);
        unsigned   n = tsr_plugin_state_compare(&was, what, sizeof what);
        tsr_plugin_state_free(&was);
        if (n)
            fail_msg("%s: not put back: it %s", all[i][0], what);
        if (strcmp(all[i][0], "pool_flush") == 0 && st == TSR_OK) {
            /* it took no notice */
            assert_true(text_has(tsr_plugin_guard_fault(), all[i][1]));
            tsr_plugin_guard_forget();
        } else {
            expect_fault(o, st, "solve", all[i][1]);
        }
        o->e.text[0] = '\0';
        ((const struct tsr_solver_v1 *)o->spec.found.iface)->destroy(o->self);
        assert_null(tsr_plugin_guard_fault());
        close_one(o);
    }
}

/* An instance that comes with a fault is not handed out, and not lost. */
static void create_too(void **state)
{
    (void)state;
    static const char *const kinds[] = { TSR_KIND_SOLVER,    TSR_KIND_QUANTIZER, TSR_KIND_CODEC,
                                         TSR_KIND_TRANSPORT, TSR_KIND_BACKEND,   TSR_KIND_SAMPLER,
                                         TSR_KIND_STEP,      TSR_KIND_KV };
    uint64_t                 before, now, peak;
    tsr_plugin_registry_memory(registry, &before, &peak);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct one *o = open_one(kinds[i], "folder", "create");
        expect_fault(o, o->st, "create", "folder");
        assert_null(o->self);
        close_one(o);
    }
    tsr_plugin_registry_memory(registry, &now, &peak);
    assert_int_equal(before, now);
}

static void no_text(void **state)
{
    (void)state;
    struct one *o = open_one(TSR_KIND_SOLVER, "silent", "solve");
    (void)snprintf(o->e.text, sizeof o->e.text, "of an earlier call");
    assert_int_equal(solve(o), TSR_E_NUMERIC);
    assert_true(error_is(&o->e.err, "unruly.so: solver \"unruly\" of org.tessera.test.unruly",
                         "solve TSR_E_NUMERIC"));
    ((const struct tsr_solver_v1 *)o->spec.found.iface)->destroy(o->self);
    assert_null(tsr_plugin_guard_fault());
    close_one(o);
}

/* What a caller had in err stays where the call went well. */
static void good(void **state)
{
    (void)state;
    struct one *o = open_one(TSR_KIND_SOLVER, "none", "solve");
    (void)snprintf(o->e.text, sizeof o->e.text, "kept");
    assert_int_equal(solve(o), TSR_OK);
    assert_string_equal(o->e.text, "kept");
    ((const struct tsr_solver_v1 *)o->spec.found.iface)->destroy(o->self);
    ((const struct tsr_solver_v1 *)o->spec.found.iface)->destroy(NULL);
    assert_null(tsr_plugin_guard_fault());
    close_one(o);
}

/* ---- calls of which there are many ------------------------------------------------------------ */

static tsr_status call(struct one *o, const char *kind, const char *name)
{
    const struct tsr_quantizer_v1 *q = o->spec.found.iface;
    const struct tsr_codec_v1     *c = o->spec.found.iface;
    const struct tsr_transport_v1 *t = o->spec.found.iface;
    const struct tsr_backend_v1   *b = o->spec.found.iface;
    struct tsr_matrix              w = { .struct_size = sizeof w };
    struct tsr_quant_plan          p = { .struct_size = sizeof p };
    struct tsr_quant_job           qj = { .struct_size = sizeof qj };
    struct tsr_codec_job           cj = { .struct_size = sizeof cj };
    const struct tsr_sampler_v1   *m = o->spec.found.iface;
    struct tsr_sampler_job         mj = { .struct_size = sizeof mj };
    struct tsr_sampler_sizes       z = { .struct_size = sizeof z };
    const struct tsr_step_v1      *e = o->spec.found.iface;
    struct tsr_step_job            ej = { .struct_size = sizeof ej };
    const struct tsr_kv_v1        *v = o->spec.found.iface;
    struct tsr_kv_layout           l = { .struct_size = sizeof l };
    uint32_t                       token;
    struct tsr_op                  op = { .struct_size = sizeof op };
    struct tsr_err                *err = &o->e.err;
    void                          *request;
    int32_t                        done;
    uint64_t                       bytes;
    if (strcmp(kind, TSR_KIND_QUANTIZER) == 0)
        return strcmp(name, "plan") == 0 ? q->plan(o->self, &w, &p, err)
                                         : q->quantize(o->self, &qj, err);
    if (strcmp(kind, TSR_KIND_CODEC) == 0)
        return strcmp(name, "encode") == 0 ? c->encode(o->self, &cj, err)
                                           : c->wire_bytes(o->self, 1, 1, &bytes, err);
    if (strcmp(kind, TSR_KIND_SAMPLER) == 0)
        return strcmp(name, "sample") == 0  ? m->sample(o->self, &mj, &token, err)
               : strcmp(name, "sizes") == 0 ? m->sizes(o->self, 1, &z, err)
               : strcmp(name, "start") == 0 ? m->start(o->self, NULL, NULL, err)
                                            : m->accept(o->self, NULL, 0, err);
    if (strcmp(kind, TSR_KIND_KV) == 0)
        return strcmp(name, "layout") == 0   ? v->layout(o->self, 0, 1, &l, err)
               : strcmp(name, "encode") == 0 ? v->encode(o->self, 0, 1, 1, NULL, NULL, err)
               : strcmp(name, "decode") == 0 ? v->decode(o->self, 0, 1, 1, NULL, NULL, err)
               : strcmp(name, "score") == 0  ? v->score(o->self, 1, NULL, 1, NULL, NULL, err)
                                             : v->mix(o->self, 1, NULL, 1, NULL, NULL, err);
    if (strcmp(kind, TSR_KIND_STEP) == 0)
        return strcmp(name, "run") == 0 ? e->run(o->self, &ej, err) : e->check(o->self, &ej, err);
    if (strcmp(kind, TSR_KIND_TRANSPORT) == 0)
        return strcmp(name, "send") == 0   ? t->send(o->self, NULL, 0, NULL, 0, &request, err)
               : strcmp(name, "test") == 0 ? t->test(o->self, NULL, &done, err)
                                           : t->wait(o->self, NULL, 0, err);
    return strcmp(name, "run") == 0 ? b->run(o->self, NULL, &op, err) : b->sync(o->self, NULL, err);
}

static void end_of(struct one *o, const char *kind)
{
    if (strcmp(kind, TSR_KIND_QUANTIZER) == 0)
        ((const struct tsr_quantizer_v1 *)o->spec.found.iface)->destroy(o->self);
    else if (strcmp(kind, TSR_KIND_CODEC) == 0)
        ((const struct tsr_codec_v1 *)o->spec.found.iface)->destroy(o->self);
    else if (strcmp(kind, TSR_KIND_SAMPLER) == 0)
        ((const struct tsr_sampler_v1 *)o->spec.found.iface)->destroy(o->self);
    else if (strcmp(kind, TSR_KIND_KV) == 0)
        ((const struct tsr_kv_v1 *)o->spec.found.iface)->destroy(o->self);
    else if (strcmp(kind, TSR_KIND_STEP) == 0)
        ((const struct tsr_step_v1 *)o->spec.found.iface)->destroy(o->self);
    else if (strcmp(kind, TSR_KIND_TRANSPORT) == 0)
        ((const struct tsr_transport_v1 *)o->spec.found.iface)->destroy(o->self);
    else
        ((const struct tsr_backend_v1 *)o->spec.found.iface)->destroy(o->self);
}

static const char *const many[][2] = {
    { TSR_KIND_QUANTIZER, "plan" }, { TSR_KIND_QUANTIZER, "quantize" },
    { TSR_KIND_CODEC, "encode" },   { TSR_KIND_CODEC, "wire_bytes" },
    { TSR_KIND_TRANSPORT, "send" }, { TSR_KIND_TRANSPORT, "test" },
    { TSR_KIND_TRANSPORT, "wait" }, { TSR_KIND_BACKEND, "run" },
    { TSR_KIND_BACKEND, "sync" },   { TSR_KIND_SAMPLER, "sample" },
    { TSR_KIND_SAMPLER, "sizes" },  { TSR_KIND_SAMPLER, "start" },
    { TSR_KIND_SAMPLER, "accept" }, { TSR_KIND_STEP, "run" },
    { TSR_KIND_STEP, "check" },     { TSR_KIND_KV, "layout" },
    { TSR_KIND_KV, "encode" },      { TSR_KIND_KV, "decode" },
    { TSR_KIND_KV, "score" },       { TSR_KIND_KV, "mix" },
};

static void mode_after_each(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        static const char *const deeds[][2] = {
            { "flush", "floating-point mode" },
            { "status", "answered 12345" },
        };
        for (size_t k = 0; k < 2; k++) {
            struct one              *o = open_one(many[i][0], deeds[k][0], many[i][1]);
            struct tsr_plugin_fpmode was = tsr_fpmode_get();
            const char              *name = many[i][1];
            tsr_status               st = call(o, many[i][0], name);
            if (strcmp(many[i][0], TSR_KIND_BACKEND) == 0 && strcmp(name, "run") == 0 &&
                k == 0) { /* found where the stream is waited for */
                assert_int_equal(st, TSR_OK);
                name = "sync";
                st = call(o, many[i][0], name);
            }
            assert_true(tsr_fpmode_equal(was, tsr_fpmode_get()));
            expect_fault(o, st, name, deeds[k][1]);
            end_of(o, many[i][0]);
            close_one(o);
        }
    }
}

/* The rest is found at the latest when the instance goes, and named by the call after which it was. */
static void rest_at_the_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        char before[1024], now[1024], name[40];
        assert_non_null(getcwd(before, sizeof before));
        struct one *o = open_one(many[i][0], "folder", many[i][1]);
        tsr_status  st = call(o, many[i][0], many[i][1]);
        end_of(o, many[i][0]);
        assert_true(st == TSR_OK || st == TSR_E_PLUGIN);
        assert_non_null(tsr_plugin_guard_fault());
        (void)snprintf(name, sizeof name, "%s folder", many[i][1]);
        assert_true(text_has(tsr_plugin_guard_fault(), name));
        assert_non_null(getcwd(now, sizeof now));
        assert_string_equal(before, now);
        tsr_plugin_guard_forget();
        close_one(o);
    }
}

/* A piece of work that goes on for long is looked at all the same. */
static void rest_before_the_end(void **state)
{
    (void)state;
    struct one *o = open_one(TSR_KIND_BACKEND, "folder", "sync");
    tsr_status  st = TSR_OK;
    for (int i = 0; i < 400 && st == TSR_OK; i++) {
        st = call(o, TSR_KIND_BACKEND, "sync");
        (void)usleep(10000);
    }
    expect_fault(o, st, "sync", "changed the working folder");
    end_of(o, TSR_KIND_BACKEND);
    close_one(o);
}

/* Tables that are asked for by name are the host's too, and functions without a status tell their fault
 * at the end of the command. */
static void optional_tables(void **state)
{
    (void)state;
    struct one                          *o = open_one(TSR_KIND_QUANTIZER, "flush", "clip_group");
    const struct tsr_quantizer_v1       *q = o->spec.found.iface;
    const struct tsr_quantizer_block_v1 *t = q->extension(o->self, TSR_QUANTIZER_BLOCK);
    assert_non_null(t);
    assert_ptr_equal(t, q->extension(o->self, TSR_QUANTIZER_BLOCK));
    assert_null(t->search); /* as the plugin has it */
    assert_null(q->extension(o->self, "tessera.none/1"));
    assert_null(q->prepare);
    assert_int_equal(q->promises, TSR_QUANT_DETERMINISTIC);
    struct tsr_plugin_fpmode was = tsr_fpmode_get();
    assert_int_equal(t->clip_group(o->self, 7), 7);
    assert_true(tsr_fpmode_equal(was, tsr_fpmode_get()));
    assert_true(text_has(tsr_plugin_guard_fault(), "clip_group floating-point"));
    tsr_plugin_guard_forget();
    q->destroy(o->self);
    close_one(o);
}

static void before_there_is_one(void **state)
{
    (void)state;
    struct tsr_plugin_spec spec;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    assert_int_equal(tsr_plugin_spec_open(&spec, registry, TSR_KIND_TRANSPORT,
                                          "unruly:deed=flush,at=world_bytes", &e.err),
                     TSR_OK);
    const struct tsr_transport_v1 *t = spec.found.iface;
    assert_null(t->via);
    assert_int_equal(t->world_bytes(spec.options, 3), 3);
    assert_true(text_has(tsr_plugin_guard_fault(), "world_bytes floating-point"));
    tsr_plugin_guard_forget();
    tsr_plugin_spec_close(&spec);
}

/* ---- ends of the process ------------------------------------------------------------------------ */

/* What solve() with `deed` does to a process of its own, and what that wrote to stderr. */
static int end_in_child(const char *deed, char *text, size_t cap)
{
    int fds[2], status;
    assert_int_equal(pipe(fds), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = { 0, 0 };
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)dup2(fds[1], STDERR_FILENO);
        (void)alarm(20);
#ifndef TSR_SANITIZED
        static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            (void)signal(signals[i], SIG_DFL); /* the test frame has them */
#endif
        struct tsr_pool     *p = NULL;
        struct tsr_registry *r = NULL;
        if (tsr_pool_create(&p, 3, NULL) != TSR_OK ||
            tsr_plugin_registry_create(&r, p, NULL) != TSR_OK ||
            tsr_plugin_registry_add_path(r, file, NULL) != TSR_OK)
            _exit(90);
        registry = r;
        struct one *o = open_one(TSR_KIND_SOLVER, deed, "solve");
        (void)solve(o);
        _exit(tsr_plugin_guard_fault() ? 91 : 92);
    }
    (void)close(fds[1]);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n + 1 < cap; n += got > 0 ? (size_t)got : 0)
        got = read(fds[0], text + n, cap - 1 - n);
    text[n] = '\0';
    (void)close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void expect_end(const char *deed, int code, int sig, const char *facts)
{
    char text[4096];
    int  status = end_in_child(deed, text, sizeof text);
    if (code ? !WIFEXITED(status) || WEXITSTATUS(status) != code
             : !WIFSIGNALED(status) || WTERMSIG(status) != sig)
        fail_msg("%s: status %x: %s", deed, (unsigned)status, text);
    if (!text_has(text, "error unruly.so solver org.tessera.test.unruly solve") ||
        !text_has(text, facts) || strchr(text, '\n') != text + strlen(text) - 1)
        fail_msg("%s: %s", deed, text);
}

static void exits(void **state)
{
    (void)state;
    expect_end("exit", 1, 0, "exit");
#ifndef TSR_SANITIZED
    expect_end("exit_now", 1, 0, "_exit");
    expect_end("quick_exit", 1, 0, "quick_exit");
#endif
}

static void crashes(void **state)
{
    (void)state;
#ifdef TSR_SANITIZED
    skip(); /* a sanitizer has the signals */
#else
    expect_end("segv", 0, SIGSEGV, "SIGSEGV");
    expect_end("fpe", 0, SIGFPE, "SIGFPE");
    expect_end("abort", 0, SIGABRT, "SIGABRT");
    expect_end("pool_segv", 0, SIGSEGV, "SIGSEGV");
    expect_end("stack", 0, SIGSEGV, "SIGSEGV");
#endif
}

/* Descriptors of the host cannot be put back, and the step fails; in a process that has no use of them. */
static void closes_all(void **state)
{
    (void)state;
    char text[4096];
    int  status = end_in_child("close_all", text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 91);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_guard UNRULY.so\n");
        return 2;
    }
    file = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exits),           cmocka_unit_test(crashes),
        cmocka_unit_test(closes_all),      cmocka_unit_test(good),
        cmocka_unit_test(put_back),        cmocka_unit_test(create_too),
        cmocka_unit_test(no_text),         cmocka_unit_test(mode_after_each),
        cmocka_unit_test(rest_at_the_end), cmocka_unit_test(rest_before_the_end),
        cmocka_unit_test(optional_tables), cmocka_unit_test(before_there_is_one),
    };
    if (tsr_pool_create(&pool, 3, NULL) != TSR_OK ||
        tsr_plugin_registry_create(&registry, pool, NULL) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, file, NULL) != TSR_OK)
        return 2;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    tsr_plugin_registry_destroy(registry);
    tsr_pool_destroy(pool);
    return rc;
}
