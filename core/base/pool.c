#include "base/pool.h"

#include "base/mem.h"
#include "base/signals.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A parallel loop lasts microseconds in decode, so workers spin for a while before
 * they sleep: about 50 us on current CPUs, then a futex wait. */
#define SPIN_ROUNDS  4000
#define MOST_THREADS 256u

struct tsr_pool {
    pthread_mutex_t    lock;       /* guards job and sleeping                   */
    pthread_cond_t     wake, left; /* left: no worker is inside */
    pthread_mutex_t    callers;    /* one loop at a time                        */
    _Atomic uint64_t   epoch;      /* counts loops; even when idle, odd in a loop */
    _Atomic uint64_t   next;       /* first chunk that is not taken */
    _Atomic unsigned   inside;     /* workers that may still touch the job      */
    _Atomic int        waits;      /* the caller sleeps until no worker is inside */
    _Atomic tsr_status status;
    _Atomic int        stop;
    uint64_t           n, grain, chunks;
    tsr_status (*body)(void *, uint64_t, uint64_t);
    void      *arg;
    unsigned   threads, started;
    pthread_t *ids;
};

static _Thread_local int  in_loop;
static _Thread_local bool serial;

void tsr_pool_set_serial(bool on)
{
    serial = on;
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Takes the next chunks of the loop: half of a thread's share of the rest, so that a thread reads
 * long contiguous memory and the last chunks are short.  0: nothing is left. */
static uint64_t take_chunks(struct tsr_pool *p, uint64_t *first)
{
    uint64_t i = atomic_load_explicit(&p->next, memory_order_relaxed), n;
    do {
        if (i >= p->chunks)
            return 0;
        n = (p->chunks - i) / p->threads / 2;
        n = n ? n : 1;
    } while (!atomic_compare_exchange_weak_explicit(&p->next, &i, i + n, memory_order_relaxed,
                                                    memory_order_relaxed));
    *first = i;
    return n;
}

static void run_chunks(struct tsr_pool *p)
{
    uint64_t i, n;
    in_loop++;
    while ((n = take_chunks(p, &i)) != 0) {
        for (; n && atomic_load_explicit(&p->status, memory_order_relaxed) == TSR_OK; i++, n--) {
            uint64_t   begin = i * p->grain;
            uint64_t   end = p->n - begin < p->grain ? p->n : begin + p->grain;
            tsr_status st = p->body(p->arg, begin, end);
            if (st != TSR_OK) {
                tsr_status ok = TSR_OK;
                atomic_compare_exchange_strong(&p->status, &ok, st);
            }
        }
    }
    in_loop--;
}

/* A caller that sleeps has stored `waits` before it read `inside`. */
static void leave(struct tsr_pool *p)
{
    if (atomic_fetch_sub(&p->inside, 1) != 1 || !atomic_load(&p->waits))
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->left);
    pthread_mutex_unlock(&p->lock);
}

/* Waits until the last worker is done with the job.  It is late if there are more threads than CPUs:
 * sleeping then frees a CPU for the thread that shares one with the worker. */
static void wait_for_workers(struct tsr_pool *p)
{
    for (int i = 0; i < SPIN_ROUNDS && atomic_load(&p->inside) != 0; i++)
        relax();
    if (atomic_load(&p->inside) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->waits, 1);
    while (atomic_load(&p->inside) != 0)
        pthread_cond_wait(&p->left, &p->lock);
    atomic_store(&p->waits, 0);
    pthread_mutex_unlock(&p->lock);
}

static void *worker(void *arg)
{
    struct tsr_pool *p = arg;
    uint64_t         seen = 0;
    for (;;) {
        uint64_t e = atomic_load_explicit(&p->epoch, memory_order_acquire);
        for (int i = 0; e == seen && i < SPIN_ROUNDS && !atomic_load(&p->stop); i++) {
            relax();
            e = atomic_load_explicit(&p->epoch, memory_order_acquire);
        }
        if (e == seen && !atomic_load(&p->stop)) {
            pthread_mutex_lock(&p->lock);
            while ((e = atomic_load(&p->epoch)) == seen && !atomic_load(&p->stop))
                pthread_cond_wait(&p->wake, &p->lock);
            pthread_mutex_unlock(&p->lock);
        }
        if (atomic_load(&p->stop))
            return NULL;
        seen = e;
        if (e % 2 == 0)
            continue;
        /* Announce, then check again: the caller closes the loop (epoch even) and waits until no
         * worker is inside, so a late worker never sees a dead job. */
        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->epoch) == e)
            run_chunks(p);
        leave(p);
    }
}

static unsigned usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1u : n > (int)MOST_THREADS ? MOST_THREADS : (unsigned)n;
}

