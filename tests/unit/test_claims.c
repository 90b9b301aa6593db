/* Published figures beside a comparison, by the step `claims` as a job runs it: orders by intervals, either way round; and
 * widths by an indicator against trying every choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/json.h"
#include "base/rng.h"
#include "pipeline/job.h"
#include "plan/search/widths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j;
    if (tsr_json_parse(&j, "test", text, strlen(text), 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return j;
}

static const char compare_text[] =
    "{\"alpha\":0.05,\"reference\":\"original\",\"arms\":["
    "{\"name\":\"original\",\"bits_per_weight\":16,\"perplexity\":50},"
    "{\"name\":\"a\",\"bits_per_weight\":4,\"perplexity\":55,"
    " \"ratio\":{\"value\":1.1,\"low\":1.08,\"high\":1.12},\"kl\":{\"mean\":0.1},"
    " \"delta\":{\"mean\":0.0953,\"low\":0.077,\"high\":0.113,\"detectable\":0.02}},"
    "{\"name\":\"b\",\"bits_per_weight\":3,\"perplexity\":60,"
    " \"ratio\":{\"value\":1.2,\"low\":1.1,\"high\":1.3},\"kl\":{\"mean\":0.2},"
    " \"delta\":{\"mean\":0.18,\"low\":0.1,\"high\":0.26}},"
    "{\"name\":\"c\",\"failed\":\"no\"}],"
    "\"pairs\":[{\"arm\":\"b\",\"against\":\"a\","
    " \"delta\":{\"mean\":0.08,\"low\":0.03,\"high\":0.13,\"detectable\":0.07},"
    " \"kl_delta\":{\"mean\":0.1,\"low\":-0.01,\"high\":0.21}},"
    "{\"arm\":\"a\",\"against\":\"c\",\"failed\":\"one of the two has no result\"},"
    "{\"arm\":\"b\",\"against\":\"original\",\"delta\":{\"mean\":0.18,\"low\":null,\"high\":null}}]"
    "}";

static struct tsr_registry *registry;

static int open_registry(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    if (tsr_plugin_registry_create(&registry, NULL, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return 0;
}

static int close_registry(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

/* Checks the step after a step `compare`, and runs it. */
static tsr_status run_after_compare(struct tsr_pipeline_external *x,
                                    const struct tsr_config_node *spec, struct tsr_diag *d,
                                    json_t *results, struct tsr_err *err)
{
    const struct tsr_pipeline_step *step = tsr_pipeline_external_step(x),
                                   compare = { .name = "compare" };
    void                          *opts = calloc(1, step->options_size);
    const struct tsr_config_optset set = { step->options, step->n_options, sizeof *step->options,
                                           opts };
    struct tsr_pipeline_job_step   steps[] = {
          { .step = &compare },
          { .step = step, .key = spec, .node = spec, .opts = opts, .external = x },
    };
    struct tsr_pipeline_job_state state = { .steps = steps, .n = 2 };
    struct tsr_pipeline_job       job = {
              .registry = registry, .json = true, .results = results, .state = &state, .at = &steps[1]
    };
    assert_non_null(opts);
    tsr_config_options_fill(&set, 1, NULL, spec, "step 'claims'", d);
    tsr_status st = tsr_config_diag_status(d, err);
    if (st == TSR_OK)
        st = step->check(&job, opts, spec, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK)
        st = step->run(&job, opts, spec, err);
    free(opts);
    return st;
}

/* The step's result, a new reference; NULL after a failure. */
static tsr_status claim(const char *spec, json_t **out, struct tsr_errbuf *e)
{
    struct tsr_pipeline_external *x = NULL;
    struct tsr_config_doc        *doc = NULL;
    struct tsr_diag              *d = NULL;
    json_t                       *results = json_object();
    if (tsr_config_diag_create(&d, &e->err) != TSR_OK ||
        tsr_config_doc_parse(&doc, "spec.yaml", spec, strlen(spec), d, &e->err) != TSR_OK ||
        tsr_pipeline_external_find(&x, registry, "claims", &e->err) != TSR_OK)
        fail_msg("%s", e->text);
    assert_non_null(x);
    assert_int_equal(json_object_set_new(results, "compare", parse(compare_text)), 0);
    tsr_status st = run_after_compare(x, tsr_config_doc_root(doc), d, results, &e->err);
    *out = json_incref(json_object_get(results, "claims"));
    tsr_pipeline_external_destroy(x);
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
    json_decref(results);
    return st;
}

