/* comm/link.h - rows of activations from one rank to another, between stages of a pipeline.
 *
 * Sends and receives are started, then tested or waited for with a deadline. Between two ranks they
 * complete in start order; both sides start the same ones. Progress happens inside the calls of this link:
 * a rank that computes for long must test now and then. Long transfers go in pieces (flow.h), and the
 * deadline applies to a piece: a slow transfer that advances is not late.
 */
#ifndef TSR_COMM_LINK_H
#define TSR_COMM_LINK_H

#include "comm/world.h"
#include "tessera/codec.h"

#include <stdatomic.h>
#include <stdbool.h>

#define TSR_COMM_LINK_MAX 64u /* transfers of a link that are under way */

struct tsr_comm_link_options {
    struct tsr_comm_place place;      /* its own world, not a group's */
    const char           *codec[2];   /* of prefill and decode; NULL: "plain", exact */
    bool                  rows_alone; /* as of struct tsr_comm_way */
    _Atomic uint64_t     *pieces;     /* counts completed pieces, for other threads; or NULL */
};

struct tsr_comm_link;
struct tsr_comm_transfer;

/* As tsr_comm_group_create().  [setup] */
tsr_status tsr_comm_link_create(struct tsr_comm_link **l, struct tsr_registry *r,
                                const struct tsr_comm_link_options *o, struct tsr_err *err);
void       tsr_comm_link_destroy(struct tsr_comm_link *l); /* NULL is fine */

/* Starts one. send: x is coded and copied before return. recv: x [rows, cols] is written on completion and
 * must live until then. site: of the last computed step, 2*layer+1. More than TSR_COMM_LINK_MAX under way:
 * TSR_E_INVAL. [worker] */
tsr_status tsr_comm_link_send(struct tsr_comm_link *l, uint32_t phase, uint32_t site, uint32_t to,
                              const float *x, uint64_t rows, uint64_t cols,
                              struct tsr_comm_transfer **t, struct tsr_err *err);
tsr_status tsr_comm_link_recv(struct tsr_comm_link *l, uint32_t phase, uint32_t site, uint32_t from,
                              float *x, uint64_t rows, uint64_t cols, struct tsr_comm_transfer **t,
                              struct tsr_err *err);
/* Uncoded bytes (heads of micro-batches, tokens); send copies them too. [worker] */
tsr_status tsr_comm_link_send_bytes(struct tsr_comm_link *l, uint32_t to, const void *data,
                                    uint64_t bytes, struct tsr_comm_transfer **t,
                                    struct tsr_err *err);
tsr_status tsr_comm_link_recv_bytes(struct tsr_comm_link *l, uint32_t from, void *data,
                                    uint64_t bytes, struct tsr_comm_transfer **t,
                                    struct tsr_err *err);

/* A transfer is released when it is done or has failed.  TSR_E_DEVICE once no piece has got through for
 * deadline_us, with the rank that is late.  [worker] */
tsr_status tsr_comm_link_wait_for(struct tsr_comm_link *l, struct tsr_comm_transfer *t,
                                  uint64_t deadline_us, struct tsr_err *err);

/* Of the transfer that was waited for last: how long nothing had moved when its wait failed (0: no
 * failure, or another one), and how much had arrived. */
struct tsr_comm_late {
    uint64_t us, moved, bytes;
};
struct tsr_comm_late tsr_comm_link_late(const struct tsr_comm_link *l);

/* Ends every wait of every rank of the world soon.  [any] */
void tsr_comm_link_abort(struct tsr_comm_link *l);

/* Wire bytes sent by this rank so far. */
uint64_t tsr_comm_link_sent(const struct tsr_comm_link *l);

#endif
