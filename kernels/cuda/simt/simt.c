/* simt.c - schedules the threads of a block, and enforces the rules of barriers and warp operations. */
#include "simt_block.h"
#include "simt_trace.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct simt_block simt_block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t        threads_so_far = 1;

void simt_report(const char *text)
{
    if (simt_block.failed)
        return;
    simt_block.failed = true;
    (void)snprintf(simt_block.text, sizeof simt_block.text,
                   "kernel %s, block %u.%u.%u, thread %u: %s", simt_block.launch->kernel->name,
                   simt_block.block[0], simt_block.block[1], simt_block.block[2],
                   simt_block.current, text);
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

static uint64_t draw(uint64_t below)
{
    if (simt_block.launch->seed == 0)
        return 0;
    simt_block.random =
        simt_block.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (simt_block.random >> 33) % below;
}

/* ---- scheduling ------------------------------------------------------------------- */

static uint32_t *ring(uint64_t i)
{
    return &simt_block.ready[(simt_block.first_ready + i) % SIMT_THREADS_MAX];
}

static void make_ready(uint32_t i)
{
    simt_block.fibers[i].state = READY;
    *ring(simt_block.n_ready++) = i;
}

/* In order without a seed: fibers then run one after the other to their next stop. */
static uint32_t take_ready(void)
{
    uint32_t *drawn = ring(draw(simt_block.n_ready)), i = *drawn;
    *drawn = *ring(0);
    simt_block.first_ready = (simt_block.first_ready + 1) % SIMT_THREADS_MAX;
    simt_block.n_ready--;
    return i;
}

static void release_barrier(void)
{
    int line = 0;
    for (uint32_t i = 0; i < simt_block.launch->threads; i++) {
        if (simt_block.fibers[i].state != AT_BARRIER)
            continue;
        simt_block.current = i;
        if (line && simt_block.fibers[i].line != line)
            report("it waits at the barrier in line %d, another thread at the one in line %d",
                   simt_block.fibers[i].line, line);
        line = simt_block.fibers[i].line;
    }
    simt_block.barriers++;
    for (uint32_t i = 0; i < simt_block.launch->threads; i++)
        if (simt_block.fibers[i].state == AT_BARRIER)
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
    if (simt_block.fibers[first].op >= SIMT_MMA)
        simt_multiply(first, mask);
    for (uint32_t l = 0; l < 32; l++)
        if (mask >> l & 1u && simt_block.fibers[first + l].value)
            votes |= 1u << l;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(mask >> l & 1u))
            continue;
        struct simt_fiber *f = &simt_block.fibers[first + l];
        uint32_t           from = source_lane(f, l);
        simt_block.current = first + l;
        if (!(mask >> from & 1u))
            report("the shuffle in line %d reads lane %u, which is not in its mask 0x%08x", f->line,
                   from, mask);
        f->result = f->op == SIMT_BALLOT ? votes
                    : mask >> from & 1u  ? simt_block.fibers[first + from].value
                                         : 0xdeadbeefu;
        f->warps += mask == whole && f->op < SIMT_MMA; /* which orders no memory */
        f->state = READY;
    }
    for (uint32_t l = 0; l < 32; l++) /* values stay until all have theirs */
        if (mask >> l & 1u)
            make_ready(first + l);
    simt_block.waiting[first / 32] -= (uint32_t)__builtin_popcount(mask);
}

