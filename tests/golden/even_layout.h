/* even_layout.h - ranks without a plan. */
#ifndef TSR_TEST_EVEN_LAYOUT_H
#define TSR_TEST_EVEN_LAYOUT_H

#include "runtime/layout.h"

/* Layers evenly over `stages` stages of `ranks` ranks each; one micro-batch of a replica has all its slots.  Freed
 * by tsr_runtime_layout_free(). */
tsr_status even_layout(struct tsr_runtime_layout *l, const struct tsr_model_hparams *hp,
                       uint32_t replicas, uint32_t stages, uint32_t ranks, uint32_t slots,
                       struct tsr_err *err);

#endif
