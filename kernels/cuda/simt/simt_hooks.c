/* simt_hooks.c - sees each access to memory of a kernel that was compiled with -fsanitize=thread:
 * the compiler calls the functions below, which are ours; nothing of that sanitizer's library is
 * linked.
 *
 * An access must lie in a buffer or in shared memory.  Two accesses to a byte, one of them a write
 * and not both atomic, must be ordered: by the same thread, by a barrier of the block between them,
 * or by an operation of the whole warp.  Different blocks of a launch are ordered by simt_order.c alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simt.h"
#include "simt_trace.h"

/* The last write of a byte, and the last read; `many`: several threads read since. */
struct simt_cell {
    uint64_t writer, reader;
    uint32_t w_barriers, w_warps, r_barriers, r_warps;
    bool     w_atomic, many, blocks; /* blocks: the many are of several blocks */
};

static bool hooked;

bool simt_hooked(void)
{
    return hooked;
}

static uint64_t block_of(const struct simt_who *me, uint64_t thread)
{
    return (thread - me->launch) / me->block_threads;
}

/* An access that no longer matters: of an earlier launch, or of another block's shared memory.  Nor does one of a launch
 * that began later and runs beside this one: what flags order is compared by its results. */
static bool is_past(const struct simt_who *me, const struct simt_region *r, uint64_t thread)
{
    return thread < me->launch || thread >= me->end ||
           (r->shared && block_of(me, thread) != block_of(me, me->thread));
}

/* Whether that access comes before this one in every schedule. */
static bool ordered(const struct simt_who *me, const struct simt_region *r, uint64_t thread,
                    uint32_t barriers, uint32_t warps)
{
    if (thread == me->thread || is_past(me, r, thread))
        return true;
    if (block_of(me, thread) != block_of(me, me->thread))
        return simt_order_before(me, block_of(me, thread), barriers);
    if (barriers < me->barriers)
        return true;
    uint64_t mine = (me->thread - me->launch) % me->block_threads / 32;
    uint64_t other = (thread - me->launch) % me->block_threads / 32;
    return mine == other && warps < me->warps;
}

static void race(const struct simt_who *me, const char *what, uint64_t other, const char *how,
                 const struct simt_region *r, const void *p)
{
    char text[200];
    other -= me->launch;
    (void)snprintf(text, sizeof text,
                   "it %s byte %llu of %llu that thread %llu of block %llu %s, with no barrier "
                   "between them",
                   what, (unsigned long long)((const uint8_t *)p - r->base),
                   (unsigned long long)r->bytes, (unsigned long long)(other % me->block_threads),
                   (unsigned long long)(other / me->block_threads), how);
    simt_report(text);
}

static void check_read(const struct simt_who *me, struct simt_cell *c, bool atomic,
                       const struct simt_region *r, const void *p)
{
    if (!(atomic && c->w_atomic) && !ordered(me, r, c->writer, c->w_barriers, c->w_warps))
        race(me, "reads", c->writer, "writes", r, p);
    if (atomic)
        return;
    if (is_past(me, r, c->reader)) {
        c->many = c->blocks = false;
    } else if (c->reader != me->thread) {
        bool after = ordered(me, r, c->reader, c->r_barriers, c->r_warps);
        c->many = !after;
        c->blocks = !after && (c->blocks || block_of(me, c->reader) != block_of(me, me->thread));
    } else if (!c->blocks && c->r_barriers < me->barriers) {
        c->many = false; /* the others of its block have read before that barrier */
    }
    c->reader = me->thread;
    c->r_barriers = me->barriers;
    c->r_warps = me->warps;
}

static void check_write(const struct simt_who *me, struct simt_cell *c, bool atomic,
                        const struct simt_region *r, const void *p)
{
    if (!(atomic && c->w_atomic) && !ordered(me, r, c->writer, c->w_barriers, c->w_warps))
        race(me, "writes", c->writer, "writes", r, p);
    bool before = is_past(me, r, c->reader);
    /* of many readers one is not this thread: only a barrier of their block orders them all */
    if (!before && (!ordered(me, r, c->reader, c->r_barriers, c->r_warps) || c->blocks ||
                    (c->many && c->r_barriers >= me->barriers && c->r_warps >= me->warps)))
        race(me, "writes", c->reader, "reads", r, p);
    if (!atomic) /* all readers are in order before it, and later writers after it */
        c->many = c->blocks = false;
    c->writer = me->thread;
    c->w_barriers = me->barriers;
    c->w_warps = me->warps;
    c->w_atomic = atomic;
}

