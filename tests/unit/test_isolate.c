/* A solver in a process of its own: its answer comes back, and whatever becomes of the process is one
 * sentence while the host lives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"
#include "plan/search/isolate.h"
#include "plugin_open.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tsr_registry    *registry;
static struct tsr_plugin_found uniform;
static struct {
    int64_t labels, pick;
} opts = { 32, 0 };

static struct tsr_instance *load(const char *name)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_instance *inst = NULL;
    char                 path[1024];
    (void)snprintf(path, sizeof path, "%s/%s.json", TSR_GOLDEN_PLANNER, name);
    if (tsr_instance_load(&inst, path, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return inst;
}

/* ---- solvers with a fault ------------------------------------------------------- */

static const struct tsr_host *its_host;
static pid_t                  parent;

static tsr_status create(const struct tsr_host *host, const void *o, void **self,
                         struct tsr_err *err)
{
    (void)o;
    (void)err;
    its_host = host;
    *self = NULL;
    return TSR_OK;
}

static void destroy(void *self)
{
    (void)self;
}

#define SOLVER(name)                                                                               \
    static tsr_status name(void *self, const struct tsr_solver_instance *in,                       \
                           struct tsr_solver_solution *out, struct tsr_err *err)
#define IGNORE() ((void)self, (void)in, (void)out, (void)err)

/* The optimum of example-steady. */
SOLVER(answers)
{
    IGNORE();
    out->status = TSR_SOLVED_FEASIBLE;
    out->objective = 24;
    out->bound = -INFINITY;
    out->option = 0;
    out->stages = 2;
    out->stage_kind[0] = 1;
    out->stage_kind[1] = 0;
    out->stage_first[0] = 0;
    out->stage_first[1] = out->stage_count[0] = out->stage_count[1] = 1;
    out->layer_bits[0] = out->layer_bits[1] = 1;
    return getpid() == parent ? tsr_fail(err, TSR_E_INVAL, "not in a process of its own") : TSR_OK;
}

SOLVER(aborts)
{
    IGNORE();
    (void)fprintf(stderr, "what a library says before it aborts\n");
    abort();
}

SOLVER(crashes)
{
    IGNORE();
    (void)raise(SIGSEGV);
    return TSR_OK;
}

SOLVER(exits)
{
    IGNORE();
    _exit(0);
}

SOLVER(exits_badly)
{
    IGNORE();
    _exit(7);
}

SOLVER(hangs)
{
    IGNORE();
    for (;;)
        (void)pause();
    return TSR_OK;
}

SOLVER(hogs)
{
    IGNORE();
    for (uint64_t i = 0; i < 4096; i++) { /* 4 GiB at most, should nobody stop it */
        volatile char *p = malloc(1 << 20);
        for (uint64_t at = 0; p && at < 1 << 20; at += 4096)
            p[at] = 1;
    }
    return tsr_fail(err, TSR_E_INVAL, "nobody stopped it");
}

SOLVER(refuses)
{
    IGNORE();
    return tsr_fail(err, TSR_E_UNSUPPORTED, "it has no such thing");
}

SOLVER(lies)
{
    tsr_status st = answers(self, in, out, err);
    out->stage_kind[0] = 77;
    return st;
}

static tsr_status count(void *arg, uint64_t begin, uint64_t end)
{
    *(uint64_t *)arg += end - begin;
    return TSR_OK;
}

/* The services that a child has: memory, a loop, log lines that arrive. */
SOLVER(works)
{
    uint64_t n = 0;
    void    *p = its_host->alloc(its_host->ctx, 100, 8);
    its_host->release(its_host->ctx, p, 100);
    its_host->log(its_host->ctx, TSR_LOG_WARN, "first line");
    its_host->log(its_host->ctx, TSR_LOG_DEBUG, "second\nline");
    if (!p || its_host->parallel_for(its_host->ctx, 1000, 10, count, &n) != TSR_OK || n != 1000)
        return tsr_fail(err, TSR_E_INVAL, "the host's services do not work");
    return answers(self, in, out, err);
}

