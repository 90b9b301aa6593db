/* The job folder: one job lives in it, one process works in it. */
#include "pipeline/job.h"
#include "pipeline/run_identity.h"

#include "base/file.h"
#include "base/held.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (256u << 20)
#define MAX_DEPTH 64u

static tsr_status load(const struct tsr_pipeline_job *job, const char *name, json_t **out,
                       struct tsr_err *err)
{
    char *path;
    *out = NULL;
    TSR_TRY(tsr_pipeline_job_in_folder(job, name, &path, err));
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
    TSR_TRY(tsr_pipeline_job_in_folder(job, name, &path, err));
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
    if (!holds_manifest_alone(job) ||
        tsr_pipeline_job_in_folder(job, "manifest.json", &path, &e.err) != TSR_OK)
        return;
    if (tsr_output_remove(path, &e.err) != TSR_OK)
        tsr_logf(TSR_LOG_WARN, "%s", e.text);
    free(path);
    tsr_output_unmake();
}

/* ---- is it done? ------------------------------------------------------------ */

/* The manifest is replaced atomically: a batch depends on it. */
static tsr_status forget(const struct tsr_pipeline_job *job, struct tsr_err *err)
{
    char *path;
    TSR_TRY(tsr_pipeline_job_in_folder(job, "results.json", &path, err));
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
    TSR_TRY(tsr_pipeline_job_same(job, old, moved, err));
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

/* What a run with retry_errors leaves is the same job's: a run without it finds it done.  One with it is another. */
static void forgive_retry(json_t *old, json_t *now)
{
    json_t *a = json_object_get(json_object_get(old, "options"), "pipeline"),
           *b = json_object_get(json_object_get(now, "options"), "pipeline");
    for (size_t i = 0; i < json_array_size(a) && i < json_array_size(b); i++) {
        json_t *was = json_object_get(json_array_get(a, i), "run"),
               *is = json_object_get(json_array_get(b, i), "run");
        if (json_is_true(json_object_get(is, "retry_errors")))
            continue;
        (void)json_object_del(was, "retry_errors");
        (void)json_object_del(is, "retry_errors");
    }
}

/* What to do with the folder of an earlier job: take its results, refuse, or start over. A job without
 * results may be corrected and run again in its folder. */
static tsr_status reopen(struct tsr_pipeline_job *job, json_t *old, json_t *now, bool *done,
                         struct tsr_err *err)
{
    struct tsr_differences d = { 0 };
    char                  *results;
    TSR_TRY(tsr_pipeline_job_in_folder(job, "results.json", &results, err));
    bool finished = tsr_path_exists(results);
    free(results);
    tsr_pipeline_run_strip_ways(json_object_get(old, "options"));
    tsr_pipeline_run_strip_ways(json_object_get(now, "options"));
    forgive_retry(old, now);
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

json_t *tsr_pipeline_job_results(const struct tsr_pipeline_job *job)
{
    return json_pack("{s:s, s:O}", "format", "tessera.results/1", "results", job->results);
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
