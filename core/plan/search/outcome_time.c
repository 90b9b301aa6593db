/* The time of a plan from its stages: a batch that fills the pipeline once, then requests that take the slots of those
 * that are done. */
#include "plan/search/search.h"

#include <math.h>

/* Sums and bottlenecks over stages and links, of a micro-batch. */
struct sums {
    double pre, dec, most_pre, most_dec;
    double rest, most_rest; /* decode of the last requests, where they are fewer */
};

static struct sums sums_of(const struct tsr_plan_outcome *o)
{
    struct sums z = { 0 };
    for (uint64_t i = 0; i < o->n_stages;
         i++) { /* the last one's link: back to the head, if anywhere */
        const struct tsr_plan_outcome_stage *s = &o->stages[i];
        z.pre += s->pre_ms + s->link_pre_ms;
        z.dec += s->dec_ms + s->link_dec_ms;
        z.rest += s->rest_ms + s->link_rest_ms;
        z.most_rest = fmax(z.most_rest, fmax(s->rest_ms, s->link_rest_ms));
        z.most_pre = fmax(z.most_pre, fmax(s->pre_ms, s->link_pre_ms));
        z.most_dec = fmax(z.most_dec, fmax(s->dec_ms, s->link_dec_ms));
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
 * time; where one token is made, nobody is. */
static double refill(const struct tsr_plan_outcome *o, const struct sums *z, uint64_t requests,
                     bool all, double steps)
{
    double   pre = prefills(o, requests, all), ahead = pre;
    uint64_t full = requests / o->decode_mb, fewer = requests % o->decode_mb;
    if (all) { /* residents go on in the micro-batches that they have */
        full += fewer != 0;
        fewer = 0;
    }
    if (!(steps > 0))
        ahead = fmin(pre, pieces(o->decode_mb, o->prefill_mb));
    return fmax(pre * z->most_pre +
                    steps * ((double)full * z->most_dec + (fewer ? z->most_rest : 0)),
                prompts(o, z, ahead) + steps * (full ? z->dec : z->rest));
}

static double work(const struct tsr_plan_outcome *o, const struct tsr_plan_outcome_stage *s,
                   uint64_t requests, bool all, double steps)
{
    bool fewer = !all && requests % o->decode_mb;
    return prefills(o, requests, all) * s->pre_ms +
           steps * (pieces(requests, o->decode_mb) - fewer) * s->dec_ms +
           (fewer ? steps * s->rest_ms : 0);
}

void tsr_plan_outcome_time(struct tsr_plan_outcome *o, const struct tsr_plan_workload *w,
                           uint64_t at_once)
{
    struct sums z = sums_of(o);
    double      n = (double)w->n, steps = n - 1, mu = pieces(at_once, o->decode_mb);
    uint64_t    full = w->batch / at_once, rest = w->batch % at_once;
    o->rounds = full + (rest != 0);
    o->prefill_ms = prompts(o, &z, prefills(o, at_once, true));
    o->latency_ms = o->prefill_ms;
    if (steps > 0)
        o->latency_ms +=
            fmax(steps * z.dec + (mu - 1) * z.most_dec, z.dec + (steps * mu - 1) * z.most_dec);
    if (full > 1)
        o->latency_ms += (double)(full - 1) * refill(o, &z, at_once, true, steps);
    if (full && rest)
        o->latency_ms += refill(o, &z, rest, false, steps);
    o->tokens_per_second = o->latency_ms > 0 ? (double)w->batch * n / o->latency_ms * 1e3 : 0;
    for (uint64_t i = 0; i < o->n_stages; i++) {
        struct tsr_plan_outcome_stage *s = &o->stages[i];
        double busy = (double)(full ? full : 1) * work(o, s, at_once, true, steps) +
                      (full && rest ? work(o, s, rest, false, steps) : 0);
        s->busy = o->latency_ms > 0 ? fmin(busy / o->latency_ms, 1) : 0;
    }
}
