/* fuse.h - shared by fuse.c and fuse_linear.c: what launches read and write, as views of device memory. */
#ifndef TSR_CUDA_FUSE_H
#define TSR_CUDA_FUSE_H

#include "backend.h"

/* Rows of `cols` bytes; p 0: none. */
struct view {
    uint64_t p, stride, rows, cols;
};

static inline struct view floats(uint64_t p, uint64_t stride, uint64_t rows, uint64_t n)
{
    return (struct view){ p, 4 * stride, rows, 4 * n };
}

static inline int is_same(const struct view *a, const struct view *b)
{
    return a->p == b->p && a->rows == b->rows && a->cols == b->cols &&
           (a->rows == 1 || a->stride == b->stride);
}

static inline uint64_t end_of(const struct view *v)
{
    return v->p + (v->rows - 1) * v->stride + v->cols;
}

static inline int is_apart(const struct view *a, const struct view *b)
{
    return !a->p || !b->p || end_of(a) <= b->p || end_of(b) <= a->p;
}

static inline int is_same_or_apart(const struct view *a, const struct view *b)
{
    return is_same(a, b) || is_apart(a, b);
}

static inline struct view out_of(const struct k_rows *r)
{
    return floats(r->out, r->out_stride, r->rows, r->n);
}

static inline struct view input_of(const struct k_rows *r)
{
    return floats(r->a, r->a_stride, r->rows, r->n);
}

static inline struct view second_of(const struct k_rows *r)
{
    return floats(r->b, r->b_stride, r->rows, r->n);
}

static inline void launch_as(struct tsr_cuda_fused *f, enum tsr_cuda_kernel kernel, uint64_t x,
                             uint32_t y, uint32_t threads, uint64_t bytes)
{
    f->l = (struct tsr_cuda_launch){ .kernel = kernel,
                                     .grid = { (uint32_t)x, y, 1 },
                                     .threads = threads,
                                     .args = &f->args,
                                     .args_bytes = bytes };
}

/* fuse_linear.c.  LINEARs of one input; LINEARs, then k_act_step of their outputs. */
int tsr_cuda_linear_linear(const struct tsr_cuda_launch *first, const struct tsr_cuda_launch *next,
                           struct tsr_cuda_fused *f);
int tsr_cuda_linear_act(const struct tsr_cuda_launch *first, const struct tsr_cuda_launch *next,
                        struct tsr_cuda_fused *f);

#endif
