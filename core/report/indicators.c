/* The section of indicators: cost and rank agreement of each, plots, and all values by layer. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

static void short_cell(struct tsr_writer *w, const json_t *v)
{
    char   text[REPORT_NUMBER];
    double d = json_is_number(v) ? json_number_value(v) : (double)NAN;
    tsr_writer_printf(w, "<td>%s</td>", report_short(text, d));
}

static bool is_width(const json_t *v)
{
    return json_integer_value(v) < 16;
}

static void put_summary(struct tsr_writer *w, const json_t *r)
{
    const json_t *bits = report_get(r, "bits"), *t, *v;
    size_t        i, b;
    tsr_writer_printf(w, "<table><tr><th>indicator</th><th>seconds</th>"
                         "<th>Kendall tau with<br>measured: all</th>");
    json_array_foreach (bits, b, v)
        if (is_width(v))
            tsr_writer_printf(w, "<th>layers at<br>%lld bits</th>",
                              (long long)json_integer_value(v));
    tsr_writer_printf(w, "</tr>\n");
    json_array_foreach (report_get(r, "tables"), i, t) {
        const json_t *tau = report_get(t, "tau"), *by = report_get(tau, "by_bits");
        tsr_writer_printf(w, "<tr><td>");
        report_text(w, report_str(t, "name"));
        tsr_writer_printf(w, "</td>");
        short_cell(w, report_get(t, "seconds"));
        report_cell(w, report_real(tau, "all"), 3);
        json_array_foreach (bits, b, v) {
            const json_t *at = json_array_get(by, b);
            if (is_width(v))
                report_cell(w, json_is_number(at) ? json_number_value(at) : (double)NAN, 3);
        }
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}

/* Layers down, indicators and widths across. */
static void put_values(struct tsr_writer *w, const json_t *r)
{
    const json_t *bits = report_get(r, "bits"), *tables = report_get(r, "tables"), *t, *v;
    size_t        i, b, layers = json_array_size(report_get(json_array_get(tables, 0), "omega"));
    tsr_writer_printf(w, "<details><summary>All values</summary><table><tr><th>layer</th>");
    json_array_foreach (tables, i, t)
        json_array_foreach (bits, b, v)
            if (is_width(v)) {
                tsr_writer_printf(w, "<th>");
                report_text(w, report_str(t, "name"));
                tsr_writer_printf(w, "<br>%lld bits</th>", (long long)json_integer_value(v));
            }
    tsr_writer_printf(w, "</tr>\n");
    for (size_t l = 0; l < layers; l++) {
        tsr_writer_printf(w, "<tr><td>%zu</td>", l);
        json_array_foreach (tables, i, t)
            json_array_foreach (bits, b, v)
                if (is_width(v))
                    short_cell(w, json_array_get(json_array_get(report_get(t, "omega"), l), b));
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table></details>\n");
}

/* measure: kl, layers down and schemes across. */
static void put_kl(struct tsr_writer *w, const json_t *r)
{
    const json_t *schemes = report_get(r, "schemes"), *s;
    size_t        i, layers = json_array_size(report_get(json_array_get(schemes, 0), "kl"));
    tsr_writer_printf(w,
                      "<p class=\"dim\">KL to the original with one layer quantized, in nats per "
                      "token.</p>\n<table><tr><th>layer</th>");
    json_array_foreach (schemes, i, s) {
        tsr_writer_printf(w, "<th>");
        report_text(w, report_str(s, "scheme"));
        tsr_writer_printf(w, "</th>");
    }
    tsr_writer_printf(w, "</tr>\n");
    for (size_t l = 0; l < layers; l++) {
        tsr_writer_printf(w, "<tr><td>%zu</td>", l);
        json_array_foreach (schemes, i, s)
            short_cell(w, json_array_get(report_get(s, "kl"), l));
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}

void report_indicators(struct tsr_writer *w, const json_t *r)
{
    const json_t *t;
    size_t        i;
    if (report_get(r, "schemes")) {
        put_kl(w, r);
        return;
    }
    put_summary(w, r);
    tsr_writer_printf(w,
                      "<p class=\"dim\">Tau-b of each indicator against the increase of the loss "
                      "that was measured with one layer quantized at a time: over all layers "
                      "and widths, and over the layers at one width.</p>\n");
    tsr_writer_printf(w, "<div class=\"plots\">\n");
    json_array_foreach (report_get(r, "tables"), i, t)
        if (strcmp(report_str(t, "name"), "random") != 0) /* a random draw carries no information */
            report_plot_indicator(w, r, t);
    tsr_writer_printf(w, "</div>\n");
    put_values(w, r);
}
