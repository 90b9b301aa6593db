/* simt.c - fibers, and the rules of barriers and warp operations. */
#include "simt.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#error "the SIMT emulation switches stacks by hand: x86-64 only"
#endif

/* Sanitizers are told of each change of stacks: the one of addresses because it knows the stacks, the one
 * of threads because it keeps a stack of calls.  To the latter a change orders all that was before. */
#ifdef SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIMT_TSAN /* a fiber that ends does not return, so these are no calls for it */
#include <sanitizer/tsan_interface.h>
#define NO_CALL __attribute__((disable_sanitizer_instrumentation))
#else
#define NO_CALL
#endif

#define STACK_BYTES (UINT64_C(64) << 10)

enum state { READY, AT_BARRIER, AT_WARP, DONE };

struct fiber {
    void      *sp; /* where it goes on */
    enum state state;
    int        line; /* where it waits */
    /* at a warp operation: what it brings, and takes */
    enum simt_warp_op op;
    uint32_t          mask, value, lane, result;
    uint32_t          warps; /* operations of the whole warp that it has been through */
    void             *fake;  /* of the address sanitizer */
    void             *calls; /* of the thread sanitizer */
};

static struct {
    const struct simt_launch *launch;
    struct fiber              fibers[SIMT_THREADS_MAX];
    uint32_t                  ready[SIMT_THREADS_MAX]; /* who may go on: a ring */
    uint32_t                  n_ready, first_ready;
    uint32_t                  current, live, block[3], barriers;
    uint32_t                  waiting[SIMT_THREADS_MAX / 32]; /* of a warp, at an operation of it */
    uint64_t                  random, first_thread, block_number;
    void                     *scheduler; /* its stack pointer */
    void                     *scheduler_fake, *scheduler_calls;
    const void               *scheduler_stack;
    size_t                    scheduler_bytes;
    uint8_t                  *stacks;
    bool                      running, failed;
    char                      text[400];
} g;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t        threads_so_far = 1;

/* Saves the registers that a call keeps, changes stacks, takes those of the other. */
void simt_switch(void **from, void *to);
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        ".type simt_switch,@function\n"
        "simt_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size simt_switch,.-simt_switch\n");

void simt_report(const char *text)
{
    if (g.failed)
        return;
    g.failed = true;
    (void)snprintf(g.text, sizeof g.text, "kernel %s, block %u.%u.%u, thread %u: %s",
                   g.launch->kernel->name, g.block[0], g.block[1], g.block[2], g.current, text);
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
    if (g.launch->seed == 0)
        return 0;
    g.random = g.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (g.random >> 33) % below;
}

/* ---- stacks ----------------------------------------------------------------------- */

NO_CALL static void to_scheduler(bool ends)
{
    struct fiber *f = &g.fibers[g.current];
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(ends ? NULL : &f->fake, g.scheduler_stack, g.scheduler_bytes);
#else
    (void)ends;
#endif
#ifdef SIMT_TSAN
    __tsan_switch_to_fiber(g.scheduler_calls, 0);
#endif
    simt_switch(&f->sp, g.scheduler);
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(g.fibers[g.current].fake, NULL, NULL);
#endif
}

NO_CALL static void to_fiber(uint32_t i)
{
    g.current = i;
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(&g.scheduler_fake, g.stacks + i * STACK_BYTES, STACK_BYTES);
#endif
#ifdef SIMT_TSAN
    g.scheduler_calls = __tsan_get_current_fiber();
    if (!g.fibers[i].calls)
        g.fibers[i].calls = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(g.fibers[i].calls, 0);
#endif
    simt_switch(&g.scheduler, g.fibers[i].sp);
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(g.scheduler_fake, NULL, NULL);
#endif
}

NO_CALL static void fiber_main(void)
{
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(NULL, &g.scheduler_stack, &g.scheduler_bytes);
#endif
    g.launch->kernel->entry(g.launch->args);
    g.fibers[g.current].state = DONE;
    g.live--;
    to_scheduler(true);
}

/* The lowest page of each is left without access, so that a deep stack dies at once. */
static bool make_stacks(void)
{
    if (g.stacks)
        return true;
    uint8_t *p = mmap(NULL, SIMT_THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED)
        return false;
    for (uint32_t i = 0; i < SIMT_THREADS_MAX; i++)
        if (mprotect(p + i * STACK_BYTES, 4096, PROT_NONE) != 0) {
            (void)munmap(p, SIMT_THREADS_MAX * STACK_BYTES);
            return false;
        }
    g.stacks = p;
    return true;
}

