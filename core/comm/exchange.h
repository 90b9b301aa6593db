/* comm/exchange.h - one step of a sum on its way: blocks to and from every other rank. */
#ifndef TSR_COMM_EXCHANGE_H
#define TSR_COMM_EXCHANGE_H

#include "comm/world.h"

#include <stdbool.h>

/* A block: `bytes` at buffer + at. */
struct tsr_comm_block {
    uint64_t at, bytes;
};

struct tsr_comm_request {
    void *handle; /* the transport's; NULL: done */
};

struct tsr_comm_exchange {
    struct tsr_comm_request *request; /* [2 * ranks] */
    uint32_t                 n;
};

/* Shared by all exchanges of one rank. */
struct tsr_comm_traffic {
    const struct tsr_comm_port *port;
    uint32_t                    rank, ranks;
    uint64_t                    deadline_us;
    struct tsr_comm_exchange   *all; /* those that may be under way */
    uint32_t                    n_all;
    /* A sum on a device: buffers are its addresses, and operations are on this stream when start returns,
     * in the same order on all ranks; NULL: the host's */
    void                                 *stream;
    const struct tsr_transport_device_v1 *device;
};

/* Starts it: block out[i] of send goes to rank i, in[i] of recv comes from rank i, the own block is
 * copied, except on a device. to_all: all out[] are the same block. Blocks of equal size travel as a
 * collective of the transport, others as messages. Empty blocks are not sent. */
tsr_status tsr_comm_exchange_start(struct tsr_comm_traffic *t, struct tsr_comm_exchange *e,
                                   bool to_all, const unsigned char *send,
                                   const struct tsr_comm_block *out, unsigned char *recv,
                                   const struct tsr_comm_block *in, struct tsr_err *err);
/* Waits for all of it. */
tsr_status tsr_comm_exchange_end(struct tsr_comm_traffic *t, struct tsr_comm_exchange *e,
                                 struct tsr_err *err);

#endif
