/* product.h - products with weights, through the table that the quantizers of plugins fill for formats of their own
 * (tessera/kernel.h). Who runs products knows no format: it calls `inputs` once for an input, and `linear` for runs of
 * panels. */
#ifndef TSR_CPU_PRODUCT_H
#define TSR_CPU_PRODUCT_H

#include "backend.h"
#include "tessera/kernel.h"

#define CPU_PAIRS_FROM                                                                             \
    16u /* pairs of panels that few tokens need: fewer are too uneven for threads */

/* One for each family of formats and of activations. `self` is the weight, `prepared` its panels. Runs of rows begin on a
 * panel, those of tokens on a chunk. */
extern const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_floats;   /* any weight, act f32 */
extern const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_rounded;  /* the same, act a16 */
extern const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_fast;     /* BF16, `numerics: fast` */
extern const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_integers; /* packed codes, act a8 */
extern const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_tables;   /* W_TAB, act a8 */
extern const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_digits;   /* W_FPX, act a8 */
extern const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_llm;      /* LLM.int8, act a8 */
const struct tsr_quantizer_kernel_v1       *tsr_cpu_kernel_of(const struct tsr_cpu_weight *w,
                                                              uint32_t act, uint64_t tokens);

/* What `inputs` of these writes begins with it. */
struct tsr_cpu_inputs {
    uint64_t chunk; /* tokens that go through a panel together */
    uint64_t group; /* panels that go together */
};

struct tsr_cpu_product {
    const struct tsr_quantizer_kernel_v1 *k;
    const struct tsr_cpu_weight          *w;
    struct tsr_kernel_weight              of;  /* all rows */
    struct tsr_kernel_job                 job; /* all tokens */
};

/* All rows of w, as the table's functions take them. */
struct tsr_kernel_weight tsr_cpu_rows_of(const struct tsr_cpu_weight *w);
/* Of a LINEAR with its checked arguments; and of an op, which it checks. */
struct tsr_cpu_product tsr_cpu_product_of(const struct tsr_op       *op,
                                          const struct tsr_op_parts *parts);
tsr_status             tsr_cpu_product_view(const struct tsr_op *op, struct tsr_cpu_product *p,
                                            struct tsr_err *err);
/* Bytes of its inputs, or CPU_NO_ROOM; and the step that stores them in room. */
#define CPU_NO_ROOM (UINT64_MAX / 8) /* a few of them have a sum */
uint64_t   tsr_cpu_product_room(const struct tsr_cpu_product *p);
tsr_status tsr_cpu_product_prepare(struct tsr_cpu_product *p, uint8_t *room, struct tsr_err *err);
/* Whether the inputs of b are those of p, which has the same input. */
int tsr_cpu_product_alike(const struct tsr_cpu_product *b, const struct tsr_cpu_product *p);
/* Its panels for all tokens, by units that run in any order; from: of so many pairs on, panels go in pairs. */
uint64_t   tsr_cpu_product_units(const struct tsr_cpu_product *p, uint64_t from);
tsr_status tsr_cpu_product_run(const struct tsr_cpu_product *p, uint64_t from, uint64_t begin,
                               uint64_t end);
/* n panels with the tokens [t0,t1), which are of one chunk. */
tsr_status tsr_cpu_product_panels(const struct tsr_cpu_product *p, uint64_t panel, uint64_t n,
                                  uint64_t t0, uint64_t t1);

/* ---- for the tables ------------------------------------------------------------------------------ */

/* weight.c: the functions that all of them have. */
tsr_status tsr_cpu_prepared(const void *self, const struct tsr_kernel_weight *w, uint64_t *bytes,
                            struct tsr_err *err);
tsr_status tsr_cpu_prepare(const void *self, const struct tsr_kernel_weight *w, void *to,
                           struct tsr_err *err);
tsr_status tsr_cpu_no_scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err);

#define TSR_CPU_KERNEL                                                                             \
    .struct_size = sizeof(struct tsr_quantizer_kernel_v1), .scratch = tsr_cpu_no_scratch,          \
    .prepared = tsr_cpu_prepared, .prepare = tsr_cpu_prepare

/* Panels and tokens of a job. */
struct tsr_cpu_part {
    uint64_t panel, n, t0, t1;
};
static inline struct tsr_cpu_part cpu_part(const struct tsr_kernel_job *job)
{
    return (struct tsr_cpu_part){ job->weight->first_row / PANEL,
                                  cpu_ceil(job->weight->n_rows, PANEL), job->first,
                                  job->first + job->n };
}

/* The kernels count rows and tokens from the first of all. */
static inline const float *cpu_first_in(const struct tsr_kernel_job *job)
{
    return job->in - job->first * job->in_stride;
}
static inline const float *cpu_first_bias(const struct tsr_kernel_job *job)
{
    return job->bias ? job->bias - job->weight->first_row : NULL;
}
static inline float *cpu_first_out(const struct tsr_kernel_job *job)
{
    return job->out - job->first * job->out_stride - job->weight->first_row;
}

/* Adds n * size bytes, rounded up to 64, to *total; the old total is the place. */
static inline int cpu_reserve(uint64_t *total, uint64_t n, uint64_t size, uint64_t *place)
{
    uint64_t b;
    *place = *total;
    return !__builtin_mul_overflow(n, size, &b) && b < (UINT64_C(1) << 60) &&
           !__builtin_add_overflow(*total, (b + 63) / 64 * 64, total);
}

#endif
