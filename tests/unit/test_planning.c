/* From a model and a cluster to the best plan: which devices are alike, which sizes of micro-batches
 * are tried, and that nothing which can be enumerated and priced layer by layer, through the cost
 * models alone, is better than what the search says.
 *
 * TSR_TEST_SEED chooses the small clusters; TSR_TEST_ALL=1 takes more of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/rng.h"
#include "checkpoint/safetensors/safetensors.h"
#include "plan/search/whatif.h"
#include "planning_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;
static bool     all_of_them;
static unsigned compared; /* problems with plans */
static uint64_t on_cpus;  /* layers of their plans with experts on a CPU */

/* ---- sizes ------------------------------------------------------------------------------- */

static void test_sizes(void **state)
{
    uint64_t v[64], w[64];
    (void)state;
    for (uint64_t batch = 1; batch <= 40; batch++)
        for (uint64_t devices = 1; devices <= 9; devices++) {
            uint64_t n = tsr_plan_decode_sizes(batch, devices, v);
            for (uint64_t m = 1; m <= 2 * devices; m++) { /* each share is there ... */
                bool there = false;
                for (uint64_t i = 0; i < n; i++)
                    there = there || v[i] == (batch + m - 1) / m;
                assert_true(there);
            }
            for (uint64_t i = 0; i < n; i++) { /* ... once, and nothing else is */
                bool share = false;
                for (uint64_t m = 1; m <= 2 * devices; m++)
                    share = share || v[i] == (batch + m - 1) / m;
                assert_true(share);
                assert_true(i == 0 || v[i] > v[i - 1]);
            }
        }
    for (uint64_t size = 1; size <= 40; size++) {
        uint64_t n = tsr_plan_prefill_sizes(size, w), want = 0;
        for (uint64_t p = 1; p < size; p *= 2)
            assert_int_equal(w[want++], p);
        assert_int_equal(w[want++], size);
        assert_int_equal(n, want);
    }
}

/* ---- what is alike --------------------------------------------------------------------------- */

static void kinds_are(const char *text, const uint32_t *tp, uint64_t kinds, uint64_t meshes)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct setting                  s;
    struct tsr_plan_meshes          m;
    struct tsr_plan_problem_options o = usual();
    set_up(&s, text, &o, 8, 4, 2);
    assert_int_equal(tsr_plan_meshes_make(&m, &s.p,
                                          &(struct tsr_plan_space){ .ways = tp, .stride = 1 },
                                          &e.err),
                     TSR_OK);
    assert_int_equal(m.n_kinds, kinds);
    assert_int_equal(m.total, meshes);
    tsr_plan_meshes_free(&m);
    take_down(&s);
}

#define LINK "link: {bandwidth: 1 GB/s, latency: 10 us}"
#define NET  "network: {bandwidth: 100 MB/s, latency: 30 us}\n"

static void test_kinds(void **state)
{
    static const uint32_t one[4] = { 1, 1, 1, 1 }, two[4] = { 2, 2, 2, 2 };
    (void)state;
    /* one device each, nothing between them but the network */
    const char *alone = "version: 1\nnodes:\n  - {name: a, devices: [{profile: slow}]}\n"
                        "  - {name: b, devices: [{profile: slow}]}\n"
                        "  - {name: c, devices: [{profile: fast}]}\n" NET;
    kinds_are(alone, one, 2, 3);
    /* two in each: the way to the neighbour is not the way to the other node */
    const char *pairs = "version: 1\nnodes:\n"
                        "  - {name: a, devices: [{profile: slow, count: 2}], " LINK "}\n"
                        "  - {name: b, devices: [{profile: slow, count: 2}], " LINK "}\n" NET;
    kinds_are(pairs, one, 2, 4);
    kinds_are(pairs, two, 1, 2); /* as meshes there is no neighbour */
    /* a neighbour of another kind in one of the nodes tells them apart */
    const char *neighbour = "version: 1\nnodes:\n"
                            "  - {name: a, devices: [{profile: slow}, {profile: fast}], " LINK "}\n"
                            "  - {name: b, devices: [{profile: slow}], " LINK "}\n" NET;
    kinds_are(neighbour, one, 3, 3);
    /* two entries of one node are one kind */
    const char *split =
        "version: 1\nnodes:\n"
        "  - {name: a, devices: [{profile: slow}, {profile: slow, count: 2}], " LINK "}\n";
    kinds_are(split, one, 1, 3);
}

