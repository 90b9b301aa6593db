/* The page: its style, its head, and a section for each step. */
#include "report/internal.h"

static const char style[] =
    ":root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--line:#d0d7de;--dim:#57606a;"
    "--bad:#b00020;--good:#116329;--mark:#0b62c4;--other:#b45309}\n"
    "@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--line:#30363d;"
    "--dim:#9aa4af;--bad:#ff7b72;--good:#56d364;--mark:#58a6ff;--other:#f0a04b}}\n"
    "h1,p{overflow-wrap:anywhere}\n"
    "body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);"
    "max-width:72rem;margin:2rem auto;padding:0 1rem}\n"
    "h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}\n"
    "table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto;"
    "font-size:.85rem}\n"
    "th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:right;"
    "font-variant-numeric:tabular-nums;vertical-align:top}\n"
    "th,td{white-space:nowrap}td.text{white-space:normal}td.text:last-child{min-width:12rem}\n"
    "th:first-child,td:first-child{text-align:left}\n"
    "td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:5rem;max-width:16rem}\n"
    ".dim{color:var(--dim)}.bad{color:var(--bad)}.good{color:var(--good)}\n"
    "p.dim{font-size:.85rem}td.text{text-align:left}code{font-family:ui-monospace,monospace}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));"
    "gap:1rem 2rem}\n"
    "figure{margin:1rem 0;max-width:38rem}figcaption{font-weight:600;margin-bottom:.4rem}\n"
    "figure p{margin:.3rem 0}svg{width:100%;height:auto;display:block}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--fg)}\n"
    "svg text.tick{font-size:11px;fill:var(--dim);font-variant-numeric:tabular-nums}\n"
    "svg text.cell{font-size:11px}svg text.dimmed{fill:var(--dim)}\n"
    "svg text.name{stroke:var(--bg);stroke-width:3px;paint-order:stroke}\n"
    ".grid{stroke:var(--line);stroke-width:.6}.zero{stroke:var(--dim);stroke-width:1}\n"
    ".bar{stroke:var(--dim);stroke-width:1.2}.middle{stroke:var(--mark);stroke-width:2}\n"
    ".front{fill:none;stroke:var(--mark);stroke-width:1.2;stroke-dasharray:4 3}\n"
    ".mark,.fill{fill:var(--mark)}.below{fill:var(--other)}\n"
    ".beaten{fill:var(--bg);stroke:var(--dim);stroke-width:1.4}\n"
    ".box{fill:var(--mark);fill-opacity:.28}.run{fill:var(--fg);fill-opacity:.55}\n"
    "th.text{text-align:left}"
    "@media(max-width:36rem){.verdicts td:nth-child(2){display:none}}\n" /* the text begins with it */
    "th[tabindex]{cursor:pointer}th[tabindex]:hover,th[tabindex]:focus-visible{color:var(--mark)}\n"
    "th[aria-sort=ascending]::after{content:\" \\25b2\"}"
    "th[aria-sort=descending]::after{content:\" \\25bc\"}\n"
    "@media print{:root{--fg:#000;--bg:#fff;--line:#bbb;--dim:#444;--bad:#b00020;--good:#116329;"
    "--mark:#0b62c4;--other:#b45309}body{max-width:none;margin:0;font-size:10pt}"
    "table{display:table;width:100%;font-size:7pt}th,td{padding:.15rem .25rem}"
    "th{white-space:normal}td.text{overflow-wrap:break-word}td.text:last-child{min-width:0}"
    ".plots{grid-template-columns:1fr 1fr}"
    "figure,tr{break-inside:avoid}h2,h3{break-after:avoid}thead{display:table-header-group}}\n";

