/* The plan's text output: the labelled lines below the table of stages. */
#include "planning/table.h"

#include "base/mem.h"

#include "planning/planning.h"

#include <math.h>
#include <string.h>

#define CELL     TSR_TABLE_CELL
#define SENTENCE TSR_TABLE_SENTENCE

/* Whether hidden rows go back from the last of several stages to the head. */
static bool comes_back(const json_t *r, const json_t *plan)
{
    return strcmp(tsr_planning_table_text(r, "head"), "first") == 0 &&
           json_array_size(json_object_get(plan, "stages")) > 1;
}

/* "KL 0.031 (0.028 to 0.034) nats per token: weights 0.030, cache 0.001; at most 0.05" */
static void kl(const json_t *r, const json_t *plan, FILE *to)
{
    static const char *const keys[] = { "weights", "kv", "links", "sums", "compensation", "ends" };
    static const char *const names[] = {
        "weights", "cache", "links", "sums", "compensation", "ends"
    };
    const json_t *parts = json_object_get(plan, "parts"),
                 *interval = json_object_get(plan, "kl_interval");
    char   text[SENTENCE];
    size_t at, n = 0;
    if (!parts)
        return;
    at = (size_t)snprintf(text, sizeof text, "%.4g", tsr_planning_table_real(plan, "kl"));
    if (json_array_size(interval) == 2)
        at += (size_t)snprintf(text + at, sizeof text - at, " (%.4g to %.4g)",
                               json_number_value(json_array_get(interval, 0)),
                               json_number_value(json_array_get(interval, 1)));
    at += (size_t)snprintf(text + at, sizeof text - at, " nats per token, perplexity %+.2f %%",
                           100 * expm1(tsr_planning_table_real(plan, "kl")));
    if (tsr_planning_table_real(r, "max_kl") > 0)
        at += (size_t)snprintf(text + at, sizeof text - at, "; at most %.4g",
                               tsr_planning_table_real(r, "max_kl"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (fabs(tsr_planning_table_real(parts, keys[i])) > 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %.3g", n++ ? ", " : "; ",
                                   names[i], tsr_planning_table_real(parts, keys[i]));
    tsr_planning_table_wrap(to, "KL", text);
}

static void totals(const json_t *r, const json_t *plan, FILE *to)
{
    char   text[SENTENCE], a[CELL], b[CELL];
    double limit = tsr_planning_table_real(r, "max_omega"),
           theta = tsr_planning_table_real(r, "theta");
    double gap =
        tsr_planning_table_real(plan, "objective_ms") - tsr_planning_table_real(plan, "bound_ms");
    double rounds = fmax((double)tsr_planning_table_int(plan, "rounds"), 1),
           round = tsr_planning_table_real(plan, "objective_ms"); /* what the solver minimised */
    bool paper = strcmp(tsr_planning_table_text(r, "objective"), "paper") == 0;
    bool back =
        comes_back(r, plan); /* which an instance cannot count as it is (plan/search/build.h) */
    /* of the whole batch; requests that take freed slots take less than a round of their own */
    double whole = paper || back ? rounds * round
                                 : tsr_planning_table_real(plan, "latency_ms") +
                                       theta * tsr_planning_table_real(plan, "omega");
    size_t at =
        (size_t)snprintf(text, sizeof text, "%s",
                         tsr_planning_table_time(tsr_planning_table_real(plan, "latency_ms"), a));
    if (tsr_planning_table_int(plan, "rounds") > 1)
        at += (size_t)snprintf(text + at, sizeof text - at, " in %lld rounds",
                               tsr_planning_table_int(plan, "rounds"));
    at += (size_t)snprintf(text + at, sizeof text - at, "; prompts done after %s",
                           tsr_planning_table_time(tsr_planning_table_real(plan, "ttft_ms"), b));
    if (isfinite(tsr_planning_table_real(r, "max_ttft_ms")))
        at +=
            (size_t)snprintf(text + at, sizeof text - at, " of at most %s",
                             tsr_planning_table_time(tsr_planning_table_real(r, "max_ttft_ms"), b));
    (void)snprintf(text + at, sizeof text - at, "; %.4g tokens/s%s",
                   tsr_planning_table_real(plan, "tokens_per_second"),
                   tsr_planning_table_int(json_object_get(r, "replicas"), "count") > 1
                       ? " for each copy"
                       : "");
    tsr_planning_table_wrap(to, "latency", text);
    if (theta > 0 || paper || back) {
        (void)snprintf(text, sizeof text, "%s%s%s is what was minimised%s",
                       tsr_planning_table_time(whole, a),
                       paper ? " by the formula of the paper" : "",
                       theta > 0 ? ", quality included," : "",
                       back ? ", the way back counted as work of the last stage" : "");
        tsr_planning_table_wrap(to, "objective", text);
    }
    at = (size_t)snprintf(text, sizeof text, "omega %.4g", tsr_planning_table_real(plan, "omega"));
    if (isfinite(limit))
        at += (size_t)snprintf(text + at, sizeof text - at, " of at most %.4g%s%s%s", limit,
                               *tsr_planning_table_text(r, "at_least") ? " (" : "",
                               tsr_planning_table_text(r, "at_least"),
                               *tsr_planning_table_text(r, "at_least") ? ")" : "");
    if (json_is_true(json_object_get(r, "knee")))
        at += (size_t)snprintf(text + at, sizeof text - at, " (the knee of the front)");
    if (theta > 0)
        at += (size_t)snprintf(text + at, sizeof text - at, ", worth %.4g ms a unit", theta);
    if (tsr_planning_table_real(r, "at_most_ms") > 0)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, ", the least in %s",
                             tsr_planning_table_time(tsr_planning_table_real(r, "at_most_ms"), a));
    (void)snprintf(text + at, sizeof text - at, "; quality: %s",
                   tsr_planning_table_text(r, "quality"));
    tsr_planning_table_wrap(to, "quality", text);
    kl(r, plan, to);
    if (!*tsr_planning_table_text(plan, "solver"))
        return; /* a file, not a search */
    at = (size_t)snprintf(text, sizeof text, "%s: %s", tsr_planning_table_text(plan, "solver"),
                          tsr_planning_table_text(plan, "status"));
    if (tsr_planning_table_real(plan, "bound_ms") > 0)
        at += (size_t)snprintf(
            text + at, sizeof text - at, ", nothing is below %s (gap %.2g %%)",
            tsr_planning_table_time(whole * tsr_planning_table_real(plan, "bound_ms") / round, a),
            100 * fmax(gap, 0) / tsr_planning_table_real(plan, "objective_ms"));
    else
        at += (size_t)snprintf(text + at, sizeof text - at, ", without a bound");
    if (tsr_planning_table_int(plan, "settings") > 1)
        at += (size_t)snprintf(text + at, sizeof text - at, " over %lld settings",
                               tsr_planning_table_int(plan, "settings"));
    at += (size_t)snprintf(text + at, sizeof text - at, "; %.2g s",
                           tsr_planning_table_real(plan, "seconds"));
    if (!json_is_true(json_object_get(plan, "joint")))
        at += (size_t)snprintf(text + at, sizeof text - at, ", %lld choice%s of widths",
                               tsr_planning_table_int(plan, "width_choices"),
                               tsr_planning_table_int(plan, "width_choices") == 1 ? "" : "s");
    (void)tsr_planning_table_ignored(plan, "; not considered: ", text + at, sizeof text - at);
    tsr_planning_table_wrap(to, "solver", text);
}

static const char *weaker(const char *a, const json_t *stage, const char *key)
{
    const char *b = tsr_planning_table_text(stage, key);
    for (int i = TSR_PLAN_ROOFLINE; i > TSR_PLAN_MEASURED; i--) {
        const char *name = tsr_plan_basis_name((enum tsr_basis)i);
        if (strcmp(a, name) == 0 || strcmp(b, name) == 0)
            return name;
    }
    return a;
}

/* "T4 fitted, extrapolated; V100-32G measured, ends roofline": once for each mesh, the weakest of its
 * stages. */
static void times(const json_t *list, FILE *to)
{
    char          text[SENTENCE] = "";
    size_t        at = 0, i, k;
    const json_t *s, *o;
    json_array_foreach (list, i, s) {
        const char *mesh = tsr_planning_table_text(s, "mesh"),
                   *basis = tsr_planning_table_text(s, "times");
        const char *ends = tsr_planning_table_text(s, "ends_times");
        bool        seen = false, beyond = false;
        json_array_foreach (list, k, o) {
            if (strcmp(tsr_planning_table_text(o, "mesh"), mesh) != 0)
                continue;
            seen = seen || k < i;
            beyond = beyond || json_is_true(json_object_get(o, "extrapolated"));
            basis = weaker(basis, o, "times");
            ends = weaker(ends, o, "ends_times");
        }
        if (seen || at >= sizeof text)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %s%s%s%s", at ? "; " : "", mesh,
                               basis, beyond ? ", extrapolated" : "",
                               strcmp(basis, ends) != 0 ? ", embedding and head " : "",
                               strcmp(basis, ends) != 0 ? ends : "");
    }
    tsr_planning_table_wrap(to, "times", text);
}

