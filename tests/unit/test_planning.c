/* From a model and a cluster to the best plan: which devices are alike, which sizes of micro-batches
 * are tried, and that nothing which can be enumerated and priced layer by layer, through the cost
 * models alone, is better than what the search says. */
#include "planning_compare.h"

#include "../fixtures/error_is.h"
#include "plan/search/whatif.h"

#include <stdlib.h>
#include <string.h>

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

/* Rows come back to a head on the first stage by ways that take long: inside of nodes, or between them.  Memory is short,
 * that plans have several stages; every third cluster has two nodes that can change places. */
static void test_back(void **state)
{
    uint64_t rounds = all_of_them ? 300 : 30;
    (void)state;
    went_back = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        char     text[800];
        uint32_t r[4];
        tsr_philox(r, i, 1, i < rounds / 2 ? 3 : seed); /* of seed 3, nine of fifteen do */
        struct tsr_plan_problem_options o = usual();
        bool                            twins = i % 3 == 2;
        profile("slow", 220 + r[0] % 200, 100 + r[0] / 7 % 300);
        profile("fast", 220 + r[1] % 300, 200 + r[1] / 13 % 900);
        (void)snprintf(text, sizeof text,
                       "version: 1\nnodes:\n"
                       "  - {name: a, devices: [{profile: slow, count: %d}], link: {bandwidth: %u "
                       "MB/s, latency: %u us}}\n"
                       "  - {name: b, devices: [{profile: %s}], " LINK "}\n"
                       "network: {bandwidth: %u MB/s, latency: %u us}\n",
                       twins ? 1 : 2, 5 + r[2] % 500, r[2] / 3 % 300, twins ? "slow" : "fast",
                       5 + r[3] % 200, r[3] / 3 % 600);
        o.theta = i % 2 ? 0.01 : 0;
        o.head = TSR_PLAN_HEAD_FIRST;
        compare(text, o, 1 + r[0] / 3 % 3);
    }
    (void)printf("%u of %llu plans have rows that come back\n", went_back,
                 (unsigned long long)rounds);
    assert_true(went_back >= rounds / 3);
    profile("slow", 1024, 200);
    profile("fast", 2048, 800);
}

/* Whole prompts whose groups are more than the batch divided by their size: 3 + 3 + 2 requests in groups of 2 are five.  Memory
 * is short, that plans have several stages, and the decode micro-batch is given, so that many plans have these groups. */
static void test_uneven(void **state)
{
    uint64_t rounds = all_of_them ? 300 : 24;
    unsigned more = compared, uneven = 0;
    (void)state;
    for (uint64_t i = 0; i < rounds; i++) {
        char     text[800];
        uint32_t r[4];
        tsr_philox(r, i, 2, seed);
        struct tsr_plan_problem_options o = usual();
        uint64_t                        batch = 6 + r[0] / 3 % 6;
        profile("slow", 260 + 20 * (unsigned)batch + r[0] % 200, 100 + r[0] / 7 % 300);
        profile("fast", 260 + 20 * (unsigned)batch + r[1] % 300, 200 + r[1] / 13 % 900);
        (void)snprintf(text, sizeof text,
                       "version: 1\nnodes:\n"
                       "  - {name: a, devices: [{profile: slow, count: 2}], link: {bandwidth: %u "
                       "MB/s, latency: %u us}}\n"
                       "  - {name: b, devices: [{profile: fast}], " LINK "}\n" NET,
                       5 + r[2] % 500, r[2] / 3 % 300);
        o.theta = i % 2 ? 0.01 : 0;
        o.head = i % 3 == 2 ? TSR_PLAN_HEAD_FIRST : 0;
        o.decode_mb = 3 + r[3] % 3;
        o.prefill_mb = i % 4 ? 2 : 0;
        uneven += groups_of(batch, 2, o.decode_mb) > ceil((double)batch / 2);
        compare(text, o, batch);
    }
    (void)printf("%u of %u problems have more groups of two than half their requests\n", uneven,
                 compared - more);
    assert_true(uneven >= rounds / 4 && compared > more + rounds / 2);
    profile("slow", 1024, 200);
    profile("fast", 2048, 800);
}

