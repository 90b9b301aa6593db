/* tessera/host.h - host: the functions that Tessera offers to a plugin.
 *
 * The host implements the table and passes it to create().  The plugin may call it until destroy()
 * returns.  Pass host->ctx as the first argument of every call.
 *
 * Example: a loop on the host's threads.
 *
 *     struct scaling { float *x, factor; };
 *     static tsr_status scale_part(void *arg, uint64_t begin, uint64_t end)
 *     {
 *         const struct scaling *s = (const struct scaling *)arg;
 *         for (uint64_t i = begin; i < end; i++)
 *             s->x[i] *= s->factor;
 *         return TSR_OK;
 *     }
 *     static tsr_status scale_all(const struct tsr_host *host, struct scaling *s, uint64_t n)
 *     {
 *         if (host->cancelled(host->ctx))
 *             return TSR_E_CANCELLED;
 *         return host->parallel_for(host->ctx, n, 4096, scale_part, s);
 *     }
 */
#ifndef TSR_HOST_H
#define TSR_HOST_H

#include "tessera/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Levels of log(). */
#define TSR_LOG_DEBUG 0
#define TSR_LOG_INFO  1
#define TSR_LOG_WARN  2

struct tsr_host {
    uint32_t struct_size;
    uint16_t abi_major, abi_minor;
    void    *ctx; /* the host's; plugins pass it back unchanged */

    /* Logs one line of text without a newline.  The host copies msg before it returns.  [any] */
    void (*log)(void *ctx, int32_t level, const char *msg);

    /* Memory that the host accounts for: size bytes at a multiple of align, a power of two.  The
     * content is undefined.  NULL: no memory is left.  release() takes the size that alloc() got,
     * and accepts NULL.  [any] */
    void *(*alloc)(void *ctx, uint64_t size, uint64_t align);
    void (*release)(void *ctx, void *p, uint64_t size);

    /* Calls body for [0, n) in chunks of at least grain items, on several threads, and returns when
     * all have ended.  The first failure stops the remaining chunks and is the result.  The chunk
     * borders depend only on n and grain.  A plugin must not start threads.  [worker] */
    tsr_status (*parallel_for)(void *ctx, uint64_t n, uint64_t grain,
                               tsr_status (*body)(void *arg, uint64_t begin, uint64_t end),
                               void *arg);

    /* Nonzero if the user interrupted.  A long call polls this about every 100 ms, and then returns
     * TSR_E_CANCELLED.  [any] */
    int32_t (*cancelled)(void *ctx);

    /* The table of an optional service by id ("tessera.linalg/1"); NULL: the host lacks it.  A
     * table lives as long as the process.  [any] */
    const void *(*service)(void *ctx, const char *id);
};

#ifdef __cplusplus
}
#endif
#endif
