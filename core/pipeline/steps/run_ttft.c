#include "pipeline/steps/run_ttft.h"

#include "base/mem.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool put_each(json_t *j, const struct tsr_batch_ttft *t)
{
    json_t *each = json_array();
    bool    ok = each != NULL;
    for (uint64_t i = 0; ok && i < t->records; i++)
        ok = json_array_append_new(each, t->s[i] < 0 ? json_null() : json_real(t->s[i])) == 0;
    return tsr_pipeline_json_put(j, "each", each) && ok;
}

tsr_status tsr_step_run_ttft_put(const struct tsr_batch_ttft *t, json_t *results,
                                 struct tsr_err *err)
{
    if (t->n == 0)
        return TSR_OK;
    double  *v = tsr_new(t->n, sizeof *v);
    json_t  *j = v ? json_object() : NULL;
    uint64_t n = 0;
    for (uint64_t i = 0; v && i < t->records; i++)
        if (t->s[i] >= 0)
            v[n++] = t->s[i];
    bool ok = j != NULL;
    if (ok) {
        qsort(v, n, sizeof *v, ascending);
        ok = tsr_pipeline_json_put_int(j, "records", n) &&
             tsr_pipeline_json_put_real(j, "least", v[0]) &&
             tsr_pipeline_json_put_real(j, "median", (v[(n - 1) / 2] + v[n / 2]) / 2) &&
             tsr_pipeline_json_put_real(j, "most", v[n - 1]) &&
             (t->records > TSR_TTFT_EACH || put_each(j, t));
    }
    free(v);
    if (ok && tsr_pipeline_json_put(results, "ttft_s", json_incref(j))) {
        json_decref(j);
        return TSR_OK;
    }
    json_decref(j);
    return tsr_fail_nomem(err, t->n * sizeof *v, "the times of first tokens");
}

void tsr_step_run_ttft_print(const json_t *results, FILE *to)
{
    const json_t *t = json_object_get(results, "ttft_s");
    if (!t)
        return;
    (void)fprintf(to, "first tokens after %.3f s (median of %lld records; %.3f to %.3f s)\n",
                  json_number_value(json_object_get(t, "median")),
                  (long long)json_integer_value(json_object_get(t, "records")),
                  json_number_value(json_object_get(t, "least")),
                  json_number_value(json_object_get(t, "most")));
}
