/* tessera plan JOB.yaml | MODEL: runs only the step `plan` of a job, and answers further queries. */
#include "cli/plan/plan_verb.h"

#include "base/file.h"
#include "base/mem.h"
#include "cli/jobs.h"
#include "cli/plan/simulate.h"
#include "pipeline/job.h"
#include "pipeline/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct tsr_pipeline_step tsr_step_plan;

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* ---- the job ------------------------------------------------------------------- */

/* "cluster=" and a value as a literal for YAML. */
static char *quoted_set(const char *key, const char *value)
{
    uint64_t bytes = strlen(key) + 2 * strlen(value) + 4;
    char    *set = tsr_new(bytes, 1), *o;
    if (!set)
        return NULL;
    o = set + snprintf(set, bytes, "%s=\"", key);
    for (const char *s = value; *s; s++) {
        if (*s == '"' || *s == '\\')
            *o++ = '\\';
        *o++ = *s;
    }
    *o++ = '"';
    return set;
}

static tsr_status make_for_model(struct tsr_pipeline_job **job, const struct tsr_plan_call *call,
                                 const char *model, struct tsr_pipeline_job_options *jo,
                                 struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_pipeline_step *steps[1] = { &tsr_step_plan };
    uint64_t                        bytes = strlen(call->workload) + 16;
    if (!*call->cluster || !*call->workload)
        return tsr_fail(err, TSR_E_INPUT,
                        "--%s is missing: a model alone does not say what to plan for",
                        *call->cluster ? "workload '{prompt: 512, generate: 100, batch: 32}'"
                                       : "cluster FILE");
    const char **sets = tsr_new(jo->n_sets + 2, sizeof *sets);
    char        *cluster = quoted_set("cluster", call->cluster), *work = tsr_new(bytes, 1);
    tsr_status   st = sets && cluster && work ? TSR_OK : tsr_fail_nomem(err, bytes, "options");
    if (st == TSR_OK) {
        (void)snprintf(work, bytes, "workload=%s", call->workload);
        sets[0] = cluster;
        sets[1] = work;
        for (uint64_t i = 0; i < jo->n_sets; i++)
            sets[i + 2] = jo->sets[i];
        jo->sets = sets;
        jo->n_sets += 2;
        st = tsr_pipeline_job_make_steps(job, model, steps, 1, jo->pairs, jo->n_pairs, jo, d, err);
    }
    free(sets);
    free(cluster);
    free(work);
    return st;
}

static tsr_status make(struct tsr_cli *c, struct tsr_pipeline_job **job,
                       const struct tsr_plan_call *call, const char *arg, struct tsr_diag *d,
                       struct tsr_err *err)
{
    struct tsr_pipeline_job_options jo = { .sets = c->sets,
                                           .n_sets = c->n_sets,
                                           .json = c->json,
                                           .quiet = c->quiet,
                                           .threads = c->threads,
                                           .pairs = call->pairs,
                                           .n_pairs = call->n_pairs };
    bool                            file = ends_with(arg, ".yaml") || ends_with(arg, ".yml");
    if (file && (*call->cluster || *call->workload))
        return tsr_fail(err, TSR_E_INPUT, "the job says its %s; override it with --set %s=...",
                        *call->cluster ? "cluster" : "workload",
                        *call->cluster ? "cluster" : "workload");
    tsr_status st = file ? tsr_pipeline_job_load(job, arg, &jo, d, err)
                         : make_for_model(job, call, arg, &jo, d, err);
    if (st == TSR_OK)
        st = tsr_cli_check_job(c, *job, d, err);
    if (st == TSR_OK || tsr_config_diag_errors(d))
        st = tsr_cli_diag(c, d, arg, err);
    return st;
}

static tsr_status step_of(const struct tsr_pipeline_job *job, const char *arg,
                          const struct tsr_pipeline_job_step **step, struct tsr_err *err)
{
    for (uint64_t i = 0; i < job->state->n; i++)
        if (job->state->steps[i].step == &tsr_step_plan) {
            *step = &job->state->steps[i];
            return TSR_OK;
        }
    return tsr_fail(err, TSR_E_INPUT, "%s: the pipeline has no step 'plan'; add '- plan: {}'", arg);
}

/* ---- results ---------------------------------------------------------------------- */

