/* How the divergence of single tokens is spread: percentiles of each arm on one logarithmic axis.
 * A mean can hide that a few tokens go badly wrong; the right ends show it. */
#include "report/internal.h"

#include <math.h>

static const double names = 96, right = 430, row = 19, top = 6;

/* No divergence of F32 logits below this is more than rounding. */
#define FLOOR 1e-8

static double percentile(const json_t *arm, const char *key)
{
    return report_real(report_get(report_get(arm, "kl"), "percentiles"), key);
}

static bool shown(const json_t *arm)
{
    return percentile(arm, "99.9") > FLOOR && isfinite(percentile(arm, "50"));
}

static void range(const json_t *arms, struct report_axis *x, unsigned *n)
{
    const json_t *a;
    size_t        i;
    double        low = INFINITY, high = 0;
    *n = 0;
    json_array_foreach (arms, i, a) {
        if (!shown(a))
            continue;
        double from = percentile(a, "1"), mean = report_real(report_get(a, "kl"), "mean");
        low = fmin(low, from > FLOOR ? from : FLOOR);
        high = fmax(high, fmax(percentile(a, "99.9"), isfinite(mean) ? mean : 0));
        ++*n;
    }
    if (*n)
        report_axis_fit(x, low, high, true, names, right);
}

static void put_arm(struct tsr_writer *w, const json_t *a, const struct report_axis *x, double y)
{
    char   name[80], text[REPORT_NUMBER];
    double p10 = report_axis_at(x, percentile(a, "10")),
           p90 = report_axis_at(x, percentile(a, "90"));
    double p50 = report_axis_at(x, percentile(a, "50")),
           mean = report_real(report_get(a, "kl"), "mean");
    report_text_cut(name, sizeof name, report_str(a, "name"), names - 8);
    report_label(w, names - 6, y + 0.35 * REPORT_EM, REPORT_END, "name", name);
    tsr_writer_printf(w, "<g><title>");
    report_text(w, report_str(a, "name"));
    tsr_writer_printf(w, ": median %s, ", report_short(text, percentile(a, "50")));
    tsr_writer_printf(w, "mean %s, ", report_short(text, mean));
    tsr_writer_printf(w, "99 %% %s, ", report_short(text, percentile(a, "99")));
    tsr_writer_printf(w, "99.9 %% %s</title>\n", report_short(text, percentile(a, "99.9")));
    report_line(w, "bar", report_axis_at(x, percentile(a, "1")), y,
                report_axis_at(x, percentile(a, "99")), y);
    tsr_writer_printf(w,
                      "<rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"9\"/>\n",
                      p10, y - 4.5, p90 > p10 ? p90 - p10 : 0);
    report_line(w, "middle", p50, y - 6, p50, y + 6);
    if (isfinite(mean))
        tsr_writer_printf(w, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n",
                          report_axis_at(x, mean), y);
    tsr_writer_printf(w, "<circle class=\"beaten\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/></g>\n",
                      report_axis_at(x, percentile(a, "99.9")), y);
}

void report_plot_spread(struct tsr_writer *w, const json_t *compare)
{
    const json_t      *arms = report_get(compare, "arms"), *a;
    struct report_axis x;
    unsigned           n, k = 0;
    size_t             i;
    range(arms, &x, &n);
    if (n == 0)
        return;
    double bottom = top + n * row + 4;
    report_figure_open(w, bottom + 36, "KL divergence of single tokens, nats");
    report_grid_x(w, &x, 6, top, bottom);
    json_array_foreach (arms, i, a)
        if (shown(a))
            put_arm(w, a, &x, top + row * (k++ + 0.5));
    report_figure_close(w, "Box: 10 to 90 % of the tokens with the median; thin line: 1 to 99 %; "
                           "filled dot: the mean; open dot: 99.9 %. The axis is logarithmic.");
}
