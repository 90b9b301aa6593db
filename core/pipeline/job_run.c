#include "pipeline/job.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "runtime/mates.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* Remembers an input for the manifest, once each, and what it is like before it is read. */
static void note(struct tsr_job_state *s, const char *path)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    /* what cannot be looked at is said by who opens it */
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

char *tsr_job_input(const struct tsr_job *job, const char *path)
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

tsr_status tsr_job_output(const struct tsr_job *job, const char *path, char **full,
                          struct tsr_err *err)
{
    if (!*path)
        return tsr_fail(err, TSR_E_INPUT, "the name of an output file is empty");
    if (*path != '/' && leads_out(path))
        return tsr_fail(err, TSR_E_INPUT,
                        "output '%s' leads out of the job folder; give an absolute "
                        "path for that",
                        path);
    *full = tsr_path_join(job->out, path);
    char      *dir = *full ? tsr_path_dir(*full) : NULL;
    tsr_status st = dir ? tsr_make_dirs(dir, err) : tsr_fail_nomem(err, strlen(path), path);
    free(dir);
    if (st != TSR_OK) {
        free(*full);
        *full = NULL;
    }
    return st;
}

tsr_status tsr_job_load_tokenizer(struct tsr_tokenizer **t, const char *model, struct tsr_err *err)
{
    char *folder = NULL;
    *t = NULL;
    TSR_TRY(tsr_model_resolve(model, &folder, err));
    tsr_status st = TSR_OK;
    if (tsr_tokenizer_there(folder))
        st = tsr_tokenizer_load(t, folder, err);
    free(folder);
    return st;
}

bool tsr_job_streams(const struct tsr_job *job)
{
    const struct tsr_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++)
        if (!s->steps[i].step->streams)
            return false;
    return s->n > 0;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcmp(name + n - k, end) == 0;
}

/* The files that a model may be read from, before they are. */
static tsr_status stamp_model(struct tsr_job *job, struct tsr_err *err)
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
    free(place);
    return st;
}

tsr_status tsr_job_need_model(struct tsr_job *job, struct tsr_err *err)
{
    if (job->model)
        return TSR_OK;
    tsr_logf(TSR_LOG_INFO, "loading %s", job->model_path);
    TSR_TRY(stamp_model(job, err));
    struct tsr_model *m = NULL;
    if (tsr_job_streams(job))
        TSR_TRY(tsr_model_load_streamed(&m, job->model_path, err));
    else
        TSR_TRY(tsr_model_load(&m, job->model_path, false, err));
    tsr_status st = tsr_job_load_tokenizer(&job->tokenizer, job->model_path, err);
    if (st == TSR_OK)
        job->model = m;
    else
        tsr_model_destroy(m);
    return st;
}

static tsr_status run_steps(struct tsr_job *job, struct tsr_err *err)
{
    struct tsr_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++) {
        const struct tsr_job_step *step = &s->steps[i];
        if (tsr_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "before step '%s'", step->step->name);
        tsr_logf(TSR_LOG_INFO, "step %llu of %llu: %s", (unsigned long long)i + 1,
                 (unsigned long long)s->n, step->step->name);
        tsr_status st = step->step->run(job, step->opts, step->node, err);
        if (st == TSR_E_CANCELLED)
            return tsr_fail(err, st, "in step '%s'", step->step->name);
        if (st != TSR_OK && job->verb) /* who called it by its name knows it */
            return s->n > 1 ? tsr_err_prefix(err, st, "step '%s'", step->step->name) : st;
        if (st != TSR_OK) {
            char place[300];
            tsr_mark_text(&step->key->mark, place, sizeof place);
            return tsr_err_prefix(err, st, "%s: step '%s'", place, step->step->name);
        }
    }
    return TSR_OK;
}

static tsr_status run_all(struct tsr_job *job, bool *done, struct tsr_err *err)
{
    TSR_TRY(tsr_job_folder_open(job, done, err));
    if (*done)
        return TSR_OK;
    TSR_TRY(tsr_job_write_manifest(job, false, err));
    TSR_TRY(run_steps(job, err));
    TSR_TRY(tsr_job_write_manifest(job, true, err));
    return tsr_job_write_results(job, err);
}