/* "T4: others', LLM-PQ repository; RTX-4090: not measured": once for each profile. */
static void kernels(const json_t *list, FILE *to)
{
    char          text[SENTENCE] = "";
    size_t        at = 0, i, k;
    const json_t *s, *o;
    json_array_foreach (list, i, s) {
        const char *device = tsr_planning_table_text(s, "device");
        bool        seen = false;
        json_array_foreach (list, k, o)
            seen = seen || (k < i && strcmp(tsr_planning_table_text(o, "device"), device) == 0);
        if (!seen && at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s: %s", at ? "; " : "", device,
                                   tsr_planning_table_text(s, "kernels"));
    }
    tsr_planning_table_wrap(to, "kernels", text);
}

/* A head on the first stage, and the way back to it. */
static void master(const json_t *r, const json_t *plan, FILE *to)
{
    const json_t *list = json_object_get(plan, "stages");
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    char          text[SENTENCE], a[CELL], b[CELL];
    if (!comes_back(r, plan))
        return;
    (void)snprintf(text, sizeof text,
                   "embedding and head on stage 0; hidden rows come back to it in %s of a prefill "
                   "micro-batch and %s of a decode one",
                   tsr_planning_table_time(tsr_planning_table_real(last, "send_prefill_ms"), a),
                   tsr_planning_table_time(tsr_planning_table_real(last, "send_decode_ms"), b));
    tsr_planning_table_wrap(to, "master", text);
}

