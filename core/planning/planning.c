/* Keys of a plan step into a problem. */
#include "planning/planning.h"

#include "base/f16.h"
#include "base/mem.h"
#include "pipeline/job.h"
#include "pipeline/step.h"
#include "plan/search/kept.h"
#include "plan/search/share.h"
#include "quant/calibrate.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "step 'plan'"

struct quality_keys {
    const char *at_least, *indicators, *table;
    double      theta, max_omega;
};
static const struct tsr_option quality_options[] = {
    TSR_OPTION_STRING(struct quality_keys, at_least, "",
                      "No worse than one candidate everywhere: uniform-4."),
    TSR_OPTION_REAL(struct quality_keys, max_omega, -1, -1, 1e300, NULL,
                    "Most that the indicator may sum up to; -1: any."),
    TSR_OPTION_REAL(struct quality_keys, theta, 0, 0, 1e300, "ms",
                    "Time that a unit of the indicator is worth."),
    TSR_OPTION_PATH(
        struct quality_keys, indicators, "", "FILE",
        "File of the step indicators, or prior: by bits and size. By default that of the "
        "step before it in the job, else the prior."),
    TSR_OPTION_STRING(struct quality_keys, table, "",
                      "Its table; by default the first of measured, hessian, variance."),
};

/* ---- quality ---------------------------------------------------------------------- */

static tsr_status take_indicators(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                                  const struct tsr_config_node *map, const char *file,
                                  struct tsr_diag *d, struct tsr_err *err)
{
    if (tsr_pipeline_job_measures(job, file)) {
        TSR_TRY(tsr_pipeline_job_in_folder(job, file, &pl->indicators, err));
    } else {
        tsr_pipeline_check_input(job, map, "indicators", d);
        pl->indicators = tsr_pipeline_job_input(job, file);
    }
    pl->options.indicators = pl->indicators;
    return pl->indicators ? TSR_OK : tsr_fail_nomem(err, strlen(file), "a path");
}

static tsr_status read_quality(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                               const struct tsr_planning_plan_keys *k, struct tsr_diag *d,
                               struct tsr_err *err)
{
    struct tsr_plan_problem_options *o = &pl->options;
    const struct tsr_config_node    *map = k->quality;
    const char                      *measured = tsr_pipeline_job_measured(job); /* or NULL */
    struct quality_keys              q = { 0 };
    struct tsr_config_optset         set = { quality_options, 5, sizeof *quality_options, &q };
    o->indicators = o->table = "";
    o->max_omega = -1;
    if (map && map->kind == TSR_CONFIG_NODE_SCALAR && strcmp(map->text, "prior") == 0)
        return TSR_OK;
    if (!map || map->kind == TSR_CONFIG_NODE_NULL)
        return measured ? take_indicators(pl, job, map, measured, d, err) : TSR_OK;
    uint64_t before = tsr_config_diag_errors(d);
    tsr_config_options_fill(&set, 1, NULL, map, "quality", d);
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK;
    o->table = q.table;
    o->theta = q.theta;
    o->max_omega = q.max_omega;
    o->at_least = *q.at_least ? q.at_least : NULL;
    if (strcmp(q.indicators, "prior") == 0)
        q.indicators = "", measured = NULL;
    if (*q.indicators || measured)
        return take_indicators(pl, job, map, *q.indicators ? q.indicators : measured, d, err);
    if (*q.table)
        tsr_config_diag_error(d, &tsr_config_node_get(map, "table")->mark, NULL,
                              "'table' without 'indicators', the file that it is in");
    return TSR_OK;
}

/* ---- machines and work ---------------------------------------------------------------- */

