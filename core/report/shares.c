/* Shares of the peak by weight format, as one SVG file: a bar for one token and one for many. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

static const double width = 640, top = 40, pair = 30, left = 132, right = 574, foot = 52;

/* The format's row of one token or of many; NULL: none. */
static const json_t *find(const json_t *rows, const json_t *like, const char *what)
{
    const json_t *r;
    size_t        i;
    json_array_foreach (rows, i, r)
        if (strcmp(report_str(r, "what"), what) == 0 &&
            strcmp(report_str(r, "format"), report_str(like, "format")) == 0 &&
            report_real(r, "group") == report_real(like, "group"))
            return r;
    return NULL;
}

static bool is_kernel(const json_t *r)
{
    return strcmp(report_str(r, "what"), "gemv") == 0 || strcmp(report_str(r, "what"), "gemm") == 0;
}

/* The first row of its format. */
static bool is_first(const json_t *rows, const json_t *r)
{
    const json_t *one = find(rows, r, "gemv");
    return is_kernel(r) && r == (one ? one : find(rows, r, "gemm"));
}

/* Another format of this name has another group. */
static bool is_ambiguous(const json_t *rows, const json_t *like)
{
    const json_t *r;
    size_t        i;
    json_array_foreach (rows, i, r)
        if (is_kernel(r) && strcmp(report_str(r, "format"), report_str(like, "format")) == 0 &&
            report_real(r, "group") != report_real(like, "group"))
            return true;
    return false;
}

static void put_bar(struct tsr_writer *w, const struct report_axis *x, const char *cls, double y,
                    const json_t *r)
{
    char   number[REPORT_NUMBER], text[REPORT_NUMBER + 4];
    double share = r ? report_real(r, "share") : NAN, end = report_axis_at(x, share);
    if (!r)
        return;
    if (isfinite(share))
        tsr_writer_printf(
            w, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"11\"/>\n", cls,
            x->from, y, end - x->from);
    (void)snprintf(text, sizeof text, "%s%s",
                   isfinite(share) ? report_fixed(number, 100 * share, 0, false) : "void",
                   isfinite(share) ? " %" : "");
    report_label(w, end + 5, y + 10, REPORT_START, "tick", text);
}

static void put_pair(struct tsr_writer *w, const struct report_axis *x, double y,
                     const json_t *rows, const json_t *r)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%.60s", report_str(r, "format"));
    if (is_ambiguous(rows, r))
        (void)snprintf(name, sizeof name, "%.60s, group %.0f", report_str(r, "format"),
                       report_real(r, "group"));
    report_label(w, left - 6, y + 0.35 * REPORT_EM, REPORT_END, "name", name);
    put_bar(w, x, "ours", y - 12, find(rows, r, "gemv"));
    put_bar(w, x, "peer", y + 1, find(rows, r, "gemm"));
}

tsr_status tsr_report_shares(struct tsr_writer *w, const json_t *rows, struct tsr_err *err)
{
    struct report_axis x = { .low = 0, .high = 1, .from = left, .to = right };
    const json_t      *r, *any = NULL;
    uint64_t           n = 0;
    size_t             i;
    json_array_foreach (rows, i, r) {
        n += is_first(rows, r);
        any = is_first(rows, r) && !any ? r : any;
        if (is_kernel(r) && report_real(r, "share") > x.high)
            x.high = report_real(r, "share");
    }
    if (n == 0)
        return tsr_fail(err, TSR_E_INPUT, "no row is of gemv or gemm");
    double bottom = top + pair * (double)n, y = top + pair / 2;
    char   title[160];
    (void)snprintf(title, sizeof title, "Share of the measured peak: %.80s, %.0f threads",
                   report_str(any, "device"), report_real(any, "threads"));
    report_file_head(w, title, width, bottom + foot);
    report_label(w, 8, 18, REPORT_START, "title", title);
    report_grid_x(w, &x, 6, top, bottom);
    json_array_foreach (rows, i, r)
        if (is_first(rows, r)) {
            put_pair(w, &x, y, rows, r);
            y += pair;
        }
    report_legend(w, 8, bottom + foot - 8, "ours", "", NULL, "one token, of the read rate");
    report_legend(w, 258, bottom + foot - 8, "peer", "", NULL,
                  "many tokens, of the multiply-add rate");
    tsr_writer_printf(w, "</svg>\n");
    return TSR_OK;
}