static void test_widths(void **state)
{
    struct setting                  s;
    struct tsr_plan_problem_options o = usual();
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_plan_width_choices   c;
    uint32_t                        w[TSR_PLAN_MESH_WIDTHS], tp[2];
    char                            why[600];
    uint64_t                        n = 0;
    (void)state;
    set_up(&s,
           "version: 1\nnodes:\n  - {name: a, devices: [{profile: slow, count: 6}], " LINK "}\n",
           &o, 8, 4, 2);
    /* 8 heads on 4 of keys: 3 and 6 cut heads */
    assert_int_equal(tsr_plan_meshes_widths(&s.p, 0, false, w, why, sizeof why), 2);
    assert_true(w[0] == 1 && w[1] == 2);
    assert_true(text_has(why, "slow 3 6"));
    take_down(&s);
    /* two nodes that are alike: (1,1), (1,2), (2,2), not (2,1) */
    set_up(&s,
           "version: 1\nnodes:\n"
           "  - {name: a, devices: [{profile: slow, count: 2}], " LINK "}\n"
           "  - {name: b, devices: [{profile: slow, count: 2}], " LINK "}\n" NET,
           &o, 8, 4, 2);
    assert_int_equal(tsr_plan_width_choices_make(&c, &s.p, false, &e.err), TSR_OK);
    while (tsr_plan_width_choices_next(&c, tp)) {
        assert_true(tp[0] <= tp[1]);
        n++;
    }
    assert_int_equal(n, 3);
    tsr_plan_width_choices_free(&c);
    take_down(&s);
}

/* ---- nothing is better ---------------------------------------------------------------------- */

/* The search may miss plans that fit by less than 1/512 of the smallest device (build.h): it is not
 * better than any plan, nor worse than any with a little room. */
static void compare(const char *text, struct tsr_plan_problem_options o, uint64_t batch)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct setting          s;
    struct tsr_plan_planned a;
    double                  best, safe;
    set_up(&s, text, &o, 24, 9, batch);
    uint64_t plans = enumerate(&s.p, &best, &safe);
    if (tsr_search(&a, &s.p, &s.solver, INFINITY, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (!plans) {
        assert_int_equal(a.status, TSR_SOLVED_INFEASIBLE);
    } else if (isfinite(safe)) {
        assert_int_equal(a.status, TSR_SOLVED_OPTIMAL);
        /* other orders of the same sums */
        if (!(a.objective >= best * (1 - 1e-7)) || !(a.objective <= safe * (1 + 1e-7)))
            fail_msg("%s: %.12g, of %llu plans the best is %.12g, with room %.12g", text,
                     a.objective, (unsigned long long)plans, best, safe);
        check_latency(&s.p, &a.outcome);
        for (uint64_t i = 0; i < a.outcome.n_stages; i++)
            assert_true(a.outcome.stages[i].memory.total <= a.outcome.stages[i].memory.capacity);
        for (uint64_t l = 0; l < s.p.shape->layers; l++)
            on_cpus += a.outcome.cpu_experts[l];
        compared++;
    }
    tsr_plan_planned_free(&a);
    take_down(&s);
}

static void test_best(void **state)
{
    uint64_t rounds = all_of_them ? 200 : 12;
    (void)state;
    for (uint64_t i = 0; i < rounds; i++) {
        char     text[800];
        uint32_t r[4];
        tsr_philox(r, i, 0, seed);
        unsigned                        draw = r[0], wide = 1 + draw % 2;
        struct tsr_plan_problem_options o = usual();
        profile("slow", 500 + draw / 2 % 900, 100 + draw / 7 % 300);
        profile("fast", 800 + draw / 11 % 1500, 500 + draw / 13 % 900);
        (void)snprintf(text, sizeof text,
                       "version: 1\nnodes:\n"
                       "  - {name: a, devices: [{profile: slow, count: %u}], link: {bandwidth: %u "
                       "MB/s, latency: 20 us}}\n"
                       "  - {name: b, devices: [{profile: fast}], " LINK "}\n" NET,
                       wide, 20 + draw / 17 % 500);
        o.theta = i % 2 ? 0.01 : 0;
        o.max_omega = i % 3 == 2 ? 2.5 : -1;
        compare(text, o, 1 + draw / 3 % 4);
        o.head = TSR_PLAN_HEAD_FIRST;
        compare(text, o, 1 + draw / 3 % 4);
    }
    assert_true(compared >= rounds);
    profile("slow", 1024, 200);
    profile("fast", 2048, 800);
}

/* ---- experts on the CPU of a node ------------------------------------------------------------ */

#define EXPERTS TSR_SOURCE_ROOT "/tests/golden/models/"

static const char *const expert_texts[] = { "rtn:bits=4,group=8", "rtn:bits=8,group=8" };

static struct tsr_plan_problem_options experts(const char *model)
{
    struct tsr_plan_problem_options o = usual();
    o.model = model;
    o.candidates = expert_texts;
    return o;
}

/* One device or two next to a CPU, and one without; the CPU's memory may be too small. */
static void test_cpu_experts(void **state)
{
    static const char *const models[] = { EXPERTS "qwen3_moe", EXPERTS "deepseek_v3",
                                          EXPERTS "mixtral" };
    uint64_t                 rounds = all_of_them ? 120 : 18, before = compared;
    (void)state;
    on_cpus = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        char     text[800];
        uint32_t r[4];
        tsr_philox(r, i, 1, i < rounds / 2 ? 1 : seed); /* of the first half, some use the CPU */
        unsigned                        draw = r[0];
        struct tsr_plan_problem_options o = experts(models[i % 3]);
        profile("slow", 400 + draw / 2 % 900, 100 + draw / 7 % 300);
        profile("fast", 300 + draw / 11 % 400, 500 + draw / 13 % 900);
        profile("host", 20 + draw / 19 % (i % 2 ? 300 : 3000), 50 + draw / 23 % 200);
        (void)snprintf(
            text, sizeof text,
            "version: 1\nnodes:\n"
            "  - {name: a, devices: [{profile: fast, count: %u}], " LINK ",\n"
            "     cpu: {profile: host, link: {bandwidth: %u MB/s, latency: 5 us}}}\n%s" NET,
            1 + draw % 2, 20 + draw / 17 % 500,
            i % 3 == 2 ? "  - {name: b, devices: [{profile: slow}]}\n" : "");
        o.theta = i % 2 ? 0.01 : 0;
        o.max_tp = 1;
        compare(text, o, 1 + draw / 3 % 4);
    }
    assert_true(compared >= before + rounds / 2);
    assert_true(on_cpus > 0);
    profile("slow", 1024, 200);
    profile("fast", 2048, 800);
}

