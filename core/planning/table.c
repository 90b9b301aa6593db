/* A plan for people, in 80 columns, from the JSON of json.c. */
#include "planning/table.h"
#include "planning/planning.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#define LINE     80
#define CELL     TSR_TABLE_CELL
#define SENTENCE TSR_TABLE_SENTENCE

double tsr_planning_table_real(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

long long tsr_planning_table_int(const json_t *j, const char *key)
{
    return (long long)json_integer_value(json_object_get(j, key));
}

const char *tsr_planning_table_text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

/* "15.3 s", "812 ms" */
const char *tsr_planning_table_time(double ms, char buf[CELL])
{
    if (!isfinite(ms))
        (void)snprintf(buf, CELL, "-");
    else if (ms >= 1e6)
        (void)snprintf(buf, CELL, "%.0f s", ms / 1e3);
    else if (ms >= 1e3)
        (void)snprintf(buf, CELL, "%.*f s", ms < 1e5 ? 2 : 1, ms / 1e3);
    else
        (void)snprintf(buf, CELL, "%.3g ms", ms);
    return buf;
}

/* Words after a label, wrapped to the line width, further lines aligned with the first word. */
void tsr_planning_table_wrap(FILE *to, const char *label, const char *text)
{
    size_t at = 11;
    (void)fprintf(to, "%-11s", label);
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, " ");
        if (at > 11 && at + n + 1 > LINE) {
            (void)fprintf(to, "\n%11s", "");
            at = 11;
        } else if (at > 11) {
            (void)fputc(' ', to);
            at++;
        }
        (void)fprintf(to, "%.*s", (int)n, s);
        at += n;
        s += n;
        while (*s == ' ')
            s++;
    }
    (void)fputc('\n', to);
}

const char *tsr_planning_table_candidate(const json_t *r, const char *name)
{
    const json_t *other;
    size_t        i, same = 0;
    const char   *dash = strrchr(name, '-');
    if (strcmp(name, "original") == 0)
        return "16";
    const char *slash = strchr(name, '/'); /* of groups of experts: gptq-8/4 */
    if (!dash || !dash[1] || (slash && strchr(slash, '-')))
        return name;
    json_array_foreach (json_object_get(r, "candidates"), i, other) {
        const char *o = json_string_value(other), *d = o ? strrchr(o, '-') : NULL;
        same += d && strcmp(d, dash) == 0;
    }
    return same == 1 ? dash + 1 : name;
}

const char *tsr_planning_table_bits(const json_t *r, json_t *bits, char *buf, size_t cap)
{
    const char *name;
    json_t     *n;
    size_t      at = 0;
    buf[0] = '\0';
    json_object_foreach (bits, name, n)
        if (at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s%sx%lld", at ? " " : "",
                                   tsr_planning_table_candidate(r, name),
                                   (long long)json_integer_value(n));
    return buf;
}

/* ---- stages ----------------------------------------------------------------------- */

/* Sizes have one decimal and at most three digits before it. */
static double size_unit(const json_t *stages, const char **name)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
    const json_t            *s;
    size_t                   i, u = 0;
    double                   most = 0, unit = 1024;
    json_array_foreach (stages, i, s)
        most = fmax(most, fmax(tsr_planning_table_real(s, "capacity"),
                               tsr_planning_table_real(s, "total")));
    while (most / unit >= 1000 && u < 3) {
        unit *= 1024;
        u++;
    }
    *name = units[u];
    return unit;
}

#define WIDEST 15 /* a device with a longer name gets a separate line */

static void stage_cells(const json_t *s, char device[CELL], char layers[CELL])
{
    if (strcasecmp(tsr_planning_table_text(s, "node"), tsr_planning_table_text(s, "device")) ==
        0) /* once is enough */
        (void)snprintf(device, CELL, "%.60s", tsr_planning_table_text(s, "mesh"));
    else
        (void)snprintf(device, CELL, "%.30s:%.30s", tsr_planning_table_text(s, "node"),
                       tsr_planning_table_text(s, "mesh"));
    if (tsr_planning_table_int(s, "layers") == 1)
        (void)snprintf(layers, CELL, "%lld", tsr_planning_table_int(s, "first"));
    else
        (void)snprintf(layers, CELL, "%lld-%lld", tsr_planning_table_int(s, "first"),
                       tsr_planning_table_int(s, "first") + tsr_planning_table_int(s, "layers") -
                           1);
}

