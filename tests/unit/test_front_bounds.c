/* What searches of a front prove for each other: bounds of settings from other slopes and limits, and of all rounds of a batch,
 * are never above what any plan has.
 *
 * TSR_TEST_SEED chooses the plans and the stages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/search/build_internal.h"
#include "plan/search/settings.h"

#include <math.h>
#include <stdlib.h>

static uint64_t seed = 1;

#define PLANS 6u

static double draw(uint64_t a, uint64_t b, double low, double high)
{
    return low + tsr_uniform(seed, a, b) * (high - low);
}

struct plan {
    double ms, omega;
};

/* The least time + slope omega of the plans within a limit; INFINITY: there is none. */
static double least(const struct plan *v, double limit, double slope)
{
    double best = INFINITY;
    for (unsigned i = 0; i < PLANS; i++)
        if (v[i].omega <= limit)
            best = fmin(best, v[i].ms + slope * v[i].omega);
    return best;
}

static void test_lines(void **state)
{
    unsigned said = 0, two = 0, none = 0;
    (void)state;
    for (uint64_t i = 0; i < 3000; i++) {
        struct plan                v[PLANS];
        uint32_t                   used[2] = { 0, 0 };
        struct tsr_plan_bound_line lines[2 * TSR_PLAN_BOUND_LINES];
        struct tsr_plan_bounds     b = { .n = 2, .used = used, .lines = lines };
        for (unsigned k = 0; k < PLANS; k++)
            v[k] = (struct plan){ draw(i, k, 10, 100), k ? draw(i, 10 + k, 0, 3) : 0.5 };
        unsigned n = 1 + (unsigned)draw(i, 20, 0, 4.99);
        for (unsigned k = 0; k < n; k++) {
            double limit = draw(i, 30 + k, 0, 4), slope = k ? draw(i, 40 + k, 0, 60) : 0;
            tsr_plan_bounds_put(&b, 1, limit, slope, least(v, limit, slope));
            tsr_plan_bounds_put(&b, 1, limit, slope, NAN);
            /* what was put is there again */
            double got = tsr_plan_bounds_get(&b, 1, limit, slope);
            assert_true(got >= least(v, limit, slope) * (1 - 1e-12));
            assert_true(tsr_plan_bounds_get(&b, 0, limit, slope) == -INFINITY);
        }
        assert_int_equal(used[1], n);
        for (unsigned k = 0; k < 10; k++) {
            double limit = draw(i, 50 + k, 0, 4), slope = draw(i, 60 + k, 0, 60);
            double got = tsr_plan_bounds_get(&b, 1, limit, slope), one = -INFINITY;
            assert_true(got <= least(v, limit, slope) * (1 + 1e-12));
            said += got > -INFINITY;
            none += got == INFINITY;
            for (unsigned l = 0; l < n; l++) { /* alone: two together may say more */
                uint32_t               first = 1;
                struct tsr_plan_bounds a = { .n = 1,
                                             .used = &first,
                                             .lines = &lines[TSR_PLAN_BOUND_LINES + l] };
                one = fmax(one, tsr_plan_bounds_get(&a, 0, limit, slope));
            }
            assert_true(got >= one);
            two += got > one;
        }
    }
    assert_true(said > 10000 && two > 1000 && none > 100);
}

/* The objective `steady` of docs/formats/instance.md. */
static double steady(double pre, double most_pre, double dec, double most_dec, double jobs,
                     double mu, double steps)
{
    return pre + (jobs - 1) * most_pre +
           (steps > 0 ? fmax(steps * dec + (mu - 1) * most_dec, dec + (steps * mu - 1) * most_dec)
                      : 0);
}

