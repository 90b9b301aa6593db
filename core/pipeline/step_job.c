/* Queries of a step about its job. */
#include "pipeline/step.h"

tsr_status tsr_pipeline_step_result(struct tsr_pipeline_job *job, const char *name, json_t *j,
                                    struct tsr_err *err)
{
    char key[96];
    (void)snprintf(key, sizeof key, "%s", name);
    for (unsigned i = 2; json_object_get(job->results, key); i++)
        (void)snprintf(key, sizeof key, "%s[%u]", name, i);
    if (!j || json_object_set_new(job->results, key, j) != 0)
        return tsr_fail_nomem(err, 0, "the results");
    return TSR_OK;
}

tsr_status tsr_pipeline_step_need_tokenizer(struct tsr_pipeline_job *job, const char *what,
                                            struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    TSR_TRY(tsr_pipeline_job_find_tokenizer(job, err));
    if (job->tokenizer)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT, "%s reads text, and model '%s' has no tokenizer.json", what,
                    job->model_path);
}

tsr_status tsr_pipeline_job_note_model(struct tsr_pipeline_job *job, const char *path,
                                       const char *hash, struct tsr_err *err)
{
    json_t *list = json_object_get(job->manifest, "models"), *one, *v;
    size_t  i;
    if (!list && tsr_pipeline_json_put(job->manifest, "models", json_array()))
        list = json_object_get(job->manifest, "models");
    json_array_foreach (list, i, v) {
        const char *known = json_string_value(json_object_get(v, "path"));
        if (known && strcmp(known, path) == 0)
            return TSR_OK;
    }
    one = json_object();
    bool ok = tsr_pipeline_json_put_text(one, "path", path) &&
              tsr_pipeline_json_put_text(one, "hash", hash);
    ok = json_array_append_new(list, one) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "the manifest");
}
