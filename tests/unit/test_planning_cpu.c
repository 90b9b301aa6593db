/* Models with experts on devices next to a CPU, which may run the experts: against every plan, never worse with a CPU or more
 * memory, and better where the CPU is what helps. */
#include "planning_compare.h"

#include <stdlib.h>
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_experts),
        cmocka_unit_test(test_cpu_experts_never_worse),
        cmocka_unit_test(test_cpu_experts_wins),
    };
    return run_planning("planning_cpu", tests);
}
