/* simt_order.c - which blocks of a launch come before the current one, by a counter or a flag in global memory.
 *
 * A block publishes what all its threads did before a barrier if a thread then calls __threadfence() and does an atomic
 * on a word, with no barrier between. A later atomic on that word by a thread of another block, and a __threadfence()
 * after it, let that thread see it, and after the next barrier its whole block. This is the order that PTX's memory
 * model gives bar.sync, fence.acq_rel.gpu and relaxed atomics ("Memory Consistency Model"); an order without a barrier
 * or without one of the fences counts as none here.
 */
#include <stdlib.h>
#include <string.h>

#include "simt_block.h"

/* A block's atomic after a fence. */
struct release {
    const void *word;
    uint64_t    block;
    uint32_t    barriers; /* of the block before it */
};

/* What the current block has seen. */
struct seen {
    uint64_t block, by; /* by: the thread */
    uint32_t barriers;  /* those of the other block whose accesses came before */
    uint32_t since;     /* barriers of this block at the fence */
};

static struct {
    struct release *releases;
    uint64_t        n_releases, room_releases, launch;
    struct seen    *seen;
    uint64_t        n_seen, room_seen, block;
    struct {
        uint64_t    thread;   /* that the rest is about */
        const void *word;     /* of its latest atomic, which no fence follows yet */
        uint64_t    releases; /* that were there before that atomic */
        uint32_t    fence;    /* 1 + barriers at its latest fence; 0: none */
    } of[SIMT_THREADS_MAX];
} order;

static uint64_t block_of(const struct simt_who *me)
{
    return (me->thread - me->launch) / me->block_threads;
}

/* Forgets earlier launches and the block before; the place of the thread. */
static uint32_t enter(const struct simt_who *me)
{
    const uint32_t i = (uint32_t)((me->thread - me->launch) % me->block_threads);
    if (order.launch != me->launch) {
        order.launch = me->launch;
        order.n_releases = order.n_seen = 0;
        order.block = UINT64_MAX;
    }
    if (order.block != block_of(me)) {
        order.block = block_of(me);
        order.n_seen = 0;
    }
    if (order.of[i].thread != me->thread) {
        memset(&order.of[i], 0, sizeof order.of[i]);
        order.of[i].thread = me->thread;
    }
    return i;
}

static void *grown(void *p, uint64_t n, uint64_t *room, uint64_t size)
{
    if (n < *room)
        return p;
    *room = *room ? *room * 2 : 64;
    p = realloc(p, *room * size);
    if (!p)
        simt_stop("out of memory for the order of blocks");
    return p;
}

void simt_fence(void)
{
    struct simt_who me;
    if (!simt_inside(&me))
        return;
    const uint32_t i = enter(&me);
    order.of[i].fence = 1 + me.barriers;
    for (uint64_t r = 0; order.of[i].word && r < order.of[i].releases; r++) {
        if (order.releases[r].word != order.of[i].word || order.releases[r].block == order.block)
            continue;
        order.seen = grown(order.seen, order.n_seen, &order.room_seen, sizeof *order.seen);
        order.seen[order.n_seen++] = (struct seen){ .block = order.releases[r].block,
                                                    .by = me.thread,
                                                    .barriers = order.releases[r].barriers,
                                                    .since = me.barriers };
    }
    order.of[i].word = NULL;
}

void simt_order_atomic(const void *p)
{
    struct simt_who     me;
    struct simt_region *r;
    if (!simt_inside(&me) || !(r = simt_region_of(p)) || r->shared)
        return;
    const uint32_t i = enter(&me);
    order.of[i].word = p;
    order.of[i].releases = order.n_releases;
    if (order.of[i].fence != 1 + me.barriers)
        return;
    order.releases =
        grown(order.releases, order.n_releases, &order.room_releases, sizeof *order.releases);
    order.releases[order.n_releases++] =
        (struct release){ .word = p, .block = order.block, .barriers = me.barriers };
}

bool simt_order_before(const struct simt_who *me, uint64_t block, uint32_t barriers)
{
    if (order.launch != me->launch || order.block != block_of(me))
        return false;
    for (uint64_t i = 0; i < order.n_seen; i++)
        if (order.seen[i].block == block && barriers < order.seen[i].barriers &&
            (order.seen[i].by == me->thread || order.seen[i].since < me->barriers))
            return true;
    return false;
}

void simt_wait_for_previous(void)
{
    simt_now->fibers[simt_now->current].waited = true;
}
