/* What a job reads and where it writes: inputs with their hashes, outputs, the model and its tokenizer. */
#include "checkpoint/tokenizer.h"
#include "pipeline/job.h"
#include "pipeline/step.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "model/text_names.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* Records an input for the manifest, once each, with its hash before the first read: a step that reads it
 * again must find the same content. */
static void note(struct tsr_pipeline_job_state *s, const char *path)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    /* an unreadable file is reported by the step that opens it */
    if (!tsr_stamps_there(&s->stamps, path))
        s->inputs_lost = tsr_stamps_take(&s->stamps, path, &e.err) == TSR_E_NOMEM || s->inputs_lost;
    for (uint64_t i = 0; i < s->n_inputs; i++)
        if (strcmp(s->inputs[i], path) == 0)
            return;
    char **v = tsr_renew(s->inputs, s->n_inputs + 1, sizeof *v);
    char  *p = tsr_strdup(path);
    if (v)
        s->inputs = v;
    if (!v || !p) {
        free(p);
        s->inputs_lost = true;
        return;
    }
    s->inputs[s->n_inputs++] = p;
}

char *tsr_pipeline_job_input(const struct tsr_pipeline_job *job, const char *path)
{
    char *full = tsr_path_join(job->state->dir, path);
    if (full)
        note(job->state, full);
    return full;
}

static bool leads_out(const char *path)
{
    for (const char *s = path; *s;) {
        size_t n = strcspn(s, "/");
        if (n == 2 && s[0] == '.' && s[1] == '.')
            return true;
        s += n;
        s += *s == '/';
    }
    return false;
}

#define LEADS_OUT "output '%.300s' leads out of the job folder; give an absolute path for that"

void tsr_pipeline_check_output(const struct tsr_pipeline_job *job,
                               const struct tsr_config_node *map, const char *key,
                               struct tsr_diag *d)
{
    const struct tsr_config_node *n = tsr_config_node_get(map, key);
    if (n && n->kind == TSR_CONFIG_NODE_SCALAR && !job->loose && *n->text != '/' &&
        leads_out(n->text))
        tsr_config_diag_error(d, &n->mark, NULL, LEADS_OUT, n->text);
}

tsr_status tsr_pipeline_job_output(const struct tsr_pipeline_job *job, const char *path,
                                   char **full, struct tsr_err *err)
{
    if (!*path)
        return tsr_fail(err, TSR_E_INPUT, "the name of an output file is empty");
    if (!job->loose && *path != '/' && leads_out(path))
        return tsr_fail(err, TSR_E_INPUT, LEADS_OUT, path);
    *full = job->loose ? tsr_strdup(path) : tsr_path_join(job->out, path);
    if (job->loose)
        return *full ? TSR_OK : tsr_fail_nomem(err, strlen(path), path);
    char      *dir = *full ? tsr_path_dir(*full) : NULL;
    tsr_status st = dir ? tsr_make_dirs(dir, err) : tsr_fail_nomem(err, strlen(path), path);
    free(dir);
    if (st != TSR_OK) {
        free(*full);
        *full = NULL;
    }
    return st;
}

tsr_status tsr_pipeline_job_in_folder(const struct tsr_pipeline_job *job, const char *name,
                                      char **path, struct tsr_err *err)
{
    *path = tsr_path_join(job->out, name);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(name), "a path");
}

tsr_status tsr_pipeline_job_load_tokenizer(struct tsr_tokenizer **t, const char *model,
                                           struct tsr_err *err)
{
    char *folder = NULL;
    *t = NULL;
    bool there = false;
    TSR_TRY(tsr_model_resolve(model, &folder, err));
    tsr_status st = tsr_checkpoint_tokenizer_there(folder, &there, err);
    if (st == TSR_OK && there)
        st = tsr_checkpoint_tokenizer_load(t, folder, err);
    free(folder);
    return st;
}

bool tsr_pipeline_job_streams(const struct tsr_pipeline_job *job)
{
    const struct tsr_pipeline_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++) {
        const struct tsr_pipeline_step *step = s->steps[i].step;
        if (!step->streams && !(step->streams_with && step->streams_with(s->steps[i].opts)))
            return false;
    }
    return s->n > 0;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcmp(name + n - k, end) == 0;
}

