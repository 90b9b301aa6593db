/* Perplexity against compensated channels: the selection methods of one sweep, or all sweeps of a job;
 * against time: the results of target slow-downs. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

static const double left = 46, right = 330, top = 8, bottom = 210;
#define MOST 12u /* lines in a plot */

/* One line: the points of a sweep with this selection (NULL: at targets). */
struct series {
    const json_t *points, *sweep;
    const char   *select;
    char          name[64], label[32]; /* in the legend, next to the line */
    bool          main;
    bool          time;      /* across: of a token; without compensation first */
    bool          accuracy;  /* up: of questions */
    bool          agreement; /* up: of answers with the original */
};

/* Lines differ by their dashes; the seventh and later ones also have hollow points. */
static const char *const dashes[] = { "", "7 3", "2 2", "9 3 2 3", "4 4", "12 2" };
#define DASHES (sizeof dashes / sizeof *dashes)

static const char *class_of(const struct series *s)
{
    return s->main ? "middle" : "bar";
}

static const char *mark_of(const struct series *s, unsigned i)
{
    return s->main && i < DASHES ? "mark" : "beaten";
}

static bool belongs(const struct series *s, const json_t *p)
{
    const char *select = report_str(p, "select");
    if (!s->select && isfinite(report_real(p, "target")))
        return true;
    if (!s->select)
        return s->time && report_real(p, "k") == 0;
    /* the point without compensation is common to all */
    return strcmp(select, s->select) == 0 || (report_real(p, "k") == 0 && *select);
}

/* NaN: none. */
static double up(const struct series *s, const json_t *p)
{
    double v = s->accuracy    ? 100 * report_real(report_get(p, "choices"), "accuracy")
               : s->agreement ? 100 * report_real(p, "agreement")
                              : report_real(p, "perplexity");
    return v > 0 ? v : NAN;
}

static double across(const struct series *s, const json_t *p)
{
    if (s->time)
        return report_real(isfinite(report_real(p, "target")) ? p : s->sweep, "decode_ms");
    return report_real(p, s->select ? "k" : "slower") * (s->select ? 1 : 100);
}

static void ends(const struct series *s, unsigned n, struct report_axis *x, struct report_axis *y)
{
    double        x0 = s->time ? INFINITY : 0, x1 = 0, y0 = INFINITY, y1 = 0;
    const json_t *p;
    size_t        i;
    for (unsigned k = 0; k < n; k++)
        json_array_foreach (s[k].points, i, p)
            if (belongs(&s[k], p) && isfinite(up(&s[k], p))) {
                x0 = fmin(x0, across(&s[k], p));
                x1 = fmax(x1, across(&s[k], p));
                y0 = fmin(y0, up(&s[k], p));
                y1 = fmax(y1, up(&s[k], p));
            }
    report_axis_fit(x, x0, x1, false, left, right);
    report_axis_fit(y, y0, y1, y1 > 4 * y0, bottom, top);
}

static void put_series(struct tsr_writer *w, const struct series *s, unsigned number,
                       const struct report_axis *x, const struct report_axis *y,
                       struct report_box *taken, uint64_t *boxes)
{
    static const struct report_box frame = { 0, 0, REPORT_WIDTH, 224 };
    const char                    *dash = dashes[number % DASHES];
    double                         px = NAN, py = NAN, at_x, at_y;
    enum report_anchor             anchor;
    const json_t                  *p;
    char                           name[80];
    size_t                         i;
    tsr_writer_printf(w, "<path class=\"%s\" fill=\"none\"%s%s%s d=\"", class_of(s),
                      *dash ? " stroke-dasharray=\"" : "", dash, *dash ? "\"" : "");
    json_array_foreach (s->points, i, p) {
        if (!belongs(s, p) || !isfinite(up(s, p)))
            continue;
        tsr_writer_printf(w, "%s%.1f %.1f", isfinite(px) ? "L" : "M",
                          report_axis_at(x, across(s, p)), report_axis_at(y, up(s, p)));
        px = report_axis_at(x, across(s, p));
        py = report_axis_at(y, up(s, p));
    }
    tsr_writer_printf(w, "\"/>\n");
    json_array_foreach (s->points, i, p)
        if (belongs(s, p) && isfinite(up(s, p)))
            tsr_writer_printf(w, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n",
                              mark_of(s, number), report_axis_at(x, across(s, p)),
                              report_axis_at(y, up(s, p)));
    report_text_cut(name, sizeof name, s->label, REPORT_WIDTH - right - 10);
    if (isfinite(px) && report_place(taken, boxes, &frame, px, py, name, &at_x, &at_y, &anchor))
        report_label(w, at_x, at_y, anchor, "name", name);
}

