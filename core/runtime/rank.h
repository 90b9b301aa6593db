/* runtime/rank.h - one rank of a job: its part of the model, and micro-batches from the rank before to
 * the rank behind.
 *
 *   receive --queue--> work --queue--> send      three threads, so that links run while layers do
 *
 * A rank has a registry of its own, on threads of its own: what it allocates is counted apart.
 */
#ifndef TSR_RUNTIME_RANK_H
#define TSR_RUNTIME_RANK_H

#include "comm/group.h"
#include "runtime/edge.h"
#include "runtime/layout.h"
#include "runtime/loader.h"
#include "runtime/page.h"
#include "runtime/queue.h"

struct tsr_pacing; /* emulate.h */
struct tsr_mates;  /* mates.h */
struct tsr_rank;

/* What all ranks of a job read. */
struct tsr_crew_plan {
    const struct tsr_layout  *layout;
    const struct tsr_model   *model;
    const struct tsr_overlay *overlay;  /* or NULL */
    const struct tsr_scheme  *scheme;   /* packs the model while it is loaded; or NULL */
    struct tsr_registry      *registry; /* its plugins and numerics are those of all */
    const char               *backend, *transport;
    uint32_t                  act, kv_dtype;
    uint64_t                  context, deadline_us;
    unsigned                  threads; /* of one rank */
    bool                      processes;
    struct tsr_frame_limits   limits;
    struct tsr_edge          *edges;
    uint32_t                  n_edges;
    struct tsr_comm_world    *groups; /* [replicas * stages] of stages with several ranks */
    struct tsr_page          *page;
    /* threads share a model, which counts who has a layer open and keeps one copy of it, without a lock of
     * its own: those without a scheme load one after the other.  NULL: processes */
    pthread_mutex_t         *loading;
    const struct tsr_pacing *pacing; /* emulated devices, or NULL */
    /* what quantization lost, of all layers, with their k; or NULL */
    const struct tsr_engine_compensate *compensate;
    struct tsr_mates                   *mates; /* ranks are processes of an MPI job, or NULL */
    uint64_t
        epoch; /* of the group, on its page and in the frames of its links: no two have the same */
    char (*group_over)[TSR_MPI_NAME]; /* [replicas * stages], under MPI */
    struct tsr_rank_handle *handle; /* of the coordinator's rank, or under MPI of this process's */
};

/* A rank at work, for whoever must end it from outside. */
struct tsr_rank_handle {
    pthread_mutex_t  lock;
    struct tsr_rank *rank; /* NULL: not yet, or not any more */
    _Atomic uint32_t over; /* tsr_rank_run() has returned */
};
/* Ends its waits soon.  [any] */
void tsr_rank_abort(struct tsr_rank_handle *h);

/* Rank 0 gets its work from the coordinator and may give it results, in one process. */
struct tsr_rank_hooks {
    struct tsr_queue *work;
    void (*deliver)(void *ctx, struct tsr_portion *b); /* takes b over */
    void *ctx;
};

/* Runs rank `rank` until a frame says stop: loads its part, says that it is ready, works.  A failure is
 * also on the page, and ends the neighbours.  hooks: of rank 0, else NULL. */
tsr_status tsr_rank_run(const struct tsr_crew_plan *plan, uint32_t rank,
                        const struct tsr_rank_hooks *hooks, struct tsr_err *err);

#endif
