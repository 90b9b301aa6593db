/* Quality against bits: a point for each arm with its interval, and the Pareto front. */
#include "base/mem.h"
#include "report/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct point {
    const char *name;
    double      x, y, low, high; /* low, high: NaN without an interval */
    bool        front;
};

static const double left = 52, right = 432, top = 8, bottom = 236;

static bool point_of(const json_t *arm, const json_t *original, enum report_quality what,
                     struct point *p)
{
    const json_t *d = report_get(arm, what == REPORT_KL ? "kl" : "delta");
    p->name = report_str(arm, "name");
    p->x = report_real(arm, "bits_per_weight");
    p->y = report_real(d, "mean");
    p->low = report_real(d, "low");
    p->high = report_real(d, "high");
    if (what == REPORT_DELTA && !d)
        p->y = log(report_real(arm, "perplexity") / report_real(original, "perplexity"));
    if (!isfinite(p->low) || !isfinite(p->high))
        p->low = p->high = (double)NAN;
    return isfinite(p->x) && isfinite(p->y) && (what != REPORT_KL || p->y > 0);
}

static int by_x(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    if (p->x != q->x)
        return p->x < q->x ? -1 : 1;
    return p->y < q->y ? -1 : p->y > q->y;
}

/* Sorted by x, then y: a point is of the front if it is below all before it. */
static void mark_front(struct point *p, uint64_t n)
{
    double best = INFINITY;
    qsort(p, n, sizeof *p, by_x);
    for (uint64_t i = 0; i < n; i++) {
        p[i].front = p[i].y < best;
        best = p[i].front ? p[i].y : best;
    }
}

static void put_front(struct tsr_writer *w, const struct point *p, uint64_t n,
                      const struct report_axis *x, const struct report_axis *y)
{
    bool open = false;
    tsr_writer_printf(w, "<path class=\"front\" d=\"");
    for (uint64_t i = 0; i < n; i++) {
        double px = report_axis_at(x, p[i].x), py = report_axis_at(y, p[i].y);
        if (!p[i].front)
            continue;
        tsr_writer_printf(w, open ? "H%.1fV%.1f" : "M%.1f %.1f", px, py);
        open = true;
    }
    tsr_writer_printf(w, "H%.1f\"/>\n", right); /* the first point is of the front: one is open */
}

static void put_point(struct tsr_writer *w, const struct point *p, const struct report_axis *x,
                      const struct report_axis *y, const char *unit)
{
    double px = report_axis_at(x, p->x), py = report_axis_at(y, p->y);
    char   value[REPORT_NUMBER], low[REPORT_NUMBER], high[REPORT_NUMBER], bits[REPORT_NUMBER];
    tsr_writer_printf(w, "<g><title>");
    report_text(w, p->name);
    tsr_writer_printf(w, ": %s bits, %s %s", report_fixed(bits, p->x, 2, false),
                      report_short(value, p->y), unit);
    if (isfinite(p->low))
        tsr_writer_printf(w, " [%s, %s]", report_short(low, p->low), report_short(high, p->high));
    tsr_writer_printf(w, "</title>\n");
    if (isfinite(p->low)) {
        double y1 = report_axis_at(y, p->low), y2 = report_axis_at(y, p->high);
        report_line(w, "bar", px, y1, px, y2);
        report_line(w, "bar", px - 3, y1, px + 3, y1);
        report_line(w, "bar", px - 3, y2, px + 3, y2);
    }
    tsr_writer_printf(w, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/></g>\n",
                      p->front ? "mark" : "beaten", px, py);
}

static void put_names(struct tsr_writer *w, const struct point *p, uint64_t n,
                      struct report_box *taken, const struct report_axis *x,
                      const struct report_axis *y)
{
    struct report_box frame = { left + 2, top, right + 6, bottom };
    uint64_t          used = 0;
    for (uint64_t i = 0; i < n; i++) {
        double px = report_axis_at(x, p[i].x), py = report_axis_at(y, p[i].y);
        taken[used++] = (struct report_box){ px - 4, py - 4, px + 4, py + 4 };
    }
    for (int front = 1; front >= 0; front--) /* those of the front are named first */
        for (uint64_t i = 0; i < n; i++) {
            double             lx, ly;
            char               name[80];
            enum report_anchor anchor;
            if (p[i].front != (front == 1))
                continue;
            report_text_cut(name, sizeof name, p[i].name, 130);
            if (report_place(taken, &used, &frame, report_axis_at(x, p[i].x),
                             report_axis_at(y, p[i].y), name, &lx, &ly, &anchor))
                report_label(w, lx, ly, anchor, front ? "name" : "name dimmed", name);
        }
}

static void axes(const struct point *p, uint64_t n, enum report_quality what, struct report_axis *x,
                 struct report_axis *y)
{
    double x1 = p[0].x, x2 = p[0].x, y1 = p[0].y, y2 = p[0].y;
    for (uint64_t i = 0; i < n; i++) {
        double low = isfinite(p[i].low) ? p[i].low : p[i].y;
        double high = isfinite(p[i].high) ? p[i].high : p[i].y;
        if (what == REPORT_KL && low < p[i].y / 10)
            low = p[i].y / 10; /* an interval down to 0 has no end on this axis */
        x1 = fmin(x1, p[i].x);
        x2 = fmax(x2, p[i].x);
        y1 = fmin(y1, low);
        y2 = fmax(y2, high);
    }
    if (what == REPORT_DELTA) {
        y1 = fmin(y1, 0);
        y2 = fmax(y2, 0);
    }
    report_axis_fit(x, x1, x2, false, left, right);
    report_axis_fit(y, y1, y2, what == REPORT_KL, bottom, top);
}

static void plot(struct tsr_writer *w, struct point *p, uint64_t n, struct report_box *taken,
                 enum report_quality what)
{
    struct report_axis x, y;
    axes(p, n, what, &x, &y);
    mark_front(p, n);
    report_figure_open(w, 272,
                       what == REPORT_KL ? "KL divergence from the reference, nats per token"
                                         : "Difference of log-perplexity, nats per token");
    report_grid_x(w, &x, 7, top, bottom);
    report_grid_y(w, &y, 6, left, right);
    report_label(w, (left + right) / 2, bottom + 31, REPORT_MIDDLE, "tick", "bits per weight");
    if (what == REPORT_DELTA)
        report_line(w, "zero", left, report_axis_at(&y, 0), right, report_axis_at(&y, 0));
    put_front(w, p, n, &x, &y);
    for (uint64_t i = 0; i < n; i++)
        put_point(w, &p[i], &x, &y, "nats");
    put_names(w, p, n, taken, &x, &y);
    report_figure_close(w, "Lower is better. The line joins the arms that no other arm beats in "
                           "both size and quality; bars are intervals by windows of the text, "
                           "where they are wider than the mark.");
}

void report_plot_quality(struct tsr_writer *w, const json_t *compare, enum report_quality what)
{
    const json_t *arms = report_get(compare, "arms"), *a, *original = json_array_get(arms, 0);
    uint64_t      all = json_array_size(arms), n = 0;
    size_t        i;
    if (all == 0)
        return;
    struct point      *p = tsr_new(all, sizeof *p);
    struct report_box *taken = tsr_new(2 * all, sizeof *taken);
    if (!p || !taken) {
        w->error = w->error ? w->error : ENOMEM;
        free(p);
        free(taken);
        return;
    }
    json_array_foreach (arms, i, a)
        if (i > 0 && point_of(a, original, what, &p[n]))
            n++;
    if (n > 0)
        plot(w, p, n, taken, what);
    free(p);
    free(taken);
}
