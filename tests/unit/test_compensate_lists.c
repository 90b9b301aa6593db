/* A plan over a list of k of error compensation: never worse than that of any part of the list, nor than what any
 * setting gives when it is solved by itself.  The bound of settings that differ in the most k alone is below all of them; the
 * work memory of the largest k is large here, so that its plan often fits in none.
 *
 * TSR_TEST_SEED chooses figures and machines; TSR_TEST_ALL=1 takes more of them. */
#include "planning_fixture.h"

#include "base/rng.h"
#include "plan/search/front.h"

#include <math.h>

#define LAYERS  5u
#define SCHEMES 2u
#define KS      3u
#define PROMPT  90u
#define TOKENS  13u
#define BATCH   6u
#define GAP     1e-7

static uint64_t seed = 3; /* without the smallest work memory in the bound, it fails */
static bool     all_of_them;
static unsigned compensated, loose, tight; /* plans with some k; bounds below all plans, or equal */

static const char *const schemes[SCHEMES] = { "rtn:bits=3,group=2", "rtn:bits=8,group=2" };
static const uint32_t    ks[KS] = { 0, 64, 512 };

static double draw(unsigned problem, unsigned number)
{
    return tsr_uniform(seed, problem, number);
}

static void write_figures(unsigned i)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/kl.json", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(f,
                  "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":%u,"
                  "\"kv\":[{\"kv\":\"f16\",\"kl\":0,\"context\":200},"
                  "{\"kv\":\"int8\",\"kl\":%.17g,\"context\":200}],\"schemes\":[",
                  LAYERS, 0.002 * draw(i, 40));
    for (unsigned c = 0; c < SCHEMES; c++) {
        (void)fprintf(f, "%s{\"scheme\":\"%s\",\"kl\":[", c ? "," : "", schemes[c]);
        for (unsigned l = 0; l < LAYERS; l++)
            (void)fprintf(f, "%s%.17g", l ? "," : "", (0.1 + draw(i, l)) * (c ? 2e-3 : 0.03));
        (void)fputs("]}", f);
    }
    (void)fputs("],\"compensation\":[", f);
    for (unsigned c = 0; c < SCHEMES; c++) {
        double kept = 1;
        for (unsigned k = 1; k < KS; k++) {
            kept *= 0.3 + 0.6 * draw(i, 10 + c * KS + k);
            (void)fprintf(f, "%s{\"scheme\":\"%s\",\"k\":%u,\"kept\":%.17g,\"interval\":null}",
                          c || k > 1 ? "," : "", schemes[c], ks[k], kept);
        }
    }
    (void)fputs("]}", f);
    assert_int_equal(fclose(f), 0);
}

/* One or two devices in a node, and mostly one more.  kib: of each of the two profiles. */
static void machines(unsigned i, const unsigned kib[2], char text[600])
{
    with_host("odd", kib[0], 20 + (unsigned)(draw(i, 21) * 200), 2 + (unsigned)(draw(i, 22) * 60),
              i % 5 == 4 ? "backend: cpu\n" : "");
    with_host("even", kib[1], 100 + (unsigned)(draw(i, 24) * 400), 2 + (unsigned)(draw(i, 25) * 60),
              i % 7 == 3 ? "backend: cpu\n" : "");
    (void)snprintf(text, 600,
                   "version: 1\nnodes:\n"
                   "  - {name: a, devices: [{profile: odd, count: %u}], link: {bandwidth: %u MB/s, "
                   "latency: %u us}}\n"
                   "%snetwork: {bandwidth: %u MB/s, latency: 30 us}\n",
                   i % 2 ? 1 : 2, 5 + (unsigned)(draw(i, 26) * 60),
                   2 + (unsigned)(draw(i, 27) * 20),
                   i % 3 ? "  - {name: b, devices: [{profile: even}]}\n" : "",
                   1 + (unsigned)(draw(i, 28) * 60));
}

