/* here.h - which of a machine's devices an instance takes. */
#ifndef TSR_CUDA_HERE_H
#define TSR_CUDA_HERE_H

#include "tessera/here.h"

/* Of `count` devices: the requested one, which may not exist; else (-1) a rank takes the index of its
 * position among the ranks of its machine, and a process that is not a rank takes the one that `otherwise`
 * counts to. */
static inline int64_t here_device(const struct tsr_host *host, int64_t asked, uint32_t otherwise,
                                  int count)
{
    const struct tsr_here_v1 *h = asked < 0 ? host->service(host->ctx, TSR_HERE) : NULL;
    return asked >= 0 ? asked : (h ? h->rank : otherwise) % (uint32_t)count;
}

#endif
