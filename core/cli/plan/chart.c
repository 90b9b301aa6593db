/* What speed costs in quality, as a picture: latency to the right, omega upwards, darker points take more memory. */
#include "cli/plan/plan_verb.h"

#include "base/mem.h"
#include "base/output.h"
#include "planning/table.h"

#include <math.h>

#define WIDTH  720.0
#define HEIGHT 440.0
#define LEFT   80.0
#define RIGHT  690.0
#define TOP    60.0
#define BOTTOM 380.0
#define TICKS  6

static const char style[] =
    "svg{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--line:#d0d7de;--dim:#57606a;--dot:#0b62c4;"
    "--knee:#b45309}\n"
    "@media(prefers-color-scheme:dark){svg{--fg:#e6edf3;--bg:#0d1117;--line:#30363d;--dim:#9aa4af;"
    "--dot:#58a6ff;--knee:#f0a04b}}\n"
    "text{font:12px system-ui,sans-serif;fill:var(--fg)}.big{font-size:16px;font-weight:600}\n"
    ".dim{fill:var(--dim)}.bg{fill:var(--bg)}.grid{stroke:var(--line);stroke-width:.6}\n"
    ".front{fill:none;stroke:var(--dim);stroke-dasharray:3 3}.dot{fill:var(--dot)}\n"
    ".knee{fill:var(--knee)}.job{fill:none;stroke:var(--fg);stroke-width:1.5}\n";

struct axes {
    double      x1, y1, least, most; /* largest latency in s and of the scale; bytes */
    const char *key, *name;          /* of the scale: "omega", or KL */
};

static double x_of(const struct axes *a, double s)
{
    return LEFT + s / a->x1 * (RIGHT - LEFT);
}

static double y_of(const struct axes *a, double omega)
{
    return BOTTOM - (a->y1 > 0 ? omega / a->y1 : 0) * (BOTTOM - TOP);
}

/* The next of 1, 2, 5, 10 ... above a step. */
static double nice(double step)
{
    double ten = pow(10, floor(log10(step))), one = step / ten;
    return ten * (one <= 1 ? 1 : one <= 2 ? 2 : one <= 5 ? 5 : 10);
}

static void text(struct tsr_writer *w, const char *cls, double x, double y, const char *anchor,
                 const char *s)
{
    tsr_writer_printf(w, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", cls, x, y,
                      anchor);
    for (; *s; s++)
        if (*s == '<' || *s == '>' || *s == '&')
            tsr_writer_printf(w, "&#%d;", *s);
        else if ((unsigned char)*s >= 0x20) /* XML does not allow control characters */
            tsr_writer_put(w, s, 1);
    tsr_writer_printf(w, "</text>\n");
}

static void grid(struct tsr_writer *w, const struct axes *a)
{
    char   label[32];
    double step = nice(a->x1 / TICKS);
    for (int i = 0; i * step <= a->x1; i++) {
        double s = i * step;
        tsr_writer_printf(w, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x_of(a, s), TOP,
                          BOTTOM);
        (void)snprintf(label, sizeof label, "%.4g", s);
        text(w, "dim", x_of(a, s), BOTTOM + 18, "middle", label);
    }
    step = a->y1 > 0 ? nice(a->y1 / TICKS) : 1;
    for (int i = 0; i * step <= a->y1; i++) {
        double o = i * step;
        tsr_writer_printf(w, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", LEFT, y_of(a, o),
                          RIGHT);
        (void)snprintf(label, sizeof label, "%.4g", o);
        text(w, "dim", LEFT - 8, y_of(a, o) + 4, "end", label);
    }
    text(w, "dim", RIGHT, BOTTOM + 40, "end", "latency of the batch, s");
    text(w, "dim", LEFT, TOP - 10, "start", a->name);
    text(w, "dim", LEFT, BOTTOM + 40, "start",
         "darker: more memory; the knee is orange; the job's plan has a ring, that of 4 bits a "
         "broken one");
}

static void point(struct tsr_writer *w, const struct axes *a, const json_t *v)
{
    double s = tsr_planning_table_real(v, "latency_s"), o = tsr_planning_table_real(v, a->key),
           bytes = tsr_planning_table_real(v, "bytes");
    double share = a->most > a->least ? (bytes - a->least) / (a->most - a->least) : 1;
    tsr_writer_printf(w,
                      "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\" "
                      "fill-opacity=\"%.2f\"><title>%.4g s, %.4g tokens/s, %s %.4g, %.1f GiB"
                      "</title></circle>\n",
                      json_is_true(json_object_get(v, "knee")) ? "knee" : "dot", x_of(a, s),
                      y_of(a, o), 0.35 + 0.65 * share, s,
                      tsr_planning_table_real(v, "tokens_per_s"), a->name, o, bytes / 1073741824.0);
    if (json_is_true(json_object_get(v, "job")))
        tsr_writer_printf(w, "<circle class=\"job\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\"/>\n",
                          x_of(a, s), y_of(a, o));
    if (json_is_true(json_object_get(v, "four_bits")))
        tsr_writer_printf(w,
                          "<circle class=\"job\" stroke-dasharray=\"3 3\" cx=\"%.1f\" cy=\"%.1f\" "
                          "r=\"12\"/>\n",
                          x_of(a, s), y_of(a, o));
}

tsr_status tsr_cli_plan_chart(const json_t *front, const char *model, const char *path,
                              struct tsr_err *err)
{
    const json_t     *points = json_object_get(front, "points"), *v;
    bool              kl = json_is_number(json_object_get(json_array_get(points, 0), "kl"));
    struct axes       a = { .least = INFINITY,
                            .key = kl ? "kl" : "omega",
                            .name = kl ? "KL, nats per token" : "omega" };
    struct tsr_writer w;
    size_t            i;
    json_array_foreach (points, i, v) {
        a.x1 = fmax(a.x1, tsr_planning_table_real(v, "latency_s"));
        a.y1 = fmax(a.y1, tsr_planning_table_real(v, a.key));
        a.least = fmin(a.least, tsr_planning_table_real(v, "bytes"));
        a.most = fmax(a.most, tsr_planning_table_real(v, "bytes"));
    }
    TSR_TRY(tsr_writer_open(&w, path, err));
    tsr_writer_printf(&w,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
                      "role=\"img\">\n<style>%s</style>\n"
                      "<rect class=\"bg\" width=\"%g\" height=\"%g\"/>\n",
                      WIDTH, HEIGHT, style, WIDTH, HEIGHT);
    text(&w, "big", LEFT, 28, "start", model);
    grid(&w, &a);
    tsr_writer_printf(&w, "<polyline class=\"front\" points=\"");
    json_array_foreach (points, i, v)
        tsr_writer_printf(&w, "%.1f,%.1f ", x_of(&a, tsr_planning_table_real(v, "latency_s")),
                          y_of(&a, tsr_planning_table_real(v, a.key)));
    tsr_writer_printf(&w, "\"/>\n");
    json_array_foreach (points, i, v)
        point(&w, &a, v);
    tsr_writer_printf(&w, "</svg>\n");
    return tsr_writer_commit(&w, err);
}
