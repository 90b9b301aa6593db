/* simt_launch.c - launches: which block begins or goes on next. */
#include "simt_block.h"
#include "simt_trace.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t    lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t           threads_so_far = 1;
static struct simt_block *spare;

uint64_t simt_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static struct simt_block *take_block(struct simt_resident *r)
{
    struct simt_block *b = spare;
    if (b)
        spare = b->next;
    else
        b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->next = NULL;
    if (!simt_make_stacks(b, r->l.threads)) {
        b->next = spare;
        spare = b;
        return NULL;
    }
    b->resident = r;
    b->launch = &r->l;
    return b;
}

static void put_back(struct simt_block *b)
{
    b->next = spare;
    spare = b;
}

static uint64_t coprime_step(struct simt_resident *r)
{
    const uint64_t n = r->n;
    for (uint64_t s = n / 2 + simt_draw(r, n) + 1;; s++) {
        uint64_t a = n, b = s;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return s;
    }
}

/* ---- blocks ------------------------------------------------------------------------ */

static tsr_status no_memory(struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NOMEM, "out of memory: blocks of the SIMT emulation");
}

/* The next block of the launch, at its start. */
static tsr_status begin_block(struct simt_resident *r, struct tsr_err *err)
{
    struct simt_block *b = take_block(r);
    if (!b)
        return no_memory(err);
    const uint64_t at = r->at;
    r->at = (at + r->step) % r->n;
    r->begun++;
    b->block_number = at;
    b->block[0] = (uint32_t)(at % r->l.grid[0]);
    b->block[1] = (uint32_t)(at / r->l.grid[0] % r->l.grid[1]);
    b->block[2] = (uint32_t)(at / r->l.grid[0] / r->l.grid[1]);
    simt_now = b;
    simt_trace_block_begin();
    simt_block_begin();
    return TSR_OK;
}

/* One of those that were left. */
static void resume_block(struct simt_resident *r)
{
    struct simt_block **at = &r->left;
    for (uint64_t i = simt_draw(r, r->n_left); i > 0; i--)
        at = &(*at)->next;
    struct simt_block *b = *at;
    *at = b->next;
    r->n_left--;
    b->next = NULL;
    simt_now = b;
    simt_shared_return(b->shared);
}

static void leave_block(struct simt_resident *r)
{
    struct simt_block **last = &r->left;
    while (*last)
        last = &(*last)->next;
    *last = simt_now;
    r->n_left++;
}

/* One block begins or goes on; *left: it will go on again. */
static tsr_status turn(struct simt_resident *r, bool *left, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    *left = false;
    if (r->begun < r->n && (!r->left || simt_draw(r, 2) == 0))
        st = begin_block(r, err);
    else
        resume_block(r);
    if (st != TSR_OK)
        return st;
    *left = !simt_block_run();
    if (*left && !simt_shared_keep(&simt_now->shared))
        st = no_memory(err);
    if (!*left)
        simt_trace_block_end();
    if (*left && st == TSR_OK)
        leave_block(r);
    else
        put_back(simt_now);
    simt_now = NULL;
    return st;
}

/* ---- launches ---------------------------------------------------------------------- */

tsr_status simt_begin(const struct simt_launch *l, struct simt_resident **resident,
                      struct tsr_err *err)
{
    *resident = NULL;
    if (l->threads == 0 || l->threads > SIMT_THREADS_MAX || l->grid[0] == 0 || l->grid[1] == 0 ||
        l->grid[2] == 0 || l->grid[1] > 65535 || l->grid[2] > 65535)
        return tsr_fail(err, TSR_E_DEVICE,
                        "kernel %s: a grid of %u.%u.%u blocks of %u threads cannot be launched",
                        l->kernel->name, l->grid[0], l->grid[1], l->grid[2], l->threads);
    struct simt_resident *r = calloc(1, sizeof *r);
    void                 *args = r ? malloc(l->kernel->args_bytes) : NULL;
    if (!args) {
        free(r);
        return no_memory(err);
    }
    r->l = *l;
    r->l.args = memcpy(args, l->args, l->kernel->args_bytes);
    r->n = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    r->random = l->seed;
    r->at = simt_draw(r, r->n);
    r->step = l->seed ? coprime_step(r) : 1;
    (void)pthread_mutex_lock(&lock);
    r->first_thread = threads_so_far;
    threads_so_far += r->n * l->threads;
    simt_weak_begin(r);
    (void)pthread_mutex_unlock(&lock);
    *resident = r;
    return TSR_OK;
}

static void end(struct simt_resident *r)
{
    simt_weak_end(r);
    while (r->left) {
        struct simt_block *b = r->left;
        r->left = b->next;
        put_back(b);
    }
    free((void *)(uintptr_t)r->l.args);
    free(r);
}

tsr_status simt_go_on(struct simt_resident *r, bool *ended, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    bool       left = false;
    (void)pthread_mutex_lock(&lock);
    while (st == TSR_OK && !left && !r->failed && (r->begun < r->n || r->left)) {
        if (r->l.cancelled && r->l.cancelled(r->l.ctx))
            st = tsr_fail(err, TSR_E_CANCELLED, "kernel %s was stopped", r->l.kernel->name);
        else
            st = turn(r, &left, err);
    }
    if (st == TSR_OK && r->failed)
        st = tsr_fail(err, TSR_E_DEVICE, "%s", r->text);
    *ended = st != TSR_OK || !left;
    if (*ended)
        end(r);
    (void)pthread_mutex_unlock(&lock);
    return st;
}

void simt_drop(struct simt_resident *r)
{
    (void)pthread_mutex_lock(&lock);
    if (r)
        end(r);
    (void)pthread_mutex_unlock(&lock);
}

tsr_status simt_run(const struct simt_launch *l, struct tsr_err *err)
{
    struct simt_resident *r;
    bool                  ended = false;
    tsr_status            st = simt_begin(l, &r, err);
    while (st == TSR_OK && !ended) {
        st = simt_go_on(r, &ended, err);
        if (!ended)
            (void)sched_yield();
    }
    return st;
}
