/* nccl.h - shared by the files of the transport nccl.
 *
 * A communicator of NCCL runs its operations one after the other. A group's ranks must not wait like that: a
 * receive that was started early would block a send to another rank. So each direction between two ranks has
 * a separate communicator of two ranks, and collectives have one of all ranks; each is made on first use.
 * These are links.
 *
 * Nothing blocks: communicators are non-blocking, every call is followed by a query of the state, and
 * events show the completion of work on a stream. One thread at a time enters the instances of a process,
 * and any waiting thread advances all of them. A separate thread aborts or destroys a communicator,
 * because these calls may take long.
 */
#ifndef TSR_NCCL_H
#define TSR_NCCL_H

#include "libs.h"
#include "tessera/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define NC_MAX_RANKS    1024u
#define NC_MAX_REQUESTS 256u /* outstanding; beyond that: "ask again" */
#define NC_PAIR_CTAS    4 /* blocks of a pair's kernel at most: all links fit on a device at once */
#define NC_SIZES        32u /* of operations that others can look up, of a link and rank */
#define NC_KEEP_BYTES   (UINT64_C(4) << 20) /* of a room that is kept for later messages */
/* Rooms that an instance takes when it is made, for each other rank. Messages between stages go in pieces
 * of 128 KiB, and sums have up to ten messages each way under way. */
#define NC_PIECE        (UINT64_C(128) << 10)
#define NC_PIECES       20u
#define NC_SEEN         8u /* ranks that see each other's memory, at most */
#define NC_WINDOW_BYTES ((UINT64_C(1) << 20) + 4096u) /* of each: flags, and twice 512 KiB */
#define NC_FAREWELL_US  500000u                       /* for communicators to end in order */
#define NC_DRAIN_US     2000000u /* for a communicator, and its stream, to end */
#define NC_LEFT_US      200000u  /* for a communicator whose other rank has left */

#define U(x) ((unsigned long long)(x))

/* A sentence on its way to a link. */
struct nc_text {
    struct tsr_err err;
    char           text[224];
};
#define NC_TEXT(name)                                                                              \
    struct nc_text name;                                                                           \
    name.err = (struct tsr_err){ .struct_size = sizeof name.err,                                   \
                                 .cap = sizeof name.text,                                          \
                                 .text = name.text };                                              \
    name.text[0] = '\0'

enum nc_kind { NC_SEND, NC_RECV, NC_GATHER, NC_ALL_TO_ALL };

enum nc_stage {
    NC_WAITS, /* in its link */
    NC_CALLS, /* the calls were made, NCCL is not through with them */
    NC_RUNS,  /* on the stream, its event after it */
    NC_ENDED, /* status has the result */
};

/* Host-side staging memory. The driver frees memory only when the device has finished all its work, and may take it
 * no earlier. A receive on the device finishes when another rank has sent, which may be a rank of this process
 * that waits for the lock. So rooms for the messages of the host are taken when the instance is made, all in two
 * blocks of memory, and others are freed only while no message is under way, and kept until then. */
struct nc_room {
    struct nc_room *next;   /* of the spare ones */
    cu_pointer      device; /* sent bytes, then received bytes */
    uint8_t        *pinned; /* the same bytes */
    uint64_t        bytes;
    bool            part; /* of the instance's two blocks */
};

struct nc_request {
    struct nc_request *next;           /* in its link, or in the list of spare ones */
    struct nc_request *before, *after; /* all of the instance */
    struct nc_link    *link;
    enum nc_kind       kind;
    enum nc_stage      stage;
    const void        *src; /* host memory, or addresses of the device with a stream */
    void              *dst;
    uint64_t           bytes;    /* of a block */
    uint64_t           sequence; /* of all operations of the instance */
    uint64_t           number;   /* position among the requests of its link */
    cu_stream          stream;   /* the caller's, or NULL */
    cu_event           event;
    struct nc_room    *room;   /* empty until first use */
    struct nc_link    *broken; /* that it was on: its end is waited for; or NULL */
    tsr_status         status;
    char               why[320];
};

enum nc_link_stage { NC_IDLE, NC_MEETS, NC_JOINS, NC_UP, NC_BROKEN };

struct nc_ending;
struct nc_link {
    enum nc_link_stage stage;
    uint32_t           from, to; /* of a pair */
    bool               group;
    nc_comm            comm;
    cu_stream          stream;
    bool               calling;      /* NCCL has not ended the last call on comm */
    struct nc_request *first, *last; /* not ended, as they were started */
    uint64_t           called;       /* operations, so far */
    uint64_t           left_us;      /* when the other rank was first seen to have left, or 0 */
    char               why[256];     /* broken */
    /* on its way out (ending.c) */
    bool              settling;
    uint64_t          ending_us; /* since then */
    struct nc_ending *ending;    /* of comm: a thread ends it there; or NULL */
};

