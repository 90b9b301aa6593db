/* What adding channels back leaves of the error at one token, and which channels are large from token to token. */
#include "report/internal.h"

#include <math.h>

static const double left = 46, right = 420, top = 8, bottom = 170;

/* A line through the values of a list over those of `channels`, each list as a share of its first. */
static void put_curve(struct tsr_writer *w, const char *cls, const json_t *site, const char *key,
                      const struct report_axis *x, const struct report_axis *y)
{
    const json_t *list = report_get(site, key), *at = report_get(site, "channels"), *v;
    double        inputs = report_real(site, "inputs"), first = NAN;
    size_t        i;
    bool          on = false;
    tsr_writer_printf(w, "<path class=\"%s\" fill=\"none\" d=\"", cls);
    json_array_foreach (list, i, v) {
        double value = json_number_value(v), c = json_number_value(json_array_get(at, i));
        if (i == 0)
            first = value;
        if (!(first > 0) || !(inputs > 0))
            break;
        tsr_writer_printf(w, "%s%.1f %.1f", on ? "L" : "M", report_axis_at(x, 100 * c / inputs),
                          report_axis_at(y, value / first));
        on = true;
    }
    tsr_writer_printf(w, "\"/>\n");
}

static void put_site(struct tsr_writer *w, const json_t *site)
{
    struct report_axis x = { .low = 0, .high = 100, .from = left, .to = right },
                       y = { .low = 0, .high = 1.05, .from = bottom, .to = top };
    char title[120];
    (void)snprintf(title, sizeof title, "Error against channels added back: %.20s",
                   report_str(site, "name"));
    report_figure_open(w, bottom + 46 + 3 * REPORT_LEGEND, title);
    report_grid_x(w, &x, 5, top, bottom);
    report_grid_y(w, &y, 5, left, right);
    report_legend(w, left, bottom + 40 + REPORT_LEGEND, "middle", "", NULL,
                  "error as channels are added back by magnitude");
    report_legend(w, left, bottom + 40 + 2 * REPORT_LEGEND, "front", "", NULL, "error, at random");
    report_legend(w, left, bottom + 40 + 3 * REPORT_LEGEND, "bar", "", NULL,
                  "magnitudes in order, as a share of the largest");
    put_curve(w, "bar", site, "magnitude", &x, &y);
    put_curve(w, "front", site, "random", &x, &y);
    put_curve(w, "middle", site, "sorted", &x, &y);
    report_label(w, (left + right) / 2, bottom + 36, REPORT_MIDDLE, "tick", "percent of channels");
    report_figure_close(w, "Mean square error as a share of that without any: by magnitude (thick) "
                           "and at random (dashed); thin: the magnitudes in order, as a share of "
                           "the largest.");
}

/* A dash for each channel of each token. */
static void put_large(struct tsr_writer *w, const json_t *r)
{
    const json_t      *tokens = report_get(r, "large"), *one, *v;
    double             n = (double)json_array_size(tokens), shown = report_real(r, "inputs");
    double             tall = 2 * (bottom - top), step = (right - left) / fmax(n, 1);
    struct report_axis x = { .low = 1, .high = n + 1, .from = left, .to = right },
                       y = { .low = 0, .high = fmin(shown, 1024), .from = top + tall, .to = top };
    char   title[160];
    size_t i, k;
    if (n == 0 || !(shown > 0))
        return;
    (void)snprintf(title, sizeof title, "The largest %g %% of the inputs of %.20s, layer %g",
                   report_real(r, "share"), report_str(r, "site"), report_real(r, "layer"));
    report_figure_open(w, top + tall + 42, title);
    report_grid_x(w, &x, 5, top, top + tall);
    report_grid_y(w, &y, 5, left, right);
    tsr_writer_printf(w, "<path class=\"bar\" fill=\"none\" d=\"");
    json_array_foreach (tokens, i, one)
        json_array_foreach (one, k, v)
            tsr_writer_printf(w, "M%.1f %.1fh%.1f", report_axis_at(&x, (double)i + 1),
                              report_axis_at(&y, json_number_value(v)), fmax(step * 0.8, 0.5));
    tsr_writer_printf(w, "\"/>\n");
    report_label(w, (left + right) / 2, top + tall + 36, REPORT_MIDDLE, "tick", "generated token");
    report_figure_close(w, "One dash: this channel was among them. Channels that always are make "
                           "lines across.");
}

void report_outliers(struct tsr_writer *w, const json_t *r)
{
    const json_t *s;
    size_t        i;
    char          a[REPORT_NUMBER];
    tsr_writer_printf(w,
                      "<p>Layer %g; errors at generated token %g, residuals of %g bits. Of the %g "
                      "largest of %g inputs of ",
                      report_real(r, "layer"), report_real(r, "at"),
                      report_real(r, "residual_bits"), report_real(r, "count"),
                      report_real(r, "inputs"));
    report_text(w, report_str(r, "site"));
    tsr_writer_printf(w,
                      ", over %g tokens, %.1f %% are the same as at the token before; %g channels "
                      "are among them at half of the tokens; the calibration's largest are %.1f %% "
                      "of them.</p>\n<div class=\"plots\">\n",
                      report_real(r, "tokens"), 100 * report_real(r, "again"),
                      report_real(r, "often"), 100 * report_real(r, "recall"));
    json_array_foreach (report_get(r, "sites"), i, s)
        put_site(w, s);
    put_large(w, r);
    tsr_writer_printf(w, "</div>\n<table><tr><th>input of</th><th>channels that halve the error, %%"
                         "</th><th>at random, %%</th></tr>\n");
    json_array_foreach (report_get(r, "sites"), i, s) {
        tsr_writer_printf(w, "<tr><td>");
        report_text(w, report_str(s, "name"));
        tsr_writer_printf(w, "</td><td>%s</td>",
                          report_fixed(a, 100 * report_real(s, "half_sorted"), 1, false));
        report_cell(w, 100 * report_real(s, "half_random"), 1);
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}
