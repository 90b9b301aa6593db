/* The bottlenecks of a plan. */
#include "base/mem.h"
#include "pipeline/step.h"
#include "planning/planning.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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
        double way = phase == TSR_PLAN_PREFILL ? s->every_pre_ms : s->every_dec_ms;
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
        most = fmax(most, fmax(o->stages[i].dec_ms, o->stages[i].every_dec_ms));
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
    json_t    *e = json_pack("{s:O, s:O}", "binds", binds, "buys", bought_list);
    if (st == TSR_OK)
        st = e ? tsr_planning_buys(pl, a, e, err) : tsr_fail_nomem(err, 64, "an explanation");
    if (st == TSR_OK)
        *out = e;
    else
        json_decref(e);
    json_decref(binds);
    json_decref(bought_list);
    return st;
}
