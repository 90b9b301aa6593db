/* runtime/group_internal.h - declarations shared by the files of the group. */
#ifndef TSR_RUNTIME_GROUP_INTERNAL_H
#define TSR_RUNTIME_GROUP_INTERNAL_H

#include "runtime/group.h"
#include "runtime/rank.h"

#include <sys/types.h>

/* A micro-batch whose logits are awaited. */
struct tsr_runtime_piece {
    bool      used;
    uint32_t  slot_set, wanted;
    uint32_t *row; /* [wanted]: rows of the slot set's logits; owned */
};

struct tsr_runtime_slot_set {
    float              *logits; /* the caller's */
    uint32_t            open;   /* pieces without a result */
    tsr_status          status;
    struct tsr_err_sent why; /* if it is not TSR_OK */
};

/* A rank, as the coordinator sees it. */
struct tsr_runtime_member {
    struct tsr_runtime_group *group;
    uint32_t                  rank;
    pid_t                     pid; /* 0: a thread */
    pthread_t                 thread;
    bool                      started, gone; /* gone: waited for or joined */
    int                       exit;          /* of waitpid() */
    _Atomic uint32_t          returned;      /* of a thread: it can be joined */
    /* processor time and beats at the last check, what was added to the beats for it; when it used time,
     * and when the rank itself last beat */
    uint64_t spent, beats, touches, spent_ns, beat_ns;
};

/* The coordinator's end of an edge, with its thread. */
struct tsr_runtime_feeder {
    struct tsr_runtime_group   *group;
    struct tsr_runtime_edge_end end;
    struct tsr_runtime_queue    queue; /* to another replica */
    bool                        sends, started, made;
    _Atomic uint32_t            returned; /* its thread can be joined */
    uint32_t                    replica;
    pthread_t                   thread;
};

struct tsr_runtime_group {
    struct tsr_runtime_group_plan    plan;
    struct tsr_runtime_group_options opt;
    uint32_t                         ranks;
    struct tsr_runtime_edge         *edges;
    struct tsr_runtime_member       *member;
    struct tsr_runtime_feeder       *feeder; /* [n_feeders] */
    uint32_t                         n_feeders;
    struct tsr_runtime_queue         work; /* of rank 0 */
    pthread_mutex_t                  loading;
    struct tsr_runtime_rank_hooks    hooks;
    struct tsr_runtime_rank_handle   handle; /* of the rank of this process */
    bool                             stopped;
    _Atomic uint64_t checked_ns, anew_ns; /* the last check, and the start of the stall timeout */
    _Atomic uint64_t work_sum, work_ns;   /* the completed and moved work, and when that changed */
    uint64_t         sampled_ns, beats;   /* beats: of all ranks, as passed on to the supervisor */
    /* group_slots.c; lock guards slot sets and pieces */
    pthread_mutex_t              lock;
    pthread_cond_t               changed;
    struct tsr_runtime_slot_set *slot_sets;
    uint32_t                     n_slot_sets;
    struct tsr_runtime_piece    *pieces;
    uint32_t                     n_pieces;
    uint64_t                    *length; /* [slots] tokens already sent */
    bool     *empty;  /* [slots] to be cut to `keep` with the next micro-batch of the slot set */
    uint32_t *keep;   /* [slots] positions; 0: to be emptied */
    uint64_t *number; /* [replicas] */
};

/* group_slots.c */
tsr_status tsr_runtime_group_slot_sets(struct tsr_runtime_group *c, struct tsr_err *err);
void       tsr_runtime_group_slot_sets_free(struct tsr_runtime_group *c);
void       tsr_runtime_group_deliver(void *ctx, struct tsr_runtime_micro_batch *b);
/* A free place; the lock is held. */
tsr_status tsr_runtime_group_new_piece(struct tsr_runtime_group *c, uint32_t slot_set,
                                       uint32_t wanted, uint32_t *at, struct tsr_err *err);
/* group_mpi.c: transports of all links and groups. */
tsr_status tsr_runtime_group_mpi(struct tsr_runtime_group *c, struct tsr_err *err);
/* group_links.c: all links and groups; the threads at this process's ends; the queue of a replica's first
 * stage. */
tsr_status tsr_runtime_group_links(struct tsr_runtime_group *c, struct tsr_registry *r,
                                   struct tsr_err *err);
tsr_status tsr_runtime_group_feed(struct tsr_runtime_group *c, struct tsr_err *err);
struct tsr_runtime_queue *tsr_runtime_group_entry(struct tsr_runtime_group *c, uint32_t replica);

/* group_watch.c */
static inline uint64_t tsr_group_stall_ns(const struct tsr_runtime_group *c)
{
    return 1000 * c->opt.stall_us;
}
/* The failure of the ranks; TSR_OK: none. */
tsr_status tsr_runtime_group_check(struct tsr_runtime_group *c, struct tsr_err *err);
/* The same while waiting for work that was sent at handed_ns. */
tsr_status tsr_runtime_group_check_work(struct tsr_runtime_group *c, uint64_t handed_ns,
                                        struct tsr_err *err);
/* Until all ranks have loaded. */
tsr_status tsr_runtime_group_wait_ready(struct tsr_runtime_group *c, struct tsr_err *err);
/* Looks at the clocks of the ranks of this machine that may take long for a step. */
void tsr_runtime_group_sample(struct tsr_runtime_group *c);
/* Ended processes are noted. */
void tsr_runtime_group_look_after(struct tsr_runtime_group *c);
/* Tells of a rank: an event of this kind. */
void tsr_runtime_group_say(const struct tsr_runtime_group *c, uint32_t rank, const char *kind,
                           const char *text);
/* The first failure of the group. */
void tsr_runtime_group_fail(struct tsr_runtime_group *c, uint32_t rank, const char *text);
void tsr_runtime_group_nap(void);
/* Sends a heartbeat to the supervisor when a rank has progressed: a waiting caller alone is not progress. */
void tsr_runtime_group_beat(struct tsr_runtime_group *c);

/* group_late.c: whether a rank that was ordered to end at ended_ns has since made no progress for too long. */
bool tsr_runtime_group_late(const struct tsr_runtime_group *c, uint32_t rank, uint64_t ended_ns);
/* Ends this process: a thread of it, that of a rank, does not return. */
_Noreturn void tsr_runtime_group_give_up(const struct tsr_runtime_group *c, uint32_t rank);

#endif