/* The default is the job's folder, unless a run's results are in it: its plan is one of them, and *path NULL. */
static tsr_status plan_path(const struct tsr_pipeline_job *job, const struct tsr_plan_call *call,
                            const struct tsr_planning_plan_keys *k, char **path,
                            struct tsr_err *err)
{
    char *manifest = NULL;
    *path = *call->output ? tsr_strdup(call->output) : NULL;
    if (*call->output)
        return *path ? TSR_OK : tsr_fail_nomem(err, strlen(call->output), "a path");
    TSR_TRY(tsr_pipeline_job_in_folder(job, "manifest.json", &manifest, err));
    bool taken = tsr_path_exists(manifest);
    free(manifest);
    return taken ? TSR_OK : tsr_pipeline_job_output(job, k->to, path, err);
}

static tsr_status write_plan(const struct tsr_pipeline_job *job, const struct tsr_plan_call *call,
                             const struct tsr_planning_plan_keys *k, const struct tsr_planning *pl,
                             const struct tsr_plan_planned *a, json_t *j, struct tsr_err *err)
{
    char *path = NULL;
    TSR_TRY(plan_path(job, call, k, &path, err));
    tsr_status st = path ? tsr_planning_write(pl, a, path, err) : TSR_OK;
    if (st == TSR_OK && path && !tsr_pipeline_json_put_text(j, "file", path))
        st = tsr_fail_nomem(err, strlen(path), "a plan");
    free(path);
    return st;
}

#define NOTE 48

/* The plan as a picture; below a device stands how many of its layers leave their experts to the CPU, and
 * the CPU's share of a decode step. */
static tsr_status draw(const struct tsr_plan_call *call, const struct tsr_planning *pl,
                       const struct tsr_plan_planned *a, const struct tsr_plan_pipeline_back *back,
                       const double *links_ms, struct tsr_err *err)
{
    const struct tsr_plan_outcome *o = &a->outcome;
    const char                   **notes = tsr_new(o->n_stages, sizeof *notes);
    char(*text)[NOTE] = tsr_new(o->n_stages, sizeof *text);
    tsr_status st = notes && text ? TSR_OK : tsr_fail_nomem(err, o->n_stages * NOTE, "a picture");
    for (uint64_t i = 0; st == TSR_OK && i < o->n_stages; i++) {
        char     ranges[TSR_PLAN_RANGES];
        uint64_t n = tsr_plan_outcome_on_cpu(o, &o->stages[i], ranges);
        (void)snprintf(text[i], NOTE, "CPU: experts of %llu of %llu, %.0f %%",
                       (unsigned long long)n, (unsigned long long)o->stages[i].count,
                       100 * o->stages[i].cpu_dec_ms / o->stages[i].dec_ms);
        notes[i] = n ? text[i] : NULL;
    }
    if (st == TSR_OK)
        st = tsr_cli_plan_gantt(&a->built->parts[a->part].inst.in, a->solution, back, links_ms,
                                notes, pl->problem.shape->name, call->gantt, err);
    free(notes);
    free(text);
    return st;
}

static tsr_status play(const struct tsr_plan_call *call, const struct tsr_planning *pl,
                       const struct tsr_plan_planned *a, json_t *j, struct tsr_err *err)
{
    const struct tsr_solver_instance    *in = &a->built->parts[a->part].inst.in;
    json_t                              *played = NULL;
    const struct tsr_plan_pipeline_back *back = a->outcome.goes_back ? &a->outcome.back : NULL;
    uint64_t                             links = a->outcome.n_stages - 1;
    double                              *way = tsr_new(4 * links + 1, sizeof *way);
    tsr_status st = way ? TSR_OK : tsr_fail_nomem(err, links * sizeof *way, "a simulation");
    for (uint64_t i = 0; i < links && st == TSR_OK; i++) {
        const struct tsr_plan_outcome_stage *s = &a->outcome.stages[i];
        way[i] = s->every_pre_ms / a->outcome.prefill_jobs;
        way[links + i] = s->every_dec_ms;
        way[2 * links + i] = (s->link_pre_ms - s->every_pre_ms) / a->outcome.prefill_jobs;
        way[3 * links + i] = s->link_dec_ms - s->every_dec_ms;
    }
    if (st == TSR_OK && *call->gantt)
        st = draw(call, pl, a, back, way, err);
    if (st == TSR_OK && call->simulate)
        st = tsr_cli_plan_simulate(in, a->solution, back, way, &played, err);
    free(way);
    if (st != TSR_OK || !call->simulate)
        return st;
    return tsr_pipeline_json_put(j, "simulation", played) ? TSR_OK
                                                          : tsr_fail_nomem(err, 64, "a plan");
}

