/* Tables of indicators: cost and rank agreement of each, and the values by layer. */
#include "pipeline/indicators.h"

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

void tsr_indicators_print(const json_t *r, FILE *to)
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
}

static void html_cell(struct tsr_writer *w, const json_t *v, const char *how)
{
    char cell[48];
    format(cell, sizeof cell, v, how);
    tsr_writer_printf(w, "<td>%s</td>", cell);
}

static void html_summary(const json_t *r, struct tsr_writer *w)
{
    const json_t *bits = get(r, "bits"), *t, *v;
    size_t        i, b;
    tsr_writer_printf(w, "<table><tr><th>indicator</th><th>seconds</th>"
                         "<th>Kendall tau with<br>measured: all</th>");
    json_array_foreach (bits, b, v)
        if (json_integer_value(v) < 16)
            tsr_writer_printf(w, "<th>layers at<br>%lld bits</th>",
                              (long long)json_integer_value(v));
    tsr_writer_printf(w, "</tr>\n");
    json_array_foreach (get(r, "tables"), i, t) {
        const json_t *tau = get(t, "tau");
        tsr_writer_printf(w, "<tr><td>%s</td>", name_of(t)); /* names are ours */
        html_cell(w, get(t, "seconds"), "%.3g");
        html_cell(w, get(tau, "all"), "%.3f");
        for (b = 0; b < json_array_size(bits); b++)
            if (json_integer_value(json_array_get(bits, b)) < 16)
                html_cell(w, json_array_get(get(tau, "by_bits"), b), "%.3f");
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}

/* Layers down, indicators and widths across. */
static void html_values(const json_t *r, struct tsr_writer *w)
{
    const json_t *bits = get(r, "bits"), *t, *v;
    size_t        i, b, layers = (size_t)json_integer_value(get(r, "layers"));
    tsr_writer_printf(w, "<table><tr><th>layer</th>");
    json_array_foreach (get(r, "tables"), i, t)
        json_array_foreach (bits, b, v)
            if (json_integer_value(v) < 16)
                tsr_writer_printf(w, "<th>%s<br>%lld bits</th>", name_of(t),
                                  (long long)json_integer_value(v));
    tsr_writer_printf(w, "</tr>\n");
    for (size_t l = 0; l < layers; l++) {
        tsr_writer_printf(w, "<tr><td>%zu</td>", l);
        json_array_foreach (get(r, "tables"), i, t)
            json_array_foreach (bits, b, v)
                if (json_integer_value(v) < 16)
                    html_cell(w, json_array_get(json_array_get(get(t, "omega"), l), b), "%.4g");
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}

void tsr_indicators_html(const json_t *r, struct tsr_writer *w)
{
    html_summary(r, w);
    tsr_writer_printf(w, "<p class=dim>Tau-b of each indicator against the increase of the loss "
                         "that was measured with one layer quantized at a time: over all layers "
                         "and widths, and over the layers at one width.</p>\n");
    html_values(r, w);
}
