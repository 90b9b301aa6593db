/* The job folder: one job lives in it, one process works in it. */
#include "pipeline/job.h"
#include "pipeline/run_identity.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/held.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/prepacked/prepacked.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES (256u << 20)
#define MAX_DEPTH 64u

static tsr_status in_folder(const struct tsr_pipeline_job *job, const char *name, char **path,
                            struct tsr_err *err)
{
    *path = tsr_path_join(job->out, name);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(name), "a path");
}

static tsr_status load(const struct tsr_pipeline_job *job, const char *name, json_t **out,
                       struct tsr_err *err)
{
    char *path;
    *out = NULL;
    TSR_TRY(in_folder(job, name, &path, err));
    tsr_status st =
        tsr_path_exists(path) ? tsr_json_load(out, path, MAX_BYTES, MAX_DEPTH, err) : TSR_OK;
    if (st == TSR_OK && *out && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        st = tsr_fail(err, TSR_E_INPUT, "%s: is not a file of Tessera's", path);
    }
    free(path);
    return st;
}

static tsr_status store(const struct tsr_pipeline_job *job, const char *name, const json_t *j,
                        struct tsr_err *err)
{
    char *path;
    TSR_TRY(in_folder(job, name, &path, err));
    tsr_status st = tsr_json_store(path, j, JSON_INDENT(1) | JSON_REAL_PRECISION(17), err);
    free(path);
    return st;
}

/* A folder with foreign files is not used as a job folder. */
static tsr_status check_foreign(const struct tsr_pipeline_job *job, struct tsr_err *err)
{
    DIR *dir = opendir(job->out);
    if (!dir)
        return tsr_fail_errno(err, errno, job->out, "open");
    tsr_status     st = TSR_OK;
    struct dirent *e;
    while (st == TSR_OK && (e = readdir(dir))) {
        size_t n = strlen(e->d_name);
        bool   part = n > 5 && strcmp(e->d_name + n - 5, ".part") == 0;
        /* `tessera plan` may have been there before */
        bool plan = strcmp(e->d_name, "plan.yaml") == 0;
        /* a batch's own, of a run that was killed before it wrote its manifest again */
        bool batch = strcmp(e->d_name, "journal") == 0 || strcmp(e->d_name, "lock") == 0;
        if (e->d_name[0] != '.' && !part && !plan && !batch)
            st = tsr_fail(err, TSR_E_INPUT,
                          "%s: holds '%s' but no manifest.json of a job; name "
                          "another folder with --out",
                          job->out, e->d_name);
    }
    (void)closedir(dir);
    return st;
}

void tsr_pipeline_job_folder_close(struct tsr_pipeline_job *job)
{
    if (job->state->lock >= 0)
        (void)tsr_held_close(job->state->lock);
    job->state->lock = -1;
}

/* Whether the folder holds only the manifest. */
static bool holds_manifest_alone(const struct tsr_pipeline_job *job)
{
    DIR *dir = opendir(job->out);
    bool alone = dir != NULL;
    for (struct dirent *e; alone && (e = readdir(dir));)
        alone = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                strcmp(e->d_name, "manifest.json") == 0;
    if (dir)
        (void)closedir(dir);
    return alone;
}

void tsr_pipeline_job_folder_discard(struct tsr_pipeline_job *job)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *path = NULL;
    if (job->state->lock < 0 || !job->state->fresh)
        return;
    tsr_output_unmake();
    if (!holds_manifest_alone(job) || in_folder(job, "manifest.json", &path, &e.err) != TSR_OK)
        return;
    if (tsr_output_remove(path, &e.err) != TSR_OK)
        tsr_logf(TSR_LOG_WARN, "%s", e.text);
    free(path);
    tsr_output_unmake();
}

/* ---- is it done, and of the same things? ----------------------------------------- */

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
    tsr_status st = in_folder(job, "results.json", &results, err);
    if (st == TSR_OK && (moved || model_touched(folder, results))) {
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
    tsr_status st = in_folder(job, "results.json", &results, err);
    json_array_foreach (json_object_get(old, "models"), i, one) {
        const char *path = json_string_value(json_object_get(one, "path"));
        const char *hash = json_string_value(json_object_get(one, "hash"));
        char       *folder = NULL;
        if (st != TSR_OK || !path || !hash)
            continue;
        st = tsr_model_resolve(path, &folder, err);
        if (st == TSR_OK && model_touched(folder, results))
            st = check_other(job, path, hash, d, err);
        free(folder);
    }
    free(results);
    return st;
}

