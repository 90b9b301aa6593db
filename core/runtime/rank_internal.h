/* runtime/rank_internal.h - declarations shared by the files of a rank. */
#ifndef TSR_RUNTIME_RANK_INTERNAL_H
#define TSR_RUNTIME_RANK_INTERNAL_H

#include "runtime/rank.h"

#define TSR_RANK_FANS 8u /* ranks of a stage */

/* A thread that sends the entries of a queue over some edges. */
struct tsr_runtime_rank_sender {
    struct tsr_runtime_rank    *rank;
    struct tsr_runtime_queue    queue;
    struct tsr_runtime_edge_end end[TSR_RANK_FANS];
    uint32_t                    n;
    struct tsr_runtime_queue   *back; /* where batches go afterwards; NULL: they are freed */
    pthread_t                   thread;
    bool                        started;
};

/* A thread that receives what returns to a head on the first stage, so that the last stage never waits for
 * this rank. */
struct tsr_runtime_rank_back {
    struct tsr_runtime_edge_end end;
    bool                        there, started;
    pthread_t                   thread;
};

struct tsr_runtime_rank {
    const struct tsr_runtime_group_plan *plan;
    const struct tsr_runtime_rank_hooks *hooks;
    struct tsr_runtime_place             place;
    struct tsr_runtime_page_rank        *page;
    struct tsr_pool                     *pool;
    struct tsr_registry                 *registry;
    struct tsr_plugin_run_on             on;
    struct tsr_engine                   *engine;
    struct tsr_loader                   *loader; /* packs while it loads; or NULL */
    struct tsr_comm_group               *group;
    struct tsr_runtime_edge_end          in;
    bool                                 has_in, receiving, sound; /* sound: the queues are open */
    struct tsr_runtime_rank_back         back;
    struct tsr_runtime_queue             queue, spare; /* pending work; empty batches */
    struct tsr_runtime_queue            *work;
    struct tsr_runtime_rank_sender next, fan, answer; /* answer: of a head on the first stage */
    pthread_t                      receiver;
    uint32_t                       phase;     /* of the micro-batch at work, for the sums */
    uint64_t                       summed_ns; /* that its sums took */
    uint64_t                       began_ns, sums, all_sums; /* paced: of it, so far and in all */
    double                         paced_ms;                 /* paced time, without its sums */
    struct tsr_errbuf              err;
};

/* rank_fail.c: ends the rank, and reports the reason unless another rank caused it. */
void tsr_runtime_rank_failed(struct tsr_runtime_rank *r, tsr_status st, const struct tsr_err *err);

/* rank_open.c: ends of links; the group of a stage, with the choices of `auto`; its part of the model. */
tsr_status tsr_runtime_rank_open_edges(struct tsr_runtime_rank *r, struct tsr_err *err);
tsr_status tsr_runtime_rank_join(struct tsr_runtime_rank *r, struct tsr_err *err);
tsr_status tsr_runtime_rank_open_engine(struct tsr_runtime_rank *r, struct tsr_err *err);

/* rank_work.c: micro-batches until a stop frame; the sums of its engine, tsr_engine_tp. */
tsr_status tsr_runtime_rank_work(struct tsr_runtime_rank *r, struct tsr_err *err);
tsr_status tsr_runtime_rank_sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                                struct tsr_err *err);
tsr_status tsr_runtime_rank_sum_on(void *ctx, uint32_t site, const struct tsr_backend_v1 *backend,
                                   void *self, const struct tsr_tensor *x, bool *done,
                                   struct tsr_err *err);
tsr_status tsr_runtime_rank_reserve_on(void *ctx, const struct tsr_backend_v1 *backend, void *self,
                                       uint64_t rows, uint64_t cols, uint32_t first, uint32_t end,
                                       struct tsr_err *err);

/* rank_back.c: a head on the first stage. Starts to receive returned rows; reduces a micro-batch to the
 * requested rows, as the last stage sends them; computes logits of those rows, which b then holds. */
tsr_status tsr_runtime_rank_hear(struct tsr_runtime_rank *r, struct tsr_err *err);
void tsr_runtime_rank_pick(const struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b);
tsr_status tsr_runtime_rank_head(struct tsr_runtime_rank *r, struct tsr_runtime_micro_batch *b,
                                 struct tsr_err *err);

#endif
