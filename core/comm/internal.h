/* comm/internal.h - declarations shared by the files of a group. */
#ifndef TSR_COMM_INTERNAL_H
#define TSR_COMM_INTERNAL_H

#include "comm/exchange.h"
#include "comm/group.h"
#include "comm/window.h"

/* A piece is started, TSR_COMM_MIDDLE pieces later its first hop must have come, TSR_COMM_FINISH later the second;
 * all-gather has one hop and finishes after TSR_COMM_FINISH. */
#define TSR_COMM_MIDDLE 2u
#define TSR_COMM_FINISH 4u
#define TSR_COMM_SLOTS  (TSR_COMM_FINISH + 1u)

struct tsr_comm_slot {
    struct tsr_comm_exchange hop[2];
    unsigned char           *send[2], *recv[2];
};

/* Blocks of a piece, the same for all pieces but the last. */
struct tsr_comm_piece {
    uint64_t               rows;
    struct tsr_comm_block *mine[2], *theirs[2]; /* [ranks] each: sent, received */
    uint64_t               send_bytes[2], recv_bytes[2];
    uint64_t               widest; /* columns of the widest slice */
};

struct tsr_comm_group {
    struct tsr_comm_port     port;
    struct tsr_comm_traffic  traffic;
    struct tsr_comm_coder    coder[TSR_COMM_PHASES];
    struct tsr_comm_counters counters;
    bool                     failed;
    void (*beat)(void *ctx); /* of the options */
    void                    *ctx;
    struct tsr_comm_way      way[TSR_COMM_PHASES];   /* as requested; the texts are owned */
    char                    *codec[TSR_COMM_PHASES]; /* those texts; NULL: "plain" */
    bool                     open[TSR_COMM_PHASES];  /* coder[] is; false: auto, not tuned yet */
    struct tsr_registry     *registry;
    uint32_t                 rank, ranks;
    struct tsr_comm_slot     slot[TSR_COMM_SLOTS];
    struct tsr_comm_exchange exchange[2 * TSR_COMM_SLOTS];
    struct tsr_comm_request *requests; /* of all exchanges */
    struct tsr_comm_block   *blocks;   /* of both plans */
    struct tsr_comm_piece    whole, last;
    unsigned char           *room; /* codes of all slots */
    uint64_t                 room_bytes;
    float                   *floats; /* a slice, and the levels of the tree */
    uint64_t                 n_floats;
    struct tsr_comm_device  *device; /* comm/device.h; NULL until the first device sum */
    struct tsr_comm_window   window;
};

/* One sum under way. */
struct tsr_comm_sum {
    struct tsr_comm_group       *g;
    const struct tsr_comm_coder *c;
    uint32_t                     site;
    float                       *x;      /* in the host's memory, or */
    const struct tsr_tensor     *tensor; /* on the group's device */
    uint64_t                     rows, cols, each, pieces;
};

/* The steps of a piece: code and send; add the received, code and send again (two-step); add or take the
 * rest. */
struct tsr_comm_steps {
    tsr_status (*begin)(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err);
    tsr_status (*middle)(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err);
    tsr_status (*finish)(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err);
};

/* Fills each and pieces, and the group's plans. */
tsr_status tsr_comm_sum_plan(struct tsr_comm_sum *s, struct tsr_err *err);
/* All steps. Every rank starts the same exchanges in the same order, whatever the timing and wherever its
 * numbers are. */
tsr_status tsr_comm_sum_run(const struct tsr_comm_sum *s, const struct tsr_comm_steps *f,
                            struct tsr_err *err);

/* Room that the plans take: send and receive of both hops in a slot, 64 bytes aligned; a slot; all
 * slots; floats of a slice and the levels of the tree. */
struct tsr_comm_room {
    uint64_t part[4], one, all, floats;
};
tsr_status tsr_comm_sum_room(const struct tsr_comm_group *g, struct tsr_comm_room *room,
                             struct tsr_err *err);

const struct tsr_comm_piece *tsr_comm_sum_piece(const struct tsr_comm_sum *s, uint64_t piece);
struct tsr_comm_exchange    *tsr_comm_sum_hop(const struct tsr_comm_sum *s, uint64_t piece,
                                              uint32_t hop);
struct tsr_comm_message      tsr_comm_sum_message(const struct tsr_comm_sum   *s,
                                                  const struct tsr_comm_piece *p, uint32_t hop,
                                                  uint32_t slice, uint64_t bytes);
/* Starts a hop of a piece; its bytes are counted. */
tsr_status tsr_comm_sum_start(const struct tsr_comm_sum *s, uint64_t piece, uint32_t hop,
                              bool to_all, const void *send, void *recv, struct tsr_err *err);

/* The sum itself, by a coder that is open; a failure leaves the group half way. */
tsr_status tsr_comm_group_run(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                              uint32_t site, float *x, uint64_t rows, uint64_t cols,
                              struct tsr_err *err);

#endif
