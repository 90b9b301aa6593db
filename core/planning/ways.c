/* The same work in other ways, as JSON: baselines, wider candidates, and what would make a plan possible. */
#include "planning/planning.h"

#include "base/mem.h"
#include "pipeline/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ASIDE 10.0 /* s: time limit of a plan in addition to the requested one */

const char *const tsr_planning_statuses[4] = { "optimal", "feasible", "infeasible", "unknown" };

/* An additional plan in the output may not take longer than the plan itself. */
static void aside(struct tsr_plan_problem *p)
{
    p->o.time_limit = p->o.time_limit > 0 ? fmin(p->o.time_limit, ASIDE) : ASIDE;
}

/* The best plan of another policy; a missing or unsuitable solver is reported. */
static tsr_status baseline(const struct tsr_plan_problem *problem, const char *name, json_t *list,
                           struct tsr_err *err)
{
    struct tsr_plan_problem quick = *problem, *p = &quick;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plugin_spec  spec = { 0 };
    struct tsr_plan_planned a = { .status = TSR_SOLVED_UNKNOWN };
    json_t                 *j = json_object();
    tsr_status st = tsr_plugin_spec_open(&spec, p->registry, TSR_KIND_SOLVER, name, &e.err);
    aside(p);
    if (p->max_omega >=
        0) /* with one bit width for all, the cost of the cache would rule out that of the limit */
        p->max_omega += p->kv_omega;
    if (st == TSR_OK)
        st = tsr_search(&a, p, &spec, INFINITY, &e.err);
    bool refused = st == TSR_E_INPUT || st == TSR_E_UNSUPPORTED || st == TSR_E_CONFIG;
    bool ok = tsr_pipeline_json_put_text(j, "solver", name);
    if (refused) {
        ok = ok && tsr_pipeline_json_put_text(j, "status", "refused") &&
             tsr_pipeline_json_put_text(j, "reason", e.text);
    } else if (st == TSR_OK) {
        ok = ok && tsr_pipeline_json_put_text(j, "status", tsr_planning_statuses[a.status]) &&
             tsr_pipeline_json_put_real(j, "seconds", a.seconds) && tsr_planning_put_ignored(j, &a);
        if (tsr_plan_planned_has_plan(&a)) {
            ok = ok && tsr_pipeline_json_put_real(j, "latency_ms", a.outcome.latency_ms) &&
                 tsr_pipeline_json_put_real(j, "tokens_per_second", a.outcome.tokens_per_second) &&
                 tsr_pipeline_json_put_real(j, "omega", a.outcome.omega) &&
                 tsr_pipeline_json_put_real(j, "objective_ms", a.outcome.objective_ms) &&
                 tsr_pipeline_json_put(j, "bits",
                                       tsr_planning_counts(p, &a.outcome, 0, a.outcome.layers));
        } else {
            ok = ok && tsr_pipeline_json_put_text(j, "reason", a.reason);
        }
    }
    tsr_plan_planned_free(&a);
    tsr_plugin_spec_close(&spec);
    ok = json_array_append_new(list, j) == 0 && ok;
    if (st != TSR_OK && !refused)
        return tsr_err_copy(err, st, &e.err);
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "the baselines");
}

tsr_status tsr_planning_baselines(const struct tsr_plan_problem *p, const char *names, json_t *list,
                                  struct tsr_err *err)
{
    for (const char *s = names; *s;) {
        size_t n = strcspn(s, ",");
        char   name[128];
        (void)snprintf(name, sizeof name, "%.*s", (int)(n < 127 ? n : 127), s);
        if (*name)
            TSR_TRY(baseline(p, name, list, err));
        s += n + (s[n] == ',');
    }
    return TSR_OK;
}

/* Which devices lack the least part of their memory for a problem to have a plan: {"device", "bytes"} or null. */
static tsr_status short_json(const struct tsr_plan_problem *p, const struct tsr_plugin_spec *solver,
                             json_t **out, struct tsr_err *err)
{
    uint64_t  n = p->cluster->n_groups, group, bytes;
    uint64_t *short_of = tsr_new(n, sizeof *short_of);
    if (!short_of)
        return tsr_fail_nomem(err, n * sizeof *short_of, "what is missing");
    tsr_status st = tsr_plan_whatif_least_short(p, solver, short_of, &group, &bytes, err);
    free(short_of);
    TSR_TRY(st);
    *out = bytes == UINT64_MAX
               ? json_null()
               : json_pack("{s:s, s:I}", "device", p->cluster->groups[group].profile->name, "bytes",
                           (json_int_t)bytes);
    return *out ? TSR_OK : tsr_fail_nomem(err, 64, "what is missing");
}

/* Each candidate that is wider than the plan's mean width, everywhere. */
static tsr_status wider_one(const struct tsr_planning *pl, uint64_t c, json_t *list,
                            struct tsr_err *err)
{
    struct tsr_plan_variant v;
    struct tsr_plan_planned a;
    json_t                 *j = json_object(), *lack = NULL;
    TSR_TRY(tsr_plan_variant_only(&v, &pl->problem, c, err));
    aside(&v.p);
    tsr_status st = tsr_search(&a, &v.p, &pl->solver, INFINITY, err);
    bool       ok = st == TSR_OK &&
              tsr_pipeline_json_put_text(j, "candidate", pl->problem.candidates.v[c].name) &&
              tsr_pipeline_json_put_text(j, "status", tsr_planning_statuses[a.status]);
    if (ok && tsr_plan_planned_has_plan(&a))
        ok = tsr_pipeline_json_put_real(j, "latency_ms", a.outcome.latency_ms) &&
             tsr_pipeline_json_put_real(j, "omega", a.outcome.omega);
    if (st == TSR_OK && a.status == TSR_SOLVED_INFEASIBLE) {
        st = short_json(&v.p, &pl->solver, &lack, err);
        ok = ok && tsr_pipeline_json_put_text(j, "reason", a.reason);
        if (st == TSR_OK)
            ok = tsr_pipeline_json_put(j, "short", lack) && ok;
    }
    tsr_plan_planned_free(&a);
    tsr_plan_variant_free(&v);
    ok = json_array_append_new(list, j) == 0 && ok;
    return st == TSR_OK && !ok ? tsr_fail_nomem(err, 64, "wider candidates") : st;
}

