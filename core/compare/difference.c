/* A paired difference as JSON. */
#include "compare/compare.h"

bool tsr_compare_json_put_difference(json_t *o, const char *key,
                                     const struct tsr_eval_difference *d)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_real(j, "mean", d->mean) &&
              tsr_pipeline_json_put_real(j, "naive_se", d->naive_se) &&
              tsr_pipeline_json_put_real(j, "se", d->se) &&
              tsr_pipeline_json_put_real(j, "low", d->low) &&
              tsr_pipeline_json_put_real(j, "high", d->high) &&
              tsr_pipeline_json_put_real(j, "p", d->p) &&
              tsr_pipeline_json_put_real(j, "detectable", d->detectable) &&
              tsr_pipeline_json_put_int(j, "n", d->n) &&
              tsr_pipeline_json_put_int(j, "windows", d->clusters);
    return tsr_pipeline_json_put(o, key, j) && ok;
}
