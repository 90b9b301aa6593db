/* tessera/backend_layout.h - optional table of a backend, "tessera.backend.layout/1": the bytes of
 * a loaded weight, so that a host can keep them in a file and hand them back without work.
 *
 * A layout has an id and a revision.  Weights of the same description, id, revision and target have
 * the same size and the same meaning in every process; whoever changes what the bytes mean raises
 * the revision.  The host stores the three beside the bytes and asks the backend for no others.
 */
#ifndef TSR_BACKEND_LAYOUT_H
#define TSR_BACKEND_LAYOUT_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_LAYOUT "tessera.backend.layout/1"

/* The host zeroes it and sets struct_size. */
struct tsr_weight_layout {
    uint32_t    struct_size;
    uint32_t    revision;
    const char *id;     /* "tessera.cpu.panels"; static                              */
    const char *target; /* "sm_90": these devices alone.  NULL: all of the backend's */
    uint64_t    bytes;  /* of a weight as described, more than 0                     */
    uint64_t    align;  /* of data in weight_borrow(): a power of two up to 4096     */
};

struct tsr_backend_layout_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* What weight_load() makes of a weight like w, whose codes and meta are NULL and whose strides
     * are 0 here.  TSR_E_UNSUPPORTED where weight_load() declines the format.  [any] */
    tsr_status (*weight_layout)(const void *self, const struct tsr_weight_desc *w,
                                struct tsr_weight_layout *l, struct tsr_err *err);

    /* Copies bytes [offset, offset+bytes) of a loaded weight to host memory; a range outside of
     * them is TSR_E_INVAL.  The same weight gives the same bytes each time.  [worker] */
    tsr_status (*weight_read)(void *self, const void *weight, uint64_t offset, void *dst,
                              uint64_t bytes, struct tsr_err *err);

    /* A weight over `bytes` bytes in this layout, as weight_read() gave them; w as above.  They
     * stay the host's, are read only and live until weight_free(); a device with memory of its
     * own copies them.  They may come from a damaged file: numbers may be wrong, but nothing is
     * read or written outside of memory on their account; what is seen to be wrong is
     * TSR_E_INVAL.  Operations on it give what they give on the weight that was read.  [worker] */
    tsr_status (*weight_borrow)(void *self, const struct tsr_weight_desc *w, const void *data,
                                uint64_t bytes, void **weight, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
