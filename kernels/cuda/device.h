/* device.h - device functions that the backend needs: memory, copies, launches. Two implementations:
 * device_cuda.c over libcuda, found at run time, and simt/device_simt.c over the emulation, for tests.
 *
 * Addresses are integers that the host cannot dereference. Launches and copies on one stream run in order.
 * The next function that waits reports asynchronous errors.
 */
#ifndef TSR_CUDA_DEVICE_H
#define TSR_CUDA_DEVICE_H

#include "tessera/draft/kernel_device.h"
#include "tessera/plugin.h"

#define TSR_CUDA_KERNELS(X)                                                                        \
    X(k_copy)                                                                                      \
    X(k_add)                                                                                       \
    X(k_act)                                                                                       \
    X(k_scale)                                                                                     \
    X(k_gather)                                                                                    \
    X(k_mix)                                                                                       \
    X(k_columns)                                                                                   \
    X(k_segments)                                                                                  \
    X(k_hadamard)                                                                                  \
    X(k_round)                                                                                     \
    X(k_rope)                                                                                      \
    X(k_norm)                                                                                      \
    X(k_kv_store)                                                                                  \
    X(k_scores)                                                                                    \
    X(k_values4)                                                                                   \
    X(k_values4_wide)                                                                              \
    X(k_values8)                                                                                   \
    X(k_values16)                                                                                  \
    X(k_combine)                                                                                   \
    X(k_flash64)                                                                                   \
    X(k_flash96)                                                                                   \
    X(k_flash128)                                                                                  \
    X(k_flash256)                                                                                  \
    X(k_gemv1)                                                                                     \
    X(k_gemv4)                                                                                     \
    X(k_gemm)                                                                                      \
    X(k_gemv8)                                                                                     \
    X(k_gemv16)                                                                                    \
    X(k_gemm32)                                                                                    \
    X(k_gemm64)                                                                                    \
    X(k_embed)                                                                                     \
    X(k_quantize)                                                                                  \
    X(k_quantize_llm)                                                                              \
    X(k_norm_step)                                                                                 \
    X(k_act_step)                                                                                  \
    X(k_heads_step)                                                                                \
    X(k_combine_step)                                                                              \
    X(k_tile8_int)                                                                                 \
    X(k_tile8_zero)                                                                                \
    X(k_tile8_cut)                                                                                 \
    X(k_tile8_fine)                                                                                \
    X(k_tile16_int)                                                                                \
    X(k_tile32_int)                                                                                \
    X(k_tile8_table)                                                                               \
    X(k_tile16_table)                                                                              \
    X(k_tile32_table)                                                                              \
    X(k_tile8_other)                                                                               \
    X(k_tile16_other)                                                                              \
    X(k_tile32_other)                                                                              \
    X(k_block_int)                                                                                 \
    X(k_gemv1_digits)                                                                              \
    X(k_gemv4_digits)                                                                              \
    X(k_gemm_digits)                                                                               \
    X(k_llm_a8)                                                                                    \
    X(k_narrow)                                                                                    \
    X(k_dense)                                                                                     \
    X(k_finish)                                                                                    \
    X(k_half16_int4)                                                                               \
    X(k_half16_int)                                                                                \
    X(k_half16_table)                                                                              \
    X(k_half16_float)                                                                              \
    X(k_half64_int4)                                                                               \
    X(k_half64_int)                                                                                \
    X(k_half64_table)                                                                              \
    X(k_half64_float)                                                                              \
    X(k_half128_int4)                                                                              \
    X(k_half128_int)                                                                               \
    X(k_half128_table)                                                                             \
    X(k_half128_float)                                                                             \
    X(k_plain_encode)                                                                              \
    X(k_plain_decode)                                                                              \
    X(k_mx_encode)                                                                                 \
    X(k_mx_decode)                                                                                 \
    X(k_scaled_encode)                                                                             \
    X(k_scaled_decode)                                                                             \
    X(k_window_sum)                                                                                \
    X(k_window_step)                                                                               \
    X(k_candidates_part)                                                                           \
    X(k_candidates)                                                                                \
    X(k_select)                                                                                    \
    X(k_compensate)                                                                                \
    X(k_triangle)                                                                                  \
    X(k_symv)

#define TSR_CUDA_ENUM(name) KERNEL_##name,
enum tsr_cuda_kernel { TSR_CUDA_KERNELS(TSR_CUDA_ENUM) KERNEL_COUNT };
#undef TSR_CUDA_ENUM

enum tsr_cuda_memory {
    TSR_CUDA_DEVICE, /* on the device */
    TSR_CUDA_MAPPED, /* pinned host memory that the device reads over the bus */
};

struct tsr_cuda_launch {
    enum tsr_cuda_kernel kernel;
    uint32_t             grid[3], threads;
    const void          *args; /* one struct of k_args.h or k_window.h */
    uint64_t             args_bytes;
    const void *own; /* code of another plugin, from code_load(); its kernel is KERNEL_COUNT */
    uint32_t    own_kernel, shared; /* which of the code's; bytes of dynamic shared memory */
};

/* out [tokens, rows] = x [tokens, cols] * w [rows, cols]^T: x and w in F16 or BF16, sums in F32, rows
 * of `ld` elements.  out is F32, or of the type of x and w. */
struct tsr_cuda_matmul {
    uint64_t w, x, out, ldw, ldx, ldo;
    uint64_t rows, cols, tokens;
    uint64_t work, work_bytes; /* scratch, on 256 bytes */
    int      bf16, narrow_out;
};

/* Products and factors of F32 by libraries, in their column-major layout: element (i, j) of a matrix is at
 * i + j * ld. */
