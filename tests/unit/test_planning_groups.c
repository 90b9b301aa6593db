/* Experts of a layer in groups with bits of their own: against every plan, and expert by expert; more groups are never worse; a mix
 * of one candidate is that candidate; what is refused. */
#include "planning_groups.h"

#include "../fixtures/error_is.h"

static const char without[] = "version: 1\nnodes:\n  - {name: a, devices: [{profile: fast}]}\n";

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
        tsr_philox(r, i, 2, i < rounds / 2 ? seed : 2); /* of seed 2, six have plans */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expert_groups),
        cmocka_unit_test(test_expert_indicators_bad),
        cmocka_unit_test(test_expert_groups_never_worse),
        cmocka_unit_test(test_expert_groups_alike),
    };
    return run_planning("planning_groups", tests);
}
