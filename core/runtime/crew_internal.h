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
    _Atomic uint32_t returned;      /* of a thread: it can be joined */
    /* processor time and beats as seen last, what was added to the beats for it; when it took time, and when
     * the rank itself beat last */
    uint64_t spent, beats, touches, spent_ns, beat_ns;
};

/* The coordinator's end of an edge, with a thread that serves it. */
struct tsr_feeder {
    struct tsr_crew    *crew;
    struct tsr_edge_end end;
    struct tsr_queue    queue; /* to another replica */
    bool                sends, started, made;
    _Atomic uint32_t    returned; /* its thread can be joined */
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
    _Atomic uint64_t work_sum, work_ns;   /* what was done and moved, and when that changed */
    uint64_t         sampled_ns, beats;   /* beats: of all ranks, as passed on to the supervisor */
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

/* crew_watch.c */
static inline uint64_t tsr_crew_stall_ns(const struct tsr_crew *c)
{
    return 1000 * c->opt.stall_us;
}
/* What is wrong with the ranks, TSR_OK: nothing. */
tsr_status tsr_crew_check(struct tsr_crew *c, struct tsr_err *err);
/* Likewise while work that was handed out at handed_ns is awaited. */
tsr_status tsr_crew_check_work(struct tsr_crew *c, uint64_t handed_ns, struct tsr_err *err);
/* Until all ranks have loaded. */
tsr_status tsr_crew_wait_ready(struct tsr_crew *c, struct tsr_err *err);
/* Looks at the clocks of the ranks of this machine that may take long for a step. */
void tsr_crew_sample(struct tsr_crew *c);
/* Ended processes are noted. */
void tsr_crew_look_after(struct tsr_crew *c);
/* The first failure of the group. */
void tsr_crew_fail(struct tsr_crew *c, uint32_t rank, const char *text);
void tsr_crew_nap(void);
/* Beats for the supervisor where a rank has: that somebody waits for them is no progress. */
void tsr_crew_beat(struct tsr_crew *c);

/* crew_end.c: a rank that was told to end at told_ns takes longer than any may. */
bool tsr_crew_late(const struct tsr_crew *c, uint32_t rank, uint64_t told_ns);
/* Ends this process: a thread of it, that of a rank, does not return. */
_Noreturn void tsr_crew_give_up(const struct tsr_crew *c, uint32_t rank);

#endif
