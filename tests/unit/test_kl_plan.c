/* Plans under a limit on KL: against all assignments of schemes to layers and all cuts, with figures and the map computed
 * here; looser limits are never slower; and what a file of figures must not be.
 *
 * TSR_TEST_SEED chooses figures and machines. */
#include "planning_fixture.h"

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "plan/instance/objective.h"
#include "plan/search/front.h"

#include <math.h>

#define LAYERS  5u
#define SCHEMES 3u
#define PROMPT  40u
#define TOKENS  12u

static uint64_t seed = 1;

static const char *const schemes[] = { "rtn:bits=3,group=2", "rtn:bits=4,group=2",
                                       "rtn:bits=8,group=2" };
/* the same in another order, and with a default stated */
static const char *const stated[] = { "rtn:group=2,bits=3", "rtn:bits=4,group=2",
                                      "rtn:symmetric=false,bits=8,group=2" };
#define CODEC "plain:dtype=bf16"

static struct {
    double kl[LAYERS][SCHEMES], half[LAYERS][SCHEMES], kv, link;
    double w[3], f[3]; /* the map after (0, 0) */
} figures;

static double draw(unsigned problem, unsigned number)
{
    return tsr_uniform(seed, problem, number);
}

static void put_list(FILE *f, const char *key, double v[LAYERS][SCHEMES], unsigned c)
{
    (void)fprintf(f, ",\"%s\":[", key);
    for (unsigned l = 0; l < LAYERS; l++)
        (void)fprintf(f, "%s%.17g", l ? "," : "", v[l][c]);
    (void)fputc(']', f);
}

static void write_figures(unsigned i)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/kl.json", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (unsigned l = 0; l < LAYERS; l++)
        for (unsigned c = 0; c < SCHEMES; c++) {
            figures.kl[l][c] = ldexp(0.02 + draw(i, l * 8 + c), -2 * (int)(c == 2 ? 5 : c) - 4);
            figures.half[l][c] = figures.kl[l][c] / 10;
        }
    figures.kv = draw(i, 90) * 1e-3;
    figures.link = draw(i, 91) * 4e-3;
    (void)fprintf(
        f, "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":%u,\"schemes\":[",
        LAYERS);
    for (unsigned c = 0; c < SCHEMES; c++) {
        (void)fprintf(f, "%s{\"scheme\":\"%s\"", c ? "," : "", stated[c]);
        put_list(f, "kl", figures.kl, c);
        put_list(f, "half", figures.half, c);
        (void)fputc('}', f);
    }
    (void)fprintf(f,
                  "],\"kv\":[{\"kv\":\"f16\",\"kl\":9,\"half\":1,\"context\":4096},{\"kv\":\"f16\","
                  "\"kl\":%.17g,\"half\":null,\"context\":%u},{\"kv\":\"f16\",\"kl\":7,\"half\":1,"
                  "\"context\":%u}],\"links\":[{\"codec\":\"" CODEC
                  "\",\"kl\":%.17g,\"half\":0.001}],\"map\":[[0,0]",
                  figures.kv, PROMPT + TOKENS, PROMPT + TOKENS - 1, figures.link);
    for (unsigned k = 0; k < 3; k++) {
        figures.w[k] = (k ? figures.w[k - 1] : 0) + 0.01 + 0.1 * draw(i, 92 + k);
        figures.f[k] = (k ? figures.f[k - 1] : 0) + 0.01 + 0.1 * draw(i, 95 + k);
        (void)fprintf(f, ",[%.17g,%.17g]", figures.w[k], figures.f[k]);
    }
    (void)fputs("]}", f);
    assert_int_equal(fclose(f), 0);
}

/* The map by its definition. */
static double mapped(double w)
{
    double w0 = 0, f0 = 0;
    for (unsigned k = 0; k < 3; k++) {
        if (w <= figures.w[k])
            return f0 + (w - w0) / (figures.w[k] - w0) * (figures.f[k] - f0);
        w0 = figures.w[k];
        f0 = figures.f[k];
    }
    return w * f0 / w0;
}

/* ---- brute force -------------------------------------------------------------------------- */

struct tried {
    const struct tsr_plan_built *b;
    const struct tsr_plan_part  *part;
    struct tsr_solver_solution  *s;
    double                       limit, best;
};

