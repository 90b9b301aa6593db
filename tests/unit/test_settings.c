/* The best plan over what a job leaves open: no choice of a user is better, and what is said of it holds.
 *
 * Every fixed setting is solved by itself, those that the search does not try included.
 * TSR_TEST_SEED chooses the machines; TSR_TEST_ALL=1 takes more of them. */
#include "planning_fixture.h"

#include "base/rng.h"
#include "plan/search/settings.h"

#include <math.h>

static uint64_t seed = 1;
static bool     all_of_them;
static unsigned
    chosen[4]; /* plans with all requests at once, with fewer, in chunks, with an int8 cache */

#define BATCH  8u
#define PROMPT 600u /* chunks of 512 and 128 cut it */
#define GAP    1e-6

static unsigned draw(unsigned problem, unsigned number, unsigned below)
{
    return (unsigned)(tsr_uniform(seed, problem, number) * below);
}

static const char *const widest[] = { "rtn:bits=8,group=2", "original" };

/* One or two nodes whose memory holds some of the requests. */
static void machines(unsigned i, char text[600])
{
    unsigned two = draw(i, 0, 2);
    profile("odd", 500 + draw(i, 1, 6000), 200);
    profile("even", 300 + draw(i, 2, 2000), 100 + draw(i, 3, 900));
    (void)snprintf(text, 600,
                   "version: 1\nnodes:\n  - {name: a, devices: [{profile: odd}]}\n"
                   "%snetwork: {bandwidth: %u MB/s, latency: 30 us}\n",
                   two ? "  - {name: b, devices: [{profile: even}]}\n" : "", 1 + draw(i, 4, 100));
}

static struct tsr_plan_problem_options open_options(void)
{
    struct tsr_plan_problem_options o = usual();
    o.gap = GAP;
    o.free_concurrency = o.free_chunk = true;
    o.kv[0] = TSR_F16;
    o.kv[1] = TSR_I8;
    o.n_kv = 2;
    return o;
}

/* Time of the batch with one setting and theta times omega; INFINITY: no plan. */
static double fixed(const struct tsr_plan_problem *p, const struct tsr_plugin_spec *solver,
                    struct tsr_plan_setting s)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = *p;
    struct tsr_plan_planned a;
    double                  value = INFINITY;
    tsr_plan_settings_put(&q, &s);
    assert_int_equal(tsr_search(&a, &q, solver, INFINITY, &e.err), TSR_OK);
    if (tsr_plan_planned_has_plan(&a)) {
        assert_true(a.status == TSR_SOLVED_OPTIMAL);
        value = a.outcome.latency_ms + q.o.theta * a.outcome.omega;
        if (q.max_omega >= 0)
            assert_true(a.outcome.omega <= q.max_omega * (1 + 1e-9));
    } else {
        assert_true(a.status == TSR_SOLVED_INFEASIBLE);
    }
    tsr_plan_planned_free(&a);
    return value;
}

/* The least over all numbers of requests with whole prompts, or over all chunks. */
static double every(const struct tsr_plan_problem *p, const struct tsr_plugin_spec *solver,
                    uint32_t kv, bool pieces)
{
    static const uint64_t chunks[] = { 0, 590, 512,
                                       128 }; /* 590: two pieces as with 512, and more memory */
    double                least = INFINITY;
    for (uint64_t c = 1; c <= BATCH; c++)
        for (size_t k = pieces; k < (pieces ? 4 : 1); k++)
            least = fmin(least,
                         fixed(p, solver, (struct tsr_plan_setting){ c, chunks[k], kv, 0, 0, 0 }));
    return least;
}

