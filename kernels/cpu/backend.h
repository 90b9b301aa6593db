/* backend.h - the CPU device that implements tessera/backend.h: buffers, weights, operations. */
#ifndef TSR_CPU_BACKEND_H
#define TSR_CPU_BACKEND_H

#include "../tensor/op.h"
#include "amx.h"
#include "bf16.h"
#include "kernels.h"
#include "linalg.h"
#include "tessera/backend.h"
#include "tessera/backend_layout.h"
#include "tessera/draft/linears.h"
#include "tessera/draft/sizes.h"

/* Source of device memory. open() and close() bracket every access to it, so that an allocator may keep it
 * unreadable in between. */
struct tsr_cpu_memory {
    void *(*get)(const struct tsr_host *host, uint64_t bytes); /* aligned to 64, or NULL */
    void (*put)(const struct tsr_host *host, void *p, uint64_t bytes);
    void (*open)(void *p, uint64_t bytes);
    void (*close)(void *p, uint64_t bytes);
    int always; /* open: neither call does anything */
};
/* Memory of the host's, always open. */
extern const struct tsr_cpu_memory tsr_cpu_memory_plain;

struct tsr_cpu_buffer {
    uint8_t *data;
    uint64_t bytes;
};

struct tsr_cpu {
    const struct tsr_host             *host;
    const struct tsr_cpu_kernels      *k;
    const struct tsr_cpu_memory       *mem;
    const char                        *device;
    const struct tsr_cpu_bf16_kernels *bf16;    /* numerics: fast; else NULL */
    const struct tsr_cpu_amx_kernels  *amx;     /* else NULL */
    int                                permute; /* the CPU has AVX512-VBMI */
    uint8_t                           *scratch; /* of operations; grows */
    uint64_t                           scratch_bytes;
    struct tsr_cpu_linalg              linalg;
};

/* The table's functions. */
tsr_status  tsr_cpu_create(const struct tsr_host *host, const struct tsr_cpu_memory *mem,
                           void **self, struct tsr_err *err);
void        tsr_cpu_destroy(void *self);
tsr_status  tsr_cpu_properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err);
tsr_status  tsr_cpu_buffer_alloc(void *self, uint64_t bytes, void **buffer, struct tsr_err *err);
void        tsr_cpu_buffer_free(void *self, void *buffer);
tsr_status  tsr_cpu_upload(void *self, void *buffer, uint64_t offset, const void *src,
                           uint64_t bytes, struct tsr_err *err);
tsr_status  tsr_cpu_download(void *self, const void *buffer, uint64_t offset, void *dst,
                             uint64_t bytes, struct tsr_err *err);
tsr_status  tsr_cpu_weight_load(void *self, const struct tsr_weight_desc *w, void **weight,
                                struct tsr_err *err);
void        tsr_cpu_weight_free(void *self, void *weight);
uint64_t    tsr_cpu_weight_bytes(const void *self, const void *weight);
tsr_status  tsr_cpu_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err);
tsr_status  tsr_cpu_sync(void *self, void *stream, struct tsr_err *err);
const void *tsr_cpu_extension(const void *self, const char *id);

/* Everything of the table but create. */
#define TSR_CPU_TABLE                                                                              \
    .struct_size = sizeof(struct tsr_backend_v1), .destroy = tsr_cpu_destroy,                      \
    .properties = tsr_cpu_properties, .buffer_alloc = tsr_cpu_buffer_alloc,                        \
    .buffer_free = tsr_cpu_buffer_free, .upload = tsr_cpu_upload, .download = tsr_cpu_download,    \
    .weight_load = tsr_cpu_weight_load, .weight_free = tsr_cpu_weight_free,                        \
    .weight_bytes = tsr_cpu_weight_bytes, .run = tsr_cpu_run, .sync = tsr_cpu_sync,                \
    .extension = tsr_cpu_extension

/* ---- inside --------------------------------------------------------------- */

