/* runtime/mates.h - the ranks of a job that an MPI launcher started, each a process of its own, perhaps
 * on another host.
 *
 *   join -> tell facts -> meet (all facts are the same) -> attach a page -> work -> leave
 *
 * From join() on a thread of its own beats: rank 0 hears every rank, every rank hears rank 0, five
 * times a second, with what each does, what failed, what it chose.  Who is not heard for `stall` is
 * named, whatever else goes on: loading, computing, waiting.  A process of the same machine that ends is
 * seen at once (pidfd).  The first failure that a rank hears of stays.
 *
 * Rank 0 judges and speaks; what the others have to say goes to it.
 */
#ifndef TSR_RUNTIME_MATES_H
#define TSR_RUNTIME_MATES_H

#include "base/hash.h"
#include "comm/probe.h"
#include "runtime/layout.h"
#include "runtime/page.h"

#define TSR_MATES_MOST  100u /* one message to each and from each is under way */
#define TSR_MATES_LINKS 2048u

/* What a rank is about to run; travels as it is. */
struct tsr_mate_facts {
    char     version[32];
    char     plan[TSR_HASH_TEXT], model[48], plugins[TSR_HASH_TEXT];
    char     links[TSR_MATES_LINKS]; /* of rank 0: what `auto` became before, JSON; "" */
    uint64_t requests, context;      /* rank 0's hold */
    uint64_t stall_us; /* likewise: without a beat, where that is longer than at the join */
    uint64_t epoch;    /* so does this one, of the group that follows; not 0 */
};

struct tsr_mates;

/* Joins the processes that the launcher started, once in a process.  MPI waits for all of them to come
 * this far; after 120 s without them the process ends (join.h).  stall_us: without a beat; 0: 5 s.  [setup] */
tsr_status tsr_mates_join(struct tsr_mates **m, struct tsr_registry *r, uint32_t rank,
                          uint32_t ranks, uint64_t stall_us, struct tsr_err *err);
/* Says to the others that this rank is through: st and text of err where it failed and nobody knows yet.
 * Rank 0 waits until they have heard it (0.5 s), they for its word (`stall`).  *said: the failure is known to rank 0,
 * which tells the user. */
void tsr_mates_leave(struct tsr_mates *m, tsr_status st, const char *text, bool *said);
void tsr_mates_destroy(struct tsr_mates *m); /* NULL is fine */

uint32_t    tsr_mates_rank(const struct tsr_mates *m);
uint32_t    tsr_mates_ranks(const struct tsr_mates *m);
const char *tsr_mates_host(const struct tsr_mates *m, uint32_t rank);
/* Ranks on this one's machine, and whether one is there. */
uint32_t tsr_mates_here(const struct tsr_mates *m);
bool     tsr_mates_is_here(const struct tsr_mates *m, uint32_t rank);

/* Puts what this rank is about to run where the others see it; facts are copied. */
void tsr_mates_tell(struct tsr_mates *m, const struct tsr_mate_facts *facts);
/* Waits for the facts of rank 0, which waits for those of all (a rank that takes no processor time for
 * `stall` meanwhile is named), takes its patience over, and compares: TSR_E_INPUT naming the host
 * whose plan, model, plugins or version differ, or what went wrong on one of them.  TSR_E_CANCELLED: rank 0
 * has ended.  zero: rank 0's facts. */
tsr_status tsr_mates_meet(struct tsr_mates *m, struct tsr_mate_facts *zero, struct tsr_err *err);

/* From now on beats, failures, choices and numbers go between the pages of all ranks; both outlive the
 * next detach. */
void tsr_mates_attach(struct tsr_mates *m, struct tsr_page *page, const struct tsr_layout *layout);
void tsr_mates_detach(struct tsr_mates *m);
/* Rank 0 has let the others end. */
bool tsr_mates_over(const struct tsr_mates *m);
/* This rank's work is done, and its numbers are final.  Rank 0: waits until all have said so. */
tsr_status tsr_mates_done(struct tsr_mates *m, struct tsr_err *err);
/* What went wrong first, "rank 2 on host b: ..."; TSR_OK: nothing.  Waits up to wait_us for it. */
tsr_status tsr_mates_failure(struct tsr_mates *m, uint64_t wait_us, struct tsr_err *err);

#endif