/* What travels over the transport `via`. */
struct nc_letter {
    uint32_t magic;
    uint16_t kind, link; /* link: as its sender sees it */
    uint32_t from, zero;
    uint64_t epoch;
    nc_id    id;
};

struct nc_post { /* a letter on its way out */
    struct nc_post  *next;
    void            *request;
    uint32_t         to;
    struct nc_letter letter;
};

/* What this rank knows of another one. */
struct nc_peer {
    struct nc_link   out, in;
    bool             gone, has_id, gave_up_in, gave_up_out; /* by letters */
    nc_id            id;                                    /* of the link from it */
    void            *request;                               /* of the next letter */
    struct nc_letter letter;
};

/* Memory that other ranks' devices see, and its context. */
struct nc_kept {
    cu_device  device;
    cu_context context;
    cu_pointer own;
    void      *state;
};
struct nc_window {
    bool              there; /* own is complete */
    cu_pointer        own, state_address;
    _Atomic uint32_t *state;            /* in pinned memory */
    cu_pointer        address[NC_SEEN]; /* of each rank's */
    cu_pointer        opened[NC_SEEN];  /* those that are another process's */
    struct nc_kept    kept[NC_SEEN];    /* to be freed: of ranks that have left, then the own */
    uint32_t          n_kept;
};

struct nccl {
    const struct tsr_host *host;
    struct nccl           *before, *after; /* instances of the process */
    struct nc_libs         l;
    cu_device              device;
    cu_context             context;
    uint32_t               rank, ranks, n_requests;
    uint64_t               epoch, size, sequence, collectives;
    uint64_t               sent, received, refused;
    struct nc_request     *requests, *spare;
    struct nc_room        *rooms;        /* spare */
    cu_pointer             device_block; /* of rooms that are parts */
    void                  *pinned_block;
    struct nc_link         all;
    struct nc_window       window;
    /* where ranks meet: memory that they share, or another transport */
    struct nc_board               *board;
    const struct tsr_transport_v1 *via;
    void                          *via_self;
    struct nc_post                *posts;
    bool                           has_id, gave_up; /* of the group's link, by letters */
    nc_id                          id;
    _Atomic uint32_t               aborted; /* 1 + the rank that aborted, UINT32_MAX: one of them */
    struct nc_peer                 peer[];
};

uint64_t nc_now_us(void);

/* ---- nccl.c: the instances of this process -------------------------------------------- */

void nc_lock(void);
void nc_unlock(void);
/* One round over all instances.  [under lock] */
void nc_move_all(void);
/* No message of this process is under way on the device.  [under lock] */
bool nc_quiet(cu_context context);
/* TSR_E_CANCELLED once a rank has aborted the group. */
tsr_status nc_cancelled(struct nccl *s, struct tsr_err *err);

struct nccl *nc_instances(void); /* the first [under lock] */

/* ---- device.c ----------------------------------------------------------------------------- */

/* *devices: how many there are. */
tsr_status nc_device_open(struct nccl *s, int64_t index, int *devices, struct tsr_err *err);
/* NCCL works on the device of the thread's current context; the previous context is restored later. */
bool nc_enter(struct nccl *s);
void nc_leave(struct nccl *s);

/* ---- window.c: memory that other devices see --------------------------------------------- */

struct tsr_window;
tsr_status nc_window_open(struct nccl *s, int devices, struct tsr_err *err);
tsr_status nc_window_meet(void *self, int32_t able, uint64_t wait_us, struct tsr_window *w,
                          struct tsr_err *err);
void       nc_window_abort(struct nccl *s); /* from any thread */
void       nc_window_close(struct nccl *s);

/* ---- wait.c ----------------------------------------------------------------------------- */

/* Out of its link, whatever has become of it, with that failure.  [under lock, context entered] */
void       nc_withdraw(struct nccl *s, struct nc_request *r, tsr_status st, const char *why);
tsr_status nc_test(void *self, void *request, int32_t *done, struct tsr_err *err);
tsr_status nc_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err);

/* ---- ending.c ---------------------------------------------------------------------------- */

/* What ending a communicator takes, before there is one; false: no memory. */
bool nc_link_reserve_ending(struct nc_link *l);
/* Ends the link's communicator with that function, in a separate thread; requests on it wait until the end
 * has completed. [context entered] */
void nc_link_end(struct nccl *s, struct nc_link *l, nc_result (*end)(nc_comm));
/* The end is complete, or NC_DRAIN_US have passed since it began, or since no thread was available for it:
 * then its device resources are leaked. [context entered] */
bool nc_link_is_settled(struct nccl *s, struct nc_link *l);
/* A device resource was leaked: from then on nothing is freed on devices, because a free could wait
 * forever. */
bool nc_lost(void);

/* ---- meet.c: ids, aborts, ranks that left ---------------------------------------- */

