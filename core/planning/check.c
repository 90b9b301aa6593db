/* A plan file under a job: each layer's packing as candidates, then its cost. */
#include "planning/rules.h"

#include "base/f16.h"
#include "base/mem.h"
#include "pipeline/step.h"
#include "plan/cost/compensation.h"
#include "plan/file/check.h"
#include "plan/search/share.h"
#include "plugin/kv_codec.h"
#include "plugin/kv_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tsr_status check_made_for(const struct tsr_planning *pl, const struct tsr_plan_file *f,
                                 struct tsr_err *err)
{
    const struct tsr_plan_shape *s = pl->problem.shape;
    const char                  *path = tsr_config_doc_path(f->doc);
    if (*f->headers && strcmp(f->headers, s->hash) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for a model with the headers %s, those of %s are %s", path,
                        f->headers, s->name, s->hash);
    return TSR_OK;
}

/* A packed model is planned unchanged: every layer is kept. */
static tsr_status check_kept(const struct tsr_planning *pl, const struct tsr_plan_file *f,
                             uint32_t *candidate, struct tsr_err *err)
{
    for (uint64_t l = 0; l < f->layers; l++) {
        const char *text = pl->texts[candidate[l]];
        if (strcmp(text, "original") != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: layer %llu is to be %s, the weights of %s are packed already "
                            "(%s); write 'keep: true'",
                            tsr_config_doc_path(f->doc), (unsigned long long)l, text,
                            pl->problem.shape->name, pl->problem.shape->packed);
        candidate[l] = 0;
    }
    return TSR_OK;
}

/* Where the file has its replicas, for what is written and said of the plan. */
static tsr_status take_parts(struct tsr_planning *pl, const struct tsr_plan_file *f,
                             struct tsr_err *err)
{
    struct tsr_plan_parts *p = &pl->parts;
    p->copies = (uint64_t)f->replicas;
    if (!f->replica_nodes)
        return TSR_OK;
    p->n_nodes = f->replica_nodes->items[0]->n;
    p->nodes = tsr_new(p->copies, p->n_nodes * sizeof *p->nodes);
    if (!p->nodes)
        return tsr_fail_nomem(err, p->copies * p->n_nodes * sizeof *p->nodes,
                              "the nodes of a plan");
    for (uint64_t i = 0; i < p->copies; i++)
        for (uint64_t k = 0; k < p->n_nodes; k++)
            if (!tsr_plan_nodes_listed(pl->whole.cluster, f, i, k, &p->nodes[i * p->n_nodes + k]))
                return tsr_fail(err, TSR_E_INVAL, "a node of replica %llu is not in the cluster",
                                (unsigned long long)i);
    return TSR_OK;
}

/* One of several replicas: the cost is that of its share on its nodes. */
static tsr_status take_share(struct tsr_planning *pl, const struct tsr_plan_file *f,
                             struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t n, before = tsr_config_diag_errors(d), batch = pl->problem.work.batch,
                copies = (uint64_t)f->replicas;
    uint64_t *nodes = tsr_new(f->n_stages, sizeof *nodes),
             *each = tsr_new(f->n_stages, sizeof *each);
    bool                     alone = (uint64_t)f->share == batch / copies + (batch % copies != 0);
    struct tsr_plan_problem  share = { 0 };
    struct tsr_plan_cluster *part = NULL;
    tsr_status               st = nodes && each
                                      ? TSR_OK
                                      : tsr_fail_nomem(err, f->n_stages * sizeof *nodes, "the nodes of a plan");
    if (st == TSR_OK)
        st = tsr_plan_nodes(pl->problem.cluster, f, nodes, each, &n, d, err);
    if (st == TSR_OK && tsr_config_diag_errors(d) != before)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK)
        st = tsr_plan_share_open(&share, &part, &pl->problem,
                                 &(struct tsr_plan_share){ .nodes = nodes,
                                                           .each = each,
                                                           .n = n,
                                                           .batch = (uint64_t)f->share,
                                                           .copies = alone ? copies : 0 },
                                 err);
    free(nodes);
    free(each);
    if (st != TSR_OK)
        return st;
    pl->whole = pl->problem;
    pl->problem = share;
    pl->part = part;
    TSR_TRY(take_parts(pl, f, err));
    if ((uint64_t)f->decode_mb > share.memory.batch)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: a decode micro-batch of %lld is more than the %llu requests that a "
                        "replica runs at once",
                        tsr_config_doc_path(f->doc), (long long)f->decode_mb,
                        (unsigned long long)share.memory.batch);
    return TSR_OK;
}

