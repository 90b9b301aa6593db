/* What is proved of a changed problem with the head on the first stage, and of the least omega in a time, against every plan.
 *
 * An instance has the way back as work of the last stage, so that its objective is above what a plan takes: a bound of
 * objectives is none of times.
 *
 * TSR_TEST_SEED chooses the problems; TSR_TEST_ALL=1 takes more of them. */
#include "planning_compare.h"

#include "plan/search/settings.h"
#include "plan/search/whatif.h"
#include "planning/buys.h"

/* The solver's gap, and the sums of 1e-6 that a plan's status allows (search.c). */
#define NEAR 2e-6

enum change { MEMORY, DEVICE, NETWORK, OMEGA, HEAD, CHANGES };

static unsigned bounded, close_to, omegas, answers;

static unsigned draw(unsigned problem, unsigned number, unsigned below)
{
    return (unsigned)(tsr_uniform(seed, problem, number) * below);
}

/* Two nodes with ways back that matter, and memory so short that plans have several stages. */
static void machines(unsigned i, char text[700])
{
    profile("slow", 220 + draw(i, 1, 200), 100 + draw(i, 2, 300));
    profile("fast", 220 + draw(i, 3, 300), 200 + draw(i, 4, 900));
    (void)
        snprintf(text, 700,
                 "version: 1\nnodes:\n"
                 "  - {name: a, devices: [{profile: slow, count: %u}], link: {bandwidth: %u MB/s, "
                 "latency: %u us}}\n"
                 "  - {name: b, devices: [{profile: fast}], link: {bandwidth: 1 GB/s, latency: "
                 "10 us}}\n"
                 "network: {bandwidth: %u MB/s, latency: %u us}\n",
                 1 + draw(i, 5, 2), 5 + draw(i, 6, 500), draw(i, 7, 300), 5 + draw(i, 8, 200),
                 draw(i, 9, 600));
}

static tsr_status change(struct tsr_plan_variant *v, const struct tsr_plan_problem *p, unsigned i,
                         struct tsr_err *err)
{
    TSR_TRY(tsr_plan_variant_make(v, p, err));
    switch ((enum change)(i % CHANGES)) {
    case MEMORY:
        v->p.more_bytes[0] += 1024 * (int64_t)(20 + draw(i, 10, 200));
        return TSR_OK;
    case DEVICE:
        v->p.more[1] += 1;
        return TSR_OK;
    case NETWORK:
        return tsr_plan_variant_links(v, false, 2, err);
    case OMEGA:
        v->p.max_omega *= 1.5;
        return TSR_OK;
    default:
        tsr_plan_problem_put_head(&v->p, p->o.head == TSR_PLAN_HEAD_FIRST ? TSR_PLAN_HEAD_LAST
                                                                          : TSR_PLAN_HEAD_FIRST);
        return TSR_OK;
    }
}

/* In no time, in a little, and in all that it takes. */
static void is_bound(const struct tsr_plan_problem *p, const struct setting *s, unsigned i,
                     const struct tsr_plan_before *w)
{
    static const double limits[] = { 3e-4, 2e-3, 0 };
    struct all          z = enumerate_all(p);
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        struct tsr_errbuf       e = TSR_ERRBUF(e);
        struct tsr_plan_problem q = *p;
        struct tsr_plan_planned b;
        double                  least;
        q.o.time_limit = limits[k];
        if (tsr_plan_settings_quick(&b, &q, &s->solver, w, &least, &e.err) != TSR_OK)
            fail_msg("problem %u: %s", i, e.text);
        const struct tsr_plan_planned *a = tsr_plan_planned_has_plan(&b) ? &b : w->known;
        if (a && isfinite(z.roomy)) {
            if (!(least <= z.roomy * (1 + NEAR)))
                fail_msg("problem %u: %.9g ms is a plan, and at least %.9g was proved", i, z.roomy,
                         least);
            if (!(a->outcome.latency_ms >= z.best * (1 - 1e-7)))
                fail_msg("problem %u: %.12g ms, of %llu plans the best takes %.12g", i,
                         a->outcome.latency_ms, (unsigned long long)z.plans, z.best);
            answers++;
            bounded += least > 0;
            close_to += least >= 0.99 * z.roomy;
            assert_true(limits[k] > 0 || least > 0);
        }
        tsr_plan_planned_free(&b);
    }
}

static void is_least(const struct tsr_plan_problem *p, const struct setting *s, unsigned i,
                     const struct tsr_plan_planned *a)
{
    struct tsr_planning              pl = { .solver = s->solver };
    const struct tsr_planning_buying z = { .pl = &pl };
    struct tsr_planning_omega        o;
    struct tsr_plan_problem          q = *p;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    double                           ms = a->outcome.latency_ms * (1 + draw(i, 11, 30) / 100.0);
    if (tsr_planning_least_omega(&z, p, ms, a->outcome.omega, INFINITY, &o, &e.err) != TSR_OK)
        fail_msg("problem %u: %s", i, e.text);
    assert_true(o.omega <= a->outcome.omega);
    if (isnan(o.bound))
        return;
    q.max_omega = o.bound * (1 - 1e-6);
    struct all all = enumerate_all(&q);
    if (!(all.roomy > ms * (1 - NEAR)))
        fail_msg("problem %u: omega of %.9g at least was proved for %.9g ms, and a plan takes %.9g",
                 i, o.bound, ms, all.roomy);
    omegas++;
}

static void one(unsigned i)
{
    struct tsr_plan_problem_options o = usual();
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_plan_planned         a;
    struct tsr_plan_variant         v;
    struct setting                  s;
    char                            text[700];
    bool                            other = i % CHANGES == HEAD;
    machines(i, text);
    if (!other || draw(i, 12, 2))
        o.head = TSR_PLAN_HEAD_FIRST;
    if (i % CHANGES == OMEGA || draw(i, 13, 3) == 0)
        o.max_omega = 1.5 + draw(i, 14, 20) / 10.0;
    set_up(&s, text, &o, 24, 9, 1 + draw(i, 15, 4));
    if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (tsr_plan_planned_has_plan(&a)) {
        const struct tsr_plan_before w = { .own = { s.p.memory.batch, s.p.work.chunk, s.p.work.kv,
                                                    s.p.end, s.p.kv_types, s.p.most_k },
                                           .like = &a.outcome,
                                           .known = other ? NULL : &a,
                                           .least_ms = tsr_plan_settings_least(&s.p, &a) };
        struct all                   z = enumerate_all(&s.p);
        assert_true(w.least_ms > 0 && w.least_ms <= z.roomy * (1 + NEAR));
        if (change(&v, &s.p, i, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        is_bound(&v.p, &s, i, &w);
        tsr_plan_variant_free(&v);
        is_least(&s.p, &s, i, &a);
    }
    tsr_plan_planned_free(&a);
    take_down(&s);
}

static void test_back(void **state)
{
    unsigned n = all_of_them ? 600 : 40;
    (void)state;
    for (unsigned i = 0; i < n; i++)
        one(i);
    (void)printf("%u answers, %u with a bound, %u within 1 %%; %u least omegas\n", answers, bounded,
                 close_to, omegas);
    if (seed == 1) /* so that there was something to find */
        assert_true(answers > n && bounded > answers / 2 && close_to > answers / 10 &&
                    omegas > n / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_back) };
    return run_planning("changes_back", tests);
}
