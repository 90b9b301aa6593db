/* The section of a comparison: its table, verdicts, pairs, conditions, plots and samples. A column appears
 * if some arm has its data. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

struct columns {
    bool resident, perplexity, delta, kl, top1, delta_p, a8, speed, choices;
};

static struct columns columns_of(const json_t *arms)
{
    return (struct columns){ .resident = report_any(arms, "resident_bytes"),
                             .perplexity = report_any(arms, "perplexity"),
                             .delta = report_any(arms, "delta"),
                             .kl = report_any(arms, "kl"),
                             .top1 = report_any(arms, "top1"),
                             .delta_p = report_any(arms, "delta_p"),
                             .a8 = report_any(arms, "a8"),
                             .speed = report_any(arms, "speed"),
                             .choices = report_any(arms, "choices") };
}

static void put_head(struct tsr_writer *w, const json_t *r, const struct columns *c)
{
    tsr_writer_printf(
        w, "<table><tr><th>arm</th><th>bits per<br>weight</th><th>bytes<br>stored</th>%s",
        c->resident ? "<th>bytes in<br>memory</th>" : "");
    if (c->perplexity) {
        tsr_writer_printf(w, "<th>perplexity<br>");
        report_text(w, report_str(report_get(r, "perplexity_of"), "protocol"));
        tsr_writer_printf(w, "</th>");
    }
    tsr_writer_printf(w, "%s%s%s%s%s",
                      c->delta ? "<th>log-perplexity<br>difference</th><th>p<br>(Holm)</th>" : "",
                      c->kl ? "<th>mean KL<br>(nats)</th>" : "",
                      c->top1 ? "<th>top-1<br>agreement, %</th>" : "",
                      c->delta_p ? "<th>RMS change<br>of p(token), %</th>" : "",
                      c->a8 ? "<th>perplexity<br>act a8</th>" : "");
    if (c->choices)
        tsr_writer_printf(w, "<th>choices<br>right, %%</th><th>p (Holm)<br>(McNemar)</th>");
    if (c->speed)
        tsr_writer_printf(w, "<th>prefill<br>tokens/s</th><th>decode<br>tokens/s</th>");
    tsr_writer_printf(w, "</tr>\n");
}

static void put_kl(struct tsr_writer *w, const json_t *kl)
{
    char   text[REPORT_NUMBER];
    double se = report_real(kl, "se");
    tsr_writer_printf(w, "<td>%s", report_fixed(text, report_real(kl, "mean"), 6, false));
    if (isfinite(se))
        tsr_writer_printf(w, "<br><span class=\"dim\">&plusmn; %s</span>",
                          report_fixed(text, se, 6, false));
    tsr_writer_printf(w, "</td>");
}

static void put_speed(struct tsr_writer *w, const json_t *s, const char *phase)
{
    char key[48], text[REPORT_NUMBER];
    (void)snprintf(key, sizeof key, "%s_tokens_per_s", phase);
    tsr_writer_printf(w, "<td>%s", report_fixed(text, report_real(s, key), 0, false));
    (void)snprintf(key, sizeof key, "%s_ratio", phase);
    if (isfinite(report_real(report_get(s, key), "median")))
        tsr_writer_printf(w, "<br><span class=\"dim\">&times;%s</span>",
                          report_fixed(text, report_real(report_get(s, key), "median"), 2, false));
    tsr_writer_printf(w, "</td>");
}

static void put_figures(struct tsr_writer *w, const struct columns *c, const json_t *a)
{
    report_cell(w, report_real(a, "bits_per_weight"), 2);
    report_cell(w, report_real(a, "bytes"), 0);
    if (c->resident)
        report_cell(w, report_real(a, "resident_bytes"), 0);
    if (c->perplexity)
        report_cell(w, report_real(a, "perplexity"), 4);
    if (c->delta) {
        report_interval_cell(w, report_get(a, "delta"), "mean", 1, 5, true);
        report_p_cell(w, report_real(report_get(a, "delta"), "p_holm"));
    }
    if (c->kl)
        put_kl(w, report_get(a, "kl"));
    if (c->top1)
        report_cell(w, 100 * report_real(a, "top1"), 2);
    if (c->delta_p)
        report_cell(w, 100 * report_real(report_get(a, "delta_p"), "rms"), 3);
    if (c->a8)
        report_cell(w, report_real(report_get(a, "a8"), "perplexity"), 4);
    if (c->choices) {
        report_interval_cell(w, report_get(a, "choices"), "accuracy", 100, 1, false);
        report_p_cell(w, report_real(report_get(a, "choices"), "p_holm"));
    }
    if (c->speed) {
        put_speed(w, report_get(a, "speed"), "prefill");
        put_speed(w, report_get(a, "speed"), "decode");
    }
}

static void put_arm(struct tsr_writer *w, const struct columns *c, const json_t *a)
{
    tsr_writer_printf(w, "<tr><td>");
    report_text(w, report_str(a, "name"));
    tsr_writer_printf(w, "</td>");
    if (report_get(a, "failed")) {
        tsr_writer_printf(w, "<td class=\"text bad\" colspan=\"15\">failed: ");
        report_text(w, report_str(a, "failed"));
        tsr_writer_printf(w, "</td></tr>\n");
        return;
    }
    put_figures(w, c, a);
    tsr_writer_printf(w, "</tr>\n");
}

/* ---- verdicts, pairs, conditions --------------------------------------------------------- */