static void is_best(struct setting *s, bool listed)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_setting other;
    struct tsr_plan_planned a;
    double                  least = INFINITY, counted = INFINITY;
    for (int narrow = 0; narrow < 2; narrow++)
        for (int pieces = 0; pieces < 2; pieces++) {
            double value = every(&s->p, &s->solver, narrow ? TSR_I8 : TSR_F16, pieces);
            least = fmin(least, value);
            /* what nobody asked for must be 1 % faster */
            value /= (narrow && !listed ? 0.99 : 1) * (pieces ? 0.99 : 1);
            counted = fmin(counted, value);
        }
    if (tsr_plan_settings_search(&a, &s->p, &s->solver, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (!isfinite(least)) {
        assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
        assert_int_equal(s->p.memory.batch, 1); /* the setting that needs least memory */
        assert_int_equal(s->p.work.kv, TSR_I8);
        assert_int_equal(s->p.work.chunk, 128);
        tsr_plan_planned_free(&a);
        return;
    }
    assert_int_equal(a.status, TSR_SOLVED_OPTIMAL);
    double value = a.outcome.latency_ms + s->p.o.theta * a.outcome.omega;
    assert_true(value <= counted * (1 + 3 * GAP));
    assert_true(value >= least * (1 - 3 * GAP));
    /* the problem has what was chosen, and costs as much when that is all that it may be */
    other = (struct tsr_plan_setting){ s->p.memory.batch, s->p.work.chunk, s->p.work.kv, 0, 0, 0 };
    double again = fixed(&s->p, &s->solver, other);
    assert_true(fabs(again - value) <= 3 * GAP * value);
    assert_true(a.bound <= a.objective * (1 + 1e-12) &&
                a.bound >= a.objective * (1 - 2 * GAP) - 1e-5);
    assert_ptr_equal(a.built->p, &s->p);
    chosen[s->p.memory.batch < BATCH]++;
    chosen[2] += s->p.work.chunk != 0;
    chosen[3] += s->p.work.kv == TSR_I8;
    assert_true(s->p.kv_omega == (s->p.work.kv == TSR_I8 ? s->p.quality.eight : 0));
    if (s->p.max_omega >= 0)
        assert_true(a.outcome.omega <= s->p.max_omega * (1 + 1e-9));
    tsr_plan_planned_free(&a);
}

static void test_best(void **state)
{
    unsigned n = all_of_them ? 60 : 12;
    char     text[600];
    (void)state;
    for (unsigned i = 0; i < n; i++) {
        struct tsr_plan_problem_options o = open_options();
        struct setting                  s;
        machines(i, text);
        if (i % 3 == 2) { /* 8 bits in all layers are good enough; with an int8 cache none is */
            o.candidates = widest;
            o.max_omega = 5.0 / 256 * (1 + 1e-9);
        } else if (i % 4 == 1)
            o.at_least = "uniform-rtn-4"; /* an int8 cache must be made up for by some layer */
        else if (i % 4 == 2) {
            o.n_kv = 0;
            o.free_kv = true;
            o.at_least = "uniform-rtn-4";
        } else if (i % 4 == 3)
            o.theta = 50;
        set_up(&s, text, &o, PROMPT, 12, BATCH);
        is_best(&s, o.n_kv > 0);
        take_down(&s);
    }
    if (all_of_them || seed == 1) /* so that it was a choice */
        for (int i = 0; i < 4; i++)
            assert_true(chosen[i] > 0);
}

#define NODE "version: 1\nnodes:\n  - {name: a, devices: [{profile: slow}]}\n"

static bool has(const struct tsr_plan_setting *v, uint64_t n, struct tsr_plan_setting s)
{
    for (uint64_t i = 0; i < n; i++)
        if (v[i].concurrency == s.concurrency && v[i].chunk == s.chunk && v[i].kv == s.kv)
            return true;
    return false;
}

static void test_list(void **state)
{
    static struct tsr_plan_setting  v[TSR_PLAN_SETTINGS];
    struct tsr_plan_problem_options o = open_options();
    struct setting                  s;
    (void)state;
    set_up(&s, NODE, &o, PROMPT, 12, BATCH);
    uint64_t n = tsr_plan_settings_of(&s.p, v);
    assert_int_equal(n, 5 * 3 * 2); /* 8, 4, 3, 2, 1 at once; whole, 512, 128; 16, 8 */
    assert_true(v[0].concurrency == BATCH && v[0].chunk == 0 && v[0].kv == TSR_F16);
    assert_true(v[n - 1].concurrency == 1 && v[n - 1].chunk == 128 && v[n - 1].kv == TSR_I8);
    assert_true(has(v, n, (struct tsr_plan_setting){ 3, 128, TSR_F16, 0, 0, 0 }));
    /* each is there once */
    for (uint64_t i = 0; i < n; i++)
        assert_false(has(v + i + 1, n - i - 1, v[i]));

    s.p.o.decode_mb = 3; /* no fewer at once than a micro-batch has */
    n = tsr_plan_settings_of(&s.p, v);
    assert_int_equal(n, 3 * 3 * 2);
    s.p.o.decode_mb = 0;

    s.p.o.free_concurrency = s.p.o.free_chunk = false; /* what the job says */
    s.p.o.n_kv = 0;
    s.p.work.concurrency = 5;
    s.p.work.chunk = 7;
    tsr_plan_problem_refresh(&s.p);
    n = tsr_plan_settings_of(&s.p, v);
    assert_int_equal(n, 1);
    assert_true(v[0].concurrency == 5 && v[0].chunk == 7 && v[0].kv == TSR_F16);
    tsr_plan_settings_put(&s.p, &(struct tsr_plan_setting){ 5, 7, TSR_I8, 0, 0, 0 });
    assert_true(s.p.kv_omega == 0); /* a cache that the workload names is not the planner's cost */

    s.p.o.free_kv = true; /* no limit says what an int8 cache may cost */
    assert_int_equal(tsr_plan_settings_of(&s.p, v), 1);
    s.p.max_omega = s.p.quality.eight * 1.01;
    assert_int_equal(tsr_plan_settings_of(&s.p, v), 2);
    s.p.max_omega = s.p.quality.eight * 0.99;
    assert_int_equal(tsr_plan_settings_of(&s.p, v), 1);
    s.p.max_omega = 1e9;
    s.p.quality.eight = NAN; /* a file without 8 bits */
    assert_int_equal(tsr_plan_settings_of(&s.p, v), 1);
    s.p.o.kv[0] = TSR_I8;
    s.p.o.n_kv = 1;
    assert_int_equal(tsr_plan_settings_of(&s.p, v), 1);
    assert_int_equal(v[0].kv, TSR_I8);
    take_down(&s);
}

/* Of many requests a few dozen numbers are tried, half as many more or less than the next. */
static void test_many(void **state)
{
    static struct tsr_plan_setting  v[TSR_PLAN_SETTINGS];
    struct tsr_plan_problem_options o = open_options();
    struct setting                  s;
    (void)state;
    o.n_kv = 1;
    o.free_chunk = false;
    set_up(&s, NODE, &o, 8, 4, 1000000);
    uint64_t n = tsr_plan_settings_of(&s.p, v);
    assert_true(n > 20 && n < 60);
    assert_int_equal(v[0].concurrency, 1000000);
    for (uint64_t i = 1; i < n; i++) {
        assert_true(v[i].concurrency < v[i - 1].concurrency);
        assert_true(v[i].concurrency * 2 + 1 >= v[i - 1].concurrency);
    }
    take_down(&s);
}

/* What an int8 cache counts as: the prior's 8 bits, or the column of a file. */
static void test_cost(void **state)
{
    struct tsr_plan_problem_options o = usual();
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_plan_quality         q;
    struct setting                  s;
    char                            text[800];
    (void)state;
    set_up(&s, NODE, &o, 8, 4, 2);
    /* candidate 1 is rtn at 8 bits */
    assert_true(fabs(s.p.quality.eight - tsr_plan_quality_uniform(&s.p.quality, 1)) <
                1e-12 * s.p.quality.eight);
    static const char *const bits[] = { "4, 8", "3, 4" };
    for (int i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"format\": \"tessera.indicators/1\", \"model\": \"x\", \"layers\": 5, "
                       "\"bits\": [%s], \"tables\": [{\"name\": \"measured\", \"omega\": [[9, 1], "
                       "[9, 2], [9, -4], [9, 8], [9, 16]]}]}",
                       bits[i]);
        s.p.candidates.n = 1; /* rtn at 4 bits, which both have */
        assert_int_equal(tsr_plan_quality_parse(&q, "i.json", text, strlen(text), "", s.p.shape,
                                                &s.p.candidates, &e.err),
                         TSR_OK);
        assert_true(i ? isnan(q.eight) : q.eight == 1 + 2 + 8 + 16);
        tsr_plan_quality_free(&q);
    }
    s.p.candidates.n = 2;
    take_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_best),
    };
    const char *s = getenv("TSR_TEST_SEED"), *all = getenv("TSR_TEST_ALL");
    if (s)
        seed = strtoull(s, NULL, 10);
    all_of_them = all && *all == '1';
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
