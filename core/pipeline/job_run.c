/* A job at work: step after step, and what their results mean for the command. */
#include "pipeline/job.h"

#include "base/log.h"
#include "base/pool.h"
#include "runtime/peers.h"

#include <string.h>

/* Checks that files read by earlier steps are unchanged. */
static tsr_status inputs_unchanged(const struct tsr_pipeline_job_state *s, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->n_inputs; i++)
        if (tsr_stamps_there(&s->stamps, s->inputs[i]))
            TSR_TRY(tsr_stamps_check_file(&s->stamps, s->inputs[i], err));
    return TSR_OK;
}

/* Number of threads of a step: its own `threads`, by default the head's. */
static tsr_status take_threads(const struct tsr_pipeline_job      *job,
                               const struct tsr_pipeline_job_step *s, struct tsr_err *err)
{
    int64_t threads = job->threads;
    for (uint64_t i = 0; !s->external && i < s->step->n_options; i++)
        if (strcmp(s->step->options[i].name, "threads") == 0)
            memcpy(&threads, (const char *)s->opts + s->step->options[i].offset, sizeof threads);
    return tsr_pool_resize(tsr_plugin_registry_pool(job->registry), (unsigned)threads, err);
}

static tsr_status run_steps(struct tsr_pipeline_job *job, struct tsr_err *err)
{
    struct tsr_pipeline_job_state *s = job->state;
    TSR_TRY(tsr_pipeline_job_resolve(job, err));
    for (uint64_t i = 0, next; i < s->n; i = next) {
        struct tsr_pipeline_job_step *step = &s->steps[i];
        next = i + 1;
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "before step '%s'", step->step->name);
        tsr_logf(TSR_LOG_INFO, "step %llu of %llu: %s", (unsigned long long)i + 1,
                 (unsigned long long)s->n, step->step->name);
        job->at = step;
        TSR_TRY(inputs_unchanged(s, err));
        tsr_status st = take_threads(job, step, err);
        if (st == TSR_OK)
            st = tsr_pipeline_job_verify_begin(job, i, err);
        if (st == TSR_OK)
            st = tsr_pipeline_job_verify_failed(job, i,
                                                step->step->run(job, step->opts, step->node, err),
                                                err);
        step->done = st == TSR_OK;
        if (step->done && step->step->resolves)
            st = tsr_pipeline_job_resolve(job, err);
        if (step->done && st == TSR_OK)
            st = tsr_pipeline_job_verify(job, i, &next, err);
        if (st == TSR_E_CANCELLED)
            return tsr_fail(err, st, "in step '%s'", step->step->name);
        if (st != TSR_OK && job->verb) /* the caller named the verb and knows it */
            return s->n > 1 ? tsr_err_prefix(err, st, "step '%s'", step->step->name) : st;
        if (st != TSR_OK) {
            char place[300];
            tsr_config_mark_text(&step->key->mark, place, sizeof place);
            return tsr_err_prefix(err, st, "%s: step '%s'", place, step->step->name);
        }
    }
    return TSR_OK;
}

static tsr_status run_all(struct tsr_pipeline_job *job, bool *done, struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_job_folder_open(job, done, err));
    if (*done)
        return TSR_OK;
    TSR_TRY(tsr_pipeline_job_write_manifest(job, false, err));
    TSR_TRY(run_steps(job, err));
    TSR_TRY(tsr_pipeline_job_write_manifest(job, true, err));
    return tsr_pipeline_job_write_results(job, err);
}

tsr_status tsr_pipeline_job_run(struct tsr_pipeline_job *job, bool *done, struct tsr_err *err)
{
    *done = false;
    if (job->loose || (job->peers && tsr_runtime_peers_rank(job->peers) > 0))
        return run_steps(job, err);
    tsr_status st = run_all(job, done, err);
    if (st != TSR_OK)
        tsr_pipeline_job_folder_discard(job);
    return st;
}