/* The two cells after a name. */
static void put_words(struct tsr_writer *w, const json_t *verdict)
{
    const char *quality =
        report_str(verdict, *report_str(verdict, "quality") ? "quality" : "tasks");
    tsr_writer_printf(w, "</td><td class=\"text %s\">", report_verdict_class(quality));
    report_text(w, quality);
    tsr_writer_printf(w, "</td><td class=\"text\">");
    report_text(w, report_str(verdict, "text"));
    tsr_writer_printf(w, "</td></tr>\n");
}

static void put_verdict(struct tsr_writer *w, const char *name, const char *against,
                        const json_t *verdict)
{
    tsr_writer_printf(w, "<tr><td>");
    report_text(w, name);
    if (*against) {
        tsr_writer_printf(w, " <span class=\"dim\">against</span> ");
        report_text(w, against);
    }
    put_words(w, verdict);
}

/* "rtn4 on wiki.txt" of each text, if there are several. */
static void put_texts(struct tsr_writer *w, const json_t *arm)
{
    const json_t *t;
    size_t        i;
    json_array_foreach (report_get(arm, "texts"), i, t) {
        tsr_writer_printf(w, "<tr><td>");
        report_text(w, report_str(arm, *report_str(arm, "name") ? "name" : "arm"));
        if (*report_str(arm, "against")) {
            tsr_writer_printf(w, " <span class=\"dim\">against</span> ");
            report_text(w, report_str(arm, "against"));
        }
        tsr_writer_printf(w, " <span class=\"dim\">on</span> ");
        report_text(w, report_str(t, "text"));
        put_words(w, report_get(t, "verdict"));
    }
}

static void put_verdicts(struct tsr_writer *w, const json_t *r)
{
    const json_t *arms = report_get(r, "arms"), *pairs = report_get(r, "pairs"), *a;
    size_t        i;
    if (!report_any(arms, "verdict") && !report_any(pairs, "verdict"))
        return;
    tsr_writer_printf(w, "<h3>Verdicts</h3>\n<table class=\"verdicts\">");
    json_array_foreach (arms, i, a)
        if (report_get(a, "verdict")) {
            put_verdict(w, report_str(a, "name"), "", report_get(a, "verdict"));
            put_texts(w, a);
        }
    json_array_foreach (pairs, i, a)
        if (report_get(a, "verdict"))
            put_verdict(w, report_str(a, "arm"), report_str(a, "against"),
                        report_get(a, "verdict"));
    json_array_foreach (pairs, i, a)
        put_texts(w, a);
    tsr_writer_printf(w, "</table>\n");
}

static void put_violators(struct tsr_writer *w, const json_t *condition)
{
    const json_t *v;
    size_t        i;
    char          text[REPORT_NUMBER];
    json_array_foreach (report_get(condition, "violators"), i, v) {
        tsr_writer_printf(w, "%s", i ? ", " : "");
        report_text(w, report_str(v, "arm"));
        if (isfinite(report_real(v, "value")))
            tsr_writer_printf(w, " %s", report_short(text, report_real(v, "value")));
    }
}