/* ---- the host ---------------------------------------------------------------------- */

static char     said[4][64];
static unsigned n_said;

static void listen(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    if (n_said < 4)
        (void)snprintf(said[n_said++], sizeof said[0], "%d %s", level, msg);
}

typedef tsr_status solver(void *, const struct tsr_solver_instance *, struct tsr_solver_solution *,
                          struct tsr_err *);

static tsr_status isolated(struct tsr_instance *inst, solver *f,
                           const struct tsr_plugin_isolation *limits, struct tsr_solver_solution *s,
                           struct tsr_errbuf *e)
{
    struct tsr_solver_v1    t = { .struct_size = sizeof t,
                                  .supports = UINT64_MAX,
                                  .create = create,
                                  .destroy = destroy,
                                  .solve = f };
    struct tsr_host         host = *uniform.host;
    struct tsr_plugin_found found = uniform;
    host.log = listen;
    found.iface = &t;
    found.host = &host;
    n_said = 0;
    e->text[0] = '\0';
    return limits ? tsr_plan_isolated(&inst->in, &found, &opts, limits, s, &e->err)
                  : tsr_plan_solve(inst, &found, &opts, s, &e->err);
}

static struct tsr_solver_solution *room(const struct tsr_instance *inst)
{
    struct tsr_solver_solution *s = NULL;
    assert_int_equal(tsr_plan_solution_create(&s, inst, NULL), TSR_OK);
    return s;
}

/* What a plugin answers in the host's process it answers from a process of its own. */
static void test_same(void **state)
{
    (void)state;
    static const char *const names[] = { "example-steady", "plain-3", "comm-2", "infeasible-1",
                                         "kitchen-sink-1" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tsr_errbuf           e = TSR_ERRBUF(e);
        struct tsr_instance        *inst = load(names[i]);
        struct tsr_solver_solution *here = room(inst), *there = room(inst);
        struct tsr_plugin_found     f = uniform;
        struct tsr_solver_v1        t = *(const struct tsr_solver_v1 *)uniform.iface;
        assert_int_equal(tsr_plan_solve(inst, &f, &opts, here, &e.err), TSR_OK);
        t.supports |= TSR_SOLVER_ISOLATED;
        f.iface = &t;
        assert_int_equal(tsr_plan_solve(inst, &f, &opts, there, &e.err), TSR_OK);
        assert_int_equal(here->status, there->status);
        if (here->status == TSR_SOLVED_INFEASIBLE) {
            assert_string_equal(here->reason, there->reason);
        } else {
            assert_true(here->objective == there->objective && here->bound == there->bound);
            assert_int_equal(here->stages, there->stages);
            assert_memory_equal(here->stage_kind, there->stage_kind, 4 * here->stages);
            assert_memory_equal(here->stage_first, there->stage_first, 8 * here->stages);
            assert_memory_equal(here->stage_count, there->stage_count, 8 * here->stages);
            assert_memory_equal(here->layer_bits, there->layer_bits, 4 * inst->in.layers);
        }
        free(here);
        free(there);
        tsr_instance_destroy(inst);
    }
}

static void test_services(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = load("example-steady");
    struct tsr_solver_solution *s = room(inst);
    parent = getpid();
    if (isolated(inst, works, NULL, s, &e) != TSR_OK)
        fail_msg("%s", e.text);
    assert_true(s->objective == 24);
    assert_int_equal(n_said, 2);
    assert_string_equal(said[0], "2 first line");
    /* a line is a line also when it has several: what follows has no level and is dropped */
    assert_string_equal(said[1], "0 second");
    free(s);
    tsr_instance_destroy(inst);
}