/* Three digits or whole numbers. */
static const char *ms_text(double ms, char buf[CELL])
{
    (void)snprintf(buf, CELL, "%.*f", ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : 3, ms);
    return buf;
}

static void stage_row(const json_t *r, const json_t *s, int wide, int bits_wide, double unit,
                      FILE *to)
{
    char   device[CELL], layers[CELL], bits[400], pre[CELL], dec[CELL];
    double total = tsr_planning_table_real(s, "total"),
           has = tsr_planning_table_real(s, "capacity");
    stage_cells(s, device, layers);
    (void)tsr_planning_table_bits(r, json_object_get(s, "bits"), bits, sizeof bits);
    bool long_name = (int)strlen(device) > wide, long_bits = (int)strlen(bits) > bits_wide;
    if (long_name)
        (void)fprintf(to, "%s\n", device);
    (void)fprintf(to, "%-*s %-6s %-*s %7.1f %5.1f %5.1f %5.1f %+6.1f %7s %6s %2.0f %%\n", wide,
                  long_name ? "" : device, layers, bits_wide, long_bits ? "mix" : bits,
                  (tsr_planning_table_real(s, "weights") + tsr_planning_table_real(s, "ends") +
                   (json_object_get(s, "draft") ? tsr_planning_table_real(s, "draft") : 0)) /
                      unit,
                  tsr_planning_table_real(s, "kv") / unit,
                  tsr_planning_table_real(s, "workspace") / unit, has / unit, (has - total) / unit,
                  ms_text(tsr_planning_table_real(s, "prefill_ms"), pre),
                  ms_text(tsr_planning_table_real(s, "decode_ms"), dec),
                  100 * tsr_planning_table_real(s, "busy"));
    if (long_bits)
        (void)fprintf(to, "%-*s        %s\n", wide, "", bits);
}

/* "experts    box:RTX4090: layers 0-11 on the CPU xeon, 41.2 GiB of the 60.0 GiB of its memory; 61 % of the stage's time in
 * prefill, 48 % in decode" */
static void cpu_experts(const json_t *s, FILE *to)
{
    const json_t *e = json_object_get(s, "cpu_experts");
    char          device[CELL], layers[CELL], text[SENTENCE], a[TSR_BYTES_TEXT], b[TSR_BYTES_TEXT];
    if (!e)
        return;
    const char *of = tsr_planning_table_text(e, "layers");
    stage_cells(s, device, layers);
    (void)snprintf(
        text, sizeof text,
        "%s: %s%.400s on the CPU %.32s, %s of the %s of its memory; %.0f %% of the stage's time "
        "in prefill, %.0f %% in decode",
        device, strcmp(of, "all") ? "layers " : "", strcmp(of, "all") ? of : "all layers",
        tsr_planning_table_text(e, "cpu"),
        tsr_format_bytes(a, sizeof a, (uint64_t)tsr_planning_table_int(e, "bytes")),
        tsr_format_bytes(b, sizeof b, (uint64_t)tsr_planning_table_int(e, "capacity")),
        100 * tsr_planning_table_real(e, "prefill_share"),
        100 * tsr_planning_table_real(e, "decode_share"));
    tsr_planning_table_wrap(to, "experts", text);
}

