#include "plan/simulate/simulate_internal.h"

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
    double   there; /* when the last one that has left arrives: messages keep their order */
};

/* The end of a service, of which at most one per resource is pending; or the arrival of an item that has left its link,
 * of which at most one per item is. */
struct event {
    double   time;
    uint64_t order, resource;
    uint64_t item; /* NONE: of a service */
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
    struct event                   *heap; /* [resources + items] */
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

static bool at_head(const struct tsr_plan_pipeline *p, uint64_t at)
{
    return at == 2 * p->stages;
}

/* Of the time of a full micro-batch, or of a whole job. */
static double share(const struct sim *s, const struct item *it)
{
    const struct tsr_plan_pipeline *p = s->p;
    uint64_t                        size = it->decode ? p->decode_mb : p->prefill_mb;
    double                          part = 1;
    if (s->how->part_last)
        part *= (double)requests(p->batch, size, it->micro_batch) / (double)size;
    if (!it->decode && p->prefill_jobs > 0 && it->at < 2 * p->stages - 1)
        part *= fmin(1, p->prefill_jobs - (double)it->step);
    return part;
}

static double service_ms(const struct sim *s, const struct item *it)
{
    const struct tsr_plan_pipeline *p = s->p;
    const double                   *stage = it->decode ? p->dec_ms : p->pre_ms,
                 *link = it->decode ? p->link_dec_ms : p->link_pre_ms;
    if (p->pre)
        return (it->decode ? p->dec : p->pre)[it->micro_batch].ms[it->at];
    double ms;
    if (p->back && at_head(p, it->at))
        ms = it->decode ? p->back->head_dec_ms : p->back->head_pre_ms;
    else if (p->back && it->at == 2 * p->stages - 1)
        ms = it->decode ? p->back->link_dec_ms : p->back->link_pre_ms;
    else
        ms = it->at % 2 ? link[it->at / 2] : stage[it->at / 2];
    return ms * share(s, it);
}

/* Between the end of a service and the arrival at the next resource. */
static double way_ms(const struct sim *s, const struct item *it)
{
    const struct tsr_plan_pipeline *p = s->p;
    const double                   *way = it->decode ? p->way_dec_ms : p->way_pre_ms;
    return p->pre || !way || it->at % 2 == 0 || it->at >= 2 * p->stages - 1
               ? 0
               : way[it->at / 2] * share(s, it);
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
    push(s, (struct event){ now + service_ms(s, it), s->order++, r, NONE });
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

/* Positions of an item: only the last job of a prompt has rows for the head. */
static uint64_t way_of(const struct sim *s, const struct item *it)
{
    return it->decode || it->step + 1 == s->jobs ? tsr_simulate_positions(s->p)
                                                 : 2 * s->p->stages - 1;
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

/* The item has been through the resource where it is. */
static void pass(struct sim *s, uint64_t i, double now)
{
    struct item *it = &s->item[i];
    if (it->at + 1 < way_of(s, it)) {
        serve(s, arrive(s, i, it->at + 1), now);
    } else {
        leave(s, i, now);
        serve(s, 0, now);
    }
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
        if (e.item != NONE) {
            pass(s, e.item, e.time);
            continue;
        }
        uint64_t     i = res->serves;
        struct item *it = &s->item[i];
        *(it->decode ? &out->busy_dec[e.resource] : &out->busy_pre[e.resource]) +=
            e.time - res->since;
        if (s->fn)
            s->fn(s->ctx,
                  &(struct tsr_plan_visit){ e.resource, it->micro_batch, it->step, it->decode,
                                            at_head(s->p, it->at), res->since, e.time });
        out->visits++;
        out->total_ms = e.time;
        res->serves = NONE;
        res->there = fmax(res->there, e.time + way_ms(s, it));
        if (res->there > e.time)
            push(s, (struct event){ res->there, s->order++, e.resource, i });
        else
            pass(s, i, e.time);
        serve(s, e.resource, e.time);
    }
}

/* ---- whole ---------------------------------------------------------------------------------- */

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
            it->after = tsr_simulate_pieces(end, p->prefill_mb);
            it->steps = p->tokens - 1;
        }
    }
}

tsr_status tsr_simulate(const struct tsr_plan_pipeline *p, const struct tsr_simulate_how *how,
                        tsr_plan_visit_fn fn, void *ctx, struct tsr_plan_simulation *out,
                        struct tsr_err *err)
{
    *out = (struct tsr_plan_simulation){ 0 };
    TSR_TRY(tsr_simulate_check(p, err));
    struct sim s = { .p = p, .how = how, .fn = fn, .ctx = ctx, .out = out };
    s.n_pre = p->pre ? p->n_pre : tsr_simulate_pieces(p->batch, p->prefill_mb);
    s.n_dec = p->pre ? p->n_dec : p->tokens > 1 ? tsr_simulate_pieces(p->batch, p->decode_mb) : 0;
    out->resources = 2 * p->stages - (p->back ? 0 : 1);
    s.jobs = tsr_simulate_jobs(p);
    uint64_t items = s.n_pre * s.jobs + s.n_dec;
    s.item = tsr_new(items, sizeof *s.item);
    s.res = tsr_new(out->resources, sizeof *s.res);
    s.heap = tsr_new(out->resources + items, sizeof *s.heap);
    out->busy_pre = tsr_new(2 * out->resources, sizeof *out->busy_pre);
    tsr_status st = TSR_OK;
    if (!s.item || !s.res || !s.heap || !out->busy_pre) {
        st = tsr_fail_nomem(err, items * sizeof *s.item, "the simulation of a plan");
        tsr_plan_simulation_destroy(out);
    } else {
        out->busy_dec = out->busy_pre + out->resources;
        deal(&s);
        for (uint64_t r = 0; r < out->resources; r++)
            s.res[r] = (struct resource){ NONE, NONE, NONE, 0, 0 };
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
