/* rotate: the model in a rotated basis, as a folder of its own; later steps take it in place of the job's. */
#include "pipeline/rotating.h"
#include "pipeline/step.h"

#include "pipeline/job.h"
#include "quant/quantize.h"

#include <stdlib.h>
#include <string.h>

struct rotate_options {
    struct tsr_pipeline_rotate_keys k;
    const char                     *to;
};

#define S struct rotate_options
static const struct tsr_option options[] = {
    TSR_PIPELINE_ROTATE_OPTIONS(S, k),
    TSR_OPTION_PATH(S, to, "rotated", "FOLDER",
                    "Folder to write the rotated model to; a job's is in its folder, unless the "
                    "path is absolute."),
};
#undef S

/* A choice in words: both of two, or one; NULL: none. */
static const char *words(const json_t *r, const char *key, const char *two)
{
    const char *s = json_string_value(json_object_get(r, key));
    return !s || strcmp(s, "none") == 0 ? NULL : strcmp(s, "both") == 0 ? two : s;
}

static void print(const json_t *r, FILE *to)
{
    const char *sites = words(r, "sites", "residual and heads");
    const char *online = words(r, "online", "keys and down");
    (void)fprintf(to, "rotated ");
    if (sites)
        (void)fprintf(to, "%s with %s matrices", sites,
                      json_string_value(json_object_get(r, "kind")));
    if (online)
        (void)fprintf(to, "%s%s at run time", sites ? ", and " : "", online);
    (void)fprintf(to, ", to %s: %lld tensors, %lld bytes%s\n",
                  json_string_value(json_object_get(r, "output")),
                  (long long)json_integer_value(json_object_get(r, "tensors")),
                  (long long)json_integer_value(json_object_get(r, "bytes")),
                  json_is_true(json_object_get(r, "untied")) ? ", with a separate LM head" : "");
}

/* Statistics and packed weights that steps before it made are of the model as it was. */
static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    static const char *const after[] = { "calibrate", "quantize", "compensate", "plan" };
    const struct tsr_pipeline_job_state *s = job->state;
    (void)opts;
    (void)err;
    for (uint64_t i = 0; i + 1 < s->n; i++)
        for (size_t k = 0; k < sizeof after / sizeof *after; k++)
            if (strcmp(s->steps[i].step->name, after[k]) == 0)
                tsr_config_diag_error(d, &node->mark, "put 'rotate' before it",
                                      "step '%s' before this one is about the model as it was",
                                      after[k]);
    return TSR_OK;
}

static json_t *result(const struct rotate_options *o, const struct tsr_export_report *r,
                      const char *folder, uint64_t seed, bool untied)
{
    json_t *j = json_object();
    if (tsr_pipeline_json_put_text(j, "output", folder) &&
        tsr_pipeline_json_put_text(j, "kind", tsr_pipeline_rotate_kinds[o->k.kind].name) &&
        tsr_pipeline_json_put_text(j, "sites", tsr_pipeline_rotate_sites_name(o->k.sites)) &&
        tsr_pipeline_json_put_text(j, "online", tsr_pipeline_rotate_online_name(o->k.online)) &&
        tsr_pipeline_json_put_int(j, "seed", seed) &&
        tsr_pipeline_json_put_int(j, "tensors", r->tensors) &&
        tsr_pipeline_json_put_int(j, "bytes", r->bytes) &&
        tsr_pipeline_json_put(j, "untied", json_boolean(untied)))
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct rotate_options *o = opts;
    struct tsr_rotate_options    how;
    struct tsr_export_report     report;
    char                        *folder = NULL;
    (void)node;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    TSR_TRY(tsr_pipeline_job_output(job, o->to, &folder, err));
    how = tsr_pipeline_rotate_options(job, &o->k);
    how.replace = !job->loose && *o->to != '/';
    bool       untied = job->model->hp.tied && how.sites & TSR_ROTATE_RESIDUAL;
    tsr_status st = tsr_rotate(job->model, folder, &how, &report, err);
    json_t    *j = st == TSR_OK ? result(o, &report, folder, how.seed, untied) : NULL;
    if (st == TSR_OK && j && !job->json)
        print(j, stdout);
    if (st == TSR_OK && !job->loose)
        st = tsr_pipeline_job_replace_model(job, folder, err);
    free(folder);
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    return tsr_pipeline_step_result(job, "rotate", j, err);
}

const struct tsr_pipeline_step tsr_step_rotate = {
    .name = "rotate",
    .summary = "rotates hidden state and values, so that weights and activations have no outliers",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct rotate_options),
    .check = check,
    .run = run,
    .print = print,
    .streams = true,
};
