#include "plan/simulate/gantt.h"

#include "base/mem.h"
#include "base/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH   1000.0
#define LEFT    170.0 /* names end here */
#define RIGHT   930.0 /* shares begin here */
#define STAGE   24.0  /* height of a row */
#define LINK    9.0
#define HEAD    64.0  /* of the picture */
#define PANEL   58.0  /* title above and axis below the rows */
#define COLUMNS 190u  /* of the panel of the whole run, 4 units each */
#define VISITS  3000u /* most that a panel shows */

static const char style[] =
    "svg{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--line:#d0d7de;--dim:#57606a;"
    "--pre:#b45309;--dec:#0b62c4}\n"
    "@media(prefers-color-scheme:dark){svg{--fg:#e6edf3;--bg:#0d1117;--line:#30363d;"
    "--dim:#9aa4af;--pre:#f0a04b;--dec:#58a6ff}}\n"
    "text{font:12px system-ui,sans-serif;fill:var(--fg)}\n"
    ".big{font-size:16px;font-weight:600}.title{font-weight:600}\n"
    ".note{font-size:10px;fill:var(--dim)}.dim{fill:var(--dim)}.tick{font-size:11px;fill:var(--dim)"
    "}\n"
    ".no{font-size:10px;fill:var(--bg);pointer-events:none}\n"
    ".bg{fill:var(--bg)}.grid{stroke:var(--line);stroke-width:.6}\n"
    ".row{fill:var(--line);fill-opacity:.35}\n"
    ".pre{fill:var(--pre)}.dec{fill:var(--dec)}.odd{fill-opacity:.72}\n";

/* What of the run one panel shows, and where. */
struct panel {
    double   from, to; /* ms */
    double   top;      /* of its first row */
    uint64_t drawn;
};

struct drawing {
    struct tsr_writer                w;
    const struct tsr_plan_gantt     *g;
    const struct tsr_plan_simulation sim;
    double                           per_ms; /* shown times are ms * per_ms */
    const char                      *unit;
    bool                             links;
    double                          *busy; /* [resources][2][COLUMNS] ms */
    struct panel                     pre, dec;
};

static void put_text(struct tsr_writer *w, const char *s)
{
    for (; *s; s++) {
        const char *e = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;" : NULL;
        if (e)
            tsr_writer_printf(w, "%s", e);
        else if ((unsigned char)*s >= 0x20) /* XML does not allow control characters */
            tsr_writer_put(w, s, 1);
    }
}

static void label(struct drawing *d, double x, double y, const char *anchor, const char *cls,
                  const char *text)
{
    tsr_writer_printf(&d->w, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", cls, x,
                      y, anchor);
    put_text(&d->w, text);
    tsr_writer_printf(&d->w, "</text>\n");
}

/* ---- rows -------------------------------------------------------------------------------------- */

static double row_height(const struct drawing *d, uint64_t r)
{
    return r % 2 ? (d->links ? LINK : 0) : STAGE;
}

static double row_top(const struct drawing *d, const struct panel *p, uint64_t r)
{
    uint64_t stages = (r + 1) / 2;
    return p->top + (double)stages * STAGE + (double)(r - stages) * (d->links ? LINK : 0);
}

static double rows_height(const struct drawing *d)
{
    struct panel p = { 0 };
    return row_top(d, &p, d->sim.resources - 1) + row_height(d, d->sim.resources - 1);
}

static double at(const struct panel *p, double ms)
{
    double x = LEFT + (ms - p->from) / (p->to - p->from) * (RIGHT - LEFT);
    return x < LEFT ? LEFT : x > RIGHT ? RIGHT : x;
}

/* ---- what the simulation reports ------------------------------------------------------------------ */

static void count_busy(struct drawing *d, const struct tsr_plan_visit *v)
{
    double  *row = d->busy + (v->resource * 2 + v->decode) * COLUMNS;
    double   width = d->sim.total_ms / COLUMNS;
    unsigned c = (unsigned)(v->start / width);
    for (; c < COLUMNS && c * width < v->end; c++)
        row[c] += fmax(0, fmin(v->end, (c + 1) * width) - fmax(v->start, c * width));
}