static void plan_of(const char *text, struct tsr_plan_problem_options o, struct tsr_plan_planned *a)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct setting    s;
    set_up(&s, text, &o, 24, 9, 4);
    if (tsr_search(a, &s.p, &s.solver, INFINITY, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    /* the outcome's layers outlive the problem, its meshes do not */
    if (a->built)
        tsr_plan_built_destroy(a->built);
    a->built = NULL;
    take_down(&s);
}

static const char with_cpu[] =
    "version: 1\nnodes:\n"
    "  - {name: a, devices: [{profile: fast}],\n"
    "     cpu: {profile: host, link: {bandwidth: 500 MB/s, latency: 1 us}}}\n";
static const char without[] = "version: 1\nnodes:\n  - {name: a, devices: [{profile: fast}]}\n";

/* A larger device is never worse, and a CPU next to it neither. */
static void test_cpu_experts_never_worse(void **state)
{
    double before = INFINITY;
    bool   some = false, none = false;
    (void)state;
    profile("host", 3000, 100);
    for (unsigned kib = 360; kib <= 760; kib += 16) {
        struct tsr_plan_planned with, alone;
        double                  ms, other;
        uint64_t                on = 0;
        profile("fast", kib, 800);
        plan_of(with_cpu, experts(EXPERTS "qwen3_moe"), &with);
        plan_of(without, experts(EXPERTS "qwen3_moe"), &alone);
        ms = tsr_plan_planned_has_plan(&with) ? with.objective : INFINITY;
        other = tsr_plan_planned_has_plan(&alone) ? alone.objective : INFINITY;
        for (uint64_t l = 0; l < with.outcome.layers; l++)
            on += with.outcome.cpu_experts[l];
        if (!(ms <= other * (1 + 1e-9)))
            fail_msg("%u KiB: %.9g with a CPU, %.9g without", kib, ms, other);
        if (!(ms <= before * (1 + 1e-9)))
            fail_msg("%u KiB: %.9g, less memory %.9g", kib, ms, before);
        some = some || (on > 0 && on < with.outcome.layers);
        none = none || (on == 0 && isfinite(ms));
        before = ms;
        tsr_plan_planned_free(&with);
        tsr_plan_planned_free(&alone);
    }
    assert_true(some && none); /* some layers' experts; and none's, on a large device */
    profile("fast", 2048, 800);
}

/* A fast device that holds everything but experts, next to a slow CPU with much memory: experts on the CPU beat the
 * CPU alone, and the device alone has no plan. */
static void test_cpu_experts_wins(void **state)
{
    static const char on_cpu[] = "version: 1\nnodes:\n  - {name: a, devices: [{profile: host}]}\n";
    struct tsr_plan_planned both, cpu, device;
    (void)state;
    profile("host", 3000, 50);
    profile("fast", 440, 2000);
    plan_of(with_cpu, experts(EXPERTS "qwen3_moe"), &both);
    plan_of(on_cpu, experts(EXPERTS "qwen3_moe"), &cpu);
    plan_of(without, experts(EXPERTS "qwen3_moe"), &device);
    assert_int_equal(both.status, TSR_SOLVED_OPTIMAL);
    assert_int_equal(cpu.status, TSR_SOLVED_OPTIMAL);
    assert_int_equal(device.status, TSR_SOLVED_INFEASIBLE);
    assert_true(both.objective < cpu.objective);
    tsr_plan_planned_free(&both);
    tsr_plan_planned_free(&cpu);
    tsr_plan_planned_free(&device);
    profile("fast", 2048, 800);
}

/* ---- groups of experts with bits of their own -------------------------------------------------- */

#define TOKENS 64

/* How often each expert is taken: tokens that go through the experts in an order of the layer's own and take each with
 * half a chance, until they have `used`. */
static void write_routing(const struct tsr_plan_shape *s, uint32_t draw)
{
    for (uint64_t l = 0; l < s->layers; l++) {
        struct tsr_st_out *o;
        struct tsr_errbuf  e = TSR_ERRBUF(e);
        char               path[200], key[64], text[24];
        uint32_t           count[16] = { 0 };
        if (!s->layer[s->layer_class[l]].router.rows)
            continue;
        assert_true(s->experts <= 16);
        for (uint32_t t = 0; t < TOKENS; t++) {
            bool     has[16] = { false };
            uint32_t n = 0;
            for (uint32_t k = 0; n < s->experts_used; k++) {
                uint32_t r[4], at = (k * 5 + (uint32_t)l) % s->experts;
                tsr_philox(r, t, k, draw);
                if (k >= s->experts ? has[at] : r[0] & 1)
                    continue;
                if (has[at])
                    continue;
                has[at] = true;
                count[at]++;
                n++;
            }
        }
        (void)snprintf(path, sizeof path, "%s/routing/layer-%05llu.safetensors", folder,
                       (unsigned long long)l);
        (void)unlink(path);
        assert_int_equal(tsr_safetensors_create(&o, path, &e.err), TSR_OK);
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)l);
        assert_int_equal(tsr_safetensors_metadata(o, "format", "tessera.calibration/1", &e.err),
                         TSR_OK);
        assert_int_equal(tsr_safetensors_metadata(o, "layer", text, &e.err), TSR_OK);
        assert_int_equal(tsr_safetensors_metadata(o, "sequences", "8", &e.err), TSR_OK);
        assert_int_equal(tsr_safetensors_metadata(o, "seqlen", "8", &e.err), TSR_OK);
        for (uint32_t i = 0; i < s->experts; i++) {
            (void)snprintf(key, sizeof key, "experts.%u.ffn_in.%s", i,
                           count[i] ? "tokens" : "borrowed");
            (void)snprintf(text, sizeof text, "%u", count[i] ? count[i] : 8);
            assert_int_equal(tsr_safetensors_metadata(o, key, text, &e.err), TSR_OK);
        }
        assert_int_equal(tsr_safetensors_begin(o, &e.err), TSR_OK);
        if (tsr_safetensors_commit(o, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
    }
}

/* A file of indicators: what layers and their experts suffer at 3, 4 and 8 bits. */
#define MOST_LAYERS 8
static struct {
    bool   given;
    double used[MOST_LAYERS][3], all[MOST_LAYERS][3], expert[MOST_LAYERS][16][3];
} suffer;

static uint32_t width_at(uint32_t bits)
{
    return bits == 3 ? 0 : bits == 4 ? 1 : 2;
}

static void put_row(FILE *f, const double *v)
{
    (void)fprintf(f, "[%.17g,%.17g,%.17g,0]", v[0], v[1], v[2]);
}

/* other: the table that is used has no experts, those of `hessian` divide it. */
static void write_indicators(const struct tsr_plan_shape *s, uint32_t draw, bool other)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/ind.json", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(s->layers <= MOST_LAYERS && s->experts <= 16);
    for (uint64_t l = 0; l < s->layers; l++)
        for (int b = 0; b < 3; b++) {
            double   falls = ldexp(1, b == 2 ? -10 : -2 * b);
            uint32_t r[4];
            tsr_philox(r, l, 17, draw);
            suffer.all[l][b] = falls * (1 + r[0] % 100);
            for (uint32_t e = 0; e < s->experts; e++) {
                tsr_philox(r, l * 16 + e, 18 + (uint32_t)b, draw); /* they do not fall alike */
                suffer.expert[l][e][b] = falls * (r[0] % 7 == 0 ? 0 : r[0] % 1000) / 100;
                suffer.all[l][b] += suffer.expert[l][e][b];
            }
            suffer.used[l][b] = other ? falls * (3 + (double)l) : suffer.all[l][b];
        }
    (void)fprintf(f,
                  "{\"format\":\"tessera.indicators/1\",\"model\":\"x\",\"layers\":%llu,"
                  "\"bits\":[3,4,8,16],\"tables\":[",
                  (unsigned long long)s->layers);
    for (int table = other ? 0 : 1; table < 2; table++) {
        (void)fprintf(f, "{\"name\":\"%s\",\"omega\":[", table ? "hessian" : "measured");
        for (uint64_t l = 0; l < s->layers; l++) {
            (void)fputs(l ? "," : "", f);
            put_row(f, table ? suffer.all[l] : suffer.used[l]);
        }
        (void)fprintf(f, "]%s", table ? ",\"experts\":[" : "},");
        for (uint64_t l = 0; table && l < s->layers; l++) {
            bool has = s->layer[s->layer_class[l]].router.rows;
            (void)fprintf(f, "%s%s", l ? "," : "", has ? "[" : "null");
            for (uint32_t e = 0; has && e < s->experts; e++) {
                (void)fputs(e ? "," : "", f);
                put_row(f, suffer.expert[l][e]);
            }
            (void)fputs(has ? "]" : "", f);
        }
    }
    (void)fputs("]}]}", f);
    assert_int_equal(fclose(f), 0);
    suffer.given = true;
}

