/* The questions of what a change would buy. */
#include "planning/buys.h"
#include "base/clock.h"
#include "base/mem.h"
#include "pipeline/step.h"
#include "plugin/kv_codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SOLVES 3.0 /* times that of the plan, for all answers together */
#define LEAST  1.0 /* s that they may take in any case */
#define SMALL  1   /* shares of the time: of what all changes together say something of */
#define ONE    2
#define TWO    6  /* of other settings to rule out */
#define MANY   18 /* of plans that differ from the plan */
#define TRIED  4  /* codecs of a file of indicators */
#define NARROW TSR_I8
#define SPARSE "mx:element=fp4_e2m1" /* a codec to try where no file names some */

/* Whether an answer with so many shares of the time is only counted. */
static bool is_counted(struct tsr_planning_buying *z, uint64_t shares)
{
    z->share = shares;
    z->left += z->count ? shares : 0;
    return z->count;
}

/* Shares of an answer that the floor says nothing of. */
static uint64_t alone(const struct tsr_planning_buying *z)
{
    return z->a->settings > 1 ? TWO : ONE;
}

/* ---- the questions --------------------------------------------------------------------- */

static tsr_status more_memory(struct tsr_planning_buying *z, uint64_t group, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &z->pl->problem;
    struct tsr_plan_variant        v;
    char                           what[120];
    TSR_TRY(tsr_plan_variant_make(&v, p, err));
    for (uint64_t g = 0; g < p->cluster->n_groups; g++)
        if (p->cluster->groups[g].profile == p->cluster->groups[group].profile)
            v.p.more_bytes[g] += TSR_PLANNING_MORE_BYTES;
    (void)snprintf(what, sizeof what, "4 GiB more on each %.60s",
                   p->cluster->groups[group].profile->name);
    tsr_status st = tsr_planning_bought(z, &v.p, what, TSR_PLANNING_SMALL, err);
    tsr_plan_variant_free(&v);
    return st;
}

static tsr_status more_devices(struct tsr_planning_buying *z, uint64_t group, struct tsr_err *err)
{
    const struct tsr_plan_cluster   *c = z->pl->problem.cluster;
    const struct tsr_plan_group     *g = &c->groups[group];
    const struct tsr_plan_node_info *node = &c->nodes[g->node];
    struct tsr_plan_variant          v;
    char                             what[200], reason[400];
    (void)snprintf(what, sizeof what, "one more %.60s in node %.60s%s", g->profile->name,
                   node->name, z->pl->part ? " for each copy" : "");
    if (!tsr_planning_has_link(node)) {
        z->left -= z->share;
        (void)snprintf(reason, sizeof reason,
                       "%.60s says nothing of the way between two devices of node '%.60s'; give "
                       "the node a 'link' to know",
                       c->name, node->name);
        return tsr_planning_unknown(z, what, reason, err);
    }
    TSR_TRY(tsr_plan_variant_make(&v, &z->pl->problem, err));
    v.p.more[group] += 1;
    /* where no device may stay unused, the plan without it is none */
    tsr_status st =
        tsr_planning_bought(z, &v.p, what, v.p.o.use_all ? TSR_PLANNING_OTHER : TSR_PLANNING_MORE,
                            err);
    tsr_plan_variant_free(&v);
    return st;
}

/* Links twice as fast, where the plan uses some. */
static tsr_status faster_links(struct tsr_planning_buying *z, bool inside, struct tsr_err *err)
{
    const struct tsr_plan_outcome *o = &z->a->outcome;
    struct tsr_plan_variant        v;
    bool                           used = false;
    for (uint64_t i = 0; i < o->n_stages; i++) {
        bool cross = i > 0 && o->stages[i].mesh.node != o->stages[i - 1].mesh.node;
        used = used || (inside ? o->stages[i].mesh.tp > 1 || (i > 0 && !cross) : cross);
    }
    if (!used)
        return TSR_OK;
    if (is_counted(z, inside ? TWO : SMALL))
        return TSR_OK;
    TSR_TRY(tsr_plan_variant_make(&v, &z->pl->problem, err));
    tsr_status st = tsr_plan_variant_links(&v, inside, 2, err);
    if (st == TSR_OK)
        st = tsr_planning_bought(z, &v.p,
                                 inside ? "links inside nodes twice as fast"
                                        : "links between nodes twice as fast",
                                 inside ? TSR_PLANNING_MORE : TSR_PLANNING_SMALL, err);
    tsr_plan_variant_free(&v);
    return st;
}