/* All assignments of schemes on the stages of z->s. */
static void assign(struct tried *z)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (unsigned a = 0; a < 243; a++) {
        double w = figures.kv + (double)(z->s->stages - 1) * figures.link, v;
        for (unsigned l = 0, rest = a; l < LAYERS; l++, rest /= 3) {
            z->s->layer_bits[l] = rest % 3;
            w += figures.kl[l][rest % 3];
        }
        if (!(mapped(w) <= z->limit))
            continue;
        for (uint64_t o = 0; o < z->part->inst.in.n_options; o++) {
            z->s->option = o;
            if (tsr_plan_evaluate(&z->part->inst.in, z->s, &v, &e.err) == TSR_OK)
                z->best = fmin(z->best, v);
        }
    }
}

static void cut(struct tried *z)
{
    const struct tsr_solver_instance *in = &z->part->inst.in;
    for (uint32_t i = 0; i < in->n_kinds; i++) {
        z->s->stages = 1;
        z->s->stage_kind[0] = i;
        z->s->stage_first[0] = 0;
        z->s->stage_count[0] = LAYERS;
        assign(z);
        for (uint32_t k = 0; k < in->n_kinds && z->s->max_stages > 1; k++)
            for (unsigned at = 1; at < LAYERS; at++) {
                z->s->stages = 2;
                z->s->stage_kind[1] = k;
                z->s->stage_first[1] = z->s->stage_count[0] = at;
                z->s->stage_count[1] = LAYERS - at;
                assign(z);
            }
    }
}

/* The least objective of a plan of at most `limit` nats. */
static double brute(const struct tsr_plan_problem *p, double limit)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_problem q = *p;
    struct tried            z = { .limit = limit, .best = INFINITY };
    struct tsr_plan_built  *b = NULL;
    uint32_t                tp[2] = { 1, 1 };
    q.max_omega = -1;
    assert_int_equal(tsr_plan_build(&b, &q, &(struct tsr_plan_space){ .ways = tp, .stride = 1 },
                                    &e.err),
                     TSR_OK);
    for (uint64_t i = 0; i < b->n_parts; i++) {
        z.b = b;
        z.part = &b->parts[i];
        assert_int_equal(tsr_plan_solution_create(&z.s, &z.part->inst, &e.err), TSR_OK);
        cut(&z);
        free(z.s);
    }
    tsr_plan_built_destroy(b);
    return z.best;
}

static void machines(unsigned i, char text[600])
{
    profile("odd", 500 + (unsigned)(draw(i, 80) * 900), 200);
    profile("even", 300 + (unsigned)(draw(i, 81) * 900), 100 + (unsigned)(draw(i, 82) * 900));
    (void)snprintf(text, 600,
                   "version: 1\nnodes:\n  - {name: a, devices: [{profile: odd}]}\n"
                   "%snetwork: {bandwidth: %u MB/s, latency: 30 us}\n",
                   i % 3 ? "  - {name: b, devices: [{profile: even}]}\n" : "",
                   1 + (unsigned)(draw(i, 83) * 100));
}

static struct tsr_plan_problem_options by_kl(char path[200])
{
    struct tsr_plan_problem_options o = usual();
    (void)snprintf(path, 200, "%s/kl.json", folder);
    o.candidates = schemes;
    o.n_candidates = SCHEMES;
    o.indicators = path;
    o.codec = CODEC;
    return o;
}

/* What is said of a plan is what its file says. */
static void check_outcome(const struct tsr_plan_outcome *o)
{
    double w = 0, links = (double)o->n_stages - 1;
    for (unsigned l = 0; l < LAYERS; l++) {
        w += figures.kl[l][o->bits[l]];
    }
    assert_true(fabs(o->parts.weights - w) <= 1e-12 && o->parts.kv == figures.kv);
    assert_true(fabs(o->parts.links - links * figures.link) <= 1e-12 && o->parts.sums == 0);
    w += figures.kv + links * figures.link;
    assert_true(fabs(o->omega - w) <= 1e-12 && fabs(o->kl - mapped(w)) <= 1e-12);
    assert_true(isnan(o->kl_half)); /* that of the cache is null */
}

