/* plan/simulate/simulate.h - a pipeline of stages and links, event by event.
 *
 * The closed form of docs/formats/instance.md gives the time of a plan; this simulates it. Every stage and
 * every link between two stages is a resource that serves one micro-batch at a time, first come, first
 * served, with unbounded queues. A message may be on its way for longer than it takes its link: the next one is encoded and
 * sent while it is decoded. Messages arrive in order. Prefill micro-batches wait at the first stage from the start. A decode
 * micro-batch passes all resources once per token and returns to the first stage after the last one. A prefill
 * micro-batch in chunks is several jobs in order; the head is for the last one. With
 * a head on the first stage (`back`), the output of the last stage returns over a separate link; the first
 * stage serves it again, ahead of its queue. */
#ifndef TSR_PLAN_SIMULATE_SIMULATE_H
#define TSR_PLAN_SIMULATE_SIMULATE_H

#include "base/err.h"
#include "tessera/solver.h"

#include <stdbool.h>

/* A micro-batch that is not like the others. */
struct tsr_plan_dealt {
    /* [2 stages - 1]: on each stage and link, in order (decode: of a step); with `back` two more: on the
     * link back, then of the head */
    const double *ms;
    uint64_t after; /* decode: begins when so many prefill micro-batches, in order, are through */
    uint64_t steps; /* decode: may be 0 */
};

/* The way back to a head on the first stage, and the head, in ms of a full micro-batch. */
struct tsr_plan_pipeline_back {
    double link_pre_ms, link_dec_ms, head_pre_ms, head_dec_ms;
};

struct tsr_plan_pipeline {
    uint64_t      stages, batch, tokens;
    uint64_t      prefill_mb, decode_mb;     /* requests in a micro-batch, at most batch */
    const double *pre_ms, *dec_ms;           /* [stages], a full micro-batch (decode: a step) */
    const double *link_pre_ms, *link_dec_ms; /* [stages-1], to the next stage */
    /* pre NULL: the members above define the micro-batches. Else these do, and of the members above only
     * the number of stages is used; `after` of dec[] is 1 to n_pre and does not descend. */
    const struct tsr_plan_dealt *pre, *dec;
    uint64_t                     n_pre, n_dec;
    /* NULL: the head is the last stage's, and part of its time; else of two stages or more */
    const struct tsr_plan_pipeline_back *back;
    /* prompts in chunks: each prefill micro-batch is so many jobs of pre_ms and link_pre_ms, of which the last
     * takes what is left of a number that is not whole; 0: one job */
    double prefill_jobs;
    /* [stages-1]: ms that a message is on its way after its link is free for the next one; NULL: none.  Not of dealt
     * micro-batches */
    const double *way_pre_ms, *way_dec_ms;
};

struct tsr_simulate_how {
    bool
        no_barrier; /* a micro-batch decodes as soon as its own prompts are done, not all prompts */
    bool part_last; /* the last micro-batch takes its share of the time when it is smaller; else
                        the time of a full one, as the closed form has it; dealt ones have their own */
};

/* One micro-batch on one resource. Resource 2i is stage i, 2i+1 the link after it (after the last stage:
 * back to the first). */
struct tsr_plan_visit {
    uint64_t resource, micro_batch, step; /* step: decode step from 0; in prefill the chunk */
    bool     decode, head;                /* head: on stage 0, only the head of the returned rows */
    double   start, end;                  /* ms */
};
typedef void (*tsr_plan_visit_fn)(void *ctx, const struct tsr_plan_visit *v);

struct tsr_plan_simulation {
    double   total_ms, prefill_ms; /* end of the last token, of the last prompt */
    uint64_t visits, resources;    /* resources: 2 stages - 1, with a way back 2 stages */
    double  *busy_pre, *busy_dec;  /* [resources] ms; released by tsr_plan_simulation_destroy() */
};

/* Most visits that are played, some seconds of time; more is TSR_E_CONFIG. */
#define TSR_SIMULATE_VISITS UINT64_C(100000000)

/* fn: NULL, or called for each visit when it ends, in order of that.  [any] */
tsr_status tsr_simulate(const struct tsr_plan_pipeline *p, const struct tsr_simulate_how *how,
                        tsr_plan_visit_fn fn, void *ctx, struct tsr_plan_simulation *out,
                        struct tsr_err *err);
void       tsr_plan_simulation_destroy(struct tsr_plan_simulation *s);

/* The pipeline of a plan that tsr_plan_evaluate() accepts; one block, released by free().  back: the
 * instance is one of build.h with the head on the first stage, whose time has the head's in it; outlives
 * the pipeline; NULL: no such.  links_ms: [4][stages-1], copied: how long a message of prefill takes its link and one of
 * decode, then what each is on its way after that; NULL: the instance's times, and nothing. */
tsr_status tsr_plan_pipeline_of(struct tsr_plan_pipeline **p, const struct tsr_solver_instance *in,
                                const struct tsr_solver_solution    *s,
                                const struct tsr_plan_pipeline_back *back, const double *links_ms,
                                struct tsr_err *err);

#endif
