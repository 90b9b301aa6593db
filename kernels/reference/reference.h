/* reference.h - every operation of tessera/backend.h as a plain loop in double: the reference for a backend's
 * numbers, and the place to read the meaning of an operation.
 *
 * Arrays are dense. `size`, if not NULL, gets for every result the magnitude of its terms: an error of one
 * rounding in each term is at most size * 2^-24, which bounds the error of a result in F32. exact.h has
 * LINEAR to the bit.
 */
#ifndef TSR_REFERENCE_H
#define TSR_REFERENCE_H

#include "tessera/backend.h"
#include <stdbool.h>

/* One output of LINEAR: x and w [cols], a row of the weights as numbers. */
double tsr_ref_linear(const float *x, const float *w, uint64_t cols, double bias, double *size);

/* One row of NORM: kind TSR_NORM_*; bias may be NULL; y, size [n]. */
void tsr_ref_norm(double *y, double *size, const float *x, const float *gain, const float *bias,
                  uint64_t n, uint32_t kind, float eps, float gain_offset);

/* One head of ROPE: y, size, x [head_dim]; cosine and sine [rotary_dim / 2]. */
void tsr_ref_rope(double *y, double *size, const float *x, const float *cosine, const float *sine,
                  uint64_t head_dim, uint64_t rotary_dim, bool adjacent);

/* One run of HADAMARD: y, size, x [n]; base [b][b], NULL: b is 1.  n^2 terms. */
void tsr_ref_hadamard(double *y, double *size, const float *x, uint64_t n, const float *base,
                      uint64_t b);

/* TSR_FUNC_* of one number; CLAMPED of a gate g and its factor u; and the value of SCALE for one. */
double tsr_ref_func(uint32_t func, double x);
double tsr_ref_clamped(double g, double u, double alpha, double limit);
double tsr_ref_scale(double x, double scale, double softcap);

/* One head of one row of a cache: x [head_dim] in a type of tessera/kv_cache.h, and back.
 * A row is its heads, one after the other. */
uint64_t tsr_ref_head_bytes(uint32_t dtype, uint64_t head_dim);
void     tsr_ref_head_store(void *head, uint32_t dtype, const float *x, uint64_t head_dim);
void     tsr_ref_head_load(double *x, uint32_t dtype, const void *head, uint64_t head_dim);

/* One head of a block of TSR_Q4_CHANNEL from its keys in F16, `stride` bytes from one position to the next, and
 * the key of one position back: x [head_dim]. */
void tsr_ref_block_store(void *block, const void *tail, uint64_t stride, uint64_t head_dim);
void tsr_ref_block_load(double *x, const void *block, uint64_t position, uint64_t head_dim);

/* One head of one token over `n` positions, its own the last: q, y, size [head_dim]; k and v
 * [n][head_dim], stride numbers from one position to the next; scores: room for n numbers; sink -INFINITY: there
 * is none. */
void tsr_ref_attention(double *y, double *size, double *scores, const float *q, const double *k,
                       const double *v, uint64_t n, uint64_t stride, uint64_t head_dim, float scale,
                       float softcap, float slope, float sink);

/* The positions that a token at `position` attends to: [*first, position]. */
static inline uint64_t tsr_ref_first(uint64_t position, uint64_t window)
{
    return window && position + 1 > window ? position + 1 - window : 0;
}

#endif
