/* simt.c - schedules the threads of a block, and enforces the rules of barriers and warp operations. */
#include "simt_block.h"
#include "simt_trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct simt_block *simt_now;

void simt_report(const char *text)
{
    struct simt_resident *r = simt_now->resident;
    if (r->failed)
        return;
    r->failed = true;
    (void)snprintf(r->text, sizeof r->text, "kernel %s, block %u.%u.%u, thread %u: %s",
                   simt_now->launch->kernel->name, simt_now->block[0], simt_now->block[1],
                   simt_now->block[2], simt_now->current, text);
}

static void __attribute__((format(printf, 1, 2))) report(const char *format, ...)
{
    char    text[256];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    simt_report(text);
}

uint64_t simt_draw(struct simt_resident *r, uint64_t below)
{
    if (r->l.seed == 0)
        return 0;
    r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (r->random >> 33) % below;
}

static uint64_t draw(uint64_t below)
{
    return simt_draw(simt_now->resident, below);
}

/* ---- scheduling ------------------------------------------------------------------- */

static uint32_t *ring(uint64_t i)
{
    return &simt_now->ready[(simt_now->first_ready + i) % SIMT_THREADS_MAX];
}

static void make_ready(uint32_t i)
{
    simt_now->fibers[i].state = READY;
    *ring(simt_now->n_ready++) = i;
}

/* In order without a seed: fibers then run one after the other to their next stop. */
static uint32_t take_ready(void)
{
    uint32_t *drawn = ring(draw(simt_now->n_ready)), i = *drawn;
    *drawn = *ring(0);
    simt_now->first_ready = (simt_now->first_ready + 1) % SIMT_THREADS_MAX;
    simt_now->n_ready--;
    return i;
}

static void release_barrier(void)
{
    int line = 0;
    for (uint32_t i = 0; i < simt_now->launch->threads; i++) {
        if (simt_now->fibers[i].state != AT_BARRIER)
            continue;
        simt_now->current = i;
        if (line && simt_now->fibers[i].line != line)
            report("it waits at the barrier in line %d, another thread at the one in line %d",
                   simt_now->fibers[i].line, line);
        line = simt_now->fibers[i].line;
    }
    simt_now->barriers++;
    for (uint32_t i = 0; i < simt_now->launch->threads; i++)
        if (simt_now->fibers[i].state == AT_BARRIER)
            make_ready(i);
}

static uint32_t source_lane(const struct simt_fiber *f, uint32_t lane)
{
    switch (f->op) {
    case SIMT_SHFL:
        return f->lane % 32;
    case SIMT_SHFL_XOR:
        return (lane ^ f->lane) % 32;
    case SIMT_SHFL_DOWN: /* past the end: its own */
        return lane + f->lane < 32 ? lane + f->lane : lane;
    default:
        return lane;
    }
}

/* All lanes of the mask have arrived: they exchange their values. */
static void exchange(uint32_t first, uint32_t mask, uint32_t whole)
{
    uint32_t votes = 0;
    if (simt_now->fibers[first].op >= SIMT_MMA)
        simt_multiply(first, mask);
    for (uint32_t l = 0; l < 32; l++)
        if (mask >> l & 1u && simt_now->fibers[first + l].value)
            votes |= 1u << l;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(mask >> l & 1u))
            continue;
        struct simt_fiber *f = &simt_now->fibers[first + l];
        uint32_t           from = source_lane(f, l);
        simt_now->current = first + l;
        if (!(mask >> from & 1u))
            report("the shuffle in line %d reads lane %u, which is not in its mask 0x%08x", f->line,
                   from, mask);
        f->result = f->op == SIMT_BALLOT ? votes
                    : mask >> from & 1u  ? simt_now->fibers[first + from].value
                                         : 0xdeadbeefu;
        f->warps += mask == whole && f->op < SIMT_MMA; /* which orders no memory */
        f->state = READY;
    }
    for (uint32_t l = 0; l < 32; l++) /* values stay until all have theirs */
        if (mask >> l & 1u)
            make_ready(first + l);
    simt_now->waiting[first / 32] -= (uint32_t)__builtin_popcount(mask);
}

