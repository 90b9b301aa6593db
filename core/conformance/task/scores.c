/* Metrics from the log-likelihoods of the golden's requests. */
#include "conformance/task/task.h"

#include "tasks/metrics.h"

#include <math.h>
#include <string.h>

#define CLOSE 1e-9 /* both are sums in binary64 of the same numbers */

/* The likelihoods of a document's requests, of which the golden has the first at `from`. */
static void fill(struct tsr_conformance_case *c, const struct tsr_task_case *k, size_t at,
                 uint64_t from, uint64_t n, struct tsr_eval_likelihood *l)
{
    for (uint64_t i = 0; i < n; i++) {
        unsigned long long at_request = from + i;
        const json_t      *r = json_array_get(k->requests, from + i);
        const json_t      *sum = json_object_get(r, "loglikelihood");
        if (!json_is_number(sum))
            tsr_conformance_rule_fail(c,
                                      "cases[%zu] has metrics, and requests[%llu] no number "
                                      "\"loglikelihood\"",
                                      at, at_request);
        l[i] = (struct tsr_eval_likelihood){
            .sum = json_number_value(sum),
            .is_greedy = json_is_true(json_object_get(r, "is_greedy")),
        };
    }
}

static void check_value(struct tsr_conformance_case *c, size_t at, const char *name, double is,
                        const json_t *want)
{
    double w = json_number_value(want);
    char   named[64];
    (void)snprintf(named, sizeof named, "%s of case %zu", name, at);
    tsr_conformance_rule_figure(c, named, is, "");
    if (!json_is_number(want))
        tsr_conformance_rule_fail(c,
                                  "cases[%zu].metrics has no number \"%s\", which the file "
                                  "lists",
                                  at, name);
    if (!(fabs(is - w) <= CLOSE * fmax(1, fabs(w))))
        tsr_conformance_rule_fail(c, "cases[%zu]: %s is %.12g, the golden's %.12g", at, name, is,
                                  w);
}

/* Every metric of the file is in the golden, and every one of the golden in the file. */
static void compare(struct tsr_conformance_case *c, const struct tsr_tasks_task *t, size_t at,
                    const struct tsr_tasks_summary *s, const json_t *metrics)
{
    const char *key;
    json_t     *value;
    for (uint64_t k = 0; k < t->n_metrics; k++) {
        const char *name = tsr_tasks_metric_name(t->metrics[k]);
        check_value(c, at, name, s->metric[k].value, json_object_get(metrics, name));
    }
    json_object_foreach ((json_t *)(uintptr_t)metrics, key, value) {
        bool listed = false;
        for (uint64_t k = 0; k < t->n_metrics; k++)
            listed |= strcmp(key, tsr_tasks_metric_name(t->metrics[k])) == 0;
        if (!listed)
            tsr_conformance_rule_fail(c, "cases[%zu].metrics has %s, which the file does not list",
                                      at, key);
    }
}

static void check_case(struct tsr_conformance_case *c, const struct tsr_tasks_task *t,
                       const struct tsr_task_golden *g, size_t at)
{
    struct tsr_task_case     k = tsr_task_golden_case(g, at);
    struct tsr_tasks_reader *r = tsr_task_reader(c, t, g, at);
    struct tsr_tasks_marks  *marks = NULL;
    struct tsr_tasks_summary s;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    uint64_t                 rows = tsr_tasks_reader_rows(r), from = 0;
    if (tsr_tasks_marks_create(&marks, t, rows, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "%s", e.text);
    for (uint64_t row = 0; row < rows; row++) {
        struct tsr_tasks_document   d = tsr_task_document(c, r, at, row);
        struct tsr_eval_likelihood *l = tsr_conformance_rule_memory(c, d.n_requests * sizeof *l);
        fill(c, &k, at, from, d.n_requests, l);
        tsr_tasks_marks_add(marks, &d, l);
        from += d.n_requests;
        tsr_tasks_document_free(&d);
    }
    if (tsr_tasks_marks_summarize(marks, UINT64_MAX, tsr_tasks_reader_groups(r), &s, &e.err) !=
        TSR_OK)
        tsr_conformance_rule_fail(c, "cases[%zu]: %s", at, e.text);
    compare(c, t, at, &s, k.metrics);
}

void tsr_task_rule_scores(struct tsr_conformance_case *c)
{
    struct tsr_tasks_task *t = tsr_task_under_check(c);
    struct tsr_task_golden g;
    bool                   any = false;
    tsr_task_golden_need(c, &g);
    for (size_t i = 0; i < json_array_size(g.g.cases); i++)
        if (tsr_task_golden_case(&g, i).metrics) {
            check_case(c, t, &g, i);
            any = true;
        }
    if (!any)
        tsr_conformance_rule_skip(c, "no case of the golden has metrics");
}
