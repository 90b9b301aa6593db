/* The 99 plans that the authors of LLM-PQ published: their memory by the papers' accounting, and
 * what the planner finds for the same devices in the same order, workload, micro-batches and quality.
 *
 * Quality is the sum of one table of indicators for both, the stated prior: any table would do, since
 * the planner is asked for a plan whose sum is not above theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "authors_job.h"
#include "plan/instance/objective.h"
#include "plan/search/search.h"
#include "plugin/registry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB      (UINT64_C(1) << 20)
#define FEASIBLE 95u /* of the 99 plans, by the papers' accounting */

static struct tsr_registry *registry;
static struct authors_plan *plans;
static uint64_t             n_plans;

/* ---- memory -------------------------------------------------------------------------------------- */

/* Weights and KV are whole MiB in that accounting, so they must be equal; the budget is printed with
 * three digits. */
static void test_memory(void **state)
{
    (void)state;
    uint64_t fits = 0;
    for (uint64_t i = 0; i < n_plans; i++) {
        const struct authors_plan *p = &plans[i];
        struct authors_job         j;
        bool                       all = true;
        authors_job_open(&j, registry, p, p->tokens, TSR_OBJECTIVE_PAPER, TSR_PLAN_ACCOUNT_PAPER,
                         TSR_PLAN_HEAD_LAST);
        for (uint64_t s = 0, first = 0, g = 0, in = 0; s < p->stages; first += p->count[s++]) {
            struct tsr_errbuf            e = TSR_ERRBUF(e);
            struct tsr_plan_stage_memory m;
            struct tsr_plan_mesh         mesh;
            if (in == j.cluster->groups[g].count) {
                g++;
                in = 0;
            }
            in++;
            tsr_plan_mesh_of(j.cluster, g, 1, &mesh);
            if (tsr_plan_memory_stage(&j.problem.memory, &mesh, &j.problem.candidates, p->bits,
                                      NULL, first, p->count[s], p->prefill_mb, p->decode_mb, &m,
                                      &e.err) != TSR_OK)
                fail_msg("%s: %s", p->id, e.text);
            double budget =
                ((double)m.capacity - (double)m.ends - (double)m.workspace) / (double)MIB;
            if (m.weights + m.kv != p->used_mib[s] * MIB ||
                !(fabs(budget - p->budget_mib[s]) <= 0.001))
                fail_msg("%s, stage %llu: %.3f MiB of %.3f, the authors' code has %llu of %.3f",
                         p->id, (unsigned long long)s, (double)(m.weights + m.kv) / (double)MIB,
                         budget, (unsigned long long)p->used_mib[s], p->budget_mib[s]);
            all = all && m.total <= m.capacity;
        }
        assert_int_equal(all, p->fits);
        fits += all;
        authors_job_close(&j);
    }
    assert_int_equal(fits, FEASIBLE);
}

/* ---- the same with ours --------------------------------------------------------------------------- */

static double omega_of(const struct tsr_plan_quality *q, const struct authors_plan *p)
{
    double sum = 0;
    for (uint64_t l = 0; l < p->layers; l++)
        sum += q->omega[l * q->candidates + p->bits[l]];
    return sum;
}

struct score {
    uint64_t compared, infeasible, better;
    double   gain; /* sum of logs */
};

static void compare(const struct authors_plan *p, int64_t objective, int64_t accounting,
                    const struct tsr_plugin_spec *solver, struct score *score)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct authors_job     j;
    struct tsr_plan_built *b = NULL;
    double                 best = INFINITY, v = NAN;
    char                   why[512] = "";
    uint32_t               tp[AUTHORS_STAGES];
    for (unsigned i = 0; i < AUTHORS_STAGES; i++)
        tp[i] = 1;
    authors_job_open(&j, registry, p, p->tokens, objective, accounting, TSR_PLAN_HEAD_LAST);
    if (tsr_plan_build(&b, &j.problem, &(struct tsr_plan_space){ .ways = tp, .stride = 1 },
                       &e.err) != TSR_OK)
        fail_msg("%s: %s", p->id, e.text);
    for (uint64_t i = 0; i < b->n_parts; i++)
        if (authors_job_value(b, i, p, &v, why, sizeof why))
            best = fmin(best, v);
    tsr_plan_built_destroy(b);
    if (isinf(best)) {
        (void)printf("  %s (%s, %s, cluster %u) does not fit by %s accounting: %s\n", p->id,
                     p->method, p->model, p->cluster,
                     accounting == TSR_PLAN_ACCOUNT_PAPER ? "the papers'" : "exact", why);
        score->infeasible++;
        authors_job_close(&j);
        return;
    }
    struct tsr_plan_planned a = { 0 };
    j.problem.max_omega = omega_of(&j.problem.quality, p);
    if (tsr_search(&a, &j.problem, solver, INFINITY, &e.err) != TSR_OK)
        fail_msg("%s: %s", p->id, e.text);
    if (!tsr_plan_planned_has_plan(&a))
        fail_msg("%s: no plan, though the authors' one is possible: %s", p->id, a.reason);
    /* the solver may stop within its gap */
    if (!(a.objective <= best * (1 + j.options.gap) &&
          a.outcome.omega <= j.problem.max_omega * (1 + 1e-9)))
        fail_msg("%s: ours takes %.17g ms (status %u, bound %.17g) with omega %.17g, theirs %.17g "
                 "with %.17g",
                 p->id, a.objective, a.status, a.bound, a.outcome.omega, best, j.problem.max_omega);
    score->compared++;
    score->better += a.objective < best * (1 - 1e-3);
    score->gain += log(best / a.objective);
    tsr_plan_planned_free(&a);
    authors_job_close(&j);
}

static void test_not_worse(void **state)
{
    (void)state;
    const char            *all = getenv("TSR_TEST_ALL"), *seed = getenv("TSR_TEST_SEED");
    bool                   whole = all && *all == '1';
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plugin_spec solver = { 0 };
    uint64_t               at = seed ? strtoull(seed, NULL, 10) : 0;
    if (tsr_plugin_spec_open(&solver, registry, TSR_KIND_SOLVER, "exact", &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (unsigned c = 0; c < 4; c++) {
        struct score s = { 0 };
        for (uint64_t i = whole ? 0 : (at + c) % 24; i < n_plans; i += whole ? 1 : 24)
            compare(&plans[i], c % 2 ? TSR_OBJECTIVE_PAPER : TSR_OBJECTIVE_STEADY,
                    c / 2 ? TSR_PLAN_ACCOUNT_PAPER : TSR_PLAN_ACCOUNT_EXACT, &solver, &s);
        (void)printf("objective %s, accounting %s: %llu plans not worse than the authors', %llu "
                     "better by more than 0.1 %%, %.3f times as fast on average; %llu of theirs do "
                     "not fit\n",
                     c % 2 ? "paper" : "steady", c / 2 ? "paper" : "exact",
                     (unsigned long long)s.compared, (unsigned long long)s.better,
                     exp(s.gain / (double)(s.compared ? s.compared : 1)),
                     (unsigned long long)s.infeasible);
        if (whole && c / 2)
            assert_int_equal(s.compared, FEASIBLE);
    }
    tsr_plugin_spec_close(&solver);
}

static int open_all(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_plugin_registry_create(&registry, NULL, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    plans = authors_load(&n_plans);
    assert_int_equal(n_plans, 99);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    free(plans);
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_memory),
                                        cmocka_unit_test(test_not_worse) };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
