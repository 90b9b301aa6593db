/* The bottlenecks of a plan, and the gain from more of each resource: each answer is a problem solved
 * again. */
#include "base/mem.h"
#include "pipeline/step.h"
#include "planning/planning.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GIB4  (INT64_C(4) << 30)
#define ASIDE 20.0 /* s that one answer may take */

static bool say(json_t *list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool say(json_t *list, const char *fmt, ...)
{
    char    text[500];
    va_list v;
    va_start(v, fmt);
    (void)vsnprintf(text, sizeof text, fmt, v);
    va_end(v);
    return json_array_append_new(list, json_string(text)) == 0;
}

static const char *name_of(const struct tsr_plan_problem *p, const struct tsr_plan_outcome_stage *s,
                           char buf[120])
{
    (void)snprintf(buf, 120, "%.50s:%.40s", p->cluster->nodes[s->mesh.node].name, s->mesh.name);
    return buf;
}

/* ---- bottlenecks ------------------------------------------------------------------ */

/* The slowest of a phase: a stage, or the way from it to the next. */
static bool slowest(json_t *list, const struct tsr_plan_problem *p,
                    const struct tsr_plan_outcome *o, enum tsr_phase phase)
{
    const struct tsr_plan_outcome_stage *at = &o->stages[0];
    double                               most = -1;
    bool                                 link = false;
    char                                 name[120];
    for (uint64_t i = 0; i < o->n_stages; i++) {
        const struct tsr_plan_outcome_stage *s = &o->stages[i];
        double stage = phase == TSR_PLAN_PREFILL ? s->pre_ms : s->dec_ms;
        double way = phase == TSR_PLAN_PREFILL ? s->link_pre_ms : s->link_dec_ms;
        if (stage > most || way > most) {
            link = way > stage;
            most = link ? way : stage;
            at = s;
        }
    }
    return say(list, "%s: %s%s is the slowest, %.4g ms a micro-batch",
               phase == TSR_PLAN_PREFILL ? "prefill" : "decode", link ? "the way from " : "",
               name_of(p, at, name), most);
}

/* Does a token wait for the slowest stage, or for its own way through all of them? */
static bool decode_form(json_t *list, const struct tsr_plan_problem *p,
                        const struct tsr_plan_outcome *o)
{
    double round = 0, most = 0;
    double mu = ceil((double)p->memory.batch / (double)o->decode_mb);
    for (uint64_t i = 0; i < o->n_stages; i++) {
        round += o->stages[i].dec_ms + o->stages[i].link_dec_ms;
        most = fmax(most, fmax(o->stages[i].dec_ms, o->stages[i].link_dec_ms));
    }
    if (mu * most >= round)
        return say(list, "decode: %g micro-batch%s the slowest busy; a step of all takes %.4g ms",
                   mu, mu > 1 ? "es keep" : " keeps", mu * most);
    return say(list,
               "decode: %g micro-batch%s not fill the pipeline; a step is the way through it, "
               "%.4g ms",
               mu, mu > 1 ? "es do" : " does", round);
}

/* A stage is full when not even the smallest layer fits any more. */
static tsr_status memory(json_t *list, const struct tsr_plan_problem *p,
                         const struct tsr_plan_outcome *o, struct tsr_err *err)
{
    for (uint64_t i = 0; i < o->n_stages; i++) {
        const struct tsr_plan_outcome_stage *s = &o->stages[i];
        uint64_t least = UINT64_MAX, left = s->memory.capacity - s->memory.total;
        char     name[120], a[TSR_BYTES_TEXT], b[TSR_BYTES_TEXT];
        for (uint64_t c = 0; c < p->candidates.n; c++) {
            uint64_t w, kv;
            TSR_TRY(tsr_plan_memory_layer(&p->memory, &s->mesh, p->shape->layer_class[s->first],
                                          &p->candidates.v[c], &w, &kv, err));
            least = w + kv < least ? w + kv : least;
        }
        if (left < least &&
            !say(list, "memory: %s has %s left, a layer takes %s", name_of(p, s, name),
                 tsr_format_bytes(a, sizeof a, left), tsr_format_bytes(b, sizeof b, least)))
            return tsr_fail_nomem(err, 64, "an explanation");
    }
    return TSR_OK;
}

/* Where experts are not on their stage's device. */
static bool experts(json_t *list, const struct tsr_plan_problem *p,
                    const struct tsr_plan_outcome *o)
{
    bool ok = true;
    for (uint64_t i = 0; i < o->n_stages; i++) {
        const struct tsr_plan_outcome_stage *s = &o->stages[i];
        char     layers[TSR_PLAN_RANGES], name[120], a[TSR_BYTES_TEXT], b[TSR_BYTES_TEXT];
        uint64_t n = tsr_plan_outcome_on_cpu(o, s, layers);
        if (n)
            ok = ok && say(list, "experts: of %llu of the %llu layers of %s on the CPU, %s of %s",
                           (unsigned long long)n, (unsigned long long)s->count, name_of(p, s, name),
                           tsr_format_bytes(a, sizeof a, s->memory.host),
                           tsr_format_bytes(b, sizeof b, s->memory.host_capacity));
    }
    return ok;
}

static bool quality(json_t *list, const struct tsr_plan_problem *p,
                    const struct tsr_plan_outcome *o)
{
    if (!(p->max_omega >= 0))
        return true;
    double share = p->max_omega > 0 ? o->omega / p->max_omega : 1;
    return say(list, "quality: %.3g %% of the limit is used%s", 100 * share,
               share > 0.99 ? ", it binds" : "");
}

/* ---- gain from more resources ----------------------------------------------------------- */

/* The settings of p that v did not come with: "16 requests at once, an int8 cache"; "" if none differs. */
static void differs(const struct tsr_plan_problem *p, const struct tsr_plan_variant *v,
                    char text[160])
{
    size_t at = 0;
    text[0] = '\0';
    if (p->memory.batch != v->p.memory.batch)
        at += (size_t)snprintf(text + at, 160 - at, "%llu requests at once",
                               (unsigned long long)p->memory.batch);
    if (p->work.chunk != v->p.work.chunk && p->work.chunk == 0)
        at += (size_t)snprintf(text + at, 160 - at, "%swhole prompts", at ? ", " : "");
    else if (p->work.chunk != v->p.work.chunk)
        at += (size_t)snprintf(text + at, 160 - at, "%schunks of %llu tokens", at ? ", " : "",
                               (unsigned long long)p->work.chunk);
    if (p->work.kv != v->p.work.kv)
        (void)snprintf(text + at, 160 - at, "%sa cache of %s", at ? ", " : "",
                       tsr_plugin_kv_name(p->work.kv));
}

/* Solves the changed problem and adds its cost to the plan's list. */
static tsr_status bought(json_t *list, const struct tsr_plan_variant *v,
                         const struct tsr_plugin_spec *solver, const struct tsr_plan_planned *a,
                         const char *what, struct tsr_err *err)
{
    char                    with[160];
    struct tsr_plan_planned b;
    struct tsr_plan_problem p = v->p;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    p.o.time_limit = p.o.time_limit > 0 ? fmin(p.o.time_limit, ASIDE) : ASIDE;
    tsr_status st = tsr_plan_settings_search(&b, &p, solver, &e.err);
    json_t    *j = json_object();
    bool       ok = tsr_pipeline_json_put_text(j, "what", what);
    differs(&p, v, with);
    if (st == TSR_E_INPUT) { /* impossible change */
        ok = ok && tsr_pipeline_json_put_text(j, "reason", e.text);
        st = TSR_OK;
    } else if (st != TSR_OK) {
        (void)tsr_err_copy(err, st, &e.err);
    } else if (ok && tsr_plan_planned_has_plan(&b))
        ok = tsr_pipeline_json_put_real(j, "latency_ms", b.outcome.latency_ms) &&
             tsr_pipeline_json_put_real(j, "omega", b.outcome.omega) &&
             tsr_pipeline_json_put(j, "proved", json_boolean(b.status == TSR_SOLVED_OPTIMAL)) &&
             tsr_pipeline_json_put_text(j, "with", with) &&
             tsr_pipeline_json_put_real(j, "change",
                                        b.outcome.latency_ms / a->outcome.latency_ms - 1);
    tsr_plan_planned_free(&b);
    ok = json_array_append_new(list, j) == 0 && ok;
    return st == TSR_OK && !ok ? tsr_fail_nomem(err, 64, "an explanation") : st;
}

static tsr_status more_memory(json_t *list, const struct tsr_planning *pl,
                              const struct tsr_plan_planned *a, uint64_t group, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &pl->problem;
    struct tsr_plan_variant        v;
    char                           what[120];
    TSR_TRY(tsr_plan_variant_make(&v, p, err));
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        if (p->cluster->groups[g].profile == p->cluster->groups[group].profile)
            v.p.more_bytes[g] += GIB4;
    (void)snprintf(what, sizeof what, "4 GiB more on each %.60s",
                   p->cluster->groups[group].profile->name);
    tsr_status st = bought(list, &v, &pl->solver, a, what, err);
    tsr_plan_variant_free(&v);
    return st;
}

/* A node of one device may omit the link between two devices. */
static tsr_status unlinked(json_t *list, const char *what, const char *cluster, const char *node,
                           struct tsr_err *err)
{
    char    reason[400];
    json_t *j = json_object();
    (void)snprintf(reason, sizeof reason,
                   "%.60s says nothing of the way between two devices of node '%.60s'; give the "
                   "node a 'link' to know",
                   cluster, node);
    bool ok = tsr_pipeline_json_put_text(j, "what", what) &&
              tsr_pipeline_json_put_text(j, "reason", reason);
    ok = json_array_append_new(list, j) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "an explanation");
}

