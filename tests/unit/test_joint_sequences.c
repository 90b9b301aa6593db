/* One plan over all choices is never worse than any sequence of commands that each make one of them: bits and stages, the type of
 * the cache, compensation, the codec of links, that of sums, the width, the ends.  Each command keeps what the ones before it
 * chose, the bits of each layer included, and may move layers to other devices, which is more than the commands can.
 *
 * TSR_TEST_SEED chooses figures, machines and orders; TSR_TEST_ALL=1 takes more of them. */
#include "planning_fixture.h"

#include "base/rng.h"
#include "plan/search/settings.h"

#include <math.h>

#define LAYERS  5u
#define PROMPT  24u
#define TOKENS  9u
#define BATCH   4u
#define SCHEMES 2u
#define BF16    "plain:dtype=bf16"
#define END     "rtn:bits=8,group=64"
#define UNUSED  1e3 /* nats: no limit allows it */

static uint64_t seed = 1;
static bool     all_of_them;

static const char *const codecs[] = { "plain", BF16 };
static const char *const ends[] = { "original", END };
static const uint32_t    caches[] = { TSR_F16, TSR_I8 };

enum step { BITS, CACHE, COMPENSATE, LINK, SUM, WIDTH, ENDS, STEPS };

/* What has been chosen so far.  value[BITS] and value[COMPENSATE] are 1 once the layers have their own. */
struct chosen {
    unsigned value[STEPS];
    uint32_t bits[LAYERS]; /* with value[BITS] */
    double   ms;           /* of the plan; INFINITY: none yet */
};

static double draw(unsigned problem, unsigned number)
{
    return tsr_uniform(seed, problem, number);
}

