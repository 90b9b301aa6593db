/* tessera/draft/sizes.h - optional backend table "tessera.sizes/1": what device memory weights and
 * operations will take, before there are any.  A planner asks it; a backend without it is taken to
 * keep weights as they are packed and to need no scratch.  Draft: may change until it leaves this
 * folder.
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
    /* Bytes of device memory that weight_load() of such a weight takes until weight_free(), all
     * lists beside it included.  codes and meta of w are NULL, strides are those of dense rows.
     * TSR_E_UNSUPPORTED where weight_load() says so.  [any] */
    tsr_status (*weight)(const void *self, const struct tsr_weight_desc *w, uint64_t *bytes,
                         struct tsr_err *err);
    /* Scratch that a LINEAR with such a weight and `tokens` rows takes, beside its tensors.  Scratch
     * of operations is shared: what counts is the largest.  [any] */
    tsr_status (*linear)(const void *self, const struct tsr_weight_desc *w, uint32_t act,
                         uint64_t tokens, uint64_t *bytes, struct tsr_err *err);
    /* The most that an ATTENTION of `tokens` tokens takes when no sequence is longer than
     * `positions`.  [any] */
    tsr_status (*attention)(const void *self, uint64_t tokens, uint64_t positions, uint32_t heads,
                            uint32_t kv_heads, uint32_t head_dim, uint64_t *bytes,
                            struct tsr_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
