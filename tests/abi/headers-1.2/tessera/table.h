/* tessera/table.h - table: a struct of functions, or of results, that can grow at its end.
 *
 * Every table of the ABI begins with struct_size, the size that its owner was compiled with.  A
 * plugin implements the tables of its kind, and the host implements struct tsr_host and its
 * services.  The other side calls them.  A later minor appends members, so check a member that
 * minor 0 lacks.
 *
 * Each function of these headers has a thread tag:
 *   [setup]   one thread at a time, with no other call in flight on the plugin
 *   [worker]  any thread, but never two calls at once on one instance
 *   [any]     any thread, at the same time as every other call; writes no shared state
 *
 * Example: a host that reads a member of minor 1, and a plugin that fills a struct of the host.
 *
 *     #include "tessera/backend.h"
 *     #include "tessera/quantizer.h"
 *     static double promised_steps(const struct tsr_quantizer_v1 *q, const void *self)
 *     {
 *         if (!TSR_HAS(struct tsr_quantizer_v1, q, max_error_steps))
 *             return 0;
 *         return q->max_error_steps(self);
 *     }
 *     static void put_free_bytes(struct tsr_backend_props *p, uint64_t bytes)
 *     {
 *         TSR_SET(struct tsr_backend_props, p, free_bytes, bytes);
 *     }
 */
#ifndef TSR_TABLE_H
#define TSR_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* True if table p has member m and m is not NULL or 0.  The size test comes first, so a shorter
 * table is never read past its end. */
#define TSR_HAS(type, p, m) ((p)->struct_size >= offsetof(type, m) + sizeof((p)->m) && (p)->m != 0)

/* Stores v into member m of the out-struct p if the caller's struct has room for it.  Members after
 * minor 0 need this macro. */
#define TSR_SET(type, p, m, v)                                                                     \
    ((p)->struct_size >= offsetof(type, m) + sizeof((p)->m) ? (void)((p)->m = (v)) : (void)0)

#endif
