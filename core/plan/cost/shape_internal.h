/* plan/cost/shape_internal.h - how a packed model has the linears of a layer; shared by shape.c and shape_packed.c. */
#ifndef TSR_PLAN_COST_SHAPE_INTERNAL_H
#define TSR_PLAN_COST_SHAPE_INTERNAL_H

#include "model/packed.h"
#include "plan/cost/shape.h"

/* A linear's layout, with a name that does not go with the model; p NULL: as its dtype.  [any] */
void tsr_plan_shape_put_packed(struct tsr_plan_shape_matrix *m, const struct tsr_model_packed *p);
bool tsr_plan_shape_same_format(const struct tsr_format *a, const struct tsr_format *b);
/* The experts of a layer in groups of one layout, those of most bits first, of as many those with the lower expert.  lin:
 * of the layer, by its enum tsr_linear_id.  of[experts]: their groups.  The number of groups; 0 where there are more than
 * TSR_PLAN_GROUPS.  [any] */
uint32_t tsr_plan_shape_group_packed(struct tsr_plan_shape_layer    *l,
                                     struct tsr_model_packed *const *lin, uint64_t experts,
                                     uint8_t *of);

#endif
