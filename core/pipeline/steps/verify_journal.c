#include "pipeline/steps/verify_journal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "pipeline/run_identity.h"
#include "pipeline/step.h"
#include "planning/planning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT    "tessera.verify/1"
#define MAX_BYTES (UINT64_C(1) << 20)
#define MAX_DEPTH 16u

static tsr_status journal(const struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *p,
                          char **path, struct tsr_err *err)
{
    char name[40] = "verify.json";
    if (p->nth > 1)
        (void)snprintf(name, sizeof name, "verify-%llu.json", (unsigned long long)p->nth);
    return tsr_pipeline_job_in_folder(job, name, path, err);
}

static tsr_status hash_input(const struct tsr_pipeline_job *job, const char *name, json_t *into,
                             const char *key, struct tsr_err *err)
{
    char       hash[TSR_HASH_TEXT];
    char      *path = tsr_pipeline_job_input(job, name);
    tsr_status st = path ? tsr_hash_file(path, hash, err) : tsr_fail_nomem(err, 64, "a path");
    free(path);
    if (st == TSR_OK && !tsr_pipeline_json_put_text(into, key, hash))
        st = tsr_fail_nomem(err, 64, "a verification");
    return st;
}

tsr_status tsr_step_verify_indicators(const struct tsr_pipeline_job       *job,
                                      const struct tsr_planning_plan_keys *k, char **path,
                                      struct tsr_err *err)
{
    const struct tsr_config_node *n = k->quality && k->quality->kind == TSR_CONFIG_NODE_MAP
                                          ? tsr_config_node_get(k->quality, "indicators")
                                          : NULL;
    const char                   *file = n ? n->text : tsr_pipeline_job_measured(job);
    *path = NULL;
    if (!file)
        return tsr_fail(err, TSR_E_BUG, "a plan without indicators is verified");
    if (tsr_pipeline_job_measures(job, file))
        return tsr_pipeline_job_in_folder(job, file, path, err);
    *path = tsr_pipeline_job_input(job, file);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(file), "a path");
}

/* The hash of what the attempts depend on: options, the model, the indicators and the text. */
static tsr_status identity(struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                           const struct tsr_planning_verify_keys *v, char hash[TSR_HASH_TEXT],
                           struct tsr_err *err)
{
    json_t  *j = json_object(), *options = tsr_config_node_json(tsr_config_doc_root(job->doc));
    char    *text = NULL, *path = NULL, measured[TSR_HASH_TEXT];
    uint64_t len;
    tsr_pipeline_run_strip_ways(options);
    (void)json_object_del(options, "model");
    bool       ok = options && j && json_object_set(j, "options", options) == 0;
    tsr_status st =
        ok ? tsr_pipeline_job_need_model(job, err) : tsr_fail_nomem(err, 256, "a verification");
    if (st == TSR_OK)
        st = tsr_step_verify_indicators(job, k, &path, err);
    if (st == TSR_OK)
        st = tsr_hash_file(path, measured, err);
    if (st == TSR_OK && !(tsr_pipeline_json_put_text(j, "version", TSR_VERSION) &&
                          tsr_pipeline_json_put_text(j, "model", job->model->hash) &&
                          tsr_pipeline_json_put_text(j, "indicators", measured)))
        st = tsr_fail_nomem(err, 256, "a verification");
    if (st == TSR_OK)
        st = hash_input(job, v->text, j, "text", err);
    if (st == TSR_OK)
        st = tsr_json_text(j, JSON_SORT_KEYS | JSON_COMPACT, &text, &len, err);
    if (st == TSR_OK)
        tsr_hash_bytes(text, len, hash);
    free(path);
    free(text);
    json_decref(options);
    json_decref(j);
    return st;
}

static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const json_t *newest(const json_t *attempts)
{
    size_t n = json_array_size(attempts);
    return n ? json_array_get(attempts, n - 1) : NULL;
}

double tsr_step_verify_next(const json_t *attempt)
{
    return real(attempt, "limit") * real(attempt, "kl") / real(attempt, "measured");
}

static tsr_status take_up(struct tsr_pipeline_job_step *p, const json_t *j, const char *path,
                          const char *hash, struct tsr_err *err)
{
    const char *format = json_string_value(json_object_get(j, "format"));
    const char *of = json_string_value(json_object_get(j, "job"));
    json_t     *attempts = json_object_get(j, "attempts");
    double      limit = tsr_step_verify_next(newest(attempts));
    if (!format || strcmp(format, FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a file of " FORMAT, path);
    if (!of || strcmp(of, hash) != 0) /* of another job that was in this folder */
        return TSR_OK;
    if (!json_is_array(attempts) || json_array_size(attempts) > TSR_STEP_VERIFY_AGAIN ||
        !(limit > 0))
        return tsr_fail(err, TSR_E_INPUT, "%s: has no attempts that can be taken up", path);
    p->attempts = json_incref(attempts);
    p->limit = limit;
    tsr_logf(TSR_LOG_INFO, "%s: goes on with attempt %zu, at a KL of at most %.4g", path,
             json_array_size(attempts) + 1, limit);
    return TSR_OK;
}

/* The journal that is there, if this job wrote it. */
static tsr_status read(struct tsr_pipeline_job *job, struct tsr_pipeline_job_step *p,
                       const char *path, struct tsr_err *err)
{
    struct tsr_planning_verify_keys v;
    struct tsr_diag                *d = NULL;
    char                            hash[TSR_HASH_TEXT];
    json_t                         *j = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_planning_verify_fill(&v, p->opts, d);
    tsr_status st = identity(job, p->opts, &v, hash, err);
    if (st == TSR_OK)
        st = tsr_json_load(&j, path, MAX_BYTES, MAX_DEPTH, err);
    if (st == TSR_OK)
        st = take_up(p, j, path, hash, err);
    tsr_config_diag_destroy(d);
    json_decref(j);
    return st;
}

tsr_status tsr_step_verify_resume(struct tsr_pipeline_job *job, struct tsr_pipeline_job_step *p,
                                  struct tsr_err *err)
{
    char *path = NULL;
    TSR_TRY(journal(job, p, &path, err));
    tsr_status st = job->state->options.again ? tsr_output_remove(path, err)
                    : tsr_path_exists(path)   ? read(job, p, path, err)
                                              : TSR_OK;
    free(path);
    return st;
}

tsr_status tsr_step_verify_keep(struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *p,
                                const struct tsr_planning_verify_keys *v, struct tsr_err *err)
{
    char    hash[TSR_HASH_TEXT], *path = NULL;
    json_t *j = NULL;
    TSR_TRY(identity(job, p->opts, v, hash, err));
    TSR_TRY(journal(job, p, &path, err));
    j = json_pack("{s:s, s:s, s:O}", "format", FORMAT, "job", hash, "attempts", p->attempts);
    tsr_status st = j ? tsr_json_store(path, j, JSON_INDENT(1) | JSON_REAL_PRECISION(17), err)
                      : tsr_fail_nomem(err, 256, "a verification");
    json_decref(j);
    free(path);
    return st;
}
