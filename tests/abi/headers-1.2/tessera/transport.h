/* tessera/transport.h - transport: carries bytes between the ranks of a group.  The component kind
 * is "tessera.transport/1".
 *
 * The plugin implements struct tsr_transport_v1, and the core calls it on every rank.  A transport
 * moves bytes and does no arithmetic.  The caller starts an operation, and then tests it or waits
 * for it with a deadline.  No call blocks without a deadline.  Sizes are in bytes.  Operations
 * between one pair of ranks complete in the order in which they were started.
 *
 * Example: a message to rank 1, with one second for it.
 *
 *     static tsr_status send_row(const struct tsr_transport_v1 *t, void *self, const void *row,
 *                                uint64_t bytes, struct tsr_err *err)
 *     {
 *         void      *request = NULL;
 *         tsr_status st = TSR_OK;
 *         for (int tries = 0; st == TSR_OK && !request && tries < 1000; tries++)
 *             st = t->send(self, NULL, 1, row, bytes, &request, err);
 *         if (st == TSR_OK && !request)
 *             return tsr_fail(err, TSR_E_DEVICE, "no room for a message to rank 1");
 *         return st == TSR_OK ? t->wait(self, request, 1000000, err) : st;
 *     }
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
struct tsr_transport_v1;

struct tsr_transport_world {
    uint32_t struct_size;
    uint32_t rank, ranks;
    uint32_t reserved; /* zero */
    void    *shared;
    uint64_t shared_bytes;
    uint64_t epoch; /* since minor 1: which life of the group this is.  A transport that frames its
                     * messages refuses those of another, as a rank that outlived a restart sends */
    /* since minor 1: another transport that the same ranks have joined, if via() of the table
     * requested one; it outlives this instance, which is its only user.  NULL: none */
    const struct tsr_transport_v1 *via;
    void                          *via_self;
};

/* extension(self, TSR_TRANSPORT_COUNTS), optional: what this rank has moved so far, payload bytes
 * only, to and from other ranks, and the frames that it refused: damaged, of another epoch. */
#define TSR_TRANSPORT_COUNTS "tessera.transport.counts/1"

struct tsr_transport_counts {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t sent, received, refused;
};

struct tsr_transport_counts_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    void (*read)(const void *self, struct tsr_transport_counts *counts); /* [worker] */
};

/* extension(self, TSR_TRANSPORT_DEVICE), optional: the transport carries device memory.  If an
 * operation gets a stream of the device, its buffers are device addresses, and it runs on that stream:
 * after earlier work on it, and before work that is enqueued after queued() reports 1.  After a failed
 * operation the stream must be synchronized before the buffers are used again. */
#define TSR_TRANSPORT_DEVICE "tessera.transport.device/1"

struct tsr_transport_device_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* *queued 1: the operation is on its stream.  Never waits; a status other than TSR_OK leaves the
     * request to test() or wait().  [worker] */
    tsr_status (*queued)(void *self, void *request, int32_t *queued, struct tsr_err *err);
    /* Identifies the transport's device in the process: for CUDA its primary context.  Streams and
     * addresses belong to the backend with the same place().  [any] */
    const void *(*place)(const void *self);
};

/* Exceptions to the rules for plugins (docs/abi.md) for a transport whose library requires them.  The
 * transport declares them in `needs` and keeps these conditions, which `tessera plugin check` verifies
 * (docs/decisions/nccl.md):
 *
 * THREADS  It starts threads.  A thread runs calls of the library that may not come back, and nothing else: it
 *          calls no function of the host, takes no lock that a call of the table takes, and has ended when
 *          destroy() has returned or soon after, unless the library holds it.
 * STATICS  Its instances share static memory.  No call waits for another rank while it holds the lock of
 *          that memory, and the memory is as it was when the last instance of the process has gone: an
 *          instance learns nothing from those before it. */
#define TSR_TRANSPORT_THREADS UINT64_C(1)
#define TSR_TRANSPORT_STATICS UINT64_C(2)

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

    /* Since minor 1, optional: the transport ("mpi:tag=3") that ranks use to exchange connection
     * data; the host joins it first and passes it in the world.  Text of opts; "": none is needed.
     * [any] */
    const char *(*via)(const void *opts);

    uint64_t needs; /* since minor 1: TSR_TRANSPORT_THREADS, TSR_TRANSPORT_STATICS; mostly 0 */
};

#ifdef __cplusplus
}
#endif
#endif