static inline uint64_t cpu_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t cpu_ceil(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* A loaded weight: what kernels read, and what its functions need in addition. */
struct tsr_cpu_loaded {
    struct tsr_cpu_weight         w; /* first: handles are addresses of it */
    const struct tsr_cpu         *c;
    const struct tsr_weight_desc *from; /* while its panels are filled */
};
static inline const struct tsr_cpu_loaded *cpu_loaded(const struct tsr_cpu_weight *w)
{
    return (const struct tsr_cpu_loaded *)(const void *)w;
}
static inline const struct tsr_cpu *cpu_of(const struct tsr_cpu_weight *w)
{
    return cpu_loaded(w)->c;
}

/* weight.c.  A weight over panels at `data`, aligned to 64, that stay the caller's. */
tsr_status tsr_cpu_weight_over(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                               uint64_t bytes, void **weight, struct tsr_err *err);
/* Memory of a planned weight: room for its runs, and for data_bytes, not cleared, or `data` of
 * `bytes`. */
tsr_status tsr_cpu_weight_data(struct tsr_cpu *c, const struct tsr_weight_desc *d,
                               struct tsr_cpu_weight *w, uint64_t runs, const void *data,
                               uint64_t bytes, struct tsr_err *err);
/* A weight of zeros, or NULL. */
struct tsr_cpu_weight *tsr_cpu_weight_new(const struct tsr_cpu *c, struct tsr_err *err);
/* Fills its panels from d by the `prepare` of its table (product.h); frees it after a failure. */
tsr_status tsr_cpu_weight_fill(struct tsr_cpu *c, const struct tsr_weight_desc *d,
                               struct tsr_cpu_weight *w, struct tsr_err *err);
/* The segments of a planned weight. */
void tsr_cpu_segments(struct tsr_cpu_weight *w, const struct tsr_weight_desc *d);
/* layout.c: the table of tessera/backend_layout.h. */
const struct tsr_backend_layout_v1 *tsr_cpu_layout(void);

/* Kernels for TSR_ISA or for this machine; amx: NULL without it. */
tsr_status tsr_cpu_pick(const struct tsr_cpu_kernels **k, const struct tsr_cpu_amx_kernels **amx,
                        struct tsr_err *err);

/* isa_*.c of the processor that the program is built for.  Whether k permutes bytes by tables of 128. */
int tsr_cpu_permutes(const struct tsr_cpu_kernels *k);
enum tsr_cpu_set { TSR_CPU_SCALAR, TSR_CPU_AVX2, TSR_CPU_AVX512 };
enum tsr_cpu_set tsr_cpu_set_of(const struct tsr_cpu_kernels *k);
/* Of kernels with vectors of 512 bits those of 256 bits, which the same CPU runs; of others NULL. */
const struct tsr_cpu_kernels *tsr_cpu_half(const struct tsr_cpu_kernels *k);
const char *tsr_cpu_device(const struct tsr_cpu_kernels *k, const struct tsr_cpu_amx_kernels *amx);

/* At least `bytes` of scratch, aligned to 64, until the next call. */
tsr_status tsr_cpu_scratch(struct tsr_cpu *c, uint64_t bytes, uint8_t **p, struct tsr_err *err);

/* Threads of host->parallel_for(). */
uint64_t tsr_cpu_threads(const struct tsr_host *host);
/* As host->parallel_for, but inline when the whole is below `small` units of work. */
tsr_status tsr_cpu_for(const struct tsr_cpu *c, uint64_t n, uint64_t unit,
                       tsr_status (*body)(void *, uint64_t, uint64_t), void *arg);

/* A checked view: rows start at p, stride bytes apart. */
struct tsr_view {
    uint8_t *p;
    uint64_t stride, rows, cols;
};
struct tsr_view tsr_cpu_at(const struct tsr_op_part *part);
/* Checks an operation of tessera/backend.h (kernels/tensor/op.h). */
tsr_status tsr_cpu_check(const struct tsr_op *op, struct tsr_op_parts *parts, struct tsr_err *err);
/* One tensor of an operation outside that list: t must be `dtype`; rows, cols: required sizes, or 0 for
 * any (> 0). */
tsr_status tsr_cpu_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                        const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                        struct tsr_err *err);

/* The sizes of a weight without allocating it, from a description whose codes and meta may be NULL; and
 * the bytes of a loaded weight. */
tsr_status tsr_cpu_weight_outline(const struct tsr_weight_desc *d, struct tsr_cpu_weight *w,
                                  struct tsr_err *err);
uint64_t   tsr_cpu_weight_taken(const struct tsr_cpu_weight *w);
/* Scratch of operations; 0 where it overflows. */
uint64_t tsr_cpu_linear_scratch(const struct tsr_cpu_weight *w, uint32_t act, uint64_t tokens);
uint64_t tsr_cpu_attention_scratch(uint64_t tokens, uint64_t positions, uint32_t heads,
                                   uint32_t kv_heads, uint32_t head_dim);

/* The table of tessera/draft/sizes.h. */
const struct tsr_sizes_v1 *tsr_cpu_sizes(void);
/* The table of tessera/draft/linears.h. */
const struct tsr_backend_linears_v1 *tsr_cpu_linears(void);

/* ops.c: one row of ACT; whether an op is one, with its checked arguments. */
struct tsr_cpu_act {
    const struct tsr_op *op;
    float               *out;
    const float         *a, *b; /* b may be NULL */
    uint64_t             n;
};
void tsr_cpu_act_run(const struct tsr_cpu *c, const struct tsr_cpu_act *a);
int  tsr_cpu_act_take(const struct tsr_op *op, struct tsr_cpu_act *a);

/* Opens or closes everything that an operation names, and a tensor's buffer; NULL is fine. */
void tsr_cpu_touch_op(const struct tsr_op *op, void (*how)(void *p, uint64_t bytes));
void tsr_cpu_touch(const struct tsr_tensor *t, void (*how)(void *p, uint64_t bytes));

tsr_status tsr_cpu_linear_op(struct tsr_cpu *c, const struct tsr_op *op,
                             const struct tsr_op_parts *parts, struct tsr_err *err);
tsr_status tsr_cpu_embed_op(struct tsr_cpu *c, const struct tsr_op *op,
                            const struct tsr_op_parts *parts, struct tsr_err *err);
tsr_status tsr_cpu_attention_op(struct tsr_cpu *c, const struct tsr_op *op,
                                const struct tsr_op_parts *parts, struct tsr_err *err);
tsr_status tsr_cpu_kv_store_op(struct tsr_cpu *c, const struct tsr_op *op,
                               const struct tsr_op_parts *parts, struct tsr_err *err);
/* One row of a weight, widened. */
void tsr_cpu_weight_row(const struct tsr_cpu_weight *w, uint64_t row, float *out);

#endif
