/* Speed and quality compared with another program, as one SVG file: bars of tokens/s for pairs of schemes,
 * and perplexity against bits per weight. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

static const double width = 900, height = 300, top = 44, bottom = 240;

struct extent {
    double low, high;
};

static void widen(struct extent *e, double v)
{
    e->low = fmin(e->low, v);
    e->high = fmax(e->high, v);
}

/* ---- speed: two bars for each pair ------------------------------------------------------------ */

static void put_bar(struct tsr_writer *w, const struct report_axis *x, const char *cls, double y,
                    double value, const char *after)
{
    char   number[REPORT_NUMBER], text[2 * REPORT_NUMBER];
    double end = report_axis_at(x, value);
    tsr_writer_printf(w,
                      "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"11\"/>\n",
                      cls, x->from, y, end - x->from);
    (void)snprintf(text, sizeof text, "%s%s", report_fixed(number, value, 0, false), after);
    report_label(w, end + 5, y + 10, REPORT_START, "tick", text);
}

static tsr_status put_speed(struct tsr_writer *w, const json_t *speed, struct tsr_err *err)
{
    const json_t      *rows = report_get(speed, "rows"), *r;
    uint64_t           n = json_array_size(rows);
    struct report_axis x = { .low = 0, .high = 0, .from = 104, .to = 370 };
    size_t             i;
    if (n == 0)
        return tsr_fail(err, TSR_E_INPUT, "speed.rows: a list of pairs was expected");
    json_array_foreach (rows, i, r) {
        if (!(report_real(r, "ours") > 0) || !(report_real(r, "peer") > 0))
            return tsr_fail(err, TSR_E_INPUT, "speed.rows[%zu]: 'ours' and 'peer' must be tokens/s",
                            i);
        x.high = fmax(x.high, fmax(report_real(r, "ours"), report_real(r, "peer")));
    }
    report_label(w, 8, 18, REPORT_START, "title", report_str(speed, "title"));
    report_grid_x(w, &x, 5, top, bottom);
    json_array_foreach (rows, i, r) {
        double y = top + (bottom - top) * ((double)i + 0.5) / (double)n;
        char   ratio[REPORT_NUMBER], text[2 * REPORT_NUMBER] = "";
        if (isfinite(report_real(r, "ratio")))
            (void)snprintf(text, sizeof text, "  (\xc3\x97%s)",
                           report_fixed(ratio, report_real(r, "ratio"), 2, false));
        report_label(w, x.from - 6, y + 0.35 * REPORT_EM, REPORT_END, "name",
                     report_str(r, "name"));
        put_bar(w, &x, "ours", y - 12, report_real(r, "ours"), text);
        put_bar(w, &x, "peer", y + 1, report_real(r, "peer"), "");
    }
    return TSR_OK;
}

/* ---- quality: a line for each program ------------------------------------------------------------ */

static bool is_shown(const json_t *quality, const json_t *p)
{
    double from = report_real(quality, "from_bits");
    return !(report_real(p, "bits_per_weight") < from);
}

static tsr_status find_extent(const json_t *quality, struct extent *bits, struct extent *value,
                              struct tsr_err *err)
{
    const json_t *list = report_get(quality, "series"), *s, *p;
    size_t        i, k;
    uint64_t      n = 0;
    json_array_foreach (list, i, s)
        json_array_foreach (report_get(s, "points"), k, p) {
            double b = report_real(p, "bits_per_weight"), v = report_real(p, "perplexity");
            if (!(b > 0) || !(v > 0))
                return tsr_fail(
                    err, TSR_E_INPUT,
                    "quality.series[%zu].points[%zu]: 'bits_per_weight' and 'perplexity' must be "
                    "positive",
                    i, k);
            if (!is_shown(quality, p))
                continue;
            widen(bits, b);
            widen(value, v);
            n++;
        }
    if (n == 0 || 2 * n > REPORT_PEER_POINTS)
        return tsr_fail(err, TSR_E_INPUT, "quality.series: 1 to %u points were expected, not %llu",
                        REPORT_PEER_POINTS / 2, (unsigned long long)n);
    return TSR_OK;
}