/* The measured omega of a mix: what is not of experts at the first group's bits, and each expert at its own. */
static double measured(const struct tsr_plan_shape *s, const struct tsr_plan_candidate *mix,
                       uint64_t l)
{
    uint32_t b = width_at(mix->of[0]->bits);
    double   rest = suffer.all[l][b], sum;
    for (uint32_t e = 0; e < s->experts; e++)
        rest -= suffer.expert[l][e][b];
    sum = suffer.used[l][b] * rest / suffer.all[l][b];
    for (uint32_t e = 0; e < s->experts; e++) {
        b = width_at(
            tsr_plan_candidate_part(mix, TSR_MODEL_UP, s->group_of[l * s->experts + e])->bits);
        sum += suffer.used[l][b] * suffer.expert[l][e][b] / suffer.all[l][b];
    }
    return sum;
}

/* Every expert apart: bytes, what it reads, and its part of omega; the groups' sums are these. */
static void check_mixes(const struct tsr_plan_problem *p, const struct tsr_plan_mesh *m)
{
    const struct tsr_plan_shape *s = p->shape;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    for (uint64_t c = 0; c < p->candidates.n; c++)
        for (uint64_t l = 0; l < s->layers; l++) {
            const struct tsr_plan_candidate   *mix = &p->candidates.v[c], *hot;
            uint64_t                           cls = s->layer_class[l], is, kv, want, n[2];
            const struct tsr_plan_shape_layer *of = &s->layer[cls];
            struct tsr_format                  f;
            double all = 0, omega = 0, had = p->quality.omega[l * p->candidates.n + c];
            if (mix->n_parts <= TSR_PLAN_MIXED || !of->router.rows)
                continue;
            hot = mix->of[0];
            assert_int_equal(tsr_plan_memory_layer(&p->memory, m, cls, hot, &want, &kv, &e.err),
                             TSR_OK);
            assert_int_equal(tsr_plan_memory_layer(&p->memory, m, cls, mix, &is, &kv, &e.err),
                             TSR_OK);
            for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
                double each = (double)of->lin[i].rows * (double)of->lin[i].cols;
                bool   expert = tsr_plan_shape_is_expert(of, i);
                if (of->lin[i].rows == 0)
                    continue;
                assert_int_equal(tsr_plan_candidate_matrix(hot, &of->lin[i], &f, &n[0], &e.err),
                                 TSR_OK);
                for (uint64_t x = 0; x < (expert ? s->experts : 1); x++) {
                    const struct tsr_plan_candidate *part =
                        tsr_plan_candidate_part(mix, i,
                                                expert ? s->group_of[l * s->experts + x] : 0);
                    double share = expert ? s->routing[l * s->experts + x] / s->experts_used *
                                                (double)s->experts
                                          : 1;
                    assert_int_equal(tsr_plan_candidate_matrix(part, &of->lin[i], &f, &n[1],
                                                               &e.err),
                                     TSR_OK);
                    want += n[1] - n[0];
                    all += each;
                    omega +=
                        each * share *
                        p->quality.omega[l * p->candidates.n + (uint64_t)(part - p->candidates.v)];
                }
            }
            assert_int_equal(is, want);
            if (suffer.given)
                assert_true(fabs(measured(s, mix, l) - had) <= 1e-12 * had);
            else
                assert_true(fabs(omega / all - had) <= 1e-12 * had);
        }
}