static tsr_status read_cluster(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                               const struct tsr_config_node *node, struct tsr_diag *d,
                               struct tsr_err *err)
{
    const struct tsr_pipeline_job_head *h = &job->state->head;
    const struct tsr_config_node       *at =
        tsr_config_node_get(tsr_config_doc_root(job->doc), "cluster");
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *path = NULL;
    if (!h->cluster || !*h->cluster) {
        tsr_config_diag_error(d, &node->mark, "add 'cluster: FILE' to the head of the job",
                              WHAT " needs to know the machines");
        return TSR_OK;
    }
    tsr_status st = tsr_plan_cluster_find(&path, h->cluster, job->state->dir, &e.err);
    if (st == TSR_OK)
        st = tsr_plan_cluster_load(&pl->cluster, path, d, &e.err);
    free(path);
    if (st == TSR_E_INPUT)
        tsr_config_diag_failure(d, at ? &at->mark : &node->mark, &e.err);
    else if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    return TSR_OK;
}

static tsr_status read_work(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                            struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_config_node *map = job->state->head.workload;
    const struct tsr_config_node *from =
        map && map->kind == TSR_CONFIG_NODE_MAP ? tsr_config_node_get(map, "from") : NULL;
    struct tsr_tokenizer *tok = NULL;
    if (from)
        TSR_TRY(tsr_pipeline_job_load_tokenizer(&tok, job->model_path, err));
    tsr_status st = tsr_plan_workload_read(&pl->work, map, job->state->dir, tok, d, err);
    tsr_tokenizer_destroy(tok);
    return st;
}

struct at_most_keys {
    double latency_s, ttft_s, kl;
};
static const struct tsr_option at_most_options[] = {
    TSR_OPTION_REAL(struct at_most_keys, kl, 0, 0, 1e100, "nats",
                    "KL to the original for each token, by indicators of measure: kl."),
    TSR_OPTION_REAL(struct at_most_keys, latency_s, 0, 0, 1e12, "s", "Time of the whole batch."),
    TSR_OPTION_REAL(struct at_most_keys, ttft_s, 0, 0, 1e12, "s",
                    "Time until all prompts of the first round are done."),
};

static void read_at_most(struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                         struct tsr_diag *d)
{
    const struct tsr_config_node *map = k->at_most;
    struct at_most_keys           m = { 0 };
    struct tsr_config_optset      set = { at_most_options, 3, sizeof *at_most_options, &m };
    uint64_t                      before = tsr_config_diag_errors(d);
    if (!map || map->kind == TSR_CONFIG_NODE_NULL)
        return;
    tsr_config_options_fill(&set, 1, NULL, map, "at_most", d);
    if (tsr_config_diag_errors(d) != before)
        return;
    if (!(m.latency_s > 0) && !(m.ttft_s > 0) && !(m.kl > 0))
        tsr_config_diag_error(d, &map->mark,
                              "write at_most: {latency_s: 30}, {ttft_s: 2} or {kl: 0.05}",
                              "'at_most' says neither a time nor a KL");
    pl->options.max_kl = m.kl;
    pl->options.max_first_ms = m.ttft_s * 1e3;
    if (!(m.latency_s > 0) && !(m.ttft_s > 0))
        return;
    if (m.ttft_s > 0 && pl->options.head == TSR_PLAN_HEAD_FIRST)
        tsr_config_diag_error(d, &map->mark, "leave head out",
                              "'ttft_s' does not count rows that go back to a head on the first "
                              "stage");
    if (pl->cluster && tsr_planning_copies(pl, k))
        tsr_config_diag_error(d, &map->mark, NULL,
                              "'at_most' is about one copy of the model; %llu nodes are planned in "
                              "copies",
                              (unsigned long long)pl->cluster->n_nodes);
    if (pl->options.objective == TSR_OBJECTIVE_PAPER)
        tsr_config_diag_error(d, &map->mark, NULL,
                              "'at_most' is a time as it is; the objective paper is another");
    pl->at_most_ms = m.latency_s * 1e3;
}

static tsr_status read_solver(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                              const struct tsr_planning_plan_keys *k,
                              const struct tsr_config_node *node, struct tsr_diag *d,
                              struct tsr_err *err)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "solver");
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    tsr_status                    st =
        tsr_plugin_spec_open(&pl->solver, job->registry, TSR_KIND_SOLVER, k->solver, &e.err);
    if (st == TSR_E_INPUT || st == TSR_E_CONFIG)
        tsr_config_diag_failure(d, at ? &at->mark : &node->mark, &e.err);
    else if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    return TSR_OK;
}