/* The fewest jobs of a prompt on any kind of a build; *given: what its one option has. */
static double fewest(struct setting *s, const uint32_t *tp, double *given)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plan_built *b;
    double                 least = INFINITY;
    assert_int_equal(tsr_plan_build(&b, &s->p, &(struct tsr_plan_space){ .ways = tp, .stride = 1 },
                                    &e.err),
                     TSR_OK);
    for (uint64_t k = 0; k < b->whole.n_kinds; k++)
        for (uint64_t q = 0; q < b->whole.bits; q++) {
            struct tsr_plan_time t;
            assert_int_equal(tsr_plan_built_layer(b, k, 0, q, TSR_PLAN_PREFILL, 1, &t, &e.err),
                             TSR_OK);
            least = fmin(least, t.ms / t.most_ms);
        }
    *given = b->whole.options[0]->prefill_jobs;
    tsr_plan_built_destroy(b);
    return least;
}

/* A plan has one price, whatever widths the problem has that it is priced in: so many jobs are its prompts. */
static void test_jobs(void **state)
{
    static const uint32_t one[] = { 1, 1 }, two[] = { 2, 1 };
    unsigned              differ = 0;
    (void)state;
    for (uint64_t i = 0; i < 10; i++) {
        struct tsr_plan_problem_options o = usual();
        struct setting                  s;
        uint32_t                        r[4];
        double                          a, b;
        tsr_philox(r, i, 3, seed);
        o.prefill_mb = o.decode_mb = 1;
        profile("slow", 1024, 100 + r[0] % 300);
        set_up(&s,
               "version: 1\nnodes:\n  - {name: a, devices: [{profile: slow, count: 2}], " LINK "}\n"
               "  - {name: b, devices: [{profile: fast}], " LINK "}\n" NET,
               &o, 24, 9, 1);
        s.p.work.chunk = 5 + r[1] % 12;
        tsr_plan_problem_refresh(&s.p);
        double x = fewest(&s, one, &a), y = fewest(&s, two, &b);
        assert_true(a > 1 && a == b);
        assert_true(a <= 24.0 / (double)s.p.work.chunk + 1);
        differ += fabs(x - y) > 1e-9 * x;
        take_down(&s);
    }
    (void)printf("by the kinds there are, %u of 10 problems have another number of jobs\n", differ);
    assert_true(differ > 0);
    profile("slow", 1024, 200);
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
    assert_int_equal(tsr_plan_whatif_short(&s.p, &s.solver, 0, 0, &bytes, &e.err), TSR_OK);
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

/* Of three large devices and a tiny one next to them, the tiny one would take no more bytes in all, but has to be many times
 * as large: what one would change are the others. */
static void test_least_short(void **state)
{
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct setting                  s;
    struct tsr_plan_problem_options o = usual();
    struct tsr_plan_remedies        r;
    (void)state;
    profile("tiny", 300, 200);
    profile("slow", 5800, 200);
    set_up(&s,
           "version: 1\nnodes:\n"
           "  - {name: a, devices: [{profile: tiny}, {profile: slow, count: 3}], " LINK "}\n",
           &o, 400, 50, 64);
    assert_int_equal(tsr_plan_whatif_remedies(&r, &s.p, &s.solver, &e.err), TSR_OK);
    (void)printf("short by %llu bytes on tiny, or %llu on each slow\n",
                 (unsigned long long)r.short_of[0], (unsigned long long)r.short_of[1]);
    assert_true(r.short_of[0] != UINT64_MAX && r.short_of[0] <= 3 * r.short_of[1]);
    assert_true(r.group == 1 && r.bytes == r.short_of[1]);
    tsr_plan_remedies_free(&r);
    take_down(&s);
    profile("slow", 1024, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),  cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_widths), cmocka_unit_test(test_best),
        cmocka_unit_test(test_back),   cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_jobs),   cmocka_unit_test(test_together),
        cmocka_unit_test(test_short),  cmocka_unit_test(test_least_short),
    };
    return run_planning("planning", tests);
}
