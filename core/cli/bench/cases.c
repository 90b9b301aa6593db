#include "cli/bench/cases.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LLM-PQ (arXiv 2403.01136) Table 3 with its models; SplitQuant, Table III, with a model that the
 * memory suits; 96 layers on 8 devices of 4 kinds. */
const struct bench_case bench_cases[] = {
    { "clusters/llmpq-1", "papers/models/opt-13b", false, true },
    { "clusters/llmpq-2", "papers/models/opt-13b", false, true },
    { "clusters/llmpq-3", "papers/models/opt-30b", false, true },
    { "clusters/llmpq-4", "papers/models/opt-30b", false, true },
    { "clusters/llmpq-5", "papers/models/opt-66b", false, true },
    { "clusters/llmpq-6", "papers/models/opt-66b", false, true },
    { "clusters/llmpq-7", "papers/models/bloom-176b", false, true },
    { "clusters/llmpq-8", "papers/models/bloom-176b", false, true },
    { "clusters/llmpq-9", "papers/models/opt-30b", false, true },
    { "clusters/llmpq-10", "papers/models/opt-66b", false, true },
    { "clusters/llmpq-11", "papers/models/bloom-176b", false, true },
    { "clusters/splitquant-1", "papers/models/qwen2.5-7b", true, true },
    { "clusters/splitquant-2", "papers/models/llama-3.3-70b", true, true },
    { "clusters/splitquant-3", "papers/models/qwen2.5-32b", true, true },
    { "clusters/splitquant-4", "papers/models/llama-3.3-70b", true, true },
    { "clusters/splitquant-5", "papers/models/llama-3.3-70b", true, true },
    { "clusters/splitquant-6", "papers/models/opt-30b", true, true },
    { "clusters/splitquant-7", "papers/models/opt-66b", true, true },
    { "clusters/splitquant-8", "papers/models/opt-30b", true, true },
    { "clusters/splitquant-9", "papers/models/llama-3.3-70b", true, true },
    { "clusters/splitquant-10", "papers/models/llama-3.3-70b", true, true },
    { "bench/four-kinds", "bench/96-layers", false, false },
};
const uint64_t bench_n_cases = sizeof bench_cases / sizeof bench_cases[0];

/* Groups of 128: a mesh can cut them, rows it cannot. */
static const char *const candidates[] = { "gptq:bits=3,group=128", "gptq:bits=4,group=128",
                                          "gptq:bits=8,group=128", "original" };

/* "papers/models/opt-13b" -> .../configs/papers/models/opt-13b; end: "" or ".yaml". */
static tsr_status find(char **path, const char *name, const char *end, struct tsr_err *err)
{
    char        folder[64], built[80], file[64];
    const char *last = strrchr(name, '/') + 1;
    char       *at = NULL;
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(last - name - 1), name);
    (void)snprintf(built, sizeof built, "configs/%s", folder);
    (void)snprintf(file, sizeof file, "%s%s", last, end);
    TSR_TRY(tsr_share_find(&at, name, folder, built, err));
    *path = tsr_path_join(at, file);
    free(at);
    return *path ? TSR_OK : tsr_fail_nomem(err, strlen(name), "a path");
}

static tsr_status load_cluster(struct bench_problem *b, const char *name, const char *text,
                               struct tsr_err *err)
{
    char            *path = NULL;
    struct tsr_diag *d = NULL;
    TSR_TRY(find(&path, name, ".yaml", err));
    tsr_status st = tsr_config_diag_create(&d, err);
    if (st == TSR_OK)
        st = text ? tsr_plan_cluster_parse(&b->cluster, path, text, strlen(text), d, err)
                  : tsr_plan_cluster_load(&b->cluster, path, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    free(path);
    return st;
}

/* The prior knows layers by their size alone, and there all are alike: what is measured differs by
 * e^0.8 from layer to layer, and by a third between the widths of one. */
static void scatter(struct tsr_plan_problem *p)
{
    uint64_t n = p->candidates.n;
    for (uint64_t l = 0; l < p->quality.layers; l++)
        for (uint64_t i = 0; i < n; i++)
            p->quality.omega[l * n + i] *=
                exp(0.8 * tsr_normal(5, 0, l)) * (0.7 + 0.6 * tsr_uniform(6, l, i));
}

tsr_status bench_problem_open(struct bench_problem *b, struct tsr_registry *r,
                              const struct bench_case *c, const char *text,
                              const struct bench_ask *ask, struct tsr_err *err)
{
    uint64_t four;
    *b = (struct bench_problem){ 0 };
    TSR_TRY(find(&b->config, c->model, "/config.json", err));
    TSR_TRY(load_cluster(b, c->cluster, text, err));
    TSR_TRY(tsr_plan_workload_fixed(&b->work, ask->prompt, ask->tokens, ask->batch, err));
    struct tsr_plan_problem_options o = {
        .model = b->config,
        .candidates = candidates,
        .n_candidates = sizeof candidates / sizeof candidates[0],
        .indicators = "",
        .table = "",
        .at_least = "uniform-4",
        .max_omega = -1,
        .objective = ask->objective,
        .accounting = TSR_PLAN_ACCOUNT_EXACT,
        .latency = TSR_PLAN_LATENCY_FIT,
        .codec = "",
        .tp_codec = "",
        .together = 1,
        .min_tp = ask->min_tp,
        .max_tp = c->tp ? 0 : 1,
        .gap = ask->gap,
        .time_limit = ask->time_limit,
    };
    TSR_TRY(tsr_plan_problem_open(&b->p, r, &o, b->cluster, &b->work, err));
    scatter(&b->p);
    TSR_TRY(tsr_plan_problem_uniform(&b->p, o.at_least, &four, err));
    double lost = tsr_plan_quality_uniform(&b->p.quality, four);
    b->p.max_omega = ask->limit ? lost : -1;
    b->p.o.theta = ask->limit ? 0 : 5000 / lost;
    return TSR_OK;
}

void bench_problem_close(struct bench_problem *b)
{
    tsr_plan_problem_close(&b->p);
    tsr_plan_workload_free(&b->work);
    tsr_plan_cluster_destroy(b->cluster);
    free(b->config);
    *b = (struct bench_problem){ 0 };
}
