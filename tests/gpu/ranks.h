/* ranks.h - sums over ranks on a backend's device, beside those of ranks on CPUs. */
#ifndef TSR_TEST_RANKS_H
#define TSR_TEST_RANKS_H

#include <stdbool.h>

#include "plugin/registry.h"

struct ranks_options {
    const char *backend, *transport;
    uint32_t    ranks; /* 2 to 8 */
    uint64_t    seed;
    bool        on_device; /* where the sums must be made; else through the host */
};

#define RANKS_REFUSED 3 /* NCCL lets no two ranks share a device */

/* The exit status: 0; 1, 6 with a sentence, on stderr or in err; RANKS_REFUSED.  Forks: the process has
 * no threads. */
int ranks_check(struct tsr_registry *registry, const struct ranks_options *o, struct tsr_err *err);
/* Microseconds of a sum over two ranks with a device each, in windows, as lines of JSON: chains of `seed` sums, at most
 * 100.  backend and transport without their devices.  0, or 1 with a sentence on stderr or in err; SUMS_ALONE: there is one
 * device; SUMS_MESSAGES: the devices do not see each other's memory.  Forks. */
#define SUMS_ALONE    4
#define SUMS_MESSAGES 5
int sums_measure(struct tsr_registry *registry, const struct ranks_options *o, struct tsr_err *err);

#endif
