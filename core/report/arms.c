/* What each arm of a comparison is, and the conditions that hold for it. */
#include "report/internal.h"

#include <string.h>

/* What of an arm's result says how it was made, in the order of the page. */
static const char *const made_of[] = { "options",   "model",    "rotated",  "kv",
                                       "kv_layers", "act_bits", "simulated" };

static bool is_said(const json_t *arm, const char *key)
{
    const json_t *v = report_get(arm, key);
    return v && !(strcmp(key, "kv") == 0 && strcmp(report_str(arm, key), "f32") == 0);
}

static void put_making(struct tsr_writer *w, const json_t *arm)
{
    const char *sep = "";
    for (size_t i = 0; i < sizeof made_of / sizeof *made_of; i++) {
        if (!is_said(arm, made_of[i]))
            continue;
        tsr_writer_printf(w, "%s<code>", sep);
        report_text(w, strcmp(made_of[i], "options") == 0 ? "quantize" : made_of[i]);
        tsr_writer_printf(w, ": ");
        report_flow(w, report_get(arm, made_of[i]));
        tsr_writer_printf(w, "</code>");
        sep = "<br>";
    }
    if (!*sep)
        tsr_writer_printf(w, "%s", report_get(arm, "failed") ? "" : "the model as it is");
    if (report_get(arm, "remark")) { /* of its bits */
        tsr_writer_printf(w, "<br>");
        report_text(w, report_str(arm, "remark"));
    }
}

/* The conditions that a violator's name is listed for. */
static void put_outcome(struct tsr_writer *w, const json_t *gate, const char *name)
{
    const json_t *g, *v;
    size_t        i, k;
    bool          any = false;
    json_array_foreach (gate, i, g)
        json_array_foreach (report_get(g, "violators"), k, v)
            if (strcmp(report_str(v, "arm"), name) == 0) {
                tsr_writer_printf(w, "%s", any ? "<br>" : "<span class=\"bad\">fails</span> ");
                tsr_writer_printf(w, "<code>");
                report_text(w, report_str(g, "expression"));
                tsr_writer_printf(w, "</code>");
                any = true;
            }
    if (!any)
        tsr_writer_printf(w, "<span class=\"dim\">passes</span>");
}

void report_arms(struct tsr_writer *w, const json_t *r)
{
    const json_t *arms = report_get(r, "arms"),
                 *gate = report_get(report_get(r, "gate"), "fail_if"), *a;
    size_t i;
    if (!report_any(arms, "kind"))
        return;
    tsr_writer_printf(
        w, "<h3>Arms</h3>\n<table><tr><th>arm</th><th class=\"text\">what it is</th>%s</tr>\n",
        gate ? "<th class=\"text\">conditions</th>" : "");
    json_array_foreach (arms, i, a) {
        tsr_writer_printf(w, "<tr><td>");
        report_text(w, report_str(a, "name"));
        tsr_writer_printf(w, "</td><td class=\"text\">");
        put_making(w, a);
        tsr_writer_printf(w, "</td>");
        if (gate) {
            tsr_writer_printf(w, "<td class=\"text\">");
            put_outcome(w, gate, report_str(a, "name"));
            tsr_writer_printf(w, "</td>");
        }
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}