void tsr_planning_table_stages(const json_t *r, const json_t *list, FILE *to)
{
    const char   *unit_name;
    double        unit = size_unit(list, &unit_name);
    const json_t *s;
    size_t        i;
    int           wide = 6, bits_wide = 4;
    char          device[CELL], layers[CELL], bits[400];
    json_array_foreach (list, i, s) {
        stage_cells(s, device, layers);
        int n = (int)strlen(device);
        wide = n > wide && n <= WIDEST ? n : wide;
        (void)tsr_planning_table_bits(r, json_object_get(s, "bits"), bits, sizeof bits);
        bits_wide = (int)strlen(bits) > bits_wide ? (int)strlen(bits) : bits_wide;
    }
    /* the rest of the line for bits; longer ones go below */
    if (bits_wide > LINE - wide - 61)
        bits_wide = 4;
    (void)fprintf(to, "\n%-*s %-6s %-*s %7s %5s %5s %5s %6s %7s %6s\n", wide, "", "", bits_wide, "",
                  unit_name, "", "", "", "", "ms", "ms");
    (void)fprintf(to, "%-*s %-6s %-*s %7s %5s %5s %5s %6s %7s %6s busy\n", wide, "device", "layers",
                  bits_wide, "bits", "weights", "KV", "work", "free", "margin", "prefill",
                  "decode");
    json_array_foreach (list, i, s)
        stage_row(r, s, wide, bits_wide, unit, to);
    json_array_foreach (list, i, s)
        cpu_experts(s, to);
}

/* "chosen     16 requests at once, whole prompts, a cache of int8 (0.156 of omega); fixed by the job: chunk" */
static void settings(const json_t *r, const json_t *plan, FILE *to)
{
    static const char *const keys[] = { "concurrency", "chunk", "kv" };
    const json_t *s = json_object_get(r, "settings"), *work = json_object_get(r, "workload");
    char          text[SENTENCE], one[CELL], fixed[CELL] = "";
    size_t        at = 0, n = 0;
    for (size_t i = 0; i < 3; i++) {
        long long   v = tsr_planning_table_int(work, i == 2 ? "kv_bits" : keys[i]);
        const char *kv = tsr_planning_table_text(work, "kv");
        if (strcmp(tsr_planning_table_text(s, keys[i]), "chosen") != 0) {
            n += (size_t)snprintf(fixed + n, sizeof fixed - n, "%s%s", n ? ", " : "", keys[i]);
            continue;
        }
        if (i == 0)
            (void)snprintf(one, sizeof one, "%lld request%s at once", v, v == 1 ? "" : "s");
        else if (i == 1 && v == 0)
            (void)snprintf(one, sizeof one, "whole prompts");
        else if (i == 1)
            (void)snprintf(one, sizeof one, "chunks of %lld tokens", v);
        else if (*tsr_planning_table_text(plan, "kv_layers"))
            (void)snprintf(one, sizeof one, "a type of cache for each layer");
        else if (tsr_planning_table_real(s, "kv_omega") > 0)
            (void)snprintf(one, sizeof one, "a cache of %s (%.3g of omega)", kv,
                           tsr_planning_table_real(s, "kv_omega"));
        else
            (void)snprintf(one, sizeof one, "a cache of %s", kv);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? ", " : "", one);
    }
    if (*tsr_planning_table_text(plan, "ends"))
        at += (size_t)snprintf(text + at, sizeof text - at, "%sembedding and head %s%s",
                               at ? ", " : "",
                               strcmp(tsr_planning_table_text(plan, "ends"), "original")
                                   ? "by "
                                   : "as in the ",
                               tsr_planning_table_text(plan, "ends"));
    if (!at)
        return;
    if (n)
        (void)snprintf(text + at, sizeof text - at, "; fixed by the job: %s", fixed);
    tsr_planning_table_wrap(to, "chosen", text);
}

bool tsr_planning_table_draft(const json_t *r, char *text, size_t cap)
{
    const json_t *d = json_object_get(r, "draft");
    char          bytes[TSR_BYTES_TEXT];
    if (!d)
        return false;
    if (tsr_planning_table_int(d, "elsewhere"))
        (void)snprintf(text, cap, "a draft model of %s beside the first stage, in its node",
                       tsr_format_bytes(bytes, sizeof bytes,
                                        (uint64_t)tsr_planning_table_int(d, "elsewhere")));
    else if (tsr_planning_table_int(d, "total"))
        (void)snprintf(text, cap, "a draft model of %s on the first device",
                       tsr_format_bytes(bytes, sizeof bytes,
                                        (uint64_t)tsr_planning_table_int(d, "total")));
    else
        (void)snprintf(text, cap, "a draft model in memory that the cluster file does not have");
    return true;
}