static void draw_visit(struct drawing *d, struct panel *p, const struct tsr_plan_visit *v)
{
    if (v->end <= p->from || v->start >= p->to || (v->resource % 2 && !d->links))
        return;
    if (p->drawn++ >= VISITS)
        return;
    double x = at(p, v->start), wide = at(p, v->end) - x, y = row_top(d, p, v->resource);
    double high = row_height(d, v->resource);
    if (wide <= 0)
        return;
    tsr_writer_printf(&d->w,
                      "<rect class=\"%s%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\">"
                      "<title>",
                      v->decode ? "dec" : "pre", v->micro_batch % 2 ? " odd" : "", x, y + 1,
                      fmax(wide - 0.6, 0.4), high - 2);
    tsr_writer_printf(&d->w, "%s, micro-batch %llu", v->decode ? "decode" : "prefill",
                      (unsigned long long)v->micro_batch + 1);
    if (v->decode)
        tsr_writer_printf(&d->w, ", step %llu", (unsigned long long)v->step + 1);
    if (v->head)
        tsr_writer_printf(&d->w, ", head");
    tsr_writer_printf(&d->w, ": %.6g to %.6g %s</title></rect>\n", v->start * d->per_ms,
                      v->end * d->per_ms, d->unit);
    if (v->resource % 2 == 0 && wide >= 18) {
        char no[24];
        (void)snprintf(no, sizeof no, "%llu", (unsigned long long)v->micro_batch + 1);
        label(d, x + wide / 2, y + STAGE / 2 + 3.5, "middle", "no", no);
    }
}

static void visit(void *ctx, const struct tsr_plan_visit *v)
{
    struct drawing *d = ctx;
    count_busy(d, v);
    draw_visit(d, &d->pre, v);
    if (d->dec.to > d->dec.from)
        draw_visit(d, &d->dec, v);
}

/* The report of a simulation, computed from measured visits. */
static tsr_status sum_up(const struct tsr_plan_gantt *g, struct tsr_plan_simulation *out,
                         struct tsr_err *err)
{
    *out = (struct tsr_plan_simulation){
        .visits = g->n_visits, .resources = 2 * g->pipeline->stages - (g->pipeline->back ? 0 : 1)
    };
    out->busy_pre = tsr_new(2 * out->resources, sizeof *out->busy_pre);
    if (!out->busy_pre)
        return tsr_fail_nomem(err, 2 * out->resources * sizeof *out->busy_pre, "a Gantt chart");
    out->busy_dec = out->busy_pre + out->resources;
    for (uint64_t i = 0; i < g->n_visits; i++) {
        const struct tsr_plan_visit *v = &g->visits[i];
        (v->decode ? out->busy_dec : out->busy_pre)[v->resource] += v->end - v->start;
        out->total_ms = fmax(out->total_ms, v->end);
        if (!v->decode)
            out->prefill_ms = fmax(out->prefill_ms, v->end);
    }
    return TSR_OK;
}

static tsr_status play(const struct tsr_plan_gantt *g, tsr_plan_visit_fn fn, void *ctx,
                       struct tsr_plan_simulation *out, struct tsr_err *err)
{
    if (!g->visits)
        return tsr_simulate(g->pipeline, &g->how, fn, ctx, out, err);
    TSR_TRY(sum_up(g, out, err));
    for (uint64_t i = 0; fn && i < g->n_visits; i++)
        fn(ctx, &g->visits[i]);
    return TSR_OK;
}

/* ---- frames ------------------------------------------------------------------------------------ */

static void put_axis(struct drawing *d, const struct panel *p, double bottom)
{
    double from = p->from * d->per_ms, to = p->to * d->per_ms;
    double raw = (to - from) / 8, unit = pow(10, floor(log10(raw)));
    double step = raw <= unit       ? unit
                  : raw <= 2 * unit ? 2 * unit
                  : raw <= 5 * unit ? 5 * unit
                                    : 10 * unit;
    int    digits = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    double first = ceil(from / step);
    for (unsigned i = 0; (first + i) * step <= to; i++) {
        double value = (first + i) * step, x = at(p, value / d->per_ms);
        char   text[48];
        (void)snprintf(text, sizeof text, "%.*f", digits, value);
        tsr_writer_printf(
            &d->w, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x,
            p->top, x, bottom);
        label(d, x, bottom + 14, "middle", "tick", text);
    }
    label(d, RIGHT + 12, bottom + 14, "start", "tick", d->unit);
}

#define NAME_CHARS 24 /* left of the bars */
#define NOTE_CHARS 32 /* which are smaller */