/* "stage 0: up to 32 of 1024 channels, ..." */
static void compensated(const json_t *list, FILE *to)
{
    const json_t *s;
    size_t        i;
    char          text[SENTENCE], bytes[TSR_BYTES_TEXT], ms[CELL];
    json_array_foreach (list, i, s) {
        const json_t *c = json_object_get(s, "compensation");
        if (!c)
            continue;
        size_t at = (size_t)snprintf(
            text, sizeof text,
            "stage %zu: up to %lld of 1024 channels, residuals of %lld "
            "bits%s, %s",
            i, tsr_planning_table_int(c, "k"), tsr_planning_table_int(c, "bits"),
            json_is_true(json_object_get(c, "assumed")) ? " (the model has none yet)" : "",
            tsr_format_bytes(bytes, sizeof bytes, (uint64_t)tsr_planning_table_int(c, "bytes")));
        if (json_is_true(json_object_get(c, "host")) &&
            isfinite(tsr_planning_table_real(c, "decode_ms")))
            (void)snprintf(text + at, sizeof text - at,
                           " in the host's memory; a decode micro-batch takes %s longer",
                           tsr_planning_table_time(tsr_planning_table_real(c, "decode_ms"), ms));
        else if (json_is_true(json_object_get(c, "host")))
            (void)snprintf(text + at, sizeof text - at,
                           " in the host's memory; the time to read them is not counted, the "
                           "profile of %s does not say how fast (host)",
                           tsr_planning_table_text(s, "device"));
        else
            (void)snprintf(text + at, sizeof text - at,
                           " in the device's memory, counted with the weights, and %s of a decode "
                           "micro-batch",
                           tsr_planning_table_time(tsr_planning_table_real(c, "decode_ms"), ms));
        tsr_planning_table_wrap(to, "made up", text);
    }
}

/* The values of a checked file, compared with their current ones. */
static void said(const json_t *r, const json_t *plan, FILE *to)
{
    const json_t *f = json_object_get(r, "said");
    char          text[SENTENCE], ms[CELL];
    double        before = tsr_planning_table_real(f, "latency_ms");
    if (!f)
        return;
    size_t at = (size_t)snprintf(text, sizeof text, "%.600s", tsr_planning_table_text(f, "file"));
    if (isfinite(before))
        at += (size_t)snprintf(text + at, sizeof text - at, " says %s (%+.2f %% now), omega %.4g",
                               tsr_planning_table_time(before, ms),
                               100 * (tsr_planning_table_real(plan, "latency_ms") / before - 1),
                               tsr_planning_table_real(f, "omega"));
    if (!json_is_true(json_object_get(f, "same_work")))
        (void)snprintf(text + at, sizeof text - at,
                       "; it was made for %lld requests of %lld + %lld tokens",
                       tsr_planning_table_int(f, "batch"), tsr_planning_table_int(f, "prompt"),
                       tsr_planning_table_int(f, "generate"));
    tsr_planning_table_wrap(to, "checked", text);
}

