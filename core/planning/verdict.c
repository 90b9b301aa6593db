/* The message for a problem without a plan: what is short, and what would help. */
#include "base/mem.h"
#include "planning/planning.h"
#include "planning/table.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define SENTENCE TSR_TABLE_SENTENCE

static void say(char *text, size_t *at, size_t *n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void say(char *text, size_t *at, size_t *n, const char *fmt, ...)
{
    va_list v;
    if (*at + 3 >= SENTENCE)
        return;
    *at += (size_t)snprintf(text + *at, SENTENCE - *at, "%s", *n ? ", or " : "");
    va_start(v, fmt);
    if (*at < SENTENCE)
        *at += (size_t)vsnprintf(text + *at, SENTENCE - *at, fmt, v);
    va_end(v);
    ++*n;
}

/* "short by 2 GiB on each T4", the smallest shortage, or nothing. */
static bool lack(const json_t *r, char text[SENTENCE])
{
    const json_t *one;
    size_t        i;
    char          bytes[TSR_BYTES_TEXT];
    json_array_foreach (json_object_get(json_object_get(r, "remedies"), "memory"), i, one)
        if (json_is_true(json_object_get(one, "least"))) {
            (void)snprintf(text, SENTENCE, "short by %s on each %s",
                           tsr_format_bytes(bytes, sizeof bytes,
                                            (uint64_t)tsr_planning_table_int(one, "bytes")),
                           tsr_planning_table_text(one, "device"));
            return true;
        }
    return false;
}

/* Memory of two kinds of device together, or of one with a higher limit. */
static void memory_both(const json_t *pair, char text[SENTENCE], size_t *at, size_t *n)
{
    const json_t *devices = json_object_get(pair, "devices");
    const char   *first = json_string_value(json_array_get(devices, 0)),
               *second = json_string_value(json_array_get(devices, 1));
    double omega = tsr_planning_table_real(pair, "max_omega");
    char   bytes[TSR_BYTES_TEXT];
    tsr_format_bytes(bytes, sizeof bytes, (uint64_t)tsr_planning_table_int(pair, "bytes"));
    if (second)
        say(text, at, n, "%s more on each %s and each %s", bytes, first, second);
    else
        say(text, at, n, "%s more on each %s together with max_omega %.4g", bytes, first, omega);
}

/* "the candidate gptq-3, whose loss is not measured"; "" where the key is not there. */
static void scheme(const json_t *of, const char *key, const char *what, char text[120])
{
    const json_t *s = json_object_get(of, key);
    text[0] = '\0';
    if (s)
        (void)snprintf(text, 120, "%s %.40s%s", what, tsr_planning_table_text(s, "candidate"),
                       json_is_true(json_object_get(s, "known")) ? ""
                                                                 : ", whose loss is not measured");
}

/* Two changes together. */
static void both(const json_t *pair, char text[SENTENCE], size_t *at, size_t *n)
{
    char        batch[48], chunk[48], limit[48], narrow[120], ends[120];
    const char *parts[6], *kv = "a cache of int8";
    size_t      k = 0;
    double      omega = tsr_planning_table_real(pair, "max_omega");
    long long   few = tsr_planning_table_int(pair, "batch"),
              cut = tsr_planning_table_int(pair, "chunk");
    if (!pair)
        return;
    if (json_object_get(pair, "bytes")) {
        memory_both(pair, text, at, n);
        return;
    }
    (void)snprintf(batch, sizeof batch, "%lld request%s at once", few, few == 1 ? "" : "s");
    (void)snprintf(chunk, sizeof chunk, "chunks of %lld tokens", cut);
    (void)snprintf(limit, sizeof limit, "max_omega %.4g", omega);
    scheme(pair, "narrow", "the candidate", narrow);
    scheme(pair, "ends", "embedding and head by", ends);
    if (few)
        parts[k++] = batch;
    if (cut)
        parts[k++] = chunk;
    if (json_is_true(json_object_get(pair, "kv_int8")))
        parts[k++] = kv;
    if (isfinite(omega))
        parts[k++] = limit;
    if (*narrow)
        parts[k++] = narrow;
    if (*ends)
        parts[k++] = ends;
    if (k == 2)
        say(text, at, n, "%s together with %s", parts[0], parts[1]);
}

static void remedies(const json_t *r, char text[SENTENCE])
{
    const json_t *help = json_object_get(r, "remedies"), *one;
    size_t        at = 0, n = 0, i;
    char          bytes[TSR_BYTES_TEXT], one_scheme[120];
    text[0] = '\0';
    json_array_foreach (json_object_get(help, "memory"), i, one)
        if (json_is_true(json_object_get(one, "least")))
            say(text, &at, &n, "that much more there");
    json_array_foreach (json_object_get(help, "memory"), i, one)
        if (!json_is_true(json_object_get(one, "least")))
            say(text, &at, &n, "%s more on each %s",
                tsr_format_bytes(bytes, sizeof bytes,
                                 (uint64_t)tsr_planning_table_int(one, "bytes")),
                tsr_planning_table_text(one, "device"));
    json_array_foreach (json_object_get(help, "devices"), i, one)
        say(text, &at, &n, "%lld more %s in node %s", tsr_planning_table_int(one, "more"),
            tsr_planning_table_text(one, "device"), tsr_planning_table_text(one, "node"));
    if (tsr_planning_table_int(help, "batch"))
        say(text, &at, &n, "%lld request%s at once", tsr_planning_table_int(help, "batch"),
            tsr_planning_table_int(help, "batch") == 1 ? "" : "s");
    if (tsr_planning_table_int(help, "prompt"))
        say(text, &at, &n, "prompts of %lld tokens", tsr_planning_table_int(help, "prompt"));
    if (json_is_true(json_object_get(help, "kv_int8")))
        say(text, &at, &n, "a cache of int8");
    if (tsr_planning_table_int(help, "chunk"))
        say(text, &at, &n, "chunks of %lld tokens", tsr_planning_table_int(help, "chunk"));
    scheme(help, "narrow", "the candidate", one_scheme);
    if (*one_scheme)
        say(text, &at, &n, "%s", one_scheme);
    scheme(help, "ends", "embedding and head by", one_scheme);
    if (*one_scheme)
        say(text, &at, &n, "%s", one_scheme);
    both(json_object_get(help, "pair"), text, &at, &n);
    if (isfinite(tsr_planning_table_real(help, "max_omega")))
        say(text, &at, &n, "max_omega %.4g instead of %.4g",
            tsr_planning_table_real(help, "max_omega"), tsr_planning_table_real(r, "max_omega"));
    if (isfinite(tsr_planning_table_real(help, "max_ttft_ms")))
        say(text, &at, &n, "at_most: {ttft_s: %.4g} instead of %.4g",
            tsr_planning_table_real(help, "max_ttft_ms") / 1e3,
            tsr_planning_table_real(r, "max_ttft_ms") / 1e3);
}

tsr_status tsr_planning_verdict(const json_t *r, struct tsr_err *err)
{
    const json_t *plan = json_object_get(r, "plan");
    const char   *status = tsr_planning_table_text(plan, "status");
    const char   *lacks = tsr_planning_table_text(r, "kernels_left_out");
    char          text[SENTENCE], missing[SENTENCE], reason[SENTENCE], draft[120];
    if (strcmp(status, "optimal") == 0 || strcmp(status, "feasible") == 0)
        return TSR_OK;
    if (strcmp(status, "infeasible") != 0 && *tsr_planning_table_text(plan, "reason"))
        return tsr_fail(err, TSR_E_INFEASIBLE,
                        "solver \"%s\" has no plan: %s; that says nothing of other solvers: try "
                        "\"exact\"",
                        tsr_planning_table_text(plan, "solver"),
                        tsr_planning_table_text(plan, "reason"));
    if (strcmp(status, "infeasible") != 0)
        return tsr_fail(err, TSR_E_NUMERIC,
                        "solver \"%s\" found no plan in time, and no proof that none exists; try "
                        "a longer time_limit or another solver",
                        tsr_planning_table_text(plan, "solver"));
    remedies(r, text);
    size_t at = 0;
    reason[0] = '\0';
    if (isfinite(tsr_planning_table_real(r, "max_ttft_ms")))
        at = (size_t)snprintf(reason, sizeof reason, "with at_most: {ttft_s: %g}, ",
                              tsr_planning_table_real(r, "max_ttft_ms") / 1e3);
    if (tsr_planning_table_draft(r, draft, sizeof draft))
        at += (size_t)snprintf(reason + at, sizeof reason - at, "with %s, ", draft);
    (void)snprintf(reason + at, sizeof reason - at, "%s%s%s%s",
                   tsr_planning_table_text(plan, "reason"), *lacks ? " (" : "", lacks,
                   *lacks ? ")" : "");
    if (!*text)
        return tsr_fail(err, TSR_E_INFEASIBLE, "no plan exists: %s", reason);
    if (!lack(r, missing))
        return tsr_fail(err, TSR_E_INFEASIBLE, "no plan exists: %s; there is one with %s", reason,
                        text);
    return tsr_fail(err, TSR_E_INFEASIBLE, "no plan exists: %s (%s); there is one with %s", missing,
                    reason, text);
}
