#include "plan/simulate/simulate.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT64_MAX

/* A micro-batch on its way: in the queue of a resource, or served by it. */
struct item {
    uint64_t next;                  /* the next one in the queue */
    uint64_t at, micro_batch, step; /* at: position on its way */
    uint64_t after, steps;          /* decode: struct tsr_plan_dealt */
    bool     decode;
};

struct resource {
    uint64_t head, tail; /* queue of items */
    uint64_t serves;     /* item, or NONE */
    double   since;
};

/* The end of a service.  At most one per resource is pending. */
struct event {
    double   time;
    uint64_t order, resource;
};

struct sim {
    const struct tsr_plan_pipeline *p;
    const struct tsr_simulate_how  *how;
    tsr_plan_visit_fn               fn;
    void                           *ctx;
    struct tsr_plan_simulation     *out;
    uint64_t                        n_pre, n_dec, order, pending; /* n_pre: micro-batches */
    uint64_t                        jobs;                         /* of a prefill micro-batch */
    uint64_t                        through, begun; /* prefill, decode micro-batches */
    struct item                    *item;           /* [n_pre * jobs + n_dec], prefill first */
    struct resource                *res;
    struct event                   *heap; /* [resources] */
};

/* ---- pending ends, the earliest first; on a tie the earlier start wins ---------------------- */

