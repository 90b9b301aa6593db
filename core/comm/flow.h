/* comm/flow.h - messages of a link, in pieces. Deadlines apply to a piece, so that a message may take any
 * time while its bytes get through.
 *
 *   message |--- piece ---|--- piece ---|--- piece ---|- rest -|    TSR_COMM_PIECE bytes each
 *           moved          up to TSR_COMM_AHEAD started        later
 *
 * Both sides cut a message in the same way; a piece is a message of the transport. Per peer and direction,
 * all pieces of one message start before the next message begins. The number of pieces under way is
 * bounded, so that a slow wire has little queued ahead of other traffic.
 */
#ifndef TSR_COMM_FLOW_H
#define TSR_COMM_FLOW_H

#include "comm/world.h"

#include <stdatomic.h>
#include <stdbool.h>

#define TSR_COMM_PIECE 131072u
#define TSR_COMM_AHEAD 4u

/* One message. Zero it, except for the arguments of tsr_comm_flow_start(). */
struct tsr_comm_flow {
    struct tsr_comm_flow *next; /* started later */
    bool                  out, failed;
    uint32_t              peer;
    unsigned char        *buf;
    uint64_t              bytes, started, moved;
    void                 *piece[TSR_COMM_AHEAD]; /* requests of the transport, a ring */
    uint32_t              first, n;
};

/* All messages of a port.  [worker] */
struct tsr_comm_flows {
    const struct tsr_comm_port *port;
    uint32_t                    rank;
    struct tsr_comm_flow       *under_way; /* in start order */
    uint64_t                    sent;      /* bytes, to other ranks */
    /* of a wait that failed: how long nothing had moved; 0: another failure */
    uint64_t          late_us;
    _Atomic uint64_t *pieces; /* counts completed pieces; or NULL */
};

/* Starts f, or queues it after earlier flows. The port owns buf [bytes] until f has moved or failed. If
 * the status is not TSR_OK, f is not under way. */
tsr_status tsr_comm_flow_start(struct tsr_comm_flows *s, struct tsr_comm_flow *f,
                               struct tsr_err *err);
/* Until f has moved.  TSR_E_DEVICE when no piece got through for deadline_us, with the rank that is late.  A
 * message that failed is not under way any more, and its buffer is the caller's. */
tsr_status tsr_comm_flow_wait(struct tsr_comm_flows *s, struct tsr_comm_flow *f,
                              uint64_t deadline_us, struct tsr_err *err);

#endif