static tsr_status show(struct tsr_cli *c, const struct tsr_plan_call *call,
                       const struct tsr_pipeline_job *job, const struct tsr_planning *pl,
                       const struct tsr_plan_planned *a, json_t *j, struct tsr_err *err)
{
    const char *file = json_string_value(json_object_get(j, "file"));
    if (call->export_to != TSR_PLAN_EXPORT_NONE)
        TSR_TRY(tsr_cli_plan_export(c, call->export_to, &pl->problem, &a->outcome, err));
    else if (c->json)
        return tsr_cli_print_json(json_incref(j), err);
    else
        tsr_planning_print(j, stdout);
    if (call->simulate && call->export_to == TSR_PLAN_EXPORT_NONE)
        tsr_cli_plan_simulation_print(json_object_get(j, "simulation"));
    TSR_TRY(tsr_cli_flush(err));
    if (c->json || c->quiet)
        return TSR_OK;
    if (*call->gantt)
        (void)fprintf(stderr, "tessera: the picture is in %s\n", call->gantt);
    if (*call->chart)
        (void)fprintf(stderr, "tessera: the front is in %s\n", call->chart);
    if (file || !*call->check)
        (void)fprintf(stderr,
                      file ? "tessera: the plan is in %s\n"
                           : "tessera: %s holds the results of a run: -o FILE writes the plan\n",
                      file ? file : job->out);
    return TSR_OK;
}

static tsr_status found(struct tsr_cli *c, const struct tsr_plan_call *call,
                        const struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                        const struct tsr_planning *pl, const struct tsr_plan_planned *a, json_t *j,
                        struct tsr_err *err)
{
    if (!tsr_plan_planned_has_plan(a)) {
        if (c->json)
            TSR_TRY(tsr_cli_print_json(json_incref(j), err));
        return tsr_planning_verdict(j, err);
    }
    for (uint64_t i = 0; i < a->outcome.n_stages; i++)
        if (*call->check && *call->output && a->outcome.stages[i].compensation.k)
            return tsr_fail(err, TSR_E_INPUT,
                            "-o would write the plan without its compensation; it is in %s",
                            call->check);
    TSR_TRY(play(call, pl, a, j, err));
    if (!*call->check || *call->output) /* a checked plan is a file already */
        TSR_TRY(write_plan(job, call, k, pl, a, j, err));
    if (call->front) {
        json_t *f;
        TSR_TRY(tsr_planning_front(pl, a, &f, err));
        if (!tsr_pipeline_json_put(j, "points", json_incref(json_object_get(f, "points"))) ||
            !tsr_pipeline_json_put(j, "front", f))
            return tsr_fail_nomem(err, 64, "a plan");
        if (*call->chart)
            TSR_TRY(tsr_cli_plan_chart(f, pl->problem.shape->name, call->chart, err));
    }
    if (call->explain) {
        json_t *e;
        TSR_TRY(tsr_planning_explain(pl, a, &e, err));
        if (!tsr_pipeline_json_put(j, "explain", e))
            return tsr_fail_nomem(err, 64, "a plan");
    }
    return show(c, call, job, pl, a, j, err);
}

static tsr_status about_one_copy(const struct tsr_plan_call *call, const struct tsr_planning *pl,
                                 struct tsr_err *err)
{
    if (call->explain || call->front || call->simulate || *call->gantt ||
        call->export_to != TSR_PLAN_EXPORT_NONE)
        return tsr_fail(
            err, TSR_E_INPUT,
            "--%s is about one copy of the model, and %llu nodes are planned in copies; "
            "plan first, then give it with --check FILE",
            call->explain    ? "explain"
            : call->front    ? "front"
            : call->simulate ? "simulate"
            : *call->gantt   ? "gantt"
                             : "export",
            (unsigned long long)pl->cluster->n_nodes);
    return TSR_OK;
}

/* Copies of the model on groups of nodes, a file for each kind of them. */
static tsr_status show_copies(struct tsr_cli *c, const struct tsr_plan_call *call,
                              const struct tsr_pipeline_job       *job,
                              const struct tsr_planning_plan_keys *k, const struct tsr_planning *pl,
                              struct tsr_err *err)
{
    char   *path = NULL;
    json_t *j = NULL;
    TSR_TRY(about_one_copy(call, pl, err));
    tsr_status st = plan_path(job, call, k, &path, err);
    if (st == TSR_OK && !path) /* several files */
        st = tsr_fail(err, TSR_E_INPUT, "%s holds a run; name the plan file with -o", job->out);
    if (st == TSR_OK)
        st = tsr_planning_fleet_put(pl, k, path, path, &j, err);
    if (st == TSR_OK && c->json) {
        st = tsr_cli_print_json(json_incref(j), err);
    } else if (st == TSR_OK) {
        tsr_planning_print(j, stdout);
        st = tsr_cli_flush(err);
        if (st == TSR_OK && !c->quiet)
            (void)fprintf(stderr, "tessera: the plan is in %s%s\n", path,
                          pl->fleet.n_kinds > 1 ? " and files next to it" : "");
    }
    json_decref(j);
    free(path);
    return st;
}

