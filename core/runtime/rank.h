/* runtime/rank.h - one rank of a job: its part of the model; it passes micro-batches from the previous rank
 * to the next rank.
 *
 *   receive --queue--> work --queue--> send      three threads, so that links run while layers do
 *
 * Each rank has its own registry on its own threads, so that its allocations are counted separately.
 */
#ifndef TSR_RUNTIME_RANK_H
#define TSR_RUNTIME_RANK_H

#include "comm/group.h"
#include "runtime/edge.h"
#include "runtime/layout.h"
#include "runtime/loader.h"
#include "runtime/page.h"
#include "runtime/queue.h"

struct tsr_runtime_pacing; /* emulate.h */
struct tsr_runtime_peers;  /* peers.h */
struct tsr_runtime_rank;

/* What all ranks of a job read. */
struct tsr_runtime_group_plan {
    const struct tsr_runtime_layout *layout;
    const struct tsr_model          *model;
    const struct tsr_model_overlay  *overlay;  /* or NULL */
    const struct tsr_quant_scheme   *scheme;   /* packs the model while it is loaded; or NULL */
    struct tsr_registry             *registry; /* its plugins are those of all */
    struct tsr_plugin_run_on         on;
    const char                      *transport;
    uint32_t                         act, kv_dtype;
    const char                      *kv_layers; /* of the engine's options */
    uint64_t                         context, deadline_us;
    unsigned                         threads; /* of one rank */
    bool                             processes;
    struct tsr_runtime_frame_limits  limits;
    struct tsr_runtime_edge         *edges;
    uint32_t                         n_edges;
    struct tsr_comm_world           *groups; /* [replicas * stages] of stages with several ranks */
    struct tsr_runtime_page         *page;
    /* threads share a model, which counts open layers and keeps one copy of each, without a lock: ranks
     * without a scheme load one after the other. NULL: processes */
    pthread_mutex_t                 *loading;
    const struct tsr_runtime_pacing *pacing; /* emulated devices, or NULL */
    /* the quantization residuals of all layers, with their k; or NULL */
    const struct tsr_engine_compensate *compensate;
    struct tsr_runtime_peers           *peers; /* ranks are processes of an MPI job, or NULL */
    uint64_t
        epoch; /* of the group, on its page and in the frames of its links: no two have the same */
    char (*group_over)[TSR_MPI_NAME]; /* [replicas * stages], under MPI */
    struct tsr_runtime_rank_handle
        *handle; /* of the coordinator's rank, or under MPI of this process's */
};

/* A running rank, for a caller that must end it from outside. */
struct tsr_runtime_rank_handle {
    pthread_mutex_t          lock;
    struct tsr_runtime_rank *rank; /* NULL: not yet, or not any more */
    _Atomic uint32_t         over; /* tsr_runtime_rank_run() has returned */
};
/* Ends its waits soon.  [any] */
void tsr_runtime_rank_abort(struct tsr_runtime_rank_handle *h);

/* Rank 0 gets its work from the coordinator and may give it results, in one process. */
struct tsr_runtime_rank_hooks {
    struct tsr_runtime_queue *work;
    void (*deliver)(void *ctx, struct tsr_runtime_micro_batch *b); /* takes b over */
    void *ctx;
};

/* Runs rank `rank` until a stop frame: loads its part, reports that it is ready, works. A failure is also
 * written to the page, and ends the neighbours. hooks: of rank 0, else NULL. */
tsr_status tsr_runtime_rank_run(const struct tsr_runtime_group_plan *plan, uint32_t rank,
                                const struct tsr_runtime_rank_hooks *hooks, struct tsr_err *err);

#endif
