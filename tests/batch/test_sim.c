/* Scheduler, journal and membership under faults at every step: `test_sim [seeds [first]]`. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    const char       *env = getenv("TSR_TEST_SEED");
    uint64_t          seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    uint64_t          first = argc > 2 ? strtoull(argv[2], NULL, 10)
                              : env    ? strtoull(env, NULL, 10) * 1000003
                                       : (uint64_t)time(NULL) * 1000003;
    struct sim_result r, sum = { 0 };
    char              why[2048];
    (void)printf("seeds %" PRIu64 " to %" PRIu64 "\n", first, first + seeds - 1);
    for (uint64_t i = first; i < first + seeds; i++) {
        if (sim_run(i, &r, why, sizeof why)) {
            (void)printf("seed %" PRIu64 ": %s\n", i, why);
            return 1;
        }
        sum.runs += r.runs;
        sum.deaths += r.deaths;
        sum.power_cuts += r.power_cuts;
        sum.zombies += r.zombies;
        sum.stalls += r.stalls;
        sum.poisoned += r.poisoned;
        sum.retries += r.retries;
    }
    (void)printf("%" PRIu64 " runs, %" PRIu64 " deaths, %" PRIu64 " power cuts, %" PRIu64
                 " stalls, %" PRIu64 " zombies, %" PRIu64 " poisoned records, %" PRIu64
                 " retries: 0 lost, 0 doubled, 0 torn, 0 hangs\n",
                 sum.runs, sum.deaths, sum.power_cuts, sum.stalls, sum.zombies, sum.poisoned,
                 sum.retries);
    /* a simulation in which nothing happens proves nothing */
    return seeds >= 1000 &&
           !(sum.deaths > seeds && sum.power_cuts > seeds / 4 && sum.zombies > seeds / 50 &&
             sum.poisoned > seeds / 50 && sum.retries > seeds / 10);
}
