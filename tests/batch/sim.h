/* A whole batch job in one thread from one seed: disk, clock, worker processes that die, freeze
 * and come back, and a supervisor. */
#ifndef TEST_BATCH_SIM_H
#define TEST_BATCH_SIM_H

#include <stddef.h>
#include <stdint.h>

struct sim_result {
    uint64_t runs, deaths, power_cuts, zombies, stalls, poisoned, unlike, retries;
};

/* 0, or 1 with a sentence in why. */
int sim_run(uint64_t seed, struct sim_result *r, char *why, size_t cap);

#endif