static void baselines(const json_t *r, const json_t *plan, FILE *to)
{
    const json_t *list = json_object_get(r, "baselines"), *b;
    double        here = tsr_planning_table_real(plan, "latency_ms");
    size_t        i;
    char          bits[400], ms[CELL];
    if (!json_array_size(list))
        return;
    (void)fprintf(to, "\n%-16s %10s %9s %10s %9s  %s\n", "same work under", "latency", "",
                  "tokens/s", "omega", "bits");
    json_array_foreach (list, i, b) {
        double t = tsr_planning_table_real(b, "latency_ms");
        if (isfinite(t)) {
            (void)fprintf(to, "  %-14.14s %10s %+7.1f %% %10.4g %9.4g  %s\n",
                          tsr_planning_table_text(b, "solver"), tsr_planning_table_time(t, ms),
                          100 * (t / here - 1), tsr_planning_table_real(b, "tokens_per_second"),
                          tsr_planning_table_real(b, "omega"),
                          tsr_planning_table_bits(r, json_object_get(b, "bits"), bits,
                                                  sizeof bits));
            continue;
        }
        char label[CELL], text[SENTENCE];
        bool none = strcmp(tsr_planning_table_text(b, "status"), "refused") == 0;
        (void)snprintf(label, sizeof label, "  %.20s ", tsr_planning_table_text(b, "solver"));
        const char *why = tsr_planning_table_text(b, "reason");
        (void)snprintf(text, sizeof text, "%s: %.600s", none ? "not solved" : "no plan",
                       *why ? why : "none was found, and it is not proved that none exists");
        tsr_planning_table_wrap(to, label, text);
    }
    tsr_planning_table_not_considered(list, to);
}

static void wider(const json_t *r, const json_t *plan, FILE *to)
{
    const json_t *w;
    double        here = tsr_planning_table_real(plan, "latency_ms");
    size_t        i;
    char          text[SENTENCE], ms[CELL], bytes[TSR_BYTES_TEXT];
    json_array_foreach (json_object_get(r, "wider"), i, w) {
        const json_t *lack = json_object_get(w, "short");
        double        t = tsr_planning_table_real(w, "latency_ms");
        char          label[CELL];
        (void)snprintf(label, sizeof label, "all at %.20s",
                       tsr_planning_table_candidate(r, tsr_planning_table_text(w, "candidate")));
        if (isfinite(t))
            (void)snprintf(text, sizeof text, "fits: %s, %+.1f %%, omega %.4g",
                           tsr_planning_table_time(t, ms), 100 * (t / here - 1),
                           tsr_planning_table_real(w, "omega"));
        else if (json_is_object(lack))
            (void)snprintf(text, sizeof text, "does not fit: short by %s on each %s",
                           tsr_format_bytes(bytes, sizeof bytes,
                                            (uint64_t)tsr_planning_table_int(lack, "bytes")),
                           tsr_planning_table_text(lack, "device"));
        else
            (void)snprintf(text, sizeof text, "%s: %.600s", tsr_planning_table_text(w, "status"),
                           tsr_planning_table_text(w, "reason"));
        tsr_planning_table_wrap(to, label, text);
    }
}

void tsr_planning_print(const json_t *r, FILE *to)
{
    const json_t *plan = json_object_get(r, "plan");
    const json_t *fits = json_object_get(r, "largest");
    const json_t *list = json_object_get(plan, "stages");
    char          text[SENTENCE];
    if (json_object_get(r, "fleet")) {
        tsr_planning_fleet_print(r, to);
        return;
    }
    tsr_planning_table_problem(r, plan, to);
    tsr_planning_replicas_print(r, to);
    tsr_planning_table_stages(r, list, to);
    (void)fputc('\n', to);
    totals(r, plan, to);
    times(list, to);
    kernels(list, to);
    master(r, plan, to);
    tsr_planning_table_codecs(r, list, to);
    if (json_is_object(fits)) {
        (void)snprintf(text, sizeof text,
                       "at most %lld requests at once of this length, or prompts of %lld tokens",
                       tsr_planning_table_int(fits, "batch"),
                       tsr_planning_table_int(fits, "prompt"));
        tsr_planning_table_wrap(to, "it holds", text);
    }
    wider(r, plan, to);
    if (*tsr_planning_table_text(r, "widths_left_out"))
        tsr_planning_table_wrap(to, "left out", tsr_planning_table_text(r, "widths_left_out"));
    if (*tsr_planning_table_text(r, "kernels_left_out"))
        tsr_planning_table_wrap(to, "left out", tsr_planning_table_text(r, "kernels_left_out"));
    compensated(list, to);
    said(r, plan, to);
    baselines(r, plan, to);
    tsr_planning_verify_print(r, to);
    tsr_planning_front_print(r, to);
    tsr_planning_table_explained(r, plan, to);
}