/* At most so many bytes of whole characters. */
static void cut(char *out, size_t cap, size_t most, const char *s)
{
    size_t n = strlen(s);
    bool   whole = n <= most;
    for (n = whole ? n : most; n > 0 && !whole && ((unsigned char)s[n] & 0xc0) == 0x80;)
        n--;
    (void)snprintf(out, cap, "%.*s%s", (int)n, s, whole ? "" : "\xe2\x80\xa6");
}

static void put_frame(struct drawing *d, const struct panel *p, const char *title, const char *note)
{
    label(d, LEFT, p->top - 10, "start", "title", title);
    label(d, RIGHT, p->top - 10, "end", "dim", note);
    for (uint64_t r = 0; r < d->sim.resources; r++) {
        double high = row_height(d, r), y = row_top(d, p, r);
        char   name[40];
        if (high <= 0)
            continue;
        tsr_writer_printf(&d->w,
                          "<rect class=\"row\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                          "height=\"%.1f\"/>\n",
                          LEFT, y + 1, RIGHT - LEFT, high - 2);
        if (r % 2)
            continue;
        const char *below = d->g->notes ? d->g->notes[r / 2] : NULL;
        cut(name, sizeof name, NAME_CHARS, d->g->names[r / 2]);
        label(d, LEFT - 8, y + STAGE / 2 + (below ? -1 : 4), "end", "name", name);
        if (!below)
            continue;
        cut(name, sizeof name, NOTE_CHARS, below);
        label(d, LEFT - 8, y + STAGE / 2 + 10, "end", "note", name);
    }
    put_axis(d, p, p->top + rows_height(d));
}

/* Runs of columns with about the same share as one bar from the bottom; decode is stacked on prefill. */
static void put_share(struct drawing *d, const struct panel *p, uint64_t r, unsigned phase)
{
    const double *row = d->busy + (r * 2 + phase) * COLUMNS, *under = row - COLUMNS;
    double        width = d->sim.total_ms / COLUMNS, high = row_height(d, r) - 2;
    double        bottom = row_top(d, p, r) + 1 + high;
    for (unsigned c = 0, n; c < COLUMNS; c += n) {
        double share = row[c] / width, base = phase ? under[c] / width : 0;
        for (n = 1; c + n < COLUMNS && fabs(row[c + n] / width - share) < 0.05 &&
                    (!phase || fabs(under[c + n] / width - base) < 0.05);
             n++) {
        }
        if (share < 0.002)
            continue;
        double x = at(p, c * width), y = bottom - fmin(1, share + base) * high;
        tsr_writer_printf(&d->w,
                          "<rect class=\"%s\" x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" "
                          "height=\"%.2f\"/>\n",
                          phase ? "dec" : "pre", x, y, at(p, (c + n) * width) - x, share * high);
    }
}

static void put_whole(struct drawing *d)
{
    struct panel p = { .to = d->sim.total_ms, .top = HEAD + 32 };
    put_frame(d, &p, "Whole run", "height: share of the time that it works");
    label(d, RIGHT + 12, p.top - 10, "start", "dim", "busy");
    for (uint64_t r = 0; r < d->sim.resources; r++) {
        char share[32];
        if (row_height(d, r) <= 0)
            continue;
        put_share(d, &p, r, 0);
        put_share(d, &p, r, 1);
        (void)snprintf(share, sizeof share, "%.0f %%",
                       100 * (d->sim.busy_pre[r] + d->sim.busy_dec[r]) / d->sim.total_ms);
        if (r % 2 == 0)
            label(d, RIGHT + 12, row_top(d, &p, r) + STAGE / 2 + 4, "start", "dim", share);
    }
}

static void put_head(struct drawing *d, double height)
{
    const struct tsr_plan_pipeline   *p = d->g->pipeline;
    const struct tsr_plan_simulation *s = &d->sim;
    char                              text[256];
    tsr_writer_printf(&d->w,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %.0f\" "
                      "role=\"img\">\n<title>",
                      WIDTH, height);
    put_text(&d->w, d->g->title);
    tsr_writer_printf(&d->w, "</title>\n<style>\n%s</style>\n", style);
    tsr_writer_printf(&d->w, "<rect class=\"bg\" width=\"%g\" height=\"%.0f\"/>\n", WIDTH, height);
    label(d, 16, 28, "start", "big", d->g->title);
    (void)snprintf(text, sizeof text,
                   "batch of %llu, %llu tokens each: %.4g s, %.4g tokens/s; prefill %.4g s in "
                   "micro-batches of %llu, decode %.4g s in micro-batches of %llu",
                   (unsigned long long)p->batch, (unsigned long long)p->tokens, s->total_ms / 1e3,
                   1e3 * (double)p->batch * (double)p->tokens / s->total_ms, s->prefill_ms / 1e3,
                   (unsigned long long)p->prefill_mb, (s->total_ms - s->prefill_ms) / 1e3,
                   (unsigned long long)p->decode_mb);
    label(d, 16, 50, "start", "dim", text);
    tsr_writer_printf(&d->w,
                      "<rect class=\"pre\" x=\"850\" y=\"18\" width=\"12\" height=\"12\"/>"
                      "<rect class=\"dec\" x=\"922\" y=\"18\" width=\"12\" height=\"12\"/>\n");
    label(d, 867, 28, "start", "dim", "prefill");
    label(d, 939, 28, "start", "dim", "decode");
}

