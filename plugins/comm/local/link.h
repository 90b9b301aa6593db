/* link.h - transfers: parts of requests, in order, over the links to and from each peer.
 *
 * Every operation becomes parts, one per peer and direction. Parts of one direction run in start order;
 * all progress happens inside the calls of this rank. A message is a frame: head {magic, kind, sequence,
 * size, epoch, start, CRC}, payload, CRC-32C of the payload. Only the rank's own thread calls these
 * functions. */
#ifndef TSR_COMM_LOCAL_LINK_H
#define TSR_COMM_LOCAL_LINK_H

#include "frame.h"
#include "pace.h"
#include "ring.h"
#include "tessera/transport.h"

struct request;

struct part {
    struct part    *next; /* in its direction's queue */
    struct request *owner;
    uint32_t        peer;
    uint16_t        kind;
    bool            out, done, summed; /* summed: crc is that of the payload from the start */
    bool            begun; /* outgoing: has its head, and if paced its time on the wire */
    unsigned char  *buf;
    uint64_t        bytes, at; /* at: of head, payload and CRC together */
    uint64_t        start;     /* paced, incoming: from the head */
    uint32_t        crc;
    unsigned char   head[sizeof(struct frame)], tail[4];
};

struct request {
    struct request *prev, *next;
    uint64_t        bytes;   /* of this allocation */
    uint32_t        n, open; /* parts, and those not done */
    tsr_status      status;
    char            why[256];
    struct part     part[];
};

/* One direction to or from one peer. */
struct link {
    struct local_ring *ring;
    struct part       *first, *last;
    uint64_t           at, sequence;
    uint64_t           wire_free; /* paced by pair, outgoing */
    bool               broken;
};

struct local {
    const struct tsr_host *host;
    struct local_world    *world;
    uint32_t               rank, ranks;
    uint64_t               capacity, bytes, epoch;
    uint64_t               sent, received, refused; /* payload bytes, and frames */
    struct request        *requests;
    uint32_t               n_requests;
    struct local_pace      pace;
    uint64_t               wire_free; /* paced by rank */
    unsigned               crc_level;
    struct link           *in, *out; /* [ranks] */
    struct link            links[];
};

/* Wakes rank `rank` if it sleeps. */
void local_ring_bell(struct local *s, uint32_t rank);

/* The next part of r, which has room for it, at the end of its link.  buf stays the caller's until the
 * part is done. */
void local_add_part(struct local *s, struct request *r, bool out, uint32_t peer, uint16_t kind,
                    const void *buf, uint64_t bytes);

/* Moves all bytes that can move on one link, and on all. A failed part marks its request. */
void local_pump_link(struct local *s, struct link *l);
void local_pump(struct local *s);

struct link *local_link_of(struct local *s, const struct part *p);

/* Takes a request out of its links and frees its memory. A started request breaks its links: the peers
 * would disagree about the next message. */
void local_release_request(struct local *s, struct request *r);

/* Of the table: whether a request has ended, and waiting until it has (wait.c). */
tsr_status local_test(void *self, void *request, int32_t *done, struct tsr_err *err);
tsr_status local_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err);

#endif
