/* A check as a page: the counts, what is wrong first, then every rule with its figures. */
#include "cli/plugin/check_page.h"

#include "base/json.h"

#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark}body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;"
    "margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;width:100%}th,td{text-align:"
    "left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #8884}td.n{text-align:"
    "right;font-variant-numeric:tabular-nums;white-space:nowrap}code{font-size:.95em}small{color:"
    "#888}.passed{color:#2a7d2a}.warning{color:#a06a00}.skipped{color:#888}.failed,.crashed,.hung{"
    "color:#c22;font-weight:600}";

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void text(struct tsr_writer *w, const char *s)
{
    for (; *s; s++) {
        size_t n = strcspn(s, "<>&\"");
        tsr_writer_put(w, s, n);
        s += n;
        if (!*s)
            return;
        tsr_writer_printf(w, "%s",
                          *s == '<'   ? "&lt;"
                          : *s == '>' ? "&gt;"
                          : *s == '&' ? "&amp;"
                                      : "&quot;");
    }
}

static void put_figure(struct tsr_writer *w, const json_t *f)
{
    const json_t *value = json_object_get(f, "value");
    tsr_writer_printf(w, "<br><small>");
    text(w, word(f, "name"));
    if (json_is_number(value))
        tsr_writer_printf(w, ": %.6g ", json_number_value(value));
    else
        tsr_writer_printf(w, ": not finite ");
    text(w, word(f, "unit"));
    tsr_writer_printf(w, "</small>");
}

static void put_rule(struct tsr_writer *w, const json_t *r)
{
    const json_t *figures = json_object_get(r, "figures");
    const char   *verdict = word(r, "verdict"), *component = word(r, "component");
    tsr_writer_printf(w, "<tr><td class=\"%s\">%s</td><td><code>", verdict, verdict);
    text(w, word(r, "rule"));
    tsr_writer_printf(w, "</code></td><td>");
    text(w, *component ? component : "file");
    tsr_writer_printf(w, "</td><td>");
    text(w, word(r, "wants"));
    if (*word(r, "text")) {
        tsr_writer_printf(w, "<br><b>");
        text(w, word(r, "text"));
        tsr_writer_printf(w, "</b>");
    }
    for (size_t i = 0; i < json_array_size(figures); i++)
        put_figure(w, json_array_get(figures, i));
    tsr_writer_printf(w, "</td><td class=\"n\">%.3f</td></tr>\n",
                      json_number_value(json_object_get(r, "seconds")));
}

static bool is_wrong(const json_t *r)
{
    const char *v = word(r, "verdict");
    return strcmp(v, "passed") != 0 && strcmp(v, "skipped") != 0;
}

/* Those that are wrong, or the others; no table without any. */
static void put_rules(struct tsr_writer *w, const json_t *rules, bool wrong, const char *title)
{
    bool open = false;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_t *r = json_array_get(rules, i);
        if (is_wrong(r) != wrong)
            continue;
        if (!open)
            tsr_writer_printf(w,
                              "<h2>%s</h2>\n<table><tr><th>Verdict</th><th>Rule</th><th>Component"
                              "</th><th>What it wants, what was found</th><th>Seconds</th></tr>\n",
                              title);
        open = true;
        put_rule(w, r);
    }
    if (open)
        tsr_writer_printf(w, "</table>\n");
}

static void put_model(struct tsr_writer *w, const json_t *m)
{
    const char *key;
    json_t     *v;
    json_object_foreach ((json_t *)(uintptr_t)m, key, v) {
        tsr_writer_printf(w, "<tr><td>");
        text(w, key);
        tsr_writer_printf(w, "</td><td>");
        if (json_is_number(v))
            tsr_writer_printf(w, "%.6g", json_number_value(v));
        else
            text(w, json_string_value(v) ? json_string_value(v) : "");
        tsr_writer_printf(w, "</td></tr>\n");
    }
}

void tsr_cli_check_page(struct tsr_writer *w, const json_t *check)
{
    static const char *const counts[] = { "passed", "failed", "warnings", "skipped" };
    const json_t            *rules = json_object_get(check, "rules"),
                 *models = json_object_get(check, "models");
    tsr_writer_printf(w, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                         "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    text(w, word(check, "plugin"));
    tsr_writer_printf(w, "</title><style>%s</style></head><body>\n<h1>Check of ", style);
    text(w, word(check, "plugin"));
    tsr_writer_printf(w, "</h1>\n<p>");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        tsr_writer_printf(w, "%s%lld %s", i ? ", " : "",
                          (long long)json_integer_value(json_object_get(check, counts[i])),
                          counts[i]);
    tsr_writer_printf(w, "; seed %lld; tessera %s</p>\n",
                      (long long)json_integer_value(json_object_get(check, "seed")),
                      word(check, "version"));
    put_rules(w, rules, true, "Broken rules and warnings");
    put_rules(w, rules, false, "Rules");
    for (size_t i = 0; i < json_array_size(models); i++) {
        tsr_writer_printf(w, "<h2>On the bundled model</h2>\n<table>\n");
        put_model(w, json_array_get(models, i));
        tsr_writer_printf(w, "</table>\n");
    }
    tsr_writer_printf(w, "</body></html>\n");
}
