/* Whether results are of the same plugins, inputs and models as those of today. */
#include "pipeline/job.h"
#include "pipeline/run_identity.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/prepacked/prepacked.h"
#include "model/family.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Plugins that took part must be the same files still. */
static void check_plugins(const struct tsr_pipeline_job *job, const json_t *old,
                          struct tsr_differences *d)
{
    size_t  i;
    json_t *p;
    json_array_foreach (json_object_get(old, "plugins"), i, p) {
        const char *id = json_string_value(json_object_get(p, "id"));
        const char *hash = json_string_value(json_object_get(p, "hash"));
        char        what[200];
        for (uint64_t k = 0; id && hash && k < tsr_plugin_registry_count(job->registry); k++) {
            const struct tsr_plugin_info *info = tsr_plugin_registry_plugin(job->registry, k);
            if (strcmp(info->plugin->id, id) != 0 || strcmp(info->hash, hash) == 0)
                continue;
            (void)snprintf(what, sizeof what, "build of plugin %.150s", id);
            tsr_differences_say(d, what, hash, info->hash);
        }
    }
}

static tsr_status check_inputs(const json_t *old, struct tsr_differences *d, struct tsr_err *err)
{
    size_t  i;
    json_t *p;
    json_array_foreach (json_object_get(old, "inputs"), i, p) {
        const char *path = json_string_value(json_object_get(p, "path"));
        const char *hash = json_string_value(json_object_get(p, "hash"));
        char        now[TSR_HASH_TEXT] = "absent", what[400];
        if (!path || !hash)
            continue;
        /* the job may have moved with its inputs: their places now are those of this run */
        if (tsr_path_exists(path))
            TSR_TRY(tsr_hash_file(path, now, err));
        (void)snprintf(what, sizeof what, "content of %.350s", path);
        if (strcmp(now, hash) != 0)
            tsr_differences_say(d, what, hash, now);
    }
    return TSR_OK;
}

static bool newer(const struct stat *a, const struct stat *b)
{
    if (a->st_ctim.tv_sec != b->st_ctim.tv_sec)
        return a->st_ctim.tv_sec > b->st_ctim.tv_sec;
    return a->st_ctim.tv_nsec > b->st_ctim.tv_nsec;
}

/* Did anything in the model's folder change since the results were written? */
static bool model_touched(const char *folder, const char *results)
{
    struct stat then, now;
    bool        touched = false;
    if (stat(results, &then) != 0)
        return true;
    DIR *dir = opendir(folder);
    if (!dir) /* a model may be one file */
        return stat(folder, &now) != 0 || newer(&now, &then);
    for (struct dirent *e; !touched && (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        touched = fstatat(dirfd(dir), e->d_name, &now, 0) != 0 || newer(&now, &then);
    }
    (void)closedir(dir);
    return touched;
}

/* Checks a mapped file against the hash in its index. */
static tsr_status verify(const struct tsr_pipeline_job *job, const struct tsr_model *m,
                         struct tsr_err *err)
{
    return m->prepacked ? tsr_prepacked_verify(m->prepacked,
                                               tsr_plugin_registry_pool(job->registry), NULL, err)
                        : TSR_OK;
}

/* moved: the job names another place than its manifest does, which may hold the same model. */
static tsr_status check_model(struct tsr_pipeline_job *job, const json_t *old, bool moved,
                              struct tsr_differences *d, struct tsr_err *err)
{
    json_t     *was = json_object_get(old, "model"), *is = NULL;
    const char *path = json_string_value(json_object_get(was, "path"));
    char       *folder = NULL, *results = NULL;
    if (!json_object_get(was, "hash")) { /* it was not loaded: only its path is known */
        if (moved)
            tsr_differences_say(d, "model", path ? path : "?", job->model_path);
        return TSR_OK;
    }
    TSR_TRY(tsr_model_resolve(job->model_path, &folder, err));
    tsr_status st = tsr_pipeline_job_in_folder(job, "results.json", &results, err);
    bool       family = tsr_model_family_added() > 0 || json_object_get(was, "family_hash");
    if (st == TSR_OK && (moved || family || model_touched(folder, results))) {
        st = tsr_pipeline_job_need_model(job, err);
        if (st == TSR_OK)
            st = verify(job, job->model, err);
        if (st == TSR_OK)
            st = tsr_pipeline_manifest_model(job, &is, err);
        if (st == TSR_OK) {
            (void)json_object_del(was, "path");
            (void)json_object_del(is, "path");
            tsr_differences_add(d, "model", was, is);
        }
    }
    json_decref(is);
    free(folder);
    free(results);
    return st;
}

static tsr_status check_other(const struct tsr_pipeline_job *job, const char *path,
                              const char *hash, struct tsr_differences *d, struct tsr_err *err)
{
    struct tsr_model *m = NULL;
    char              what[400];
    TSR_TRY(tsr_model_load(&m, path, false, err));
    tsr_status st = verify(job, m, err);
    (void)snprintf(what, sizeof what, "model at %.350s", path);
    if (st == TSR_OK && strcmp(m->hash, hash) != 0)
        tsr_differences_say(d, what, hash, m->hash);
    tsr_model_destroy(m);
    return st;
}

/* Additional models, which a comparison has as arms. */
static tsr_status check_models(const struct tsr_pipeline_job *job, const json_t *old,
                               struct tsr_differences *d, struct tsr_err *err)
{
    char      *results = NULL;
    size_t     i;
    json_t    *one;
    tsr_status st = tsr_pipeline_job_in_folder(job, "results.json", &results, err);
    json_array_foreach (json_object_get(old, "models"), i, one) {
        const char *path = json_string_value(json_object_get(one, "path"));
        const char *hash = json_string_value(json_object_get(one, "hash"));
        char       *folder = NULL;
        if (st != TSR_OK || !path || !hash)
            continue;
        st = tsr_model_resolve(path, &folder, err);
        if (st == TSR_OK && (tsr_model_family_added() > 0 || model_touched(folder, results)))
            st = check_other(job, path, hash, d, err);
        free(folder);
    }
    free(results);
    return st;
}

tsr_status tsr_pipeline_job_same(struct tsr_pipeline_job *job, const json_t *old, bool moved,
                                 struct tsr_err *err)
{
    struct tsr_differences d = { 0 };
    check_plugins(job, old, &d);
    TSR_TRY(check_inputs(old, &d, err));
    TSR_TRY(check_model(job, old, moved, &d, err));
    TSR_TRY(check_models(job, old, &d, err));
    if (!d.n)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: holds the results of other things (%s); name another folder with --out, "
                    "or start anew with --again",
                    job->out, tsr_differences_text(&d));
}