/* The k of a mask; two types of cache in some problems, in some the requests at once are open. */
static struct tsr_plan_problem_options options_of(unsigned i, unsigned mask, char path[200])
{
    struct tsr_plan_problem_options o = usual();
    (void)snprintf(path, 200, "%s/kl.json", folder);
    o.candidates = schemes;
    o.n_candidates = SCHEMES;
    o.indicators = path;
    o.max_omega = 0.002 + 0.1 * draw(i, 30) * draw(i, 31);
    o.gap = GAP;
    o.free_concurrency = i % 3 == 1; /* several rounds */
    o.kv[0] = TSR_F16;
    o.kv[1] = TSR_I8;
    o.n_kv = i % 2 ? 2 : 1;
    for (unsigned k = KS; k-- > 0;) /* the largest first: the order does not matter */
        if (mask >> k & 1)
            o.k[o.n_k++] = ks[k];
    return o;
}

/* A setting by itself, without or with less work memory: the least time of the batch, or with *bound that of a round. */
static double alone(const struct setting *s, const struct tsr_plan_setting *one, double limit,
                    const uint32_t *work_k)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = s->p;
    struct tsr_plan_planned a;
    double                  value = INFINITY;
    tsr_plan_settings_put(&q, one);
    q.max_omega = limit;
    q.work_k = work_k ? *work_k : q.work_k;
    if (tsr_search(&a, &q, &s->solver, INFINITY, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (tsr_plan_planned_has_plan(&a)) {
        assert_true(a.status == TSR_SOLVED_OPTIMAL);
        value = work_k ? a.objective : a.outcome.latency_ms;
    }
    tsr_plan_planned_free(&a);
    return value;
}

/* The best of all settings, each by itself; with one round the group's bound is below it, and is counted. */
static double best_alone(const struct setting *s, double limit)
{
    static struct tsr_plan_setting list[TSR_PLAN_SETTINGS];
    double                         best = INFINITY;
    uint64_t                       n = tsr_plan_settings_of(&s->p, list);
    for (uint64_t i = 0; i < n; i++)
        best = fmin(best, alone(s, &list[i], limit, NULL));
    if (s->p.o.n_k > 1 && !s->p.o.free_concurrency) {
        double bound = alone(s, &list[0], limit, &list[n - 1].most_k);
        if (!(bound <= best * (1 + 2 * GAP)))
            fail_msg("a bound of %.12g ms, a plan of %.12g", bound, best);
        tight += isfinite(best) && bound >= best * (1 - 2 * GAP);
        loose += isfinite(bound) && bound < best * (1 - 1e-4);
    }
    return best;
}

/* The plan of a list of k; INFINITY: none. */
static double plan_of(const char *cluster, unsigned i, unsigned mask)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    char                            path[200];
    struct tsr_plan_problem_options o = options_of(i, mask, path);
    struct setting                  s;
    struct tsr_plan_planned         a;
    double                          value = INFINITY;
    set_up(&s, cluster, &o, PROMPT, TOKENS, BATCH);
    double best = best_alone(&s, s.p.max_omega);
    if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (tsr_plan_planned_has_plan(&a)) {
        value = a.outcome.latency_ms;
        assert_true(a.status == TSR_SOLVED_OPTIMAL && a.outcome.omega <= o.max_omega * (1 + 1e-9));
        assert_true(a.bound <= a.objective && a.built->p == &s.p);
        for (uint64_t l = 0; l < LAYERS; l++) {
            assert_true(a.outcome.k[l] <= s.p.most_k);
            compensated += a.outcome.k[l] > 0;
        }
    } else {
        assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
        assert_true(a.reason[0]);
    }
    if (isfinite(best) != isfinite(value) || (isfinite(best) && !(value <= best * (1 + 3 * GAP))))
        fail_msg("problem %u of seed %llu, k of mask %u: %.12g ms, a setting by itself %.12g", i,
                 (unsigned long long)seed, mask, value, best);
    /* several rounds have times that are not what a solver minimises */
    if (isfinite(best) && !o.free_concurrency && !(value >= best * (1 - 3 * GAP)))
        fail_msg("problem %u of seed %llu, k of mask %u: %.12g ms, settings by themselves %.12g", i,
                 (unsigned long long)seed, mask, value, best);
    tsr_plan_planned_free(&a);
    take_down(&s);
    return value;
}

