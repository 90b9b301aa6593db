/* arena.h - memory of weights that are smaller than a huge page, such as those of experts. */
#ifndef TSR_CPU_ARENA_H
#define TSR_CPU_ARENA_H

#include "backend.h"

/* A piece of at least `bytes`, aligned to 64, or NULL.  *chunk is what it lies in, NULL if it lies alone; it is given
 * back with the piece. */
uint8_t *tsr_cpu_arena_get(struct tsr_cpu *c, uint64_t bytes, struct tsr_cpu_chunk **chunk);
void tsr_cpu_arena_put(struct tsr_cpu *c, uint8_t *p, uint64_t bytes, struct tsr_cpu_chunk *chunk);

#endif