void tsr_planning_table_problem(const json_t *r, const json_t *plan, FILE *to)
{
    const json_t *work = json_object_get(r, "workload");
    char          text[TSR_TABLE_SENTENCE];
    size_t        at;
    at = (size_t)snprintf(text, sizeof text, "%.600s: %lld layers of %lld, %lld heads",
                          tsr_planning_table_text(r, "model"), tsr_planning_table_int(r, "layers"),
                          tsr_planning_table_int(r, "hidden"), tsr_planning_table_int(r, "heads"));
    if (tsr_planning_table_int(r, "heads") != tsr_planning_table_int(r, "kv_heads"))
        (void)snprintf(text + at, sizeof text - at, " on %lld of keys and values",
                       tsr_planning_table_int(r, "kv_heads"));
    tsr_planning_table_wrap(to, "model", text);
    const json_t *experts = json_object_get(r, "experts");
    if (experts) {
        long long groups = tsr_planning_table_int(experts, "groups");
        at =
            (size_t)snprintf(text, sizeof text, "%lld, of which a token takes %lld; frequencies %s",
                             tsr_planning_table_int(experts, "count"),
                             tsr_planning_table_int(experts, "used"),
                             strcmp(tsr_planning_table_text(experts, "frequencies"), "measured") ==
                                     0
                                 ? "measured by a calibration"
                                 : "not measured: every expert alike");
        const char *quality = tsr_planning_table_text(experts, "quality");
        if (groups)
            at += (size_t)snprintf(text + at, sizeof text - at, "; %lld groups", groups);
        if (*quality)
            (void)snprintf(text + at, sizeof text - at, ", %s",
                           strcmp(quality, "frequencies") == 0
                               ? "which share the layer's indicator by frequency"
                               : "each with its experts' own indicators");
        tsr_planning_table_wrap(to, "experts", text);
    }
    bool several = tsr_planning_table_int(json_object_get(r, "replicas"), "count") > 1;
    (void)snprintf(text, sizeof text, "%s: %lld device%s in %lld node%s%s",
                   tsr_planning_table_text(r, "cluster"), tsr_planning_table_int(r, "devices"),
                   tsr_planning_table_int(r, "devices") == 1 ? "" : "s",
                   tsr_planning_table_int(r, "nodes"),
                   tsr_planning_table_int(r, "nodes") == 1 ? "" : "s",
                   several ? " for each copy of the model" : "");
    tsr_planning_table_wrap(to, "cluster", text);
    at = (size_t)snprintf(text, sizeof text, "%lld requests%s",
                          tsr_planning_table_int(work, "batch"), several ? " for each copy" : "");
    if (tsr_planning_table_int(work, "batch") != tsr_planning_table_int(work, "concurrency"))
        at += (size_t)snprintf(text + at, sizeof text - at, ", %lld at once",
                               tsr_planning_table_int(work, "concurrency"));
    at += (size_t)snprintf(text + at, sizeof text - at, ", prompt %lld, generate %lld",
                           tsr_planning_table_int(work, "prompt"),
                           tsr_planning_table_int(work, "generate"));
    if (json_is_true(json_object_get(work, "distribution")))
        at += (size_t)snprintf(text + at, sizeof text - at, " on average, at most %lld together",
                               tsr_planning_table_int(work, "context"));
    const char *others = tsr_planning_table_text(plan, "kv_layers");
    at += (size_t)snprintf(text + at, sizeof text - at, ", cache of %s%s%.300s%s",
                           json_string_value(json_object_get(work, "kv")), *others ? " (" : "",
                           others, *others ? ")" : "");
    if (plan)
        (void)snprintf(text + at, sizeof text - at,
                       "; micro-batches of %lld in prefill, %lld in decode",
                       tsr_planning_table_int(plan, "prefill_mb"),
                       tsr_planning_table_int(plan, "decode_mb"));
    tsr_planning_table_wrap(to, "work", text);
    settings(r, plan, to);
    if (tsr_planning_table_draft(r, text, sizeof text))
        tsr_planning_table_wrap(to, "draft", text);
}