static void put_gate(struct tsr_writer *w, const json_t *gate)
{
    const json_t *g;
    size_t        i;
    if (json_array_size(gate) == 0)
        return;
    tsr_writer_printf(w, "<h3>Conditions</h3>\n<table>");
    json_array_foreach (gate, i, g) {
        bool holds = json_is_true(report_get(g, "holds"));
        tsr_writer_printf(w, "<tr><td>fail if <code>");
        report_text(w, report_str(g, "expression"));
        tsr_writer_printf(w, "</code></td><td class=\"text %s\">%s</td><td class=\"text\">",
                          holds ? "bad" : "dim", holds ? "it holds" : "it does not");
        put_violators(w, g);
        tsr_writer_printf(w, "</td></tr>\n");
    }
    tsr_writer_printf(w, "</table>\n");
}

/* ---- samples ------------------------------------------------------------------------------ */

static void put_samples(struct tsr_writer *w, const json_t *arms)
{
    const json_t *a, *first = report_get(json_array_get(arms, 0), "samples");
    size_t        k;
    for (size_t i = 0; i < json_array_size(first); i++) {
        tsr_writer_printf(w, "<h3>");
        report_text(w, report_str(json_array_get(first, i), "prompt"));
        tsr_writer_printf(w, "</h3>\n<table>");
        json_array_foreach (arms, k, a) {
            const json_t *t = json_array_get(report_get(a, "samples"), i);
            if (!t)
                continue;
            tsr_writer_printf(w, "<tr><td>");
            report_text(w, report_str(a, "name"));
            tsr_writer_printf(w, "</td><td class=\"text\">");
            report_json_text(w, report_get(t, "text"));
            tsr_writer_printf(w, "</td></tr>\n");
        }
        tsr_writer_printf(w, "</table>\n");
    }
}

static void put_note(struct tsr_writer *w, const json_t *r, const struct columns *c)
{
    double alpha = report_real(r, "alpha");
    if (!c->delta || !isfinite(alpha))
        return;
    tsr_writer_printf(w, "<p class=\"dim\">Differences are against ");
    report_text(w, report_str(r, "reference"));
    tsr_writer_printf(w,
                      ", token by token; intervals hold %g %%, p is corrected over the arms by "
                      "Holm's method. Both take the windows of the text as what is independent, "
                      "not the tokens.</p>\n",
                      100 * (1 - alpha));
}

static void put_table(struct tsr_writer *w, const json_t *r)
{
    const json_t  *arms = report_get(r, "arms"), *a;
    struct columns c = columns_of(arms);
    size_t         i;
    tsr_writer_printf(w, "<h3>Figures</h3>\n");
    put_head(w, r, &c);
    json_array_foreach (arms, i, a)
        put_arm(w, &c, a);
    tsr_writer_printf(w, "</table>\n");
    put_note(w, r, &c);
}

void report_compare(struct tsr_writer *w, const json_t *r)
{
    const json_t       *arms = report_get(r, "arms");
    enum report_quality what = report_any(arms, "kl")      ? REPORT_KL
                               : report_any(arms, "tasks") ? REPORT_WRONG
                                                           : REPORT_DELTA;
    put_verdicts(w, r);
    tsr_writer_printf(w, "<div class=\"plots\">\n");
    report_plot_quality(w, r, what, REPORT_BYTES);
    report_plot_quality(w, r, what, REPORT_DECODE);
    tsr_writer_printf(w, "</div>\n");
    report_arms(w, r);
    put_gate(w, report_get(report_get(r, "gate"), "fail_if"));
    put_table(w, r);
    report_tasks(w, r);
    tsr_writer_printf(w, "<div class=\"plots\">\n");
    report_plot_quality(w, r, REPORT_KL, REPORT_BITS);
    report_plot_quality(w, r, REPORT_DELTA, REPORT_BITS);
    report_plot_spread(w, r);
    report_plot_speed(w, r, "prefill", "Prefill, tokens per second");
    report_plot_speed(w, r, "decode", "Decode, tokens per second");
    tsr_writer_printf(w, "</div>\n");
    put_samples(w, arms);
    report_facts(w, "perplexity", report_get(r, "perplexity_of"));
    report_facts(w, "speed (median, interleaved; act for packed weights)",
                 report_get(r, "speed_of"));
    report_facts(w, "choices", report_get(r, "choices_of"));
    report_facts(w, "samples", report_get(r, "samples_of"));
}
