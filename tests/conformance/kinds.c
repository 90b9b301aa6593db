/* The rules of codecs, transports, solvers, backends, samplers, steps and KV-cache codecs: the plugins of the tree keep them, and
 * each plugin with one fault (tests/fixtures/bad_*.c) breaks exactly the rule that is about it.
 *
 * One of some faults, by TSR_TEST_SEED, meets all rules of its kind; the others meet their own.
 * With TSR_TEST_ALL=1 all faults meet all rules, those of every kind too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "conformance/rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- plugins that are good -------------------------------------------------- */

static const char *name_of(enum tsr_verdict v)
{
    static const char *const names[] = {
        [TSR_CONFORMANCE_PASS] = "passed",     [TSR_CONFORMANCE_WARN] = "warning",
        [TSR_CONFORMANCE_FAILED] = "failed",   [TSR_CONFORMANCE_SKIP] = "skipped",
        [TSR_CONFORMANCE_CRASHED] = "crashed", [TSR_CONFORMANCE_HUNG] = "hung"
    };
    return names[v];
}

static void keeps(const char *path, const char *component, const char *only, const char *set)
{
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    struct tsr_conformance_check_report  r;
    struct tsr_conformance_check_options o = {
        .only = only, .component = component, .sets = &set, .n_sets = set ? 1 : 0, .seed = 1
    };
    if (tsr_conformance_check_run(&r, path, &o, NULL, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_true(r.n > 5);
    for (uint64_t i = 0; i < r.n; i++)
        if (r.results[i].verdict != TSR_CONFORMANCE_PASS &&
            r.results[i].verdict != TSR_CONFORMANCE_SKIP)
            fail_msg("%s %s: %s %s: %s", path, set ? set : "", name_of(r.results[i].verdict),
                     r.results[i].rule->name, r.results[i].text);
    assert_true(r.failed == 0 && r.passed > 0);
    tsr_conformance_check_report_free(&r);
}

static void test_codec(void **state)
{
    (void)state;
    keeps(TSR_TEST_PLUGINS "/plain.so", NULL, NULL, NULL);
    keeps(TSR_TEST_PLUGINS "/plain.so", NULL, "codec-*", "dtype=bf16");
    keeps(TSR_TEST_PLUGINS "/plain.so", NULL, "codec-*", "dtype=f16");
    keeps(TSR_TEST_PLUGINS "/mx_codec.so", NULL, "codec-*", "element=fp8_e4m3");
    keeps(TSR_FIXTURES "/bad_codec.so", "bad", "codec-*", NULL);
    keeps(TSR_TEST_PLUGINS "/mx_codec.so", NULL, "codec-*", "feedback=layers");
    keeps(TSR_TEST_PLUGINS "/mx_codec.so", NULL, "codec-*", "feedback=tokens");
    keeps(TSR_FIXTURES "/bad_codec.so", "calibrated", "codec-*", NULL);
    keeps(TSR_FIXTURES "/bad_codec.so", "streamed", "codec-*", NULL);
}

static void test_transport(void **state)
{
    (void)state;
    keeps(TSR_TEST_PLUGINS "/local.so", NULL, NULL, NULL);
    keeps(TSR_FIXTURES "/bad_transport.so", NULL, "transport-*", NULL);
}

static void test_solver(void **state)
{
    (void)state;
    keeps(TSR_TEST_PLUGINS "/uniform.so", NULL, NULL, NULL);
    keeps(TSR_TEST_PLUGINS "/pipeedge.so", NULL, NULL, NULL);
    keeps(TSR_TEST_PLUGINS "/het.so", NULL, NULL, NULL);
    keeps(TSR_TEST_PLUGINS "/transfer.so", NULL, NULL, NULL);
    keeps(TSR_FIXTURES "/bad_solver.so", "bad", "solver-*", NULL);
}

static void test_sampler(void **state)
{
    (void)state;
    keeps(TSR_TEST_PLUGINS "/min_p.so", NULL, "sampler-*", "p=0.5");
    keeps(TSR_TEST_PLUGINS "/grammar.so", NULL, "sampler-*",
          "schema={\"type\": \"array\", \"items\": {\"enum\": [1, 12, \"a\"]}}");
    keeps(TSR_FIXTURES "/bad_sampler.so", NULL, "sampler-*", NULL);
}

static void test_backend(void **state)
{
    (void)state;
    keeps(TSR_TEST_PLUGINS "/cpu.so", NULL, NULL, NULL);
    keeps(TSR_FIXTURES "/vault.so", NULL, NULL, NULL);
    keeps(TSR_FIXTURES "/simt.so", NULL, NULL, "seed=3");
    keeps(TSR_FIXTURES "/bad_backend.so", NULL, "backend-*", NULL);
}

/* ---- plugins with one fault ----------------------------------------------------- */

static bool     all_of_them;
static uint64_t seed = 1;

/* The rule of fault "state_exact" of a codec is "codec-state-exact"; some rules have two faults. */
static void rule_of(char *rule, size_t cap, const char *noun, const char *fault)
{
    static const char *const second[][2] = { { "encode_skips", "encode_writes" },
                                             { "decode_skips", "decode_writes" },
                                             { "never", "deadline" },
                                             { "claims_optimal", "optimal" },
                                             { "send_written", "sizes" },
                                             { "reason_long", "writes" } };
    for (size_t i = 0; i < sizeof second / sizeof second[0]; i++)
        if (strcmp(fault, second[i][0]) == 0)
            fault = second[i][1];
    (void)snprintf(rule, cap, "%s-%s", noun, fault);
    for (char *p = rule; *p; p++)
        if (*p == '_')
            *p = '-';
}

static void breaks(const char *noun, const char *component, const char *fault, const char *rule,
                   const char *only)
{
    char                                 path[512], set[64];
    const char                          *sets[] = { set };
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    struct tsr_conformance_check_report  r;
    struct tsr_conformance_check_options o = {
        .only = only, .component = component, .sets = sets, .n_sets = 1, .seed = 1
    };
    (void)snprintf(path, sizeof path, "%s/bad_%s.so", TSR_FIXTURES, noun);
    (void)snprintf(set, sizeof set, "fault=%s", fault);
    if (tsr_conformance_check_run(&r, path, &o, NULL, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    bool found = false;
    for (uint64_t i = 0; i < r.n; i++) {
        const struct tsr_conformance_check_result *x = &r.results[i];
        bool ok = x->verdict == TSR_CONFORMANCE_PASS || x->verdict == TSR_CONFORMANCE_SKIP ||
                  x->verdict == TSR_CONFORMANCE_WARN;
        if (strcmp(x->rule->name, rule) == 0) {
            found = true;
            if (x->verdict != TSR_CONFORMANCE_FAILED && x->verdict != TSR_CONFORMANCE_CRASHED)
                fail_msg("fault %s of the %s does not break %s: %s %s", fault, noun, rule,
                         name_of(x->verdict), x->text ? x->text : "");
            if (!x->text || !*x->text)
                fail_msg("%s says nothing about what it found", rule);
        } else if (!ok) {
            fail_msg("fault %s of the %s breaks %s too: %s", fault, noun, x->rule->name,
                     x->text ? x->text : "");
        }
    }
    if (!found)
        fail_msg("there is no rule %s for fault %s of the %s", rule, fault, noun);
    tsr_conformance_check_report_free(&r);
}

/* True for the faults that meet all rules this time. */
static bool chosen(uint64_t i, uint64_t one_of)
{
    return all_of_them || (i * 7 + seed) % one_of == 0;
}

/* Faults that a rule waits for five seconds with before it calls them a hang: one of the three
 * will do. */
static bool left_out(const char *fault)
{
    static const char *const slow[] = { "create", "start_returns", "never" };
    for (uint64_t i = 0; i < 3; i++)
        if (strcmp(fault, slow[i]) == 0)
            return !all_of_them && seed % 3 != i;
    return false;
}

static void each_fault(const char *noun, const char *const *faults, uint64_t n, uint64_t one_of)
{
    for (uint64_t i = 0; i < n; i++) {
        char        rule[96], kind[32];
        const char *component = strncmp(faults[i], "state_", 6) == 0    ? "calibrated"
                                : strncmp(faults[i], "stream_", 7) == 0 ? "streamed"
                                                                        : "bad";
        rule_of(rule, sizeof rule, noun, faults[i]);
        if (left_out(faults[i]))
            continue;
        (void)snprintf(kind, sizeof kind, "%s-*", noun);
        breaks(noun, component, faults[i], rule,
               all_of_them         ? NULL
               : chosen(i, one_of) ? kind
                                   : rule);
    }
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Every rule of a kind has its fault; two need a table of their own instead of an option. */
static void complete(const char *noun, const char *const *faults, uint64_t n, const char *other)
{
    const struct tsr_conformance_rule *rule;
    const char                        *kind;
    for (uint64_t i = 0; tsr_conformance_check_rule_at(i, &rule, &kind); i++) {
        char name[96];
        bool found = other && strcmp(rule->name, other) == 0;
        for (uint64_t k = 0; k < n; k++) {
            rule_of(name, sizeof name, noun, faults[k]);
            found |= strcmp(name, rule->name) == 0;
        }
        if (kind && strcmp(kind, noun) == 0 && !found)
            fail_msg("no plugin breaks %s", rule->name);
    }
}

static void test_bad_codec(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "exactness",     "wire_bytes",   "huge_shape",       "encode_writes", "encode_skips",
        "decode_writes", "decode_skips", "inputs_untouched", "repeats",       "ranks_identical",
        "threads",       "exact",        "nonfinite",        "tails",         "decode_add",
        "damaged",       "wire",         "state_exact",      "state_loads",   "state_damaged",
        "rows",          "stream_state", "stream_replay",    "stream_rows",   "stream_first",
        "stream_damaged"
    };
    complete("codec", faults, COUNT(faults), "codec-calibration-whole");
    each_fault("codec", faults, COUNT(faults), 2);
    breaks("codec", "half", "none", "codec-calibration-whole", "codec-*");
}

static void test_bad_transport(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "create",      "sums",       "all_to_all", "messages",      "sizes",   "send_written",
        "order",       "two_groups", "processes",  "start_returns", "test",    "deadline",
        "peer_leaves", "peer_dies",  "abort",      "threads",       "statics", "counts"
    };
    complete("transport", faults, COUNT(faults), NULL);
    each_fault("transport", faults, COUNT(faults), 7);
}

static void test_bad_solver(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "status",         "finds_plan",         "constraints", "objective",  "bound",  "optimal",
        "claims_optimal", "infeasible",         "reason",      "feasible",   "cutoff", "deadline",
        "repeats",        "instance_untouched", "writes",      "reason_long"
    };
    complete("solver", faults, COUNT(faults), "solver-unsupported");
    each_fault("solver", faults, COUNT(faults), 7);
    breaks("solver", "unsupported", "none", "solver-unsupported",
           all_of_them ? NULL : "solver-unsupported");
}

static void test_bad_backend(void **state)
{
    (void)state;
    static const char *const faults[] = { "properties",
                                          "buffers_zeroed",
                                          "copies",
                                          "ranges",
                                          "free_null",
                                          "weight_formats",
                                          "unknown_format",
                                          "weights_borrowed",
                                          "weight_bytes",
                                          "layout",
                                          "layout_borrow",
                                          "layout_ranges",
                                          "linear",
                                          "linear_act",
                                          "embed",
                                          "norm",
                                          "rope",
                                          "kv_store",
                                          "attention",
                                          "act",
                                          "add",
                                          "scale",
                                          "gather",
                                          "mix",
                                          "columns",
                                          "hadamard",
                                          "writes",
                                          "in_place",
                                          "order",
                                          "unknown_op",
                                          "shapes",
                                          "repeats",
                                          "numerics",
                                          "segments",
                                          "codec",
                                          "codec_ranges",
                                          "candidates",
                                          "candidates_ranges" };
    complete("backend", faults, COUNT(faults), NULL);
    each_fault("backend", faults, COUNT(faults), 9);
}

static void test_bad_sampler(void **state)
{
    (void)state;
    static const char *const faults[] = { "sizes",   "start_writes", "writes",   "keeps_state",
                                          "logits",  "token",        "excluded", "repeats",
                                          "scratch", "resumes",      "together", "threads" };
    complete("sampler", faults, COUNT(faults), NULL);
    each_fault("sampler", faults, COUNT(faults), 2);
}

static void test_step(void **state)
{
    (void)state;
    keeps(TSR_FIXTURES "/bad_step.so", "bad", "step-*", NULL);
}

static void test_bad_step(void **state)
{
    (void)state;
    static const char *const faults[] = { "products", "finite",  "needs", "ranges",    "files",
                                          "window",   "section", "check", "passes_on", "repeats" };
    complete("step", faults, COUNT(faults), "step-declares");
    each_fault("step", faults, COUNT(faults), 2);
    breaks("step", "misdeclared", "none", "step-declares", "step-*");
}

static void test_kv(void **state)
{
    (void)state;
    keeps(TSR_TEST_PLUGINS "/kivi.so", "kivi", "kv-*", "bits=4");
    keeps(TSR_TEST_PLUGINS "/kivi.so", "kivi", "kv-*", "bits=8");
    keeps(TSR_TEST_PLUGINS "/kivi.so", "int4", "kv-*", NULL);
    keeps(TSR_TEST_PLUGINS "/kv8.so", "int8", "kv-*", NULL);
    keeps(TSR_TEST_PLUGINS "/kv8.so", "fp8", "kv-*", NULL);
    keeps(TSR_FIXTURES "/bad_kv.so", "bad", "kv-*", NULL);
    keeps(TSR_FIXTURES "/bad_kv.so", "exact", "kv-*", "blocks=true");
    keeps(TSR_FIXTURES "/bad_kv.so", "exact", "kv-*", "type=1"); /* TSR_F32, which it is */
}

static void test_bad_kv(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "layout", "encode_writes", "decode_writes", "every_byte", "repeats", "alone",  "error",
        "type",   "not_finite",    "damaged",       "score",      "mix",     "threads"
    };
    complete("kv", faults, COUNT(faults), NULL);
    each_fault("kv", faults, COUNT(faults), 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec),      cmocka_unit_test(test_transport),
        cmocka_unit_test(test_solver),     cmocka_unit_test(test_backend),
        cmocka_unit_test(test_bad_codec),  cmocka_unit_test(test_bad_transport),
        cmocka_unit_test(test_bad_solver), cmocka_unit_test(test_bad_backend),
        cmocka_unit_test(test_sampler),    cmocka_unit_test(test_bad_sampler),
        cmocka_unit_test(test_step),       cmocka_unit_test(test_bad_step),
        cmocka_unit_test(test_kv),         cmocka_unit_test(test_bad_kv),
    };
    const char *all = getenv("TSR_TEST_ALL"), *s = getenv("TSR_TEST_SEED");
    all_of_them = all && *all == '1';
    seed = s ? strtoull(s, NULL, 10) : 1;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("conformance of the kinds", tests, NULL, NULL);
}
