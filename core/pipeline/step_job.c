/* What a step asks of its job. */
#include "pipeline/step.h"

tsr_status tsr_step_result(struct tsr_job *job, const char *name, json_t *j, struct tsr_err *err)
{
    char key[96];
    (void)snprintf(key, sizeof key, "%s", name);
    for (unsigned i = 2; json_object_get(job->results, key); i++)
        (void)snprintf(key, sizeof key, "%s[%u]", name, i);
    if (!j || json_object_set_new(job->results, key, j) != 0)
        return tsr_fail_nomem(err, 0, "the results");
    return TSR_OK;
}

tsr_status tsr_step_need_tokenizer(struct tsr_job *job, const char *what, struct tsr_err *err)
{
    TSR_TRY(tsr_job_need_model(job, err));
    if (job->tokenizer)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT, "%s reads text, and model '%s' has no tokenizer.json", what,
                    job->model_path);
}
