/* member.h - products of one token with packed weights and int8 activations that share a loop over the threads:
 * those of tessera/draft/linears.h. */
#ifndef TSR_CPU_MEMBER_H
#define TSR_CPU_MEMBER_H

#include "product.h"

#define CPU_LINE 64u /* of a cache */

/* Whether an op is one of them; m has its checked arguments then. */
int tsr_cpu_member_take(const struct tsr_op *op, struct tsr_cpu_product *m);
/* Stores its inputs in room, and returns the rest of it.  *before: the last one with room of its own; m may need the same.
 * NULL: none. */
uint8_t *tsr_cpu_member_prepare(struct tsr_cpu_product *m, const struct tsr_cpu_product **before,
                                uint8_t *room);
/* Its units of tsr_cpu_product_units(), of one pair on. */
void tsr_cpu_member_run(const struct tsr_cpu_product *m, uint64_t begin, uint64_t end);

/* gated.c: of the table of tessera/draft/linears.h. */
struct tsr_gated_op;
tsr_status tsr_cpu_gated(void *self, void *stream, const struct tsr_gated_op *g, uint32_t n,
                         struct tsr_err *err);

static inline void cpu_fetch(const void *p, uint64_t bytes)
{
    for (uint64_t at = 0; p && at < bytes; at += CPU_LINE)
        __builtin_prefetch((const uint8_t *)p + at);
}

#endif