/* The width in "gptq:bits=4,group=128"; 0: the plugin's own, or the original's. */
static unsigned long width_of(const char *text)
{
    const char *at = strstr(text, ":bits=");
    return at ? strtoul(at + strlen(":bits="), NULL, 10) : 0;
}

/* A limit of 4 bits everywhere that no candidate can have is said here already: `indicators` before this step takes
 * long.  What only the model tells is left to the step. */
static void check_limit(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                        const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_plan_problem_options *o = &pl->options;
    const struct tsr_config_node          *at = k->quality      ? k->quality
                                                : k->bits       ? k->bits
                                                : k->candidates ? k->candidates
                                                                : node;
    const char    uniform[] = "uniform-", *said = o->at_least ? o->at_least : "uniform-4";
    char         *end;
    bool          given = o->theta > 0 || o->max_omega >= 0 || o->max_kl > 0 || *o->indicators;
    unsigned long want = 0;
    if (strncmp(said, uniform, strlen(uniform)) == 0)
        want = strtoul(said + strlen(uniform), &end, 10);
    if (want == 0 || want >= 16 || *end || (!o->at_least && (given || pl->n_texts == 1)))
        return;
    for (uint64_t i = 0; i < pl->n_texts; i++) {
        unsigned long width = width_of(pl->texts[i]);
        if (width == want || (!width && strcmp(pl->texts[i], "original") != 0))
            return;
    }
    tsr_config_diag_error(d, &at->mark, "give quality: {at_least: uniform-N}, max_omega or theta",
                          "no candidate has %lu bits, %s", want,
                          o->at_least ? "which 'at_least' names"
                                      : "which is the limit where 'quality' names none");
}

tsr_status tsr_planning_read(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                             const struct tsr_planning_plan_keys *k,
                             const struct tsr_config_node *node, struct tsr_diag *d,
                             struct tsr_err *err)
{
    *pl = (struct tsr_planning){ 0 };
    pl->options = (struct tsr_plan_problem_options){
        .model = job->model_path,
        .objective = k->objective,
        .accounting = k->accounting,
        .latency = k->latency,
        .head = k->head,
        .experts = k->experts,
        .expert_groups = (uint32_t)k->expert_groups,
        .codec = k->codec,
        .tp_codec = k->tp_codec,
        .together = (uint64_t)k->layer_group,
        .prefill_mb = (uint64_t)k->prefill_mb,
        .decode_mb = (uint64_t)k->decode_mb,
        .min_tp = (uint32_t)k->min_tp,
        .max_tp = (uint32_t)k->max_tp,
        .use_all = k->use_all != 0,
        .gap = k->gap,
        .time_limit = k->time_limit,
        .seed = k->seed < 0 ? job->seed : (uint64_t)k->seed,
    };
    if (*k->routing) {
        tsr_pipeline_check_input(job, node, "routing", d);
        pl->routing = tsr_pipeline_job_input(job, k->routing);
        pl->options.routing = pl->routing;
        if (!pl->routing)
            return tsr_fail_nomem(err, strlen(k->routing), "a path");
    }
    TSR_TRY(tsr_planning_drafts(pl, job, k, err));
    TSR_TRY(read_cluster(pl, job, node, d, err));
    pl->share_unit = (uint64_t)k->share_unit;
    pl->followed = tsr_planning_followed(job, k);
    tsr_planning_replicas_read(pl, k, node, d);
    TSR_TRY(read_work(pl, job, d, err));
    TSR_TRY(read_quality(pl, job, k, d, err));
    tsr_planning_open_settings(pl, job, k, d);
    tsr_planning_channels(pl, k->compensate, d);
    TSR_TRY(tsr_planning_ends(pl, job, k->ends, d, err));
    if (pl->n_ends && pl->cluster && tsr_planning_copies(pl, k))
        tsr_config_diag_error(
            d, &k->ends->mark, "leave 'ends' out",
            "'ends' is chosen for one copy of the model; %llu nodes are planned in copies",
            (unsigned long long)pl->cluster->n_nodes);
    read_at_most(pl, k, d);
    TSR_TRY(tsr_planning_codecs(pl, job, k, node, d, err));
    tsr_planning_verify_read(pl, job, k, d);
    TSR_TRY(tsr_planning_candidates(pl, job, k, node, d, err));
    pl->options.chosen = (k->bits && k->bits->kind != TSR_CONFIG_NODE_NULL) ||
                         (k->candidates && k->candidates->kind != TSR_CONFIG_NODE_NULL) ||
                         k->expert_groups > 1;
    if (pl->n_texts && tsr_config_diag_errors(d) == 0)
        check_limit(pl, k, node, d);
    return read_solver(pl, job, k, node, d, err);
}

