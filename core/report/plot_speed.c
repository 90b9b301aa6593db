/* Speed of the arms in one phase: the median as a bar, every run as a dot, and the ratio to the
 * original with its interval. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

static const double names = 96, row = 21, top = 6;

struct phase {
    char median[40], runs[40], ratio[40];
};

static double median_of(const json_t *arm, const struct phase *p)
{
    return report_real(report_get(arm, "speed"), p->median);
}

static double longest(const json_t *arms, const struct phase *p, unsigned *n)
{
    const json_t *a, *v;
    size_t        i, k;
    double        high = 0;
    *n = 0;
    json_array_foreach (arms, i, a) {
        if (!(median_of(a, p) > 0))
            continue;
        high = fmax(high, median_of(a, p));
        json_array_foreach (report_get(report_get(a, "speed"), p->runs), k, v)
            high = fmax(high, json_is_number(v) ? json_number_value(v) : 0);
        ++*n;
    }
    return high;
}

/* The ratio with its interval, empty where there is none. */
static const char *ratio_text(char text[4 * REPORT_NUMBER], const json_t *arm,
                              const struct phase *p)
{
    const json_t *r = report_get(report_get(arm, "speed"), p->ratio);
    char          m[REPORT_NUMBER], low[REPORT_NUMBER], high[REPORT_NUMBER];
    *text = '\0';
    if (isfinite(report_real(r, "median")))
        (void)snprintf(text, 4 * (size_t)REPORT_NUMBER, "\xc3\x97%s [%s, %s]",
                       report_short(m, report_real(r, "median")),
                       report_short(low, report_real(r, "low")),
                       report_short(high, report_real(r, "high")));
    return text;
}

/* The right end of the bars, which leaves room for the widest ratio. */
static double right_of(const json_t *arms, const struct phase *p)
{
    const json_t *a;
    size_t        i;
    double        widest = 0;
    char          text[4 * REPORT_NUMBER];
    json_array_foreach (arms, i, a)
        widest = fmax(widest, report_text_width(ratio_text(text, a, p)));
    return REPORT_WIDTH - 12 - widest;
}

static void put_arm(struct tsr_writer *w, const json_t *arm, const struct phase *p,
                    const struct report_axis *x, double y)
{
    const json_t *v;
    size_t        k;
    char          name[80], text[4 * REPORT_NUMBER];
    const json_t *speed = report_get(arm, "speed");
    long long f32 = json_integer_value(json_object_get(report_get(speed, "packed_linears"), "f32"));
    double    median = median_of(arm, p), end = report_axis_at(x, median);
    report_text_cut(name, sizeof name, report_str(arm, "name"), names - 8);
    report_label(w, names - 6, y + 0.35 * REPORT_EM, REPORT_END, "name", name);
    tsr_writer_printf(w, "<g><title>");
    report_text(w, report_str(arm, "name"));
    tsr_writer_printf(w, ": %s tokens/s, act ", report_short(text, median));
    report_text(w, report_str(speed, "act"));
    if (f32 > 0 && strcmp(report_str(speed, "act"), "f32") != 0)
        tsr_writer_printf(w, ", f32 on %lld packed linears", f32);
    tsr_writer_printf(w,
                      "</title><rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                      "height=\"12\"/>\n",
                      x->from, y - 6, end - x->from);
    report_line(w, "middle", end, y - 6, end, y + 6);
    json_array_foreach (report_get(report_get(arm, "speed"), p->runs), k, v)
        if (json_is_number(v) && json_number_value(v) > 0)
            tsr_writer_printf(w, "<circle class=\"run\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>",
                              report_axis_at(x, json_number_value(v)), y);
    tsr_writer_printf(w, "</g>\n");
    report_label(w, x->to + 6, y + 0.35 * REPORT_EM, REPORT_START, "tick",
                 ratio_text(text, arm, p));
}

void report_plot_speed(struct tsr_writer *w, const json_t *compare, const char *phase,
                       const char *title)
{
    const json_t      *arms = report_get(compare, "arms"), *a;
    struct report_axis x = { .from = names };
    struct phase       p;
    unsigned           n, k = 0;
    size_t             i;
    (void)snprintf(p.median, sizeof p.median, "%s_tokens_per_s", phase);
    (void)snprintf(p.runs, sizeof p.runs, "%s_runs", phase);
    (void)snprintf(p.ratio, sizeof p.ratio, "%s_ratio", phase);
    x.high = 1.03 * longest(arms, &p, &n);
    if (n == 0)
        return;
    x.to = right_of(arms, &p);
    double bottom = top + n * row;
    report_figure_open(w, bottom + 24, title);
    report_grid_x(w, &x, 4, top, bottom);
    json_array_foreach (arms, i, a)
        if (median_of(a, &p) > 0)
            put_arm(w, a, &p, &x, top + row * (k++ + 0.5));
    report_figure_close(w, "Bar: the median; dots: single runs, taken in turns with the other "
                           "arms. Behind it, where there is one, the ratio to the original with "
                           "its interval.");
}
