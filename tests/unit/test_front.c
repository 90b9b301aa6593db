/* The front between speed and quality: its points are the fastest plans for their omega, its ends are the fastest and the
 * best plan of all, and what lies between two limits lies between their points.  Fewer choices make no plan faster.
 *
 * TSR_TEST_SEED chooses the machines; TSR_TEST_ALL=1 takes more of them. */
#include "planning_fixture.h"

#include "base/rng.h"
#include "plan/search/front.h"
#include "plan/search/kept.h"

#include <math.h>

static uint64_t seed = 1;
static bool     all_of_them;
static unsigned inner, inside; /* fronts and plans that are not at an end */
static unsigned kept;          /* fronts that go on from a search */

#define GAP 1e-6
#define UNASKED                                                                                    \
    0.99 /* settings.h: what nobody asked for must be 1 % faster; twice, a cache and a chunk */

static const char *const three[] = { "rtn:bits=3,group=2", "rtn:bits=4,group=2",
                                     "rtn:bits=8,group=2", "original" };

static unsigned draw(unsigned problem, unsigned number, unsigned below)
{
    return (unsigned)(tsr_uniform(seed, problem, number) * below);
}

/* Time of the fastest plan with at most this omega, and its own; INFINITY: none. */
static double fastest(const struct tsr_plan_problem *p, const struct tsr_plugin_spec *solver,
                      double limit, double *omega)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = *p;
    struct tsr_plan_planned a;
    double                  ms = INFINITY;
    q.max_omega = limit;
    q.o.theta = 0;
    *omega = INFINITY;
    assert_int_equal(tsr_plan_settings_search(&a, &q, solver, &e.err), TSR_OK);
    if (tsr_plan_planned_has_plan(&a)) {
        assert_true(a.status == TSR_SOLVED_OPTIMAL);
        ms = a.outcome.latency_ms;
        *omega = a.outcome.omega;
        assert_true(*omega <= limit * (1 + 1e-9));
    }
    tsr_plan_planned_free(&a);
    return ms;
}

static void is_front(const struct setting *s, const struct tsr_plan_front *f, unsigned i)
{
    double omega;
    assert_true(f->n >= 1 && f->n <= TSR_PLAN_FRONT);
    unsigned knees = 0, jobs = 0;
    for (uint64_t k = 0; k < f->n; k++) {
        const struct tsr_plan_front_point *v = &f->v[k];
        uint64_t                           layers = 0;
        for (uint64_t c = 0; c < s->p.candidates.n; c++)
            layers += v->layers[c];
        assert_int_equal(layers, s->p.shape->layers);
        assert_true(v->proved && v->bytes > 0 && v->stages > 0);
        assert_true(k == 0 || (v->latency_ms >= v[-1].latency_ms && v->omega < v[-1].omega));
        assert_true(fabs(v->tokens_per_second * v->latency_ms / 1e3 -
                         (double)(s->p.work.batch * s->p.work.n)) < 1e-6 * 96);
        knees += v->knee;
        jobs += v->job;
        assert_false(v->knee && (k == 0 || k + 1 == f->n));
        /* nothing with as little omega is faster */
        double ms = fastest(&s->p, &s->solver, v->omega * (1 + 1e-9), &omega);
        assert_true(ms >= v->latency_ms * (UNASKED * UNASKED - 3 * GAP));
        assert_true(ms <= v->latency_ms * (1 / UNASKED / UNASKED + 3 * GAP));
    }
    assert_true(knees <= 1 && jobs <= 1);
    inner += f->n > 2;
    /* the ends: no limit is faster, and no plan has less omega */
    assert_true(fastest(&s->p, &s->solver, 1e6, &omega) >= f->v[0].latency_ms * (1 - 3 * GAP));
    double last = f->v[f->n - 1].omega;
    if (last > 0)
        assert_true(isinf(fastest(&s->p, &s->solver, last * 0.999, &omega)));
    /* any other limit is between its neighbours */
    for (unsigned k = 0; k < 4; k++) {
        double limit = last + tsr_uniform(seed, 1000 + i, k) * (f->v[0].omega - last);
        double ms = fastest(&s->p, &s->solver, limit, &omega);
        for (uint64_t j = 0; j < f->n; j++)
            if (f->v[j].omega <= limit)
                assert_true(ms <= f->v[j].latency_ms / UNASKED / UNASKED * (1 + 3 * GAP));
            else
                assert_true(ms >= f->v[j].latency_ms * UNASKED * UNASKED * (1 - 3 * GAP) ||
                            f->v[j].omega <= omega);
    }
}

