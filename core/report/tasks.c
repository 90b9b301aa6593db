/* Named tasks of a comparison: a row for each metric of a task and each arm or pair. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

static const json_t *task_of(const json_t *a, const char *task)
{
    return report_get(report_get(a, "tasks"), task);
}

/* Shares count the questions that only one of two arms has right. */
static bool is_share(const json_t *r, const char *task, const char *metric)
{
    const json_t *a;
    size_t        i;
    json_array_foreach (report_get(r, "arms"), i, a)
        if (report_get(report_get(report_get(task_of(a, task), "delta"), metric), "only_arm"))
            return true;
    return false;
}

static void put_head(struct tsr_writer *w)
{
    tsr_writer_printf(w, "<h3>Tasks</h3>\n<table><tr><th>task</th><th>metric</th><th>arm</th>"
                         "<th>value</th><th>difference</th><th>only this arm :<br>only the other"
                         "</th><th>p<br>(Holm)</th><th>verdict</th><th>questions<br>for 1 %%</th>"
                         "</tr>\n");
}

static void put_names(struct tsr_writer *w, const char *task, const char *metric, const char *arm,
                      const char *against)
{
    tsr_writer_printf(w, "<tr><td>");
    report_text(w, task);
    tsr_writer_printf(w, "</td><td class=\"text\">");
    report_text(w, metric);
    tsr_writer_printf(w, "</td><td class=\"text\">");
    report_text(w, arm);
    if (*against) {
        tsr_writer_printf(w, " <span class=\"dim\">against</span> ");
        report_text(w, against);
    }
    tsr_writer_printf(w, "</td>");
}

/* Value with its standard error; of a share in percent. */
static void put_value(struct tsr_writer *w, const json_t *task, const char *metric, bool share)
{
    char   key[64], text[REPORT_NUMBER];
    double by = share ? 100 : 1, v = report_real(task, metric);
    (void)snprintf(key, sizeof key, "%.40s_stderr", metric);
    double e = report_real(task, key);
    tsr_writer_printf(w, "<td>%s%s", report_fixed(text, by * v, share ? 2 : 4, false),
                      share && isfinite(v) ? " %" : "");
    if (isfinite(e))
        tsr_writer_printf(w, "<br><span class=\"dim\">&plusmn; %s</span>",
                          report_fixed(text, by * e, share ? 2 : 4, false));
    tsr_writer_printf(w, "</td>");
}

static void put_test(struct tsr_writer *w, const json_t *d, bool share)
{
    const char *verdict = report_str(d, "verdict");
    if (!d) {
        tsr_writer_printf(w, "<td></td><td></td><td></td><td></td><td></td></tr>\n");
        return;
    }
    report_interval_cell(w, d, "value", share ? 100 : 1, share ? 2 : 4, true);
    if (share)
        tsr_writer_printf(w, "<td>%lld : %lld</td>",
                          (long long)json_integer_value(report_get(d, "only_arm")),
                          (long long)json_integer_value(report_get(d, "only_reference")));
    else
        tsr_writer_printf(w, "<td></td>");
    report_p_cell(w, report_real(d, "p_holm"));
    tsr_writer_printf(w, "<td class=\"text %s\">", report_verdict_class(verdict));
    report_text(w, verdict);
    tsr_writer_printf(w, "</td>");
    report_cell(w, report_real(d, "needed"), 0);
    tsr_writer_printf(w, "</tr>\n");
}

static void put_metric(struct tsr_writer *w, const json_t *r, const char *task, const char *metric)
{
    bool          share = is_share(r, task, metric);
    const json_t *a;
    size_t        i;
    json_array_foreach (report_get(r, "arms"), i, a) {
        if (!task_of(a, task))
            continue;
        put_names(w, task, metric, report_str(a, "name"), "");
        put_value(w, task_of(a, task), metric, share);
        put_test(w, report_get(report_get(task_of(a, task), "delta"), metric), share);
    }
    json_array_foreach (report_get(r, "pairs"), i, a) {
        const json_t *d = report_get(report_get(task_of(a, task), "delta"), metric);
        if (!d)
            continue;
        put_names(w, task, metric, report_str(a, "arm"), report_str(a, "against"));
        tsr_writer_printf(w, "<td></td>");
        put_test(w, d, share);
    }
}

/* A metric has a standard error next to it, be it null. */
static void put_task(struct tsr_writer *w, const json_t *r, const char *task)
{
    const json_t *first = task_of(json_array_get(report_get(r, "arms"), 0), task);
    const char   *key;
    json_t       *v;
    json_object_foreach ((json_t *)(uintptr_t)first, key, v) {
        char error[64];
        if (strlen(key) > 40)
            continue;
        (void)snprintf(error, sizeof error, "%s_stderr", key);
        if (json_object_get(first, error))
            put_metric(w, r, task, key);
    }
}

void report_tasks(struct tsr_writer *w, const json_t *r)
{
    const json_t *tasks = report_get(report_get(r, "tasks_of"), "tasks");
    const char   *task;
    json_t       *v;
    if (!json_is_object(tasks))
        return;
    put_head(w);
    json_object_foreach ((json_t *)(uintptr_t)tasks, task, v)
        put_task(w, r, task);
    tsr_writer_printf(w,
                      "</table>\n<p class=\"dim\">Shares are tested by McNemar's exact test, other "
                      "metrics and tasks with groups by a paired bootstrap; p is corrected over "
                      "arms, tasks and metrics, and over the pairs. Intervals are of the "
                      "bootstrap.</p>\n");
    json_object_foreach ((json_t *)(uintptr_t)tasks, task, v)
        report_facts(w, task, v);
}