static void draw(struct tsr_writer *w, const struct series *s, unsigned n, const char *title,
                 const char *below)
{
    struct report_axis x, y;
    struct report_box  taken[MOST + 1];
    uint64_t           boxes = 0;
    ends(s, n, &x, &y);
    unsigned rows = n > 1 ? (n + 1) / 2 : 0; /* of the legend */
    report_figure_open(w, bottom + 42 + (rows ? 4 + REPORT_LEGEND * rows : 0), title);
    report_grid_x(w, &x, 5, top, bottom);
    report_grid_y(w, &y, 5, left, right);
    for (unsigned i = 0; i < n; i++)
        put_series(w, &s[i], i, &x, &y, taken, &boxes);
    for (unsigned i = 0; rows && i < n; i++) {
        unsigned row = i / 2 + 1;
        report_legend(w, left + (i % 2 ? 180 : 0), bottom + 40 + REPORT_LEGEND * row,
                      class_of(&s[i]), dashes[i % DASHES], mark_of(&s[i], i), s[i].name);
    }
    report_label(w, (left + right) / 2, bottom + 36, REPORT_MIDDLE, "tick", below);
    report_figure_close(w, NULL);
}

static bool has(const struct series *s)
{
    const json_t *p;
    size_t        i;
    unsigned      n = 0;
    json_array_foreach (s->points, i, p)
        n += belongs(s, p) && isfinite(up(s, p)) && isfinite(across(s, p));
    return n > (s->select ? 1u : 0u);
}

/* Selection methods of one sweep, and the results of target slow-downs. */
static void plot_selects(struct tsr_writer *w, const json_t *sweep)
{
    static const char *const ways[] = { "dynamic", "exact", "random", "static-meansq",
                                        "static-hessian" };
    struct series            s[5], t = { .points = report_get(sweep, "points"), .main = true };
    unsigned                 n = 0;
    for (size_t i = 0; i < 5; i++) {
        s[n] = (struct series){ .points = t.points, .select = ways[i], .main = i == 0 };
        (void)snprintf(s[n].name, sizeof s[n].name, "%s", ways[i]);
        (void)snprintf(s[n].label, sizeof s[n].label, "%s", ways[i]);
        n += has(&s[n]);
    }
    if (n)
        draw(w, s, n, "Perplexity against compensated channels", "channels of 1024");
    for (unsigned i = 0; i < n; i++)
        s[i].accuracy = true;
    if (n && has(&s[0]))
        draw(w, s, n, "Accuracy in percent against compensated channels", "channels of 1024");
    for (unsigned i = 0; i < n; i++) {
        s[i].accuracy = false;
        s[i].agreement = true;
    }
    if (n && has(&s[0]))
        draw(w, s, n, "Answers as the original would go on, percent, against compensated channels",
             "channels of 1024");
    if (has(&t))
        draw(w, &t, 1, "Perplexity against slow-down", "the linears slower by percent");
}

/* The sweeps of the results as series of one kind; returns how many have points. */
static unsigned all_sweeps(const json_t *results, struct series kind, struct series s[MOST])
{
    unsigned    n = 0;
    const char *key;
    json_t     *v;
    json_object_foreach ((json_t *)(uintptr_t)results, key, v) {
        if (!report_is_step(key, "sweep") || n == MOST)
            continue;
        s[n] = kind;
        s[n].sweep = v;
        s[n].points = report_get(v, "points");
        double bits = report_real(v, "bits_per_weight"), kept = report_real(v, "residual_bits");
        (void)snprintf(s[n].name, sizeof s[n].name, "%.3g bits, residuals of %g", bits, kept);
        (void)snprintf(s[n].label, sizeof s[n].label, "%.3g bits, %g", bits, kept);
        n += has(&s[n]);
    }
    return n;
}