static tsr_status more_devices(json_t *list, const struct tsr_planning *pl,
                               const struct tsr_plan_planned *a, uint64_t group,
                               struct tsr_err *err)
{
    const struct tsr_plan_group *g = &pl->problem.cluster->groups[group];
    struct tsr_plan_variant      v;
    char                         what[200];
    TSR_TRY(tsr_plan_variant_make(&v, &pl->problem, err));
    v.p.more[group] += 1;
    const struct tsr_plan_node_info *node = &pl->problem.cluster->nodes[g->node];
    (void)snprintf(what, sizeof what, "one more %.60s in node %.60s%s", g->profile->name,
                   node->name, pl->part ? " for each copy" : "");
    if (!(node->link[TSR_PLAN_PREFILL].rate > 0 && node->link[TSR_PLAN_DECODE].rate > 0)) {
        tsr_plan_variant_free(&v);
        return unlinked(list, what, pl->problem.cluster->name, node->name, err);
    }
    tsr_status st = bought(list, &v, &pl->solver, a, what, err);
    tsr_plan_variant_free(&v);
    return st;
}

/* The head on the other end, where there are two. */
static tsr_status other_end(json_t *list, const struct tsr_planning *pl,
                            const struct tsr_plan_planned *a, struct tsr_err *err)
{
    bool                    first = pl->problem.o.head == TSR_PLAN_HEAD_FIRST;
    struct tsr_plan_variant v;
    if (tsr_plan_cluster_devices(pl->problem.cluster) < 2 || pl->problem.shape->layers < 2)
        return TSR_OK;
    TSR_TRY(tsr_plan_variant_make(&v, &pl->problem, err));
    tsr_plan_problem_put_head(&v.p, first ? TSR_PLAN_HEAD_LAST : TSR_PLAN_HEAD_FIRST);
    tsr_status st =
        bought(list, &v, &pl->solver, a,
               first ? "the head on the last stage" : "the head on the first stage", err);
    tsr_plan_variant_free(&v);
    return st;
}