/* Experts of earlier groups are taken at least as often, or suffer as much, and groups are as even as can be. */
static void check_groups(const struct tsr_plan_shape *s)
{
    for (uint64_t l = 0; l < s->layers; l++) {
        uint64_t n[TSR_PLAN_GROUPS] = { 0 };
        if (!s->layer[s->layer_class[l]].router.rows)
            continue;
        for (uint64_t a = 0; a < s->experts; a++) {
            uint8_t g = s->group_of[l * s->experts + a];
            n[g]++;
            for (uint64_t b = 0; b < s->experts; b++)
                if (s->group_of[l * s->experts + b] > g && suffer.given)
                    assert_true(suffer.expert[l][a][0] >= suffer.expert[l][b][0]);
                else if (s->group_of[l * s->experts + b] > g)
                    assert_true(s->routing[l * s->experts + a] >= s->routing[l * s->experts + b]);
        }
        for (uint32_t g = 0; g < s->groups; g++)
            assert_true(n[g] == s->experts / s->groups || n[g] == s->experts / s->groups + 1);
        assert_memory_equal(n, s->layer[s->layer_class[l]].group, sizeof n);
    }
}

static void test_expert_groups(void **state)
{
    static const char *const models[] = { EXPERTS "qwen3_moe", EXPERTS "deepseek_v3",
                                          EXPERTS "mixtral" };
    static const char *const three[] = { "rtn:bits=3,group=8", "rtn:bits=4,group=8",
                                         "rtn:bits=8,group=8" };
    uint64_t                 rounds = all_of_them ? 120 : 12, before = compared;
    (void)state;
    for (uint64_t i = 0; i < rounds; i++) {
        char                            text[800], routing[200], indicators[200];
        uint32_t                        r[4];
        struct setting                  s;
        struct tsr_plan_mesh            m;
        struct tsr_plan_problem_options o = experts(models[i / 3 % 3]);
        tsr_philox(r, i, 2, seed);
        unsigned draw = r[0];
        profile("slow", 400 + draw / 2 % 900, 100 + draw / 7 % 300);
        profile("fast", 300 + draw / 11 % 400, 500 + draw / 13 % 900);
        profile("host", 500 + draw / 19 % 3000, 50 + draw / 23 % 200);
        (void)snprintf(text, sizeof text,
                       "version: 1\nnodes:\n  - {name: a, devices: [{profile: fast}], " LINK "%s}\n"
                       "%s" NET,
                       i % 4 == 3 ? ", cpu: {profile: host, link: {bandwidth: 90 MB/s, latency: "
                                    "5 us}}"
                                  : "",
                       i % 4 == 2 ? "  - {name: b, devices: [{profile: slow}]}\n" : "");
        set_up(&s, text, &o, 24, 9, 1 + draw / 3 % 4);
        write_routing(s.p.shape, draw);
        suffer.given = false;
        if (i % 3 != 0) {
            write_indicators(s.p.shape, draw, i % 3 == 2);
            (void)snprintf(indicators, sizeof indicators, "%s/ind.json", folder);
            o.indicators = indicators;
        }
        take_down(&s);
        (void)snprintf(routing, sizeof routing, "%s/routing", folder);
        o.routing = routing;
        o.expert_groups = 2 + (uint32_t)(i / 3 % 2);
        o.candidates = i % 2 ? three : expert_texts;
        o.n_candidates = i % 2 && i % 4 != 3 ? 3 : 2;
        o.theta = i % 2 ? 0.01 : 0;
        o.max_omega = i % 3 == 0 ? 2.5 : -1;
        set_up(&s, text, &o, 24, 9, 2);
        check_groups(s.p.shape);
        assert_string_equal(s.p.quality.experts, suffer.given ? "hessian" : "");
        tsr_plan_mesh_of(s.cluster, 0, 1, &m);
        check_mixes(&s.p, &m);
        take_down(&s);
        compare(text, o, 1 + draw / 3 % 4);
    }
    assert_true(compared >= before + rounds / 2);
    suffer.given = false;
    profile("slow", 1024, 200);
    profile("fast", 2048, 800);
}

