/* plan/cost/shape_internal.h - how a packed model has the linears of a layer; shared by shape.c and shape_packed.c. */
#ifndef TSR_PLAN_COST_SHAPE_INTERNAL_H
#define TSR_PLAN_COST_SHAPE_INTERNAL_H

#include "model/packed.h"
#include "plan/cost/shape.h"

/* A linear's layout, with an id that stays valid without the model; p NULL: as its dtype.  tsr_plan_shape_keep_ids() of
 * the model comes first.  [any] */
void tsr_plan_shape_put_packed(const struct tsr_plan_shape *s, struct tsr_plan_shape_matrix *m,
                               const struct tsr_model_packed *p);
/* Copies the ids of the plugins' own formats that the linears and ends of a packed model have; o NULL: none.
 * TSR_E_NOMEM.  [any] */
tsr_status tsr_plan_shape_keep_ids(struct tsr_plan_shape *s, const struct tsr_model_overlay *o,
                                   struct tsr_err *err);
bool       tsr_plan_shape_same_format(const struct tsr_format *a, const struct tsr_format *b);
/* The layouts of embedding and head; a head that is packed apart is no longer tied.  o NULL: as they are.  [any] */
void tsr_plan_shape_put_ends(struct tsr_plan_shape *s, const struct tsr_model_overlay *o);
/* The experts of a layer in groups of one layout, those of most bits first, of as many those with the lower expert.  lin:
 * of the layer, by its enum tsr_linear_id.  of[experts]: their groups.  The number of groups; 0 where there are more than
 * TSR_PLAN_GROUPS.  [any] */
uint32_t tsr_plan_shape_group_packed(const struct tsr_plan_shape *s, struct tsr_plan_shape_layer *l,
                                     struct tsr_model_packed *const *lin, uint64_t experts,
                                     uint8_t *of);

#endif
