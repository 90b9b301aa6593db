/* tasks/random.h - the generator of Python's module random, as far as samples of shots and bootstraps need it: the
 * Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded by an integer. */
#ifndef TSR_TASKS_RANDOM_H
#define TSR_TASKS_RANDOM_H

#include "base/err.h"

#define TSR_TASKS_MT 624

struct tsr_tasks_random {
    uint32_t state[TSR_TASKS_MT];
    unsigned at;
};

/* random.Random(seed) */
void tsr_tasks_random_seed(struct tsr_tasks_random *r, uint32_t seed);
/* random(): 53 bits, from 0 to below 1 */
double tsr_tasks_random_unit(struct tsr_tasks_random *r);
/* sample(range(n), k) into out [k]; k is at most n, n below 2^32. */
tsr_status tsr_tasks_random_sample(struct tsr_tasks_random *r, uint64_t n, uint64_t k,
                                   uint64_t *out, struct tsr_err *err);

#endif