static tsr_status one_codec(struct tsr_planning_buying *z, bool sum, const char *codec,
                            struct tsr_err *err)
{
    bool                    priced = z->pl->problem.quality.kl.on;
    struct tsr_plan_variant v;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    char                    what[160];
    if (is_counted(z, alone(z)))
        return TSR_OK;
    (void)snprintf(what, sizeof what, "%s by %.60s", sum ? "sums" : "links", codec);
    TSR_TRY(tsr_plan_variant_make(&v, &z->pl->problem, err));
    tsr_status st = tsr_plan_variant_codec(&v, sum, codec, &e.err);
    if (st == TSR_OK)
        st = tsr_planning_bought(z, &v.p, what, priced ? TSR_PLANNING_ALONE : TSR_PLANNING_UNPRICED,
                                 err);
    else if (st == TSR_E_INPUT || st == TSR_E_CONFIG)
        st = tsr_planning_unknown(z, what, e.text, err);
    else
        (void)tsr_err_copy(err, st, &e.err);
    tsr_plan_variant_free(&v);
    return st;
}

static bool has(const struct tsr_plan_codec *list, uint64_t n, const char *codec)
{
    bool any = false;
    for (uint64_t i = 0; i < n; i++)
        any = any || (list[i].wire[0].text && strcmp(list[i].wire[0].text, codec) == 0);
    return any;
}

/* Those of the indicators that the job does not list; by the prior one, which then has no price in quality. */
static tsr_status codecs(struct tsr_planning_buying *z, bool sum, struct tsr_err *err)
{
    const struct tsr_plan_problem    *p = &z->pl->problem;
    const struct tsr_plan_quality_kl *kl = &p->quality.kl;
    const struct tsr_plan_codec      *list = sum ? p->sums : p->links;
    uint64_t                          n = sum ? p->n_sums : p->n_links, tried = 0;
    bool                              used = !sum && z->a->outcome.n_stages > 1;
    for (uint64_t i = 0; i < z->a->outcome.n_stages; i++)
        used = used || (sum && z->a->outcome.stages[i].mesh.tp > 1);
    if (!used || p->o.accounting != TSR_PLAN_ACCOUNT_EXACT)
        return TSR_OK;
    if (!kl->on)
        return has(list, n, SPARSE) ? TSR_OK : one_codec(z, sum, SPARSE, err);
    for (uint32_t i = 0; i < (sum ? kl->n_sum : kl->n_link) && tried < TRIED; i++) {
        const char *name = (sum ? kl->sum : kl->link)[i].name;
        if (has(list, n, name))
            continue;
        TSR_TRY(one_codec(z, sum, name, err));
        tried++;
    }
    return TSR_OK;
}

/* Half of the prompt and of the tokens that are made, of requests of one length. */
static tsr_status half_context(struct tsr_planning_buying *z, struct tsr_err *err)
{
    const struct tsr_plan_workload *w = &z->pl->problem.work;
    struct tsr_plan_variant         v;
    if (w->distribution || w->s < 2)
        return TSR_OK;
    if (is_counted(z, alone(z)))
        return TSR_OK;
    TSR_TRY(tsr_plan_variant_make(&v, &z->pl->problem, err));
    v.p.work.s = w->s / 2;
    tsr_plan_problem_refresh(&v.p);
    tsr_status st =
        tsr_planning_bought(z, &v.p, "prompts of half the length", TSR_PLANNING_ALONE, err);
    tsr_plan_variant_free(&v);
    return st;
}

