/* Beats of ranks. */
#include "runtime/progress.h"

#include <pthread.h>
#include <time.h>

uint64_t tsr_runtime_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *op_name(enum tsr_rank_op op)
{
    static const char *const names[] = { "starts", "loads", "is idle",  "works",
                                         "sums",   "ends",  "has ended" };
    return (uint32_t)op < sizeof names / sizeof *names ? names[op] : "does something unknown";
}

void tsr_runtime_progress_beat(struct tsr_runtime_progress *p, enum tsr_rank_op op, uint32_t site)
{
    atomic_store_explicit(&p->op, (uint32_t)op, memory_order_relaxed);
    atomic_store_explicit(&p->site, site, memory_order_relaxed);
    atomic_store_explicit(&p->ns, tsr_runtime_now_ns(), memory_order_relaxed);
    atomic_fetch_add_explicit(&p->beats, 1, memory_order_release);
}

void tsr_runtime_progress_touch(struct tsr_runtime_progress *p)
{
    atomic_store_explicit(&p->ns, tsr_runtime_now_ns(), memory_order_relaxed);
    atomic_fetch_add_explicit(&p->beats, 1, memory_order_release);
}

int32_t tsr_runtime_thread_clock(void)
{
    clockid_t id;
    return pthread_getcpuclockid(pthread_self(), &id) == 0 ? (int32_t)id : 0;
}

uint64_t tsr_runtime_clock_spent(int32_t clock)
{
    struct timespec t;
    if (clock == 0 || clock_gettime((clockid_t)clock, &t) != 0) /* of a thread that has ended */
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void tsr_runtime_progress_clock(struct tsr_runtime_progress *p, uint32_t i, bool on)
{
    atomic_store(&p->clock[i], on ? tsr_runtime_thread_clock() : 0);
}

uint64_t tsr_runtime_progress_spent(const struct tsr_runtime_progress *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < TSR_RUNTIME_RANK_CLOCKS; i++)
        sum += tsr_runtime_clock_spent(atomic_load(&p->clock[i]));
    return sum;
}

uint64_t tsr_runtime_process_spent(int32_t pid)
{
    clockid_t id;
    return clock_getcpuclockid(pid, &id) == 0 ? tsr_runtime_clock_spent((int32_t)id) : 0;
}

bool tsr_runtime_progress_long(const struct tsr_runtime_progress *p)
{
    uint32_t op = atomic_load_explicit(&p->op, memory_order_relaxed);
    return op == TSR_RUNTIME_RANK_STARTS || op == TSR_RUNTIME_RANK_LOADS ||
           op == TSR_RUNTIME_RANK_ENDS;
}

bool tsr_runtime_progress_stalled(const struct tsr_runtime_progress *p, uint64_t now_ns,
                                  uint64_t stall_ns)
{
    uint64_t beats = atomic_load_explicit(&p->beats, memory_order_acquire);
    uint32_t op = atomic_load_explicit(&p->op, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&p->ns, memory_order_relaxed);
    if (ns == 0 || op == TSR_RUNTIME_RANK_ENDED)
        return false;
    return now_ns > ns && now_ns - ns > stall_ns &&
           atomic_load_explicit(&p->beats, memory_order_acquire) == beats;
}

const char *tsr_runtime_progress_doing(const struct tsr_runtime_progress *p)
{
    static const char *const words[] = {
        "starts", "loads", "idle", "works", "sums", "ends", "ended"
    };
    uint32_t op = atomic_load(&p->op);
    return op < sizeof words / sizeof *words ? words[op] : NULL;
}

void tsr_runtime_progress_describe(const struct tsr_runtime_progress *p, uint64_t now_ns,
                                   char *text, size_t cap)
{
    uint32_t op = atomic_load(&p->op), site = atomic_load(&p->site);
    uint64_t ns = atomic_load(&p->ns);
    char     where[48] = "";
    if (op == TSR_RUNTIME_RANK_LOADS || op == TSR_RUNTIME_RANK_WORKS)
        (void)snprintf(where, sizeof where, " on layer %u", site);
    else if (op == TSR_RUNTIME_RANK_SUMS)
        (void)snprintf(where, sizeof where, " %s of layer %u", site % 2 ? "down" : "o", site / 2);
    (void)snprintf(text, cap, "its process %d %s%s, step %llu, and has made no progress for %.1f s",
                   (int)atomic_load(&p->pid), op_name((enum tsr_rank_op)op), where,
                   (unsigned long long)atomic_load(&p->step),
                   now_ns > ns ? (double)(now_ns - ns) / 1e9 : 0.0);
}
