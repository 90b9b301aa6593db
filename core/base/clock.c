#include "base/clock.h"

#include <time.h>

uint64_t tsr_now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

double tsr_now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t system_now(void *ctx)
{
    (void)ctx;
    return tsr_now_us();
}

static void system_sleep(void *ctx, uint64_t us)
{
    (void)ctx;
    struct timespec t = { .tv_sec = (time_t)(us / 1000000u),
                          .tv_nsec = (long)(us % 1000000u) * 1000 };
    while (nanosleep(&t, &t) != 0) {
    }
}

const struct tsr_clock tsr_clock_system = { .now_us = system_now, .sleep_us = system_sleep };
