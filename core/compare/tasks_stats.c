/* Paired tests of named tasks: every metric of every task, of an arm against the original and of pairs. */
#include "base/mem.h"
#include "compare/compare.h"
#include "compare/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- measuring ----------------------------------------------------------------------- */

static tsr_status measure(const struct compare *c, const struct compare_arm *a,
                          const struct compare_arm *b, struct compare_task_test *tests,
                          struct tsr_err *err)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < tsr_pipeline_tasks_count(c->tasks); i++)
        for (uint64_t k = 0; k < tsr_pipeline_tasks_task(c->tasks, i)->n_metrics; k++) {
            if (tsr_plugin_cancelled()) /* a bootstrap of 10,000 questions takes a second */
                return tsr_fail(err, TSR_E_CANCELLED, "stopped");
            struct compare_task_test *t = &tests[at++];
            TSR_TRY(tsr_tasks_paired_measure(&t->m, a->marks[i], b->marks[i], k, c->keys.alpha,
                                             c->job->seed, TSR_COMPARE_DRAWS, err));
            t->p_holm = NAN;
        }
    return TSR_OK;
}

tsr_status compare_tasks_measure(const struct compare *c, const struct compare_arm *a,
                                 const struct compare_arm *b, struct compare_task_test **out,
                                 struct tsr_err *err)
{
    *out = NULL;
    if (a->status != TSR_OK || b->status != TSR_OK || !a->marks || !b->marks)
        return TSR_OK;
    struct compare_task_test *tests = tsr_new(c->tests, sizeof *tests);
    if (!tests)
        return tsr_fail_nomem(err, c->tests * sizeof *tests, "tests");
    tsr_status st = measure(c, a, b, tests, err);
    if (st != TSR_OK) {
        free(tests);
        return st;
    }
    *out = tests;
    return TSR_OK;
}

/* How many of the metrics from `t` on ask one question: those of a task that are made of one log-likelihood of its texts,
 * as perplexity by word, by byte and bits are.  Shares are questions of their own. */
static uint64_t alike_from(const struct compare *c, uint64_t t)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < tsr_pipeline_tasks_count(c->tasks); i++) {
        const struct tsr_tasks_task *task = tsr_pipeline_tasks_task(c->tasks, i);
        uint64_t                     k = t - at, n = 0;
        at += task->n_metrics;
        if (t >= at)
            continue;
        while (k + n < task->n_metrics && !tsr_tasks_metric_is_share(task->metrics[k + n]))
            n++;
        return n ? n : 1;
    }
    return 1;
}

/* The largest p of n tests; NaN if one has none. */
static double largest_p(const struct compare_task_test *tests, uint64_t n)
{
    double p = tests[0].m.p;
    for (uint64_t i = 1; i < n && !isnan(p); i++)
        p = !(tests[i].m.p <= p) ? tests[i].m.p : p;
    return p;
}

tsr_status compare_tasks_correct(const struct compare *c, struct compare_task_test *const *lists,
                                 uint64_t n, struct tsr_err *err)
{
    uint64_t  all = n * c->tests, k = 0, same;
    double   *p = tsr_new(all, sizeof *p), *adjusted = tsr_new(all, sizeof *adjusted);
    uint64_t *order = tsr_new(all, sizeof *order);
    bool      ok = p && adjusted && order;
    for (uint64_t i = 0; ok && i < n; i++)
        for (uint64_t t = 0; lists[i] && t < c->tests; t += same) {
            same = alike_from(c, t);
            p[k++] = largest_p(&lists[i][t], same);
        }
    if (ok)
        tsr_eval_holm(p, k, adjusted, order);
    k = 0;
    for (uint64_t i = 0; ok && i < n; i++)
        for (uint64_t t = 0; lists[i] && t < c->tests; t += same, k++) {
            same = alike_from(c, t);
            for (uint64_t m = 0; m < same; m++)
                lists[i][t + m].p_holm = adjusted[k];
        }
    free(p);
    free(adjusted);
    free(order);
    return ok ? TSR_OK : tsr_fail_nomem(err, all * 24, "tests");
}

tsr_status compare_tasks_stats(struct compare *c, struct tsr_err *err)
{
    struct compare_task_test **lists = tsr_new(c->n, sizeof(struct compare_task_test *));
    tsr_status st = lists ? TSR_OK : tsr_fail_nomem(err, c->n * sizeof *lists, "arms");
    for (uint64_t i = 1; i < c->n && st == TSR_OK; i++) {
        st = compare_tasks_measure(c, &c->arms[i], &c->arms[0], &lists[i], err);
        c->arms[i].tests = lists[i];
    }
    if (st == TSR_OK)
        st = compare_tasks_correct(c, lists, c->n, err);
    free(lists);
    return st;
}

/* ---- verdicts -------------------------------------------------------------------------- */

enum word { UNDECIDED, ALIKE, WORSE, BETTER, WORDS };
static const char *const words[WORDS] = { "undecided", "indistinguishable", "worse", "better" };

/* The test decides, and the interval must lie on one side of zero as well.  Written so that NaN decides nothing. */
static enum word word_of(const struct compare_task_test *t, enum tsr_tasks_metric m, double alpha)
{
    double harm = tsr_tasks_metric_is_share(m) ? -t->m.value : t->m.value;
    if (!isfinite(t->p_holm) || !isfinite(t->m.low) || !isfinite(t->m.high))
        return UNDECIDED;
    if (!(t->p_holm < alpha && (t->m.low > 0 || t->m.high < 0)))
        return ALIKE;
    return harm > 0 ? WORSE : BETTER;
}

