/* pace.h - a link that is slower than memory: sent bytes become visible as they would arrive over a wire of a
 * given bandwidth and latency.
 *
 * The sender stamps each message with the time at which its first byte leaves; the receiver takes a byte
 * once latency + position / bandwidth have passed since. So neither side has to be on time, as long as the
 * ring holds the bytes on the wire. */
#ifndef TSR_COMM_LOCAL_PACE_H
#define TSR_COMM_LOCAL_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct local_pace {
    double   ns_per_byte; /* 0 with latency 0: not paced */
    uint64_t latency_ns;
    bool     on, pair; /* pair: a wire for each pair of ranks, not one out of each rank */
};

static inline uint64_t local_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline uint64_t local_pace_ns(const struct local_pace *p, uint64_t bytes)
{
    double ns = p->ns_per_byte * (double)bytes;
    return ns < 9e18 ? (uint64_t)ns : UINT64_C(9000000000000000000);
}

/* When a message of `bytes` may leave; *wire_free: when its wire has finished its earlier bytes. */
static inline uint64_t local_pace_start(const struct local_pace *p, uint64_t *wire_free,
                                        uint64_t bytes)
{
    uint64_t now = local_now_ns(), start = *wire_free > now ? *wire_free : now;
    *wire_free = start + local_pace_ns(p, bytes);
    return start;
}

/* Nanoseconds until byte `at` (from 1; 0: the message itself) of a message arrives; 0: it has arrived. */
static inline uint64_t local_pace_left(const struct local_pace *p, uint64_t start, uint64_t at,
                                       uint64_t now)
{
    uint64_t there = start + p->latency_ns + local_pace_ns(p, at);
    return there > now ? there - now : 0;
}

/* The bytes of a message of `bytes` that have arrived. */
static inline uint64_t local_pace_there(const struct local_pace *p, uint64_t start, uint64_t bytes,
                                        uint64_t now)
{
    uint64_t first = start + p->latency_ns;
    if (now <= first)
        return 0;
    double n = p->ns_per_byte > 0 ? (double)(now - first) / p->ns_per_byte : (double)bytes;
    return n < (double)bytes ? (uint64_t)n : bytes;
}

#endif
