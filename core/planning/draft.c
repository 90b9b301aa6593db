/* Steps after a plan that generate by it with a draft model, whose memory the plan reserves. */
#include "base/mem.h"
#include "pipeline/drafting.h"
#include "pipeline/job.h"
#include "pipeline/step.h"
#include "planning/planning.h"

#include <stdlib.h>
#include <string.h>

static const char *text_of(const struct tsr_config_node *map, const char *key, const char *other)
{
    const struct tsr_config_node *v =
        map && map->kind == TSR_CONFIG_NODE_MAP ? tsr_config_node_get(map, key) : NULL;
    return v && v->kind == TSR_CONFIG_NODE_SCALAR ? v->text : other;
}

/* A type that is not stated is F32, or F16 on some GPUs, which is less. */
static uint32_t kv_of(const struct tsr_config_node *node)
{
    const char *text = text_of(node, "kv", "auto");
    if (*text_of(node, "kv_layers", ""))
        return TSR_F32;
    for (uint32_t i = 0; i < TSR_KV_CHOICES + 2; i++)
        if (strcmp(tsr_kv_run_choices[i].name, text) == 0 &&
            tsr_kv_run_choices[i].value != TSR_KV_AUTO)
            return (uint32_t)tsr_kv_run_choices[i].value;
    return TSR_F32;
}

static enum tsr_plan_draft_place place_of(const struct tsr_pipeline_job *job,
                                          const struct tsr_config_node  *node)
{
    const char *backend = text_of(node, "backend", job->on.backend ? job->on.backend : "cpu");
    return strcmp(backend, "cpu") == 0    ? TSR_PLAN_DRAFT_CPU
           : strcmp(backend, "auto") == 0 ? TSR_PLAN_DRAFT_ANY
                                          : TSR_PLAN_DRAFT_DEVICE;
}

static tsr_status add(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                      const struct tsr_config_node *node, const char *draft, struct tsr_err *err)
{
    struct tsr_plan_draft_options       *v = tsr_renew(pl->drafts, pl->n_drafts + 1, sizeof *v);
    const struct tsr_pipeline_draft_keys keys = { .draft = draft };
    unsigned long                        bits = strtoul(text_of(node, "draft_bits", "0"), NULL, 10);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, "a draft model");
    pl->drafts = v;
    v[pl->n_drafts] = (struct tsr_plan_draft_options){
        .bits = bits ? (uint32_t)bits : TSR_PIPELINE_DRAFT_BITS,
        .kv = kv_of(node),
        .chunk = strtoul(text_of(node, "chunk", "0"), NULL, 10),
        .place = place_of(job, node),
    };
    if (strcmp(draft, "self") != 0 &&
        !(v[pl->n_drafts].model = tsr_pipeline_draft_path(job, &keys)))
        return tsr_fail_nomem(err, strlen(draft), "a path");
    pl->n_drafts++;
    pl->options.drafts = pl->drafts;
    pl->options.n_drafts = pl->n_drafts;
    return TSR_OK;
}

tsr_status tsr_planning_drafts(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                               const struct tsr_planning_plan_keys *k, struct tsr_err *err)
{
    const struct tsr_pipeline_job_state *s = job->state;
    uint64_t                             at = 0;
    while (at < s->n && s->steps[at].opts != k)
        at++;
    for (uint64_t i = at + 1; i < s->n; i++) {
        const struct tsr_pipeline_job_step *step = &s->steps[i];
        const char                         *draft = text_of(step->node, "draft", "none");
        const char                         *plan = text_of(step->node, "plan", "");
        /* `generate` runs on one engine, whatever was planned */
        if (!step->planned ||
            (strcmp(step->step->name, "run") != 0 && strcmp(step->step->name, "serve") != 0) ||
            strcmp(draft, "none") == 0 || strcmp(draft, "lookup") == 0)
            continue;
        if (*plan ? strcmp(plan, k->to) == 0 : step->planned->opts == (const void *)k)
            TSR_TRY(add(pl, job, step->node, draft, err));
    }
    return TSR_OK;
}

bool tsr_planning_followed(const struct tsr_pipeline_job       *job,
                           const struct tsr_planning_plan_keys *k)
{
    const struct tsr_pipeline_job_state *s = job->state;
    uint64_t                             at = 0;
    bool                                 followed = tsr_planning_verifies(k);
    while (at < s->n && s->steps[at].opts != k)
        at++;
    for (uint64_t i = at + 1; i < s->n; i++) {
        const struct tsr_pipeline_job_step *step = &s->steps[i];
        const char                         *plan = text_of(step->node, "plan", "");
        bool runs = strcmp(step->step->name, "run") == 0 || strcmp(step->step->name, "serve") == 0;
        if (*plan ? strcmp(plan, k->to) == 0
                  : runs && step->planned && step->planned->opts == (const void *)k)
            followed = true;
    }
    return followed;
}

void tsr_planning_drafts_free(struct tsr_planning *pl)
{
    for (uint64_t i = 0; i < pl->n_drafts; i++)
        free(pl->drafts[i].model);
    free(pl->drafts);
}

tsr_status tsr_planning_drafts_put(json_t *j, const struct tsr_plan_problem *p, struct tsr_err *err)
{
    struct tsr_plan_stage_memory most = { 0 };
    uint64_t                     device = 0, host = 0;
    json_t                      *d = json_object();
    tsr_status                   st = TSR_OK;
    for (uint64_t g = 0; p->memory.n_drafts && st == TSR_OK && g < p->cluster->n_groups; g++) {
        struct tsr_plan_mesh         m;
        struct tsr_plan_stage_memory one, beside = { 0 };
        tsr_plan_mesh_of(p->cluster, g, 1, &m);
        st = tsr_plan_memory_draft(&p->memory, &m, &one, err);
        if (st == TSR_OK)
            st = tsr_plan_memory_draft_host(&p->memory, &m, &beside, err);
        device = one.total > device ? one.total : device;
        host = beside.total > host ? beside.total : host;
        host = m.mixed && one.total > host ? one.total : host;
        most = one.total > most.total ? one : most;
        most = beside.total > most.total ? beside : most;
    }
    bool ok = tsr_pipeline_json_put_int(d, "weights", most.weights + most.ends) &&
              tsr_pipeline_json_put_int(d, "kv", most.kv) &&
              tsr_pipeline_json_put_int(d, "workspace", most.workspace) &&
              tsr_pipeline_json_put_int(d, "total", device) &&
              tsr_pipeline_json_put_int(d, "elsewhere", host);
    if (p->memory.n_drafts)
        ok = tsr_pipeline_json_put(j, "draft", json_incref(d)) && ok;
    json_decref(d);
    return st == TSR_OK && !ok ? tsr_fail_nomem(err, 64, "a draft model") : st;
}
