/* The memory of a built problem: blocks that live as long as it. */
#include "plan/search/build_internal.h"

#include "base/mem.h"

#include <stdlib.h>

void *tsr_plan_build_alloc(struct tsr_plan_built *b, uint64_t n, uint64_t size)
{
    struct tsr_plan_build_pool *block = tsr_new(1, sizeof *block);
    if (block)
        block->data = tsr_new(n, size);
    if (!block || !block->data) {
        free(block);
        return NULL;
    }
    b->bytes += n * size;
    block->next = b->pool;
    b->pool = block;
    return block->data;
}

void tsr_plan_built_destroy(struct tsr_plan_built *b)
{
    if (!b)
        return;
    for (struct tsr_plan_build_pool *at = b->pool, *next; at; at = next) {
        next = at->next;
        free(at->data);
        free(at);
    }
    tsr_plan_meshes_free(&b->meshes);
    free(b);
}
