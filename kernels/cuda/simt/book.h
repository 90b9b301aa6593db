/* book.h - textbook versions of the cuBLAS and cuSOLVER functions in use: column-major, element (i, j) at
 * i + j * ld, products in F32 as eight partial sums (an order that no CPU here has), factors in double.
 * For the emulated device, and for the libraries of the tests. */
#ifndef TSR_SIMT_BOOK_H
#define TSR_SIMT_BOOK_H

#include <math.h>
#include <stdint.h>

struct book_matrix {
    float   *p;
    uint64_t ld;
};

static inline double book_at(struct book_matrix x, uint64_t i, uint64_t j)
{
    return (double)x.p[i + j * x.ld];
}

static inline void book_put(struct book_matrix x, uint64_t i, uint64_t j, double v)
{
    x.p[i + j * x.ld] = (float)v;
}

/* c [m,n] = alpha * op(a) op(b) + beta * c, op(a) [m,k], op(b) [k,n]; with beta 0, c is not read.
 * triangle: 'U' and 'L' for that half of c alone, else 0. */
static inline void book_gemm(uint64_t m, uint64_t n, uint64_t k, float alpha, struct book_matrix a,
                             int a_transposed, struct book_matrix b, int b_transposed, float beta,
                             struct book_matrix c, char triangle)
{
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            float s[8] = { 0.0f };
            if ((triangle == 'U' && i > j) || (triangle == 'L' && i < j))
                continue;
            for (uint64_t x = 0; x < k; x++)
                s[x % 8] = fmaf(a.p[a_transposed ? x + i * a.ld : i + x * a.ld],
                                b.p[b_transposed ? j + x * b.ld : x + j * b.ld], s[x % 8]);
            float sum = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
            sum *= alpha;
            c.p[i + j * c.ld] = beta != 0.0f ? fmaf(beta, c.p[i + j * c.ld], sum) : sum;
        }
}

/* Element (i, j) of the upper triangle, or of the lower one's transpose. */
static inline double book_half(struct book_matrix x, uint64_t i, uint64_t j, int lower)
{
    return lower ? book_at(x, j, i) : book_at(x, i, j);
}

static inline void book_half_put(struct book_matrix x, uint64_t i, uint64_t j, int lower, double v)
{
    book_put(x, lower ? j : i, lower ? i : j, v);
}

/* A = U^T U in the upper triangle, or L L^T in the lower one; 0, or the first minor that is not
 * positive. */
static inline int book_potrf(uint64_t n, struct book_matrix a, int lower)
{
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i <= j; i++) {
            double sum = book_half(a, i, j, lower);
            for (uint64_t k = 0; k < i; k++)
                sum -= book_half(a, k, i, lower) * book_half(a, k, j, lower);
            if (i == j && !(sum > 0.0))
                return (int)j + 1;
            book_half_put(a, i, j, lower, i == j ? sqrt(sum) : sum / book_half(a, i, i, lower));
        }
    return 0;
}

/* The inverse of a triangle in place; 0, or the first place of its diagonal with a zero. */
static inline int book_trtri(uint64_t n, struct book_matrix a, int lower)
{
    for (uint64_t j = 0; j < n; j++)
        if (book_at(a, j, j) == 0.0)
            return (int)j + 1;
    for (uint64_t j = n; j-- > 0;) { /* columns to the left are still those of the triangle */
        book_put(a, j, j, 1.0 / book_at(a, j, j));
        for (uint64_t i = j; i-- > 0;) {
            double sum = book_half(a, i, j, lower) * book_at(a, j, j);
            for (uint64_t k = i + 1; k < j; k++)
                sum += book_half(a, i, k, lower) * book_half(a, k, j, lower);
            book_half_put(a, i, j, lower, -sum / book_at(a, i, i));
        }
    }
    return 0;
}

#endif