static bool before(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void push(struct sim *s, struct event e)
{
    uint64_t i = s->pending++;
    for (; i > 0 && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static struct event pop(struct sim *s)
{
    struct event top = s->heap[0], e = s->heap[--s->pending];
    uint64_t     i = 0;
    for (uint64_t c; (c = 2 * i + 1) < s->pending; i = c) {
        c += c + 1 < s->pending && before(&s->heap[c + 1], &s->heap[c]);
        if (!before(&s->heap[c], &e))
            break;
        s->heap[i] = s->heap[c];
    }
    s->heap[i] = e;
    return top;
}

/* ---- service ------------------------------------------------------------------------------ */

/* Requests of a micro-batch: the last one may have fewer. */
static uint64_t requests(uint64_t batch, uint64_t size, uint64_t i)
{
    return batch - i * size < size ? batch - i * size : size;
}

/* Positions on a path: the resources, and with a way back the first stage again. */
static uint64_t positions(const struct tsr_plan_pipeline *p)
{
    return 2 * p->stages - 1 + (p->back ? 2 : 0);
}

static bool at_head(const struct tsr_plan_pipeline *p, uint64_t at)
{
    return at == 2 * p->stages;
}

static double service_ms(const struct sim *s, const struct item *it)
{
    const struct tsr_plan_pipeline *p = s->p;
    const double                   *stage = it->decode ? p->dec_ms : p->pre_ms,
                 *link = it->decode ? p->link_dec_ms : p->link_pre_ms;
    uint64_t size = it->decode ? p->decode_mb : p->prefill_mb;
    if (p->pre)
        return (it->decode ? p->dec : p->pre)[it->micro_batch].ms[it->at];
    double ms;
    if (at_head(p, it->at))
        ms = it->decode ? p->back->head_dec_ms : p->back->head_pre_ms;
    else if (it->at == 2 * p->stages - 1)
        ms = it->decode ? p->back->link_dec_ms : p->back->link_pre_ms;
    else
        ms = it->at % 2 ? link[it->at / 2] : stage[it->at / 2];
    if (s->how->part_last)
        ms *= (double)requests(p->batch, size, it->micro_batch) / (double)size;
    if (!it->decode && p->prefill_jobs > 0 && it->at < 2 * p->stages - 1)
        ms *= fmin(1, p->prefill_jobs - (double)it->step);
    return ms;
}

static void serve(struct sim *s, uint64_t r, double now)
{
    struct resource *res = &s->res[r];
    if (res->serves != NONE || res->head == NONE)
        return;
    struct item *it = &s->item[res->head];
    res->serves = res->head;
    res->head = it->next;
    if (res->head == NONE)
        res->tail = NONE;
    res->since = now;
    push(s, (struct event){ now + service_ms(s, it), s->order++, r });
}

/* Appends to the queue; a returned micro-batch goes to the front. Returns the resource. */
static uint64_t arrive(struct sim *s, uint64_t i, uint64_t at)
{
    bool             head = at_head(s->p, at);
    uint64_t         r = head ? 0 : at, before = NONE;
    struct resource *res = &s->res[r];
    for (uint64_t k = res->head; head && k != NONE && at_head(s->p, s->item[k].at);
         k = s->item[k].next)
        before = k;
    if (!head)
        before = res->tail;
    s->item[i].at = at;
    s->item[i].next = before == NONE ? res->head : s->item[before].next;
    if (before == NONE)
        res->head = i;
    else
        s->item[before].next = i;
    if (s->item[i].next == NONE)
        res->tail = i;
    return r;
}

/* ---- from one phase to the next ------------------------------------------------------------ */

/* Jobs of a prefill micro-batch. */
static uint64_t jobs_of(const struct tsr_plan_pipeline *p)
{
    return p->pre || !(p->prefill_jobs > 0) ? 1 : (uint64_t)ceil(p->prefill_jobs);
}

/* Positions of an item: only the last job of a prompt has rows for the head. */
static uint64_t way_of(const struct sim *s, const struct item *it)
{
    return it->decode || it->step + 1 == s->jobs ? positions(s->p) : 2 * s->p->stages - 1;
}

/* One more prefill micro-batch is through (they keep their order): which decode ones may begin? */
static void release(struct sim *s, double now)
{
    s->through++;
    s->out->prefill_ms = now;
    for (; s->begun < s->n_dec; s->begun++) {
        uint64_t     i = s->n_pre * s->jobs + s->begun;
        struct item *it = &s->item[i];
        if (s->through < (s->how->no_barrier ? it->after : s->n_pre))
            return;
        if (it->steps)
            (void)arrive(s, i, 0);
    }
}

/* The item has left the last resource. */
static void leave(struct sim *s, uint64_t i, double now)
{
    struct item *it = &s->item[i];
    if (!it->decode && it->step + 1 == s->jobs)
        release(s, now);
    else if (it->decode && ++it->step < it->steps)
        (void)arrive(s, i, 0);
}

static void play(struct sim *s)
{
    struct tsr_plan_simulation *out = s->out;
    for (uint64_t m = 0; m < s->n_pre * s->jobs; m++)
        (void)arrive(s, m, 0);
    serve(s, 0, 0);
    while (s->pending) {
        struct event     e = pop(s);
        struct resource *res = &s->res[e.resource];
        uint64_t         i = res->serves;
        struct item     *it = &s->item[i];
        *(it->decode ? &out->busy_dec[e.resource] : &out->busy_pre[e.resource]) +=
            e.time - res->since;
        if (s->fn)
            s->fn(s->ctx,
                  &(struct tsr_plan_visit){ e.resource, it->micro_batch, it->step, it->decode,
                                            at_head(s->p, it->at), res->since, e.time });
        out->visits++;
        out->total_ms = e.time;
        res->serves = NONE;
        if (it->at + 1 < way_of(s, it)) {
            serve(s, arrive(s, i, it->at + 1), e.time);
        } else {
            leave(s, i, e.time);
            serve(s, 0, e.time);
        }
        serve(s, e.resource, e.time);
    }
}

/* ---- whole ---------------------------------------------------------------------------------- */

static uint64_t pieces(uint64_t batch, uint64_t size)
{
    return batch / size + (batch % size != 0);
}

static bool times_ok(const double *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(v[i] >= 0 && isfinite(v[i])))
            return false;
    return true;
}

/* Visits of dealt micro-batches; UINT64_MAX: more than can be counted. */
static tsr_status check_dealt(const struct tsr_plan_pipeline *p, uint64_t *steps,
                              struct tsr_err *err)
{
    uint64_t places = positions(p), after = 1;
    *steps = p->n_pre;
    if (p->n_pre == 0)
        return tsr_fail(err, TSR_E_INPUT, "a pipeline without a micro-batch of prefill");
    for (uint64_t i = 0; i < p->n_pre; i++)
        if (!times_ok(p->pre[i].ms, places))
            return tsr_fail(err, TSR_E_INPUT, "a time of the pipeline is negative or no number");
    for (uint64_t i = 0; i < p->n_dec; i++) {
        const struct tsr_plan_dealt *d = &p->dec[i];
        if (!times_ok(d->ms, places))
            return tsr_fail(err, TSR_E_INPUT, "a time of the pipeline is negative or no number");
        if (d->after < after || d->after > p->n_pre)
            return tsr_fail(err, TSR_E_INPUT,
                            "decode micro-batch %llu begins after %llu of %llu prefill ones; each "
                            "needs one at least and no fewer than the one before",
                            (unsigned long long)i, (unsigned long long)d->after,
                            (unsigned long long)p->n_pre);
        after = d->after;
        if (!tsr_add(*steps, d->steps, steps))
            *steps = UINT64_MAX;
    }
    return TSR_OK;
}

static tsr_status check_even(const struct tsr_plan_pipeline *p, uint64_t *steps,
                             struct tsr_err *err)
{
    const struct tsr_plan_pipeline_back none = { 0, 0, 0, 0 }, *b = p->back ? p->back : &none;
    const double back[] = { b->link_pre_ms, b->link_dec_ms, b->head_pre_ms, b->head_dec_ms };
    if (p->batch == 0 || p->tokens == 0 || p->prefill_mb == 0 || p->decode_mb == 0 ||
        p->prefill_mb > p->batch || p->decode_mb > p->batch)
        return tsr_fail(err, TSR_E_INPUT,
                        "a pipeline of %llu requests, %llu tokens in micro-batches of %llu and "
                        "%llu cannot run; each must be at least 1, and no micro-batch larger than "
                        "the batch",
                        (unsigned long long)p->batch, (unsigned long long)p->tokens,
                        (unsigned long long)p->prefill_mb, (unsigned long long)p->decode_mb);
    if (!times_ok(p->pre_ms, p->stages) || !times_ok(p->dec_ms, p->stages) ||
        !times_ok(p->link_pre_ms, p->stages - 1) || !times_ok(p->link_dec_ms, p->stages - 1) ||
        !times_ok(back, p->back ? 4 : 0))
        return tsr_fail(err, TSR_E_INPUT, "a time of the pipeline is negative or no number");
    if (!(p->prefill_jobs >= 0 && (p->prefill_jobs == 0 || p->prefill_jobs >= 1) &&
          p->prefill_jobs < (double)TSR_SIMULATE_VISITS))
        return tsr_fail(err, TSR_E_INPUT,
                        "a prefill micro-batch of %g jobs cannot run; at least 1 is needed, fewer "
                        "than %llu",
                        p->prefill_jobs, (unsigned long long)TSR_SIMULATE_VISITS);
    uint64_t prefill;
    if (!tsr_mul(pieces(p->batch, p->decode_mb), p->tokens - 1, steps) ||
        !tsr_mul(pieces(p->batch, p->prefill_mb), jobs_of(p), &prefill) ||
        !tsr_add(*steps, prefill, steps))
        *steps = UINT64_MAX;
    return TSR_OK;
}

static tsr_status check(const struct tsr_plan_pipeline *p, struct tsr_err *err)
{
    uint64_t steps = 0, places, visits;
    if (p->stages == 0)
        return tsr_fail(err, TSR_E_INPUT, "a pipeline of 0 stages cannot run");
    if (p->stages == 1 && p->back)
        return tsr_fail(err, TSR_E_INPUT, "one stage has no way back to itself");
    TSR_TRY(p->pre ? check_dealt(p, &steps, err) : check_even(p, &steps, err));
    if (!tsr_mul(p->stages, 2, &places) || !tsr_add(places, p->back ? 1 : 0, &places) ||
        !tsr_mul(steps, p->back ? places : places - 1, &visits) || visits > TSR_SIMULATE_VISITS)
        return tsr_fail(err, TSR_E_CONFIG,
                        "%llu tokens of %llu requests on %llu stages are too many to simulate; "
                        "fewer tokens show the same pattern",
                        (unsigned long long)p->tokens, (unsigned long long)p->batch,
                        (unsigned long long)p->stages);
    return TSR_OK;
}

static void deal(struct sim *s)
{
    const struct tsr_plan_pipeline *p = s->p;
    for (uint64_t i = 0; i < s->n_pre * s->jobs; i++)
        s->item[i] = (struct item){ .next = NONE, .micro_batch = i / s->jobs, .step = i % s->jobs };
    for (uint64_t m = 0; m < s->n_dec; m++) {
        struct item *it = &s->item[s->n_pre * s->jobs + m];
        *it = (struct item){ .next = NONE, .micro_batch = m, .decode = true };
        if (p->pre) {
            it->after = p->dec[m].after;
            it->steps = p->dec[m].steps;
        } else {
            uint64_t end = m * p->decode_mb + requests(p->batch, p->decode_mb, m);
            it->after = pieces(end, p->prefill_mb);
            it->steps = p->tokens - 1;
        }
    }
}

tsr_status tsr_simulate(const struct tsr_plan_pipeline *p, const struct tsr_simulate_how *how,
                        tsr_plan_visit_fn fn, void *ctx, struct tsr_plan_simulation *out,
                        struct tsr_err *err)
{
    *out = (struct tsr_plan_simulation){ 0 };
    TSR_TRY(check(p, err));
    struct sim s = { .p = p, .how = how, .fn = fn, .ctx = ctx, .out = out };
    s.n_pre = p->pre ? p->n_pre : pieces(p->batch, p->prefill_mb);
    s.n_dec = p->pre ? p->n_dec : p->tokens > 1 ? pieces(p->batch, p->decode_mb) : 0;
    out->resources = 2 * p->stages - (p->back ? 0 : 1);
    s.jobs = jobs_of(p);
    uint64_t items = s.n_pre * s.jobs + s.n_dec;
    s.item = tsr_new(items, sizeof *s.item);
    s.res = tsr_new(out->resources, sizeof *s.res);
    s.heap = tsr_new(out->resources, sizeof *s.heap);
    out->busy_pre = tsr_new(2 * out->resources, sizeof *out->busy_pre);
    tsr_status st = TSR_OK;
    if (!s.item || !s.res || !s.heap || !out->busy_pre) {
        st = tsr_fail_nomem(err, items * sizeof *s.item, "the simulation of a plan");
        tsr_plan_simulation_destroy(out);
    } else {
        out->busy_dec = out->busy_pre + out->resources;
        deal(&s);
        for (uint64_t r = 0; r < out->resources; r++)
            s.res[r] = (struct resource){ NONE, NONE, NONE, 0 };
        play(&s);
    }
    free(s.item);
    free(s.res);
    free(s.heap);
    return st;
}

void tsr_plan_simulation_destroy(struct tsr_plan_simulation *s)
{
    free(s->busy_pre);
    *s = (struct tsr_plan_simulation){ 0 };
}
