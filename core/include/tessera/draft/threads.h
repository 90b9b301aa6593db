/* tessera/draft/threads.h - how many threads parallel_for() of tessera/host.h has, for plugins whose items must wait for
 * each other or should be few.  Draft: an optional service of the host, "tessera.threads/1"; it may change until it
 * leaves this folder.
 *
 * Example: a quarter of a thread's share of n items.
 *
 *     static uint64_t quarter(const struct tsr_host *h, uint64_t n)
 *     {
 *         const struct tsr_threads_v1 *t = h->service(h->ctx, TSR_THREADS);
 *         return n / (4 * (t ? t->count(h->ctx) : 1));
 *     }
 */
#ifndef TSR_DRAFT_THREADS_H
#define TSR_DRAFT_THREADS_H

#include "tessera/host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_THREADS "tessera.threads/1"

struct tsr_threads_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* At least 1, with the caller's.  ctx is the host's.  It may change between two calls of the plugin.  [worker] */
    uint32_t (*count)(void *ctx);
};

#ifdef __cplusplus
}
#endif
#endif