/* The launches before may still run. */
static void check_early(const struct simt_who *me, const struct simt_cell *c, bool write,
                        const struct simt_region *r, const void *p)
{
    char text[160];
    if (r->shared || me->waited || (!write && (!c->writer || c->writer >= me->launch)))
        return;
    (void)snprintf(text, sizeof text,
                   "it %s byte %llu of %llu%s, and has not waited for the launches before",
                   write ? "writes" : "reads", (unsigned long long)((const uint8_t *)p - r->base),
                   (unsigned long long)r->bytes, write ? "" : " that a kernel has written");
    simt_report(text);
}

void simt_access(const void *p, uint64_t bytes, bool write, bool atomic)
{
    struct simt_who me;
    if (!hooked || !simt_inside(&me) || simt_own_memory(p))
        return;
    struct simt_region *r = simt_region_of(p);
    const uint8_t      *b = p;
    if (!r || bytes > r->bytes - (uint64_t)(b - r->base)) {
        char text[128];
        (void)snprintf(text, sizeof text, "it %s %llu bytes that lie in no buffer",
                       write ? "writes" : "reads", (unsigned long long)bytes);
        simt_stop(text); /* the access itself must not happen */
    }
    if (!r->cells) {
        r->cells = calloc(r->bytes, sizeof *r->cells);
        if (!r->cells)
            simt_stop("out of memory for the shadow of a buffer");
    }
    if (write && !atomic)
        simt_weak_wrote(&me, p, bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        struct simt_cell *c = &r->cells[(uint64_t)(b - r->base) + i];
        check_early(&me, c, write, r, b + i);
        if (write)
            check_write(&me, c, atomic, r, b + i);
        else
            check_read(&me, c, atomic, r, b + i);
    }
}

#ifndef SIMT_TSAN /* which answers the compiler's calls itself */

static void hook(const void *p, uint64_t bytes, bool write, const void *place)
{
    struct simt_who me;
    hooked = true;
    if (!simt_inside(&me) || simt_own_memory(p))
        return;
    simt_maybe_switch();
    simt_access(p, bytes, write, false);
    simt_trace_access(p, bytes, write, place);
}

/* ---- functions that the compiler calls -------------------------------------------- */

/* They are the compiler's names, which C leaves to it. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wreserved-identifier"
#endif

void __tsan_init(void)
{
}
void __tsan_func_entry(void *pc)
{
    (void)pc;
}
void __tsan_func_exit(void)
{
}

#define HOOK(bytes)                                                                                \
    void __tsan_read##bytes(void *p)                                                               \
    {                                                                                              \
        hook(p, bytes, false, __builtin_return_address(0));                                        \
    }                                                                                              \
    void __tsan_write##bytes(void *p)                                                              \
    {                                                                                              \
        hook(p, bytes, true, __builtin_return_address(0));                                         \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *p)                                                     \
    {                                                                                              \
        hook(p, bytes, false, __builtin_return_address(0));                                        \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *p)                                                    \
    {                                                                                              \
        hook(p, bytes, true, __builtin_return_address(0));                                         \
    }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)

void __tsan_read_range(void *p, unsigned long bytes)
{
    hook(p, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, unsigned long bytes)
{
    hook(p, bytes, true, __builtin_return_address(0));
}
void *__tsan_memcpy(void *to, const void *from, unsigned long bytes)
{
    hook(from, bytes, false, __builtin_return_address(0));
    hook(to, bytes, true, __builtin_return_address(0));
    return memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int value, unsigned long bytes)
{
    hook(to, bytes, true, __builtin_return_address(0));
    return memset(to, value, bytes);
}
void *__tsan_memmove(void *to, const void *from, unsigned long bytes)
{
    hook(from, bytes, false, __builtin_return_address(0));
    hook(to, bytes, true, __builtin_return_address(0));
    return memmove(to, from, bytes);
}

#endif
