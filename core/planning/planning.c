/* Keys of a plan step into a problem. */
#include "planning/planning.h"

#include "base/f16.h"
#include "pipeline/job.h"
#include "pipeline/step.h"
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
    TSR_OPTION_PATH(struct quality_keys, indicators, "", "FILE",
                    "File of the step indicators; without one a prior in bits and size."),
    TSR_OPTION_STRING(struct quality_keys, table, "",
                      "Its table; by default the first of measured, hessian, variance."),
};

/* ---- quality ---------------------------------------------------------------------- */

static tsr_status read_quality(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                               const struct tsr_planning_plan_keys *k, struct tsr_diag *d,
                               struct tsr_err *err)
{
    struct tsr_plan_problem_options *o = &pl->options;
    const struct tsr_config_node    *map = k->quality;
    struct quality_keys              q = { 0 };
    struct tsr_config_optset         set = { quality_options, 5, sizeof *quality_options, &q };
    o->indicators = o->table = "";
    o->max_omega = -1;
    if (!map || map->kind == TSR_CONFIG_NODE_NULL ||
        (map->kind == TSR_CONFIG_NODE_SCALAR && strcmp(map->text, "prior") == 0))
        return TSR_OK;
    uint64_t before = tsr_config_diag_errors(d);
    tsr_config_options_fill(&set, 1, NULL, map, "quality", d);
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK;
    o->table = q.table;
    o->theta = q.theta;
    o->max_omega = q.max_omega;
    o->at_least = *q.at_least ? q.at_least : NULL;
    if (!*q.indicators) {
        if (*q.table)
            tsr_config_diag_error(d, &tsr_config_node_get(map, "table")->mark, NULL,
                                  "'table' without 'indicators', the file that it is in");
        return TSR_OK;
    }
    if (tsr_pipeline_job_measures(job, q.indicators)) {
        TSR_TRY(tsr_pipeline_job_in_folder(job, q.indicators, &pl->indicators, err));
    } else {
        tsr_pipeline_check_input(job, map, "indicators", d);
        pl->indicators = tsr_pipeline_job_input(job, q.indicators);
    }
    o->indicators = pl->indicators;
    return pl->indicators ? TSR_OK : tsr_fail_nomem(err, strlen(q.indicators), "a path");
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

/* ---- what is left open ------------------------------------------------------------------ */

static void read_kv_type(struct tsr_planning *pl, const char *name,
                         const struct tsr_config_node *at, struct tsr_diag *d)
{
    struct tsr_plan_problem_options *o = &pl->options;
    uint32_t                         kv = 0;
    for (size_t i = 0; i < TSR_KV_CHOICES; i++)
        if (strcmp(tsr_kv_choices[i].name, name) == 0)
            kv = (uint32_t)tsr_kv_choices[i].value;
    for (uint32_t i = 0; i < o->n_kv && kv; i++)
        if (o->kv[i] == kv) {
            tsr_config_diag_error(d, &at->mark, "keep one of them", "'%s' comes twice in 'kv'",
                                  name);
            return;
        }
    if (!kv)
        tsr_config_diag_error(d, &at->mark, "write kv: [f16, int8]",
                              "'%.40s' is not a type of the KV cache: f32, f16, int8, fp8 or int4",
                              name);
    else if ((kv == TSR_E4M3 || kv == TSR_Q4) && !*o->indicators)
        tsr_config_diag_error(d, &at->mark,
                              "give indicators of measure: kl, or fix it in the workload",
                              "what a KV cache of %s loses is not known by the prior", name);
    else
        o->kv[o->n_kv++] = kv;
}

/* [f16, int8], or "f16,int8" of a command line. */
static void read_kv(struct tsr_planning *pl, const struct tsr_config_node *list, struct tsr_diag *d)
{
    if (list->kind == TSR_CONFIG_NODE_SCALAR) {
        for (const char *s = list->text;; s++) {
            size_t n = strcspn(s, ",");
            char   one[16];
            (void)snprintf(one, sizeof one, "%.*s", (int)(n < 15 ? n : 15), s);
            read_kv_type(pl, one, list, d);
            s += n;
            if (!*s)
                return;
        }
    }
    if (list->kind != TSR_CONFIG_NODE_LIST || !list->n)
        tsr_config_diag_error(d, &list->mark, "write kv: [f16, int8]", "'kv' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
    for (uint64_t i = 0; list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        read_kv_type(pl, item->kind == TSR_CONFIG_NODE_SCALAR ? item->text : "", item, d);
    }
}

/* What the workload does not say is the planner's to choose; a table of a paper has what the paper has. */
static void read_open(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                      const struct tsr_planning_plan_keys *k, struct tsr_diag *d)
{
    struct tsr_plan_problem_options *o = &pl->options;
    const struct tsr_config_node    *map = job->state->head.workload;
    if (map && map->kind != TSR_CONFIG_NODE_MAP)
        map = NULL;
    const struct tsr_config_node *kv = map ? tsr_config_node_get(map, "kv") : NULL;
    bool                          listed = k->kv && k->kv->kind != TSR_CONFIG_NODE_NULL;
    bool                          copies = pl->cluster && tsr_planning_copies(pl, k);
    bool                          open =
        o->objective != TSR_OBJECTIVE_PAPER && o->accounting != TSR_PLAN_ACCOUNT_PAPER && !copies;
    o->free_concurrency = open && !(map && tsr_config_node_get(map, "concurrency"));
    o->free_chunk = open && !(map && tsr_config_node_get(map, "chunk"));
    o->free_kv = open && !kv && !listed;
    o->knee = o->objective != TSR_OBJECTIVE_PAPER && !copies;
    if (listed && kv)
        tsr_config_diag_error(d, &k->kv->mark, "keep one of them",
                              "'kv' is in the workload, too, which fixes it");
    else if (listed && copies)
        tsr_config_diag_error(d, &k->kv->mark, "write workload: {kv: int8}",
                              "'kv' is chosen for one copy of the model; %llu nodes are planned "
                              "in copies, of which the workload says the cache",
                              (unsigned long long)pl->cluster->n_nodes);
    else if (listed)
        read_kv(pl, k->kv, d);
}

static void read_channel(struct tsr_planning *pl, const char *text,
                         const struct tsr_config_node *at, struct tsr_diag *d)
{
    struct tsr_plan_problem_options *o = &pl->options;
    char                            *end;
    unsigned long                    k = strtoul(text, &end, 10);
    bool                             twice = false;
    for (uint32_t i = 0; i < o->n_k; i++)
        twice = twice || o->k[i] == k;
    if (*text < '0' || *text > '9' || *end || k > TSR_PLAN_CHANNELS)
        tsr_config_diag_error(d, &at->mark, "write compensate: [0, 8, 16, 32]",
                              "'%.40s' is not a number of channels from 0 to %u", text,
                              TSR_PLAN_CHANNELS);
    else if (twice)
        tsr_config_diag_error(d, &at->mark, "keep one of them", "%lu comes twice in 'compensate'",
                              k);
    else if (o->n_k == TSR_PLAN_K)
        tsr_config_diag_error(d, &at->mark, NULL, "'compensate' has more than %u numbers",
                              TSR_PLAN_K);
    else
        o->k[o->n_k++] = (uint32_t)k;
}

/* [0, 8, 16], or "0,8,16" of a command line. */
static void read_compensate(struct tsr_planning *pl, const struct tsr_config_node *list,
                            struct tsr_diag *d)
{
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return;
    for (const char *s = list->kind == TSR_CONFIG_NODE_SCALAR ? list->text : ""; *s;) {
        size_t n = strcspn(s, ",");
        char   one[16];
        (void)snprintf(one, sizeof one, "%.*s", (int)(n < 15 ? n : 15), s);
        read_channel(pl, one, list, d);
        s += n + (s[n] == ',');
    }
    if (list->kind != TSR_CONFIG_NODE_SCALAR && (list->kind != TSR_CONFIG_NODE_LIST || !list->n))
        tsr_config_diag_error(d, &list->mark, "write compensate: [0, 8, 16, 32]",
                              "'compensate' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
    for (uint64_t i = 0; list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        read_channel(pl, item->kind == TSR_CONFIG_NODE_SCALAR ? item->text : "", item, d);
    }
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
    TSR_TRY(read_cluster(pl, job, node, d, err));
    TSR_TRY(read_work(pl, job, d, err));
    TSR_TRY(read_quality(pl, job, k, d, err));
    read_open(pl, job, k, d);
    read_compensate(pl, k->compensate, d);
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

tsr_status tsr_planning_search(struct tsr_planning *pl, struct tsr_plan_planned *a,
                               struct tsr_err *err)
{
    if (pl->problem.knee && !(pl->at_most_ms > 0))
        return tsr_plan_front_knee(a, &pl->problem, &pl->solver, err);
    return pl->at_most_ms > 0
               ? tsr_plan_settings_within(a, &pl->problem, &pl->solver, pl->at_most_ms, err)
               : tsr_plan_settings_search(a, &pl->problem, &pl->solver, err);
}

void tsr_planning_close(struct tsr_planning *pl)
{
    if (pl->part) {
        tsr_plan_fleet_share_close(&pl->problem, pl->part);
        pl->problem = pl->whole;
    }
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
    free(pl->indicators);
    free(pl->routing);
    free((void *)(uintptr_t)pl->links);
    free((void *)(uintptr_t)pl->sums);
    *pl = (struct tsr_planning){ 0 };
}
