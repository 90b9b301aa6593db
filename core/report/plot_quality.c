/* Quality against bits, bytes or speed: a point for each arm with its interval, and the Pareto front. */
#include "base/mem.h"
#include "report/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct point {
    const char *name;
    double      x, y, low, high; /* low, high: NaN without an interval */
    bool        front;
};

static const double left = 52, right = 432, top = 8, bottom = 236;

/* The first metric of a task that is a share of right answers and has a standard error. */
static const char *share_of(const json_t *task)
{
    static const char *const shares[] = { "acc_norm", "acc" };
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_stderr", shares[i]);
        if (isfinite(report_real(task, shares[i])) && isfinite(report_real(task, key)))
            return shares[i];
    }
    return NULL;
}

/* Name, or "" if the comparison has no task of shares. */
static const char *task_of(const json_t *compare)
{
    const char *name;
    json_t     *task;
    json_object_foreach ((json_t *)(uintptr_t)
                             report_get(json_array_get(report_get(compare, "arms"), 0), "tasks"),
                         name, task)
        if (share_of(task))
            return name;
    return "";
}

static void wrong_answers(const json_t *arm, const char *name, struct point *p)
{
    const json_t *task = report_get(report_get(arm, "tasks"), name);
    const char   *share = task ? share_of(task) : NULL;
    char          key[32];
    p->y = p->low = p->high = (double)NAN;
    if (!share)
        return;
    (void)snprintf(key, sizeof key, "%s_stderr", share);
    p->y = 100 * (1 - report_real(task, share));
    p->low = p->y - 196 * report_real(task, key);
    p->high = p->y + 196 * report_real(task, key);
}

static bool point_of(const json_t *arm, const json_t *original, enum report_quality what,
                     enum report_against against, const char *task, struct point *p)
{
    const json_t *d = report_get(arm, what == REPORT_KL ? "kl" : "delta");
    p->name = report_str(arm, "name");
    p->x = against == REPORT_BITS    ? report_real(arm, "bits_per_weight")
           : against == REPORT_BYTES ? report_real(arm, "bytes") / 1e6
                                     : report_real(report_get(arm, "speed"), "decode_tokens_per_s");
    p->y = report_real(d, "mean");
    p->low = report_real(d, "low");
    p->high = report_real(d, "high");
    if (what == REPORT_DELTA && !d)
        p->y = log(report_real(arm, "perplexity") / report_real(original, "perplexity"));
    if (what == REPORT_WRONG)
        wrong_answers(arm, task, p);
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

static int from_the_right(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x ? -1 : 1) : by_x(a, b);
}

/* Sorted by x from its better end on, then y: a point is of the front if it is below all before it. */
static void mark_front(struct point *p, uint64_t n, enum report_against against)
{
    double best = INFINITY;
    qsort(p, n, sizeof *p, against == REPORT_DECODE ? from_the_right : by_x);
    for (uint64_t i = 0; i < n; i++) {
        p[i].front = p[i].y < best;
        best = p[i].front ? p[i].y : best;
    }
}

static void put_front(struct tsr_writer *w, const struct point *p, uint64_t n,
                      const struct report_axis *x, const struct report_axis *y,
                      enum report_against against)
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
    tsr_writer_printf(w, "H%.1f\"/>\n",
                      against == REPORT_DECODE
                          ? left
                          : right); /* the first point is of the front: one is open */
}

static void put_point(struct tsr_writer *w, const struct point *p, const struct report_axis *x,
                      const struct report_axis *y, enum report_against against, const char *unit)
{
    double px = report_axis_at(x, p->x), py = report_axis_at(y, p->y);
    char   value[REPORT_NUMBER], low[REPORT_NUMBER], high[REPORT_NUMBER], bits[REPORT_NUMBER];
    tsr_writer_printf(w, "<g><title>");
    report_text(w, p->name);
    tsr_writer_printf(w, ": %s %s, %s %s",
                      report_fixed(bits, p->x, against == REPORT_DECODE ? 0 : 2, false),
                      against == REPORT_BITS    ? "bits"
                      : against == REPORT_BYTES ? "MB"
                                                : "tokens/s",
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

static void title_of(char *out, size_t cap, enum report_quality what, enum report_against against,
                     const char *task)
{
    const char *tail = against == REPORT_BYTES    ? ", against size"
                       : against == REPORT_DECODE ? ", against decode speed"
                                                  : "";
    if (what == REPORT_WRONG)
        (void)snprintf(out, cap, "Wrong answers of %.60s, %%%s", task, tail);
    else
        (void)snprintf(out, cap, "%s%s",
                       what == REPORT_KL ? "KL divergence from the reference, nats per token"
                                         : "Difference of log-perplexity, nats per token",
                       tail);
}

static void plot(struct tsr_writer *w, struct point *p, uint64_t n, struct report_box *taken,
                 enum report_quality what, enum report_against against, const char *task)
{
    static const char *const under[] = { "bits per weight", "MB of the decoder's linears",
                                         "decode, tokens per second" };
    struct report_axis       x, y;
    char                     title[160];
    axes(p, n, what, &x, &y);
    mark_front(p, n, against);
    title_of(title, sizeof title, what, against, task);
    report_figure_open(w, 272, title);
    report_grid_x(w, &x, 7, top, bottom);
    report_grid_y(w, &y, 6, left, right);
    report_label(w, (left + right) / 2, bottom + 31, REPORT_MIDDLE, "tick", under[against]);
    if (what == REPORT_DELTA)
        report_line(w, "zero", left, report_axis_at(&y, 0), right, report_axis_at(&y, 0));
    put_front(w, p, n, &x, &y, against);
    for (uint64_t i = 0; i < n; i++)
        put_point(w, &p[i], &x, &y, against, what == REPORT_WRONG ? "%" : "nats");
    put_names(w, p, n, taken, &x, &y);
    report_figure_close(
        w,
        what == REPORT_WRONG
            ? "Lower is better. The line joins the arms that no other arm beats in both; bars are "
              "95 % intervals over questions, where they are wider than the mark."
        : against == REPORT_DECODE
            ? "Lower and further right is better. The line joins the arms that no other arm beats "
              "in both speed and quality; bars are intervals by windows of the text, where they "
              "are wider than the mark."
            : "Lower is better. The line joins the arms that no other arm beats in both size and "
              "quality; bars are intervals by windows of the text, where they are wider than the "
              "mark.");
}

void report_plot_quality(struct tsr_writer *w, const json_t *compare, enum report_quality what,
                         enum report_against against)
{
    const json_t *arms = report_get(compare, "arms"), *a, *original = json_array_get(arms, 0);
    uint64_t      all = json_array_size(arms), n = 0;
    const char   *task = what == REPORT_WRONG ? task_of(compare) : "";
    size_t        i;
    if (all == 0 || (what == REPORT_WRONG && !*task))
        return;
    struct point      *p = tsr_new(all, sizeof *p);
    struct report_box *taken = tsr_new(2 * all, sizeof *taken);
    if (!p || !taken) {
        w->error = w->error ? w->error : ENOMEM;
        free(p);
        free(taken);
        return;
    }
    json_array_foreach (arms, i, a) /* the original has a quality of its own by tasks alone */
        if ((i > 0 || what == REPORT_WRONG) && point_of(a, original, what, against, task, &p[n]))
            n++;
    if (n > 0)
        plot(w, p, n, taken, what, against, task);
    free(p);
    free(taken);
}
