/* runtime/peers_internal.h - declarations shared by the files of the peers. */
#ifndef TSR_RUNTIME_PEERS_INTERNAL_H
#define TSR_RUNTIME_PEERS_INTERNAL_H

#include "runtime/peers.h"

#include <pthread.h>

#define TSR_PEERS_NUMBERS (sizeof(struct tsr_runtime_rank_numbers) / sizeof(uint64_t))

/* Identity of a rank; exchanged once. */
struct tsr_runtime_peer_name {
    char    host[TSR_COMM_HOST], machine[96]; /* boot and process namespace */
    int32_t pid;
};

struct tsr_runtime_peer_choice {
    uint32_t fixed, algorithm;
    char     codec[TSR_CHOICE_TEXT];
};

struct tsr_runtime_peer_message {
    uint32_t            magic, flags;
    uint32_t            op, site;
    uint64_t            beats, step;
    uint32_t            failed_rank;
    struct tsr_err_sent why;
    uint64_t            numbers[TSR_PEERS_NUMBERS];
    struct tsr_runtime_peer_choice
        choice[TSR_PLAN_PHASES]; /* of the stage of the rank that is not 0 */
    struct tsr_runtime_peer_facts facts;
};

/* The other end of a conversation. */
struct tsr_runtime_peer {
    struct tsr_runtime_peer_message in, out;
    void                           *rx, *tx;
    uint64_t                        heard_us, sent_us, said; /* said: the last state sent */
    uint64_t active_us; /* its job's thread took processor time, before it has a page */
    bool     silent, has_facts, done;
};

struct tsr_runtime_peers {
    struct tsr_comm_port          port;
    uint32_t                      rank, ranks;
    uint64_t                      stall_us;
    struct tsr_runtime_peer_name *name; /* [ranks] */
    char (*host)[TSR_COMM_HOST];
    int                     *pidfd; /* [ranks]; -1: on another machine, or ended */
    struct tsr_runtime_peer *peer;  /* [ranks]; of rank 0 all others, else rank 0 */
    pthread_t                thread;
    bool                     started;
    pthread_mutex_t          lock; /* of all below */
    pthread_cond_t           news;
    int32_t  clock; /* processor time of the thread that joined, which works on the job */
    uint64_t state; /* grows with everything that the others should hear at once */
    struct tsr_runtime_page         *page;
    const struct tsr_runtime_layout *layout;
    struct tsr_runtime_peer_facts    facts;
    bool                             told, done, over, stop, failed, ready;
    uint32_t                         failed_rank;
    struct tsr_err_sent              why;
};

/* Whether this rank and r hear each other: rank 0 and all others. */
static inline bool tsr_peers_speak(const struct tsr_runtime_peers *m, uint32_t r)
{
    return r != m->rank && (m->rank == 0 || r == 0);
}

/* peers.c: waits for news, or a moment. [lock] */
void tsr_runtime_peers_wait_news(struct tsr_runtime_peers *m);
/* The failure that was noted, with its rank and host; TSR_OK: none. [lock] */
tsr_status tsr_runtime_peers_failed(const struct tsr_runtime_peers *m, struct tsr_err *err);
/* peers_beat.c: the thread that beats, arg the peers, until `stop`; it ends the transport. */
void *tsr_runtime_peers_beat(void *arg);
/* Reads the page of this process. [lock] */
void tsr_runtime_peers_look(struct tsr_runtime_peers *m);
/* The first failure stays.  [lock] */
void tsr_runtime_peers_note(struct tsr_runtime_peers *m, uint32_t rank,
                            const struct tsr_err_sent *why);
/* The same for a rank that is lost: TSR_E_DEVICE. [lock] */
void tsr_runtime_peers_lost(struct tsr_runtime_peers *m, uint32_t rank, const char *text);

#endif