static json_t *make(const char *spec)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *out;
    if (claim(spec, &out, &e) != TSR_OK)
        fail_msg("%s", e.text);
    return out;
}

static double real_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void is_verdict(const json_t *o, const char *want)
{
    assert_string_equal(json_string_value(json_object_get(o, "verdict")), want);
}

static void orders(void **state)
{
    json_t *j = make("{\"source\":\"s\",\"figure\":\"perplexity\",\"paper\":{"
                     "\"P\":{\"a\":10,\"b\":11},\"Q\":{\"a\":12,\"b\":11},\"R\":{\"a\":1}},"
                     "\"order\":[[\"a\",\"b\"],[\"b\",\"a\"],[\"a\",\"c\"],[\"original\",\"a\"],"
                     "[\"original\",\"b\"]]}");
    json_t *o = json_object_get(j, "orders"), *first = json_array_get(o, 0);
    (void)state;
    /* the pair is b less a; the order asks a less b */
    is_verdict(first, "holds");
    const json_t *d = json_object_get(first, "delta");
    assert_true(real_of(d, "mean") == -0.08 && real_of(d, "low") == -0.13 &&
                real_of(d, "high") == -0.03);
    is_verdict(json_object_get(first, "kl_delta"), "undecided"); /* 0 is inside */
    const json_t *paper = json_object_get(first, "paper");
    assert_true(json_is_true(json_array_get(paper, 0)) && json_is_false(json_array_get(paper, 1)) &&
                json_is_null(json_array_get(paper, 2)));
    is_verdict(json_array_get(o, 1), "contradicted");
    is_verdict(json_array_get(o, 2), "not measured");
    is_verdict(json_array_get(o, 3), "holds"); /* the arm's own difference from the reference */
    assert_true(real_of(json_object_get(json_array_get(o, 3), "delta"), "high") == -0.077);
    is_verdict(json_array_get(o, 4), "undecided"); /* no interval decides nothing */
    assert_int_equal(json_integer_value(json_object_get(j, "held")), 2);
    assert_int_equal(json_integer_value(json_object_get(j, "contradicted")), 1);
    assert_int_equal(json_integer_value(json_object_get(j, "undecided")), 2);
    json_decref(j);
}

static void values(void **state)
{
    json_t *j = make("{\"source\":\"s\",\"figure\":\"increase\",\"paper\":{\"P\":{\"a\":9.5}},"
                     "\"order\":[]}");
    json_t *a = json_array_get(json_object_get(j, "arms"), 1);
    (void)state;
    assert_true(fabs(real_of(a, "value") - 10) < 1e-9 && fabs(real_of(a, "low") - 8) < 1e-9 &&
                fabs(real_of(a, "high") - 12) < 1e-9);
    assert_true(json_number_value(json_array_get(json_object_get(a, "paper"), 0)) == 9.5);
    json_decref(j);
    j = make("{\"source\":\"s\",\"figure\":\"perplexity\",\"paper\":{},\"order\":[]}");
    a = json_array_get(json_object_get(j, "arms"), 1);
    assert_true(real_of(a, "value") == 55 && fabs(real_of(a, "low") - 54) < 1e-9 &&
                fabs(real_of(a, "high") - 56) < 1e-9);
    json_decref(j);
}

