/* tessera/threads.h - threads: how many of them parallel_for() of tessera/host.h has, for plugins that choose the number of
 * items of a loop.  An optional service of the host; its id is "tessera.threads/1".
 *
 * Example: a quarter of a thread's share of n items.
 *
 *     static uint64_t quarter(const struct tsr_host *h, uint64_t n)
 *     {
 *         const struct tsr_threads_v1 *t = h->service(h->ctx, TSR_THREADS);
 *         return n / (4 * (t ? t->count(h->ctx) : 1));
 *     }
 */
#ifndef TSR_THREADS_H
#define TSR_THREADS_H

#include "tessera/host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_THREADS "tessera.threads/1"

struct tsr_threads_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* At least 1, with the caller's.  ctx is the host's.  It may change between two calls of the plugin, so that
     * results must not depend on it.  [worker] */
    uint32_t (*count)(void *ctx);
};

#ifdef __cplusplus
}
#endif
#endif
