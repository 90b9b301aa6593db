/* The section of a plugin's step: paragraphs, figures, tables. */
#include "report/internal.h"

static void put_figures(struct tsr_writer *w, const json_t *section, size_t *i)
{
    const json_t *one;
    tsr_writer_printf(w, "<table>\n");
    for (; (one = json_array_get(section, *i)) && report_get(one, "figure"); ++*i) {
        char text[REPORT_NUMBER];
        tsr_writer_printf(w, "<tr><td>");
        report_text(w, report_str(one, "figure"));
        tsr_writer_printf(w, "</td><td>%s</td><td class=\"text\">",
                          report_short(text, report_real(one, "value")));
        report_text(w, report_str(one, "unit"));
        tsr_writer_printf(w, "</td></tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}

static void put_row(struct tsr_writer *w, const json_t *cells, const char *tag)
{
    const json_t *one;
    size_t        i;
    tsr_writer_printf(w, "<tr>");
    json_array_foreach (cells, i, one) {
        tsr_writer_printf(w, "<%s>", tag);
        report_json_text(w, one);
        tsr_writer_printf(w, "</%s>", tag);
    }
    tsr_writer_printf(w, "</tr>\n");
}

static void put_table(struct tsr_writer *w, const json_t *one)
{
    const json_t *row;
    size_t        i;
    tsr_writer_printf(w, "<table>");
    put_row(w, report_get(one, "columns"), "th");
    json_array_foreach (report_get(one, "rows"), i, row)
        put_row(w, row, "td");
    tsr_writer_printf(w, "</table>\n");
}

void report_section(struct tsr_writer *w, const json_t *section)
{
    const json_t *one;
    for (size_t i = 0; (one = json_array_get(section, i));) {
        if (report_get(one, "figure")) {
            put_figures(w, section, &i);
            continue;
        }
        i++;
        if (report_get(one, "columns")) {
            put_table(w, one);
        } else {
            tsr_writer_printf(w, "<p>");
            report_text(w, report_str(one, "text"));
            tsr_writer_printf(w, "</p>\n");
        }
    }
}