static void refusals(void **state)
{
    static const struct {
        const char *spec, *about, *facts;
    } bad[] = {
        { "{\"source\":\"s\",\"paper\":{\"P\":{\"x\":1}},\"order\":[]}", "P", "x" },
        { "{\"source\":\"s\",\"paper\":{},\"order\":[[\"a\",\"x\"]]}", "x", "x" },
        { "{\"source\":\"s\",\"paper\":{},\"order\":[[\"b\",\"c\"]]}", "", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        json_t           *out;
        assert_int_equal(claim(bad[i].spec, &out, &e), TSR_E_CONFIG);
        assert_null(out);
        assert_true(error_is(&e.err, bad[i].about, bad[i].facts));
    }
}

/* What is wrong with the keys is said at its place, all of it. */
static void places(void **state)
{
    static const struct {
        const char *spec, *about, *facts;
    } bad[] = {
        { "source: s\n", "spec.yaml:1:1", "paper order" },
        { "source: s\npaper: [1]\n", "spec.yaml:2:8", "paper" },
        { "source: s\npaper: {P: 4}\n", "spec.yaml:2:12", NULL },
        { "source: s\npaper: {P: {a: 1, b: '2'}}\norder: {}\n", "spec.yaml:2:22",
          "b spec.yaml:3:8" },
        { "source: s\norder: [[a, b], [a, b, c], [a, null], [a, [b]]]\n", "spec.yaml:2:17",
          "spec.yaml:2:28 spec.yaml:2:39" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        json_t           *out;
        assert_int_equal(claim(bad[i].spec, &out, &e), TSR_E_INPUT);
        assert_null(out);
        assert_true(error_is(&e.err, bad[i].about, bad[i].facts));
    }
}

/* An arm may be called 4, and a source hold what JSON escapes. */
static void names(void **state)
{
    static const char source[] = "a \"b\" \\ c";
    json_t *j = make("source: 'a \"b\" \\ c'\npaper: {\"q\\u0001\": {a: -0.5}}\norder: []\n");
    (void)state;
    assert_string_equal(json_string_value(json_object_get(j, "source")), source);
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "columns"), 0)),
                        "q\x01");
    json_decref(j);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(claim("source: s\norder: [[4, a]]\n", &j, &e), TSR_E_CONFIG);
    assert_true(error_is(&e.err, "4", NULL));
}

/* ---- widths ----------------------------------------------------------------------------------- */

/* Every choice of 4 widths for 5 layers. */
static double exhaustive(const double *cost, const uint32_t *bits, uint64_t total)
{
    double best = INFINITY;
    for (unsigned code = 0; code < 1024; code++) {
        double   sum = 0;
        uint64_t used = 0;
        for (unsigned l = 0; l < 5; l++) {
            unsigned b = code >> 2 * l & 3;
            sum += cost[l * 4 + b];
            used += bits[b];
        }
        if (used <= total && sum < best)
            best = sum;
    }
    return best;
}

static void widths_are_the_best_choice(void **state)
{
    const uint32_t bits[] = { 3, 4, 8, 16 };
    (void)state;
    for (uint64_t turn = 0; turn < 200; turn++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        double            cost[20], sum;
        uint32_t          chosen[5];
        for (uint64_t i = 0; i < 20; i++) /* negative ones too; every tenth not to be chosen */
            cost[i] = tsr_uniform(turn, 2, i) < 0.1 ? (double)NAN : tsr_uniform(turn, 1, i) - 0.1;
        uint64_t   total = (uint64_t)(10 + 75 * tsr_uniform(turn, 3, 0));
        double     want = exhaustive(cost, bits, total), got = 0;
        tsr_status st = tsr_plan_widths_choose(cost, 5, bits, 4, total, chosen, &sum, &e.err);
        if (!isfinite(want)) {
            assert_int_equal(st, TSR_E_INFEASIBLE);
            continue;
        }
        assert_int_equal(st, TSR_OK);
        uint64_t used = 0;
        for (unsigned l = 0; l < 5; l++) {
            assert_true(chosen[l] < 4);
            got += cost[l * 4 + chosen[l]];
            used += bits[chosen[l]];
        }
        assert_true(used <= total && fabs(got - want) < 1e-12 && fabs(sum - want) < 1e-12);
    }
}

static void no_choice_is_said(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const uint32_t    bits[] = { 4 };
    double            cost[] = { 1, 1 }, sum;
    uint32_t          chosen[2];
    (void)state;
    assert_int_equal(tsr_plan_widths_choose(cost, 2, bits, 1, 7, chosen, &sum, &e.err),
                     TSR_E_INFEASIBLE);
    assert_true(error_is(&e.err, "", "7"));
    assert_int_equal(tsr_plan_widths_choose(cost, 2, bits, 1, UINT64_MAX, chosen, &sum, &e.err),
                     TSR_OK);
    assert_true(sum == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),
        cmocka_unit_test(values),
        cmocka_unit_test(refusals),
        cmocka_unit_test(places),
        cmocka_unit_test(names),
        cmocka_unit_test(widths_are_the_best_choice),
        cmocka_unit_test(no_choice_is_said),
    };
    return cmocka_run_group_tests(tests, open_registry, close_registry);
}