/* What the job fixes, left to the planner: one key, then all of them where there are several. */
static tsr_status left_open(json_t *list, const struct tsr_planning *pl,
                            const struct tsr_plan_planned *a, struct tsr_err *err)
{
    static const char *const               names[] = { "the number of requests at once left open",
                                                       "the chunk left open", "the type of the cache left open",
                                                       "all three left open" };
    const struct tsr_plan_problem_options *o = &pl->problem.o;
    bool once = !o->free_concurrency && pl->problem.work.batch > 1, chunk = !o->free_chunk,
         kv = !o->free_kv && o->n_kv < 2 && pl->problem.max_omega >= 0;
    bool exact = o->objective == TSR_OBJECTIVE_STEADY && o->accounting == TSR_PLAN_ACCOUNT_EXACT;
    const bool fixed[] = { once, chunk, kv, once + chunk + kv > 1 };
    for (int i = 0; i < 4 && exact; i++) {
        struct tsr_plan_variant v;
        if (!fixed[i])
            continue;
        TSR_TRY(tsr_plan_variant_make(&v, &pl->problem, err));
        struct tsr_plan_problem_options *to = &v.p.o;
        to->free_concurrency = to->free_concurrency || i == 0 || (i == 3 && once);
        to->free_chunk = to->free_chunk || i == 1 || (i == 3 && chunk);
        if (i == 2 || (i == 3 && kv)) {
            to->n_kv = 0;
            to->free_kv = true;
        }
        tsr_status st = bought(list, &v, &pl->solver, a, names[i], err);
        tsr_plan_variant_free(&v);
        TSR_TRY(st);
    }
    return TSR_OK;
}