static void start_fiber(uint32_t i)
{
    struct fiber *f = &g.fibers[i];
    uint64_t     *top = (uint64_t *)(void *)(g.stacks + (i + 1) * STACK_BYTES);
    f->state = READY;
    f->warps = 0;
    f->fake = NULL;
    *--top = 0;                                /* fiber_main() does not return */
    *--top = (uint64_t)(uintptr_t)&fiber_main; /* the address that simt_switch() returns to */
    for (int r = 0; r < 6; r++)
        *--top = 0;
    f->sp = top;
}

/* ---- who goes on ------------------------------------------------------------------ */

static uint32_t *ring(uint64_t i)
{
    return &g.ready[(g.first_ready + i) % SIMT_THREADS_MAX];
}

static void make_ready(uint32_t i)
{
    g.fibers[i].state = READY;
    *ring(g.n_ready++) = i;
}

/* In order without a seed: fibers then run one after the other to their next stop. */
static uint32_t take_ready(void)
{
    uint32_t *drawn = ring(draw(g.n_ready)), i = *drawn;
    *drawn = *ring(0);
    g.first_ready = (g.first_ready + 1) % SIMT_THREADS_MAX;
    g.n_ready--;
    return i;
}

static void release_barrier(void)
{
    int line = 0;
    for (uint32_t i = 0; i < g.launch->threads; i++) {
        if (g.fibers[i].state != AT_BARRIER)
            continue;
        g.current = i;
        if (line && g.fibers[i].line != line)
            report("it waits at the barrier in line %d, another thread at the one in line %d",
                   g.fibers[i].line, line);
        line = g.fibers[i].line;
    }
    g.barriers++;
    for (uint32_t i = 0; i < g.launch->threads; i++)
        if (g.fibers[i].state == AT_BARRIER)
            make_ready(i);
}

static uint32_t source_lane(const struct fiber *f, uint32_t lane)
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

/* All of the mask have come: they exchange what they brought. */
static void exchange(uint32_t first, uint32_t mask, uint32_t whole)
{
    uint32_t votes = 0;
    for (uint32_t l = 0; l < 32; l++)
        if (mask >> l & 1u && g.fibers[first + l].value)
            votes |= 1u << l;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(mask >> l & 1u))
            continue;
        struct fiber *f = &g.fibers[first + l];
        uint32_t      from = source_lane(f, l);
        g.current = first + l;
        if (!(mask >> from & 1u))
            report("the shuffle in line %d reads lane %u, which is not in its mask 0x%08x", f->line,
                   from, mask);
        f->result = f->op == SIMT_BALLOT ? votes
                    : mask >> from & 1u  ? g.fibers[first + from].value
                                         : 0xdeadbeefu;
        f->warps += mask == whole;
        f->state = READY;
    }
    for (uint32_t l = 0; l < 32; l++) /* values stay until all have theirs */
        if (mask >> l & 1u)
            make_ready(first + l);
    g.waiting[first / 32] -= (uint32_t)__builtin_popcount(mask);
}