/* If all arms of a comparison failed, nothing was compared: the first one's reason, else NULL. */
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
static const json_t *result_of(const struct tsr_pipeline_job *job, uint64_t i)
{
    const struct tsr_pipeline_job_state *s = job->state;
    unsigned                             nth = (unsigned)s->steps[i].nth;
    char                                 key[80];
    (void)snprintf(key, sizeof key, nth > 1 ? "%s[%u]" : "%s", s->steps[i].step->name, nth);
    return json_object_get(job->results, key);
}

void tsr_pipeline_job_remark(const struct tsr_pipeline_job *job, FILE *to)
{
    const struct tsr_pipeline_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++) {
        const json_t *r = result_of(job, i);
        if (r && s->steps[i].step->remark)
            s->steps[i].step->remark(r, to);
    }
}

/* Applies the options of the steps that can fail a command by its results. */
static tsr_status gate_steps(const struct tsr_pipeline_job *job, struct tsr_err *err)
{
    const struct tsr_pipeline_job_state *s = job->state;
    for (uint64_t i = 0; i < s->n; i++) {
        const json_t *r = result_of(job, i);
        if (r && s->steps[i].step->gate)
            TSR_TRY(s->steps[i].step->gate(s->steps[i].opts, r, err));
    }
    return TSR_OK;
}

/* Appends a condition that holds, with every arm that it holds for. */
static void say_violators(char *text, size_t cap, const json_t *condition)
{
    const char   *what = json_string_value(json_object_get(condition, "expression"));
    const json_t *one;
    size_t        i, at = strlen(text);
    (void)snprintf(text + at, cap - at, "%s\"%.200s\" holds", at ? "; " : "", what ? what : "");
    json_array_foreach (json_object_get(condition, "violators"), i, one) {
        const char   *arm = json_string_value(json_object_get(one, "arm"));
        const json_t *v = json_object_get(one, "value");
        at = strlen(text);
        if (json_is_number(v))
            (void)snprintf(text + at, cap - at, "%s '%.120s' has %.6g", i ? "," : ":",
                           arm ? arm : "", json_number_value(v));
        else
            (void)snprintf(text + at, cap - at, "%s '%.120s' could not be measured", i ? "," : ":",
                           arm ? arm : "");
    }
}

tsr_status tsr_pipeline_job_gate(const struct tsr_pipeline_job *job, struct tsr_err *err)
{
    const char *key, *why;
    json_t     *item, *one;
    size_t      i;
    json_object_foreach (job->results, key, item) {
        char found[1500] = "";
        json_array_foreach (json_object_get(json_object_get(item, "gate"), "fail_if"), i, one) {
            if (json_is_true(json_object_get(one, "holds")))
                say_violators(found, sizeof found, one);
        }
        if (*found)
            return tsr_fail(err, TSR_E_GATE, "fail_if: %s", found);
        if ((why = nothing_compared(item)))
            return tsr_fail(err, TSR_E_NUMERIC, "%s: all arms failed, the first by: %s", key, why);
    }
    return gate_steps(job, err);
}

/* ---- results for people ------------------------------------------------------- */

/* The step of a result, "compare[2]" or "compare"; NULL: an earlier version had it. */
static const struct tsr_pipeline_step *step_of(const struct tsr_pipeline_job *job, const char *key)
{
    const struct tsr_pipeline_job_state *s = job->state;
    size_t                               n = strcspn(key, "[");
    for (uint64_t i = 0; i < s->n; i++) {
        const char *name = s->steps[i].step->name;
        if (strncmp(name, key, n) == 0 && !name[n])
            return s->steps[i].step;
    }
    return NULL;
}

void tsr_pipeline_job_print(const struct tsr_pipeline_job *job, FILE *to)
{
    const char *key;
    json_t     *item;
    json_object_foreach (job->results, key, item) {
        const struct tsr_pipeline_step *step = step_of(job, key);
        if (step && step->print)
            step->print(item, to);
    }
}
