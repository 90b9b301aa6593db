/* host.h - a host for tests of a backend alone: it counts memory, keeps the last line of the log, and stops on
 * request. */
#ifndef TSR_TEST_GPU_HOST_H
#define TSR_TEST_GPU_HOST_H

#include <stdio.h>
#include <stdlib.h>

#include "tessera/plugin.h"

static int64_t held;        /* bytes that were not released */
static int32_t stop;        /* what cancelled() answers */
static char    logged[512]; /* the last line of INFO or above */

static void host_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    if (level >= TSR_LOG_INFO)
        (void)snprintf(logged, sizeof logged, "%s", msg);
}
static void *host_alloc(void *ctx, uint64_t size, uint64_t align)
{
    void *p = NULL;
    (void)ctx;
    if (posix_memalign(&p, align < sizeof p ? sizeof p : align, size) != 0)
        return NULL;
    held += (int64_t)size;
    return p;
}
static void host_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    held -= p ? (int64_t)size : 0;
    free(p);
}
static int32_t host_cancelled(void *ctx)
{
    (void)ctx;
    return stop;
}
static tsr_status host_parallel_for(void *ctx, uint64_t n, uint64_t grain,
                                    tsr_status (*body)(void *arg, uint64_t begin, uint64_t end),
                                    void *arg)
{
    (void)ctx;
    (void)grain;
    return body(arg, 0, n);
}
static const struct tsr_host host = { .struct_size = sizeof host,
                                      .log = host_log,
                                      .alloc = host_alloc,
                                      .release = host_release,
                                      .cancelled = host_cancelled,
                                      .parallel_for = host_parallel_for };

#endif
