/* Verdicts for people and for programs. */
#include "conformance/internal.h"

#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *verdict_name(enum tsr_verdict v)
{
    static const char *const names[] = {
        "passed", "warning", "failed", "skipped", "crashed", "hung"
    };
    return (unsigned)v < sizeof names / sizeof *names ? names[v] : "unknown";
}

void tsr_conformance_check_print(const struct tsr_conformance_check_result *r, FILE *to)
{
    (void)fprintf(to, "%-8s %s%s%s", verdict_name(r->verdict), r->component ? r->component : "file",
                  ": ", r->rule->name);
    if (r->text)
        (void)fprintf(to, ": %s", r->text);
    (void)fputc('\n', to);
    if (r->verdict != TSR_CONFORMANCE_PASS && r->verdict != TSR_CONFORMANCE_SKIP)
        (void)fprintf(to, "         the rule: %s\n", r->rule->text);
}

/* A value that JSON cannot hold is null. */
static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* Of lines "NAME\tVALUE\tUNIT"; NULL: out of memory. */
static json_t *figures_json(const char *lines)
{
    json_t *list = json_array();
    for (const char *s = lines; s && *s; s = strchr(s, '\n') + 1) {
        const char *value = strchr(s, '\t') + 1, *unit = strchr(value, '\t') + 1;
        tsr_json_add(&list,
                     json_pack("{s:s%, s:o, s:s%}", "name", s, (size_t)(value - 1 - s), "value",
                               number(strtod(value, NULL)), "unit", unit, strcspn(unit, "\n")));
    }
    return list;
}

static json_t *result_json(const struct tsr_conformance_check_report *report,
                           const struct tsr_conformance_check_result *r)
{
    return json_pack("{s:s, s:s?, s:s, s:s?, s:s, s:I, s:f, s:o}", "rule", r->rule->name,
                     "component", r->component, "verdict", verdict_name(r->verdict), "text",
                     r->text, "wants", r->rule->text, "seed", (json_int_t)report->seed, "seconds",
                     r->seconds, "figures", figures_json(r->figures));
}

json_t *tsr_conformance_check_json(const struct tsr_conformance_check_report *r)
{
    json_t *list = json_array();
    for (uint64_t i = 0; list && i < r->n; i++)
        if (json_array_append_new(list, result_json(r, &r->results[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    if (!list)
        return NULL;
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:I, s:I, s:I, s:I}", "format", "tessera.check/1",
                     "version", TSR_VERSION, "plugin", r->path, "seed", (json_int_t)r->seed,
                     "rules", list, "passed", (json_int_t)r->passed, "failed",
                     (json_int_t)r->failed, "warnings", (json_int_t)r->warned, "skipped",
                     (json_int_t)r->skipped);
}