static void write_figures(unsigned i)
{
    static const char *const schemes[SCHEMES] = { "rtn:bits=4,group=2", "rtn:bits=8,group=2" };
    char                     path[200];
    (void)snprintf(path, sizeof path, "%s/kl.json", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(
        f, "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":%u,\"schemes\":[",
        LAYERS);
    for (unsigned c = 0; c < SCHEMES; c++) {
        (void)fprintf(f, "%s{\"scheme\":\"%s\",\"kl\":[", c ? "," : "", schemes[c]);
        for (unsigned l = 0; l < LAYERS; l++)
            (void)fprintf(f, "%s%.17g", l ? "," : "", draw(i, l) * (c ? 1e-3 : 0.02));
        (void)fputs("]}", f);
    }
    (void)fprintf(f,
                  "],\"kv\":[{\"kv\":\"f16\",\"kl\":0,\"context\":99},"
                  "{\"kv\":\"int8\",\"kl\":%.17g,\"context\":99}],"
                  "\"links\":[{\"codec\":\"" BF16 "\",\"kl\":%.17g}],"
                  "\"sums\":[{\"codec\":\"" BF16 "\",\"kl\":%.17g}],"
                  "\"ends\":[{\"scheme\":\"" END "\",\"kl\":%.17g,\"interval\":null}],"
                  "\"compensation\":[",
                  draw(i, 19) * 0.02, draw(i, 20) * 0.02, draw(i, 21) * 0.02, draw(i, 22) * 0.02);
    for (unsigned c = 0; c < SCHEMES; c++)
        (void)fprintf(f, "%s{\"scheme\":\"%s\",\"k\":64,\"kept\":%.17g,\"interval\":null}",
                      c ? "," : "", schemes[c], 0.2 + 0.6 * draw(i, 23 + c));
    (void)fputs("]}", f);
    assert_int_equal(fclose(f), 0);
}

static void machines(unsigned i, char text[800])
{
    with_host("odd", 330 + (unsigned)(draw(i, 30) * 400), 20 + (unsigned)(draw(i, 31) * 100),
              10 + (unsigned)(draw(i, 37) * 90), "");
    with_host("even", 400 + (unsigned)(draw(i, 32) * 600), 100 + (unsigned)(draw(i, 33) * 400),
              10 + (unsigned)(draw(i, 38) * 90), "");
    (void)snprintf(text, 800,
                   "version: 1\nnodes:\n"
                   "  - {name: a, devices: [{profile: odd, count: %u}], link: {bandwidth: %u MB/s, "
                   "latency: %u us}}\n"
                   "%snetwork: {bandwidth: %u MB/s, latency: 30 us}\n",
                   i % 2 ? 2 : 3, 2 + (unsigned)(draw(i, 34) * 60),
                   2 + (unsigned)(draw(i, 35) * 20),
                   i % 2 ? "  - {name: b, devices: [{profile: even}]}\n" : "",
                   1 + (unsigned)(draw(i, 36) * 20));
}

/* What is in open (bits by enum step) is left to the planner; the rest is as chosen. */
static struct tsr_plan_problem_options options_of(const struct chosen *c, unsigned open,
                                                  double limit, char path[200])
{
    struct tsr_plan_problem_options o = usual();
    const unsigned                 *v = c->value;
    (void)snprintf(path, 200, "%s/kl.json", folder);
    o.indicators = path;
    o.max_kl = limit;
#define OPEN(step) (open >> (step)&1)
    o.n_kv = OPEN(CACHE) ? 2 : 1;
    o.kv[0] = caches[OPEN(CACHE) ? 0 : v[CACHE]];
    o.kv[1] = caches[1];
    o.n_k = OPEN(COMPENSATE) || v[COMPENSATE] ? 2 : 1;
    o.k[1] = 64;
    o.links = codecs + (OPEN(LINK) ? 0 : v[LINK]);
    o.n_links = OPEN(LINK) ? 2 : 1;
    o.sums = codecs + (OPEN(SUM) ? 0 : v[SUM]);
    o.n_sums = OPEN(SUM) ? 2 : 1;
    o.min_tp = OPEN(WIDTH) ? 0 : 1 + v[WIDTH];
    o.max_tp = OPEN(WIDTH) ? 0 : 1 + v[WIDTH];
    o.ends = ends + (OPEN(ENDS) ? 0 : v[ENDS]);
    o.n_ends = OPEN(ENDS) ? 2 : 1;
    return o;
}

/* The best plan; INFINITY: none.  bits, where not NULL: of its layers. */
static double plan_of(const char *cluster, const struct chosen *c, unsigned open, double limit,
                      uint32_t *bits)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    char                            path[200];
    struct tsr_plan_problem_options o = options_of(c, open, limit, path);
    struct setting                  s;
    struct tsr_plan_planned         a;
    double                          ms = INFINITY;
    set_up(&s, cluster, &o, PROMPT, TOKENS, BATCH);
    for (unsigned l = 0; l < LAYERS && !OPEN(BITS); l++)
        for (unsigned q = 0; q < SCHEMES; q++)
            if (q != (c->value[BITS] ? c->bits[l] : 1)) /* before the first plan: 8 bits */
                s.p.quality.omega[l * SCHEMES + q] = UNUSED;
    if (tsr_plan_settings_search(&a, &s.p, &s.solver, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (tsr_plan_planned_has_plan(&a)) {
        ms = a.outcome.objective_ms;
        assert_true(a.outcome.kl <= limit * (1 + 1e-9));
        for (unsigned l = 0; l < LAYERS && bits; l++)
            bits[l] = a.outcome.bits[l];
    } else {
        assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
    }
    tsr_plan_planned_free(&a);
    take_down(&s);
    return ms;
}

/* One command: bits and compensation by layer, all other choices one for the whole plan. */
static void take_step(const char *cluster, struct chosen *c, enum step step, double limit)
{
    if (step == BITS) {
        uint32_t bits[LAYERS];
        double   ms = plan_of(cluster, c, 1u << BITS, limit, bits);
        if (isfinite(ms)) {
            c->ms = ms;
            c->value[BITS] = 1;
            memcpy(c->bits, bits, sizeof bits);
        }
        return;
    }
    struct chosen best = *c;
    for (unsigned v = 0; v < 2; v++) {
        struct chosen one = *c;
        one.value[step] = v;
        one.ms = plan_of(cluster, &one, 0, limit, NULL);
        if (one.ms < best.ms)
            best = one;
    }
    *c = best;
}

static void sequences(void **state)
{
    unsigned problems = all_of_them ? 200 : 24, orders = all_of_them ? 12 : 6;
    unsigned plans = 0, better = 0, none_else = 0, apart = 0;
    (void)state;
    for (unsigned i = 0; i < problems; i++) {
        char   text[800];
        double limit = 0.02 + 0.06 * draw(i, 40), first = NAN; /* each choice alone costs less */
        struct chosen none = { .ms = INFINITY };
        machines(i, text);
        write_figures(i);
        double joint = plan_of(text, &none, (1u << STEPS) - 1, limit, NULL);
        for (unsigned n = 0; n < orders; n++) {
            struct chosen c = none;
            enum step     order[STEPS];
            for (unsigned k = 0; k < STEPS; k++) { /* a random order */
                unsigned at = (unsigned)(draw(i, 100 + n * STEPS + k) * (k + 1));
                order[k] = order[at];
                order[at] = (enum step)k;
            }
            for (unsigned k = 0; k < STEPS; k++)
                take_step(text, &c, order[k], limit);
            if (!(joint <= c.ms * (1 + 1e-6)) && isfinite(c.ms))
                fail_msg("problem %u of seed %llu, order %u: %.12g in one plan, %.12g by commands",
                         i, (unsigned long long)seed, n, joint, c.ms);
            plans += isfinite(joint) && isfinite(c.ms);
            better += isfinite(c.ms) && joint < c.ms * (1 - 1e-4);
            none_else += isfinite(joint) && isinf(c.ms);
            apart += n > 0 && !(fabs(c.ms - first) <= 1e-6 * first);
            first = n == 0 ? c.ms : first;
        }
    }
    (void)printf("%u sequences with a plan: one plan is better than %u; %u without: there is one\n",
                 plans, better, none_else);
    assert_true(plans > 0);
    if (seed == 1)
        assert_true(better > 0 && apart > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sequences) };
    const char             *s = getenv("TSR_TEST_SEED");
    if (s)
        seed = strtoull(s, NULL, 10);
    all_of_them = getenv("TSR_TEST_ALL") != NULL;
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
