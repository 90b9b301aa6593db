/* base/pool.h - the host's threads.  One pool per process; the caller of
 * tsr_pool_for() works too, so a pool of 1 starts no thread. */
#ifndef TSR_BASE_POOL_H
#define TSR_BASE_POOL_H

#include "base/err.h"

#include <stdbool.h>

struct tsr_pool;

/* threads: 1..256; 0 means the CPUs that this process may use.  [setup] */
tsr_status tsr_pool_create(struct tsr_pool **pool, unsigned threads, struct tsr_err *err);
void       tsr_pool_destroy(struct tsr_pool *pool);
/* In a process that fork() made, whose threads are not there: starts as many as it had, or as can be had. */
void tsr_pool_revive(struct tsr_pool *pool);
/* Another number of threads, as for create; between loops.  After an error the pool has as many as could be
 * started.  NULL: nothing.  [setup] */
tsr_status tsr_pool_resize(struct tsr_pool *pool, unsigned threads, struct tsr_err *err);
unsigned   tsr_pool_threads(const struct tsr_pool *pool);

/* Runs body over [0,n) in chunks [i*grain, min(n,(i+1)*grain)); returns when all are
 * done.  Which thread takes a chunk is open; the chunks are not.  The first failure
 * stops chunks not yet begun and is returned.  A call from inside a body runs on the
 * calling thread alone.  A NULL pool runs everything on the caller.  [any] */
tsr_status tsr_pool_for(struct tsr_pool *pool, uint64_t n, uint64_t grain,
                        tsr_status (*body)(void *arg, uint64_t begin, uint64_t end), void *arg);

/* While on, the calling thread runs its loops itself: for background work whose caller needs the
 * workers.  [any] */
void tsr_pool_set_serial(bool on);

#endif