/* A thread waits at an operation; the last of its mask completes it. */
static void come_to_warp(uint32_t i)
{
    uint32_t           first = i / 32 * 32, n = simt_now->launch->threads - first, whole;
    struct simt_fiber *f = &simt_now->fibers[i];
    whole = n >= 32 ? 0xffffffffu : (1u << n) - 1u;
    uint32_t mask = f->mask & whole;
    simt_now->waiting[first / 32]++;
    if (!(mask >> i % 32 & 1u)) {
        report("the warp operation in line %d has the mask 0x%08x, which lacks its own lane",
               f->line, f->mask);
        return;
    }
    if (simt_now->waiting[first / 32] < (uint32_t)__builtin_popcount(mask))
        return;
    for (uint32_t l = 0; l < 32; l++) {
        const struct simt_fiber *o = &simt_now->fibers[first + l];
        if (!(mask >> l & 1u))
            continue;
        if (o->state != AT_WARP)
            return;
        if (o->line != f->line || o->op != f->op || (o->mask & whole) != mask) {
            report("the warp operation in line %d meets another in line %d, or with another mask",
                   f->line, o->line);
            return;
        }
    }
    exchange(first, mask, whole);
}

/* Deadlock: no thread can run. */
static void stuck(void)
{
    for (uint32_t i = 0; i < simt_now->launch->threads; i++) {
        const struct simt_fiber *f = &simt_now->fibers[i];
        if (f->state == AT_WARP) {
            simt_now->current = i;
            report("it waits at the warp operation in line %d for lanes of its mask 0x%08x that "
                   "never come",
                   f->line, f->mask);
            return;
        }
    }
    for (uint32_t i = 0; i < simt_now->launch->threads; i++)
        if (simt_now->fibers[i].state == AT_BARRIER) {
            simt_now->current = i;
            report("it waits at the barrier in line %d; %u of %u threads of the block have ended",
                   simt_now->fibers[i].line, simt_now->launch->threads - simt_now->live,
                   simt_now->launch->threads);
            return;
        }
}

void simt_block_begin(void)
{
    uint32_t n = simt_now->launch->threads;
    simt_now->n_ready = simt_now->first_ready = simt_now->barriers = simt_now->at_barrier = 0;
    simt_now->live = n;
    simt_now->leaves = false;
    memset(simt_now->waiting, 0, sizeof simt_now->waiting);
    simt_shared_spoil();
    for (uint32_t i = 0; i < n; i++) {
        simt_start_fiber(i);
        make_ready(i);
    }
}

bool simt_block_run(void)
{
    uint32_t n = simt_now->launch->threads;
    while (!simt_now->resident->failed && simt_now->live > 0) {
        if (simt_now->n_ready == 0) {
            if (simt_now->at_barrier < n) {
                stuck();
                break;
            }
            simt_now->at_barrier = 0;
            release_barrier();
            continue;
        }
        uint32_t i = take_ready();
        simt_to_fiber(i);
        if (simt_now->fibers[i].state == AT_BARRIER)
            simt_now->at_barrier++;
        else if (simt_now->fibers[i].state == AT_WARP)
            come_to_warp(i);
        else if (simt_now->fibers[i].state == READY) /* interrupted */
            *ring(simt_now->n_ready++) = i;
        if (simt_now->leaves) {
            simt_now->leaves = false;
            return false;
        }
    }
    return true;
}

/* ---- queries of kernels and hooks ------------------------------------------------- */

struct simt_dim simt_thread_idx(void)
{
    return (struct simt_dim){ simt_now->current, 0, 0 };
}

struct simt_dim simt_block_idx(void)
{
    return (struct simt_dim){ simt_now->block[0], simt_now->block[1], simt_now->block[2] };
}

struct simt_dim simt_block_dim(void)
{
    return (struct simt_dim){ simt_now->launch->threads, 1, 1 };
}

