/* solver_fixture.h - what tests of solvers share: golden and random problems, and asking a solver
 * through the host, which checks what comes back. */
#ifndef TSR_SOLVER_FIXTURE_H
#define TSR_SOLVER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "conformance/solver/solver.h"
#include "plan/instance/instance.h"
#include "plan/instance/objective.h"
#include "plugin/spec.h"
#include "plugin_open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_registry *registry;
static bool                 all_of_them; /* TSR_TEST_ALL=1 */
static uint64_t             seed = 1;    /* TSR_TEST_SEED */

static inline struct tsr_instance *load(const char *name)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_instance *inst = NULL;
    char                 path[1024];
    (void)snprintf(path, sizeof path, "%s/%s.json", TSR_GOLDEN_PLANNER, name);
    if (tsr_instance_load(&inst, path, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return inst;
}

/* spec is "ilp:form=paper". */
static inline struct tsr_solver_solution *solve(const char *spec, const struct tsr_instance *inst,
                                                const char *name)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_plugin_spec      s = { 0 };
    struct tsr_solver_solution *out = NULL;
    assert_int_equal(tsr_plan_solution_create(&out, inst, &e.err), TSR_OK);
    if (tsr_plugin_spec_open(&s, registry, TSR_KIND_SOLVER, spec, &e.err) != TSR_OK ||
        tsr_plan_solve(inst, &s.found, s.options, out, &e.err) != TSR_OK)
        fail_msg("%s on %s: %s", spec, name, e.text);
    tsr_plugin_spec_close(&s);
    return out;
}

#define OLD_PARTS (2 * TSR_SOLVER_JOBS - 1) /* what every solver of the tree has */
#define ALL_PARTS (2 * TSR_SOLVER_MAX_FIRST - 1)

struct random {
    struct tsr_conformance_problem p;
    struct tsr_instance            inst;
};

static inline struct random *make_random_with(uint64_t index, uint64_t parts)
{
    struct tsr_conformance_case c = { .seed = seed };
    struct random              *r = calloc(1, sizeof *r);
    assert_non_null(r);
    tsr_conformance_problem_small(&r->p, &c, index, parts);
    r->p.in.deadline_us = 0; /* a machine that stands still would look like a solver that gave up */
    r->inst = (struct tsr_instance){ .in = r->p.in,
                                     .devices = r->p.devices,
                                     .features = tsr_instance_features(&r->p.in) };
    return r;
}

static inline struct random *make_random(uint64_t index)
{
    return make_random_with(index, OLD_PARTS);
}

/* The tests of one program; an argument is a filter of their names. */
#define run_solver_tests(name, tests, argc, argv)                                                  \
    (open_solvers(argc, argv)                                                                      \
         ? close_solvers(cmocka_run_group_tests_name(name, tests, NULL, NULL))                     \
         : 1)

static inline bool open_solvers(int argc, char **argv)
{
    const char       *all = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    struct tsr_errbuf e = TSR_ERRBUF(e);
    all_of_them = all && *all == '1';
    seed = s ? strtoull(s, NULL, 10) : 1;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (tsr_plugin_registry_create(&registry, NULL, &e.err) == TSR_OK &&
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) == TSR_OK)
        return true;
    (void)fprintf(stderr, "%s\n", e.text);
    return false;
}

static inline int close_solvers(int failed)
{
    tsr_plugin_registry_destroy(registry);
    return failed;
}

#endif
