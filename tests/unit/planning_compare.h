/* planning_compare.h - what a search says, against every plan of a small problem; and what tests of models with experts share.
 *
 * TSR_TEST_SEED chooses the small clusters; TSR_TEST_ALL=1 takes more of them. */
#ifndef TSR_PLANNING_COMPARE_H
#define TSR_PLANNING_COMPARE_H

#include "base/rng.h"
#include "planning_all.h"

#include <math.h>

static uint64_t seed = 1;
static bool     all_of_them;
static unsigned compared;  /* problems with plans */
static unsigned went_back; /* of these plans, rows to a head on the first of several stages */
static uint64_t on_cpus;   /* layers of their plans with experts on a CPU */

#define LINK "link: {bandwidth: 1 GB/s, latency: 10 us}"
#define NET  "network: {bandwidth: 100 MB/s, latency: 30 us}\n"

/* The search may miss plans that fit by less than 1/512 of the smallest device (build.h): it is not
 * better than any plan, nor worse than any with a little room. */
static inline void compare(const char *text, struct tsr_plan_problem_options o, uint64_t batch)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct setting          s;
    struct tsr_plan_planned a;
    double                  best, safe;
    set_up(&s, text, &o, 24, 9, batch);
    uint64_t plans = enumerate(&s.p, &best, &safe);
    if (tsr_search(&a, &s.p, &s.solver, INFINITY, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (!plans) {
        assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
    } else if (isfinite(safe)) {
        assert_int_equal(a.status, TSR_SOLVED_OPTIMAL);
        /* other orders of the same sums */
        if (!(a.objective >= best * (1 - 1e-7)) || !(a.objective <= safe * (1 + 1e-7)))
            fail_msg("%s: %.12g, of %llu plans the best is %.12g, with room %.12g", text,
                     a.objective, (unsigned long long)plans, best, safe);
        if (!(a.bound <= safe * (1 + 1e-7)))
            fail_msg("%s: at least %.12g was proved, but there is %.12g", text, a.bound, safe);
        check_latency(&s.p, &a.outcome);
        for (uint64_t i = 0; i < a.outcome.n_stages; i++)
            assert_true(a.outcome.stages[i].memory.total <= a.outcome.stages[i].memory.capacity);
        for (uint64_t l = 0; l < s.p.shape->layers; l++)
            on_cpus += a.outcome.cpu_experts[l];
        compared++;
        went_back += a.outcome.goes_back;
    }
    tsr_plan_planned_free(&a);
    take_down(&s);
}

#define EXPERTS TSR_SOURCE_ROOT "/tests/golden/models/"

static const char *const expert_texts[] = { "rtn:bits=4,group=8", "rtn:bits=8,group=8" };

static inline struct tsr_plan_problem_options experts(const char *model)
{
    struct tsr_plan_problem_options o = usual();
    o.model = model;
    o.candidates = expert_texts;
    return o;
}

static inline void plan_of(const char *text, struct tsr_plan_problem_options o,
                           struct tsr_plan_planned *a)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct setting    s;
    set_up(&s, text, &o, 24, 9, 4);
    if (tsr_search(a, &s.p, &s.solver, INFINITY, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    /* the outcome's layers outlive the problem, its meshes do not */
    if (a->built)
        tsr_plan_built_destroy(a->built);
    a->built = NULL;
    take_down(&s);
}

/* The tests of one program. */
#define run_planning(name, tests)                                                                  \
    (planning_start() ? planning_end(cmocka_run_group_tests_name(name, tests, NULL, NULL)) : 1)

static inline bool planning_start(void)
{
    const char *s = getenv("TSR_TEST_SEED"), *all = getenv("TSR_TEST_ALL");
    if (s)
        seed = strtoull(s, NULL, 10);
    all_of_them = all && *all == '1';
    return planning_open();
}

static inline int planning_end(int failed)
{
    return planning_close() ? failed : 1;
}

#endif