struct simt_dim simt_grid_dim(void)
{
    return (struct simt_dim){ simt_now->launch->grid[0], simt_now->launch->grid[1],
                              simt_now->launch->grid[2] };
}

void simt_barrier(int line)
{
    struct simt_fiber *f = &simt_now->fibers[simt_now->current];
    f->line = line;
    f->state = AT_BARRIER;
    simt_to_scheduler(false);
}

uint32_t simt_warp(enum simt_warp_op op, uint32_t mask, uint32_t value, uint32_t lane, int line)
{
    struct simt_fiber *f = &simt_now->fibers[simt_now->current];
    f->op = op;
    f->mask = mask;
    f->value = value;
    f->lane = lane;
    f->line = line;
    f->state = AT_WARP;
    simt_to_scheduler(false);
    return f->result;
}

void simt_stop(const char *text)
{
    simt_report(text);
    for (;;) /* a failed launch resumes no thread */
        simt_to_scheduler(false);
}

void simt_maybe_switch(void)
{
    if (simt_now->launch->seed && draw(32) == 0)
        simt_to_scheduler(false);
}

bool simt_inside(struct simt_who *who)
{
    if (!simt_now)
        return false;
    const struct simt_resident *r = simt_now->resident;
    *who = (struct simt_who){ .launch = r->first_thread,
                              .end = r->first_thread + r->n * simt_now->launch->threads,
                              .thread = r->first_thread +
                                        simt_now->block_number * simt_now->launch->threads +
                                        simt_now->current,
                              .block_threads = simt_now->launch->threads,
                              .barriers = simt_now->barriers,
                              .warps = simt_now->fibers[simt_now->current].warps,
                              .waited = simt_now->fibers[simt_now->current].waited };
    return true;
}

bool simt_own_memory(const void *p)
{
    const uint8_t *b = p, *args = simt_now->launch->args;
    return (b >= simt_now->stacks &&
            b < simt_now->stacks + simt_now->n_stacks * SIMT_STACK_BYTES) ||
           (b >= args && b < args + simt_now->launch->kernel->args_bytes);
}

/* Another block, or another launch, may go on now. */
static void leave(void)
{
    simt_now->leaves = true;
    simt_to_scheduler(false);
}

void simt_flag_raise(uint32_t *p, uint32_t v)
{
    simt_access(p, 4, true, true);
    simt_weak_drawn();
    __atomic_store_n((uint32_t *)simt_weak_origin(p), v, __ATOMIC_RELEASE); /* another process may
                                                                             * look */
    if (draw(2))
        leave();
}

/* Whoever looks again lets others go on first. */
uint32_t simt_flag_look(const uint32_t *p)
{
    simt_access(p, 4, false, true);
    simt_weak_drawn();
    uint32_t v = __atomic_load_n((const uint32_t *)simt_weak_origin(p), __ATOMIC_ACQUIRE);
    leave();
    return v;
}

uint32_t simt_atomic_add(uint32_t *p, uint32_t v)
{
    simt_access(p, 4, true, true);
    simt_order_atomic(p);
    simt_trace_access(p, 4, true, __builtin_return_address(0));
    uint32_t old = *p;
    *p = old + v;
    return old;
}

uint32_t simt_atomic_max(uint32_t *p, uint32_t v)
{
    simt_access(p, 4, true, true);
    simt_order_atomic(p);
    simt_trace_access(p, 4, true, __builtin_return_address(0));
    uint32_t old = *p;
    *p = old > v ? old : v;
    return old;
}

uint32_t simt_atomic_or(uint32_t *p, uint32_t v)
{
    simt_access(p, 4, true, true);
    simt_order_atomic(p);
    simt_trace_access(p, 4, true, __builtin_return_address(0));
    uint32_t old = *p;
    *p = old | v;
    return old;
}

float simt_atomic_add_float(float *p, float v)
{
    simt_access(p, 4, true, true);
    simt_order_atomic(p);
    simt_trace_access(p, 4, true, __builtin_return_address(0));
    float old = *p;
    *p = old + v;
    return old;
}
