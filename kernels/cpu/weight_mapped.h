/* weight_mapped.h - the table and the scales of tessera.table/1, for weight.c and embed.c. */
#ifndef TSR_CPU_WEIGHT_MAPPED_H
#define TSR_CPU_WEIGHT_MAPPED_H

#include "backend.h"
#include "tessera/format.h"

int tsr_cpu_is_mapped(const struct tsr_format *f);
/* Of a weight whose panels and groups are known: its table, how scales are stored, and their bytes; 0 on
 * overflow. */
int tsr_cpu_mapped_plan(struct tsr_cpu_weight *w, const struct tsr_format *f, uint64_t *bytes);
/* Their places, from `at` on. */
void tsr_cpu_mapped_place(struct tsr_cpu_weight *w, uint8_t *at);
/* Those of a panel. */
void tsr_cpu_mapped_fill(const struct tsr_cpu_weight *w, const struct tsr_weight_desc *d,
                         uint64_t panel);
/* One row as F32. */
void tsr_cpu_mapped_row(const struct tsr_cpu_weight *w, uint64_t row, float *out);

#endif
