/* tessera doctor: checks the hosts of a cluster before a job. */
#include "cli/doctor/doctor.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/jobs.h"
#include "pipeline/job.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define S struct doctor_options
static const struct tsr_option options[] = {
    TSR_OPTION_PATH(S, model, "", "MODEL",
                    "model whose bytes must be the same everywhere; a job names its own"),
    TSR_OPTION_BOOL(S, headers, 0, "hash the model's headers only, not its weights"),
    TSR_OPTION_REAL(S, deadline, 120, 0.1, 86400, "s", "of every wait for another host"),
};
#undef S

/* ---- the cluster and the model ------------------------------------------------ */

static tsr_status load_cluster(struct doctor *d, const char *path, struct tsr_diag *g,
                               struct tsr_err *err)
{
    tsr_status st = tsr_plan_cluster_load(&d->cluster, path, g, err);
    if (st == TSR_OK && !d->cluster)
        st = tsr_config_diag_status(g, err);
    if (st == TSR_OK && !d->cluster)
        st = tsr_fail(err, TSR_E_INPUT, "%s: is not a cluster", path);
    return st;
}

static tsr_status load_job(struct doctor *d, const char *path, struct tsr_diag *g,
                           struct tsr_err *err)
{
    struct tsr_pipeline_job_options o = { .quiet = true };
    struct tsr_pipeline_job        *job = NULL;
    char                           *file = NULL;
    tsr_status                      st = tsr_pipeline_job_load(&job, path, &o, g, err);
    if (st == TSR_OK && !job)
        st = tsr_config_diag_status(g, err);
    if (st == TSR_OK && (!job || !job->state->head.cluster || !*job->state->head.cluster))
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: names no cluster; add `cluster: FILE`, or name the "
                      "cluster's file here",
                      path);
    if (st == TSR_OK)
        st = tsr_plan_cluster_find(&file, job->state->head.cluster, job->state->dir, err);
    if (st == TSR_OK && !d->model && job->model_path) {
        d->model = tsr_strdup(job->model_path);
        st = d->model ? TSR_OK : tsr_fail_nomem(err, strlen(job->model_path), "a path");
    }
    if (st == TSR_OK)
        st = load_cluster(d, file, g, err);
    free(file);
    tsr_pipeline_job_destroy(job);
    return st;
}

/* A cluster has `nodes`, a job a `pipeline`. */
static tsr_status load(struct doctor *d, const char *path, struct tsr_err *err)
{
    struct tsr_diag       *g = NULL;
    struct tsr_config_doc *doc = NULL;
    char                  *file = NULL;
    TSR_TRY(tsr_config_diag_create(&g, err));
    tsr_status st = TSR_OK;
    if (*d->o->model) {
        d->model = tsr_strdup(d->o->model);
        st = d->model ? TSR_OK : tsr_fail_nomem(err, strlen(d->o->model), "a path");
    }
    if (st == TSR_OK && !tsr_path_exists(path)) { /* a name such as t4x3-v100 */
        st = tsr_plan_cluster_find(&file, path, NULL, err);
    } else if (st == TSR_OK) {
        file = tsr_strdup(path);
        st = file ? TSR_OK : tsr_fail_nomem(err, strlen(path), path);
    }
    if (st == TSR_OK)
        st = tsr_config_doc_load(&doc, file, g, err);
    bool nodes = st == TSR_OK && doc && tsr_config_doc_root(doc) &&
                 tsr_config_node_get(tsr_config_doc_root(doc), "nodes");
    if (st == TSR_OK && doc)
        st = nodes ? load_cluster(d, file, g, err) : load_job(d, file, g, err);
    if (tsr_config_diag_errors(g))
        st = tsr_cli_diag(d->cli, g, path, err);
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(g);
    free(file);
    return st;
}

/* ---- the answer ----------------------------------------------------------------- */

static const char *const words[] = { "ok", "BAD", "not checked" };

static tsr_status print_json(const struct doctor *d, uint64_t bad, struct tsr_err *err)
{
    json_t *lines = json_array();
    for (uint64_t i = 0; i < d->n_lines; i++) {
        const struct doctor_line *l = &d->line[i];
        tsr_json_add(&lines, json_pack("{s:s, s:s, s:s, s:s, s:s}", "check", l->check, "where",
                                       l->where, "found", l->found, "wanted", l->wanted, "verdict",
                                       words[l->verdict]));
    }
    return tsr_cli_print_json(json_pack("{s:s, s:I, s:I, s:o}", "cluster", d->cluster->name,
                                        "ranks", (json_int_t)d->ranks, "bad", (json_int_t)bad,
                                        "checks", lines),
                              err);
}

static tsr_status answer(const struct doctor *d, struct tsr_err *err)
{
    uint64_t bad = 0;
    for (uint64_t i = 0; i < d->n_lines; i++)
        bad += d->line[i].verdict == DOCTOR_BAD;
    if (d->cli->json) {
        TSR_TRY(print_json(d, bad, err));
    } else {
        for (uint64_t i = 0; i < d->n_lines; i++) {
            const struct doctor_line *l = &d->line[i];
            printf("%-11s %-8s %s: %s%s%s\n", words[l->verdict], l->check, l->where, l->found,
                   l->verdict == DOCTOR_OK ? "" : "; wanted: ",
                   l->verdict == DOCTOR_OK ? "" : l->wanted);
        }
        TSR_TRY(tsr_cli_flush(err));
    }
    if (bad)
        return tsr_fail(err, TSR_E_CHECK, "%s: %llu of %llu checks are not as they should be",
                        d->cluster->name, (unsigned long long)bad, (unsigned long long)d->n_lines);
    return TSR_OK;
}

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    struct doctor d = { .cli = c, .o = opts, .ranks = 1 };
    (void)n_args;
    d.launched = tsr_comm_launched(&d.rank, &d.ranks) && d.ranks > 1;
    if (!d.launched) {
        d.rank = 0;
        d.ranks = 1;
    }
    tsr_status st = tsr_cli_registry(c, &d.registry, err);
    if (st == TSR_OK)
        st = load(&d, args[0], err);
    if (st == TSR_OK)
        st = doctor_gather(&d, err);
    if (st == TSR_OK && d.rank == 0)
        st = doctor_judge(&d, err);
    if (st == TSR_OK && d.rank == 0)
        st = answer(&d, err);
    tsr_comm_map_free(&d.map);
    tsr_plan_cluster_destroy(d.cluster);
    free(d.model);
    free(d.facts);
    free(d.line);
    return st;
}

const struct tsr_verb tsr_verb_doctor;
const struct tsr_verb tsr_verb_doctor = {
    .name = "doctor",
    .summary = "checks the hosts of a cluster before a job",
    .args = "CLUSTER|JOB.yaml",
    .min_args = 1,
    .max_args = 1,
    .details =
        "Run it under `mpirun` with a process on every node of the cluster file. It checks:\n"
        "\n"
        "links    between all ranks: bandwidth at least 0.8 of the file's, latency at most 1.5 "
        "times the file's plus 20 us.\n"
        "version  equal to that of rank 0.\n"
        "plugins  by their hash, against rank 0.\n"
        "model    by its hash, against rank 0.\n"
        "memory   for the devices that are CPUs or emulated.\n"
        "clocks   within 1 s of rank 0.\n"
        "\n"
        "Alone, it checks this host, with its links between threads. The other nodes are "
        "reported as not checked, and the result is negative. Every wait has a deadline and "
        "names the rank that is late. Exit code 1 if a check fails.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct doctor_options),
    .run = run,
};
