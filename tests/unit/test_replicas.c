/* Replica groups against every way of forming groups and splitting the batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "plan/search/replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* Costs from a table: [a][b][units], rising with the units; `slack` below it is the bound. */
struct table {
    uint64_t types, units, unit;
    double   cost[4][4][8], slack;
    uint64_t calls;
};

static tsr_status cost(void *arg, const uint64_t *nodes, uint64_t batch, double cutoff,
                       double *objective, double *bound, struct tsr_err *err)
{
    struct table *t = arg;
    (void)cutoff;
    (void)err;
    t->calls++;
    assert_int_equal(batch % t->unit, 0);
    assert_true(batch / t->unit >= 1 && batch / t->unit <= t->units);
    *objective = t->cost[nodes[0]][t->types > 1 ? nodes[1] : 0][batch / t->unit];
    *bound = *objective * (1 - t->slack);
    return TSR_OK;
}

/* Every choice: groups in any number from the nodes left, each with every share. */
static double brute(const struct table *t, uint64_t a, uint64_t b, uint64_t max_nodes,
                    uint64_t left)
{
    if (left == 0)
        return 0;
    double best = INFINITY;
    for (uint64_t i = 0; i <= a && i <= max_nodes; i++)
        for (uint64_t j = 0; j <= b && i + j <= max_nodes; j++)
            for (uint64_t u = 1; i + j > 0 && u <= left; u++)
                if (t->cost[i][j][u] < best)
                    best = fmin(best, fmax(t->cost[i][j][u],
                                           brute(t, a - i, b - j, max_nodes, left - u)));
    return best;
}

static void make(struct table *t, uint64_t index, uint64_t types)
{
    uint64_t n = 0;
    *t = (struct table){ .types = types, .units = 1 + index % 5, .unit = 1 + index % 3 };
    for (uint64_t i = 0; i < 4; i++)
        for (uint64_t j = 0; j < 4; j++) {
            double v = 0;
            for (uint64_t u = 1; u <= t->units; u++) {
                v += 10 * tsr_uniform(seed, index, n++) / (double)(1 + i + 2 * j);
                if (tsr_uniform(seed, index, n++) < 0.15) /* and nothing more fits */
                    v = INFINITY;
                t->cost[i][j][u] = v;
            }
        }
}

static void test_brute(void **state)
{
    (void)state;
    const char *all = getenv("TSR_TEST_ALL");
    uint64_t    n = all && *all == '1' ? 2000 : 300, plans = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct table      t;
        make(&t, i, 1 + i % 2);
        t.slack = i % 3 == 0 ? 0.05 : 0;
        struct tsr_plan_replica_problem p = { .types = t.types,
                                              .count = { i % 4, t.types > 1 ? i / 4 % 3 + 1 : 0 },
                                              .batch = t.units * t.unit,
                                              .unit = t.unit,
                                              .max_nodes = 1 + i / 7 % 3,
                                              .gap = 1e-6,
                                              .cost = cost,
                                              .arg = &t };
        struct tsr_plan_replicas        r;
        double     want = brute(&t, p.count[0], p.count[1], p.max_nodes, t.units);
        tsr_status st = tsr_plan_replicas_plan(&r, &p, &e.err);
        if (want == INFINITY) {
            assert_int_equal(st, TSR_E_INFEASIBLE);
            assert_true(error_is(&e.err, "", NULL));
            tsr_plan_replicas_free(&r);
            continue;
        }
        plans++;
        if (st != TSR_OK)
            fail_msg("problem %llu: %s", (unsigned long long)i, e.text);
        /* 1e-6: the gap asked for */
        if (!(fabs(r.objective - want) <= 2e-6 * want) || !(r.bound <= want * (1 + 1e-9)) ||
            !(r.bound >= want * (1 - t.slack) * (1 - 2e-6)))
            fail_msg("problem %llu: %.9g, bound %.9g, the best is %.9g", (unsigned long long)i,
                     r.objective, r.bound, want);
        uint64_t used[2] = { 0 }, batch = 0;
        for (uint64_t g = 0; g < r.n_groups; g++) {
            const struct tsr_plan_replica_group *x = &r.groups[g];
            used[0] += x->copies * x->nodes[0];
            used[1] += x->copies * x->nodes[1];
            batch += x->copies * x->batch;
            assert_true(x->nodes[0] + x->nodes[1] <= p.max_nodes);
            assert_true(x->objective == t.cost[x->nodes[0]][x->nodes[1]][x->batch / t.unit]);
            assert_true(x->objective <= r.objective);
        }
        assert_int_equal(batch, p.batch);
        assert_true(used[0] <= p.count[0] && used[1] <= p.count[1]);
        assert_int_equal(r.solves, t.calls);
        tsr_plan_replicas_free(&r);
    }
    assert_true(plans >= n / 4);
}