/* What the job leaves open is as the plan runs it. */
static void take_open(struct tsr_planning *pl, const struct tsr_plan_file *f)
{
    struct tsr_plan_workload   *w = &pl->work;
    const struct tsr_plan_load *l = &f->load;
    bool                        kv = pl->options.free_kv || pl->options.n_kv;
    if (pl->options.free_concurrency && l->concurrency && (uint64_t)l->concurrency < w->batch)
        w->concurrency = (uint64_t)l->concurrency;
    if (pl->options.free_chunk)
        w->chunk = (uint64_t)l->chunk;
    if (kv)
        w->kv = (uint32_t)l->kv;
}

/* The types of layers that the file names, next to that of the others. */
static tsr_status take_kv_layers(struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                                 uint32_t *types, struct tsr_err *err)
{
    *types = 0;
    if (!*f->load.kv_layers || p->shape->layers != f->layers)
        return TSR_OK;
    p->kv_of = tsr_new(f->layers, sizeof *p->kv_of);
    if (!p->kv_of)
        return tsr_fail_nomem(err, f->layers * sizeof *p->kv_of, "the caches of a plan");
    TSR_TRY(tsr_plugin_kv_layers(f->load.kv_layers, p->work.kv, f->layers, p->kv_of, err));
    for (uint64_t l = 0; l < f->layers; l++) {
        TSR_TRY(tsr_plugin_kv_learn(p->registry, p->kv_of[l], p->shape->head_dim, err));
        p->kv_of[l] = (uint32_t)tsr_plugin_kv_type(p->kv_of[l]);
    }
    p->memory.kv_of = p->kv_of;
    p->o.n_kv = 0;
    for (uint64_t l = 0; l < f->layers; l++) {
        uint32_t k = 0;
        while (k < p->o.n_kv && p->o.kv[k] != p->kv_of[l])
            k++;
        if (k < p->o.n_kv)
            continue;
        TSR_TRY(tsr_plan_problem_kl_need_kv(p, p->kv_of[l], err));
        p->o.kv[p->o.n_kv++] = p->kv_of[l];
        *types |= 1u << k;
    }
    return TSR_OK;
}

/* k of each layer whose linears share one, as choices of the problem; the others come on top (plan/file/compensation.c). */
static tsr_status take_channels(struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                                struct tsr_err *err)
{
    bool some = false, alike;
    p->o.n_k = 0;
    for (uint64_t i = 0; i < f->n_stages; i++)
        some = some || f->stages[i].compensated;
    if (!some || p->shape->layers != f->layers)
        return TSR_OK;
    TSR_TRY(tsr_plan_compensation_bits(p->shape, p->o.model, &p->residual_bits,
                                       &p->residual_assumed, err));
    p->k_of = tsr_new(f->layers, sizeof *p->k_of);
    if (!p->k_of)
        return tsr_fail_nomem(err, f->layers * sizeof *p->k_of, "channels of a plan");
    p->o.k[p->o.n_k++] = 0;
    for (uint64_t l = 0; l < f->layers; l++) {
        uint32_t k[TSR_PLAN_LINEARS], i = 0;
        TSR_TRY(tsr_plan_file_channels(f, p->shape, l, k, &alike, err));
        p->k_of[l] = alike ? k[0] : 0;
        while (i < p->o.n_k && p->o.k[i] != p->k_of[l])
            i++;
        if (i < p->o.n_k)
            continue;
        if (i == TSR_PLAN_K)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: layers have more than %u different k in compensation",
                            tsr_config_doc_path(f->doc), TSR_PLAN_K - 1);
        p->o.k[p->o.n_k++] = p->k_of[l];
    }
    return TSR_OK;
}

/* A plan's settings are no longer open; its cache costs what it cost when the planner chose it. */
static tsr_status fix_open(struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                           struct tsr_err *err)
{
    uint32_t types;
    p->o.free_concurrency = p->o.free_chunk = false;
    if (p->o.free_kv || p->o.n_kv) {
        p->o.free_kv = false;
        p->o.kv[0] = p->work.kv;
        p->o.n_kv = 1;
    }
    TSR_TRY(take_kv_layers(p, f, &types, err));
    TSR_TRY(take_channels(p, f, err));
    tsr_plan_settings_put(p, &(struct tsr_plan_setting){ p->memory.batch, p->work.chunk, p->work.kv,
                                                         0, types, UINT32_MAX });
    return TSR_OK;
}

/* The next bits that a candidate's text says from *at on, one for each part of a mix; 0: no more. */
static unsigned long next_bits(const char **at)
{
    char *end;
    *at = strstr(*at, "bits=");
    if (!*at)
        return 0;
    unsigned long bits = strtoul(*at + strlen("bits="), &end, 10);
    *at = end;
    return bits;
}

static bool share_bits(const char *a, const char *b)
{
    unsigned long x, y;
    while ((x = next_bits(&a)) > 0)
        for (const char *at = b; (y = next_bits(&at)) > 0;)
            if (x == y)
                return true;
    return false;
}