/* A cache of 8 bits, where the plan has a wider one that the planner may not narrow. */
static tsr_status narrow_cache(struct tsr_planning_buying *z, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &z->pl->problem;
    struct tsr_plan_variant        v;
    if (p->o.free_kv || p->kv_types || tsr_plugin_kv_bits(p->work.kv) <= 8 ||
        p->o.accounting != TSR_PLAN_ACCOUNT_EXACT || !tsr_plugin_kv_is_there(p->registry, NARROW))
        return TSR_OK;
    if (is_counted(z, ONE))
        return TSR_OK;
    TSR_TRY(tsr_plan_variant_make(&v, p, err));
    v.p.o.kv[0] = NARROW;
    v.p.o.n_kv = 1;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = tsr_plan_problem_kl_need_kv(&v.p, NARROW, &e.err);
    st = st == TSR_OK ? tsr_planning_bought(z, &v.p, "a cache of int8", TSR_PLANNING_OTHER, err)
                      : tsr_planning_unknown(z, "a cache of int8", e.text, err);
    tsr_plan_variant_free(&v);
    return st;
}

/* The head on the other end, where there are two. */
static tsr_status other_end(struct tsr_planning_buying *z, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &z->pl->problem;
    bool                           first = p->o.head == TSR_PLAN_HEAD_FIRST;
    struct tsr_plan_variant        v;
    if (tsr_plan_cluster_devices(p->cluster) < 2 || p->shape->layers < 2)
        return TSR_OK;
    if (is_counted(z, alone(z)))
        return TSR_OK;
    TSR_TRY(tsr_plan_variant_make(&v, p, err));
    tsr_plan_problem_put_head(&v.p, first ? TSR_PLAN_HEAD_LAST : TSR_PLAN_HEAD_FIRST);
    tsr_status st =
        tsr_planning_bought(z, &v.p,
                            first ? "the head on the last stage" : "the head on the first stage",
                            TSR_PLANNING_OTHER, err);
    tsr_plan_variant_free(&v);
    return st;
}

/* What the job fixes, left to the planner: one key, then all of them where there are several. */
static tsr_status left_open(struct tsr_planning_buying *z, struct tsr_err *err)
{
    static const char *const       names[] = { "requests at once left open", "the chunk left open",
                                               "the type of the cache left open",
                                               "all of these left open" };
    const struct tsr_plan_problem *p = &z->pl->problem;
    const struct tsr_plan_problem_options *o = &p->o;
    bool once = !o->free_concurrency && p->work.batch > 1, chunk = !o->free_chunk,
         kv = !o->free_kv && o->n_kv < 2 && p->max_omega >= 0 &&
              tsr_plugin_kv_is_there(p->registry, NARROW);
    bool exact = o->objective == TSR_OBJECTIVE_STEADY && o->accounting == TSR_PLAN_ACCOUNT_EXACT;
    const bool fixed[] = { once, chunk, kv, once + chunk + kv > 1 };
    for (int i = 0; i < 4 && exact; i++) {
        struct tsr_plan_variant v;
        if (!fixed[i])
            continue;
        if (is_counted(z, ONE))
            continue;
        TSR_TRY(tsr_plan_variant_make(&v, p, err));
        struct tsr_plan_problem_options *to = &v.p.o;
        to->free_concurrency = to->free_concurrency || i == 0 || (i == 3 && once);
        to->free_chunk = to->free_chunk || i == 1 || (i == 3 && chunk);
        if (i == 2 || (i == 3 && kv)) {
            to->n_kv = 0;
            to->free_kv = true;
        }
        tsr_status st = tsr_planning_bought(z, &v.p, names[i], TSR_PLANNING_OPEN, err);
        tsr_plan_variant_free(&v);
        TSR_TRY(st);
    }
    return TSR_OK;
}

