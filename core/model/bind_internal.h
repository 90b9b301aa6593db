/* model/bind_internal.h - a model that is bound to stored tensors: bind.c and bind_linears.c say which, bind_plan.c plans
 * reading them. */
#ifndef TSR_MODEL_BIND_INTERNAL_H
#define TSR_MODEL_BIND_INTERNAL_H

#include "model/bind.h"

/* The stored tensor of that name for a role, of a dtype that we compute with and of that shape. */
tsr_status tsr_model_bind_find(struct tsr_model_binding *b, const struct tsr_model_role *r,
                               const char *name, uint32_t rank, const uint64_t *shape,
                               struct tsr_checkpoint_stored **out);
/* The stored weight of a part outside the layers, and its name; *e is NULL without one. */
tsr_status tsr_model_bind_find_part(struct tsr_model_binding *b, enum tsr_model_part part,
                                    char name[TSR_BIND_NAME], struct tsr_checkpoint_stored **e);
/* bind_errors.c: the tensor is missing, of another shape, or one that the family does not have. */
tsr_status tsr_model_bind_missing(const struct tsr_model_binding *b, const struct tsr_model_role *r,
                                  const char *name);
tsr_status tsr_model_bind_misshapen(const struct tsr_model_binding     *b,
                                    const struct tsr_model_role        *r,
                                    const struct tsr_checkpoint_stored *e, uint32_t rank,
                                    const uint64_t *shape);
tsr_status tsr_model_bind_unknown(const struct tsr_model_binding     *b,
                                  const struct tsr_checkpoint_stored *e);
tsr_status tsr_model_bind_add_load(struct tsr_model_binding *b, struct tsr_model_tensor_load l);
tsr_status tsr_model_bind_add_patch(struct tsr_model_binding *b, struct tsr_model_patch p);
/* Plans a vector of n floats (gain or bias), stored as a matrix of that width if it is not 0, and returns its
 * index. */
tsr_status tsr_model_bind_plan_floats(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                      uint64_t layer, const char *suffix, uint64_t n,
                                      uint64_t width, const struct tsr_model_row_groups *groups,
                                      uint64_t *at);
/* Plans a matrix and returns its first byte in sealed memory, or in its layer's. */
tsr_status tsr_model_bind_plan_matrix(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                      uint64_t layer, uint64_t rows, uint64_t cols, uint32_t *dtype,
                                      uint64_t *at);
/* The same of a tensor [stack, rows / stack, cols]; stack 0: [rows, cols]. */
tsr_status tsr_model_bind_plan_stack(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                     uint64_t layer, uint32_t stack, uint64_t rows, uint64_t cols,
                                     const struct tsr_model_row_groups *groups, uint32_t *dtype,
                                     uint64_t *at);
void tsr_model_bind_set_shape(struct tsr_matrix *m, uint32_t dtype, uint64_t rows, uint64_t cols);
/* A view on planned bytes. */
tsr_status tsr_model_bind_set_matrix(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                     uint64_t layer, struct tsr_matrix *m, uint32_t dtype,
                                     uint64_t rows, uint64_t cols, uint64_t at);

/* A matrix without stored tensor: its weights are packed. */
tsr_status tsr_model_bind_set_packed(struct tsr_model_binding *b, struct tsr_matrix *m,
                                     const struct tsr_model_packed *p, uint64_t rows,
                                     uint64_t cols);
/* Its stored form is not looked up. */
tsr_status tsr_model_bind_leave(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                uint64_t layer);
/* A pointer to planned floats. */
tsr_status tsr_model_bind_set_floats(struct tsr_model_binding *b, const float **p, uint64_t at);
/* A matrix that is a tensor. */
tsr_status tsr_model_bind_whole_matrix(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                       uint64_t layer, struct tsr_matrix *m, uint64_t rows,
                                       uint64_t cols);
/* A role that has linears of a layer. */
tsr_status tsr_model_bind_linears(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                  uint64_t layer);

#endif