/* An instance of all rounds is below the time of the batch, and close to it where prefill is short. */
static void test_rounds(void **state)
{
    double closest = 0, closest_rest = 0; /* of all; with a last round of fewer micro-batches */
    (void)state;
    for (uint64_t i = 0; i < 40000; i++) {
        struct tsr_plan_outcome_stage st[4] = { 0 };
        struct tsr_plan_workload      w = { 0 };
        struct tsr_plan_problem       p = { 0 };
        struct tsr_plan_outcome       o = { .stages = st };
        double                        share_pre = 0, share_dec = 0, share_rest = 0;
        double                        pre = 0, dec = 0, most_pre = 0, most_dec = 0,
               longest = draw(i, 1, 0, 1) < 0.5 ? 1 : 40;
        uint64_t once = 1 + (uint64_t)draw(i, 2, 0, 20);
        o.n_stages = 1 + (uint64_t)draw(i, 3, 0, 3.99);
        o.decode_mb = 1 + (uint64_t)draw(i, 4, 0, (double)once - 0.01);
        o.prefill_mb = 1 + (uint64_t)draw(i, 5, 0, (double)o.decode_mb - 0.01);
        o.prefill_jobs = draw(i, 6, 0, 1) < 0.5 ? 1 : 1 + draw(i, 7, 0, 6);
        w.batch = once + (uint64_t)draw(i, 8, 0, 80);
        w.n = 1 + (uint64_t)draw(i, 9, 0, 50);
        for (uint64_t k = 0; k < o.n_stages; k++) {
            bool last = k + 1 == o.n_stages;
            st[k].pre_ms = draw(i, 20 + k, 0.1, longest);
            st[k].dec_ms = draw(i, 30 + k, 0.1, 2);
            st[k].link_pre_ms = last ? 0 : draw(i, 40 + k, 0, longest);
            st[k].link_dec_ms = last ? 0 : draw(i, 50 + k, 0, 2);
            /* messages of a link overlap, in half of the runs */
            st[k].every_pre_ms = st[k].link_pre_ms * (i % 2 ? draw(i, 60 + k, 0.2, 1) : 1);
            st[k].every_dec_ms = st[k].link_dec_ms * (i % 2 ? draw(i, 70 + k, 0.2, 1) : 1);
            /* of fewer requests, mostly less */
            st[k].rest_ms = st[k].dec_ms * draw(i, 80 + k, 0.3, 1.1);
            st[k].link_rest_ms = st[k].link_dec_ms * draw(i, 90 + k, 0.3, 1.1);
            st[k].every_rest_ms = st[k].link_rest_ms * (i % 2 ? draw(i, 100 + k, 0.2, 1) : 1);
            share_rest += st[k].rest_ms / (double)o.n_stages;
            share_pre += st[k].pre_ms / (double)o.n_stages;
            share_dec += st[k].dec_ms / (double)o.n_stages;
        }
        p.work = w;
        p.memory.batch = once;
        bool fewer = tsr_plan_build_rest(&p, o.decode_mb) > 0;
        for (uint64_t k = 0; k < o.n_stages; k++) { /* one time of a link, as in build_options.c */
            double p_ms = fmin(st[k].link_pre_ms, fmax(st[k].every_pre_ms, share_pre));
            double d_ms[2] = { st[k].dec_ms,
                               fmin(st[k].link_dec_ms, fmax(st[k].every_dec_ms, share_dec)) };
            double rest[2] = { st[k].rest_ms,
                               fmin(st[k].link_rest_ms, fmax(st[k].every_rest_ms, share_rest)) };
            tsr_plan_build_mean(&p, o.decode_mb, d_ms, fewer ? rest : NULL, 2);
            pre += st[k].pre_ms + p_ms;
            dec += d_ms[0] + d_ms[1];
            most_pre = fmax(most_pre, fmax(st[k].pre_ms, p_ms));
            most_dec = fmax(most_dec, fmax(d_ms[0], d_ms[1]));
        }
        tsr_plan_outcome_time(&o, &w, once);
        double jobs = tsr_plan_build_prefills(&p, o.prefill_mb, o.decode_mb) * o.prefill_jobs;
        double steps = (double)tsr_plan_build_tokens(&p) - 1;
        double all = steady(pre / o.prefill_jobs, most_pre / o.prefill_jobs, dec, most_dec, jobs,
                            ceil((double)once / (double)o.decode_mb), steps);
        assert_true(all <= o.latency_ms * (1 + 1e-9));
        closest = w.batch > once ? fmax(closest, all / o.latency_ms) : closest;
        if (w.batch > once && w.batch % once)
            closest_rest = fmax(closest_rest, all / o.latency_ms);
        if (w.batch == once && i % 2 == 0) /* one round is exact */
            assert_true(all >= o.latency_ms * (1 - 1e-9));
    }
    assert_true(closest > 0.999 && closest_rest > 0.995);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines),
                                        cmocka_unit_test(test_rounds) };
    const char             *s = getenv("TSR_TEST_SEED");
    if (s)
        seed = strtoull(s, NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