/* A click on a head sorts the rows below it, by numbers where cells begin with one.  The page is whole without it. */
static const char script[] =
    "const digits='\\u2070\\u00b9\\u00b2\\u00b3\\u2074\\u2075\\u2076\\u2077\\u2078\\u2079';\n"
    "const number=s=>{s=s.replace(/\\u2212/g,'-').replace(/,/g,'').replace(/^[<\\u00d7 ]+/,'');\n"
    "const m=s.match(/^([-+]?[\\d.]+\\u00b7|-?)10(\\u207b?)"
    "([\\u2070\\u00b9\\u00b2\\u00b3\\u2074-\\u2079]+)/);\n"
    "return m?(m[1]==='-'?-1:parseFloat(m[1])||1)*"
    "10**((m[2]?-1:1)*[...m[3]].map(d=>digits.indexOf(d)).join('')):parseFloat(s)};\n"
    "document.querySelectorAll('table').forEach(t=>{const heads=[...t.rows[0].cells];\n"
    "if(t.rows.length<3||heads.some(c=>c.tagName!=='TH'))return;\n"
    "heads.forEach((c,i)=>{c.tabIndex=0;const sort=()=>{\n"
    "const up=c.getAttribute('aria-sort')!=='ascending';\n"
    "heads.forEach(h=>h.removeAttribute('aria-sort'));"
    "c.setAttribute('aria-sort',up?'ascending':'descending');\n"
    "const text=r=>r.cells[i]?r.cells[i].innerText.trim():'';\n"
    "[...t.rows].slice(1).sort((a,b)=>{const x=number(text(a)),y=number(text(b));\n"
    "const n=isNaN(x)&&isNaN(y)?text(a).localeCompare(text(b)):isNaN(x)?2:isNaN(y)?-2:x-y;\n"
    "return Math.abs(n)===2&&(isNaN(x)||isNaN(y))?n:up?n:-n})"
    ".forEach(r=>r.parentNode.append(r))};\n"
    "c.onclick=sort;c.onkeydown=e=>{if(e.key==='Enter'||e.key===' "
    "'){e.preventDefault();sort()}}})})\n";

static void put_head(struct tsr_writer *w, const struct tsr_report_head *head)
{
    tsr_writer_printf(w, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                         "<title>Tessera: ");
    report_text(w, head->model);
    tsr_writer_printf(w, "</title><style>\n%s</style></head><body>\n<h1>", style);
    report_text(w, head->model);
    tsr_writer_printf(w, "</h1>\n<p class=\"dim\">Tessera %s &middot; seed %llu", TSR_VERSION,
                      (unsigned long long)head->seed);
    if (head->hash) {
        char parameters[REPORT_NUMBER];
        report_grouped(parameters, head->parameters);
        tsr_writer_printf(w, " &middot; ");
        report_text(w, head->family);
        tsr_writer_printf(w, ", %s parameters", parameters);
    }
    tsr_writer_printf(w, "</p>\n");
}

static void put_step(struct tsr_writer *w, const char *key, const json_t *v)
{
    tsr_writer_printf(w, "<h2>");
    report_text(w, key);
    tsr_writer_printf(w, "</h2>\n");
    if (report_is_step(key, "compare"))
        report_compare(w, v);
    else if (report_is_step(key, "indicators"))
        report_indicators(w, v);
    else if (report_is_step(key, "sweep"))
        report_sweep(w, v);
    else if (report_is_step(key, "outliers"))
        report_outliers(w, v);
    else if (json_is_array(report_get(v, "section")))
        report_section(w, report_get(v, "section"));
    else
        report_value(w, v, 0);
}

/* What the page is for comes first: comparisons, and sections that steps of plugins wrote. */
static bool is_for_readers(const char *key, const json_t *v)
{
    return report_is_step(key, "compare") || json_is_array(report_get(v, "section"));
}

static void put_end(struct tsr_writer *w, const struct tsr_report_head *head)
{
    if (head->hash) {
        tsr_writer_printf(w, "<p class=\"dim\">model ");
        report_text(w, head->model);
        tsr_writer_printf(w, " &middot; <code>");
        report_text(w, head->hash);
        tsr_writer_printf(w, "</code></p>\n");
    }
    tsr_writer_printf(w, "<script>\n%s</script>\n</body></html>\n", script);
}

void tsr_report_page(struct tsr_writer *w, const struct tsr_report_head *head,
                     const json_t *results)
{
    const char *key;
    json_t     *v;
    put_head(w, head);
    for (int first = 1; first >= 0; first--)
        json_object_foreach ((json_t *)(uintptr_t)results, key, v)
            if (is_for_readers(key, v) == (first == 1))
                put_step(w, key, v);
    tsr_writer_printf(w, "<div class=\"plots\">\n");
    report_plot_bits(w, results);
    report_plot_sweeps(w, results);
    tsr_writer_printf(w, "</div>\n");
    put_end(w, head);
}
