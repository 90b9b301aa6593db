/* comm/group.h - sums over the ranks of a tensor-parallel group, through a transport and a codec.
 *
 * Every rank calls tsr_comm_group_sum() with its partial sum, for the same sites in the same order; all get
 * bit-identical results. Order of additions and coding: comm/coder.h.
 *
 * Every wait has a deadline. A rank whose call fails aborts the group, so that no peer waits for it: the
 * peers' calls soon return TSR_E_CANCELLED. A group that failed stays failed.
 */
#ifndef TSR_COMM_GROUP_H
#define TSR_COMM_GROUP_H

#include "comm/coder.h"
#include "comm/predict.h"
#include "comm/world.h"
#include "tessera/backend.h"

#define TSR_COMM_PHASES 2 /* 0: prefill, 1: decode */

struct tsr_comm_options {
    struct tsr_comm_place place;
    uint64_t              deadline_us; /* of one wait; 0: 5 s */
    struct tsr_comm_way   way[TSR_COMM_PHASES];
    void (*beat)(void *ctx); /* called as the pieces of a sum get through; or NULL */
    void *ctx;
};

struct tsr_comm_counters {
    uint64_t sums;
    uint64_t declared; /* bytes that this rank's messages have by their codec, for each receiver */
    uint64_t sent;     /* payload bytes that the transport counted: equal to declared */
    uint64_t refused;  /* frames that the transport refused */
    uint64_t encode_ns, decode_ns, wait_ns;
    bool     counted; /* false: the transport does not count, sent and refused are 0 */
};

struct tsr_comm_group;

/* Does not wait for the other ranks.  r is kept until destroy; threads that share one create their
 * groups one after the other.  [setup] */
tsr_status tsr_comm_group_create(struct tsr_comm_group **g, struct tsr_registry *r,
                                 const struct tsr_comm_options *o, struct tsr_err *err);
void       tsr_comm_group_destroy(struct tsr_comm_group *g); /* NULL is fine */

/* x [rows, cols], dense: this rank's partial in, the sum over all ranks out.  TSR_E_DEVICE: a rank
 * is late (named) or has left; TSR_E_CANCELLED: aborted; x is undefined then.  [worker] */
tsr_status tsr_comm_group_sum(struct tsr_comm_group *g, uint32_t phase, uint32_t site, float *x,
                              uint64_t rows, uint64_t cols, struct tsr_err *err);

/* Same as above for x in the memory of a backend's device, on its default stream. Requires a transport
 * that carries memory of that device (TSR_TRANSPORT_DEVICE), a codec that describes its wire
 * (TSR_CODEC_WIRE) and a backend that codes it (TSR_BACKEND_CODEC). Work that is queued later sees the sum
 * in x. Otherwise *done is false, nothing has happened and the log gives the reason once: the caller moves
 * x through the host. Peers cannot see which of the two a rank does. The backend must outlive the group.
 * [worker] */
tsr_status tsr_comm_group_sum_on(struct tsr_comm_group *g, uint32_t phase, uint32_t site,
                                 const struct tsr_backend_v1 *backend, void *self,
                                 const struct tsr_tensor *x, bool *done, struct tsr_err *err);

/* Before the first sum: takes the wires and the memory of the device for tsr_comm_group_sum_on() of at most
 * [rows, cols] at the sites [first, end). Sums then take no memory, for which a driver may wait until the receives
 * of other ranks are over. Does nothing in a phase that is still `auto` or has its sums in host memory. [worker] */
tsr_status tsr_comm_group_reserve(struct tsr_comm_group *g, const struct tsr_backend_v1 *backend,
                                  void *self, uint64_t rows, uint64_t cols, uint32_t first,
                                  uint32_t end, struct tsr_err *err);

/* Fixes the `auto` settings of a phase, before its first sum: codec "auto" (or "auto:SPEC;SPEC;...", the
 * codecs to choose from; default: plain:dtype=bf16 and mx) and algorithm TSR_COMM_AUTO, for sums of this
 * shape. All ranks call it. It measures the link and the codecs, tries the combinations predicted near the
 * fastest, and rank 0 chooses. Does nothing without `auto`. Takes as long as a few dozen sums. [worker] */
tsr_status tsr_comm_group_tune(struct tsr_comm_group *g, uint32_t phase, uint64_t rows,
                               uint64_t cols, struct tsr_err *err);
/* The codec, as written, and the algorithm of a phase, once fixed. */
const char             *tsr_comm_group_codec(const struct tsr_comm_group *g, uint32_t phase);
enum tsr_comm_algorithm tsr_comm_group_algorithm(const struct tsr_comm_group *g, uint32_t phase);

/* Alpha and beta of this group's transport as its sums see them, by all-gathers of several sizes;
 * the same on every rank.  All ranks call it.  [worker] */
tsr_status tsr_comm_group_probe(struct tsr_comm_group *g, struct tsr_comm_path *path,
                                struct tsr_err *err);

/* Ends every wait of every rank of the group soon.  [any] */
void tsr_comm_group_abort(struct tsr_comm_group *g);

void tsr_comm_group_counters(const struct tsr_comm_group *g, struct tsr_comm_counters *c);

/* The sum that a group of c->ranks ranks would leave with, in one process: partial[i] is rank i's,
 * out [rows, cols] may be one of them.  [any], and [worker] for a codec that keeps states */
tsr_status tsr_comm_sum_simulated(const struct tsr_comm_coder *c, uint32_t site,
                                  const float *const *partial, uint64_t rows, uint64_t cols,
                                  float *out, struct tsr_err *err);
/* Shows the same messages to the instances' observe(), before freeze(): the first hop sees the
 * partial sums, the second the sum itself; all pieces as one message.  [setup] */
tsr_status tsr_comm_sum_observe(struct tsr_comm_coder *c, uint32_t site,
                                const float *const *partial, uint64_t rows, uint64_t cols,
                                struct tsr_err *err);

#endif