/* Memory in which the best plan of large memories would nearly fit: work memory decides. */
static void squeeze(unsigned i, unsigned kib[2])
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    char                            path[200], text[600];
    struct tsr_plan_problem_options o = options_of(i, (1 << KS) - 1, path);
    struct setting                  s;
    struct tsr_plan_planned         a;
    kib[0] = 700 + (unsigned)(draw(i, 20) * 900);
    kib[1] = 500 + (unsigned)(draw(i, 23) * 900);
    machines(i, kib, text);
    set_up(&s, text, &o, PROMPT, TOKENS, BATCH);
    if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (uint64_t k = 0; tsr_plan_planned_has_plan(&a) && k < a.outcome.n_stages; k++) {
        const struct tsr_plan_outcome_stage *st = &a.outcome.stages[k];
        bool                                 even = strcmp(st->mesh.profile->name, "even") == 0;
        kib[even] = (unsigned)(st->memory.total / st->mesh.tp / 1024) + 1;
    }
    kib[0] += 1 - (unsigned)(draw(i, 32) * 4);
    kib[1] += 1 - (unsigned)(draw(i, 33) * 4);
    tsr_plan_planned_free(&a);
    take_down(&s);
}

static void lists(void **state)
{
    unsigned problems = all_of_them ? 300 : 32, plans = 0, better = 0;
    (void)state;
    for (unsigned i = 0; i < problems; i++) {
        char     text[600];
        double   value[1 << KS];
        unsigned kib[2];
        write_figures(i);
        squeeze(i, kib);
        machines(i, kib, text);
        for (unsigned mask = 1; mask < 1 << KS; mask++) {
            value[mask] = plan_of(text, i, mask);
            /* plans of several rounds are the best of a round: another list may meet a better batch */
            for (unsigned less = 1; less < mask && i % 3 != 1; less++)
                if ((less & mask) == less && !(value[mask] <= value[less] * (1 + 3 * GAP)))
                    fail_msg("problem %u of seed %llu: k of mask %u take %.12g ms, of %u %.12g", i,
                             (unsigned long long)seed, mask, value[mask], less, value[less]);
        }
        plans += isfinite(value[(1 << KS) - 1]) ? 1 : 0;
        better += value[(1 << KS) - 1] < value[1] * (1 - 1e-4);
    }
    (void)printf("%u plans, %u better than without compensation; %u bounds tight, %u loose\n",
                 plans, better, tight, loose);
    if (seed == 3)
        assert_true(plans > 9 && better > 4 && compensated > 9 && tight > 9 && loose > 4);
}

/* Points of a front over a list: no setting by itself has a faster plan with as little omega. */
static void fronts(void **state)
{
    unsigned problems = all_of_them ? 60 : 3, points = 0;
    (void)state;
    for (unsigned i = 0; i < problems; i++) {
        struct tsr_errbuf               e = TSR_ERRBUF(e);
        char                            text[600], path[200];
        struct tsr_plan_problem_options o = options_of(3 * i, (1 << KS) - 1, path);
        struct setting                  s;
        struct tsr_plan_front           f;
        unsigned                        kib[2];
        write_figures(3 * i);
        squeeze(3 * i, kib);
        machines(3 * i, kib, text);
        o.max_omega = -1;
        set_up(&s, text, &o, PROMPT, TOKENS, BATCH);
        if (tsr_plan_front_find(&f, &s.p, NULL, NULL, &s.solver, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        for (uint64_t k = 0; k < f.n; k++, points++) {
            double best = best_alone(&s, f.v[k].omega * (1 + 1e-9));
            assert_true(f.v[k].proved);
            if (!(fabs(best - f.v[k].latency_ms) <= 3 * GAP * best))
                fail_msg("problem %u of seed %llu, point %llu: %.12g ms, a setting has %.12g",
                         3 * i, (unsigned long long)seed, (unsigned long long)k, f.v[k].latency_ms,
                         best);
        }
        tsr_plan_front_free(&f);
        take_down(&s);
    }
    if (seed == 3)
        assert_true(points > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lists), cmocka_unit_test(fronts) };
    const char             *s = getenv("TSR_TEST_SEED");
    if (s)
        seed = strtoull(s, NULL, 10);
    all_of_them = getenv("TSR_TEST_ALL") != NULL;
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
