/* tessera/draft/sizes.h - sizes: the device memory that weights and operations will take.  Draft:
 * an optional table of a backend, "tessera.sizes/1"; it may change until it leaves this folder.
 *
 * A backend implements it, and the planner calls it before any weight exists.  For a backend
 * without the table the planner assumes packed weights and no scratch.  An engine reserves the
 * scratch of its largest operation when it is made.  Sizes are in bytes.
 *
 * Example: the memory of a LINEAR with a8 inputs and 16 tokens; 0 if the backend refuses it.
 *
 *     static uint64_t linear_bytes(const struct tsr_sizes_v1 *sizes, const void *self,
 *                                  const struct tsr_weight_desc *w)
 *     {
 *         uint64_t weight = 0, scratch = 0;
 *         if (sizes->weight(self, w, &weight, NULL) != TSR_OK)
 *             return 0;
 *         if (sizes->linear(self, w, TSR_ACT_A8, 16, &scratch, NULL) != TSR_OK)
 *             return 0;
 *         return weight + scratch;
 *     }
 */
#ifndef TSR_DRAFT_SIZES_H
#define TSR_DRAFT_SIZES_H

#include "tessera/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_SIZES_EXTENSION "tessera.sizes/1"

struct tsr_sizes_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* The device memory that a weight like w takes from weight_load() to weight_free(), with all
     * its lists.  codes and meta of w are NULL, and its strides are those of dense rows.
     * TSR_E_UNSUPPORTED: weight_load() refuses the format.  [any] */
    tsr_status (*weight)(const void *self, const struct tsr_weight_desc *w, uint64_t *bytes,
                         struct tsr_err *err);
    /* The scratch of a LINEAR with a weight like w and `tokens` rows, in addition to its tensors.
     * Operations share scratch, so the largest value counts.  [any] */
    tsr_status (*linear)(const void *self, const struct tsr_weight_desc *w, uint32_t act,
                         uint64_t tokens, uint64_t *bytes, struct tsr_err *err);
    /* The largest scratch of an ATTENTION of `tokens` tokens, with sequences of at most `positions`
     * positions.  [any] */
    tsr_status (*attention)(const void *self, uint64_t tokens, uint64_t positions, uint32_t heads,
                            uint32_t kv_heads, uint32_t head_dim, uint64_t *bytes,
                            struct tsr_err *err);
    /* Optional: takes `bytes` of scratch now.  Operations that need no more take none later, when a
     * driver may let them wait for all work of the device, the receives of other ranks included.
     * [worker] */
    tsr_status (*reserve)(void *self, uint64_t bytes, struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
