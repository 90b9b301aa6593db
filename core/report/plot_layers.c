/* Layers: the indicator of each at a bit width, and its assigned bits. */
#include "report/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double names = 96, right = 432, top = 4, panel = 62, row = 19;

/* ---- one indicator ------------------------------------------------------------------------ */

static double omega(const json_t *table, size_t layer, size_t b)
{
    const json_t *v = json_array_get(json_array_get(report_get(table, "omega"), layer), b);
    double        d = json_is_number(v) ? json_number_value(v) : (double)NAN;
    return isfinite(d) ? d : (double)NAN;
}

static void put_layer_numbers(struct tsr_writer *w, size_t layers, double y)
{
    size_t step = layers > 64 ? 10 : layers > 32 ? 5 : layers > 16 ? 2 : 1;
    char   text[REPORT_NUMBER];
    for (size_t l = 0; l < layers; l += step) {
        (void)snprintf(text, sizeof text, "%zu", l);
        report_label(w, names + (right - names) * ((double)l + 0.5) / (double)layers, y,
                     REPORT_MIDDLE, "tick", text);
    }
}

/* Bars of one width, each panel with a separate scale: the chart compares layers, not widths. */
static void put_panel(struct tsr_writer *w, const json_t *table, size_t layers, size_t b,
                      long long bits, double y0)
{
    double             low = 0, high = 0, width = (right - names) / (double)layers;
    struct report_axis y = { .from = y0 + panel - 14, .to = y0 + 6 };
    char               text[REPORT_NUMBER], most[REPORT_NUMBER + 8];
    for (size_t l = 0; l < layers; l++) {
        low = fmin(low, omega(table, l, b));
        high = fmax(high, omega(table, l, b));
    }
    if (!(high > low))
        high = low + 1;
    y.low = low;
    y.high = high;
    (void)snprintf(text, sizeof text, "%lld bits", bits);
    report_label(w, names - 6, y0 + 18, REPORT_END, "name", text);
    (void)snprintf(most, sizeof most, "\xe2\x89\xa4 %s", report_short(text, high));
    report_label(w, names - 6, y0 + 33, REPORT_END, "tick", most);
    for (size_t l = 0; l < layers; l++) {
        double v = omega(table, l, b);
        if (!isfinite(v))
            continue;
        double a = report_axis_at(&y, v), zero = report_axis_at(&y, 0);
        tsr_writer_printf(w,
                          "<g><title>layer %zu, %lld bits: %s</title><rect class=\"%s\" "
                          "x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/></g>\n",
                          l, bits, report_short(text, v), v < 0 ? "below" : "fill",
                          names + width * ((double)l + 0.1), fmin(a, zero), 0.8 * width,
                          fmax(fabs(a - zero), 0.5));
    }
    report_line(w, "zero", names, report_axis_at(&y, 0), right, report_axis_at(&y, 0));
}

void report_plot_indicator(struct tsr_writer *w, const json_t *indicators, const json_t *table)
{
    const json_t *bits = report_get(indicators, "bits"), *v;
    size_t        layers = json_array_size(report_get(table, "omega")), b;
    unsigned      n = 0, k = 0;
    char          title[160];
    json_array_foreach (bits, b, v)
        n += json_integer_value(v) < 16;
    if (layers == 0 || n == 0)
        return;
    (void)snprintf(title, sizeof title, "What a layer costs by '%.60s'", report_str(table, "name"));
    report_figure_open(w, top + n * panel + 26, title);
    json_array_foreach (bits, b, v)
        if (json_integer_value(v) < 16)
            put_panel(w, table, layers, b, (long long)json_integer_value(v), top + panel * k++);
    put_layer_numbers(w, layers, top + n * panel + 6);
    report_label(w, names - 6, top + n * panel + 6, REPORT_END, "tick", "layer");
    report_figure_close(w, strcmp(report_str(table, "name"), "measured") == 0
                               ? "Increase of the loss with this layer alone quantized, nats; "
                                 "each width on its own scale."
                               : "Each width on its own scale.");
}

/* ---- chosen bits ---------------------------------------------------------------------------- */

/* The layer in "model.layers.12.self_attn.q_proj.weight": its first part that is a number. */
static bool layer_of(const char *name, size_t *layer)
{
    for (const char *s = name; s; s = strchr(s, '.')) {
        s += *s == '.';
        if (*s < '0' || *s > '9')
            continue;
        char              *end;
        unsigned long long v = strtoull(s, &end, 10);
        if (*end != '.' || v > 100000)
            return false;
        *layer = (size_t)v;
        return true;
    }
    return false;
}