static void put_series(struct tsr_writer *w, const json_t *quality, const json_t *series,
                       const char *cls, const struct report_axis *x, const struct report_axis *y)
{
    const json_t *p;
    size_t        k;
    bool          open = false;
    tsr_writer_printf(w, "<path class=\"%s\" style=\"fill:none\" d=\"", cls);
    json_array_foreach (report_get(series, "points"), k, p) {
        if (!is_shown(quality, p))
            continue;
        tsr_writer_printf(w, "%s%.1f %.1f", open ? "L" : "M",
                          report_axis_at(x, report_real(p, "bits_per_weight")),
                          report_axis_at(y, report_real(p, "perplexity")));
        open = true;
    }
    tsr_writer_printf(w, "\"/>\n");
}

/* Points first, so that no name is placed on one: names == false draws, true names. */
static void put_points(struct tsr_writer *w, const json_t *quality, const json_t *series,
                       const char *cls, bool names, const struct report_axis *x,
                       const struct report_axis *y, struct report_box *taken, uint64_t *used)
{
    const struct report_box frame = { x->from, top - 8, x->to + 8, bottom };
    const json_t           *p;
    size_t                  k;
    json_array_foreach (report_get(series, "points"), k, p) {
        double             px = report_axis_at(x, report_real(p, "bits_per_weight")), lx, ly;
        double             py = report_axis_at(y, report_real(p, "perplexity"));
        enum report_anchor anchor;
        if (!is_shown(quality, p))
            continue;
        if (!names) {
            taken[(*used)++] = (struct report_box){ px - 4, py - 4, px + 4, py + 4 };
            tsr_writer_printf(w, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", cls,
                              px, py);
        } else if (report_place(taken, used, &frame, px, py, report_str(p, "name"), &lx, &ly,
                                &anchor)) {
            report_label(w, lx, ly, anchor, "name", report_str(p, "name"));
        }
    }
}

static tsr_status put_quality(struct tsr_writer *w, const json_t *quality, struct tsr_err *err)
{
    static const char *const cls[] = { "ours", "peer" };
    const json_t            *list = report_get(quality, "series"), *s;
    struct extent            bits = { INFINITY, -INFINITY }, value = { INFINITY, -INFINITY };
    struct report_axis       x, y;
    struct report_box        taken[REPORT_PEER_POINTS];
    uint64_t                 used = 0;
    size_t                   i;
    if (json_array_size(list) != 2)
        return tsr_fail(err, TSR_E_INPUT,
                        "quality.series: two of them were expected, ours and the peer's");
    tsr_status st = find_extent(quality, &bits, &value, err);
    if (st != TSR_OK)
        return st;
    report_axis_fit(&x, bits.low, bits.high, false, 510, 880);
    report_axis_fit(&y, value.low, value.high, false, bottom, top);
    report_label(w, 466, 18, REPORT_START, "title", report_str(quality, "title"));
    report_grid_x(w, &x, 7, top, bottom);
    report_grid_y(w, &y, 6, x.from, x.to);
    report_label(w, (x.from + x.to) / 2, bottom + 31, REPORT_MIDDLE, "tick", "bits per weight");
    json_array_foreach (list, i, s)
        put_series(w, quality, s, cls[i > 0], &x, &y);
    json_array_foreach (list, i, s)
        put_points(w, quality, s, cls[i > 0], false, &x, &y, taken, &used);
    json_array_foreach (list, i, s) {
        put_points(w, quality, s, cls[i > 0], true, &x, &y, taken, &used);
        report_legend(w, 466 + 200 * (double)i, height - 8, cls[i > 0], "", NULL,
                      report_str(s, "name"));
    }
    return TSR_OK;
}

tsr_status tsr_report_peers(struct tsr_writer *w, const json_t *peers, struct tsr_err *err)
{
    const json_t *speed = report_get(peers, "speed");
    if (strcmp(report_str(peers, "format"), "tessera.peers/1") != 0)
        return tsr_fail(err, TSR_E_INPUT, "'format' must be tessera.peers/1");
    report_file_head(w, "Speed and quality compared with another program", width, height);
    tsr_status st = put_speed(w, speed, err);
    if (st == TSR_OK)
        st = put_quality(w, report_get(peers, "quality"), err);
    report_legend(w, 8, height - 8, "ours", "", NULL, report_str(speed, "ours"));
    report_legend(w, 208, height - 8, "peer", "", NULL, report_str(speed, "peer"));
    tsr_writer_printf(w, "</svg>\n");
    return st;
}