static void limits(void **state)
{
    unsigned plans = 0, none = 0, several = 0;
    char     text[600], path[200];
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        double            before = INFINITY;
        machines(i, text);
        write_figures(i);
        for (unsigned k = 0; k < 8; k++) {
            struct tsr_plan_problem_options o = by_kl(path);
            struct setting                  s;
            struct tsr_plan_planned         a;
            o.max_kl = 0.016 * pow(1.8, k);
            set_up(&s, text, &o, PROMPT, TOKENS, 4);
            double best = brute(&s.p, o.max_kl);
            s.p.kv_omega = figures.kv;
            assert_int_equal(tsr_search(&a, &s.p, &s.solver, INFINITY, &e.err), TSR_OK);
            if (isfinite(best)) {
                assert_true(tsr_plan_planned_has_plan(&a));
                if (!(fabs(a.objective - best) <= 1e-6 * best))
                    fail_msg("problem %u, %g nats: %.12g ms, brute force finds %.12g", i, o.max_kl,
                             a.objective, best);
                check_outcome(&a.outcome);
                assert_true(a.outcome.kl <= o.max_kl * (1 + 1e-9));
                several += a.outcome.n_stages > 1;
            } else {
                assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
            }
            assert_true(best <= before); /* a looser limit is never slower */
            before = best;
            plans += isfinite(best) ? 1 : 0;
            none += isfinite(best) ? 0 : 1;
            tsr_plan_planned_free(&a);
            take_down(&s);
        }
    }
    assert_true(plans > 10);
    if (seed == 1)
        assert_true(none > 0 && several > 0);
}

/* Plans on the front by brute force, at limits from tight to loose. */
static unsigned speeds(const struct tsr_plan_problem *p)
{
    double   before = INFINITY;
    unsigned n = 0;
    for (unsigned k = 0; k < 40; k++) {
        double best = brute(p, 2e-4 * pow(1.3, k));
        n += best < before;
        before = best;
    }
    return n;
}

/* A job that says nothing of quality takes the knee of the front, whose points are on the scale of KL. */
static void knee(void **state)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    char                            text[600], path[200];
    struct tsr_plan_problem_options o = by_kl(path);
    struct setting                  s;
    struct tsr_plan_front           f;
    struct tsr_plan_planned         a;
    double                          at = NAN;
    unsigned                        i = 0, n;
    (void)state;
    o.at_least = NULL;
    o.knee = true;
    for (;;) { /* drawn machines may have room for few plans, or for none */
        assert_true(++i < 30);
        machines(i, text);
        write_figures(i);
        set_up(&s, text, &o, PROMPT, TOKENS, 4);
        assert_true(s.p.knee && s.p.max_omega < 0);
        n = speeds(&s.p);
        s.p.kv_omega = figures.kv;
        assert_int_equal(tsr_plan_front_find(&f, &s.p, NULL, NULL, &s.solver, &e.err), TSR_OK);
        assert_true(n > 0 ? f.n > 0 : f.n == 0);
        if (n >= 6)
            break;
        assert_int_equal(tsr_plan_front_knee(&a, &s.p, &s.solver, &e.err), TSR_OK);
        assert_true(tsr_plan_planned_has_plan(&a) == (n > 0));
        tsr_plan_planned_free(&a);
        tsr_plan_front_free(&f);
        take_down(&s);
    }
    assert_true(f.n > 2);
    for (uint64_t k = 0; k < f.n; k++) {
        assert_true(fabs(f.v[k].kl - mapped(f.v[k].omega)) <= 1e-12 && !f.v[k].job);
        assert_true(k == 0 ||
                    (f.v[k].kl < f.v[k - 1].kl && f.v[k].latency_ms > f.v[k - 1].latency_ms));
        at = f.v[k].knee ? f.v[k].kl : at;
    }
    assert_true(isfinite(at));
    assert_int_equal(tsr_plan_front_knee(&a, &s.p, &s.solver, &e.err), TSR_OK);
    assert_true(tsr_plan_planned_has_plan(&a));
    assert_true(a.outcome.kl <= at * (1 + 1e-6));
    assert_true(s.p.max_omega >= a.outcome.omega);
    tsr_plan_planned_free(&a);
    tsr_plan_front_free(&f);
    take_down(&s);
    /* what the job says comes first */
    o.max_kl = 0.05;
    set_up(&s, text, &o, PROMPT, TOKENS, 4);
    assert_false(s.p.knee);
    take_down(&s);
    o.max_kl = 0;
    o.at_least = "uniform-rtn-4";
    set_up(&s, text, &o, PROMPT, TOKENS, 4);
    assert_false(s.p.knee);
    take_down(&s);
}

