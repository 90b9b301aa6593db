/* One sampler, several threads: each runs requests of its own. */
#include "conformance/sampler/sampler.h"

#include <pthread.h>

#define THREADS  4u
#define TURNS    4u /* requests of a thread, each once: that a request repeats is another rule */
#define REQUESTS ((uint64_t)THREADS * TURNS)

struct request {
    struct tsr_sampler_run run;
    uint32_t               want[TSR_SAMPLER_STEPS]; /* tokens that it gets alone */
    uint64_t               n;
};

struct share {
    struct tsr_conformance_case *c;
    struct request               requests[TURNS];
    pthread_barrier_t           *start;
    uint64_t                     wrong; /* requests that got other tokens */
};

/* The tokens of a request from its start; NONE: a call failed. */
static uint64_t tokens_of(struct tsr_conformance_case *c, struct tsr_sampler_run *r,
                          uint32_t tokens[TSR_SAMPLER_STEPS])
{
    uint64_t                   n = 0;
    struct tsr_sampler_request q = tsr_sampler_request_of(c, r);
    tsr_status                 st = r->t->start(r->self, &q, r->state, NULL);
    for (; st == TSR_OK && n < TSR_SAMPLER_STEPS; n++) {
        st = tsr_sampler_try(c, r, &tokens[n], NULL);
        if (st != TSR_OK || tokens[n] == TSR_SAMPLER_END)
            break;
        st = r->t->accept(r->self, r->state, tokens[n], NULL);
        r->history[r->n++] = tokens[n];
    }
    if (st != TSR_OK && st != TSR_E_NUMERIC && n < TSR_SAMPLER_STEPS)
        tokens[n++] = TSR_SAMPLER_NONE;
    return n;
}

static void *take_turns(void *arg)
{
    struct share *s = arg;
    uint32_t      tokens[TSR_SAMPLER_STEPS];
    for (uint64_t i = 0; i < TURNS; i++) {
        struct request *q = &s->requests[i];
        (void)pthread_barrier_wait(s->start);
        uint64_t n = tokens_of(s->c, &q->run, tokens);
        bool     same = n == q->n;
        for (uint64_t k = 0; k < n && same; k++)
            same = tokens[k] == q->want[k];
        s->wrong += !same;
    }
    return NULL;
}

/* Whether the requests get their tokens in turn, a token of each at a time, on one thread. */
static bool in_turn(struct tsr_conformance_case *c, const struct share *share)
{
    struct tsr_sampler_run run[REQUESTS];
    void                  *self = tsr_sampler_made(c);
    bool                   same = true;
    for (uint64_t i = 0; i < REQUESTS; i++)
        tsr_sampler_begin(c, &run[i], self, i);
    for (uint64_t k = 0; k < TSR_SAMPLER_STEPS && same; k++)
        for (uint64_t i = 0; i < REQUESTS && same; i++) {
            const struct request *q = &share[i / TURNS].requests[i % TURNS];
            uint32_t              id;
            if (k >= q->n || q->want[k] == TSR_SAMPLER_NONE)
                continue;
            same = tsr_sampler_try(c, &run[i], &id, NULL) == TSR_OK && id == q->want[k] &&
                   run[i].t->accept(self, run[i].state, id, NULL) == TSR_OK;
            run[i].history[run[i].n++] = id;
        }
    return same;
}

void tsr_sampler_rule_threads(struct tsr_conformance_case *c)
{
    void             *self = tsr_sampler_made(c);
    struct share      share[THREADS];
    pthread_t         id[THREADS];
    pthread_barrier_t start;
    if (pthread_barrier_init(&start, NULL, THREADS) != 0)
        tsr_conformance_rule_skip(c, "no barrier could be made");
    for (uint64_t i = 0; i < THREADS; i++) {
        share[i] = (struct share){ .c = c, .start = &start };
        for (uint64_t k = 0; k < TURNS; k++) {
            struct request *q = &share[i].requests[k];
            tsr_sampler_begin(c, &q->run, tsr_sampler_made(c), i * TURNS + k); /* alone */
            q->n = tokens_of(c, &q->run, q->want);
            tsr_sampler_begin(c, &q->run, self, i * TURNS + k);
        }
    }
    if (!in_turn(c, share))
        tsr_conformance_rule_skip(c, "requests in turn get other tokens on one thread, too");
    for (uint64_t i = 0; i < THREADS; i++)
        if (pthread_create(&id[i], NULL, take_turns, &share[i]) != 0)
            tsr_conformance_rule_skip(c, "no thread could be started");
    for (uint64_t i = 0; i < THREADS; i++)
        (void)pthread_join(id[i], NULL);
    for (uint64_t i = 0; i < THREADS; i++)
        if (share[i].wrong)
            tsr_conformance_rule_fail(c,
                                      "%llu of %u requests get other tokens than alone when %u "
                                      "threads use the instance",
                                      (unsigned long long)share[i].wrong, TURNS, THREADS);
}
