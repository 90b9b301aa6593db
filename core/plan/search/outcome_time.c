/* The time of a plan from its stages: a batch that fills the pipeline once, then requests that take the slots of those
 * that are done. */
#include "plan/search/search.h"

#include <math.h>

/* Sums and bottlenecks over stages and links, of a micro-batch. */
struct sums {
    double pre, dec, most_pre, most_dec;
    double rest, most_rest; /* decode of the last requests, where they are fewer */
};

/* solver: as solvers have it, with one time of each link but the one back to a head on the first stage. */
static struct sums sums_of(const struct tsr_plan_outcome *o, bool solver)
{
    struct sums z = { 0 };
    for (uint64_t i = 0; i < o->n_stages;
         i++) { /* the last one's link: back to the head, if anywhere */
        const struct tsr_plan_outcome_stage *s = &o->stages[i];
        bool                                 one = solver && i + 1 < o->n_stages;
        z.pre += s->pre_ms + (one ? s->solver_pre_ms : s->link_pre_ms);
        z.dec += s->dec_ms + (one ? s->solver_dec_ms : s->link_dec_ms);
        z.rest += s->rest_ms + s->link_rest_ms;
        z.most_rest = fmax(z.most_rest, fmax(s->rest_ms, s->every_rest_ms));
        z.most_pre = fmax(z.most_pre, fmax(s->pre_ms, one ? s->solver_pre_ms : s->every_pre_ms));
        z.most_dec = fmax(z.most_dec, fmax(s->dec_ms, one ? s->solver_dec_ms : s->every_dec_ms));
    }
    return z;
}

static double pieces(uint64_t requests, uint64_t size)
{
    return ceil((double)requests / (double)size);
}

/* Prefill micro-batches of all residents; or of a rest, which takes the slots of one decode micro-batch after another. */
static double prefills(const struct tsr_plan_outcome *o, uint64_t requests, bool all)
{
    if (all)
        return (double)tsr_plan_prefill_count(requests, o->prefill_mb, o->decode_mb);
    uint64_t whole = requests / o->decode_mb;
    return (double)whole * pieces(o->decode_mb, o->prefill_mb) +
           pieces(requests % o->decode_mb, o->prefill_mb);
}

/* Until the last of so many prompts is done: a job through all resources, then the others, one by one, through the
 * slowest. */
static double prompts(const struct tsr_plan_outcome *o, const struct sums *z, double micro_batches)
{
    return z->pre / o->prefill_jobs + (micro_batches - 1 / o->prefill_jobs) * z->most_pre;
}

/* What requests that take freed slots add: the bottlenecks work through them while others decode, unless a micro-batch's
 * way through all its tokens takes longer.  It waits for the prompts of the others, which were freed at about the same
 * time; where one token is made, nobody is.  The last requests take the slots that are free first, while the micro-batches
 * whose slots stay free are still at work, one after another; at most by the part of the way that an instance leaves out as
 * well (build_rounds.c). */
static double refill(const struct tsr_plan_outcome *o, const struct sums *z, uint64_t requests,
                     uint64_t at_once, double steps)
{
    bool     all = requests == at_once;
    double   pre = prefills(o, requests, all), ahead = pre, mu = pieces(at_once, o->decode_mb);
    double   idle = mu - pieces(requests, o->decode_mb), way, sooner;
    uint64_t full = requests / o->decode_mb, fewer = requests % o->decode_mb;
    if (all) { /* residents go on in the micro-batches that they have */
        full += fewer != 0;
        fewer = 0;
    }
    if (!(steps > 0))
        ahead = fmin(pre, pieces(o->decode_mb, o->prefill_mb));
    way = steps * (full ? z->dec : z->rest);
    sooner = idle * fmin(z->most_dec, way / mu);
    return fmax(pre * z->most_pre +
                    steps * ((double)full * z->most_dec + (fewer ? z->most_rest : 0)),
                prompts(o, z, ahead) + way - sooner);
}

static double work(const struct tsr_plan_outcome *o, const struct tsr_plan_outcome_stage *s,
                   uint64_t requests, bool all, double steps)
{
    bool fewer = !all && requests % o->decode_mb;
    return prefills(o, requests, all) * s->pre_ms +
           steps * (pieces(requests, o->decode_mb) - fewer) * s->dec_ms +
           (fewer ? steps * s->rest_ms : 0);
}

/* The tokens after the first of `mu` decode micro-batches. */
static double tokens(const struct sums *z, double steps, double mu)
{
    return steps > 0 ? fmax(steps * z->dec + (mu - 1) * z->most_dec,
                            z->dec + (steps * mu - 1) * z->most_dec)
                     : 0;
}

double tsr_plan_outcome_on_way(const struct tsr_plan_outcome *o, const struct tsr_plan_workload *w,
                               uint64_t at_once)
{
    const struct sums way = sums_of(o, false), one = sums_of(o, true);
    double            steps = (double)w->n - 1, mu = pieces(at_once, o->decode_mb);
    double            micro_batches = prefills(o, at_once, true);
    return prompts(o, &way, micro_batches) + tokens(&way, steps, mu) -
           prompts(o, &one, micro_batches) - tokens(&one, steps, mu);
}

void tsr_plan_outcome_time(struct tsr_plan_outcome *o, const struct tsr_plan_workload *w,
                           uint64_t at_once)
{
    struct sums z = sums_of(o, false);
    double      n = (double)w->n, steps = n - 1, mu = pieces(at_once, o->decode_mb);
    uint64_t    full = w->batch / at_once, rest = w->batch % at_once;
    o->rounds = full + (rest != 0);
    o->prefill_ms = prompts(o, &z, prefills(o, at_once, true));
    o->latency_ms = o->prefill_ms + tokens(&z, steps, mu);
    if (full > 1)
        o->latency_ms += (double)(full - 1) * refill(o, &z, at_once, at_once, steps);
    if (full && rest)
        o->latency_ms += refill(o, &z, rest, at_once, steps);
    o->tokens_per_second = o->latency_ms > 0 ? (double)w->batch * n / o->latency_ms * 1e3 : 0;
    for (uint64_t i = 0; i < o->n_stages; i++) {
        struct tsr_plan_outcome_stage *s = &o->stages[i];
        double busy = (double)(full ? full : 1) * work(o, s, at_once, true, steps) +
                      (full && rest ? work(o, s, rest, false, steps) : 0);
        s->busy = o->latency_ms > 0 ? fmin(busy / o->latency_ms, 1) : 0;
    }
}
