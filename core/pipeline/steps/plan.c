/* plan: bit widths, stages and micro-batches for the job's model on the job's machines.  Reads headers only. */
#include "base/file.h"
#include "base/hash.h"
#include "pipeline/job.h"
#include "pipeline/step.h"
#include "planning/planning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_planning pl;
    tsr_status          st = tsr_planning_read(&pl, job, opts, node, d, err);
    tsr_planning_close(&pl);
    return st;
}

/* The brace that closes the one before s, or the end. */
static char *closing(char *s)
{
    for (int depth = 1; *s; s++) {
        depth += (*s == '{') - (*s == '}');
        if (depth == 0)
            break;
    }
    return s;
}

/* The hash of a plan without its predictions: the solver's times do not repeat, and no step acts on them. */
static tsr_status hash_acts(const char *path, char hash[TSR_HASH_TEXT], struct tsr_err *err)
{
    static const char  head[] = "predicted: {";
    struct tsr_hasher *h;
    char              *text, *at, *end;
    uint64_t           len;
    TSR_TRY(tsr_file_slurp(path, UINT64_C(64) << 20, &text, &len, err));
    tsr_status st = tsr_hasher_create(&h, err);
    if (st == TSR_OK) {
        for (at = text; (end = strstr(at, head)); at = closing(end + strlen(head)))
            tsr_hasher_update(h, at, (uint64_t)(end - at));
        tsr_hasher_update(h, at, strlen(at));
        tsr_hasher_finish(h, hash);
    }
    free(text);
    return st;
}

/* Later steps follow the plan, so it is part of their identity. */
static tsr_status note(struct tsr_pipeline_job *job, const char *name, const char *path,
                       struct tsr_err *err)
{
    char    hash[TSR_HASH_TEXT];
    json_t *plans = json_object_get(job->manifest, "plans");
    TSR_TRY(hash_acts(path, hash, err));
    if (!plans && tsr_pipeline_json_put(job->manifest, "plans", json_object()))
        plans = json_object_get(job->manifest, "plans");
    return tsr_pipeline_json_put_text(plans, name, hash) ? TSR_OK
                                                         : tsr_fail_nomem(err, 64, "the manifest");
}

static tsr_status write(struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                        const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                        struct tsr_err *err)
{
    char *path = NULL;
    TSR_TRY(tsr_pipeline_job_output(job, k->to, &path, err));
    tsr_status st = tsr_planning_write(pl, a, path, err);
    if (st == TSR_OK)
        st = note(job, k->to, path, err);
    free(path);
    return st;
}

/* Copies on groups of nodes, as files and as the step's result. */
static tsr_status put_copies(struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                             const struct tsr_planning *pl, struct tsr_err *err)
{
    char   *path = NULL;
    json_t *j = NULL;
    TSR_TRY(tsr_pipeline_job_output(job, k->to, &path, err));
    tsr_status st = tsr_planning_fleet_put(pl, k, path, k->to, &j, err);
    free(path);
    if (st != TSR_OK)
        return st;
    if (!job->json)
        tsr_planning_print(j, stdout);
    return tsr_pipeline_step_result(job, "plan", j, err);
}

static tsr_status plan(struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                       struct tsr_planning *pl, struct tsr_err *err)
{
    struct tsr_plan_planned a;
    json_t                 *j = NULL;
    tsr_status              st = tsr_planning_search(pl, &a, err);
    if (st == TSR_OK && pl->fleet.n_kinds) {
        tsr_plan_planned_free(&a);
        return put_copies(job, k, pl, err);
    }
    if (st == TSR_OK)
        st = tsr_planning_json(pl, k, &a, false, &j, err);
    if (st == TSR_OK)
        st = tsr_planning_verdict(j, err);
    if (st == TSR_OK)
        st = write(job, k, pl, &a, err);
    tsr_plan_planned_free(&a);
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    if (!tsr_pipeline_json_put_text(j, "file", k->to)) {
        json_decref(j);
        return tsr_fail_nomem(err, 64, "a plan");
    }
    if (!job->json)
        tsr_planning_print(j, stdout);
    return tsr_pipeline_step_result(job, "plan", j, err);
}

/* The same for many nodes, in copies. */
static tsr_status plan_copies(struct tsr_pipeline_job *job, const struct tsr_planning_plan_keys *k,
                              struct tsr_planning *pl, struct tsr_err *err)
{
    TSR_TRY(tsr_planning_fleet(pl, k, err));
    return put_copies(job, k, pl, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    struct tsr_planning pl;
    struct tsr_diag    *d = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_planning_read(&pl, job, opts, node, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (job->at->limit > 0) /* a plan that is solved again */
        pl.options.max_kl = job->at->limit;
    if (st == TSR_OK)
        st = tsr_planning_open(&pl, job, err);
    if (st == TSR_OK)
        st = tsr_planning_copies(&pl, opts) ? plan_copies(job, opts, &pl, err)
                                            : plan(job, opts, &pl, err);
    tsr_planning_close(&pl);
    tsr_config_diag_destroy(d);
    return st;
}

/* A verification runs the model, which must be in memory then. */
static bool streams(const void *opts)
{
    return !tsr_planning_verifies(opts);
}

const struct tsr_pipeline_step tsr_step_plan;
const struct tsr_pipeline_step tsr_step_plan = {
    .name = "plan",
    .summary = "plans bit widths, devices and micro-batches for the cluster of the job",
    .options = tsr_plan_step_options,
    .n_options = TSR_PLAN_OPTIONS,
    .options_size = sizeof(struct tsr_planning_plan_keys),
    .open = true,
    .check = check,
    .run = run,
    .print = tsr_planning_print,
    .resolves = true,
    .streams_with = streams,
};
