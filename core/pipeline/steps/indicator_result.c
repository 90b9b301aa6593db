/* Tables of indicators: cost and rank agreement of each, and the values by layer. */
#include "pipeline/steps/indicator_result.h"

#include <string.h>

static const json_t *get(const json_t *o, const char *key)
{
    return json_object_get(o, key);
}

static const char *name_of(const json_t *table)
{
    const char *s = json_string_value(get(table, "name"));
    return s ? s : "";
}

/* A number that may be null. */
static void format(char *out, size_t cap, const json_t *v, const char *how)
{
    if (json_is_number(v))
        (void)snprintf(out, cap, how, json_number_value(v));
    else
        (void)snprintf(out, cap, "-");
}

/* "plan-variance.yaml  4 4 8 3 3 4" */
static void print_plans(const json_t *plans, FILE *to)
{
    const json_t *p, *v;
    size_t        i, l;
    if (!plans)
        return;
    (void)fprintf(to, "\nwidths of the layers at %.4g bits on average\n",
                  json_number_value(get(plans, "budget")));
    json_array_foreach (get(plans, "of"), i, p) {
        (void)fprintf(to, "%-20s", name_of(p));
        json_array_foreach (get(p, "bits"), l, v)
            (void)fprintf(to, " %2lld", (long long)json_integer_value(v));
        (void)fprintf(to, "  %s\n", json_string_value(get(p, "file")));
    }
}

void tsr_step_indicators_print(const json_t *r, FILE *to)
{
    const json_t *bits = get(r, "bits"), *tables = get(r, "tables"), *t, *v;
    size_t        i, b;
    char          cell[48];
    (void)fprintf(to, "%-20s %9s  Kendall tau with 'measured': all", "indicator", "seconds");
    json_array_foreach (bits, b, v)
        if (json_integer_value(v) < 16)
            (void)fprintf(to, " %7lld bit", (long long)json_integer_value(v));
    (void)fprintf(to, "\n");
    json_array_foreach (tables, i, t) {
        const json_t *tau = get(t, "tau");
        format(cell, sizeof cell, get(t, "seconds"), "%.3g");
        (void)fprintf(to, "%-20s %9s", name_of(t), cell);
        if (tau) {
            format(cell, sizeof cell, get(tau, "all"), "%.3f");
            (void)fprintf(to, "  %33s", cell);
            json_array_foreach (get(tau, "by_bits"), b, v) {
                if (json_integer_value(json_array_get(bits, b)) >= 16)
                    continue;
                format(cell, sizeof cell, v, "%.3f");
                (void)fprintf(to, " %11s", cell);
            }
        }
        (void)fprintf(to, "\n");
    }
    print_plans(get(r, "plans"), to);
}