/* The least omega in a time between the ends: in time, no more than that of any point as fast, and less is too slow. */
static void within(const struct setting *s, const struct tsr_plan_front *f, unsigned i)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = s->p;
    struct tsr_plan_planned a;
    double                  omega, first = f->v[0].latency_ms, last = f->v[f->n - 1].latency_ms;
    double                  ms = first * 1.05 + tsr_uniform(seed, 2000 + i, 0) * (last - first);
    tsr_status              st = tsr_plan_settings_within(&a, &q, &s->solver, ms, &e.err);
    /* the job's limit may leave only slower plans than the front's fastest */
    if (st == TSR_E_INFEASIBLE) {
        assert_true(fastest(&s->p, &s->solver, s->p.max_omega, &omega) > ms);
        tsr_plan_planned_free(&a);
        return;
    }
    assert_int_equal(st, TSR_OK);
    assert_true(a.status == TSR_SOLVED_OPTIMAL && a.outcome.latency_ms <= ms);
    assert_true(q.max_omega == s->p.max_omega && a.built->p == &q);
    double slack = 1.002, beaten = ms * UNASKED * UNASKED;
    for (uint64_t k = 0; k < f->n; k++)
        if (f->v[k].latency_ms < beaten && f->v[k].omega <= s->p.max_omega)
            assert_true(a.outcome.omega <= f->v[k].omega * slack);
    if (a.outcome.omega > 0)
        assert_true(fastest(&s->p, &s->solver, a.outcome.omega * 0.997, &omega) > beaten);
    /* the problem has the plan's setting: its fastest plan is that of the answer */
    double again = fastest(&q, &s->solver, a.outcome.omega * (1 + 1e-9), &omega);
    assert_true(again <= a.outcome.latency_ms / UNASKED / UNASKED * (1 + 3 * GAP));
    inside += a.outcome.omega < f->v[0].omega && a.outcome.omega > f->v[f->n - 1].omega;
    tsr_plan_planned_free(&a);
}

/* With the plan's number of requests at once, nothing is faster than with any number. */
static void fewer_choices(const struct setting *s, const struct tsr_plan_front *f)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = s->p;
    struct tsr_plan_front   g;
    double                  omega;
    q.o.free_concurrency = false;
    assert_int_equal(tsr_plan_front_find(&g, &q, NULL, NULL, &s->solver, &e.err), TSR_OK);
    assert_true(g.n >= 1 && g.v[g.n - 1].omega >= f->v[f->n - 1].omega * (1 - 1e-9));
    assert_true(g.v[0].latency_ms >= f->v[0].latency_ms * UNASKED * UNASKED * (1 - 3 * GAP));
    for (uint64_t k = 0; k < g.n; k += 3)
        assert_true(fastest(&s->p, &s->solver, g.v[k].omega * (1 + 1e-9), &omega) <=
                    g.v[k].latency_ms / UNASKED / UNASKED * (1 + 3 * GAP));
    tsr_plan_front_free(&g);
}

/* The job's plan by a search that keeps what it proves: as fast as one that keeps nothing, within the limit of the job, and with
 * instances of that limit.  The front that goes on from there is a front, too. */