/* All but the caller's; what could be started is in p->started. */
static int start_threads(struct tsr_pool *p)
{
    sigset_t all, old;
    int      rc = 0;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_mutex_init(&p->callers, NULL);
    (void)pthread_cond_init(&p->wake, NULL);
    (void)pthread_cond_init(&p->left, NULL);
    /* signals are the main thread's */
    tsr_signals_of_others(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned i = 1; i < p->threads && rc == 0; i++) {
        rc = pthread_create(&p->ids[p->started], NULL, worker, p);
        if (rc == 0)
            p->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static tsr_status check_count(unsigned threads, struct tsr_err *err)
{
    return threads <= MOST_THREADS
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "threads: %u is more than %u", threads, MOST_THREADS);
}

static tsr_status fail_start(const struct tsr_pool *p, unsigned threads, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NOMEM, "cannot start thread %u of %u; ask for fewer threads",
                    p->started + 1, threads);
}

tsr_status tsr_pool_create(struct tsr_pool **pool, unsigned threads, struct tsr_err *err)
{
    if (threads == 0)
        threads = usable_cpus();
    TSR_TRY(check_count(threads, err));
    struct tsr_pool *p = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(err, sizeof *p, "the thread pool");
    p->ids = tsr_new(threads, sizeof *p->ids);
    if (!p->ids) {
        free(p);
        return tsr_fail_nomem(err, threads * sizeof *p->ids, "the thread pool");
    }
    p->threads = threads;
    int rc = start_threads(p);
    if (rc != 0) {
        tsr_status st = fail_start(p, threads, err);
        tsr_pool_destroy(p);
        return st;
    }
    *pool = p;
    return TSR_OK;
}

/* Starts the threads of a pool that has none; p->threads becomes the actual number. */
static int start_again(struct tsr_pool *p)
{
    atomic_store(&p->epoch, 0);
    atomic_store(&p->inside, 0);
    atomic_store(&p->waits, 0);
    atomic_store(&p->stop, 0);
    p->started = 0;
    int rc = start_threads(p);
    p->threads = p->started + 1;
    return rc;
}

void tsr_pool_revive(struct tsr_pool *p)
{
    if (p)
        (void)start_again(p);
}

static void stop_threads(struct tsr_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->started; i++)
        pthread_join(p->ids[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->left);
    pthread_mutex_destroy(&p->callers);
    pthread_mutex_destroy(&p->lock);
}

tsr_status tsr_pool_resize(struct tsr_pool *p, unsigned threads, struct tsr_err *err)
{
    if (threads == 0)
        threads = usable_cpus();
    if (!p || threads == p->threads)
        return TSR_OK;
    TSR_TRY(check_count(threads, err));
    pthread_t *ids = tsr_new(threads, sizeof *ids);
    if (!ids)
        return tsr_fail_nomem(err, threads * sizeof *ids, "the thread pool");
    stop_threads(p);
    free(p->ids);
    p->ids = ids;
    p->threads = threads;
    return start_again(p) == 0 ? TSR_OK : fail_start(p, threads, err);
}

void tsr_pool_destroy(struct tsr_pool *p)
{
    if (!p)
        return;
    stop_threads(p);
    free(p->ids);
    free(p);
}

unsigned tsr_pool_threads(const struct tsr_pool *pool)
{
    return pool ? pool->threads : 1;
}

/* Chunks [first, first + count) on the caller's thread. */
static tsr_status run_here(uint64_t n, uint64_t grain, uint64_t first, uint64_t count,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    tsr_status st = TSR_OK;
    in_loop++;
    for (uint64_t i = first; i < first + count && st == TSR_OK; i++) {
        uint64_t begin = i * grain;
        st = body(arg, begin, n - begin < grain ? n : begin + grain);
    }
    in_loop--;
    return st;
}

tsr_status tsr_pool_for(struct tsr_pool *p, uint64_t n, uint64_t grain,
                        tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    if (grain == 0)
        grain = 1;
    uint64_t chunks = n / grain + (n % grain != 0);
    if (!p || p->threads == 1 || chunks <= 1 || in_loop || serial)
        return run_here(n, grain, 0, chunks, body, arg);
    /* While another caller has the workers this one does its chunks itself: waiting for the lock could
     * take as long as the other goes on, who takes it again before this one wakes. */
    uint64_t done = 0;
    while (pthread_mutex_trylock(&p->callers) != 0) {
        tsr_status st = run_here(n, grain, done, 1, body, arg);
        if (st != TSR_OK || ++done == chunks)
            return st;
    }
    p->n = n;
    p->grain = grain;
    p->chunks = chunks;
    p->body = body;
    p->arg = arg;
    atomic_store(&p->status, TSR_OK);
    atomic_store(&p->next, done);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->epoch, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    run_chunks(p);
    atomic_fetch_add(&p->epoch, 1);
    wait_for_workers(p);
    tsr_status st = atomic_load(&p->status);
    pthread_mutex_unlock(&p->callers);
    return st;
}
