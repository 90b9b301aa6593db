/* model/own.h - rows in a plugin's own format: decoded by the plugin that packed them, whole units at a time.
 *
 * The bytes stay packed in memory.  Whoever needs values gets a block of rows; the engine multiplies with such
 * blocks (engine/device_own.c).  This folder knows no plugin: the registry's owner sets what decodes.
 */
#ifndef TSR_MODEL_OWN_H
#define TSR_MODEL_OWN_H

#include "model/packed.h"
#include "tessera/draft/kernel_device.h"

/* How the plugin that packed a matrix multiplies with it (tessera/kernel.h). */
enum tsr_model_own_kernel {
    TSR_OWN_DECODED,  /* not at all: a product decodes rows */
    TSR_OWN_WHOLE,    /* whole rows alone */
    TSR_OWN_SEGMENTS, /* the segments of docs/decisions/numerics.md, each by itself */
};

/* A product: out[t][r] for n tokens, and for the rows of units [unit, unit + units) of p. */
struct tsr_model_own_product {
    enum tsr_model_own_kernel how;
    uint64_t unit, units, rows;        /* rows: of the units, without those that the matrix lacks */
    uint64_t n, in_stride, out_stride; /* strides in numbers */
    const float
               *in; /* [n, p->cols]; TSR_OWN_WHOLE: [n, p->own.cols], zeros where p has no column */
    const void *inputs; /* of tsr_model_own_inputs() for n and in */
    float      *out;
};

/* The same for all units of p by its code for a device: addresses there, strides in numbers; out [segments, n, rows]. */
struct tsr_model_own_launch {
    enum tsr_model_own_kernel how;
    uint64_t                  rows, n; /* rows: of all units */
    uint64_t                  codes, meta, in, in_stride, out, scratch;
};

/* What takes such bytes apart.  All [any]. */
struct tsr_model_own_functions {
    /* Units [unit, unit + n) of p, n > 0, into dst [rows, p->own.cols]; rows are those of the units, without the rows
     * that the last unit of the whole matrix lacks. */
    tsr_status (*decode)(const struct tsr_model_packed *p, uint64_t unit, uint64_t n, uint64_t rows,
                         float *dst, struct tsr_err *err);
    tsr_status (*kernel)(const struct tsr_model_packed *p, enum tsr_model_own_kernel *how,
                         struct tsr_err *err);
    /* What the kernel makes of all units, once: *made is the caller's; NULL: it multiplies with the units as they are. */
    tsr_status (*prepare)(const struct tsr_model_packed *p, enum tsr_model_own_kernel how,
                          void **made, uint64_t *bytes, struct tsr_err *err);
    /* The same of the inputs n, in and in_stride of x. */
    tsr_status (*inputs)(const struct tsr_model_packed *p, const struct tsr_model_own_product *x,
                         void **made, struct tsr_err *err);
    tsr_status (*multiply)(const struct tsr_model_packed *p, const struct tsr_model_own_product *x,
                           struct tsr_err *err);
    /* *code NULL: there is none for the target. */
    tsr_status (*device_code)(const struct tsr_model_packed *p, const char *target,
                              const struct tsr_device_code **code, struct tsr_err *err);
    /* Scratch for n tokens; TSR_E_UNSUPPORTED: multiply() takes these. */
    tsr_status (*device_scratch)(const struct tsr_model_packed *p, enum tsr_model_own_kernel how,
                                 uint64_t n, uint64_t *bytes, struct tsr_err *err);
    tsr_status (*device_launch)(const struct tsr_model_packed     *p,
                                const struct tsr_model_own_launch *x, struct tsr_device_launch *l,
                                struct tsr_err *err);
};
/* Of this process; NULL: none.  f is borrowed.  [setup] */
void       tsr_model_own_set(const struct tsr_model_own_functions *f);
tsr_status tsr_model_own_kernel_of(const struct tsr_model_packed *p, enum tsr_model_own_kernel *how,
                                   struct tsr_err *err);
/* Lets the kernel prepare p, whose units leave memory then; not if rows of it are decoded, too.  how is that of
 * kernel_of().  [setup] */
tsr_status tsr_model_own_prepare(struct tsr_model_packed *p, enum tsr_model_own_kernel how,
                                 bool rows, struct tsr_err *err);
/* how is that of kernel_of(), and not TSR_OWN_DECODED; so in the two functions after it.  *made: for free(); NULL if the
 * kernel takes inputs as they are. */
tsr_status tsr_model_own_inputs(const struct tsr_model_packed      *p,
                                const struct tsr_model_own_product *x, void **made,
                                struct tsr_err *err);
tsr_status tsr_model_own_multiply(const struct tsr_model_packed      *p,
                                  const struct tsr_model_own_product *x, struct tsr_err *err);
/* Functions of the same names above.  how is that of kernel_of(), and not TSR_OWN_DECODED. */
tsr_status tsr_model_own_device_code(const struct tsr_model_packed *p, const char *target,
                                     const struct tsr_device_code **code, struct tsr_err *err);
tsr_status tsr_model_own_device_scratch(const struct tsr_model_packed *p,
                                        enum tsr_model_own_kernel how, uint64_t n, uint64_t *bytes,
                                        struct tsr_err *err);
tsr_status tsr_model_own_device_launch(const struct tsr_model_packed     *p,
                                       const struct tsr_model_own_launch *x,
                                       struct tsr_device_launch *l, struct tsr_err *err);
/* Columns of a segment of p, which has at most eight. */
uint64_t tsr_model_own_segment(const struct tsr_model_packed *p);

/* Rows [first, first + rows) of p, which are there, into dst [rows, p->cols].  TSR_E_INPUT for a value that is not
 * finite.  [any] */
tsr_status tsr_model_own_rows(const struct tsr_model_packed *p, uint64_t first, uint64_t rows,
                              float *dst, struct tsr_err *err);
/* p, which is there, as dense values, for containers that have no such format: a copy of p that owns as->dense alone,
 * also after a failure. */
tsr_status tsr_model_own_decoded(const struct tsr_model_packed *p, struct tsr_model_packed *as,
                                 struct tsr_err *err);
/* Rows of cols columns that a product decodes together: about 1 MiB of them, which stays in a core's cache between
 * decoding and multiplying, in whole units of `unit` rows. */
uint64_t tsr_model_own_block(uint64_t unit, uint64_t cols);

#endif