tsr_status tsr_planning_wider(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                              json_t *list, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &pl->problem;
    double                         mean = 0;
    for (uint64_t l = 0; l < a->outcome.layers; l++)
        mean += (double)p->candidates.v[a->outcome.bits[l]].bits / (double)a->outcome.layers;
    for (uint64_t c = 0; c < p->candidates.n; c++)
        if ((double)p->candidates.v[c].bits > mean + 1e-9)
            TSR_TRY(wider_one(pl, c, list, err));
    return TSR_OK;
}

/* Memory of two profiles, or of one with a higher limit. */
static json_t *memory_pair(const struct tsr_plan_problem *p, const struct tsr_plan_pair *pair)
{
    json_t *j = json_pack("{s:I, s:[s]}", "bytes", (json_int_t)pair->bytes, "devices",
                          p->cluster->groups[pair->group].profile->name);
    bool    ok = j && tsr_pipeline_json_put_real(j, "max_omega", pair->max_omega);
    if (ok && pair->also != pair->group)
        ok = json_array_append_new(json_object_get(j, "devices"),
                                   json_string(p->cluster->groups[pair->also].profile->name)) == 0;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* {"candidate", "known"} under the key; nothing where there is none. */
static bool put_scheme(json_t *j, const char *key, const struct tsr_plan_remedy_scheme *s)
{
    return !*s->name || tsr_pipeline_json_put(j, key,
                                              json_pack("{s:s, s:b}", "candidate", s->name, "known",
                                                        (int)s->known));
}

/* Two settings, or one with a limit; or a scheme with one of these, or with the other scheme. */
static json_t *settings_pair(const struct tsr_plan_pair *pair)
{
    json_t *j = json_pack("{s:I, s:I, s:b}", "batch", (json_int_t)pair->batch, "chunk",
                          (json_int_t)pair->chunk, "kv_int8", (int)pair->kv8);
    if (j && tsr_pipeline_json_put_real(j, "max_omega", pair->max_omega) &&
        put_scheme(j, "narrow", &pair->narrow) && put_scheme(j, "ends", &pair->ends))
        return j;
    json_decref(j);
    return NULL;
}

tsr_status tsr_planning_remedies(const struct tsr_planning *pl, json_t **out, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &pl->problem;
    struct tsr_plan_remedies       r;
    TSR_TRY(tsr_plan_whatif_remedies(&r, p, &pl->solver, err));
    json_t *j = json_object(), *memory = json_array(), *devices = json_array();
    bool    ok = j && memory && devices;
    for (uint64_t g = 0; g < p->cluster->n_groups; g++) {
        const struct tsr_plan_group *d = &p->cluster->groups[g];
        bool                         first = true;
        for (uint64_t h = 0; h < g; h++)
            first = first && p->cluster->groups[h].profile != d->profile;
        if (first && r.short_of[g] != UINT64_MAX)
            ok = ok && json_array_append_new(memory, json_pack("{s:s, s:I, s:b}", "device",
                                                               d->profile->name, "bytes",
                                                               (json_int_t)r.short_of[g], "least",
                                                               g == r.group)) == 0;
        if (r.devices[g])
            ok = ok && json_array_append_new(devices, json_pack("{s:s, s:s, s:I}", "node",
                                                                p->cluster->nodes[d->node].name,
                                                                "device", d->profile->name, "more",
                                                                (json_int_t)r.devices[g])) == 0;
    }
    ok = ok && tsr_pipeline_json_put_int(j, "batch", r.batch) &&
         tsr_pipeline_json_put_int(j, "prompt", r.prompt) &&
         tsr_pipeline_json_put_int(j, "chunk", r.chunk) &&
         tsr_pipeline_json_put(j, "kv_int8", json_boolean(r.kv8)) &&
         tsr_pipeline_json_put_real(j, "max_omega", r.max_omega) &&
         tsr_pipeline_json_put_real(j, "max_ttft_ms", r.max_first_ms);
    if (r.pair.bytes != UINT64_MAX)
        ok = ok && tsr_pipeline_json_put(j, "pair", memory_pair(p, &r.pair));
    else if (r.pair.batch || r.pair.chunk || r.pair.kv8 || *r.pair.narrow.name || *r.pair.ends.name)
        ok = ok && tsr_pipeline_json_put(j, "pair", settings_pair(&r.pair));
    ok = ok && put_scheme(j, "narrow", &r.narrow) && put_scheme(j, "ends", &r.ends);
    ok = tsr_pipeline_json_put(j, "memory", memory) && ok;
    ok = tsr_pipeline_json_put(j, "devices", devices) && ok;
    tsr_plan_remedies_free(&r);
    if (!ok) {
        json_decref(j);
        return tsr_fail_nomem(err, 64, "what would help");
    }
    *out = j;
    return TSR_OK;
}
