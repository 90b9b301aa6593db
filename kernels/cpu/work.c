/* work.c - memory for an operation, and loops over the threads. */
#include "backend.h"
#include "tessera/threads.h"

#include <stddef.h>

tsr_status tsr_cpu_scratch(struct tsr_cpu *c, uint64_t bytes, uint8_t **p, struct tsr_err *err)
{
    if (bytes > c->scratch_bytes) {
        const struct tsr_host *host = c->host;
        host->release(host->ctx, c->scratch, c->scratch_bytes);
        c->scratch_bytes = 0;
        c->scratch = bytes <= PTRDIFF_MAX ? host->alloc(host->ctx, bytes, 64) : NULL;
        if (!c->scratch)
            return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for an operation",
                            (unsigned long long)bytes);
        c->scratch_bytes = bytes;
    }
    *p = c->scratch;
    return TSR_OK;
}

#define SOME_THREADS 8u /* of a host that does not tell */

uint64_t tsr_cpu_threads(const struct tsr_host *host)
{
    const struct tsr_threads_v1 *t = host->service ? host->service(host->ctx, TSR_THREADS) : NULL;
    return t ? t->count(host->ctx) : SOME_THREADS;
}

/* A loop over threads costs about as much as this many units (bytes touched or multiply-adds
 * over 4), and a chunk should not be smaller. */
#define SMALL_WORK 65536u

tsr_status tsr_cpu_for(const struct tsr_cpu *c, uint64_t n, uint64_t unit,
                       tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    uint64_t u = unit ? unit : 1, grain = cpu_ceil(SMALL_WORK, u);
    if (n <= grain)
        return n ? body(arg, 0, n) : TSR_OK;
    return c->host->parallel_for(c->host->ctx, n, grain, body, arg);
}
