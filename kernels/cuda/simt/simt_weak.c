/* simt_weak.c - memory of one device that another one sees, in a weak order.
 *
 * A device's view of another's memory is a copy of it that is not up to date.  A write of a kernel is sent to the views by
 * a system-wide fence after it, of the same thread or with a barrier of the block between, or by the end of its launch. A
 * view takes what was sent at a system-wide fence of a thread of the viewing device, and when a launch begins there.
 * Flags (simt_flag_raise()) are in all views at once.  At each look at a flag and each raising of one, the schedule draws
 * single writes that are sent or taken early, which a device may do at any time.
 *
 * So where a fence is missing, at the side that writes or at the one that reads, some schedule gives old numbers.  Only
 * the memory hooks see writes (simt_hooks.c); plain writes to a view are errors. */
#include "simt_block.h"

#include <stdlib.h>
#include <string.h>

/* What a kernel has written, or what is on its way to a view. */
struct range {
    uint64_t at, bytes, thread, launch;
    uint32_t block_threads, barriers;
};

struct ranges {
    struct range *r;
    uint64_t      n, room;
};

struct view {
    struct view        *next;
    struct simt_region *of, *copy;
    uint32_t            device;
    struct ranges       coming;
};

static struct view  *views;
static struct ranges written; /* by kernels, to memory that has views; at: an address of the host */

static void add(struct ranges *to, const struct range *r)
{
    struct range *last = to->n ? &to->r[to->n - 1] : NULL;
    if (last && last->thread == r->thread && last->barriers == r->barriers &&
        last->at + last->bytes == r->at) {
        last->bytes += r->bytes;
        return;
    }
    if (!to->r || to->n == to->room) {
        const uint64_t room = to->room ? 2 * to->room : 256;
        struct range  *more = realloc(to->r, room * sizeof *more);
        if (!more)
            abort(); /* of a test */
        to->r = more;
        to->room = room;
    }
    to->r[to->n++] = *r;
}

static void drop(struct ranges *from, uint64_t i)
{
    from->r[i] = from->r[--from->n];
}

static bool in(const struct simt_region *r, uint64_t at)
{
    const uint64_t base = (uint64_t)(uintptr_t)r->base;
    return at >= base && at - base < r->bytes;
}

uint64_t simt_view(uint64_t address, uint32_t device)
{
    struct simt_region *of = simt_region_of((const void *)(uintptr_t)(address ^ SIMT_KEY));
    struct view        *v = of ? calloc(1, sizeof *v) : NULL;
    const uint64_t      at = v ? simt_alloc(of->bytes) : 0;
    if (!at) {
        free(v);
        return 0;
    }
    v->of = of;
    v->copy = simt_region_of((const void *)(uintptr_t)(at ^ SIMT_KEY));
    v->device = device;
    memcpy(v->copy->base, of->base, of->bytes);
    v->next = views;
    views = v;
    return at;
}

void simt_view_close(uint64_t address)
{
    for (struct view **at = &views; *at; at = &(*at)->next) {
        struct view *v = *at;
        if (((uint64_t)(uintptr_t)v->copy->base ^ SIMT_KEY) != address)
            continue;
        *at = v->next;
        free(v->coming.r);
        free(v);
        simt_free(address);
        break;
    }
    if (!views) {
        free(written.r);
        written = (struct ranges){ .r = NULL };
    }
}

static const struct view *view_at(uint64_t at)
{
    const struct view *v = views;
    while (v && !in(v->copy, at))
        v = v->next;
    return v;
}

void *simt_weak_origin(const void *p)
{
    const uint64_t     at = (uint64_t)(uintptr_t)p;
    const struct view *v = view_at(at);
    return (void *)(uintptr_t)(v ? at - (uint64_t)(uintptr_t)v->copy->base +
                                       (uint64_t)(uintptr_t)v->of->base
                                 : at);
}

void simt_weak_wrote(const struct simt_who *me, const void *p, uint64_t bytes)
{
    const struct range r = { (uint64_t)(uintptr_t)p, bytes,       me->thread, me->launch,
                             me->block_threads,      me->barriers };
    if (views && view_at(r.at))
        simt_stop("it writes to memory of another device, which only flags may be");
    for (const struct view *v = views; v; v = v->next)
        if (in(v->of, r.at)) {
            add(&written, &r);
            return;
        }
}

/* On its way to all views. */
static void send(uint64_t i)
{
    const struct range r = written.r[i];
    drop(&written, i);
    for (struct view *v = views; v; v = v->next)
        if (in(v->of, r.at))
            add(&v->coming, &r);
}

/* What is there by now may be newer, which is no fault of the order. */
static void receive(struct view *v, uint64_t i)
{
    const struct range r = v->coming.r[i];
    const uint64_t     at = r.at - (uint64_t)(uintptr_t)v->of->base;
    drop(&v->coming, i);
    memcpy(v->copy->base + at, v->of->base + at, r.bytes);
}

static void receive_all(uint32_t device)
{
    for (struct view *v = views; v; v = v->next)
        while (v->device == device && v->coming.n)
            receive(v, v->coming.n - 1);
}

static uint64_t block_of(uint64_t thread, const struct range *r)
{
    return (thread - r->launch) / r->block_threads;
}

void simt_fence_system(void)
{
    struct simt_who me;
    simt_fence();
    if (!views || !simt_inside(&me))
        return;
    for (uint64_t i = written.n; i > 0; i--) {
        const struct range *r = &written.r[i - 1];
        if (r->launch == me.launch && block_of(r->thread, r) == block_of(me.thread, r) &&
            (r->thread == me.thread || r->barriers < me.barriers))
            send(i - 1);
    }
    receive_all(simt_now->launch->device);
}

void simt_weak_drawn(void)
{
    struct simt_resident *l = simt_now->resident;
    if (!views || !l->l.seed)
        return;
    for (uint64_t i = written.n; i > 0; i--)
        if (written.r[i - 1].launch == l->first_thread && simt_draw(l, 8) == 0)
            send(i - 1);
    for (struct view *v = views; v; v = v->next)
        for (uint64_t i = v->coming.n; i > 0 && v->device == l->l.device; i--)
            if (simt_draw(l, 8) == 0)
                receive(v, i - 1);
}

void simt_weak_begin(const struct simt_resident *l)
{
    receive_all(l->l.device);
}

void simt_weak_end(const struct simt_resident *l)
{
    for (uint64_t i = written.n; i > 0; i--)
        if (written.r[i - 1].launch == l->first_thread)
            send(i - 1);
}