uint64_t   nc_board_bytes(uint32_t ranks);
tsr_status nc_meet_open(struct nccl *s, const struct tsr_transport_world *w, struct tsr_err *err);
void       nc_meet_close(struct nccl *s);
/* Letters move on. */
void nc_meet_poll(struct nccl *s);
/* Is this rank the one that makes the link's id? */
bool nc_meet_is_host(const struct nccl *s, const struct nc_link *l);
/* Sends the id to the peers of the link. */
tsr_status nc_meet_give(struct nccl *s, const struct nc_link *l, const nc_id *id,
                        struct tsr_err *err);
/* *there: it has come.  TSR_E_DEVICE: it is another epoch's. */
tsr_status nc_meet_take(struct nccl *s, const struct nc_link *l, nc_id *id, bool *there,
                        struct tsr_err *err);
/* This rank has given the link up; has another one? */
void nc_meet_give_up(struct nccl *s, const struct nc_link *l);
bool nc_meet_given_up(const struct nccl *s, const struct nc_link *l);
bool nc_meet_left(const struct nccl *s, uint32_t rank);
/* What a rank says of its window, in this order; NONE also after the others. */
enum { NC_WINDOW_UNSAID, NC_WINDOW_THERE, NC_WINDOW_OPEN, NC_WINDOW_NONE };
struct nc_board_window {
    _Atomic uint32_t stage;
    _Atomic uint32_t open;    /* a bit for each rank of another process whose memory it has open */
    char             bus[20]; /* its device */
    uint32_t         zero;
    uint64_t         address;
    cu_ipc           handle;
    char             why[224]; /* before NONE: the reason; empty: it has no use for one */
};
struct nc_board_window *nc_board_window(const struct nccl *s, uint32_t rank);
/* Collectives that a rank has started, for messages; UINT64_MAX: not known. */
void     nc_meet_count(struct nccl *s);
uint64_t nc_meet_counted(const struct nccl *s, uint32_t rank);
/* Publishes the next operation to the peers of its link, if ranks share memory; false: a peer published a
 * different operation, which NCCL would truncate or let hang. */
bool nc_meet_agree(struct nccl *s, const struct nc_request *r, struct tsr_err *err);
/* abort(), from any thread; 1 + the rank that did it */
void     nc_meet_abort(struct nccl *s);
uint32_t nc_meet_aborted(struct nccl *s);

/* ---- link.c: communicators and their operations ------------------------------------ */

/* Who is on the other side, for messages. */
const char *nc_link_name(const struct nccl *s, const struct nc_link *l, char text[64]);
/* One round over everything of this rank.  [under lock, context entered] */
void nc_links_move(struct nccl *s);
/* Ends the communicator; its operations fail. */
__attribute__((format(printf, 4, 5))) void nc_link_break(struct nccl *s, struct nc_link *l,
                                                         tsr_status st, const char *fmt, ...);
/* Ends all communicators, in order where that goes. */
void nc_links_close(struct nccl *s);

/* ---- request.c ---------------------------------------------------------------------- */

/* NULL with TSR_OK: too many are outstanding. */
tsr_status nc_request_new(struct nccl *s, struct nc_request **out, struct tsr_err *err);
/* Back to the spare ones; it is in no link any more. */
void                                       nc_request_drop(struct nccl *s, struct nc_request *r);
void                                       nc_requests_free(struct nccl *s);
__attribute__((format(printf, 3, 4))) void nc_request_fail(struct nc_request *r, tsr_status st,
                                                           const char *fmt, ...);
/* Makes the calls / takes the result to host memory / both without NCCL, to the rank itself. */
void nc_request_call(struct nccl *s, struct nc_request *r);
void nc_request_record(struct nccl *s, struct nc_request *r);
void nc_request_look(struct nccl *s, struct nc_request *r);
void nc_requests_to_self(struct nccl *s, struct nc_link *out, struct nc_link *in);

tsr_status nc_cuda_fail(const struct nccl *s, cu_result r, const char *what, struct tsr_err *err);

/* ---- room.c: memory of messages -------------------------------------------------------- */

/* Takes the rooms of the instance; close() frees them, and what a failure has left. */
tsr_status nc_rooms_open(struct nccl *s, struct tsr_err *err);
void       nc_rooms_close(struct nccl *s);
/* Room for bytes that are in host memory, on the device and pinned. */
tsr_status nc_request_room(struct nccl *s, struct nc_request *r, uint64_t bytes,
                           struct tsr_err *err);
/* A spare one that has the bytes, or for 0 bytes one without memory; NULL: there is none. */
struct nc_room *nc_room_take_spare(struct nccl *s, uint64_t bytes);
void            nc_room_put_back(struct nccl *s, struct nc_request *r);
/* Frees large and incomplete rooms when that does not wait. */
void nc_rooms_trim(struct nccl *s);

#endif
