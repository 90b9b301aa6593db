/* base/clock.h - time through a function table, so that tests can simulate schedules. */
#ifndef TSR_BASE_CLOCK_H
#define TSR_BASE_CLOCK_H

#include <stdint.h>

struct tsr_clock {
    void *ctx;
    uint64_t (*now_us)(void *ctx); /* monotonic */
    void (*sleep_us)(void *ctx, uint64_t us);
};

/* The machine's own clock. */
extern const struct tsr_clock tsr_clock_system;

/* Monotonic microseconds of the machine's clock. */
uint64_t tsr_now_us(void);
double   tsr_now_s(void);

#endif