void report_plot_sweeps(struct tsr_writer *w, const json_t *results)
{
    struct series s[MOST];
    unsigned      n = all_sweeps(results, (struct series){ .select = "dynamic", .main = true }, s);
    if (n > 1)
        draw(w, s, n, "Perplexity against compensated channels, by bits of weights and residuals",
             "channels of 1024");
    n = all_sweeps(results, (struct series){ .select = "dynamic", .main = true, .accuracy = true },
                   s);
    if (n > 1)
        draw(w, s, n, "Accuracy against compensated channels, by bits of weights and residuals",
             "channels of 1024");
    n = all_sweeps(results, (struct series){ .select = "dynamic", .main = true, .agreement = true },
                   s);
    if (n > 1)
        draw(w, s, n, "Answers as the original would go on, by bits of weights and residuals",
             "channels of 1024");
    n = all_sweeps(results, (struct series){ .time = true, .main = true }, s);
    if (n > 1)
        draw(w, s, n, "Perplexity against the time of a token, first without compensation",
             "milliseconds of a token");
}

static void put_row(struct tsr_writer *w, const json_t *p)
{
    const json_t *d = report_get(p, "delta"), *k = report_get(p, "channels"),
                 *c = report_get(p, "choices");
    char a[REPORT_NUMBER];
    bool target = isfinite(report_real(p, "target"));
    tsr_writer_printf(w, "<tr><td>");
    report_text(w, target ? "target" : report_str(p, "select"));
    tsr_writer_printf(w, "</td><td>%g%s</td><td>%g, %g, %g, %g</td>",
                      report_real(p, target ? "target" : "k"), target ? " %" : "",
                      report_real(k, "qkv"), report_real(k, "o"), report_real(k, "gate_up"),
                      report_real(k, "down"));
    report_cell(w, report_real(p, "perplexity"), 3);
    report_cell(w, report_real(d, "mean"), 4);
    report_cell(w, report_real(d, "low"), 4);
    report_cell(w, report_real(d, "high"), 4);
    tsr_writer_printf(w, "<td>%s</td>", report_short(a, report_real(d, "p")));
    report_cell(w, 100 * report_real(p, "recall"), 1);
    report_cell(w, 100 * report_real(c, "accuracy"), 1);
    report_cell(w, 100 * report_real(p, "agreement"), 1);
    report_cell(w, 100 * report_real(p, "slower"), 1);
    report_cell(w, 100 * report_real(p, "decode_slower"), 1);
    tsr_writer_printf(w, "</tr>\n");
}

static void put_trend(struct tsr_writer *w, const json_t *t)
{
    const json_t *slope = report_get(t, "slope");
    const char   *verdict = report_str(t, "verdict");
    char          a[4][REPORT_NUMBER];
    tsr_writer_printf(w, "<p>");
    report_text(w, report_str(t, "select"));
    tsr_writer_printf(w, ", perplexity with k: ");
    report_text(w, strcmp(verdict, "open") == 0 ? "not told apart" : verdict);
    tsr_writer_printf(w,
                      "; nll %s a step (%s to %s, p %s), higher at %g of %zu steps, at %g beyond "
                      "chance</p>\n",
                      report_short(a[0], report_real(slope, "mean")),
                      report_short(a[1], report_real(slope, "low")),
                      report_short(a[2], report_real(slope, "high")),
                      report_short(a[3], report_real(slope, "p")), report_real(t, "rises"),
                      json_array_size(report_get(t, "steps")), report_real(t, "proven"));
}

void report_sweep(struct tsr_writer *w, const json_t *sweep)
{
    const json_t *p;
    size_t        i;
    tsr_writer_printf(w,
                      "<p>%.4g bits per weight, residuals of %g bits</p>\n<div class=\"plots\">\n",
                      report_real(sweep, "bits_per_weight"), report_real(sweep, "residual_bits"));
    plot_selects(w, sweep);
    tsr_writer_printf(
        w, "</div>\n<table><tr><th>selection</th><th>k</th><th>qkv, o, gate/up, down</th>"
           "<th>perplexity</th><th>nll less that without</th><th>low</th><th>high</th>"
           "<th>p</th><th>recall, %%</th><th>questions, %%</th><th>answers as the original's, "
           "%%</th><th>linears slower, "
           "%%</th><th>tokens slower, %%</th></tr>\n");
    json_array_foreach (report_get(sweep, "points"), i, p)
        put_row(w, p);
    tsr_writer_printf(w, "</table>\n");
    json_array_foreach (report_get(sweep, "trends"), i, p)
        put_trend(w, p);
    if (json_array_size(report_get(sweep, "quarter"))) {
        tsr_writer_printf(w, "<p>Dynamic selection of k less a static one of 4k:</p>\n");
        report_value(w, report_get(sweep, "quarter"), 0);
    }
}
