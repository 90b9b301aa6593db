/* tessera bench plan: how long solvers take on the clusters of the papers. */
#include "cli/bench/plan.h"
#include "cli/bench/cases.h"

#include "plan/search/replicas.h"
#include "plan/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct result {
    uint64_t which; /* case */
    int64_t  objective;
    bool     limit;
    uint64_t choices, options; /* instances, micro-batch pairs over all of them */
    double   cpu_s, best, gap; /* gap: proved, relative; INFINITY: no plan */
};

struct plan_bench {
    const struct bench_plan_options *o;
    struct tsr_registry             *registry;
    struct tsr_plugin_spec           spec;
    struct result                   *results;
    uint64_t                         n;
};

static struct bench_ask ask_of(const struct plan_bench *b)
{
    return (struct bench_ask){ .objective = TSR_OBJECTIVE_STEADY,
                               .batch = 32,
                               .prompt = 512,
                               .tokens = 100,
                               .gap = b->o->gap,
                               .time_limit = b->o->time_limit };
}

static double gap_of(double best, double bound)
{
    /* where time ran out there may be no bound: 0 is one */
    return best < INFINITY ? (best - fmax(0, fmin(best, bound))) / best : INFINITY;
}

static tsr_status run_case(struct plan_bench *b, uint64_t which, int64_t objective, bool limit,
                           struct tsr_err *err)
{
    struct bench_ask        ask = ask_of(b);
    struct bench_problem    problem;
    struct tsr_plan_planned found = { 0 };
    struct result          *r = &b->results[b->n];
    *r = (struct result){ .which = which, .objective = objective, .limit = limit };
    ask.objective = objective;
    ask.limit = limit;
    tsr_status st = bench_problem_open(&problem, b->registry, &bench_cases[which], NULL, &ask, err);
    if (st == TSR_OK) {
        double start = bench_cpu_s();
        st = tsr_search(&found, &problem.p, &b->spec, INFINITY, err);
        r->cpu_s = bench_cpu_s() - start;
        r->choices = found.solves;
        r->options = found.options;
        r->best = tsr_plan_planned_has_plan(&found) ? found.objective : INFINITY;
        r->gap = gap_of(r->best, found.bound);
        b->n++;
    }
    tsr_plan_planned_free(&found);
    bench_problem_close(&problem);
    return st;
}

/* ---- a thousand devices ------------------------------------------------------- */

#define TYPES 4u
static const struct {
    const char *profile, *inside;
    uint64_t    nodes;
} fleet[TYPES] = { { "T4", "12 GB/s", 31 },
                   { "V100-32G", "150 GB/s", 31 },
                   { "A100-40G", "300 GB/s", 31 },
                   { "A800-80G", "200 GB/s", 32 } };

/* A group of nodes of 8 devices, in meshes of 8: pipelines between nodes only. */
static tsr_status group_cost(void *arg, const uint64_t *nodes, uint64_t batch, double cutoff,
                             double *objective, double *bound, struct tsr_err *err)
{
    static const struct bench_case c = { "bench/four-kinds", "papers/models/llama-3.3-70b", true,
                                         false };
    struct plan_bench             *b = arg;
    struct bench_problem           problem;
    struct bench_ask               ask = ask_of(b);
    struct tsr_plan_planned        found = { 0 };
    char                           text[1024];
    size_t                         at = 0;
    at += (size_t)snprintf(text, sizeof text, "version: 1\nnodes:\n");
    for (uint64_t t = 0; t < TYPES; t++)
        for (uint64_t i = 0; i < nodes[t]; i++)
            at += (size_t)snprintf(text + at, sizeof text - at,
                                   "  - {name: n%llu-%llu, devices: [{profile: %s, count: 8}], "
                                   "link: {bandwidth: %s, latency: 10 us}}\n",
                                   (unsigned long long)t, (unsigned long long)i, fleet[t].profile,
                                   fleet[t].inside);
    (void)snprintf(text + at, sizeof text - at,
                   "network: {bandwidth: 100 Gbit/s, latency: 20 us}\n");
    ask.batch = batch;
    ask.min_tp = 8;
    tsr_status st = bench_problem_open(&problem, b->registry, &c, text, &ask, err);
    if (st == TSR_OK)
        st = tsr_search(&found, &problem.p, &b->spec, cutoff, err);
    *objective = tsr_plan_planned_has_plan(&found) ? found.objective : INFINITY;
    *bound = found.status == TSR_SOLVED_INFEASIBLE ? INFINITY : found.bound;
    tsr_plan_planned_free(&found);
    bench_problem_close(&problem);
    return st;
}