/* Files that say something wrong of experts. */
static void test_expert_indicators_bad(void **state)
{
    static const struct {
        const char *experts, *word;
    } bad[] = { { "[[[1],[1],[1]],null,null]", "3 8 0" },
                { "[[[1],[1],[1],[1],[1],[1],[1],[-1]],null,null]", "4 0" },
                { "[[[1],[1],[1],[1],[1],[1],[1],[null]],null,null]", "4 0" },
                { "7", "experts" } };
    struct tsr_plan_problem_options o = experts(EXPERTS "qwen3_moe");
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct setting                  s;
    struct tsr_plan_quality         q;
    char                            text[600];
    (void)state;
    set_up(&s, without, &o, 24, 9, 1);
    assert_int_equal(s.p.shape->layers, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)snprintf(
            text, sizeof text,
            "{\"format\":\"tessera.indicators/1\",\"model\":\"x\",\"layers\":3,\"bits\":[4],"
            "\"tables\":[{\"name\":\"hessian\",\"omega\":[[9],[9],[9]],\"experts\":%s}]}",
            bad[i].experts);
        assert_int_equal(tsr_plan_quality_parse(&q, "f.json", text, strlen(text), "", s.p.shape,
                                                &s.p.candidates, &e.err),
                         TSR_E_INPUT);
        if (!strstr(e.text, "f.json") || !has_facts(e.text, bad[i].word))
            fail_msg("%d: %s", (int)i, e.text);
    }
    take_down(&s);
}

