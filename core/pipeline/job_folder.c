/* The job folder: one job lives in it, one process works in it. */
#include "pipeline/job.h"
#include "pipeline/run_identity.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES (256u << 20)
#define MAX_DEPTH 64u

static tsr_status in_folder(const struct tsr_job *job, const char *name, char **path,
                            struct tsr_err *err)
{
    *path = tsr_path_join(job->out, name);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(name), "a path");
}

static tsr_status load(const struct tsr_job *job, const char *name, json_t **out,
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

static tsr_status store(const struct tsr_job *job, const char *name, const json_t *j,
                        struct tsr_err *err)
{
    char *path;
    TSR_TRY(in_folder(job, name, &path, err));
    tsr_status st = tsr_json_store(path, j, JSON_INDENT(1) | JSON_REAL_PRECISION(17), err);
    free(path);
    return st;
}

/* A folder with a stranger's files is not taken for a job folder. */
static tsr_status check_foreign(const struct tsr_job *job, struct tsr_err *err)
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

static tsr_status lock(struct tsr_job *job, struct tsr_err *err)
{
    int fd = open(job->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return tsr_fail_errno(err, errno, job->out, "open");
    bool taken = true;
    for (int i = 0; i < 20 && taken;
         i++) { /* of a run that was killed, the worker ends a little later */
        if (i)
            (void)poll(NULL, 0, 50);
        taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    }
    if (taken) {
        (void)close(fd);
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: another tessera works in this folder; wait for it or "
                        "name another with --out",
                        job->out);
    }
    /* a file system without locks is no reason to refuse */
    job->state->lock = fd;
    return TSR_OK;
}

void tsr_job_folder_close(struct tsr_job *job)
{
    if (job->state->lock >= 0)
        (void)close(job->state->lock);
    job->state->lock = -1;
}

/* ---- is it done, and of the same things? ----------------------------------------- */

static tsr_status changed(const struct tsr_job *job, struct tsr_err *err, const char *what)
{
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: was made with another %s; name another folder with --out, "
                    "or start anew with --again",
                    job->out, what);
}

/* Plugins that took part must be the same files still. */
static tsr_status check_plugins(const struct tsr_job *job, const json_t *old, struct tsr_err *err)
{
    size_t  i;
    json_t *p;
    json_array_foreach (json_object_get(old, "plugins"), i, p) {
        const char *id = json_string_value(json_object_get(p, "id"));
        const char *hash = json_string_value(json_object_get(p, "hash"));
        char        what[200];
        for (uint64_t k = 0; id && hash && k < tsr_registry_count(job->registry); k++) {
            const struct tsr_plugin_info *info = tsr_registry_plugin(job->registry, k);
            if (strcmp(info->plugin->id, id) != 0 || strcmp(info->hash, hash) == 0)
                continue;
            (void)snprintf(what, sizeof what, "build of plugin %.150s", id);
            return changed(job, err, what);
        }
    }
    return TSR_OK;
}

