/* member.h - products of one token with packed weights and int8 activations that share a loop over the threads:
 * those of tessera/draft/linears.h. */
#ifndef TSR_CPU_MEMBER_H
#define TSR_CPU_MEMBER_H

#include "site.h"
#include "weight_extra.h"

#define CPU_LINE 64u /* of a cache */

/* One of them: integers with a scale per group, or what linear_extra.c runs. */
struct tsr_cpu_member {
    int                    extra;
    struct tsr_cpu_linear  a;
    struct tsr_cpu_linear8 of_extra;
};

/* Whether an op is one of them; m has its checked arguments then. */
int tsr_cpu_member_take(const struct tsr_op *op, struct tsr_cpu_member *m);
/* Bytes of its activations. */
uint64_t tsr_cpu_member_room(const struct tsr_cpu_member *m);
/* Stores its activations in room, and returns the rest of it.  *before: the last one with room of its own; m may need the
 * same.  NULL: none. */
uint8_t *tsr_cpu_member_prepare(const struct tsr_cpu *c, struct tsr_cpu_member *m,
                                const struct tsr_cpu_member **before, uint8_t *room);
/* Its panels by units that run in any order. */
uint64_t tsr_cpu_member_units(const struct tsr_cpu_member *m);
void     tsr_cpu_member_run(const struct tsr_cpu *c, const struct tsr_cpu_member *m, uint64_t begin,
                            uint64_t end);

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