static tsr_status looser(json_t *list, const struct tsr_planning *pl,
                         const struct tsr_plan_planned *a, struct tsr_err *err)
{
    struct tsr_plan_variant v;
    if (!(pl->problem.max_omega > 0))
        return TSR_OK;
    TSR_TRY(tsr_plan_variant_make(&v, &pl->problem, err));
    v.p.max_omega *= 1.1;
    tsr_status st = bought(list, &v, &pl->solver, a, "a tenth more of max_omega", err);
    tsr_plan_variant_free(&v);
    return st;
}

static tsr_status buys(json_t *list, const struct tsr_planning *pl,
                       const struct tsr_plan_planned *a, struct tsr_err *err)
{
    const struct tsr_plan_cluster *c = pl->problem.cluster;
    for (uint64_t g = 0; g < c->n_groups; g++) {
        bool first = true;
        for (uint64_t h = 0; h < g; h++)
            first = first && c->groups[h].profile != c->groups[g].profile;
        if (first)
            TSR_TRY(more_memory(list, pl, a, g, err));
    }
    for (uint64_t g = 0; g < c->n_groups; g++)
        TSR_TRY(more_devices(list, pl, a, g, err));
    TSR_TRY(other_end(list, pl, a, err));
    TSR_TRY(left_open(list, pl, a, err));
    return looser(list, pl, a, err);
}

tsr_status tsr_planning_explain(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                                json_t **out, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &pl->problem;
    const struct tsr_plan_outcome *o = &a->outcome;
    json_t                        *binds = json_array(), *bought_list = json_array();
    bool ok = binds && bought_list && slowest(binds, p, o, TSR_PLAN_PREFILL) &&
              slowest(binds, p, o, TSR_PLAN_DECODE) && decode_form(binds, p, o) &&
              experts(binds, p, o) && quality(binds, p, o);
    tsr_status st = ok ? memory(binds, p, o, err) : tsr_fail_nomem(err, 64, "an explanation");
    if (st == TSR_OK)
        st = buys(bought_list, pl, a, err);
    if (st == TSR_OK) {
        *out = json_pack("{s:O, s:O}", "binds", binds, "buys", bought_list);
        if (!*out)
            st = tsr_fail_nomem(err, 64, "an explanation");
    }
    json_decref(binds);
    json_decref(bought_list);
    return st;
}
