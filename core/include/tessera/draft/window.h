/* tessera/draft/window.h - window: memory of each rank's device that the devices of all ranks of a group see.  Draft: an
 * optional table of a transport, "tessera.transport.window/1", and one of a backend, "tessera.backend.window/1"; they
 * may change until they leave this folder.
 *
 * A transport that has both memory and handles of the devices implements the first, a backend that can add numbers in
 * such memory the second.  With both a sum over ranks is one operation on the device, without a message and without the
 * host (docs/decisions/all-reduce.md).  Without one of them sums go through messages.
 *
 * Example: the sum of x over the ranks, if there is a window.
 *
 *     static tsr_status sum_there(const struct tsr_backend_window_v1 *t, void *self,
 *                                 const struct tsr_window *w, uint64_t turn, const void *sums,
 *                                 const struct tsr_tensor *x, struct tsr_err *err)
 *     {
 *         if (w->ranks == 0 || x->rows > t->room(self, w, sums))
 *             return tsr_fail(err, TSR_E_UNSUPPORTED, "the sum goes through messages");
 *         return t->sum(self, w, turn, sums, x, err);
 *     }
 */
#ifndef TSR_DRAFT_WINDOW_H
#define TSR_DRAFT_WINDOW_H

#include "tessera/backend.h"
#include "tessera/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_TRANSPORT_WINDOW "tessera.transport.window/1"
#define TSR_BACKEND_WINDOW   "tessera.backend.window/1"

#define TSR_WINDOW_RANKS 8u /* at most */

/* Zeroed when it was made.  It belongs to the transport and ends with it. */
struct tsr_window {
    uint32_t struct_size;
    uint32_t rank, ranks;               /* ranks 0: there is none */
    uint32_t reserved;                  /* zero */
    uint64_t bytes;                     /* of each rank */
    uint64_t address[TSR_WINDOW_RANKS]; /* of each rank's memory, as this rank's device sees it */
    /* A word of the host's memory and its address on the device.  0: all is well.  abort() of the transport makes it 1; a
     * kernel that has waited too long for rank r makes it 2 + r.  What then comes out of sums is undefined. */
    uint32_t *state;
    uint64_t  state_address;
    uint64_t  wait_us; /* for another rank, at most */
};

struct tsr_transport_window_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* Asked once by all ranks at the same place between their operations, for sums of this rank's device.  able 0: this
     * rank has no use for a window.  w->ranks is 0 on all ranks if one of them is not able, or if one device does not
     * see another's memory; then the same line with the reason goes to the logs of all.  Waits for the other ranks,
     * until wait_us have passed.  No memory is taken here.  [worker] */
    tsr_status (*meet)(void *self, int32_t able, uint64_t wait_us, struct tsr_window *w,
                       struct tsr_err *err);
};

/* How the numbers of a sum are coded (tessera/codec.h). */
struct tsr_window_codes {
    uint32_t struct_size;
    uint32_t reserved; /* zero */
    uint64_t cols;
    /* NULL: every rank adds all numbers; else [ranks + 1], ascending from 0 to cols: rank r adds columns
     * [border[r], border[r + 1]), its slice, and codes the sum again for all ranks. */
    const uint64_t *border;
    /* first: one wire of `cols` columns for all numbers and sums, if first->same is 1; then second is NULL.  Else
     * [slices][ranks], where 0 borders are one slice: the wire of each rank's numbers, and [slices] of the sums, or NULL.
     * What is not coded has zeros: an empty slice, and a rank's numbers in its slice. */
    const struct tsr_codec_wire *first, *second;
};

struct tsr_backend_window_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* What sums with such codes have in common, such as lists on the device; *sums for free().  TSR_E_UNSUPPORTED: the
     * backend adds no such numbers, on any rank.  c may go afterwards.  [worker] */
    tsr_status (*load)(void *self, const struct tsr_window *w, const struct tsr_window_codes *c,
                       void **sums, struct tsr_err *err);
    void (*free)(void *self, void *sums); /* after forget() */

    /* Rows of the largest sum in the window; equal on all ranks with equal windows.  [any] */
    uint64_t (*room)(const void *self, const struct tsr_window *w, const void *sums);

    /* Queues, on the default stream, x [rows, cols] F32 = the sum over the ranks of what x is after it was coded, by
     * the tree of docs/decisions/numerics.md.  With borders a rank's own columns are not coded before they are added, as in
     * messages.  All ranks queue the same sums in the same order; turn is the number of sums before.  A rank that does
     * not come is reported by the next function that waits: TSR_E_DEVICE.  w outlives the work; forget() before the
     * window ends.  [worker] */
    tsr_status (*sum)(void *self, const struct tsr_window *w, uint64_t turn, const void *sums,
                      const struct tsr_tensor *x, struct tsr_err *err);
    void (*forget)(void *self); /* waits for the sums */
};

#ifdef __cplusplus
}
#endif
#endif