enum tsr_cuda_blas_kind {
    TSR_CUDA_SYRK,  /* c [m,m] = alpha * a a^T + beta * c, a [m,k]: its upper triangle alone */
    TSR_CUDA_GEMM,  /* c [m,n] = alpha * op(a) b + beta * c: op(a) [m,k], b [k,n] */
    TSR_CUDA_POTRF, /* c [m,m] = U^T U: U in the upper triangle, which alone is read */
    TSR_CUDA_TRTRI, /* c [m,m]: the inverse of its upper triangle */
};
struct tsr_cuda_blas {
    enum tsr_cuda_blas_kind kind;
    int                     a_transposed; /* op */
    uint64_t                m, n, k;
    float                   alpha, beta;
    uint64_t                a, lda, b, ldb, c, ldc;
    uint64_t work, work_bytes; /* POTRF, TRTRI: scratch of the size from blas_work(), aligned to
                                * 256 bytes */
    uint64_t
        info; /* of these: an I32 on the device, 0 or 1 + the first bad place of the diagonal */
};

struct tsr_cuda_api {
    /* index: of the device, from 0; -1: as here.h has it; seed: of the emulation's schedules.  TSR_E_DEVICE, with a
     * sentence, where there is none.  [setup] */
    tsr_status (*open)(const struct tsr_host *host, int64_t index, int64_t seed, void **device,
                       struct tsr_err *err);
    void (*close)(void *device);             /* after graph_free() of all graphs */
    const char *(*name)(const void *device); /* "NVIDIA H200" */
    uint32_t (*units)(const void *device);   /* multiprocessors */
    uint32_t (*shared)(const void *device);  /* the most bytes of shared memory of a block */
    tsr_status (*sizes)(const void *device, uint64_t *total, uint64_t *available,
                        struct tsr_err *err);
    /* Zeroed, aligned to 256. */
    tsr_status (*alloc)(void *device, uint64_t bytes, enum tsr_cuda_memory kind, uint64_t *address,
                        struct tsr_err *err);
    void (*release)(void *device, uint64_t address, enum tsr_cuda_memory kind);
    /* Complete on return; runs after all earlier queued work. */
    tsr_status (*put)(void *device, uint64_t to, const void *from, uint64_t bytes,
                      struct tsr_err *err);
    tsr_status (*get)(void *device, void *to, uint64_t from, uint64_t bytes, struct tsr_err *err);
    tsr_status (*launch)(void *device, void *stream, const struct tsr_cuda_launch *l,
                         struct tsr_err *err);
    tsr_status (*sync)(void *device, void *stream, struct tsr_err *err);

    /* Additional streams, and the identity of the device within the process: for CUDA the primary context.
     * stream_behind: later work on `stream` (NULL: the default one) waits for the work that is already on
     * `other`. */
    tsr_status (*stream_open)(void *device, void **stream, struct tsr_err *err);
    void (*stream_close)(void *device, void *stream); /* waits; accepts NULL */
    tsr_status (*stream_behind)(void *device, void *stream, void *other, struct tsr_err *err);
    const void *(*place)(const void *device);

    /* ---- optional, each group NULL together ---- */

    /* Launches on the default stream as one graph.  What fails leaves *graph NULL; TSR_E_UNSUPPORTED:
     * this driver has none. */
    tsr_status (*graph_make)(void *device, const struct tsr_cuda_launch *l, uint64_t n,
                             void **graph, struct tsr_err *err);
    tsr_status (*graph_run)(void *device, void *graph, struct tsr_err *err);
    void (*graph_free)(void *device, void *graph); /* accepts NULL */
    /* Launches of later graphs begin before the one before has ended, and wait for it themselves (k.h).  0: neither
     * this device nor this driver does that, and they begin one after the other.  NULL: never. */
    int (*graphs_overlap)(void *device);

    /* Code of other plugins (tessera/draft/kernel_device.h), all kernels of it; target: what its images are for.
     * code_free: accepts NULL, after the last launch. */
    const char *target;
    tsr_status (*code_load)(void *device, const struct tsr_device_code *code, void **own,
                            struct tsr_err *err);
    void (*code_free)(void *device, void *own);

    /* Products by a library.  find: TSR_E_UNSUPPORTED with a sentence where there is none; matmul: where
     * it has none for this shape.  Queued on the default stream. */
    tsr_status (*matmul_find)(void *device, struct tsr_err *err);
    tsr_status (*matmul)(void *device, const struct tsr_cuda_matmul *m, struct tsr_err *err);
    int (*has_bf16)(const void *device); /* matrix units of BF16, and mma.m16n8k16 */

    /* blas_find: TSR_E_UNSUPPORTED with a sentence where a library is missing.  The others after it;
     * queued on the default stream. */
    tsr_status (*blas_find)(void *device, struct tsr_err *err);
    tsr_status (*blas_work)(void *device, const struct tsr_cuda_blas *b, uint64_t *bytes,
                            struct tsr_err *err);
    tsr_status (*blas)(void *device, const struct tsr_cuda_blas *b, struct tsr_err *err);

    /* Events on the default stream: mark 0, mark 1, then seconds between them, once they are over. */
    tsr_status (*mark)(void *device, int which, struct tsr_err *err);
    tsr_status (*between)(void *device, double *seconds, struct tsr_err *err);

    /* Dense BF16 multiply-adds a second of all matrix units at the highest clock; 0: not known. */
    double (*bf16_rate)(const void *device);
};

extern const struct tsr_cuda_api tsr_cuda_driver; /* device_cuda.c */
extern const struct tsr_cuda_api tsr_cuda_simt;   /* simt/device_simt.c */

#endif