/* More groups are never worse, and on some device two are better than one. */
static void test_expert_groups_never_worse(void **state)
{
    char                            routing[200];
    struct setting                  s;
    struct tsr_plan_problem_options o = experts(EXPERTS "qwen3_moe");
    bool                            better = false;
    (void)state;
    set_up(&s, without, &o, 24, 9, 4);
    write_routing(s.p.shape, 7);
    take_down(&s);
    (void)snprintf(routing, sizeof routing, "%s/routing", folder);
    o.routing = routing;
    o.theta = 1;
    for (unsigned kib = 340; kib <= 640; kib += 20) {
        double before = INFINITY;
        profile("fast", kib, 800);
        for (uint32_t groups = 1; groups <= 4; groups *= 2) {
            struct tsr_plan_planned a;
            o.expert_groups = groups;
            plan_of(without, o, &a);
            double ms = tsr_plan_planned_has_plan(&a) ? a.objective : INFINITY;
            if (!(ms <= before * (1 + 1e-9)))
                fail_msg("%u KiB: %.12g with %u groups, %.12g with half as many", kib, ms, groups,
                         before);
            better = better || ms < before * (1 - 1e-6);
            before = ms;
            tsr_plan_planned_free(&a);
        }
    }
    assert_true(better);
    profile("fast", 2048, 800);
}

