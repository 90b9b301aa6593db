/* report: what the steps before found, as one HTML page that needs nothing else. */
#include "base/file.h"
#include "pipeline/indicators.h"
#include "pipeline/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct report_options {
    const char *html;
};

static const struct tsr_option options[] = {
    { .name = "html",
      .help = "File to write, in the job folder.",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct report_options, html, const char *),
      .def = { .s = "" } },
};

#define MAX_DEPTH 16u

static const char style[] =
    ":root{color-scheme:light "
    "dark;--fg:#1b1f24;--bg:#fff;--line:#d0d7de;--dim:#57606a;--bad:#b00020}"
    "@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--line:#30363d;--dim:#"
    "8d96a0;"
    "--bad:#ff7b72}}"
    "h1,p{overflow-wrap:anywhere}body{font:16px/1.5 "
    "system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:72rem;"
    "margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}"
    "th,td{border-bottom:1px solid var(--line);padding:.35rem .8rem;text-align:right;"
    "font-variant-numeric:tabular-nums;vertical-align:top}"
    "th:first-child,td:first-child{text-align:left}"
    ".dim{color:var(--dim)}.bad{color:var(--bad)}td.text{text-align:left}"
    "code{font-family:ui-monospace,monospace}";

static void put_text(struct tsr_writer *w, const char *s)
{
    for (; s && *s; s++) {
        const char *entity = *s == '<'   ? "&lt;"
                             : *s == '>' ? "&gt;"
                             : *s == '&' ? "&amp;"
                             : *s == '"' ? "&quot;"
                                         : NULL;
        tsr_writer_put(w, entity ? entity : s, entity ? strlen(entity) : 1);
    }
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void put_cell(struct tsr_writer *w, const json_t *v, int digits, double factor)
{
    if (json_is_number(v))
        tsr_writer_printf(w, "<td>%.*f</td>", digits, factor * json_number_value(v));
    else
        tsr_writer_printf(w, "<td class=dim>&ndash;</td>");
}

/* ---- compare ---------------------------------------------------------------- */

static bool has_a8(const json_t *r)
{
    return json_is_true(json_object_get(json_object_get(r, "perplexity_of"), "a8"));
}

static void put_arm(struct tsr_writer *w, const json_t *r, const json_t *a)
{
    tsr_writer_printf(w, "<tr><td>");
    put_text(w, text_of(a, "name"));
    tsr_writer_printf(w, "</td>");
    if (json_object_get(a, "failed")) {
        tsr_writer_printf(w, "<td class='text bad' colspan=8>failed: ");
        put_text(w, text_of(a, "failed"));
        tsr_writer_printf(w, "</td></tr>\n");
        return;
    }
    put_cell(w, json_object_get(a, "bits_per_weight"), 2, 1);
    put_cell(w, json_object_get(a, "bytes"), 0, 1);
    if (json_object_get(r, "perplexity_of")) {
        put_cell(w, json_object_get(a, "perplexity"), 4, 1);
        put_cell(w, json_object_get(json_object_get(a, "kl"), "mean"), 6, 1);
        put_cell(w, json_object_get(a, "top1"), 2, 100);
        if (has_a8(r))
            put_cell(w, json_object_get(json_object_get(a, "a8"), "perplexity"), 4, 1);
    }
    if (json_object_get(r, "speed_of")) {
        const json_t *s = json_object_get(a, "speed");
        put_cell(w, json_object_get(s, "prefill_tokens_per_s"), 0, 1);
        put_cell(w, json_object_get(s, "decode_tokens_per_s"), 0, 1);
    }
    tsr_writer_printf(w, "</tr>\n");
}

/* "protocol: gptq-2048; text: ..." of an object of scalars. */
static void put_facts(struct tsr_writer *w, const char *title, const json_t *o)
{
    const char *key;
    json_t     *v;
    if (!o)
        return;
    tsr_writer_printf(w, "<p class=dim>%s", title);
    json_object_foreach ((json_t *)(uintptr_t)o, key, v) {
        tsr_writer_printf(w, " &middot; ");
        put_text(w, key);
        tsr_writer_printf(w, " ");
        if (json_is_string(v))
            put_text(w, json_string_value(v));
        else if (json_is_number(v))
            tsr_writer_printf(w, "%.10g", json_number_value(v));
        else
            tsr_writer_printf(w, "%s", json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-");
    }
    tsr_writer_printf(w, "</p>\n");
}

static void put_samples(struct tsr_writer *w, const json_t *arms)
{
    const json_t *a;
    size_t        k, n = json_array_size(json_object_get(json_array_get(arms, 0), "samples"));
    for (size_t i = 0; i < n; i++) {
        const json_t *first =
            json_array_get(json_object_get(json_array_get(arms, 0), "samples"), i);
        tsr_writer_printf(w, "<h3>");
        put_text(w, text_of(first, "prompt"));
        tsr_writer_printf(w, "</h3>\n<table>");
        json_array_foreach (arms, k, a) {
            const json_t *t = json_array_get(json_object_get(a, "samples"), i);
            if (!t)
                continue;
            tsr_writer_printf(w, "<tr><td>");
            put_text(w, text_of(a, "name"));
            tsr_writer_printf(w, "</td><td class=text>");
            put_text(w, text_of(t, "text"));
            tsr_writer_printf(w, "</td></tr>\n");
        }
        tsr_writer_printf(w, "</table>\n");
    }
}

static void put_compare(struct tsr_writer *w, const json_t *r)
{
    const json_t *arms = json_object_get(r, "arms"), *a, *p = json_object_get(r, "perplexity_of");
    size_t        i;
    tsr_writer_printf(w, "<table><tr><th>arm</th><th>bits per weight</th><th>bytes</th>");
    if (p) {
        tsr_writer_printf(w, "<th>perplexity<br>");
        put_text(w, text_of(p, "protocol"));
        tsr_writer_printf(w, "</th><th>mean KL<br>(nats)</th><th>top-1<br>agreement, %%</th>%s",
                          has_a8(r) ? "<th>perplexity<br>act a8</th>" : "");
    }
    if (json_object_get(r, "speed_of"))
        tsr_writer_printf(w, "<th>prefill<br>tokens/s</th><th>decode<br>tokens/s</th>");
    tsr_writer_printf(w, "</tr>\n");
    json_array_foreach (arms, i, a)
        put_arm(w, r, a);
    tsr_writer_printf(w, "</table>\n");
    put_facts(w, "perplexity", p);
    put_facts(w, "speed (median, interleaved; act for packed weights)",
              json_object_get(r, "speed_of"));
    put_facts(w, "samples", json_object_get(r, "samples_of"));
    put_samples(w, arms);
}

/* ---- any other step ----------------------------------------------------------- */

static void put_value(struct tsr_writer *w, const json_t *v, unsigned depth)
{
    const char *key;
    json_t     *item;
    size_t      i;
    if (depth > MAX_DEPTH)
        return;
    if (json_is_object(v)) {
        tsr_writer_printf(w, "<table>");
        json_object_foreach ((json_t *)(uintptr_t)v, key, item) {
            tsr_writer_printf(w, "<tr><td>");
            put_text(w, key);
            tsr_writer_printf(w, "</td><td class=text>");
            put_value(w, item, depth + 1);
            tsr_writer_printf(w, "</td></tr>\n");
        }
        tsr_writer_printf(w, "</table>");
    } else if (json_is_array(v)) {
        json_array_foreach (v, i, item)
            put_value(w, item, depth + 1);
    } else if (json_is_string(v)) {
        put_text(w, json_string_value(v));
    } else if (json_is_integer(v)) {
        tsr_writer_printf(w, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        tsr_writer_printf(w, "%.6g", json_real_value(v));
    } else {
        tsr_writer_printf(w, "%s", json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-");
    }
}

static void put_page(struct tsr_writer *w, const struct tsr_job *job)
{
    const char *key;
    json_t     *v;
    tsr_writer_printf(w, "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
                         "<meta name=viewport content='width=device-width,initial-scale=1'>"
                         "<title>Tessera: ");
    put_text(w, job->model_path);
    tsr_writer_printf(w, "</title><style>%s</style></head><body>\n<h1>", style);
    put_text(w, job->model_path);
    tsr_writer_printf(w, "</h1>\n<p class=dim>Tessera %s &middot; seed %llu", TSR_VERSION,
                      (unsigned long long)job->seed);
    if (job->model)
        tsr_writer_printf(w, " &middot; %s, %llu parameters &middot; <code>%s</code>",
                          job->model->family, (unsigned long long)job->model->parameters,
                          job->model->hash);
    tsr_writer_printf(w, "</p>\n");
    json_object_foreach (job->results, key, v) {
        tsr_writer_printf(w, "<h2>");
        put_text(w, key);
        tsr_writer_printf(w, "</h2>\n");
        if (strncmp(key, "compare", 7) == 0)
            put_compare(w, v);
        else if (strncmp(key, "indicators", 10) == 0)
            tsr_indicators_html(v, w);
        else
            put_value(w, v, 0);
    }
    tsr_writer_printf(w, "</body></html>\n");
}

static tsr_status check(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err)
{
    const struct report_options *o = opts;
    const struct tsr_node       *at = tsr_node_get(node, "html");
    (void)job;
    (void)err;
    if (at && !o->html[0])
        tsr_diag_error(d, &at->mark, "html: report.html", "'html' is empty");
    return TSR_OK;
}

static tsr_status run(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err)
{
    const struct report_options *o = opts;
    char                        *path = NULL;
    struct tsr_writer            w;
    (void)node;
    TSR_TRY(tsr_job_output(job, o->html, &path, err));
    tsr_status st = tsr_writer_open(&w, path, err);
    if (st == TSR_OK) {
        put_page(&w, job);
        st = tsr_writer_commit(&w, err);
    }
    free(path);
    if (st != TSR_OK)
        return st;
    json_t *j = json_object();
    if (!tsr_json_put_text(j, "html", o->html)) {
        json_decref(j);
        j = NULL;
    }
    return tsr_step_result(job, "report", j, err);
}

const struct tsr_step tsr_step_report = {
    .name = "report",
    .summary = "writes what the steps before found as an HTML page",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct report_options),
    .check = check,
    .run = run,
    .later = true,
};
