/* A plan that may mix widths is never worse than one with a single width for all stages, also where stages fill their devices
 * to the last bytes: what the ranks of a stage store twice counts for the layers of that stage alone.
 *
 * TSR_TEST_SEED chooses the machines; TSR_TEST_ALL=1 takes more of them. */
#include "planning_fixture.h"

#include "base/rng.h"
#include "plan/search/settings.h"

#include <math.h>

static uint64_t seed = 1;

/* The value of the best plan with ranks of `least` to `most` for each stage; INFINITY: proved that there is none. */
static double best(const char *cluster, uint32_t least, uint32_t most, uint64_t batch)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_plan_problem_options o = usual();
    struct setting                  s;
    struct tsr_plan_planned         a;
    o.min_tp = least;
    o.max_tp = most;
    set_up(&s, cluster, &o, 24, 9, batch);
    if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
        fail_msg("%s\n%s", cluster, e.text);
    bool   plan = tsr_plan_planned_has_plan(&a);
    double value = plan ? a.outcome.latency_ms : INFINITY;
    assert_int_equal(a.status, plan ? TSR_SOLVED_OPTIMAL : TSR_SOLVED_INFEASIBLE);
    tsr_plan_planned_free(&a);
    take_down(&s);
    return value;
}

/* Two nodes of two devices; the least of the single widths. */
static double one_width(const char *cluster, uint64_t batch)
{
    return fmin(best(cluster, 1, 1, batch), best(cluster, 2, 2, batch));
}

static void nodes(char text[500], unsigned slow, unsigned fast, unsigned net)
{
    (void)snprintf(text, 500,
                   "version: 1\nnodes:\n"
                   "  - {name: a, devices: [{profile: fast, count: 2}], link: {bandwidth: %u MB/s, "
                   "latency: 20 us}}\n"
                   "  - {name: b, devices: [{profile: slow, count: 2}], link: {bandwidth: %u MB/s, "
                   "latency: 20 us}}\n"
                   "network: {bandwidth: %u MB/s, latency: 30 us}\n",
                   fast, slow, net);
}

/* A plan of two stages of two ranks, of which the last has 2,688 bytes left. */
static void test_last_bytes(void **state)
{
    char text[500];
    (void)state;
    profile("fast", 272, 207);
    profile("slow", 479, 90);
    nodes(text, 32, 23, 10);
    double all = best(text, 0, 0, 2), one = one_width(text, 2);
    assert_true(one < INFINITY && all <= one * (1 + 1e-9));
}

static unsigned between(uint64_t problem, uint64_t number, unsigned least, unsigned most)
{
    return least + (unsigned)(tsr_uniform(seed, problem, number) * (most - least + 1));
}

static void test_random(void **state)
{
    const char *more = getenv("TSR_TEST_ALL");
    uint64_t    problems = more && *more == '1' ? 3000 : 200, plans = 0, better = 0;
    (void)state;
    for (uint64_t i = 0; i < problems; i++) {
        char     text[500];
        unsigned fast = between(i, 0, 150, 600), slow = between(i, 1, 150, 600);
        uint64_t batch = between(i, 7, 1, 4);
        nodes(text, between(i, 4, 2, 60), between(i, 5, 2, 60), between(i, 6, 1, 20));
        profile("fast", fast, between(i, 2, 50, 400));
        profile("slow", slow, between(i, 3, 20, 200));
        double all = best(text, 0, 0, batch);
        /* a search may miss what fits by less than 1/512 of the smallest device (build.c) */
        profile("fast", fast - fast / 256 - 1, between(i, 2, 50, 400));
        profile("slow", slow - slow / 256 - 1, between(i, 3, 20, 200));
        double one = one_width(text, batch);
        plans += isfinite(one) ? 1 : 0;
        better += all < one * (1 - 1e-6) ? 1 : 0;
        if (!(all <= one * (1 + 1e-6)) && isfinite(one))
            fail_msg("problem %llu: %.9g ms, with one width %.9g\n%s", (unsigned long long)i, all,
                     one, text);
    }
    (void)
        printf("%llu of %llu problems have a plan with one width; mixed ones are better in %llu\n",
               (unsigned long long)plans, (unsigned long long)problems, (unsigned long long)better);
    assert_true(plans > problems / 4 && better > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_last_bytes),
                                        cmocka_unit_test(test_random) };
    const char             *s = getenv("TSR_TEST_SEED");
    seed = s ? strtoull(s, NULL, 10) : 1;
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests_name("planning_widths", tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