/* A mix whose groups have one candidate is that candidate, where reads bound the time; and what is refused. */
static void test_expert_groups_alike(void **state)
{
    static const char *const same[] = { "rtn:bits=4,group=8", "rtn:bits=4,group=8,mse=true" };
    struct tsr_plan_problem_options o = experts(EXPERTS "qwen3_moe");
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct setting                  s;
    struct tsr_plan_mesh            m;
    struct tsr_plan_problem         p;
    char                            routing[200];
    (void)state;
    (void)snprintf(routing, sizeof routing, "%s/routing", folder);
    o.routing = routing;
    o.expert_groups = 2;
    o.candidates = same;
    o.max_omega = 1e9;
    set_up(&s, without, &o, 24, 9, 1);
    tsr_plan_mesh_of(s.cluster, 0, 1, &m);
    assert_int_equal(s.p.candidates.n, 4); /* 4, 4 and both mixes */
    for (uint64_t c = 1; c < 4; c++)
        for (double v = 1; v <= 4; v += 3) {
            struct tsr_plan_time             one, two;
            enum tsr_phase                   ph = TSR_PLAN_DECODE;
            const struct tsr_plan_candidate *k = s.p.candidates.v;
            assert_int_equal(tsr_plan_latency_layer(&s.p.latency, &m, 0, &k[0], ph, v, 1, 9, &one,
                                                    &e.err),
                             TSR_OK);
            assert_int_equal(tsr_plan_latency_layer(&s.p.latency, &m, 0, &k[c], ph, v, 1, 9, &two,
                                                    &e.err),
                             TSR_OK);
            if (!(fabs(one.ms - two.ms) <= 1e-12 * one.ms))
                fail_msg("%s at %g: %.15g, %s %.15g", k[0].name, v, one.ms, k[c].name, two.ms);
            for (uint64_t l = 0; l < s.p.shape->layers; l++)
                assert_true(fabs(s.p.quality.omega[l * 4] - s.p.quality.omega[l * 4 + c]) <=
                            1e-12 * s.p.quality.omega[l * 4]);
        }
    take_down(&s);
    s.cluster = cluster_of(without);
    assert_int_equal(tsr_plan_workload_fixed(&s.work, 24, 9, 4, &e.err), TSR_OK);
    static const struct {
        const char *model, *routing, *word;
        uint32_t    groups, accounting, n;
    } bad[] = { { EXPERTS "qwen3_moe", "", "calibrate routing", 2, TSR_PLAN_ACCOUNT_EXACT, 2 },
                { EXPERTS "llama2", "", "experts expert_groups", 2, TSR_PLAN_ACCOUNT_EXACT, 2 },
                { EXPERTS "qwen3_moe", NULL, "accounting", 2, TSR_PLAN_ACCOUNT_PAPER, 2 },
                { EXPERTS "qwen3_moe", NULL, "5 8 4", 5, TSR_PLAN_ACCOUNT_EXACT, 2 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.model = bad[i].model;
        o.routing = bad[i].routing ? bad[i].routing : routing;
        o.expert_groups = bad[i].groups;
        o.accounting = bad[i].accounting;
        assert_int_equal(tsr_plan_problem_open(&p, registry, &o, s.cluster, &s.work, &e.err),
                         TSR_E_INPUT);
        if (!has_facts(e.text, bad[i].word))
            fail_msg("%d: %s", (int)i, e.text);
    }
    tsr_plan_workload_free(&s.work);
    tsr_plan_cluster_destroy(s.cluster);
}

/* ---- layers that go together ------------------------------------------------------------------ */

static void test_together(void **state)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct setting                  s;
    struct tsr_plan_built          *b;
    struct tsr_plan_problem_options o = usual();
    static const uint32_t           tp[1] = { 1 };
    (void)state;
    o.together = 2;
    set_up(&s, "version: 1\nnodes:\n  - {name: a, devices: [{profile: slow}]}\n", &o, 8, 4, 2);
    assert_int_equal(tsr_plan_build(&b, &s.p, &(struct tsr_plan_space){ .ways = tp, .stride = 1 },
                                    &e.err),
                     TSR_OK);
    /* 5 layers in pairs: two pairs and one alone, which is a class of its own */
    assert_int_equal(b->units, 3);
    assert_int_equal(b->whole.classes, 2);
    assert_true(b->whole.layer_class[0] == b->whole.layer_class[1] &&
                b->whole.layer_class[2] != b->whole.layer_class[0]);
    assert_int_equal(b->unit_first[3], 5);
    uint64_t pair = b->whole.layer_class[0], one = b->whole.layer_class[2];
    for (uint64_t q = 0; q < 2; q++) { /* sums, not means */
        assert_int_equal(b->whole.layer_bytes[pair * 2 + q], 2 * b->whole.layer_bytes[one * 2 + q]);
        assert_true(fabs(b->whole.options[0]->pre_ms[pair * 2 + q] -
                         2 * b->whole.options[0]->pre_ms[one * 2 + q]) <
                    1e-12 * b->whole.options[0]->pre_ms[pair * 2 + q]);
        assert_true(fabs(b->whole.omega[q] - s.p.quality.omega[q] - s.p.quality.omega[2 + q]) <
                    1e-12);
    }
    tsr_plan_built_destroy(b);
    take_down(&s);
}

/* ---- what is missing ---------------------------------------------------------------------------- */

static void test_short(void **state)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct setting                  s;
    struct tsr_plan_problem_options o = usual();
    uint64_t                        bytes;
    struct tsr_plan_variant         v;
    struct tsr_plan_planned         a;
    (void)state;
    profile("tiny", 300, 200);
    set_up(&s,
           "version: 1\nnodes:\n  - {name: a, devices: [{profile: tiny, count: 2}], " LINK "}\n",
           &o, 400, 50, 16);
    assert_int_equal(tsr_plan_whatif_short(&s.p, &s.solver, 0, &bytes, &e.err), TSR_OK);
    assert_true(bytes != UINT64_MAX && bytes > 0);
    for (int less = 0; less < 2; less++) { /* so much is enough, a step less is not */
        assert_int_equal(tsr_plan_variant_make(&v, &s.p, &e.err), TSR_OK);
        v.p.more_bytes[0] = (int64_t)(bytes - (less ? (uint64_t)1 << 20 : 0));
        assert_int_equal(tsr_search(&a, &v.p, &s.solver, INFINITY, &e.err), TSR_OK);
        assert_true(tsr_plan_planned_has_plan(&a) == (less == 0));
        assert_true(!less || a.status == TSR_SOLVED_INFEASIBLE);
        tsr_plan_planned_free(&a);
        tsr_plan_variant_free(&v);
    }
    take_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_cpu_experts),
        cmocka_unit_test(test_cpu_experts_never_worse),
        cmocka_unit_test(test_cpu_experts_wins),
        cmocka_unit_test(test_expert_groups),
        cmocka_unit_test(test_expert_indicators_bad),
        cmocka_unit_test(test_expert_groups_never_worse),
        cmocka_unit_test(test_expert_groups_alike),
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