static tsr_status stamp_templates(struct tsr_stamps *s, const char *place, struct tsr_err *err)
{
    struct tsr_model_text_list l = { 0 };
    tsr_status                 st = tsr_model_text_list_folder(&l, place, err);
    for (uint64_t i = 0; i < l.n && st == TSR_OK; i++) {
        char *path = tsr_path_join(place, l.v[i]);
        st = path ? tsr_stamps_take(s, path, err) : tsr_fail_nomem(err, strlen(place), "a path");
        free(path);
    }
    tsr_model_text_list_free(&l);
    return st;
}

/* The files that a model may be read from, before they are. */
static tsr_status stamp_model(struct tsr_pipeline_job *job, struct tsr_err *err)
{
    static const char *const texts[] = { "config.json",    "generation_config.json",
                                         "tokenizer.json", "tokenizer_config.json",
                                         "packed.json",    "chat_template.jinja" };
    struct tsr_stamps       *s = &job->state->stamps;
    char                    *place = NULL, *path;
    TSR_TRY(tsr_model_resolve(job->model_path, &place, err));
    DIR       *dir = opendir(place);
    tsr_status st = dir ? TSR_OK : tsr_stamps_take(s, place, err);
    for (size_t i = 0; dir && st == TSR_OK && i < sizeof texts / sizeof *texts; i++) {
        path = tsr_path_join(place, texts[i]);
        st = path ? tsr_stamps_take(s, path, err) : tsr_fail_nomem(err, strlen(place), "a path");
        free(path);
    }
    for (struct dirent *e; dir && st == TSR_OK && (e = readdir(dir));) {
        if (!ends_in(e->d_name, ".safetensors") && !ends_in(e->d_name, ".safetensors.index.json"))
            continue;
        path = tsr_path_join(place, e->d_name);
        st = path ? tsr_stamps_take(s, path, err) : tsr_fail_nomem(err, strlen(place), "a path");
        free(path);
    }
    if (dir)
        (void)closedir(dir);
    if (st == TSR_OK)
        st = stamp_templates(s, place, err);
    free(place);
    return st;
}

tsr_status tsr_pipeline_job_need_model(struct tsr_pipeline_job *job, struct tsr_err *err)
{
    if (job->model)
        return TSR_OK;
    tsr_logf(TSR_LOG_INFO, "loading %s", job->model_path);
    if (!job->loose) /* for the manifest */
        TSR_TRY(stamp_model(job, err));
    struct tsr_model *m = NULL;
    if (tsr_pipeline_job_streams(job))
        TSR_TRY(tsr_model_load_streamed(&m, job->model_path, err));
    else
        TSR_TRY(tsr_model_load(&m, job->model_path, false, err));
    job->model = m;
    return job->loose ? TSR_OK : tsr_pipeline_job_find_tokenizer(job, err);
}

tsr_status tsr_pipeline_job_replace_model(struct tsr_pipeline_job *job, const char *folder,
                                          struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    struct tsr_model              *m = NULL;
    char                          *path = tsr_strdup(folder);
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), "a path");
    tsr_status st = s->model_said ? TSR_OK : tsr_pipeline_manifest_model(job, &s->model_said, err);
    if (st == TSR_OK)
        st = tsr_pipeline_job_streams(job) ? tsr_model_load_streamed(&m, path, err)
                                           : tsr_model_load(&m, path, false, err);
    if (st != TSR_OK) {
        free(path);
        return st;
    }
    tsr_model_destroy(job->model);
    free(s->replaced);
    job->model = m;
    job->model_path = s->replaced = path;
    return TSR_OK;
}

tsr_status tsr_pipeline_job_find_tokenizer(struct tsr_pipeline_job *job, struct tsr_err *err)
{
    return job->tokenizer ? TSR_OK
                          : tsr_pipeline_job_load_tokenizer(&job->tokenizer, job->model_path, err);
}

const char *tsr_pipeline_job_model_name(const struct tsr_pipeline_job *job)
{
    const char *path = job->state->model, *slash = strrchr(path, '/');
    const char *name = slash && slash[1] ? slash + 1 : path;
    return name[0] == '@' && name[1] ? name + 1 : name;
}
