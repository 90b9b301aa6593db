/* linalg.h - the tables and shared parts of "tessera.linalg/1" on the CPU.
 *
 * One engine multiplies: la_gemm() packs both factors into panels and runs tiles of C over the
 * threads.  Cholesky and its inverse are blocked around it, so that nearly all work is there.
 */
#ifndef TSR_CPU_LINALG_H
#define TSR_CPU_LINALG_H

#include "tessera/linalg.h"

struct tsr_cpu;

/* Columns of k that a tile takes at once.  At 256 a panel of B would stay in L1, but C is then visited
 * twice as often, which costs more. */
#define LA_KC    512u
#define LA_SOLVE 32u /* order of the triangles that are solved without la_gemm */

/* Functions of one instruction set. */
struct tsr_cpu_linalg_kernels {
    uint32_t mr, nr; /* rows and columns of a tile of C */
    /* C [mr,nr] = FMA chains over n steps: a [n][mr], b [n][nr], packed. next: the next tile of the same
     * matrix, whose lines are prefetched, or NULL. */
    void (*tile)(const float *a, const float *b, uint64_t n, float *c, uint64_t ldc,
                 const float *next);
    /* alpha times [count, n] at src, rows si or columns sk apart and the other 1, as panels
     * [n][width], step apart; zero past the end.  width is mr or nr, as which says. */
    void (*pack)(float *dst, uint64_t step, int which, const float *src, uint64_t si, uint64_t sk,
                 uint64_t count, uint64_t n, float alpha);
    /* The first `count` columns of b [n][nr] as rows of dst, ldd apart. */
    void (*unpack)(float *dst, uint64_t ldd, const float *b, uint64_t count, uint64_t n);
    /* `count` rows, n steps of each, of panels of b [room][nr] as panels of a [room][mr], negated;
     * zero past the last panel of b. */
    void (*regroup)(float *a, const float *b, uint64_t room, uint64_t count, uint64_t n);
    /* X = L^-1 X in place: L [n,n] lower, n up to LA_SOLVE, X [n, cols]. */
    void (*solve_left)(const float *l, uint64_t ldl, uint64_t n, float *x, uint64_t ldx,
                       uint64_t cols);
    /* A [n,n] = L L^T in the lower triangle; returns the first bad pivot, or n. */
    uint64_t (*factor)(float *a, uint64_t lda, uint64_t n);
    /* y [n] = FMA chains over rows of A [rows, n] with v [rows]. */
    void (*symv)(const float *a, uint64_t lda, uint64_t rows, uint64_t n, const double *v,
                 double *y);
};

extern const struct tsr_cpu_linalg_kernels tsr_cpu_linalg_scalar;
extern const struct tsr_cpu_linalg_kernels tsr_cpu_linalg_avx2;
extern const struct tsr_cpu_linalg_kernels tsr_cpu_linalg_avx512;
extern const struct tsr_cpu_linalg_kernels tsr_cpu_linalg_neon;

/* What an instance of the backend keeps for it. */
struct tsr_cpu_linalg {
    struct tsr_linalg_v1 table;
    void *_Atomic        cache; /* scratch of an earlier call, its size in the first 8 bytes */
};
void        tsr_cpu_linalg_init(struct tsr_cpu *c);
void        tsr_cpu_linalg_free(struct tsr_cpu *c);
const void *tsr_cpu_linalg(const void *self);

/* ---- inside --------------------------------------------------------------- */

/* C += alpha A B over element strides: A(i,k) = a[i*ai + k*ak], B(k,j) = b[k*bk + j*bj].  C
 * shares no element with A or B. */
struct la_gemm {
    uint64_t     m, n, k;
    float        alpha;
    const float *a;
    uint64_t     ai, ak;
    const float *b;
    uint64_t     bk, bj;
    float       *c;
    uint64_t     ldc;
    int          lower;   /* elements with below + i < j are not needed, and may hold anything
                       * afterwards */
    int          b_lower; /* B(k,j) is zero for k < j */
    uint64_t     below;   /* rows between the one that column 0's diagonal is in and row 0 */
};
tsr_status la_gemm(struct tsr_cpu *c, const struct la_gemm *g, struct tsr_err *err);
/* The same from panels of all k columns, up to LA_KC, which include alpha: a [panel][k][mr], b
 * [panel][k][nr]. Does not read g->a and g->b. here: on this thread only; also: a task that runs first, on
 * some thread. */
tsr_status la_tiles_here(struct tsr_cpu *c, const struct la_gemm *g, float *a, float *b);
tsr_status la_tiles(struct tsr_cpu *c, const struct la_gemm *g, float *a, float *b,
                    tsr_status (*also)(void *), void *arg);

/* Scratch for one call: any number of calls at once.  Aligned to 64. */
float *la_take(struct tsr_cpu *c, uint64_t floats);
void   la_give(struct tsr_cpu *c, float *p);

/* X [m,n] = L^-1 X, L [m,m] lower. */
tsr_status la_solve(struct tsr_cpu *c, const float *l, uint64_t ldl, uint64_t m, float *x,
                    uint64_t ldx, uint64_t n, struct tsr_err *err);
/* SYRK of `numerics: fast` (c->bf16 is not NULL): the lower triangle of C [n,n], by X rounded to BF16. */
tsr_status tsr_cpu_syrk_bf16(struct tsr_cpu *c, uint64_t n, uint64_t rows, float alpha,
                             const float *x, uint64_t ldx, float *to, uint64_t ldc,
                             struct tsr_err *err);
/* The lower triangle is copied to the upper one. */
tsr_status la_mirror(struct tsr_cpu *c, uint64_t n, float *a, uint64_t lda);
/* What a loop over the threads returned, with its sentence. */
tsr_status la_status(tsr_status st, struct tsr_err *err);
/* Checks that the matrix [rows,cols] exists, its row stride is ld and its size is valid on this machine. */
tsr_status la_check(const char *what, const void *p, uint64_t rows, uint64_t cols, uint64_t ld,
                    struct tsr_err *err);

tsr_status tsr_cpu_cholesky(void *ctx, uint64_t n, float *a, uint64_t lda, uint64_t *pivot,
                            struct tsr_err *err);
tsr_status tsr_cpu_cholesky_inverse(void *ctx, uint64_t n, float *l, uint64_t ldl,
                                    struct tsr_err *err);
tsr_status tsr_cpu_largest_eigenvalue(void *ctx, uint64_t n, const float *a, uint64_t lda,
                                      uint64_t steps, double tolerance, double *value,
                                      struct tsr_err *err);

#endif
