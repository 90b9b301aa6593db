/* The section of a plugin's step on a terminal: paragraphs, figures, tables. */
#include "pipeline/steps/external_step.h"

#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Columns that a terminal takes: bytes of UTF-8 that begin a character. */
static int width_of(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void cell(FILE *to, const char *s, int width, bool left, bool last)
{
    int room = width - width_of(s);
    if (left)
        (void)fprintf(to, "%s%*s", s, last || room < 0 ? 0 : room, "");
    else
        (void)fprintf(to, "%*s%s", room < 0 ? 0 : room, "", s);
}

static const char *cell_of(const json_t *cells, size_t i)
{
    const char *s = json_string_value(json_array_get(cells, i));
    return s ? s : "";
}

static void row(FILE *to, const json_t *cells, const int *width, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            (void)fprintf(to, "  ");
        cell(to, cell_of(cells, i), width[i], i == 0, i + 1 == n);
    }
    (void)fprintf(to, "\n");
}

#define COLUMNS 64u

static void table(FILE *to, const json_t *columns, const json_t *rows)
{
    const json_t *one;
    size_t        n = json_array_size(columns), i;
    int           width[COLUMNS];
    n = n > COLUMNS ? COLUMNS : n;
    for (size_t k = 0; k < n; k++) {
        width[k] = width_of(cell_of(columns, k));
        json_array_foreach (rows, i, one) {
            int w = width_of(cell_of(one, k));
            width[k] = w > width[k] ? w : width[k];
        }
    }
    row(to, columns, width, n);
    json_array_foreach (rows, i, one)
        row(to, one, width, n);
}

/* Figures in a row share their columns. */
static int figures_width(const json_t *section, size_t from)
{
    int width = 0;
    for (size_t i = from; i < json_array_size(section); i++) {
        const json_t *one = json_array_get(section, i);
        if (!json_object_get(one, "figure"))
            break;
        int w = width_of(text_of(one, "figure"));
        width = w > width ? w : width;
    }
    return width;
}

void external_section_print(const json_t *result, FILE *to)
{
    const json_t *section = json_object_get(result, "section"), *one;
    size_t        i;
    int           width = 0;
    bool          was_figure = false;
    json_array_foreach (section, i, one) {
        bool is_figure = json_object_get(one, "figure") != NULL;
        if (!is_figure || !was_figure)
            (void)fprintf(to, "\n");
        if (is_figure && !was_figure)
            width = figures_width(section, i);
        was_figure = is_figure;
        if (is_figure) {
            cell(to, text_of(one, "figure"), width, true, false);
            (void)fprintf(to, "  %.6g%s%s\n", json_number_value(json_object_get(one, "value")),
                          *text_of(one, "unit") ? " " : "", text_of(one, "unit"));
        } else if (json_object_get(one, "columns")) {
            table(to, json_object_get(one, "columns"), json_object_get(one, "rows"));
        } else {
            (void)fprintf(to, "%s\n", text_of(one, "text"));
        }
    }
}
