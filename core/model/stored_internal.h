/* model/stored_internal.h - the walk over a family's roles: stored.c goes over them, stored_parts.c makes the views of each. */
#ifndef TSR_MODEL_STORED_INTERNAL_H
#define TSR_MODEL_STORED_INTERNAL_H

#include "model/bind.h"
#include "model/stored.h"

struct tsr_model_stored_walk {
    const struct tsr_model         *m;
    const struct tsr_model_overlay *o;
    const struct tsr_model_family  *family;
    uint64_t                        has;
    bool                            stacked;
    tsr_model_stored_visit          visit;
    void                           *ctx;
    struct tsr_err                 *err;
    struct tsr_model_stored_view    room; /* the arrays of all views, for the most pieces */
};

/* What the visitor gets of a role, by its part; a tensor that this model does not store is none. */
tsr_status tsr_model_stored_norm(const struct tsr_model_stored_walk *w,
                                 const struct tsr_model_role *r, uint64_t layer,
                                 const struct tsr_model_norm *n,
                                 const struct tsr_model_norm *folded);
tsr_status tsr_model_stored_matrix(const struct tsr_model_stored_walk *w,
                                   const struct tsr_model_role *r, const struct tsr_matrix *m,
                                   const struct tsr_model_packed *p);
tsr_status tsr_model_stored_linears(const struct tsr_model_stored_walk *w,
                                    const struct tsr_model_role *r, uint64_t layer,
                                    const enum tsr_linear_id *ids, unsigned n, uint64_t groups);
tsr_status tsr_model_stored_each_expert(const struct tsr_model_stored_walk *w,
                                        const struct tsr_model_role *r, uint64_t layer);
tsr_status tsr_model_stored_all_experts(const struct tsr_model_stored_walk *w,
                                        const struct tsr_model_role *r, uint64_t layer);
tsr_status tsr_model_stored_stacked_experts(const struct tsr_model_stored_walk *w,
                                            const struct tsr_model_role *r, uint64_t layer);
tsr_status tsr_model_stored_sinks(const struct tsr_model_stored_walk *w,
                                  const struct tsr_model_role *r, uint64_t layer,
                                  const float *values);
tsr_status tsr_model_stored_router_correction(const struct tsr_model_stored_walk *w,
                                              const struct tsr_model_role *r, uint64_t layer);
tsr_status tsr_model_stored_delta_vector(const struct tsr_model_stored_walk *w,
                                         const struct tsr_model_role *r, uint64_t layer);

#endif