/* Whether the plan brings a scheme, after the job's `own`, with the bits of another one. The prior cannot compare the two, so
 * that its limit says nothing of the plan. */
static bool prior_is_blind(const struct tsr_planning *pl, uint64_t own)
{
    for (uint64_t i = own; i < pl->n_texts && !*pl->options.indicators; i++)
        for (uint64_t k = 0; k < i; k++)
            if (share_bits(pl->texts[i], pl->texts[k]))
                return true;
    return false;
}

tsr_status tsr_planning_check(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                              const struct tsr_planning_plan_keys *k,
                              const struct tsr_config_node *node, const struct tsr_plan_file *f,
                              struct tsr_plan_planned *a, struct tsr_diag *d, struct tsr_err *err)
{
    if (!f->placed)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan says what layers take, not where they are; there is nothing "
                        "to price",
                        tsr_config_doc_path(f->doc));
    uint32_t *candidate = tsr_new(f->layers, sizeof *candidate);
    if (!candidate)
        return tsr_fail_nomem(err, f->layers * sizeof *candidate, "the layers of a plan");
    struct tsr_planning_rules z = {
        .pl = pl, .registry = job->registry, .job = job, .use = k->use, .node = node, .f = f, .d = d
    };
    uint64_t   own = pl->n_texts;
    tsr_status st = tsr_planning_rules_read(&z, candidate, err);
    if (prior_is_blind(pl, own))
        pl->options.at_least = "";
    pl->options.prefill_mb = (uint64_t)f->prefill_mb;
    pl->options.decode_mb = (uint64_t)f->decode_mb;
    pl->options.head = f->head;
    pl->options.together = 1;
    pl->options.chosen = false; /* they are the plan's */
    pl->options.expert_groups = 0;
    pl->options.n_k = 0; /* the file's */
    if (st == TSR_OK)
        st = tsr_planning_ends_of(pl, job->registry, f, k->use, d, err);
    pl->options.group_of = z.group_of;
    take_open(pl, f);
    if (st == TSR_OK)
        st = tsr_planning_open(pl, job, err);
    if (st == TSR_OK)
        st = fix_open(&pl->problem, f, err);
    pl->options.group_of = pl->problem.o.group_of = NULL; /* taken over by then */
    if (st == TSR_OK && pl->problem.shape->layers != f->layers)
        st = tsr_fail(err, TSR_E_INPUT, "%s: the plan is for %llu layers, %s has %llu",
                      tsr_config_doc_path(f->doc), (unsigned long long)f->layers,
                      pl->problem.shape->name, (unsigned long long)pl->problem.shape->layers);
    if (st == TSR_OK)
        st = check_made_for(pl, f, err);
    if (st == TSR_OK && *pl->problem.shape->packed) /* first: its problem has one candidate */
        st = check_kept(pl, f, candidate, err);
    if (st == TSR_OK)
        st = tsr_planning_rules_settle(&z, candidate, err);
    if (st == TSR_OK) /* the file's, whatever the job would have */
        st = tsr_plan_take_codecs(&pl->problem, f, err);
    if (st == TSR_OK && f->share)
        st = take_share(pl, f, d, err);
    if (st == TSR_OK)
        st = tsr_plan_check(a, &pl->problem, f, candidate, d, err);
    if (st == TSR_OK && tsr_config_diag_errors(d) == 0)
        st = tsr_plan_compensate(a, &pl->problem, f, err);
    tsr_planning_rules_free(&z);
    free(candidate);
    return st;
}

json_t *tsr_planning_said(const struct tsr_planning *pl, const struct tsr_plan_file *f)
{
    const struct tsr_plan_load     *l = &f->load;
    const struct tsr_plan_problem  *p = pl->part ? &pl->whole : &pl->problem;
    const struct tsr_plan_workload *w = &p->work;
    uint64_t                        once = (uint64_t)(l->concurrency ? l->concurrency : l->batch);
    bool same = (uint64_t)l->prompt == w->s && (uint64_t)l->generate == w->n &&
                (uint64_t)l->batch == w->batch && once == p->memory.batch;
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "file", tsr_config_doc_path(f->doc)) &&
              tsr_pipeline_json_put_real(j, "latency_ms", f->said.latency_ms) &&
              tsr_pipeline_json_put_real(j, "tokens_per_second", f->said.tokens_per_second) &&
              tsr_pipeline_json_put_real(j, "omega", f->said.omega) &&
              (!isfinite(f->said.kl) || tsr_pipeline_json_put_real(j, "kl", f->said.kl)) &&
              tsr_pipeline_json_put_int(j, "prompt", (uint64_t)l->prompt) &&
              tsr_pipeline_json_put_int(j, "generate", (uint64_t)l->generate) &&
              tsr_pipeline_json_put_int(j, "batch", (uint64_t)l->batch) &&
              tsr_pipeline_json_put(j, "same_work", json_boolean(same));
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}
