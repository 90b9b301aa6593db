/* Predicted times of LLM-PQ's authors' plans against the times that their own runtime printed for them.
 *
 * A file of theirs has two runs of one plan: 2 tokens, and as many as the plan was made for.  The difference is
 * decode alone, so both phases are compared.  Their runtime makes as many decode passes as it has tokens, the
 * model one less, hence tokens + 1.  Embedding and head are on the first stage there.
 *
 * TSR_TEST_ALL=1 prints a row for each run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "authors_job.h"
#include "base/json.h"
#include "plugin/registry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS      77u
#define SHORT_RUN 2u
#define TABLE4    100.0 /* tokens of a request in the paper */
#define FILE_MAX  (1u << 17)

/* What holds today, with room for the rounding of a regression only.  Six runs are further off than 25 %: F16 at 32
 * sequences on a V100 and 3 bits on a P100, which no published layer covers, LLM.int8 on prompts of 128 tokens, and
 * one run whose 8-bit layers took what F16 layers would have. */
#define MEAN_OFF      0.02 /* of the geometric mean of measured over predicted, whole runs */
#define WITHIN        0.15
#define AT_LEAST      66u /* runs within that */
#define WORST_OFF     1.7 /* factor, either way */
#define AGGREGATE_OFF 0.08

static struct tsr_registry *registry;
static struct authors_plan *plans;
static uint64_t             n_plans;

/* Seconds of the plan for that many decode passes. */
static double predicted(const struct authors_plan *p, uint64_t passes)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct authors_job     j;
    struct tsr_plan_built *b = NULL;
    char                   why[512] = "";
    double                 best = INFINITY, v = NAN;
    uint32_t               tp[AUTHORS_STAGES];
    for (unsigned i = 0; i < AUTHORS_STAGES; i++)
        tp[i] = 1;
    authors_job_open(&j, registry, p, passes + 1, TSR_OBJECTIVE_STEADY, TSR_PLAN_ACCOUNT_PAPER,
                     TSR_PLAN_HEAD_FIRST);
    if (tsr_plan_build(&b, &j.problem, &(struct tsr_plan_space){ .ways = tp, .stride = 1 },
                       &e.err) != TSR_OK)
        fail_msg("%s: %s", p->id, e.text);
    for (uint64_t i = 0; i < b->n_parts; i++)
        if (authors_job_value(b, i, p, &v, why, sizeof why))
            best = fmin(best, v);
    tsr_plan_built_destroy(b);
    authors_job_close(&j);
    if (!isfinite(best))
        fail_msg("%s: %s", p->id, why);
    return best / 1e3;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v) || !(json_number_value(v) > 0))
        fail_msg("a run without \"%s\"", key);
    return json_number_value(v);
}

static const struct authors_plan *plan_of(const json_t *run)
{
    const char *id = json_string_value(json_object_get(run, "plan"));
    for (uint64_t i = 0; id && i < n_plans; i++)
        if (strcmp(plans[i].id, id) == 0)
            return &plans[i];
    fail_msg("no plan \"%s\"", id ? id : "");
    return NULL;
}

/* What a row of the paper's Table 4 says: 3200 tokens, 100 for each request, over the time of a run.  A run of fewer tokens
 * has the rest at its own pace. */
static double table4(const struct authors_plan *p, double whole, double brief, double tokens)
{
    double decode = (whole - brief) / (tokens - SHORT_RUN);
    return (double)p->batch * TABLE4 / (whole + (TABLE4 - tokens) * decode);
}

struct speed {
    const struct authors_plan *plan;
    double                     measured, predicted; /* tokens/s */
};

/* The first run of that plan. */
static struct speed speed_of(const json_t *runs, const char *id)
{
    for (size_t i = 0; i < RUNS; i++) {
        const json_t              *r = json_array_get(runs, i);
        const struct authors_plan *p = plan_of(r);
        double                     tokens = number(r, "tokens");
        if (strcmp(p->id, id) != 0)
            continue;
        return (struct speed){
            p, table4(p, number(r, "seconds"), number(r, "two_tokens_seconds"), tokens),
            table4(p, predicted(p, (uint64_t)tokens), predicted(p, SHORT_RUN), tokens)
        };
    }
    fail_msg("no run of the plan %s", id);
    return (struct speed){ 0 };
}

