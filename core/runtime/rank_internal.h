/* runtime/rank_internal.h - what the files of a rank share. */
#ifndef TSR_RUNTIME_RANK_INTERNAL_H
#define TSR_RUNTIME_RANK_INTERNAL_H

#include "runtime/rank.h"

#define TSR_RANK_FANS 8u /* ranks of a stage */

/* Sends what is in a queue over some edges, on a thread of its own. */
struct tsr_rank_sender {
    struct tsr_rank    *rank;
    struct tsr_queue    queue;
    struct tsr_edge_end end[TSR_RANK_FANS];
    uint32_t            n;
    struct tsr_queue   *back; /* where batches go afterwards; NULL: they are freed */
    pthread_t           thread;
    bool                started;
};

/* Hears what comes back to a head on the first stage, on a thread of its own: whatever this rank is at, the
 * last stage never waits for it. */
struct tsr_rank_back {
    struct tsr_edge_end end;
    bool                there, started;
    pthread_t           thread;
};

struct tsr_rank {
    const struct tsr_crew_plan  *plan;
    const struct tsr_rank_hooks *hooks;
    struct tsr_place             place;
    struct tsr_page_rank        *page;
    struct tsr_pool             *pool;
    struct tsr_registry         *registry;
    struct tsr_engine           *engine;
    struct tsr_loader           *loader; /* packs while it loads; or NULL */
    struct tsr_comm_group       *group;
    struct tsr_edge_end          in;
    bool                         has_in, receiving, sound; /* sound: queues are there */
    struct tsr_rank_back         back;
    struct tsr_queue             queue, spare; /* of its own work; empty batches */
    struct tsr_queue            *work;
    struct tsr_rank_sender       next, fan, answer; /* answer: of a head on the first stage */
    pthread_t                    receiver;
    uint32_t                     phase;     /* of the micro-batch at work, for the sums */
    uint64_t                     summed_ns; /* that its sums took */
    uint64_t                     began_ns, sums, all_sums; /* paced: of it, so far and in all */
    double                       paced_ms;                 /* that it takes beside its sums */
    struct tsr_errbuf            err;
};

/* rank.c: the rank ends, and says why where it was not another one's fault. */
void tsr_rank_failed(struct tsr_rank *r, tsr_status st, const char *text);

/* rank_open.c: ends of links; the group of a stage, with what `auto` becomes; its part of the model. */
tsr_status tsr_rank_open_edges(struct tsr_rank *r, struct tsr_err *err);
tsr_status tsr_rank_join(struct tsr_rank *r, struct tsr_err *err);
tsr_status tsr_rank_open_engine(struct tsr_rank *r, struct tsr_err *err);

/* rank_work.c: micro-batches until one says stop; the sums of its engine, tsr_engine_tp. */
tsr_status tsr_rank_work(struct tsr_rank *r, struct tsr_err *err);
tsr_status tsr_rank_sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                        struct tsr_err *err);
tsr_status tsr_rank_sum_on(void *ctx, uint32_t site, const struct tsr_backend_v1 *backend,
                           void *self, const struct tsr_tensor *x, bool *done, struct tsr_err *err);

/* rank_back.c: a head on the first stage.  Begins to hear what comes back; leaves of a micro-batch the rows
 * that are wanted, as the last stage sends them; logits of such rows, which b then holds. */
tsr_status tsr_rank_hear(struct tsr_rank *r, struct tsr_err *err);
void       tsr_rank_pick(const struct tsr_rank *r, struct tsr_portion *b);
tsr_status tsr_rank_head(struct tsr_rank *r, struct tsr_portion *b, struct tsr_err *err);

#endif
