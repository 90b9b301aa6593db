/* The section of published figures: compared with ours, and whether their orders hold here. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

static void put_range(struct tsr_writer *w, const json_t *d, int digits, bool sign)
{
    char   a[REPORT_NUMBER], b[REPORT_NUMBER];
    double low = report_real(d, "low"), high = report_real(d, "high");
    if (isfinite(low) && isfinite(high))
        tsr_writer_printf(w, "<br><span class=\"dim\">[%s, %s]</span>",
                          report_fixed(a, low, digits, sign), report_fixed(b, high, digits, sign));
}

static void put_arm(struct tsr_writer *w, const json_t *a, size_t columns, int digits)
{
    const json_t *paper = report_get(a, "paper"), *v;
    char          text[REPORT_NUMBER];
    tsr_writer_printf(w, "<tr><td>");
    report_text(w, report_str(a, "arm"));
    tsr_writer_printf(w, "</td>");
    if (report_get(a, "failed")) {
        tsr_writer_printf(w, "<td class=\"text bad\" colspan=\"%zu\">failed: ", columns + 3);
        report_text(w, report_str(a, "failed"));
        tsr_writer_printf(w, "</td></tr>\n");
        return;
    }
    report_cell(w, report_real(a, "bits_per_weight"), 2);
    tsr_writer_printf(w, "<td>%s", report_fixed(text, report_real(a, "value"), digits, false));
    put_range(w, a, digits, false);
    tsr_writer_printf(w, "</td>");
    report_cell(w, report_real(a, "kl"), 6);
    for (size_t i = 0; i < columns; i++) {
        v = json_array_get(paper, i);
        report_cell(w, json_is_number(v) ? json_number_value(v) : (double)NAN, digits > 2 ? 3 : 2);
    }
    tsr_writer_printf(w, "</tr>\n");
}

static void put_arms(struct tsr_writer *w, const json_t *r)
{
    const json_t *columns = report_get(r, "columns"), *v;
    bool          increase = strcmp(report_str(r, "figure"), "increase") == 0;
    size_t        i, n = json_array_size(columns);
    tsr_writer_printf(w,
                      "<table><tr><th>arm</th><th>bits per<br>weight</th><th>%s</th>"
                      "<th>mean KL<br>(nats)</th>",
                      increase ? "increase of<br>perplexity, %" : "perplexity");
    json_array_foreach (columns, i, v) {
        tsr_writer_printf(w, "<th>published:<br>");
        report_text(w, json_string_value(v));
        tsr_writer_printf(w, "</th>");
    }
    tsr_writer_printf(w, "</tr>\n");
    json_array_foreach (report_get(r, "arms"), i, v)
        put_arm(w, v, n, increase ? 2 : 4);
    tsr_writer_printf(w, "</table>\n");
}

static void put_verdict(struct tsr_writer *w, const json_t *d, const char *verdict)
{
    char        text[REPORT_NUMBER];
    const char *cls = strcmp(verdict, "holds") == 0          ? "good"
                      : strcmp(verdict, "contradicted") == 0 ? "bad"
                                                             : "dim";
    tsr_writer_printf(w, "<td>%s", report_fixed(text, report_real(d, "mean"), 5, true));
    put_range(w, d, 5, true);
    tsr_writer_printf(w, "</td><td class=\"text %s\">", cls);
    report_text(w, verdict);
    tsr_writer_printf(w, "</td>");
}

static void put_orders(struct tsr_writer *w, const json_t *r)
{
    const json_t *orders = report_get(r, "orders"), *o, *v;
    size_t        i, k;
    if (json_array_size(orders) == 0)
        return;
    tsr_writer_printf(w, "<table><tr><th>order</th><th>in the published figures</th>"
                         "<th>log-perplexity<br>difference</th><th></th><th>mean KL<br>difference"
                         "</th><th></th></tr>\n");
    json_array_foreach (orders, i, o) {
        tsr_writer_printf(w, "<tr><td>");
        report_text(w, report_str(o, "better"));
        tsr_writer_printf(w, " &lt; ");
        report_text(w, report_str(o, "worse"));
        tsr_writer_printf(w, "</td><td>");
        json_array_foreach (report_get(o, "paper"), k, v)
            tsr_writer_printf(w, "%s%s", k ? " " : "",
                              json_is_true(v)    ? "yes"
                              : json_is_false(v) ? "no"
                                                 : "&ndash;");
        tsr_writer_printf(w, "</td>");
        put_verdict(w, report_get(o, "delta"), report_str(o, "verdict"));
        put_verdict(w, report_get(o, "kl_delta"), report_str(report_get(o, "kl_delta"), "verdict"));
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>\n<p class=\"dim\">An order holds when the whole interval of the "
                         "difference, taken token by token, is below zero, and is contradicted "
                         "when it is above. Published: one word for each column.</p>\n");
}

void report_claims(struct tsr_writer *w, const json_t *r)
{
    tsr_writer_printf(w, "<p>Beside ");
    report_text(w, report_str(r, "source"));
    tsr_writer_printf(w, "</p>\n");
    put_arms(w, r);
    put_orders(w, r);
}
