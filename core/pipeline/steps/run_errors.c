#include "pipeline/steps/run_errors.h"

#include "pipeline/step.h"

#include <string.h>

#define BY_CODE "errors_by_code"

bool tsr_step_run_errors_put(const struct tsr_batch_reasons *r, json_t *result)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint64_t i = 0; i < r->n; i++) {
        json_t *one = json_object();
        ok = tsr_pipeline_json_put_text(one, "code", r->v[i].code) && ok;
        ok = tsr_pipeline_json_put_int(one, "records", r->v[i].records) && ok;
        ok = tsr_pipeline_json_put_int(one, "line", r->v[i].line) && ok;
        ok = tsr_pipeline_json_put_text(one, "message", r->v[i].message) && ok;
        ok = json_array_append_new(list, one) == 0 && ok;
    }
    return tsr_pipeline_json_put(result, BY_CODE, list) && ok;
}

static long long number(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* "3 of 29 records failed: 2 invalid_json, 1 poison" */
static void sum_up(const json_t *result, char *to, size_t cap)
{
    json_t *one;
    size_t  i;
    int     n = snprintf(to, cap, "%lld of %lld records failed", number(result, "errors"),
                         number(result, "records"));
    json_array_foreach (json_object_get(result, BY_CODE), i, one)
        if (n > 0 && (size_t)n < cap)
            n += snprintf(to + n, cap - (size_t)n, "%s %lld %s", i ? "," : ":",
                          number(one, "records"), text(one, "code"));
}

void tsr_step_run_errors_print(const json_t *result, FILE *to)
{
    char    all[1200];
    json_t *one;
    size_t  i;
    if (number(result, "errors") == 0)
        return;
    sum_up(result, all, sizeof all);
    (void)fprintf(to, "tessera: %s: %s\n", text(result, "output"), all);
    json_array_foreach (json_object_get(result, BY_CODE), i, one)
        (void)fprintf(to, "  %s, first in line %lld: %s\n", text(one, "code"), number(one, "line"),
                      text(one, "message"));
    if (number(result, "errors") == number(result, "records"))
        (void)fprintf(to, "  no record has an answer\n");
}

tsr_status tsr_step_run_errors_gate(const json_t *result, struct tsr_err *err)
{
    char all[1200];
    if (number(result, "errors") == 0)
        return TSR_OK;
    sum_up(result, all, sizeof all);
    return tsr_fail(err, TSR_E_CHECK,
                    "%s: %s; the output is whole, and fail_on_errors asks for this exit code",
                    text(result, "output"), all);
}
