/* weight_affine.h - the scales and minimums of tessera.int/2, for weight.c and embed.c. */
#ifndef TSR_CPU_WEIGHT_AFFINE_H
#define TSR_CPU_WEIGHT_AFFINE_H

#include "backend.h"
#include "tessera/format.h"

int tsr_cpu_is_affine(const struct tsr_format *f);
/* Of a weight whose panels and groups are known: how they are stored, and their bytes; 0 on overflow. */
int tsr_cpu_affine_plan(struct tsr_cpu_weight *w, const struct tsr_format *f, uint64_t *bytes);
/* Their places, from `at` on. */
void tsr_cpu_affine_place(struct tsr_cpu_weight *w, uint8_t *at);
/* Those of a panel. */
void tsr_cpu_affine_fill(const struct tsr_cpu_weight *w, const struct tsr_weight_desc *d,
                         uint64_t panel);
/* One row as F32. */
void tsr_cpu_affine_row(const struct tsr_cpu_weight *w, uint64_t row, float *out);

#endif