/* The manifest is replaced atomically: a batch depends on it. */
static tsr_status forget(const struct tsr_pipeline_job *job, struct tsr_err *err)
{
    char *path;
    TSR_TRY(in_folder(job, "results.json", &path, err));
    tsr_status st = tsr_output_remove(path, err);
    free(path);
    return st;
}

/* Whether a step's files are missing or changed. */
static tsr_status check_outputs(const struct tsr_pipeline_job *job, bool *spoilt,
                                struct tsr_err *err)
{
    const struct tsr_pipeline_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n && !*spoilt; i++)
        if (s->steps[i].step->spoilt)
            TSR_TRY(s->steps[i].step->spoilt(job, s->steps[i].opts, spoilt, err));
    return TSR_OK;
}

static tsr_status check_same(struct tsr_pipeline_job *job, const json_t *old, bool moved,
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

static tsr_status check_done(struct tsr_pipeline_job *job, const json_t *old, bool moved,
                             bool *done, struct tsr_err *err)
{
    json_t *r;
    TSR_TRY(load(job, "results.json", &r, err));
    json_t *inner = json_object_get(r, "results");
    if (!json_is_object(inner)) {
        json_decref(r);
        return TSR_OK;
    }
    json_decref(job->results);
    job->results = json_incref(inner);
    json_decref(r);
    TSR_TRY(check_same(job, old, moved, err));
    bool spoilt = false;
    TSR_TRY(check_outputs(job, &spoilt, err));
    *done = !spoilt;
    if (!spoilt)
        return TSR_OK;
    json_object_clear(job->results);
    return forget(job, err);
}

/* Removes the model's path from two jobs' options: its hash identifies it. */
static bool take_model(json_t *old, json_t *now)
{
    json_t *a = json_object_get(old, "options"), *b = json_object_get(now, "options");
    bool    moved = !json_equal(json_object_get(a, "model"), json_object_get(b, "model"));
    (void)json_object_del(a, "model");
    (void)json_object_del(b, "model");
    return moved;
}

/* What to do with the folder of an earlier job: take its results, refuse, or start over. A job without
 * results may be corrected and run again in its folder. */
static tsr_status reopen(struct tsr_pipeline_job *job, json_t *old, json_t *now, bool *done,
                         struct tsr_err *err)
{
    struct tsr_differences d = { 0 };
    char                  *results;
    TSR_TRY(in_folder(job, "results.json", &results, err));
    bool finished = tsr_path_exists(results);
    free(results);
    tsr_pipeline_run_strip_ways(json_object_get(old, "options"));
    tsr_pipeline_run_strip_ways(json_object_get(now, "options"));
    bool moved = take_model(old, now);
    tsr_pipeline_manifest_differences(old, now, &d);
    if (job->state->options.again || (d.n && !finished))
        return forget(job, err);
    if (d.n)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds a job with other options (%s); name another "
                        "folder with --out, or start anew with --again",
                        job->out, tsr_differences_text(&d));
    return check_done(job, old, moved, done, err);
}

tsr_status tsr_pipeline_job_folder_open(struct tsr_pipeline_job *job, bool *done,
                                        struct tsr_err *err)
{
    json_t *old, *now = NULL;
    TSR_TRY(tsr_output_lock_folder(&job->state->lock, job->out, err));
    TSR_TRY(load(job, "manifest.json", &old, err));
    job->state->fresh = !old;
    if (!old)
        return check_foreign(job, err);
    json_t    *links = json_object_get(old, "links"); /* choices of `auto` in a batch's run */
    tsr_status st = links && json_object_set(job->manifest, "links", links) != 0
                        ? tsr_fail_nomem(err, 256, "the manifest")
                        : tsr_pipeline_manifest_make(job, false, &now, err);
    if (st == TSR_OK)
        st = reopen(job, old, now, done, err);
    json_decref(old);
    json_decref(now);
    return st;
}

tsr_status tsr_pipeline_job_write_manifest(struct tsr_pipeline_job *job, bool final,
                                           struct tsr_err *err)
{
    json_t *m;
    TSR_TRY(tsr_pipeline_manifest_make(job, final, &m, err));
    tsr_status st = store(job, "manifest.json", m, err);
    json_decref(m);
    return st;
}

tsr_status tsr_pipeline_job_write_results(struct tsr_pipeline_job *job, struct tsr_err *err)
{
    json_t *r = tsr_pipeline_job_results(job);
    if (!r)
        return tsr_fail_nomem(err, 0, "the results");
    tsr_status st = store(job, "results.json", r, err);
    json_decref(r);
    return st;
}