/* What the two panels of visits show: all prefill, then about three rounds of decode. */
static void choose(struct drawing *d)
{
    const struct tsr_plan_pipeline   *p = d->g->pipeline;
    const struct tsr_plan_simulation *s = &d->sim;
    double                            gap = PANEL + rows_height(d), round = 0;
    d->pre = (struct panel){ .to = s->prefill_ms, .top = HEAD + 32 + gap };
    if (p->tokens > 1) {
        uint64_t steps = p->tokens - 1;
        round = (s->total_ms - s->prefill_ms) / (double)steps;
        d->dec.from = s->prefill_ms;
        d->dec.to = fmin(s->total_ms, s->prefill_ms + 3 * round);
    }
    d->dec.top = d->pre.top + gap;
}

static void draw(struct drawing *d, struct tsr_err *err, tsr_status *st)
{
    bool                       two = d->dec.to > d->dec.from;
    struct tsr_plan_simulation again;
    put_head(d, (two ? d->dec.top : d->pre.top) + rows_height(d) + 34);
    put_frame(d, &d->pre, "Prefill", "numbers: micro-batches");
    if (two)
        put_frame(d, &d->dec, "The first decode steps", "numbers: micro-batches");
    *st = play(d->g, visit, d, &again, err);
    if (*st != TSR_OK)
        return;
    tsr_plan_simulation_destroy(&again);
    put_whole(d);
    for (struct panel *p = &d->pre; p; p = p == &d->pre && two ? &d->dec : NULL)
        if (p->drawn > VISITS) {
            char text[80];
            (void)snprintf(text, sizeof text, "the first %u of %llu visits", VISITS,
                           (unsigned long long)p->drawn);
            label(d, LEFT + 170, p->top - 10, "start", "dim", text);
        }
    tsr_writer_printf(&d->w, "</svg>\n");
}

tsr_status tsr_plan_gantt_write(const struct tsr_plan_gantt *g, const char *path,
                                struct tsr_err *err)
{
    struct tsr_plan_simulation s;
    TSR_TRY(play(g, NULL, NULL, &s, err));
    struct drawing d = { .g = g, .sim = s };
    d.per_ms = s.total_ms >= 2000 ? 1e-3 : 1;
    d.unit = s.total_ms >= 2000 ? "s" : "ms";
    const struct tsr_plan_pipeline_back *back = g->pipeline->back;
    d.links = back && (back->link_pre_ms > 0 || back->link_dec_ms > 0);
    for (uint64_t i = 0; i + 1 < g->pipeline->stages; i++)
        d.links = d.links || g->pipeline->link_pre_ms[i] > 0 || g->pipeline->link_dec_ms[i] > 0;
    uint64_t cells =
        (uint64_t)2 * COLUMNS * s.resources; /* resources are bounded by the simulation */
    d.busy = tsr_new(cells, sizeof *d.busy);
    tsr_status st = d.busy ? TSR_OK : tsr_fail_nomem(err, cells * sizeof *d.busy, "a Gantt chart");
    if (st == TSR_OK && !(s.prefill_ms > 0))
        st = tsr_fail(err, TSR_E_INPUT, "%s: a plan that takes no time has no picture", path);
    if (st == TSR_OK)
        st = tsr_writer_open(&d.w, path, err);
    if (st == TSR_OK) {
        choose(&d);
        draw(&d, err, &st);
        if (st == TSR_OK)
            st = tsr_writer_commit(&d.w, err);
        else
            tsr_writer_abort(&d.w);
    }
    free(d.busy);
    tsr_plan_simulation_destroy(&s);
    return st;
}