static void test_ends(void **state)
{
    (void)state;
    static const struct {
        solver     *f;
        tsr_status  st;
        const char *facts;
    } cases[] = {
        { aborts, TSR_E_PLUGIN, "6" },        { crashes, TSR_E_PLUGIN, "11" },
        { exits, TSR_E_PLUGIN, "0" },         { exits_badly, TSR_E_PLUGIN, "7" },
        { hangs, TSR_E_PLUGIN, "0.1" },       { hogs, TSR_E_PLUGIN, "64 MiB" },
        { refuses, TSR_E_UNSUPPORTED, NULL },
    };
    struct tsr_instance        *inst = load("example-steady");
    struct tsr_solver_solution *s = room(inst);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tsr_errbuf                 e = TSR_ERRBUF(e);
        const struct tsr_plugin_isolation limits = { .memory_bytes = 64 << 20,
                                                     .grace_us = cases[i].f == hangs ? 50000 : 0 };
        inst->in.deadline_us = cases[i].f == hangs ? 50000 : 0;
        tsr_status st = isolated(inst, cases[i].f, &limits, s, &e);
        if (st != cases[i].st || !error_is(&e.err, "", cases[i].facts))
            fail_msg("case %zu: status %d: %s", i, st, e.text);
    }
    free(s);
    tsr_instance_destroy(inst);
}

/* What the error is about comes with it, whatever stands in its sentence. */
SOLVER(names)
{
    IGNORE();
    return tsr_fail(err, TSR_E_IO, "%s:%d:%d: damaged", "table.bin", 3, 7);
}

/* The child wrote it: a place outside of the text is none. */
SOLVER(names_wrongly)
{
    tsr_status st = names(self, in, out, err);
    err->cap = UINT32_MAX;
    err->object_at = UINT32_MAX - 4;
    err->text = NULL;
    return st;
}

static void test_object(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = load("example-steady");
    struct tsr_solver_solution *s = room(inst);
    const char                 *object;
    assert_int_equal(isolated(inst, names, NULL, s, &e), TSR_E_IO);
    assert_int_equal(tsr_err_object(&e.err, &object), strlen("table.bin"));
    assert_memory_equal(object, "table.bin", strlen("table.bin"));
    assert_int_equal(e.err.line, 3);
    assert_int_equal(e.err.column, 7);
    assert_int_equal(isolated(inst, names_wrongly, NULL, s, &e), TSR_E_IO);
    if (tsr_err_object(&e.err, &object)) /* what the host puts before it may name something */
        assert_true(object >= e.text && object < e.text + strlen(e.text) &&
                    memcmp(object, "table.bin", 9) != 0);
    free(s);
    tsr_instance_destroy(inst);
}

/* The host judges what comes from there as it does any answer. */
static void test_lies(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = load("example-steady");
    struct tsr_solver_solution *s = room(inst);
    parent = getpid();
    assert_int_equal(isolated(inst, answers, NULL, s, &e), TSR_OK);
    assert_int_equal(isolated(inst, lies, NULL, s, &e), TSR_E_INPUT);
    assert_true(error_is(&e.err, "uniform", "0 kind#77 2"));
    free(s);
    tsr_instance_destroy(inst);
}

static void *stop_soon(void *arg)
{
    (void)usleep(50000);
    tsr_plugin_cancel();
    return arg;
}

static void test_stopped(void **state)
{
    (void)state;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance        *inst = load("example-steady");
    struct tsr_solver_solution *s = room(inst);
    pthread_t                   t;
    assert_int_equal(pthread_create(&t, NULL, stop_soon, NULL), 0);
    tsr_status st = isolated(inst, hangs, NULL, s, &e);
    (void)pthread_join(t, NULL);
    tsr_plugin_cancel_reset();
    assert_int_equal(st, TSR_E_CANCELLED);
    assert_true(error_is(&e.err, "solver \"uniform\"", NULL));
    free(s);
    tsr_instance_destroy(inst);
}

static int open_all(void **state)
{
    (void)state;
    registry = open_plugin(TSR_KIND_SOLVER, "uniform", &uniform);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),   cmocka_unit_test(test_services),
        cmocka_unit_test(test_ends),   cmocka_unit_test(test_lies),
        cmocka_unit_test(test_object), cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests_name("solvers in a process of their own", tests, open_all,
                                       close_all);
}