struct fleet_result {
    struct tsr_plan_replicas r;
    double                   cpu_s;
    bool                     ran;
};

static tsr_status run_fleet(struct plan_bench *b, struct fleet_result *f, struct tsr_err *err)
{
    struct tsr_plan_replica_problem p = { .types = TYPES,
                                          .batch = 8192,
                                          .unit = 32,
                                          .max_nodes = 2,
                                          .gap = 1e-3,
                                          .cost = group_cost,
                                          .arg = b };
    for (uint64_t t = 0; t < TYPES; t++)
        p.count[t] = fleet[t].nodes;
    double     start = bench_cpu_s();
    tsr_status st = tsr_plan_replicas_plan(&f->r, &p, err);
    f->cpu_s = bench_cpu_s() - start;
    f->ran = true;
    return st;
}

/* ---- output -------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* "clusters/llmpq-1" -> "llmpq-1" */
static const char *last(const char *name)
{
    return strrchr(name, '/') + 1;
}

static const char *objective_name(int64_t o)
{
    return o == TSR_OBJECTIVE_PAPER ? "paper" : "steady";
}

static const char *quality_name(const struct result *x)
{
    return x->limit ? "at_least" : "theta";
}

static json_t *fleet_json(const struct fleet_result *f)
{
    const struct tsr_plan_replicas *r = &f->r;
    json_t                         *groups = json_array();
    for (uint64_t i = 0; i < r->n_groups; i++) {
        const struct tsr_plan_replica_group *g = &r->groups[i];
        json_t                              *nodes = json_object();
        for (uint64_t t = 0; t < TYPES; t++)
            if (g->nodes[t])
                tsr_json_set(&nodes, fleet[t].profile, json_integer((json_int_t)g->nodes[t]));
        tsr_json_add(&groups, json_pack("{s:o, s:I, s:I, s:f}", "nodes", nodes, "copies",
                                        (json_int_t)g->copies, "batch", (json_int_t)g->batch,
                                        "objective_ms", g->objective));
    }
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:I, s:f, s:o}", "devices", 1000, "nodes", 125,
                     "objective_ms", r->objective, "bound_ms", r->bound, "gap",
                     (r->objective - r->bound) / r->objective, "solves", (json_int_t)r->solves,
                     "cpu_s", f->cpu_s, "groups", groups);
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *case_json(const struct result *x)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:f}", "cluster",
                     last(bench_cases[x->which].cluster), "model",
                     last(bench_cases[x->which].model), "objective", objective_name(x->objective),
                     "quality", quality_name(x), "instances", (json_int_t)x->choices, "options",
                     (json_int_t)x->options, "objective_ms", number(x->best), "gap", number(x->gap),
                     "cpu_s", x->cpu_s);
}