/* A thread waits at an operation; the last of its mask completes it. */
static void come_to_warp(uint32_t i)
{
    uint32_t           first = i / 32 * 32, n = simt_block.launch->threads - first, whole;
    struct simt_fiber *f = &simt_block.fibers[i];
    whole = n >= 32 ? 0xffffffffu : (1u << n) - 1u;
    uint32_t mask = f->mask & whole;
    simt_block.waiting[first / 32]++;
    if (!(mask >> i % 32 & 1u)) {
        report("the warp operation in line %d has the mask 0x%08x, which lacks its own lane",
               f->line, f->mask);
        return;
    }
    if (simt_block.waiting[first / 32] < (uint32_t)__builtin_popcount(mask))
        return;
    for (uint32_t l = 0; l < 32; l++) {
        const struct simt_fiber *o = &simt_block.fibers[first + l];
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
    for (uint32_t i = 0; i < simt_block.launch->threads; i++) {
        const struct simt_fiber *f = &simt_block.fibers[i];
        if (f->state == AT_WARP) {
            simt_block.current = i;
            report("it waits at the warp operation in line %d for lanes of its mask 0x%08x that "
                   "never come",
                   f->line, f->mask);
            return;
        }
    }
    for (uint32_t i = 0; i < simt_block.launch->threads; i++)
        if (simt_block.fibers[i].state == AT_BARRIER) {
            simt_block.current = i;
            report("it waits at the barrier in line %d; %u of %u threads of the block have ended",
                   simt_block.fibers[i].line, simt_block.launch->threads - simt_block.live,
                   simt_block.launch->threads);
            return;
        }
}

static void run_block(void)
{
    uint32_t n = simt_block.launch->threads, at_barrier = 0;
    simt_block.n_ready = simt_block.first_ready = simt_block.barriers = 0;
    simt_block.live = n;
    memset(simt_block.waiting, 0, sizeof simt_block.waiting);
    simt_shared_spoil();
    for (uint32_t i = 0; i < n; i++) {
        simt_start_fiber(i);
        make_ready(i);
    }
    while (!simt_block.failed && simt_block.live > 0) {
        if (simt_block.n_ready == 0) {
            if (at_barrier < n) {
                stuck();
                break;
            }
            at_barrier = 0;
            release_barrier();
            continue;
        }
        uint32_t i = take_ready();
        simt_to_fiber(i);
        if (simt_block.fibers[i].state == AT_BARRIER)
            at_barrier++;
        else if (simt_block.fibers[i].state == AT_WARP)
            come_to_warp(i);
        else if (simt_block.fibers[i].state == READY) /* interrupted */
            *ring(simt_block.n_ready++) = i;
    }
}

/* ---- launches --------------------------------------------------------------------- */

static uint64_t coprime_step(uint64_t n)
{
    for (uint64_t s = n / 2 + draw(n) + 1;; s++) {
        uint64_t a = n, b = s;
        while (b) {
            uint64_t r = a % b;
            a = b;
            b = r;
        }
        if (a == 1)
            return s;
    }
}

/* False: cancelled. */
static bool run_blocks(const struct simt_launch *l)
{
    uint64_t n = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    uint64_t at = draw(n), step = l->seed ? coprime_step(n) : 1;
    simt_block.first_thread = threads_so_far;
    threads_so_far += n * l->threads;
    for (uint64_t i = 0; i < n && !simt_block.failed; i++, at = (at + step) % n) {
        if (l->cancelled && l->cancelled(l->ctx))
            return false;
        simt_block.block_number = at;
        simt_block.block[0] = (uint32_t)(at % l->grid[0]);
        simt_block.block[1] = (uint32_t)(at / l->grid[0] % l->grid[1]);
        simt_block.block[2] = (uint32_t)(at / l->grid[0] / l->grid[1]);
        simt_trace_block_begin();
        run_block();
        simt_trace_block_end();
    }
    return true;
}

tsr_status simt_run(const struct simt_launch *l, struct tsr_err *err)
{
    if (l->threads == 0 || l->threads > SIMT_THREADS_MAX || l->grid[0] == 0 || l->grid[1] == 0 ||
        l->grid[2] == 0 || l->grid[1] > 65535 || l->grid[2] > 65535)
        return tsr_fail(err, TSR_E_DEVICE,
                        "kernel %s: a grid of %u.%u.%u blocks of %u threads cannot be launched",
                        l->kernel->name, l->grid[0], l->grid[1], l->grid[2], l->threads);
    (void)pthread_mutex_lock(&lock);
    tsr_status st = TSR_OK;
    if (!simt_make_stacks()) {
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: the stacks of the SIMT emulation");
    } else {
        simt_block.launch = l;
        simt_block.random = l->seed;
        simt_block.failed = false;
        simt_block.running = true;
        bool whole = run_blocks(l);
        simt_block.running = false;
        if (!whole)
            st = tsr_fail(err, TSR_E_CANCELLED, "kernel %s was stopped", l->kernel->name);
        else if (simt_block.failed)
            st = tsr_fail(err, TSR_E_DEVICE, "%s", simt_block.text);
    }
    (void)pthread_mutex_unlock(&lock);
    return st;
}

/* ---- queries of kernels and hooks ------------------------------------------------- */

struct simt_dim simt_thread_idx(void)
{
    return (struct simt_dim){ simt_block.current, 0, 0 };
}

struct simt_dim simt_block_idx(void)
{
    return (struct simt_dim){ simt_block.block[0], simt_block.block[1], simt_block.block[2] };
}

struct simt_dim simt_block_dim(void)
{
    return (struct simt_dim){ simt_block.launch->threads, 1, 1 };
}

struct simt_dim simt_grid_dim(void)
{
    return (struct simt_dim){ simt_block.launch->grid[0], simt_block.launch->grid[1],
                              simt_block.launch->grid[2] };
}

void simt_barrier(int line)
{
    struct simt_fiber *f = &simt_block.fibers[simt_block.current];
    f->line = line;
    f->state = AT_BARRIER;
    simt_to_scheduler(false);
}

uint32_t simt_warp(enum simt_warp_op op, uint32_t mask, uint32_t value, uint32_t lane, int line)
{
    struct simt_fiber *f = &simt_block.fibers[simt_block.current];
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
    if (simt_block.launch->seed && draw(32) == 0)
        simt_to_scheduler(false);
}

bool simt_inside(struct simt_who *who)
{
    if (!simt_block.running)
        return false;
    *who = (struct simt_who){ .launch = simt_block.first_thread,
                              .thread = simt_block.first_thread +
                                        simt_block.block_number * simt_block.launch->threads +
                                        simt_block.current,
                              .block_threads = simt_block.launch->threads,
                              .barriers = simt_block.barriers,
                              .warps = simt_block.fibers[simt_block.current].warps,
                              .waited = simt_block.fibers[simt_block.current].waited };
    return true;
}

bool simt_own_memory(const void *p)
{
    const uint8_t *b = p, *args = simt_block.launch->args;
    return (b >= simt_block.stacks &&
            b < simt_block.stacks + SIMT_THREADS_MAX * SIMT_STACK_BYTES) ||
           (b >= args && b < args + simt_block.launch->kernel->args_bytes);
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
