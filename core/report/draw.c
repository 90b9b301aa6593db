/* SVG: figures, labels, grids.  Colours and sizes of text are the page's, by class. */
#include "report/internal.h"

#include <string.h>

void report_figure_open(struct tsr_writer *w, double height, const char *title)
{
    tsr_writer_printf(w, "<figure><figcaption>");
    report_text(w, title);
    tsr_writer_printf(w, "</figcaption>\n<svg viewBox=\"0 0 %g %.1f\" role=\"img\" aria-label=\"",
                      REPORT_WIDTH, height);
    report_text(w, title);
    tsr_writer_printf(w, "\">\n");
}

void report_figure_close(struct tsr_writer *w, const char *note)
{
    tsr_writer_printf(w, "</svg>\n");
    if (note) {
        tsr_writer_printf(w, "<p class=\"dim\">");
        report_text(w, note);
        tsr_writer_printf(w, "</p>");
    }
    tsr_writer_printf(w, "</figure>\n");
}

void report_label(struct tsr_writer *w, double x, double y, enum report_anchor anchor,
                  const char *cls, const char *text)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    tsr_writer_printf(w, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", cls, x, y,
                      anchors[anchor]);
    report_text(w, text);
    tsr_writer_printf(w, "</text>\n");
}

void report_line(struct tsr_writer *w, const char *cls, double x1, double y1, double x2, double y2)
{
    tsr_writer_printf(w, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                      cls, x1, y1, x2, y2);
}

void report_legend(struct tsr_writer *w, double x, double y, const char *cls, const char *dash,
                   const char *mark, const char *text)
{
    double middle = y - 0.35 * REPORT_EM;
    tsr_writer_printf(w, "<path class=\"%s\" fill=\"none\"%s%s%s d=\"M%.1f %.1fh28\"/>\n", cls,
                      *dash ? " stroke-dasharray=\"" : "", dash, *dash ? "\"" : "", x, middle);
    if (mark)
        tsr_writer_printf(w, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", mark,
                          x + 14, middle);
    report_label(w, x + 34, y, REPORT_START, "tick", text);
}

void report_grid_x(struct tsr_writer *w, const struct report_axis *x, unsigned want, double top,
                   double bottom)
{
    double   tick[REPORT_TICKS];
    char     text[REPORT_NUMBER];
    unsigned n = report_axis_ticks(x, want, tick);
    for (unsigned i = 0; i < n; i++) {
        double at = report_axis_at(x, tick[i]);
        report_line(w, "grid", at, top, at, bottom);
        report_axis_label(text, x, tick, n, i);
        report_label(w, at, bottom + REPORT_EM + 2, REPORT_MIDDLE, "tick", text);
    }
}

void report_grid_y(struct tsr_writer *w, const struct report_axis *y, unsigned want, double left,
                   double right)
{
    double   tick[REPORT_TICKS];
    char     text[REPORT_NUMBER];
    unsigned n = report_axis_ticks(y, want, tick);
    for (unsigned i = 0; i < n; i++) {
        double at = report_axis_at(y, tick[i]);
        report_line(w, "grid", left, at, right, at);
        report_axis_label(text, y, tick, n, i);
        report_label(w, left - 5, at + 0.35 * REPORT_EM, REPORT_END, "tick", text);
    }
}

/* Characters of UTF-8, each 0.56 of its size: right for figures and small letters. */
double report_text_width(const char *s)
{
    double n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return 0.56 * REPORT_EM * n;
}

void report_text_cut(char *out, size_t cap, const char *s, double width)
{
    size_t n = 0;
    double used = 0.56 * REPORT_EM; /* of the ellipsis */
    bool   whole = report_text_width(s) <= width && strlen(s) < cap;
    for (; s[n] && (whole || used + 0.56 * REPORT_EM <= width);) {
        size_t next = n + 1;
        while (((unsigned char)s[next] & 0xc0) == 0x80)
            next++;
        if (next + 4 > cap && !whole)
            break;
        used += 0.56 * REPORT_EM;
        n = next;
    }
    (void)snprintf(out, cap, "%.*s%s", (int)n, s, whole ? "" : "\xe2\x80\xa6");
}

static bool meets(const struct report_box *a, const struct report_box *b)
{
    return a->x1 < b->x2 && b->x1 < a->x2 && a->y1 < b->y2 && b->y1 < a->y2;
}

bool report_place(struct report_box *taken, uint64_t *n, const struct report_box *frame, double x,
                  double y, const char *text, double *at_x, double *at_y,
                  enum report_anchor *anchor)
{
    /* next to the mark first, then above and below, then farther off */
    static const struct {
        double             dx, dy;
        enum report_anchor anchor;
    } place[] = { { 7, 0.35, REPORT_START }, { -7, 0.35, REPORT_END },  { 0, -0.7, REPORT_MIDDLE },
                  { 0, 1.4, REPORT_MIDDLE }, { 5, -0.5, REPORT_START }, { 5, 1.2, REPORT_START },
                  { -5, -0.5, REPORT_END },  { -5, 1.2, REPORT_END },   { 12, -1.5, REPORT_START },
                  { 12, 2.1, REPORT_START }, { -12, -1.5, REPORT_END }, { -12, 2.1, REPORT_END } };
    double width = report_text_width(text);
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        double            bx = x + place[i].dx, by = y + place[i].dy * REPORT_EM;
        double            left = place[i].anchor == REPORT_START ? bx
                                 : place[i].anchor == REPORT_END ? bx - width
                                                                 : bx - width / 2;
        struct report_box box = { left, by - 0.8 * REPORT_EM, left + width, by + 0.25 * REPORT_EM };
        bool free = box.x1 >= frame->x1 && box.x2 <= frame->x2 && box.y1 >= frame->y1 &&
                    box.y2 <= frame->y2;
        for (uint64_t k = 0; free && k < *n; k++)
            free = !meets(&box, &taken[k]);
        if (!free)
            continue;
        taken[(*n)++] = box;
        *at_x = bx;
        *at_y = by;
        *anchor = place[i].anchor;
        return true;
    }
    return false;
}

/* Each rule has literal colours: viewers other than browsers do not support CSS variables. */
void report_file_head(struct tsr_writer *w, const char *title, double width, double height)
{
    tsr_writer_printf(
        w,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" "
        "aria-label=\"",
        width, height);
    report_text(w, title);
    tsr_writer_printf(
        w, "\">\n<style>%s</style>\n<rect class=\"page\" width=\"%g\" height=\"%g\"/>\n",
        "text{font:12px system-ui,sans-serif;fill:#1b1f24}.title{font-weight:600}"
        ".tick{font-size:11px;fill:#57606a}.page{fill:#fff}.grid{stroke:#d0d7de;stroke-width:.6}"
        ".ours{stroke:#0b62c4;fill:#0b62c4}.peer{stroke:#b45309;fill:#b45309}"
        "path{fill:none;stroke-width:1.2}.name{stroke:#fff;stroke-width:3px;paint-order:stroke}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.tick{fill:#9aa4af}"
        ".page{fill:#0d1117}.grid{stroke:#30363d}.ours{stroke:#58a6ff;fill:#58a6ff}"
        ".peer{stroke:#f0a04b;fill:#f0a04b}.name{stroke:#0d1117}}",
        width, height);
}