static tsr_status print(struct tsr_cli *c, const struct plan_bench *b, double median, double most,
                        const struct fleet_result *f, struct tsr_err *err)
{
    if (c->json) {
        json_t *cases = json_array();
        for (uint64_t i = 0; i < b->n; i++)
            tsr_json_add(&cases, case_json(&b->results[i]));
        return tsr_cli_print_json(json_pack("{s:s, s:o, s:o, s:o, s:o}", "solver",
                                            b->spec.found.component->name, "cases", cases,
                                            "median_s", number(median), "max_s", number(most),
                                            "fleet", f->ran ? fleet_json(f) : json_null()),
                                  err);
    }
    (void)printf(
        "| cluster | model | objective | quality | instances | options | ms | proved gap | "
        "CPU s |\n|---|---|---|---|---:|---:|---:|---:|---:|\n");
    for (uint64_t i = 0; i < b->n; i++) {
        const struct result *x = &b->results[i];
        (void)printf("| %s | %s | %s | %s | %llu | %llu | %.6g | %.1e | %.3f |\n",
                     last(bench_cases[x->which].cluster), last(bench_cases[x->which].model),
                     objective_name(x->objective), quality_name(x), (unsigned long long)x->choices,
                     (unsigned long long)x->options, x->best, x->gap, x->cpu_s);
    }
    if (isfinite(median))
        (void)printf("\npapers' clusters: median %.3f s, maximum %.3f s\n", median, most);
    if (f->ran)
        (void)printf("1000 devices in 125 nodes: %.6g ms, no split below %.6g ms, %llu solves, "
                     "%.3f s\n",
                     f->r.objective, f->r.bound, (unsigned long long)f->r.solves, f->cpu_s);
    return TSR_OK;
}

/* Every selected case, under both objectives and both ways to weight quality. */
static tsr_status run_cases(struct plan_bench *b, double *times, uint64_t *n, struct tsr_err *err)
{
    static const int64_t objectives[2] = { TSR_OBJECTIVE_STEADY, TSR_OBJECTIVE_PAPER };
    for (uint64_t i = 0; i < bench_n_cases; i++) {
        if (!strstr(bench_cases[i].cluster, b->o->only))
            continue;
        for (uint64_t k = 0; k < 4; k++) {
            TSR_TRY(run_case(b, i, objectives[k / 2], k % 2 == 1, err));
            if (bench_cases[i].paper)
                times[(*n)++] = b->results[b->n - 1].cpu_s;
        }
    }
    return TSR_OK;
}

static tsr_status run_all(struct tsr_cli *c, struct plan_bench *b, struct tsr_err *err)
{
    struct fleet_result f = { 0 };
    double             *times = calloc(4 * bench_n_cases, sizeof *times);
    uint64_t            n = 0;
    b->results = calloc(4 * bench_n_cases, sizeof *b->results);
    tsr_status st = times && b->results
                        ? run_cases(b, times, &n, err)
                        : tsr_fail_nomem(err, bench_n_cases * 400, "results of a benchmark");
    if (st == TSR_OK && strstr("fleet", b->o->only))
        st = run_fleet(b, &f, err);
    if (st == TSR_OK && b->n == 0 && !f.ran)
        st = tsr_fail(err, TSR_E_INPUT,
                      "bench plan: no cluster's name contains '%s'; they are llmpq-1 to 11, "
                      "splitquant-1 to 10, four-kinds, fleet",
                      b->o->only);
    if (st == TSR_OK) {
        qsort(times, n, sizeof *times, by_value);
        st = print(c, b, n ? times[n / 2] : NAN, n ? times[n - 1] : NAN, &f, err);
    }
    tsr_plan_replicas_free(&f.r);
    free(times);
    free(b->results);
    return st;
}

tsr_status bench_plan(struct tsr_cli *c, const struct bench_plan_options *o, struct tsr_err *err)
{
    struct plan_bench b = { .o = o };
    tsr_status        st = tsr_cli_registry(c, &b.registry, err);
    if (st == TSR_OK)
        st = tsr_plugin_spec_open(&b.spec, b.registry, TSR_KIND_SOLVER, o->solver, err);
    if (st == TSR_OK)
        st = run_all(c, &b, err);
    tsr_plugin_spec_close(&b.spec);
    return st;
}
