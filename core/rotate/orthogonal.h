/* rotate/orthogonal.h - an orthogonal matrix Q that a seed draws, and products of rows and columns with it. */
#ifndef TSR_ROTATE_ORTHOGONAL_H
#define TSR_ROTATE_ORTHOGONAL_H

#include "base/hadamard.h"
#include "base/pool.h"

enum tsr_orthogonal_kind {
    TSR_ORTHOGONAL_HADAMARD, /* random signs, then a Hadamard matrix (QuaRot) */
    TSR_ORTHOGONAL_RANDOM, /* uniform over all orthogonal matrices (Stewart 1980): n^2 operations for a row */
    TSR_ORTHOGONAL_GIVEN /* written out: n^2 operations for a row */
};

struct tsr_orthogonal {
    enum tsr_orthogonal_kind kind;
    uint64_t                 n;
    double                  *sign; /* [n]; owned */
    struct tsr_hadamard      h;
    double     *
        mirror; /* RANDOM: n - 1 reflections, the k-th by a vector of n - k numbers of length sqrt(2); owned */
    double *given; /* GIVEN: [n, n]; owned */
};

/* The same seed and stream draw the same matrix.  TSR_E_INPUT: no Hadamard matrix of n rows is known. */
tsr_status tsr_orthogonal_create(struct tsr_orthogonal *q, enum tsr_orthogonal_kind kind,
                                 uint64_t n, uint64_t seed, uint64_t stream, struct tsr_err *err);
/* A Hadamard matrix without signs. */
tsr_status tsr_orthogonal_plain(struct tsr_orthogonal *q, uint64_t n, struct tsr_err *err);
/* A copy of Q [n, n], which the caller has found orthogonal. */
tsr_status tsr_orthogonal_copy(struct tsr_orthogonal *q, const double *given, uint64_t n,
                               struct tsr_err *err);
void       tsr_orthogonal_free(struct tsr_orthogonal *q);

/* W [rows, cols] in place, cols a multiple of n: every run of n columns of a row w becomes w Q, after column c was
 * multiplied by gain[c] + offset (gain NULL: by 1).  In double, rounded once. */
tsr_status tsr_orthogonal_rows(const struct tsr_orthogonal *q, struct tsr_pool *pool, float *w,
                               uint64_t rows, uint64_t cols, const float *gain, float offset,
                               struct tsr_err *err);
/* As tsr_orthogonal_rows(), with n matrices of one size: run i of the columns has matrix i * n / runs. */
tsr_status tsr_orthogonal_runs(const struct tsr_orthogonal *q, uint64_t n, struct tsr_pool *pool,
                               float *w, uint64_t rows, uint64_t cols, const float *gain,
                               float offset, struct tsr_err *err);
/* The n rows of W [..., cols] that `rows` lists: every column v of them becomes Q^T v. */
tsr_status tsr_orthogonal_columns(const struct tsr_orthogonal *q, struct tsr_pool *pool, float *w,
                                  const uint64_t *rows, uint64_t cols, struct tsr_err *err);

#endif