/* A thread waits at an operation; the last of its mask completes it. */
static void come_to_warp(uint32_t i)
{
    uint32_t      first = i / 32 * 32, n = g.launch->threads - first, whole;
    struct fiber *f = &g.fibers[i];
    whole = n >= 32 ? 0xffffffffu : (1u << n) - 1u;
    uint32_t mask = f->mask & whole;
    g.waiting[first / 32]++;
    if (!(mask >> i % 32 & 1u)) {
        report("the warp operation in line %d has the mask 0x%08x, which lacks its own lane",
               f->line, f->mask);
        return;
    }
    if (g.waiting[first / 32] < (uint32_t)__builtin_popcount(mask))
        return;
    for (uint32_t l = 0; l < 32; l++) {
        const struct fiber *o = &g.fibers[first + l];
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

/* Nobody can go on. */
static void stuck(void)
{
    for (uint32_t i = 0; i < g.launch->threads; i++) {
        const struct fiber *f = &g.fibers[i];
        if (f->state == AT_WARP) {
            g.current = i;
            report("it waits at the warp operation in line %d for lanes of its mask 0x%08x that "
                   "never come",
                   f->line, f->mask);
            return;
        }
    }
    for (uint32_t i = 0; i < g.launch->threads; i++)
        if (g.fibers[i].state == AT_BARRIER) {
            g.current = i;
            report("it waits at the barrier in line %d; %u of %u threads of the block have ended",
                   g.fibers[i].line, g.launch->threads - g.live, g.launch->threads);
            return;
        }
}

static void run_block(void)
{
    uint32_t n = g.launch->threads, at_barrier = 0;
    g.n_ready = g.first_ready = g.barriers = 0;
    g.live = n;
    memset(g.waiting, 0, sizeof g.waiting);
    simt_shared_spoil();
    for (uint32_t i = 0; i < n; i++) {
        start_fiber(i);
        make_ready(i);
    }
    while (!g.failed && g.live > 0) {
        if (g.n_ready == 0) {
            if (at_barrier < n) {
                stuck();
                break;
            }
            at_barrier = 0;
            release_barrier();
            continue;
        }
        uint32_t i = take_ready();
        to_fiber(i);
        if (g.fibers[i].state == AT_BARRIER)
            at_barrier++;
        else if (g.fibers[i].state == AT_WARP)
            come_to_warp(i);
        else if (g.fibers[i].state == READY) /* interrupted */
            *ring(g.n_ready++) = i;
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

/* False: the user has asked to stop. */
static bool run_blocks(const struct simt_launch *l)
{
    uint64_t n = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    uint64_t at = draw(n), step = l->seed ? coprime_step(n) : 1;
    g.first_thread = threads_so_far;
    threads_so_far += n * l->threads;
    for (uint64_t i = 0; i < n && !g.failed; i++, at = (at + step) % n) {
        if (l->cancelled && l->cancelled(l->ctx))
            return false;
        g.block_number = at;
        g.block[0] = (uint32_t)(at % l->grid[0]);
        g.block[1] = (uint32_t)(at / l->grid[0] % l->grid[1]);
        g.block[2] = (uint32_t)(at / l->grid[0] / l->grid[1]);
        run_block();
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
    if (!make_stacks()) {
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: the stacks of the SIMT emulation");
    } else {
        g.launch = l;
        g.random = l->seed;
        g.failed = false;
        g.running = true;
        bool whole = run_blocks(l);
        g.running = false;
        if (!whole)
            st = tsr_fail(err, TSR_E_CANCELLED, "kernel %s was stopped", l->kernel->name);
        else if (g.failed)
            st = tsr_fail(err, TSR_E_DEVICE, "%s", g.text);
    }
    (void)pthread_mutex_unlock(&lock);
    return st;
}

/* ---- what kernels and hooks ask --------------------------------------------------- */

struct simt_dim simt_thread_idx(void)
{
    return (struct simt_dim){ g.current, 0, 0 };
}

struct simt_dim simt_block_idx(void)
{
    return (struct simt_dim){ g.block[0], g.block[1], g.block[2] };
}

struct simt_dim simt_block_dim(void)
{
    return (struct simt_dim){ g.launch->threads, 1, 1 };
}

struct simt_dim simt_grid_dim(void)
{
    return (struct simt_dim){ g.launch->grid[0], g.launch->grid[1], g.launch->grid[2] };
}

void simt_barrier(int line)
{
    struct fiber *f = &g.fibers[g.current];
    f->line = line;
    f->state = AT_BARRIER;
    to_scheduler(false);
}

uint32_t simt_warp(enum simt_warp_op op, uint32_t mask, uint32_t value, uint32_t lane, int line)
{
    struct fiber *f = &g.fibers[g.current];
    f->op = op;
    f->mask = mask;
    f->value = value;
    f->lane = lane;
    f->line = line;
    f->state = AT_WARP;
    to_scheduler(false);
    return f->result;
}

void simt_stop(const char *text)
{
    simt_report(text);
    for (;;) /* nobody comes back to a launch that has failed */
        to_scheduler(false);
}

void simt_maybe_switch(void)
{
    if (g.launch->seed && draw(32) == 0)
        to_scheduler(false);
}

bool simt_inside(struct simt_who *who)
{
    if (!g.running)
        return false;
    *who = (struct simt_who){ .launch = g.first_thread,
                              .thread =
                                  g.first_thread + g.block_number * g.launch->threads + g.current,
                              .block_threads = g.launch->threads,
                              .barriers = g.barriers,
                              .warps = g.fibers[g.current].warps };
    return true;
}

bool simt_own_memory(const void *p)
{
    const uint8_t *b = p, *args = g.launch->args;
    return (b >= g.stacks && b < g.stacks + SIMT_THREADS_MAX * STACK_BYTES) ||
           (b >= args && b < args + g.launch->kernel->args_bytes);
}

uint32_t simt_atomic_add(uint32_t *p, uint32_t v)
{
    simt_access(p, 4, true, true);
    uint32_t old = *p;
    *p = old + v;
    return old;
}

uint32_t simt_atomic_max(uint32_t *p, uint32_t v)
{
    simt_access(p, 4, true, true);
    uint32_t old = *p;
    *p = old > v ? old : v;
    return old;
}

uint32_t simt_atomic_or(uint32_t *p, uint32_t v)
{
    simt_access(p, 4, true, true);
    uint32_t old = *p;
    *p = old | v;
    return old;
}

float simt_atomic_add_float(float *p, float v)
{
    simt_access(p, 4, true, true);
    float old = *p;
    *p = old + v;
    return old;
}