/* Many nodes. */
static tsr_status copies(struct tsr_cli *c, const struct tsr_plan_call *call,
                         struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                         struct tsr_planning *pl, struct tsr_err *err)
{
    TSR_TRY(about_one_copy(call, pl, err));
    TSR_TRY(tsr_planning_open(pl, job, err));
    TSR_TRY(tsr_planning_fleet(pl, k, err));
    return show_copies(c, call, job, k, pl, err);
}

/* A plan file in place of a search. */
static tsr_status checked(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                          const struct tsr_pipeline_job_step *step, const char *path,
                          struct tsr_plan_planned *a, json_t **said, struct tsr_diag *d,
                          struct tsr_err *err)
{
    struct tsr_plan_file f;
    tsr_status           st = tsr_plan_file_load(&f, path, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK)
        st = tsr_planning_check(pl, job, step->opts, step->node, &f, a, d, err);
    if (st == TSR_OK && !(*said = tsr_planning_said(pl, &f)))
        st = tsr_fail_nomem(err, 64, "a plan");
    tsr_plan_file_free(&f);
    return st;
}

static tsr_status searched(struct tsr_planning *pl, struct tsr_pipeline_job *job, bool front,
                           struct tsr_plan_planned *a, struct tsr_err *err)
{
    TSR_TRY(tsr_planning_open(pl, job, err));
    if (front)
        TSR_TRY(tsr_planning_keep(pl, err));
    return tsr_planning_search(pl, a, err);
}

static tsr_status plan(struct tsr_cli *c, const struct tsr_plan_call *call,
                       struct tsr_pipeline_job *job, const struct tsr_pipeline_job_step *step,
                       struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_planning     pl;
    struct tsr_plan_planned a = { 0 };
    if (*call->chart && !call->front)
        return tsr_fail(err, TSR_E_INPUT, "--chart is a picture of --front; add --front");
    json_t    *j = NULL, *said = NULL;
    tsr_status st = tsr_planning_read(&pl, job, step->opts, step->node, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK && !*call->check && tsr_planning_copies(&pl, step->opts)) {
        st = copies(c, call, job, step->opts, &pl, err);
        tsr_planning_close(&pl);
        return st;
    }
    if (st == TSR_OK)
        st = *call->check ? checked(&pl, job, step, call->check, &a, &said, d, err)
                          : searched(&pl, job, call->front, &a, err);
    if (st == TSR_OK && pl.fleet.n_kinds) {
        st = show_copies(c, call, job, step->opts, &pl, err);
        tsr_plan_planned_free(&a);
        tsr_planning_close(&pl);
        return st;
    }
    if (st == TSR_OK)
        st = tsr_planning_json(&pl, step->opts, &a, *call->check != '\0', &j, err);
    if (said && st == TSR_OK)
        st = tsr_pipeline_json_put(j, "said", json_incref(said))
                 ? TSR_OK
                 : tsr_fail_nomem(err, 64, "a plan");
    json_decref(said);
    if (st == TSR_OK)
        st = found(c, call, job, step->opts, &pl, &a, j, err);
    json_decref(j);
    tsr_plan_planned_free(&a);
    tsr_planning_close(&pl);
    return st;
}

tsr_status tsr_cli_plan_job(struct tsr_cli *c, const struct tsr_plan_call *call, const char *arg,
                            struct tsr_err *err)
{
    struct tsr_diag                    *d = NULL;
    struct tsr_pipeline_job            *job = NULL;
    const struct tsr_pipeline_job_step *step = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = make(c, &job, call, arg, d, err);
    if (st == TSR_OK && job)
        st = step_of(job, arg, &step, err);
    if (st == TSR_OK && step) {
        st = plan(c, call, job, step, d, err);
        if (tsr_config_diag_errors(d)) /* of the plan file */
            st = tsr_cli_diag(c, d, call->check, err);
    }
    tsr_pipeline_job_destroy(job);
    tsr_config_diag_destroy(d);
    return st;
}
