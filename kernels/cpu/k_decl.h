/* k_decl.h - prototypes of one instruction set's kernels, for k_table.c and the compiler's
 * missing-prototype check. */
#ifndef TSR_K_DECL_H
#define TSR_K_DECL_H

#include "kernels.h"
#include "simd.h"

void K_BASE(act)(float *out, const float *a, const float *b, uint64_t n, uint32_t func);
void K_BASE(clamped)(float *out, const float *a, const float *b, uint64_t n, float alpha,
                     float limit);
void K_BASE(add)(float *out, const float *a, const float *b, uint64_t n);
void K_BASE(scale)(float *out, const float *a, uint64_t n, float scale, float softcap);
void K_BASE(norm)(float *out, const float *x, const float *gain, const float *bias, uint64_t n,
                  uint32_t kind, float eps, float gain_offset);
void K_BASE(mix)(float *out, const void *x, uint64_t stride, const float *weight,
                 const uint32_t *row, uint64_t k, uint64_t n);
void K_BASE(rope)(float *out, const float *x, const float *cosine, const float *sine,
                  uint32_t heads, uint32_t head_dim, uint32_t rotary_dim, bool adjacent);
void K_BASE(hadamard)(float *out, const float *x, uint64_t n, uint64_t base, const float *sign,
                      uint64_t stride);
void K_BASE(kv_store)(void *row, const float *x, uint32_t dtype, uint32_t heads, uint32_t head_dim);
void K_BASE(kv_block)(void *block, const void *tail, uint32_t heads, uint32_t head_dim);
void K_BASE(attention)(const struct tsr_cpu_attention *a, uint64_t token, uint32_t kv_head,
                       uint64_t n, float *scores);
void K_BASE(attention_tile)(const struct tsr_cpu_attention *a, uint64_t token, uint64_t tokens,
                            uint32_t kv_head, float *scores);
void K_BASE(round_bf16)(float *out, const float *x, uint64_t n);
void K_BASE(quantize)(const struct tsr_cpu_weight *w, const float *x, int8_t *q, uint64_t ldq,
                      float *sa, int32_t *sums, uint64_t stride);
void K_BASE(pack_q)(int8_t *dst, const int8_t *q, uint64_t ldq, uint64_t n, uint64_t m);
void K_BASE(linear)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                    uint64_t t1);
void K(linear_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1);
void K(pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n);
void K_BASE(place)(enum tsr_cpu_layout l, uint8_t *panel, const uint8_t *codes, uint64_t stride,
                   uint64_t rows, uint64_t cols, uint32_t bits);
void K_BASE(math)(float *out, const float *x, uint64_t n, uint32_t which);
uint64_t K(probe_read)(const void *p, uint64_t bytes, uint32_t shape);
float    K(probe_fma)(uint64_t rounds);
int32_t  K(probe_dot)(uint64_t rounds);

/* tsr_cpu_compensate_kernels.choose */
uint64_t K_BASE(choose)(const float *x, uint64_t n, uint64_t base, uint64_t take,
                        const float *below, uint64_t *bucket, uint32_t *list);

/* linear_a8 for activations that are not packed. */
void K(few_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
               uint64_t t1);

/* k_affine.c: the same of tessera.int/2, and its columns [k0,k1) of a panel as F32, [k][PANEL]. */
void K(affine_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1);
void K(affine_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n);
void K(widen_affine)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                     float *dst);

/* k_mapped.c: the same of tessera.table/1. */
void K(mapped_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                  uint64_t t1);
/* k_one_a8.c: pairs_a8, which is of one token there; false where it has no loop for the weight */
bool K_BASE(one_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart,
                          uint64_t n);
void K(mapped_pairs_a8)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t apart, uint64_t n);
void K(widen_mapped)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                     float *dst);

/* Codes of x by one scale amax/127: returns the scale; q may be up to 15 lanes past n. */
float K_BASE(codes_i8)(int8_t *q, const float *x, uint64_t n);

/* extra.h */
struct tsr_cpu_linear8;
void K_BASE(widen_extra)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                         float *dst);
void K_BASE(table_prepare)(const struct tsr_cpu_weight *w, const float *x, int8_t *q, uint64_t ldq,
                           float *sa, int32_t *sums, uint64_t stride);
void K_BASE(table_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1);
void K_BASE(digits_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1);
uint64_t K_BASE(llm_prepare)(const float *x, uint64_t cols, float threshold, int8_t *q,
                             uint64_t ldq, float *sa, int32_t *sum, uint32_t *found);
void     K_BASE(llm_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1);

#endif
