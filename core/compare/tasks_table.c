/* Named tasks and multiple choice as tables, printed from the result: for each metric of a task its arms, then the pairs. */
#include "compare/compare.h"

#include <math.h>
#include <string.h>

static double real_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static uint64_t int_of(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* A share in percent, another metric as it is. */
static void put_value(FILE *to, double v, bool share)
{
    char text[48] = "-";
    if (isfinite(v))
        (void)snprintf(text, sizeof text, share ? "%.2f %%" : "%.5g", share ? 100 * v : v);
    (void)fprintf(to, "  %10s", text);
}

/* A difference of shares in points of percent. */
static const char *signed_number(char out[48], double v, bool share)
{
    (void)snprintf(out, 48, share ? "%+.2f" : "%+.4g", share ? 100 * v : v);
    return out;
}

static void put_difference(FILE *to, const json_t *d, bool share)
{
    char   text[160] = "-", value[48], from[48], until[48];
    double low = real_of(d, "low"), high = real_of(d, "high");
    (void)signed_number(value, real_of(d, "value"), share);
    if (isfinite(low) && isfinite(high))
        (void)snprintf(text, sizeof text, "%s [%s, %s]", value, signed_number(from, low, share),
                       signed_number(until, high, share));
    else if (isfinite(real_of(d, "value")))
        (void)snprintf(text, sizeof text, "%s", value);
    (void)fprintf(to, "  %32s", text);
}

static void put_test(FILE *to, const json_t *d)
{
    char p[32] = "-", needed[32] = "-";
    if (isfinite(real_of(d, "p_holm")))
        (void)snprintf(p, sizeof p, "%.2g", real_of(d, "p_holm"));
    if (isfinite(real_of(d, "needed")))
        (void)snprintf(needed, sizeof needed, "%.0f", real_of(d, "needed"));
    (void)fprintf(to, "  %9s  %10s  %s", p, needed, text_of(d, "verdict"));
    if (json_object_get(d, "only_arm"))
        (void)fprintf(to, " (%lld : %lld)",
                      (long long)json_integer_value(json_object_get(d, "only_arm")),
                      (long long)json_integer_value(json_object_get(d, "only_reference")));
}

static void print_metric(const json_t *r, const char *task, enum tsr_tasks_metric m, int name,
                         FILE *to)
{
    const char   *metric = tsr_tasks_metric_name(m);
    bool          share = tsr_tasks_metric_is_share(m);
    const json_t *a;
    size_t        i;
    (void)fprintf(to, "%s, %s\n", task, metric);
    json_array_foreach (json_object_get(r, "arms"), i, a) {
        const json_t *one = json_object_get(json_object_get(a, "tasks"), task);
        const json_t *d = json_object_get(json_object_get(one, "delta"), metric);
        if (!one)
            continue;
        (void)fprintf(to, "  %-*s", name, text_of(a, "name"));
        put_value(to, real_of(one, metric), share);
        if (d) {
            put_difference(to, d, share);
            put_test(to, d);
        }
        (void)fputc('\n', to);
    }
    json_array_foreach (json_object_get(r, "pairs"), i, a) {
        const json_t *one = json_object_get(json_object_get(a, "tasks"), task);
        const json_t *d = json_object_get(json_object_get(one, "delta"), metric);
        if (!d)
            continue;
        (void)fprintf(to, "  %s against %s\n  %-*s  %10s", text_of(a, "arm"), text_of(a, "against"),
                      name, "", "");
        put_difference(to, d, share);
        put_test(to, d);
        (void)fputc('\n', to);
    }
}

void compare_print_tasks(const json_t *r, int name, FILE *to)
{
    const json_t *of = json_object_get(r, "tasks_of"), *one;
    const json_t *first = json_object_get(json_array_get(json_object_get(r, "arms"), 0), "tasks");
    const char   *task;
    if (!of)
        return;
    (void)
        fprintf(to,
                "\ntasks:       McNemar's exact test of shares, else a paired bootstrap, by group "
                "where rows have groups;\n"
                "             p corrected over arms, tasks and metrics, and over the pairs; "
                "intervals of %g %% by bootstrap\n",
                100 * (1 - real_of(r, "alpha")));
    (void)fprintf(to, "  %-*s  %10s  %32s  %9s  %10s\n", name, "", "", "difference, interval",
                  "p (Holm)", "1 % needs");
    json_object_foreach ((json_t *)(uintptr_t)json_object_get(of, "tasks"), task, one)
        for (unsigned m = 0; m < TSR_TASKS_METRICS; m++)
            if (json_object_get(json_object_get(first, task),
                                tsr_tasks_metric_name((enum tsr_tasks_metric)m)))
                print_metric(r, task, (enum tsr_tasks_metric)m, name, to);
}

/* Questions of a file of the user's, by arms. */
void compare_print_choices(const json_t *r, int name, FILE *to)
{
    const json_t *of = json_object_get(r, "choices_of"), *a;
    size_t        i;
    if (of)
        (void)fprintf(to,
                      "\nchoices:     %s, %llu questions, by likelihood; McNemar's exact test, p "
                      "corrected over the arms\n",
                      text_of(of, "file"), (unsigned long long)int_of(of, "questions"));
    json_array_foreach (json_object_get(r, "arms"), i, a) {
        const json_t *c = json_object_get(a, "choices");
        if (!c)
            continue;
        (void)fprintf(to, "%-*s  %6.2f %% [%.2f, %.2f]", name, text_of(a, "name"),
                      100 * real_of(c, "accuracy"), 100 * real_of(c, "low"),
                      100 * real_of(c, "high"));
        if (json_object_get(c, "p"))
            (void)fprintf(to, "  only this arm right: %llu, only the original: %llu, p %.2g",
                          (unsigned long long)int_of(c, "only_arm"),
                          (unsigned long long)int_of(c, "only_reference"), real_of(c, "p_holm"));
        (void)fprintf(to, "\n");
    }
}