/* ---- bad input ---------------------------------------------------------------------------- */

static void refused(const struct tsr_plan_problem_options *o, const char *about, const char *facts)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_cluster *c =
        cluster_of("version: 1\nnodes:\n  - {name: a, devices: [{profile: slow, count: 2}], link: "
                   "{bandwidth: 10 GB/s, latency: 5 us}}\n");
    struct tsr_plan_workload w;
    struct tsr_plan_problem  p;
    assert_int_equal(tsr_plan_workload_fixed(&w, PROMPT, TOKENS, 4, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_problem_open(&p, registry, o, c, &w, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, about, facts));
    tsr_plan_workload_free(&w);
    tsr_plan_cluster_destroy(c);
}

static void missing(void **state)
{
    static const char *const other[] = { "rtn:bits=3,group=4" };
    static const char *const twice[] = { "rtn:bits=4,group=2", "rtn:bits=4,group=4" };
    char                     path[200];
    (void)state;
    write_figures(0);
    struct tsr_plan_problem_options o = by_kl(path);
    o.candidates = other;
    o.n_candidates = 1;
    refused(&o, "kl.json", "rtn:bits=3,group=4 rtn:group=2,bits=3");
    o = by_kl(path);
    o.codec = "mx:block=16";
    refused(&o, "kl.json", "mx:block=16 between plain:dtype=bf16");
    o = by_kl(path);
    o.tp_codec = CODEC;
    refused(&o, "kl.json", "plain:dtype=bf16 inside none");
    o = by_kl(path);
    o.kv[0] = TSR_I8;
    o.n_kv = 1;
    refused(&o, "kl.json", "int8 52 4096");
    o = by_kl(path);
    o.table = "measured";
    refused(&o, "kl.json", "measured");
    o = by_kl(path);
    o.max_kl = 1e-9;
    refused(&o, "", "1e-09 f16");
    o.max_kl = mapped(figures.kv / 2);
    refused(&o, "", "f16");
    o = by_kl(path);
    o.indicators = "";
    o.max_kl = 0.1;
    refused(&o, "", "0.1 indicators");
    /* the prior knows bits alone */
    o = usual();
    o.candidates = twice;
    o.at_least = "uniform-rtn-4";
    refused(&o, "rtn-4:bits=4,group=4", "rtn-4 4");
}

static void bad_files(void **state)
{
    static const struct {
        const char *rest, *facts;
    } files[] = {
        { "\"schemes\":[{\"kl\":[1,1,1,1,1]}]", "scheme" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1]}]", "4 5" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,null,1,1]}]", "kl" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1e101,1,1]}]", "kl" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1],\"half\":[1,1,-1,1,1]"
          "}]",
          "half" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1]}],\"map\":[[0,0],[1,"
          "1],[2,1]]",
          "map" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1]}],\"map\":[[1,1]]",
          "map" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1]}],\"map\":[[0]]",
          "map" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1]}],\"kv\":[{\"kv\":"
          "\"f16\",\"kl\":1}]",
          "context" },
        { "\"schemes\":[{\"scheme\":\"rtn:bits=3,group=2\",\"kl\":[1,1,1,1,1]}],\"links\":[{}]",
          "codec" },
    };
    char text[700], path[200];
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tsr_plan_problem_options o = by_kl(path);
        o.n_candidates = 1;
        (void)snprintf(text, sizeof text,
                       "{\"format\":\"tessera.indicators/2\",\"model\":\"x\",\"layers\":5,%s}",
                       files[i].rest);
        write_file("kl.json", text);
        refused(&o, "kl.json", files[i].facts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),
        cmocka_unit_test(knee),
        cmocka_unit_test(missing),
        cmocka_unit_test(bad_files),
    };
    const char *s = getenv("TSR_TEST_SEED");
    if (s)
        seed = strtoull(s, NULL, 10);
    if (!planning_open())
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return planning_close() ? rc : 1;
}