tsr_status tsr_job_run(struct tsr_job *job, bool *done, struct tsr_err *err)
{
    *done = false;
    tsr_registry_set_numerics(job->registry, (uint32_t)job->state->head.numerics);
    tsr_registry_set_backend(job->registry, job->state->head.backend,
                             (uint64_t)(job->state->head.gpu_layers + 1));
    if (job->mates && tsr_mates_rank(job->mates) > 0)
        return run_steps(job, err);
    tsr_status st = run_all(job, done, err);
    if (st != TSR_OK)
        tsr_job_folder_discard(job);
    return st;
}

json_t *tsr_job_results(const struct tsr_job *job)
{
    return json_pack("{s:s, s:O}", "format", "tessera.results/1", "results", job->results);
}

/* Where all arms of a comparison failed, nothing was compared: the first one's reason, else NULL. */
static const char *nothing_compared(const json_t *result)
{
    const json_t *arms = json_object_get(result, "arms"), *one;
    const char   *first = NULL;
    size_t        i;
    json_array_foreach (arms, i, one) {
        const char *why = json_string_value(json_object_get(one, "failed"));
        if (i > 0 && !why)
            return NULL;
        if (i > 0 && !first)
            first = why;
    }
    return first;
}

/* The result of the i-th step of a job; NULL: there is none. */
static const json_t *result_of(const struct tsr_job *job, uint64_t i)
{
    const struct tsr_job_state *s = job->state;
    unsigned                    nth = 1;
    char                        key[80];
    for (uint64_t k = 0; k < i; k++)
        nth += s->steps[k].step == s->steps[i].step;
    (void)snprintf(key, sizeof key, nth > 1 ? "%s[%u]" : "%s", s->steps[i].step->name, nth);
    return json_object_get(job->results, key);
}

void tsr_job_remark(const struct tsr_job *job, FILE *to)
{
    const struct tsr_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++) {
        const json_t *r = result_of(job, i);
        if (r && s->steps[i].step->remark)
            s->steps[i].step->remark(r, to);
    }
}

/* What the options of the steps say of their results. */
static tsr_status gate_steps(const struct tsr_job *job, struct tsr_err *err)
{
    const struct tsr_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++) {
        const json_t *r = result_of(job, i);
        if (r && s->steps[i].step->gate)
            TSR_TRY(s->steps[i].step->gate(s->steps[i].opts, r, err));
    }
    return TSR_OK;
}

tsr_status tsr_job_gate(const struct tsr_job *job, struct tsr_err *err)
{
    const char *key, *why;
    json_t     *item, *one;
    size_t      i;
    json_object_foreach (job->results, key, item) {
        json_array_foreach (json_object_get(json_object_get(item, "gate"), "fail_if"), i, one) {
            const char   *text = json_string_value(json_object_get(one, "expression"));
            const char   *arm = json_string_value(json_object_get(one, "arm"));
            const json_t *v = json_object_get(one, "value");
            if (!json_is_true(json_object_get(one, "holds")))
                continue;
            if (!json_is_number(v))
                return tsr_fail(err, TSR_E_GATE,
                                "fail_if: \"%s\" could not be measured for arm '%s'",
                                text ? text : "", arm ? arm : "");
            return tsr_fail(err, TSR_E_GATE, "fail_if: \"%s\" holds: arm '%s' has %.6g",
                            text ? text : "", arm ? arm : "", json_number_value(v));
        }
        if ((why = nothing_compared(item)))
            return tsr_fail(err, TSR_E_NUMERIC, "%s: all arms failed, the first by: %s", key, why);
    }
    return gate_steps(job, err);
}

/* ---- results for people ------------------------------------------------------- */

void tsr_job_print(const struct tsr_job *job, FILE *to)
{
    const char *key;
    json_t     *item;
    json_object_foreach (job->results, key, item) {
        char name[64];
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "["), key);
        const struct tsr_step *step = tsr_step_find(name);
        if (step && step->print)
            step->print(item, to);
    }
}
