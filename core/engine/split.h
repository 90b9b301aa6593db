/* engine/split.h - o and down of every layer as several ranks would compute them, in one process: each
 * rank's columns are a weight of their own, and what becomes of the partial sums is the caller's.
 */
#ifndef TSR_ENGINE_SPLIT_H
#define TSR_ENGINE_SPLIT_H

#include "engine/internal.h"

/* One linear's parts, in rank order. */
struct tsr_split_dev {
    struct tsr_split_part {
        struct tsr_slice   s;
        struct tsr_weight *w;
        struct tsr_packed *packed; /* that w was made from, or NULL; owned */
    } part[TSR_SPLIT_MAX];
    uint32_t n;
};

/* Loads the parts of o or down.  TSR_E_CONFIG where the columns cannot be cut. */
tsr_status tsr_split_load(struct tsr_engine *e, const struct tsr_linear *l,
                          const struct tsr_packed *p, struct tsr_linear_dev *out,
                          struct tsr_err *err);
/* out = the sum that e->split makes of the parts' products with in; the bias comes behind it. */
tsr_status tsr_split_run(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                         const struct tsr_tensor *in, const struct tsr_tensor *out,
                         struct tsr_err *err);
void       tsr_split_drop(struct tsr_engine *e, struct tsr_split_dev *s, bool device);

#endif
