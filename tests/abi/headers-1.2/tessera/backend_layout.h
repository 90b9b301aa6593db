/* tessera/backend_layout.h - weight layout: the bytes of a loaded weight, in an optional table of a
 * backend.  Its id is "tessera.backend.layout/1".
 *
 * A backend implements it.  The host calls it to store loaded weights in a prepacked model and to
 * load them again without repacking.  A layout has an id and a revision.  Weights with equal
 * description, id, revision and target have equal sizes and meanings in every process.  A change of
 * the meaning raises the revision.  The host stores all three with the bytes, and gives a backend
 * only bytes that match.
 *
 * Example: the size of a weight in a prepacked model; 0 if the backend does not read the format.
 *
 *     static uint64_t stored_bytes(const struct tsr_backend_layout_v1 *layout, const void *self,
 *                                  const struct tsr_weight_desc *w)
 *     {
 *         struct tsr_weight_layout l = { .struct_size = sizeof l };
 *         if (layout->weight_layout(self, w, &l, NULL) != TSR_OK)
 *             return 0;
 *         return (l.bytes + l.align - 1) / l.align * l.align;
 *     }
 */
#ifndef TSR_BACKEND_LAYOUT_H
#define TSR_BACKEND_LAYOUT_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_BACKEND_LAYOUT "tessera.backend.layout/1"

/* The answer of weight_layout().  The host zeroes it and sets struct_size. */
struct tsr_weight_layout {
    uint32_t    struct_size;
    uint32_t    revision;
    const char *id;     /* "tessera.cpu.panels"; lives as long as the file           */
    const char *target; /* "sm_90": only these devices.  NULL: all of the backend    */
    uint64_t    bytes;  /* of a weight with this description, more than 0            */
    uint64_t    align;  /* of data in weight_borrow(): a power of two up to 4096     */
};

struct tsr_backend_layout_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* The layout that weight_load() makes from a weight like w.  codes and meta of w are NULL and
     * its strides are 0.  TSR_E_UNSUPPORTED: weight_load() refuses the format.  [any] */
    tsr_status (*weight_layout)(const void *self, const struct tsr_weight_desc *w,
                                struct tsr_weight_layout *l, struct tsr_err *err);

    /* Copies bytes [offset, offset+bytes) of a loaded weight to host memory.  A range outside the
     * weight is TSR_E_INVAL.  A weight gives equal bytes in every call.  [worker] */
    tsr_status (*weight_read)(void *self, const void *weight, uint64_t offset, void *dst,
                              uint64_t bytes, struct tsr_err *err);

    /* Makes a weight from `bytes` bytes that weight_read() wrote; w as in weight_layout().  The
     * host owns the bytes, keeps them until weight_free(), and they are read-only.  A device with
     * separate memory copies them.  Operations give bit-identical results to those on the weight
     * that was read.  The bytes may come from a damaged file.  Damage that the backend detects is
     * TSR_E_INVAL; other damage may give wrong numbers, but never an access outside the memory.
     * [worker] */
    tsr_status (*weight_borrow)(void *self, const struct tsr_weight_desc *w, const void *data,
                                uint64_t bytes, void **weight, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