void tsr_planning_routing(struct tsr_planning *pl, const struct tsr_pipeline_job *job)
{
    if (!pl->routing && job->calibration && job->model->hp.experts)
        pl->options.routing = tsr_quant_calibration_folder(job->calibration);
}

tsr_status tsr_planning_open(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                             struct tsr_err *err)
{
    tsr_planning_routing(pl, job);
    pl->options.candidates = (const char *const *)pl->texts;
    pl->options.n_candidates = pl->n_texts;
    pl->options.numerics = job->on.numerics;
    return tsr_plan_problem_open(&pl->problem, job->registry, &pl->options, pl->cluster, &pl->work,
                                 err);
}

/* The best plan of one pipeline. */
static tsr_status search_one(struct tsr_planning *pl, struct tsr_plan_problem *p,
                             struct tsr_plan_planned *a, struct tsr_err *err)
{
    if (p->knee && !(pl->at_most_ms > 0))
        return tsr_plan_front_knee(a, p, &pl->solver, err);
    if (pl->kept && pl->replicas == 1 && !(pl->at_most_ms > 0)) /* else there are several */
        return tsr_plan_front_own(a, p, pl->kept, &pl->solver, err);
    return pl->at_most_ms > 0 ? tsr_plan_settings_within(a, p, &pl->solver, pl->at_most_ms, err)
                              : tsr_plan_settings_search(a, p, &pl->solver, err);
}

tsr_status tsr_planning_search(struct tsr_planning *pl, struct tsr_plan_planned *a,
                               struct tsr_err *err)
{
    return pl->replicas == 1 ? search_one(pl, &pl->problem, a, err)
                             : tsr_planning_replicas_search(pl, a, search_one, err);
}

tsr_status tsr_planning_keep(struct tsr_planning *pl, struct tsr_err *err)
{
    pl->kept = tsr_new(1, sizeof *pl->kept);
    return pl->kept ? TSR_OK : tsr_fail_nomem(err, sizeof *pl->kept, "bounds of a plan");
}

void tsr_planning_close(struct tsr_planning *pl)
{
    if (pl->kept)
        tsr_plan_kept_close(pl->kept);
    free(pl->kept);
    tsr_plan_fleet_free(&pl->fleet);
    if (pl->part) {
        tsr_plan_share_close(&pl->problem, pl->part);
        pl->problem = pl->whole;
    }
    tsr_plan_parts_free(&pl->parts);
    if (pl->problem.registry)
        tsr_plan_problem_close(&pl->problem);
    tsr_plugin_spec_close(&pl->solver);
    tsr_plan_workload_free(&pl->work);
    tsr_plan_cluster_destroy(pl->cluster);
    for (uint64_t i = 0; i < pl->n_texts; i++)
        free(pl->texts[i]);
    free(pl->texts);
    for (uint64_t i = 0; i < pl->n_ends; i++)
        free(pl->ends[i]);
    free(pl->ends);
    tsr_planning_drafts_free(pl);
    free(pl->indicators);
    free(pl->routing);
    free((void *)(uintptr_t)pl->links);
    free((void *)(uintptr_t)pl->sums);
    *pl = (struct tsr_planning){ 0 };
}
