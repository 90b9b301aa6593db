/* runtime/peers.h - the ranks of a job that an MPI launcher started, each a process, perhaps on another host.
 *
 *   join -> send facts -> meet (all facts are equal) -> attach a page -> work -> leave
 *
 * From join() on, a thread sends heartbeats five times a second: every rank to rank 0, rank 0 to every rank.
 * A heartbeat carries what the rank does, what failed and what it chose. A rank with no heartbeat for `stall`
 * is reported, during loading, computing and waiting alike. The end of a process on the same machine is seen
 * at once (pidfd). The first failure that a rank receives stays.
 *
 * Rank 0 decides and prints; the others send it their messages.
 */
#ifndef TSR_RUNTIME_PEERS_H
#define TSR_RUNTIME_PEERS_H

#include "base/hash.h"
#include "comm/probe.h"
#include "runtime/layout.h"
#include "runtime/page.h"

#define TSR_PEERS_MOST  100u /* one message to each and from each is under way */
#define TSR_PEERS_LINKS 2048u

/* What a rank is about to run; sent uncoded. */
struct tsr_runtime_peer_facts {
    char     version[32];
    char     plan[TSR_HASH_TEXT], model[48], plugins[TSR_HASH_TEXT];
    char     links[TSR_PEERS_LINKS]; /* of rank 0: earlier choices of `auto`, JSON; "" */
    uint64_t requests, context;      /* rank 0's hold */
    uint64_t stall_us; /* of rank 0 too: heartbeat timeout, if longer than at the join */
    uint64_t epoch;    /* so does this one, of the group that follows; not 0 */
};

struct tsr_runtime_peers;

/* Joins the processes that the launcher started, once in a process.  MPI waits for all of them to come
 * this far; after 120 s without them the process ends (join.h).  stall_us: without a beat; 0: 5 s.  [setup] */
tsr_status tsr_runtime_peers_join(struct tsr_runtime_peers **m, struct tsr_registry *r,
                                  uint32_t rank, uint32_t ranks, uint64_t stall_us,
                                  struct tsr_err *err);
/* Announces to the peers that this rank is done: st and err if it failed and no failure is
 * known yet. Rank 0 waits until the peers have received it (0.5 s); the peers wait for rank 0's answer
 * (`stall`). *said: rank 0 knows the failure and reports it to the user. */
void tsr_runtime_peers_leave(struct tsr_runtime_peers *m, tsr_status st, const struct tsr_err *err,
                             bool *said);
/* NULL is fine.  false: a call of MPI has not returned for twice `stall`; its memory is left to it, and the
 * process must end without another one. */
bool tsr_runtime_peers_destroy(struct tsr_runtime_peers *m);

uint32_t    tsr_runtime_peers_rank(const struct tsr_runtime_peers *m);
uint32_t    tsr_runtime_peers_ranks(const struct tsr_runtime_peers *m);
const char *tsr_runtime_peers_host(const struct tsr_runtime_peers *m, uint32_t rank);
/* Number of ranks on the machine of this rank, and whether a given rank is there. */
uint32_t tsr_runtime_peers_here(const struct tsr_runtime_peers *m);
bool     tsr_runtime_peers_is_here(const struct tsr_runtime_peers *m, uint32_t rank);

/* Publishes to the peers what this rank is about to run; facts are copied. */
void tsr_runtime_peers_tell(struct tsr_runtime_peers            *m,
                            const struct tsr_runtime_peer_facts *facts);
/* Waits for the facts of rank 0, which waits for those of all; a rank that uses no processor time for
 * `stall` meanwhile is reported. Adopts rank 0's time limits, and compares: TSR_E_INPUT names the host
 * whose plan, model, plugins or version differ, or gives the failure of a rank. TSR_E_CANCELLED: rank 0
 * has ended. zero: rank 0's facts. */
tsr_status tsr_runtime_peers_meet(struct tsr_runtime_peers *m, struct tsr_runtime_peer_facts *zero,
                                  struct tsr_err *err);

/* From now on beats, failures, choices and numbers go between the pages of all ranks; both outlive the
 * next detach. */
void tsr_runtime_peers_attach(struct tsr_runtime_peers *m, struct tsr_runtime_page *page,
                              const struct tsr_runtime_layout *layout);
void tsr_runtime_peers_detach(struct tsr_runtime_peers *m);
/* Rank 0 has let the others end. */
bool tsr_runtime_peers_over(const struct tsr_runtime_peers *m);
/* This rank's work is done, and its numbers are final. Rank 0: waits for this call of all ranks. */
tsr_status tsr_runtime_peers_done(struct tsr_runtime_peers *m, struct tsr_err *err);
/* The first failure, "rank 2 on host b: ..."; TSR_OK: none. Waits up to wait_us for it. */
tsr_status tsr_runtime_peers_failure(struct tsr_runtime_peers *m, uint64_t wait_us,
                                     struct tsr_err *err);

#endif
