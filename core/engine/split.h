/* engine/split.h - computes o and down of every layer, and of its experts, as several ranks would, in one process: the
 * columns of each rank are a separate weight, and the caller combines the partial sums.
 */
#ifndef TSR_ENGINE_SPLIT_H
#define TSR_ENGINE_SPLIT_H

#include "engine/internal.h"

/* One linear's parts, in rank order. */
struct tsr_engine_split_dev {
    struct tsr_engine_split_part {
        struct tsr_model_slice    s;
        struct tsr_engine_weight *w;
        struct tsr_model_packed  *packed; /* that w was made from, or NULL; owned */
    } part[TSR_ENGINE_SPLIT_MAX];
    uint32_t n;
};

/* Loads the parts of o or down, or of an expert's down.  TSR_E_CONFIG if the columns cannot be split. */
tsr_status tsr_engine_split_load(struct tsr_engine *e, const struct tsr_model_linear *l,
                                 const struct tsr_model_packed *p,
                                 struct tsr_engine_linear_dev *out, struct tsr_err *err);
/* out = the parts' products with in, summed by e->split; the bias is added afterwards. */
tsr_status tsr_engine_split_run(struct tsr_engine *e, uint64_t layer, enum tsr_linear_id id,
                                const struct tsr_tensor *in, const struct tsr_tensor *out,
                                struct tsr_err *err);
/* The steps of it, for experts, whose products are weighed before they are a rank's partial sum: the product of a
 * rank's part, with the linear's bias on the first one, on the linear's device; a partial sum is kept; out = the sum of
 * those that were kept.  dev has `out`. */
tsr_status tsr_engine_split_part(struct tsr_engine *e, const struct tsr_engine_linear_dev *l,
                                 uint32_t rank, const struct tsr_tensor *in,
                                 const struct tsr_tensor *out, struct tsr_err *err);
tsr_status tsr_engine_split_keep(struct tsr_engine *e, struct tsr_engine_device *dev, uint32_t rank,
                                 const struct tsr_tensor *out, struct tsr_err *err);
tsr_status tsr_engine_split_sum(struct tsr_engine *e, struct tsr_engine_device *dev, uint64_t layer,
                                enum tsr_linear_id id, const struct tsr_tensor *out,
                                struct tsr_err *err);
/* dev NULL: its weights are gone with it. */
void tsr_engine_split_drop(struct tsr_engine_device *dev, struct tsr_engine_split_dev *s);

#endif
