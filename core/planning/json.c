/* What a plan step found, as JSON. */
#include "planning/planning.h"

#include "base/mem.h"
#include "pipeline/step.h"
#include "plan/search/meshes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEFT_OUT 65536 /* of one group: at most 1,024 widths, of which few divide its devices */

/* Where a stage's experts are, if not on its device. */
static bool put_cpu_experts(json_t *j, const struct tsr_plan_outcome *o,
                            const struct tsr_plan_outcome_stage *s)
{
    char    layers[TSR_PLAN_RANGES];
    json_t *e;
    if (tsr_plan_outcome_on_cpu(o, s, layers) == 0)
        return true;
    e = json_object();
    return tsr_pipeline_json_put(j, "cpu_experts", e) &&
           tsr_pipeline_json_put_text(e, "layers", strcmp(layers, "true") ? layers : "all") &&
           tsr_pipeline_json_put_text(e, "cpu", s->mesh.cpu->name) &&
           tsr_pipeline_json_put_int(e, "bytes", s->memory.host) &&
           tsr_pipeline_json_put_int(e, "capacity", s->memory.host_capacity) &&
           tsr_pipeline_json_put_real(e, "prefill_share", s->cpu_pre_ms / s->pre_ms) &&
           tsr_pipeline_json_put_real(e, "decode_share", s->cpu_dec_ms / s->dec_ms);
}

