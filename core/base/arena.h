/* base/arena.h - blocks of 128 KiB to 32 MiB, as weights of experts are, side by side in pages of 2 MiB.
 *
 * malloc() maps such a block alone, so that a small one, or the end of a larger one, lies in pages of 4 KiB, which
 * are slower to read.  Here address space is reserved for many blocks.  Only what is touched takes memory: the pages
 * of the blocks, and the rest of the last page of 2 MiB.  A page of 2 MiB without a block goes back to the system.
 * [any] */
#ifndef TSR_BASE_ARENA_H
#define TSR_BASE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

/* `bytes` at a multiple of align, uninitialised; NULL: not for this size or alignment, or no memory is left. */
void *tsr_arena_get(uint64_t bytes, uint64_t align);
/* With the size that get() got.  false: p is not from here. */
bool tsr_arena_put(void *p, uint64_t bytes);

#endif