static json_t *load_runs(void)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *file = NULL;
    if (tsr_json_load(&file, TSR_SOURCE_ROOT "/tests/golden/planner/authors/runs.json", FILE_MAX, 8,
                      &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(json_array_size(json_object_get(file, "runs")), RUNS);
    return file;
}

/* The aggregate of the paper, LLM-PQ over PipeEdge on clusters 1 to 8, of the plans and runs that the authors published. */
static void test_aggregate(void **state)
{
    (void)state;
    static const char *const of[8][2] = {
        { "c7726c24d3", "34669095ed" }, { "2cad25af50", "bb6b0a1c0b" },
        { "30b6b43450", "d5a42b6d26" }, { "9484bf2101", "e476e0505f" },
        { "91e712e665", "47b7c86d6f" }, { "ba289b9481", "774f4b1af7" },
        { "e392eca838", "e07cd8298d" }, { "a920f2319b", "652b3dc1b9" }
    };
    const char *all = getenv("TSR_TEST_ALL");
    json_t     *file = load_runs();
    double      measured = 0, guessed = 0;
    for (unsigned c = 0; c < 8; c++) {
        struct speed a = speed_of(json_object_get(file, "runs"), of[c][0]);
        struct speed b = speed_of(json_object_get(file, "runs"), of[c][1]);
        assert_int_equal(a.plan->cluster, c + 1);
        assert_int_equal(b.plan->cluster, c + 1);
        assert_string_equal(a.plan->method, "llm_pq");
        assert_string_equal(b.plan->method, "pipeedge");
        measured += a.measured / b.measured / 8;
        guessed += a.predicted / b.predicted / 8;
        if (all && *all == '1')
            (void)printf(
                "cluster %u: LLM-PQ %.2f tokens/s measured, %.2f predicted; PipeEdge %.2f, %.2f; "
                "ratio %.2f, %.2f\n",
                c + 1, a.measured, a.predicted, b.measured, b.predicted, a.measured / b.measured,
                a.predicted / b.predicted);
    }
    json_decref(file);
    (void)printf("LLM-PQ over PipeEdge, mean of clusters 1 to 8: %.2f measured, %.2f predicted\n",
                 measured, guessed);
    assert_true(fabs(guessed / measured - 1) <= AGGREGATE_OFF);
}

static void test_runs(void **state)
{
    (void)state;
    const char   *all = getenv("TSR_TEST_ALL");
    bool          rows = all && *all == '1';
    json_t       *file = load_runs();
    double        sum = 0, worst = 1;
    unsigned      near = 0;
    const json_t *runs = json_object_get(file, "runs");
    if (rows)
        (void)printf(
            "| cluster | scheme | prompt | tokens | plan | prefill s | predicted | decode ms | "
            "predicted | whole s | predicted | measured over predicted |\n"
            "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < RUNS; i++) {
        const json_t              *r = json_array_get(runs, i);
        const struct authors_plan *p = plan_of(r);
        double                     tokens = number(r, "tokens"), whole = number(r, "seconds");
        double brief = number(r, "two_tokens_seconds"), passes = tokens - SHORT_RUN;
        double p_whole = predicted(p, (uint64_t)tokens), p_brief = predicted(p, SHORT_RUN);
        double decode = (whole - brief) / passes, p_decode = (p_whole - p_brief) / passes;
        double off = whole / p_whole;
        if (rows)
            (void)printf(
                "| %u | %s | %llu | %.0f | %s | %.2f | %.2f | %.1f | %.1f | %.1f | %.1f | %.2f |\n",
                p->cluster, p->method, (unsigned long long)p->prompt, tokens, p->id,
                brief - SHORT_RUN * decode, p_brief - SHORT_RUN * p_decode, decode * 1e3,
                p_decode * 1e3, whole, p_whole, off);
        sum += log(off);
        near += fabs(off - 1) <= WITHIN;
        worst = fmax(worst, fmax(off, 1 / off));
    }
    json_decref(file);
    double mean = exp(sum / RUNS);
    (void)printf("%u runs, measured over predicted: %.4f (geometric mean), %u within %.0f %%, the "
                 "worst a factor "
                 "of %.3f\n",
                 RUNS, mean, near, WITHIN * 100, worst);
    assert_true(fabs(mean - 1) <= MEAN_OFF);
    assert_true(near >= AT_LEAST);
    assert_true(worst <= WORST_OFF);
}

static int open_all(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_plugin_registry_create(&registry, NULL, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(registry, TSR_TEST_PLUGINS, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    plans = authors_load(&n_plans);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    free(plans);
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_runs),
                                        cmocka_unit_test(test_aggregate) };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