static json_t *stage_json(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                          uint64_t i)
{
    const struct tsr_plan_outcome_stage *s = &o->stages[i];
    const struct tsr_plan_stage_memory  *m = &s->memory;
    json_t                              *j = json_object();
    char                                 kernels[TSR_PLAN_KERNELS_TEXT];
    if (s->basis == TSR_PLAN_ROOFLINE) /* what was measured says nothing of these layers */
        (void)snprintf(kernels, sizeof kernels, "not measured");
    else
        tsr_plan_profile_kernels(s->mesh.profile, kernels);
    bool ok = tsr_pipeline_json_put_text(j, "kernels", kernels) &&
              tsr_pipeline_json_put_text(j, "node", p->cluster->nodes[s->mesh.node].name) &&
              tsr_pipeline_json_put_text(j, "device", s->mesh.profile->name) &&
              tsr_pipeline_json_put_text(j, "mesh", s->mesh.name) &&
              tsr_pipeline_json_put_int(j, "tp", s->mesh.tp) &&
              (!s->mesh.whole_experts || tsr_pipeline_json_put_text(j, "experts", "whole")) &&
              put_cpu_experts(j, o, s) && tsr_planning_put_stage_codecs(j, p, o, i) &&
              tsr_pipeline_json_put_int(j, "first", s->first) &&
              tsr_pipeline_json_put_int(j, "layers", s->count) &&
              tsr_pipeline_json_put(j, "bits", tsr_planning_counts(p, o, s->first, s->count)) &&
              tsr_pipeline_json_put_int(j, "weights", m->weights) &&
              tsr_pipeline_json_put_int(j, "kv", m->kv) &&
              tsr_pipeline_json_put_int(j, "ends", m->ends) &&
              (!p->memory.n_drafts || tsr_pipeline_json_put_int(j, "draft", m->draft)) &&
              tsr_pipeline_json_put_int(j, "workspace", m->workspace) &&
              tsr_pipeline_json_put_int(j, "total", m->total) &&
              tsr_pipeline_json_put_int(j, "capacity", m->capacity) &&
              tsr_pipeline_json_put_int(j, "uneven", m->uneven) &&
              tsr_pipeline_json_put_real(j, "prefill_ms", s->pre_ms) &&
              tsr_pipeline_json_put_real(j, "decode_ms", s->dec_ms) &&
              tsr_pipeline_json_put_real(j, "busy", s->busy) &&
              tsr_pipeline_json_put_text(j, "times", tsr_plan_basis_name(s->basis)) &&
              tsr_pipeline_json_put_text(j, "ends_times", tsr_plan_basis_name(s->ends_basis)) &&
              tsr_pipeline_json_put(j, "extrapolated", json_boolean(s->extrapolated));
    if (s->compensation.k)
        ok = ok &&
             tsr_pipeline_json_put(j, "compensation",
                                   json_pack("{s:I, s:I, s:I, s:I, s:b, s:b}", "k",
                                             (json_int_t)s->compensation.k, "work",
                                             (json_int_t)s->compensation.work, "bits",
                                             (json_int_t)s->compensation.bits, "bytes",
                                             (json_int_t)s->compensation.bytes, "host",
                                             s->compensation.host, "assumed",
                                             s->compensation.assumed)) &&
             tsr_pipeline_json_put_real(json_object_get(j, "compensation"), "decode_ms",
                                        s->compensation.decode_ms);
    if (i + 1 < o->n_stages || (i > 0 && p->o.head == TSR_PLAN_HEAD_FIRST))
        ok = ok && tsr_pipeline_json_put_real(j, "send_prefill_ms", s->link_pre_ms) &&
             tsr_pipeline_json_put_real(j, "send_decode_ms", s->link_dec_ms) &&
             tsr_pipeline_json_put_real(j, "send_every_prefill_ms", s->every_pre_ms) &&
             tsr_pipeline_json_put_real(j, "send_every_decode_ms", s->every_dec_ms);
    if (o->rest_mb)
        ok = ok && tsr_pipeline_json_put_real(j, "decode_rest_ms", s->rest_ms) &&
             tsr_pipeline_json_put_real(j, "send_decode_rest_ms", s->link_rest_ms);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* Of indicators by KL: the figure, its interval and what it consists of. */
static bool put_kl(json_t *j, const struct tsr_plan_outcome *o)
{
    json_t *parts, *interval;
    if (!isfinite(o->kl))
        return true;
    parts = json_object();
    interval = isfinite(o->kl_half)
                   ? json_pack("[f, f]", fmax(o->kl - o->kl_half, 0), o->kl + o->kl_half)
                   : json_null();
    return tsr_pipeline_json_put_real(j, "kl", o->kl) &&
           tsr_pipeline_json_put(j, "kl_interval", interval) &&
           tsr_pipeline_json_put(j, "parts", parts) &&
           tsr_pipeline_json_put_real(parts, "weights", o->parts.weights) &&
           tsr_pipeline_json_put_real(parts, "kv", o->parts.kv) &&
           tsr_pipeline_json_put_real(parts, "links", o->parts.links) &&
           tsr_pipeline_json_put_real(parts, "sums", o->parts.sums) &&
           (!(o->parts.ends > 0) || tsr_pipeline_json_put_real(parts, "ends", o->parts.ends)) &&
           (!(o->parts.compensation < 0) ||
            tsr_pipeline_json_put_real(parts, "compensation", o->parts.compensation));
}

/* "0-3,7": layers with the same k, by k. */
static bool put_channels(json_t *j, const struct tsr_plan_outcome *o)
{
    json_t *list = json_array();
    bool    some = false, ok = list != NULL;
    for (uint64_t l = 0; l < o->layers && ok; l++) {
        some = some || o->k[l];
        ok = json_array_append_new(list, json_integer(o->k[l])) == 0;
    }
    if (ok && some)
        return tsr_pipeline_json_put(j, "compensated", list);
    json_decref(list);
    return ok;
}

/* The types of layers that are not as most are. */
static bool put_caches(json_t *j, const struct tsr_plan_problem *p,
                       const struct tsr_plan_outcome *o, bool plan)
{
    char *kv = plan ? tsr_plan_outcome_kv_layers(o, p->shape) : NULL;
    bool  ok = !plan || (kv && (!*kv || tsr_pipeline_json_put_text(j, "kv_layers", kv)));
    free(kv);
    if (plan && p->ends.n)
        ok = ok && tsr_pipeline_json_put_text(j, "ends", p->ends.v[p->end].name);
    return ok && (!plan || put_channels(j, o));
}

json_t *tsr_planning_outcome_json(const struct tsr_plan_problem *p,
                                  const struct tsr_plan_planned *a)
{
    const struct tsr_plan_outcome *o = &a->outcome;
    json_t                        *j = json_object(), *stages = json_array(), *bits = json_array();
    bool                           ok = stages && bits;
    bool                           plan = tsr_plan_planned_has_plan(a);
    for (uint64_t i = 0; i < o->n_stages; i++)
        ok = ok && json_array_append_new(stages, stage_json(p, o, i)) == 0;
    for (uint64_t l = 0; plan && l < o->layers; l++)
        ok = ok && json_array_append_new(bits, json_string(p->candidates.v[o->bits[l]].name)) == 0;
    ok = ok && tsr_pipeline_json_put_text(j, "status", tsr_planning_statuses[a->status]) &&
         put_caches(j, p, o, plan) && tsr_pipeline_json_put_text(j, "solver", a->solver) &&
         tsr_pipeline_json_put_real(j, "seconds", a->seconds) &&
         tsr_pipeline_json_put_int(j, "width_choices", a->choices) &&
         tsr_pipeline_json_put(j, "joint", json_boolean(a->joint)) &&
         tsr_planning_put_ignored(j, a) && tsr_pipeline_json_put_int(j, "solves", a->solves) &&
         tsr_pipeline_json_put_int(j, "settings", a->settings ? a->settings : 1) &&
         tsr_pipeline_json_put_real(j, "bound_ms",
                                    a->status == TSR_SOLVED_INFEASIBLE ? (double)NAN : a->bound);
    if (plan)
        ok = ok && tsr_pipeline_json_put_int(j, "prefill_mb", o->prefill_mb) &&
             tsr_pipeline_json_put_int(j, "decode_mb", o->decode_mb) &&
             (!(o->prefill_jobs > 1) ||
              tsr_pipeline_json_put_real(j, "prefill_jobs", o->prefill_jobs)) &&
             tsr_pipeline_json_put_int(j, "rounds", o->rounds) &&
             tsr_pipeline_json_put_real(j, "latency_ms", o->latency_ms) &&
             tsr_pipeline_json_put_real(j, "prefill_ms", o->prefill_ms) &&
             tsr_pipeline_json_put_real(j, "ttft_ms", o->prefill_ms) &&
             tsr_pipeline_json_put_real(j, "tokens_per_second", o->tokens_per_second) &&
             tsr_pipeline_json_put_real(j, "omega", o->omega) && put_kl(j, o) &&
             tsr_pipeline_json_put_real(j, "objective_ms", o->objective_ms);
    else
        ok = ok && tsr_pipeline_json_put_text(j, "reason", a->reason);
    ok = tsr_pipeline_json_put(j, "stages", stages) && ok;
    ok = tsr_pipeline_json_put(j, "bits", bits) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* The sentences of all widths that are left out, one group of each sort. */
static bool put_left_out(json_t *j, const struct tsr_plan_problem *p)
{
    char *text = tsr_new(1, 1), *one = tsr_new(LEFT_OUT, 1);
    for (uint64_t g = 0; text && one && g < p->cluster->n_groups; g++) {
        uint32_t widths[TSR_PLAN_MESH_WIDTHS];
        bool     again = false;
        for (uint64_t h = 0; h < g; h++)
            again = again || (p->cluster->groups[h].profile == p->cluster->groups[g].profile &&
                              tsr_plan_problem_devices(p, h) == tsr_plan_problem_devices(p, g));
        (void)tsr_plan_meshes_widths(p, g, false, widths, one, LEFT_OUT);
        if (!*one || again)
            continue;
        size_t at = strlen(text), n = strlen(one);
        char  *more = tsr_renew(text, at + n + 3, 1);
        if (!more) {
            free(text);
            text = NULL;
            break;
        }
        text = more;
        (void)snprintf(text + at, n + 3, "%s%s", at ? "; " : "", one);
    }
    bool ok = text && one && tsr_pipeline_json_put_text(j, "widths_left_out", text);
    free(text);
    free(one);
    return ok;
}

/* The sentences of kernels that profiles do not have. */
static bool put_lacks(json_t *j, const struct tsr_plan_problem *p)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *text = NULL;
    bool              ok = tsr_plan_problem_lacks(p, &text, &e.err) == TSR_OK &&
              tsr_pipeline_json_put_text(j, "kernels_left_out", text);
    free(text);
    return ok;
}

/* Experts, and where the number of those that a step reaches comes from. */
static bool put_experts(json_t *j, const struct tsr_plan_shape *s, const struct tsr_plan_quality *q)
{
    bool    grouped = s->groups > 1 && !*s->packed;
    json_t *e = s->experts ? json_object() : NULL;
    return !s->experts ||
           (tsr_pipeline_json_put(j, "experts", e) &&
            tsr_pipeline_json_put_int(e, "count", s->experts) &&
            tsr_pipeline_json_put_int(e, "used", s->experts_used) &&
            tsr_pipeline_json_put_text(e, "frequencies", s->routing ? "measured" : "equal") &&
            (s->groups <= 1 || tsr_pipeline_json_put_int(e, "groups", s->groups)) &&
            (!grouped ||
             tsr_pipeline_json_put_text(e, "quality", *q->experts ? q->experts : "frequencies")));
}

/* Which settings the planner chose, in place of the job. */
static bool put_settings(json_t *j, const struct tsr_plan_problem *p)
{
    const struct tsr_plan_problem_options *o = &p->o;
    json_t                                *s = json_object();
    bool                                   kv = o->free_kv || o->n_kv > 1;
    return tsr_pipeline_json_put(j, "settings", s) &&
           tsr_pipeline_json_put_text(s, "concurrency", o->free_concurrency ? "chosen" : "fixed") &&
           tsr_pipeline_json_put_text(s, "chunk", o->free_chunk ? "chosen" : "fixed") &&
           tsr_pipeline_json_put_text(s, "kv", kv ? "chosen" : "fixed") &&
           tsr_pipeline_json_put_real(s, "kv_omega", p->kv_omega);
}

bool tsr_planning_put_problem(json_t *j, const struct tsr_plan_problem *p)
{
    const struct tsr_plan_workload *w = &p->work;
    json_t                         *work = json_object(), *names = json_array();
    bool                            ok = work && names;
    for (uint64_t i = 0; i < p->candidates.n; i++)
        ok = ok && json_array_append_new(names, json_string(p->candidates.v[i].name)) == 0;
    ok = ok && tsr_pipeline_json_put_int(work, "prompt", w->s) &&
         tsr_pipeline_json_put_int(work, "generate", w->n) &&
         tsr_pipeline_json_put_int(work, "batch", w->batch) &&
         tsr_pipeline_json_put_int(work, "concurrency", p->memory.batch) &&
         tsr_pipeline_json_put_int(work, "context", p->memory.prompt + p->memory.generate) &&
         tsr_pipeline_json_put_int(work, "chunk", w->chunk) &&
         tsr_pipeline_json_put_text(work, "kv", tsr_plugin_kv_name(w->kv)) &&
         tsr_pipeline_json_put_int(work, "kv_bits", tsr_plugin_kv_bits(w->kv)) &&
         tsr_pipeline_json_put(work, "distribution", json_boolean(w->distribution));
    ok =
        tsr_pipeline_json_put_text(j, "model", p->shape->name) &&
        tsr_pipeline_json_put_text(j, "family", p->shape->family) &&
        tsr_pipeline_json_put_text(j, "headers", p->shape->hash) &&
        tsr_pipeline_json_put_int(j, "layers", p->shape->layers) &&
        tsr_pipeline_json_put_int(j, "hidden", p->shape->hidden) &&
        tsr_pipeline_json_put_int(j, "heads", p->shape->heads) &&
        tsr_pipeline_json_put_int(j, "kv_heads", p->shape->kv_heads) &&
        tsr_pipeline_json_put_text(j, "cluster", p->cluster->name) &&
        tsr_pipeline_json_put_int(j, "devices", tsr_plan_cluster_devices(p->cluster)) &&
        tsr_pipeline_json_put_int(j, "nodes", p->cluster->n_nodes) &&
        tsr_pipeline_json_put_text(j, "objective",
                                   p->o.objective == TSR_OBJECTIVE_PAPER ? "paper" : "steady") &&
        tsr_pipeline_json_put_text(j, "accounting",
                                   p->o.accounting == TSR_PLAN_ACCOUNT_PAPER ? "paper" : "exact") &&
        tsr_pipeline_json_put_text(j, "head", tsr_head_choices[p->o.head].name) &&
        tsr_pipeline_json_put_text(j, "quality", p->quality.basis) &&
        tsr_pipeline_json_put(j, "prior", json_boolean(p->quality.prior)) &&
        tsr_pipeline_json_put_real(j, "max_omega",
                                   p->max_omega >= 0 ? p->max_omega : (double)NAN) &&
        tsr_pipeline_json_put_text(j, "at_least", p->o.at_least) &&
        (!p->knee || tsr_pipeline_json_put(j, "knee", json_true())) &&
        (!(p->o.max_first_ms > 0) ||
         tsr_pipeline_json_put_real(j, "max_ttft_ms", p->o.max_first_ms)) &&
        (!(p->o.max_kl > 0) || tsr_pipeline_json_put_real(j, "max_kl", p->o.max_kl)) &&
        tsr_pipeline_json_put_real(j, "theta", p->o.theta) && put_settings(j, p) &&
        put_experts(j, p->shape, &p->quality) && tsr_planning_put_codecs(j, p) &&
        put_left_out(j, p) && put_lacks(j, p) && ok;
    ok = tsr_pipeline_json_put(j, "workload", work) && ok;
    return tsr_pipeline_json_put(j, "candidates", names) && ok;
}

static tsr_status more(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                       const struct tsr_plan_planned *a, bool alone, json_t *j, struct tsr_err *err)
{
    uint64_t batch, prompt;
    json_t  *base = json_array(), *wide = json_array(), *help = NULL;
    bool     ok =
        tsr_pipeline_json_put(j, "baselines", base) && tsr_pipeline_json_put(j, "wider", wide);
    if (!ok)
        return tsr_fail_nomem(err, 64, "a plan");
    if (a->status == TSR_SOLVED_INFEASIBLE) {
        TSR_TRY(tsr_planning_remedies(pl, &help, err));
        return tsr_pipeline_json_put(j, "remedies", help) ? TSR_OK
                                                          : tsr_fail_nomem(err, 64, "a plan");
    }
    if (!tsr_plan_planned_has_plan(a))
        return TSR_OK;
    if (!alone && strcmp(k->baselines, "none") != 0)
        TSR_TRY(tsr_planning_baselines(&pl->problem, k->baselines, base, err));
    if (!alone)
        TSR_TRY(tsr_planning_wider(pl, a, wide, err));
    TSR_TRY(tsr_plan_whatif_largest(&pl->problem, &a->outcome, &batch, &prompt, err));
    ok = tsr_pipeline_json_put(j, "largest",
                               json_pack("{s:I, s:I}", "batch", (json_int_t)batch, "prompt",
                                         (json_int_t)prompt));
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "a plan");
}

tsr_status tsr_planning_json(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                             const struct tsr_plan_planned *a, bool alone, json_t **out,
                             struct tsr_err *err)
{
    json_t *j = json_object(), *plan = tsr_planning_outcome_json(&pl->problem, a);
    bool    ok =
        j && plan && tsr_pipeline_json_put_text(j, "format", "tessera.planning/1") &&
        tsr_planning_put_problem(j, &pl->problem) && tsr_planning_replicas_put(j, pl, a) &&
        (!(pl->at_most_ms > 0) || tsr_pipeline_json_put_real(j, "at_most_ms", pl->at_most_ms));
    ok = tsr_pipeline_json_put(j, "plan", plan) && ok;
    tsr_status st =
        ok ? tsr_planning_drafts_put(j, &pl->problem, err) : tsr_fail_nomem(err, 64, "a plan");
    if (st == TSR_OK)
        st = more(pl, k, a, alone, j, err);
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    *out = j;
    return TSR_OK;
}