static void say_list(char *text, size_t cap, const struct compare *c,
                     const struct compare_task_test *tests, enum word which, uint64_t count)
{
    uint64_t at = 0, said = 0;
    if (!count)
        return;
    compare_add(text, cap, "%s%s at", *text ? "; " : "", words[which]);
    for (uint64_t i = 0; i < tsr_pipeline_tasks_count(c->tasks); i++) {
        const struct tsr_tasks_task *t = tsr_pipeline_tasks_task(c->tasks, i);
        for (uint64_t k = 0; k < t->n_metrics; k++)
            if (word_of(&tests[at++], t->metrics[k], c->keys.alpha) == which)
                compare_add(text, cap, "%s %.60s %s", said++ ? "," : "", t->name,
                            tsr_tasks_metric_name(t->metrics[k]));
    }
}

const char *compare_tasks_say(char *text, size_t cap, const struct compare *c,
                              const struct compare_task_test *tests)
{
    uint64_t counts[WORDS] = { 0 }, at = 0;
    double   most = 0;
    for (uint64_t i = 0; i < tsr_pipeline_tasks_count(c->tasks); i++) {
        const struct tsr_tasks_task *t = tsr_pipeline_tasks_task(c->tasks, i);
        for (uint64_t k = 0; k < t->n_metrics; k++, at++) {
            counts[word_of(&tests[at], t->metrics[k], c->keys.alpha)]++;
            most = tests[at].m.needed > most ? tests[at].m.needed : most;
        }
    }
    say_list(text, cap, c, tests, WORSE, counts[WORSE]);
    say_list(text, cap, c, tests, BETTER, counts[BETTER]);
    say_list(text, cap, c, tests, UNDECIDED, counts[UNDECIDED]);
    if (counts[WORSE] || counts[BETTER])
        return !counts[BETTER] ? "worse" : !counts[WORSE] ? "better" : "mixed";
    if (counts[ALIKE])
        compare_add(
            text, cap,
            "%sindistinguishable by %llu metrics of tasks: a change of 1 %% takes up to %.0f "
            "questions",
            *text ? "; " : "", (unsigned long long)counts[ALIKE], most);
    return words[counts[ALIKE] ? ALIKE : UNDECIDED];
}

/* ---- as JSON --------------------------------------------------------------------------- */

static json_t *test_json(const struct compare_task_test *t, enum tsr_tasks_metric m, double alpha)
{
    bool    share = tsr_tasks_metric_is_share(m);
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_real(j, "value", t->m.value) &&
              tsr_pipeline_json_put_real(j, "low", t->m.low) &&
              tsr_pipeline_json_put_real(j, "high", t->m.high) &&
              tsr_pipeline_json_put_real(j, "p", t->m.p) &&
              tsr_pipeline_json_put_real(j, "p_holm", t->p_holm) &&
              tsr_pipeline_json_put_text(j, "test", t->m.is_mcnemar ? "mcnemar" : "bootstrap") &&
              tsr_pipeline_json_put_real(j, "bootstrap_p", t->m.bootstrap) &&
              tsr_pipeline_json_put_int(j, "units", t->m.units) &&
              tsr_pipeline_json_put_real(j, "needed", t->m.needed) &&
              tsr_pipeline_json_put_text(j, "verdict", words[word_of(t, m, alpha)]);
    if (share)
        ok = ok && tsr_pipeline_json_put_real(j, "mcnemar_p", t->m.mcnemar) &&
             tsr_pipeline_json_put_int(j, "only_arm", t->m.only_a) &&
             tsr_pipeline_json_put_int(j, "only_reference", t->m.only_b);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static bool put_task(json_t *tasks, const struct tsr_tasks_task *t,
                     const struct compare_task_test *tests, double alpha)
{
    json_t *one = json_object_get(tasks, t->name), *delta = json_object();
    bool    ok = one || tsr_pipeline_json_put(tasks, t->name, one = json_object());
    (void)json_object_del(one, "outcomes");
    for (uint64_t k = 0; tests && ok && k < t->n_metrics; k++)
        ok = tsr_pipeline_json_put(delta, tsr_tasks_metric_name(t->metrics[k]),
                                   test_json(&tests[k], t->metrics[k], alpha));
    if (tests)
        return tsr_pipeline_json_put(one, "delta", delta) && ok;
    json_decref(delta);
    return ok;
}

bool compare_put_tasks(json_t *j, const struct compare *c, const struct compare_task_test *tests)
{
    json_t  *tasks = json_object_get(j, "tasks");
    bool     ok = tasks || tsr_pipeline_json_put(j, "tasks", tasks = json_object());
    uint64_t at = 0;
    for (uint64_t i = 0; ok && i < tsr_pipeline_tasks_count(c->tasks); i++) {
        const struct tsr_tasks_task *t = tsr_pipeline_tasks_task(c->tasks, i);
        ok = put_task(tasks, t, tests ? tests + at : NULL, c->keys.alpha);
        at += t->n_metrics;
    }
    return ok;
}
