/* weight_extra.h - the weights of extra.h, for weight.c, linear.c and embed.c. */
#ifndef TSR_CPU_WEIGHT_EXTRA_H
#define TSR_CPU_WEIGHT_EXTRA_H

#include "backend.h"

/* True for tessera.lut/1 and tessera.mx/1, which tsr_cpu_extra_load() loads: from d, which was checked,
 * or over panels at `data` that stay the caller's. */
int        tsr_cpu_extra_takes(const struct tsr_weight_desc *d);
tsr_status tsr_cpu_extra_load(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                              uint64_t bytes, void **weight, struct tsr_err *err);
/* The same without memory or data: see tsr_cpu_weight_outline(). */
tsr_status tsr_cpu_extra_outline(const struct tsr_weight_desc *d, struct tsr_cpu_weight *w,
                                 struct tsr_err *err);
/* The panels of one of W_TAB or W_FPX, to w->data; w->from has its rows. */
tsr_status tsr_cpu_extra_fill(const struct tsr_cpu_weight *w);
/* weight_integers.c: the MX elements that run as tessera.int/1, and the same of them. */
int        tsr_cpu_is_integers(const struct tsr_weight_desc *d);
tsr_status tsr_cpu_integers_load(struct tsr_cpu *c, const struct tsr_weight_desc *d,
                                 const void *data, uint64_t bytes, void **weight,
                                 struct tsr_err *err);
tsr_status tsr_cpu_integers_outline(const struct tsr_weight_desc *d, struct tsr_cpu_weight *w,
                                    struct tsr_err *err);
/* The LLM.int8 part of an int format in a weight. */
void tsr_cpu_extra_int(struct tsr_cpu_weight *w, const struct tsr_format *f);
/* One row of W_TAB or W_FPX as F32. */
void tsr_cpu_extra_row(const struct tsr_cpu_weight *w, uint64_t row, float *out);

/* The act that a weight of extra.h runs with when the caller requests `act`: a8 becomes f32 if the format
 * has no integers. */
uint32_t tsr_cpu_extra_act(const struct tsr_cpu_weight *w, uint32_t act);

#endif