static void with_kept(const struct setting *s, double limit, unsigned i)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = s->p;
    struct tsr_plan_bounds  known = { 0 };
    struct tsr_plan_planned b;
    struct tsr_plan_front   g;
    double                  omega;
    q.max_omega = limit;
    double ms = fastest(&s->p, &s->solver, limit, &omega);
    assert_int_equal(tsr_plan_front_own(&b, &q, &known, &s->solver, &e.err), TSR_OK);
    assert_true(tsr_plan_planned_has_plan(&b) && isfinite(ms));
    const struct tsr_solver_instance *in = &b.built->parts[b.part].inst.in;
    assert_true(b.status == TSR_SOLVED_OPTIMAL && b.outcome.omega <= limit * (1 + 1e-9));
    assert_true(b.outcome.latency_ms <= ms / UNASKED / UNASKED * (1 + 3 * GAP));
    assert_true(b.outcome.latency_ms >= ms * UNASKED * UNASKED * (1 - 3 * GAP));
    assert_true(b.built->p == &q && q.max_omega == limit && q.o.gap == s->p.o.gap);
    assert_true(in->max_omega <= limit && b.built->whole.max_omega == in->max_omega);
    kept++;
    assert_int_equal(tsr_plan_front_find(&g, &q, &b, &known, &s->solver, &e.err), TSR_OK);
    is_front(s, &g, i);
    tsr_plan_front_free(&g);
    tsr_plan_planned_free(&b);
    tsr_plan_kept_close(&known);
}

static void test_front(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    unsigned          n = all_of_them ? 40 : 6;
    (void)state;
    for (unsigned i = 0; i < n; i++) {
        struct tsr_plan_problem_options o = usual();
        struct setting                  s;
        struct tsr_plan_planned         a;
        struct tsr_plan_front           f;
        char                            text[600];
        profile("odd", 400 + draw(i, 1, 2000), 200);
        profile("even", 300 + draw(i, 2, 1500), 100 + draw(i, 3, 900));
        (void)snprintf(text, sizeof text,
                       "version: 1\nnodes:\n  - {name: a, devices: [{profile: odd}]}\n"
                       "  - {name: b, devices: [{profile: even}]}\n"
                       "network: {bandwidth: %u MB/s, latency: 30 us}\n",
                       1 + draw(i, 4, 100));
        o.candidates = three;
        o.n_candidates = 4;
        o.gap = GAP;
        o.free_concurrency = o.free_kv = true;
        o.at_least = "uniform-rtn-4";
        set_up(&s, text, &o, 40, 12, 8);
        if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        if (tsr_plan_planned_has_plan(&a)) {
            assert_int_equal(tsr_plan_front_find(&f, &s.p, &a, NULL, &s.solver, &e.err), TSR_OK);
            is_front(&s, &f, i);
            /* with a limit that the plan without one does not keep to, then with one that it does */
            double half = 0.5 * (f.v[0].omega + f.v[f.n - 1].omega);
            if (f.n > 2 && (kept < 2 || all_of_them))
                with_kept(&s, kept % 2 ? 1.001 * f.v[0].omega : half, i);
            if (i < 3 || all_of_them)
                fewer_choices(&s, &f);
            if (f.n > 2)
                within(&s, &f, i);
            tsr_plan_front_free(&f);
        }
        tsr_plan_planned_free(&a);
        take_down(&s);
    }
    assert_true(inner > 0 && inside > 0 && kept > 0);
}

/* One candidate that loses nothing: one point, and no knee. */
static void test_one(void **state)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_plan_problem_options o = usual();
    struct setting                  s;
    struct tsr_plan_planned         a;
    struct tsr_plan_front           f;
    (void)state;
    o.candidates = three + 3;
    o.n_candidates = 1;
    set_up(&s, "version: 1\nnodes:\n  - {name: a, devices: [{profile: fast}]}\n", &o, 8, 4, 1);
    assert_int_equal(tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_front_find(&f, &s.p, &a, NULL, &s.solver, &e.err), TSR_OK);
    assert_int_equal(f.n, 1);
    assert_true(f.v[0].omega == 0 && f.v[0].job && !f.v[0].knee);
    assert_true(f.v[0].latency_ms == a.outcome.latency_ms);
    tsr_plan_front_free(&f);
    tsr_plan_planned_free(&a);
    take_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_one), cmocka_unit_test(test_front) };
    const char             *s = getenv("TSR_TEST_SEED"), *all = getenv("TSR_TEST_ALL");
    if (s)
        seed = strtoull(s, NULL, 10);
    all_of_them = all && *all == '1';
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