static tsr_status check_inputs(const struct tsr_job *job, const json_t *old, struct tsr_err *err)
{
    size_t  i;
    json_t *p;
    json_array_foreach (json_object_get(old, "inputs"), i, p) {
        const char *path = json_string_value(json_object_get(p, "path"));
        const char *hash = json_string_value(json_object_get(p, "hash"));
        char        now[TSR_HASH_TEXT], what[400];
        if (!path || !hash)
            continue;
        /* the job may have moved with its inputs: their places now are those of this run */
        TSR_TRY(tsr_hash_file(path, now, err));
        if (strcmp(now, hash) != 0) {
            (void)snprintf(what, sizeof what, "content of %.350s", path);
            return changed(job, err, what);
        }
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

static tsr_status check_model(struct tsr_job *job, const json_t *old, struct tsr_err *err)
{
    const char *hash = json_string_value(json_object_get(json_object_get(old, "model"), "hash"));
    char       *folder = NULL, *results = NULL;
    if (!hash)
        return TSR_OK;
    TSR_TRY(tsr_model_resolve(job->model_path, &folder, err));
    tsr_status st = in_folder(job, "results.json", &results, err);
    if (st == TSR_OK && model_touched(folder, results)) {
        st = tsr_job_need_model(job, err);
        if (st == TSR_OK && strcmp(job->model->hash, hash) != 0)
            st = changed(job, err, "model");
    }
    free(folder);
    free(results);
    return st;
}

/* Of models beside the job's own, which a comparison has as arms. */
static tsr_status check_models(const struct tsr_job *job, const json_t *old, struct tsr_err *err)
{
    char      *results = NULL;
    size_t     i;
    json_t    *one;
    tsr_status st = in_folder(job, "results.json", &results, err);
    json_array_foreach (json_object_get(old, "models"), i, one) {
        const char       *path = json_string_value(json_object_get(one, "path"));
        const char       *hash = json_string_value(json_object_get(one, "hash"));
        struct tsr_model *m = NULL;
        char             *folder = NULL, what[400];
        if (st != TSR_OK || !path || !hash)
            continue;
        st = tsr_model_resolve(path, &folder, err);
        if (st == TSR_OK && model_touched(folder, results))
            st = tsr_model_load(&m, path, false, err);
        if (m && strcmp(m->hash, hash) != 0) {
            (void)snprintf(what, sizeof what, "model at %.350s", path);
            st = changed(job, err, what);
        }
        tsr_model_destroy(m);
        free(folder);
    }
    free(results);
    return st;
}

/* The manifest is written over, in one step: what a batch goes by is in it. */
static tsr_status forget(const struct tsr_job *job, struct tsr_err *err)
{
    char *path;
    TSR_TRY(in_folder(job, "results.json", &path, err));
    tsr_status st =
        unlink(path) != 0 && errno != ENOENT ? tsr_fail_errno(err, errno, path, "remove") : TSR_OK;
    free(path);
    return st;
}

/* Whether a step's files are not what it left. */
static tsr_status check_outputs(const struct tsr_job *job, bool *spoilt, struct tsr_err *err)
{
    const struct tsr_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n && !*spoilt; i++)
        if (s->steps[i].step->spoilt)
            TSR_TRY(s->steps[i].step->spoilt(job, s->steps[i].opts, spoilt, err));
    return TSR_OK;
}

static tsr_status check_done(struct tsr_job *job, const json_t *old, bool *done,
                             struct tsr_err *err)
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
    TSR_TRY(check_plugins(job, old, err));
    TSR_TRY(check_inputs(job, old, err));
    TSR_TRY(check_model(job, old, err));
    TSR_TRY(check_models(job, old, err));
    bool spoilt = false;
    TSR_TRY(check_outputs(job, &spoilt, err));
    *done = !spoilt;
    if (!spoilt)
        return TSR_OK;
    json_object_clear(job->results);
    return forget(job, err);
}

/* What to do with the folder of an earlier job: take its results, refuse, or start anew.  A job
 * that never came to results may be mended and run again in its place. */
static tsr_status reopen(struct tsr_job *job, json_t *old, json_t *now, bool *done,
                         struct tsr_err *err)
{
    char  keys[600];
    char *results;
    TSR_TRY(in_folder(job, "results.json", &results, err));
    bool finished = tsr_path_exists(results);
    free(results);
    tsr_run_strip_ways(json_object_get(old, "options"));
    tsr_run_strip_ways(json_object_get(now, "options"));
    tsr_manifest_differences(old, now, keys, sizeof keys);
    if (job->state->options.again || (*keys && !finished))
        return forget(job, err);
    if (*keys)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds a job with other options (%s); name another "
                        "folder with --out, or start anew with --again",
                        job->out, keys);
    return check_done(job, old, done, err);
}

tsr_status tsr_job_folder_open(struct tsr_job *job, bool *done, struct tsr_err *err)
{
    json_t *old, *now = NULL;
    TSR_TRY(tsr_make_dirs(job->out, err));
    TSR_TRY(lock(job, err));
    TSR_TRY(load(job, "manifest.json", &old, err));
    if (!old)
        return check_foreign(job, err);
    json_t    *links = json_object_get(old, "links"); /* what `auto` became, of a batch's run */
    tsr_status st = links && json_object_set(job->manifest, "links", links) != 0
                        ? tsr_fail_nomem(err, 256, "the manifest")
                        : tsr_manifest_make(job, false, &now, err);
    if (st == TSR_OK)
        st = reopen(job, old, now, done, err);
    json_decref(old);
    json_decref(now);
    return st;
}

tsr_status tsr_job_write_manifest(struct tsr_job *job, bool final, struct tsr_err *err)
{
    json_t *m;
    TSR_TRY(tsr_manifest_make(job, final, &m, err));
    tsr_status st = store(job, "manifest.json", m, err);
    json_decref(m);
    return st;
}

tsr_status tsr_job_write_results(struct tsr_job *job, struct tsr_err *err)
{
    json_t *r = tsr_job_results(job);
    if (!r)
        return tsr_fail_nomem(err, 0, "the results");
    tsr_status st = store(job, "results.json", r, err);
    json_decref(r);
    return st;
}
