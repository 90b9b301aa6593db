/* rotate/transform.h - what becomes of the inputs of linears: columns in another order, runs of columns times orthogonal
 * matrices.  One structure for `rotate`, which writes models, and for the answers of block searches (quant/block.h).
 *
 * Inputs x [cols] become x T with an orthogonal T.  What reads them has W T in place of W, so that its outputs stay.
 * What produces them has T^T W, except for a transform that runs with the model.
 */
#ifndef TSR_ROTATE_TRANSFORM_H
#define TSR_ROTATE_TRANSFORM_H

#include "model/model.h"
#include "rotate/orthogonal.h"

/* The order comes first, then the matrices, then what runs with the model.  All zero: nothing changes. */
struct tsr_rotate_transform {
    uint32_t *order; /* [cols]: column k is the original column order[k]; NULL: as they are */
    struct tsr_orthogonal
            *matrix; /* [matrices] of one size; run i of them has i * matrices / runs */
    uint64_t matrices;
    struct tsr_orthogonal *online; /* of runs, in the engine; NULL: none */
};
/* Frees what the members point to, for those who own it. */
void tsr_rotate_transform_free(struct tsr_rotate_transform *t);
bool tsr_rotate_transform_is_set(const struct tsr_rotate_transform *t);

/* X [rows, cols], inputs or weights that read them, becomes X T; gain and offset as in tsr_orthogonal_rows(), and only
 * where no order is.  In double, each of the steps rounded once. */
tsr_status tsr_rotate_transform_inputs(const struct tsr_rotate_transform *t, struct tsr_pool *pool,
                                       float *x, uint64_t rows, uint64_t cols, const float *gain,
                                       float offset, struct tsr_err *err);
/* W [..., cols], whose rows at[0], ..., at[n - 1] produce the inputs, becomes T^T W without what runs with the model. */
tsr_status tsr_rotate_transform_producer(const struct tsr_rotate_transform *t,
                                         struct tsr_pool *pool, float *w, const uint64_t *at,
                                         uint64_t n, uint64_t cols, struct tsr_err *err);

/* check.c: why the values of a model's heads take no matrices, and its keys no transform; NULL: they do. */
const char *tsr_rotate_no_heads(const struct tsr_model *m);
const char *tsr_rotate_no_keys(const struct tsr_model *m);

#endif
