/* runtime/crew_internal.h - what the files of the crew share. */
#ifndef TSR_RUNTIME_CREW_INTERNAL_H
#define TSR_RUNTIME_CREW_INTERNAL_H

#include "runtime/crew.h"
#include "runtime/rank.h"

#include <sys/types.h>

/* A micro-batch whose logits are awaited. */
struct tsr_piece {
    bool      used;
    uint32_t  lane, wanted;
    uint32_t *row; /* [wanted]: rows of the lane's logits; owned */
};

struct tsr_lane {
    float     *logits; /* the caller's */
    uint32_t   open;   /* pieces without a result */
    tsr_status status;
    char       text[TSR_FRAME_TEXT];
};

/* A rank, as the coordinator sees it. */
struct tsr_member {
    struct tsr_crew *crew;
    uint32_t         rank;
    pid_t            pid; /* 0: a thread */
    pthread_t        thread;
    bool             started, gone; /* gone: waited for or joined */
    int              exit;          /* of waitpid() */
};

/* The coordinator's end of an edge, with a thread that serves it. */
struct tsr_feeder {
    struct tsr_crew    *crew;
    struct tsr_edge_end end;
    struct tsr_queue    queue; /* to another replica */
    bool                sends, started, made;
    uint32_t            replica;
    pthread_t           thread;
};

struct tsr_crew {
    struct tsr_crew_plan    plan;
    struct tsr_crew_options opt;
    uint32_t                ranks;
    struct tsr_edge        *edges;
    struct tsr_member      *member;
    struct tsr_feeder      *feeder; /* [n_feeders] */
    uint32_t                n_feeders;
    struct tsr_queue        work; /* of rank 0 */
    pthread_mutex_t         loading;
    struct tsr_rank_hooks   hooks;
    struct tsr_rank_handle  handle; /* of the rank of this process */
    bool                    stopped;
    _Atomic uint64_t checked_ns, anew_ns; /* the last look, and from when ranks may stand still */
    /* pass.c; lock guards lanes and pieces */
    pthread_mutex_t   lock;
    pthread_cond_t    changed;
    struct tsr_lane  *lanes;
    uint32_t          n_lanes;
    struct tsr_piece *pieces;
    uint32_t          n_pieces;
    uint64_t         *length; /* [slots] tokens fed */
    bool             *empty;  /* [slots] to be emptied with the next micro-batch of the lane */
    uint64_t         *number; /* [replicas] */
};

/* pass.c */
tsr_status tsr_crew_lanes(struct tsr_crew *c, struct tsr_err *err);
void       tsr_crew_lanes_free(struct tsr_crew *c);
void       tsr_crew_deliver(void *ctx, struct tsr_portion *b);
/* crew_mpi.c: transports of all links and groups. */
tsr_status tsr_crew_mpi(struct tsr_crew *c, struct tsr_err *err);
/* crew_links.c: all links and groups; the threads at this process's ends; the queue of a replica's first
 * stage. */
tsr_status        tsr_crew_links(struct tsr_crew *c, struct tsr_registry *r, struct tsr_err *err);
tsr_status        tsr_crew_feed(struct tsr_crew *c, struct tsr_err *err);
struct tsr_queue *tsr_crew_entry(struct tsr_crew *c, uint32_t replica);
/* crew.c: what is wrong with the ranks, TSR_OK: nothing. */
tsr_status tsr_crew_check(struct tsr_crew *c, struct tsr_err *err);

#endif
