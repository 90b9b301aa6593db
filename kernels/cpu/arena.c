/* arena.c - weights that are smaller than a huge page lie side by side in chunks of such pages.
 *
 * In pages of 4 KiB the experts of a token are read at the rate of the page walks: every token takes other experts, so
 * their pages are in no TLB.  Pieces of a chunk are cut one behind the other and never used again; a chunk is released
 * with its last piece.  What is not yet cut is not touched, so it takes no memory. */
#include "arena.h"

#define CHUNK (16 * CPU_HUGE_PAGE)
#define LEAST (CPU_HUGE_PAGE / 8) /* smaller ones lie alone: many of a layer are in the TLB */

struct tsr_cpu_chunk {
    uint8_t *data;
    uint64_t used, pieces;
};

static void release(struct tsr_cpu *c, struct tsr_cpu_chunk *k)
{
    c->mem->put(c->host, k->data, CHUNK);
    c->host->release(c->host->ctx, k, sizeof *k);
}

/* NULL: there is no room for as much at a time. */
static struct tsr_cpu_chunk *begin_chunk(struct tsr_cpu *c)
{
    struct tsr_cpu_chunk *k = c->host->alloc(c->host->ctx, sizeof *k, 64);
    if (!k)
        return NULL;
    *k = (struct tsr_cpu_chunk){ .data = c->mem->get(c->host, CHUNK) };
    if (k->data)
        return k;
    c->host->release(c->host->ctx, k, sizeof *k);
    return NULL;
}

uint8_t *tsr_cpu_arena_get(struct tsr_cpu *c, uint64_t bytes, struct tsr_cpu_chunk **chunk)
{
    struct tsr_cpu_chunk *k = c->chunk;
    uint64_t              whole = cpu_ceil(bytes, 64) * 64;
    *chunk = NULL;
    if (!c->mem->shared || bytes < LEAST || bytes >= CPU_HUGE_PAGE)
        return c->mem->get(c->host, bytes);
    if (!k || whole > CHUNK - k->used) {
        k = begin_chunk(c);
        if (!k)
            return c->mem->get(c->host, bytes);
        c->chunk = k;
    }
    uint8_t *p = k->data + k->used;
    k->used += whole;
    k->pieces++;
    *chunk = k;
    return p;
}

void tsr_cpu_arena_put(struct tsr_cpu *c, uint8_t *p, uint64_t bytes, struct tsr_cpu_chunk *chunk)
{
    if (!chunk) {
        c->mem->put(c->host, p, bytes);
        return;
    }
    if (--chunk->pieces > 0)
        return;
    if (c->chunk == chunk)
        c->chunk = NULL;
    release(c, chunk);
}
