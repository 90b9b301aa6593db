/* blas.h - between the stand-ins of cuBLAS and cuSOLVER. */
#ifndef TSR_STANDIN_BLAS_H
#define TSR_STANDIN_BLAS_H

#include "simt/book.h"
#include "standin.h"

#define EXPORT __attribute__((visibility("default")))

/* A column-major matrix on the device, each element of which lies in one allocation; p NULL: not so. */
static inline struct book_matrix blas_matrix(const void *p, int64_t rows, int64_t cols, int64_t ld)
{
    struct book_matrix m = { 0 };
    if (rows < 1 || cols < 1 || ld < rows)
        return m;
    m.ld = (uint64_t)ld;
    m.p = standin_place((uint64_t)(uintptr_t)p,
                        (((uint64_t)cols - 1) * m.ld + (uint64_t)rows) * sizeof *m.p);
    return m;
}

#endif
