/* lane.h - what moves: parts of requests, in order, over the lanes to and from each peer.
 *
 * Every operation becomes parts, one per peer and direction.  Parts of one direction run in the
 * order in which they were started; all progress is made inside the calls of this rank.  A
 * message is a frame: head {magic, kind, sequence, size, epoch, start, CRC}, payload, CRC-32C of
 * the payload.  All functions are called by the rank's own thread. */
#ifndef TSR_COMM_LOCAL_LANE_H
#define TSR_COMM_LOCAL_LANE_H

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
struct lane {
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
    struct lane           *in, *out; /* [ranks] */
    struct lane            lanes[];
};

/* Wakes rank `rank` if it sleeps. */
void local_ring_bell(struct local *s, uint32_t rank);

/* The next part of r, which has room for it, at the end of its lane.  buf stays the caller's until the
 * part is done. */
void local_add_part(struct local *s, struct request *r, bool out, uint32_t peer, uint16_t kind,
                    const void *buf, uint64_t bytes);

/* Moves what can be moved of one lane, and of all.  A part that failed says so in its request. */
void local_pump_lane(struct local *s, struct lane *l);
void local_pump(struct local *s);

struct lane *local_lane_of(struct local *s, const struct part *p);

/* Takes a request out of its lanes and gives its memory back.  One that had begun breaks them: the
 * peers would disagree about what comes next. */
void local_release_request(struct local *s, struct request *r);

#endif