/* Mean bits of each layer of a quantize step, weighted by the bytes of its linears. */
static json_t *bits_of_linears(const json_t *linears)
{
    const json_t *l;
    size_t        i, layer, layers = 0;
    json_array_foreach (linears, i, l)
        if (layer_of(report_str(l, "name"), &layer) && layer >= layers)
            layers = layer + 1;
    json_t *out = json_array();
    for (size_t at = 0; at < layers && out; at++) {
        double bits = 0, weights = 0;
        json_array_foreach (linears, i, l) {
            double b = report_real(l, "bits_per_weight"), bytes = report_real(l, "bytes");
            if (!layer_of(report_str(l, "name"), &layer) || layer != at || !(b > 0))
                continue;
            double n = bytes > 0 ? bytes / b : 1;
            bits += b * n;
            weights += n;
        }
        if (json_array_append_new(out, weights > 0 ? json_real(bits / weights) : json_null()))
            break;
    }
    return out;
}

static double bits_at(const json_t *list, size_t l)
{
    const json_t *v = json_array_get(list, l);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Layers with equal bits carry no information. */
static bool differ(const json_t *list)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t l = 0; l < json_array_size(list); l++) {
        low = fmin(low, bits_at(list, l));
        high = fmax(high, bits_at(list, l));
    }
    return high - low > 0.01;
}

struct rows {
    struct tsr_writer *w; /* NULL: count only */
    unsigned           n;
    size_t             layers;
    double             low, high;
};

static void put_cells(const struct rows *r, const char *name, const json_t *list)
{
    double y = top + row * r->n, width = (right - names) / (double)r->layers;
    char   text[80];
    report_text_cut(text, sizeof text, name, names - 8);
    report_label(r->w, names - 6, y + 0.5 * row + 0.35 * REPORT_EM, REPORT_END, "name", text);
    for (size_t l = 0; l < json_array_size(list); l++) {
        double b = bits_at(list, l), x = names + width * (double)l;
        if (!isfinite(b))
            continue;
        double t = r->high > r->low ? (b - r->low) / (r->high - r->low) : 1;
        tsr_writer_printf(r->w,
                          "<g><title>layer %zu: %s bits</title><rect class=\"fill\" "
                          "fill-opacity=\"%.2f\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                          "height=\"%.1f\"/></g>\n",
                          l, report_fixed(text, b, 2, false), 0.08 + 0.4 * t, x + 0.5, y + 1,
                          width > 2 ? width - 1 : width, row - 2);
        (void)report_fixed(text, b, fabs(b - round(b)) < 0.05 ? 0 : 1, false);
        if (report_text_width(text) < width - 3)
            report_label(r->w, x + width / 2, y + 0.5 * row + 0.35 * REPORT_EM, REPORT_MIDDLE,
                         "cell", text);
    }
}

static void add_row(struct rows *r, const char *name, const json_t *list)
{
    if (!differ(list))
        return;
    if (r->w)
        put_cells(r, name, list);
    for (size_t l = 0; l < json_array_size(list); l++) {
        r->low = fmin(r->low, bits_at(list, l));
        r->high = fmax(r->high, bits_at(list, l));
    }
    if (json_array_size(list) > r->layers)
        r->layers = json_array_size(list);
    r->n++;
}

static void all_rows(struct rows *r, const json_t *results)
{
    const char   *key;
    json_t       *step;
    const json_t *a;
    size_t        i;
    json_object_foreach ((json_t *)(uintptr_t)results, key, step) {
        if (report_is_step(key, "compare"))
            json_array_foreach (report_get(step, "arms"), i, a)
                add_row(r, report_str(a, "name"), report_get(a, "layer_bits"));
        if (report_is_step(key, "indicators"))
            json_array_foreach (report_get(report_get(step, "plans"), "of"), i, a)
                add_row(r, report_str(a, "name"), report_get(a, "bits"));
        if (report_is_step(key, "quantize")) {
            json_t *list = bits_of_linears(report_get(step, "linears"));
            add_row(r, key, list);
            json_decref(list);
        }
    }
}

void report_plot_bits(struct tsr_writer *w, const json_t *results)
{
    struct rows count = { .low = INFINITY, .high = -INFINITY };
    all_rows(&count, results);
    if (count.n == 0)
        return;
    struct rows r = { .w = w, .layers = count.layers, .low = count.low, .high = count.high };
    report_figure_open(w, top + row * count.n + 26, "Bits of each layer");
    all_rows(&r, results);
    put_layer_numbers(w, r.layers, top + row * count.n + 14);
    report_label(w, names - 6, top + row * count.n + 14, REPORT_END, "tick", "layer");
    report_figure_close(w, "Bits per weight with scales; arms whose layers all have the same are "
                           "left out.");
}
