/* tessera/transport.h - component kind "tessera.transport/1": who carries bytes
 * between the ranks of a group.
 *
 * A transport moves bytes and does no arithmetic.  Every operation is started,
 * then tested or waited for with a deadline; nothing blocks without one.  All
 * sizes are in bytes.  Operations between the same pair of ranks complete in
 * the order in which they were started.
 */
#ifndef TSR_TRANSPORT_H
#define TSR_TRANSPORT_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_TRANSPORT "tessera.transport/1"

/* What rank `rank` needs to find the others.  The host gives every rank of the
 * group the same world: world_bytes() zeroed bytes of memory that they share
 * (between threads, or between processes of one host), or NULL if it is 0. */
struct tsr_transport_world {
    uint32_t struct_size;
    uint32_t rank, ranks;
    uint32_t reserved; /* zero */
    void    *shared;
    uint64_t shared_bytes;
};

struct tsr_transport_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* Shared bytes that a group of `ranks` needs; may be 0.  [any] */
    uint64_t (*world_bytes)(const void *opts, uint32_t ranks);

    /* Joins the group; called once on every rank, in any order, and does not
     * wait for the others.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM, TSR_E_DEVICE.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts,
                         const struct tsr_transport_world *world, void **self, struct tsr_err *err);
    void (*destroy)(void *self);

    /* Start an operation.  Buffers stay untouched by the caller until it is
     * done.  *request NULL with TSR_OK: no room now, ask again.
     * all_gather: `bytes` from each rank, recv holds ranks * bytes in rank order.
     * all_to_all: block i of send (`bytes` each) goes to rank i.  [worker] */
    tsr_status (*send)(void *self, void *stream, uint32_t to, const void *buf, uint64_t bytes,
                       void **request, struct tsr_err *err);
    tsr_status (*recv)(void *self, void *stream, uint32_t from, void *buf, uint64_t bytes,
                       void **request, struct tsr_err *err);
    tsr_status (*all_gather)(void *self, void *stream, const void *send, void *recv, uint64_t bytes,
                             void **request, struct tsr_err *err);
    tsr_status (*all_to_all)(void *self, void *stream, const void *send, void *recv, uint64_t bytes,
                             void **request, struct tsr_err *err);

    /* Progress.  test() sets *done; wait() returns TSR_E_DEVICE, naming the
     * rank that is late, once deadline_us microseconds have passed.  A request
     * is released when it is done or has failed.  [worker] */
    tsr_status (*test)(void *self, void *request, int32_t *done, struct tsr_err *err);
    tsr_status (*wait)(void *self, void *request, uint64_t deadline_us, struct tsr_err *err);

    /* Makes every operation of every rank of the group fail soon with
     * TSR_E_CANCELLED.  [any] */
    void (*abort)(void *self);

    /* Optional; may be NULL.  [any] */
    const void *(*extension)(const void *self, const char *id);

    /* ABI minor 0 ends here.  Append only, 8-byte members only. */
};

#ifdef __cplusplus
}
#endif
#endif