/* With a limit: the same split where it is not above that, else none and a bound of at most that. */
static void test_below(void **state)
{
    uint64_t within = 0, above = 0;
    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct table      t;
        make(&t, i, 1 + i % 2);
        t.slack = i % 3 == 0 ? 0.05 : 0;
        struct tsr_plan_replica_problem p = { .types = t.types,
                                              .count = { 2, t.types > 1 ? 2 : 0 },
                                              .batch = t.units * t.unit,
                                              .unit = t.unit,
                                              .max_nodes = 1 + i % 4,
                                              .gap = 1e-6,
                                              .cost = cost,
                                              .arg = &t };
        struct tsr_plan_replicas        r;
        double want = brute(&t, p.count[0], p.count[1], p.max_nodes, t.units);
        p.below = isfinite(want) ? want * (0.5 + tsr_uniform(seed, i, 999)) : 10;
        bool fits = want <= p.below;
        if (tsr_plan_replicas_plan(&r, &p, &e.err) != TSR_OK)
            fail_msg("problem %llu: %s", (unsigned long long)i, e.text);
        if (!(r.bound <= fmin(want, p.below) * (1 + 1e-9)) ||
            !(r.bound >= fmin(want * (1 - t.slack), p.below) * (1 - 2e-6)) ||
            (fits && !(fabs(r.objective - want) <= 2e-6 * want)))
            fail_msg("problem %llu: %.9g, bound %.9g, the best is %.9g, the limit %.9g",
                     (unsigned long long)i, r.objective, r.bound, want, p.below);
        assert_int_equal(r.n_groups > 0, fits);
        within += fits ? 1 : 0;
        above += isfinite(want) && !fits ? 1 : 0;
        tsr_plan_replicas_free(&r);
    }
    assert_true(within > 20 && above > 20);
}

static tsr_status fails(void *arg, const uint64_t *nodes, uint64_t batch, double cutoff,
                        double *objective, double *bound, struct tsr_err *err)
{
    (void)arg;
    (void)nodes;
    (void)batch;
    (void)cutoff;
    (void)objective;
    (void)bound;
    return tsr_fail(err, TSR_E_CANCELLED, "enough");
}

static void test_refused(void **state)
{
    (void)state;
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_plan_replicas        r;
    struct tsr_plan_replica_problem good = { .types = 1,
                                             .count = { 3 },
                                             .batch = 8,
                                             .unit = 2,
                                             .max_nodes = 2,
                                             .gap = 1e-3,
                                             .cost = fails };
    struct tsr_plan_replica_problem p = good;
    assert_int_equal(tsr_plan_replicas_plan(&r, &p, &e.err), TSR_E_CANCELLED);
    assert_string_equal(e.text, "enough");
    tsr_plan_replicas_free(&r);
    p.unit = 3;
    assert_int_equal(tsr_plan_replicas_plan(&r, &p, &e.err), TSR_E_INVAL);
    p = good;
    p.max_nodes = 9;
    assert_int_equal(tsr_plan_replicas_plan(&r, &p, &e.err), TSR_E_INVAL);
    p = good;
    p.types = 5;
    for (int i = 0; i < 5; i++)
        p.count[i] = 100;
    assert_int_equal(tsr_plan_replicas_plan(&r, &p, &e.err), TSR_E_UNSUPPORTED);
    assert_true(error_is(&e.err, "", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_brute), cmocka_unit_test(test_below),
                                        cmocka_unit_test(test_refused) };
    const char             *s = getenv("TSR_TEST_SEED");
    seed = s ? strtoull(s, NULL, 10) : 1;
    return cmocka_run_group_tests_name("replicas", tests, NULL, NULL);
}