static tsr_status looser(struct tsr_planning_buying *z, struct tsr_err *err)
{
    struct tsr_plan_variant v;
    if (!(z->pl->problem.max_omega > 0))
        return TSR_OK;
    if (is_counted(z, SMALL))
        return TSR_OK;
    TSR_TRY(tsr_plan_variant_make(&v, &z->pl->problem, err));
    v.p.max_omega *= TSR_PLANNING_LOOSER;
    tsr_status st =
        tsr_planning_bought(z, &v.p, "a tenth more of max_omega", TSR_PLANNING_SMALL, err);
    tsr_plan_variant_free(&v);
    return st;
}

static tsr_status ask(struct tsr_planning_buying *z, struct tsr_err *err)
{
    const struct tsr_plan_cluster *c = z->pl->problem.cluster;
    for (uint64_t g = 0; g < c->n_groups; g++) {
        bool first = true;
        for (uint64_t h = 0; h < g; h++)
            first = first && c->groups[h].profile != c->groups[g].profile;
        if (first && !is_counted(z, SMALL))
            TSR_TRY(more_memory(z, g, err));
    }
    for (uint64_t g = 0; g < c->n_groups; g++)
        if (!is_counted(z, MANY))
            TSR_TRY(more_devices(z, g, err));
    TSR_TRY(faster_links(z, false, err));
    TSR_TRY(faster_links(z, true, err));
    TSR_TRY(codecs(z, false, err));
    TSR_TRY(codecs(z, true, err));
    TSR_TRY(half_context(z, err));
    TSR_TRY(other_end(z, err));
    TSR_TRY(narrow_cache(z, err));
    TSR_TRY(left_open(z, err));
    return looser(z, err);
}

/* What is proved of the plan's setting without a change. A plan with the least omega in a time, and the knee of a front, are not
 * the fastest ones of the problem. */
static double least_ms(const struct tsr_planning *pl, const struct tsr_plan_planned *a)
{
    bool fastest = !(pl->at_most_ms > 0) && !pl->problem.knee && pl->replicas == 1;
    return fastest ? tsr_plan_settings_least(&pl->problem, a) : -INFINITY;
}

tsr_status tsr_planning_buys(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                             json_t *e, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &pl->problem;
    double                     start = tsr_now_s(), seconds = isfinite(a->seconds) ? a->seconds : 0;
    struct tsr_planning_omega  o = { NAN, NAN };
    struct tsr_planning_buying z = { .pl = pl,
                                     .a = a,
                                     .list = json_object_get(e, "buys"),
                                     .own = { p->memory.batch, p->work.chunk, p->work.kv, p->end,
                                              p->kv_types, p->most_k },
                                     .end = start + fmax(SOLVES * seconds, LEAST),
                                     .least = a->outcome.omega,
                                     .least_ms = least_ms(pl, a),
                                     .all_ms = -INFINITY,
                                     .left = ONE,
                                     .count = true };
    TSR_TRY(ask(&z, err));
    z.count = false;
    if (p->o.objective == TSR_OBJECTIVE_STEADY)
        TSR_TRY(tsr_planning_least_omega(&z, p, a->outcome.latency_ms, a->outcome.omega,
                                         start + (z.end - start) * ONE / (double)z.left, &o, err));
    z.least = isfinite(o.omega) ? o.omega : z.least;
    if (a->settings > 1) { /* of the others nothing is proved */
        o.bound = NAN;
        TSR_TRY(tsr_planning_buys_floor(&z, err));
    }
    TSR_TRY(tsr_planning_buys_all(&z, err));
    z.left -= ONE;
    tsr_status st = ask(&z, err);
    tsr_plan_floor_free(&z.floor);
    TSR_TRY(st);
    return tsr_planning_omega_put(e, &o) &&
                   tsr_pipeline_json_put_real(e, "seconds", tsr_now_s() - start)
               ? TSR_OK
               : tsr_fail_nomem(err, 64, "an explanation");
}
