/* wait.c - waits for a request: spins while the others are likely to come, then sleeps until they ring. */
#include "link.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_ROUNDS 64
#define SPIN_US     50u     /* waking a rank that sleeps may take as long */
#define LOOK_BYTES  131072u /* paced: copied at a time, or the bytes that arrive in LOOK_NS */
#define LOOK_NS     1e6
#define SPIN_NS     60000u /* paced: before a message arrives */
#define NAP_US      20000u /* longest sleep before looking for a cancellation */

/* This process did not run for as long: it was stopped, perhaps with its peers.  Nobody was waited for. */
#define PAUSE_US 1000000u

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* One round of progress. *over: the request has ended, with the returned status, and is freed. */
static tsr_status look(struct local *s, struct request *r, bool *over, struct tsr_err *err)
{
    *over = true;
    uint32_t   by = atomic_load(&s->world->aborted);
    tsr_status st = TSR_OK;
    if (by) {
        st = tsr_fail(err, TSR_E_CANCELLED, "local: rank %u aborted the group", by - 1);
    } else {
        local_pump(s);
        if (r->status != TSR_OK)
            st = tsr_fail(err, r->status, "%s", r->why);
        else if (r->open > 0)
            *over = false;
    }
    if (*over)
        local_release_request(s, r);
    return st;
}

tsr_status local_test(void *self, void *request, int32_t *done, struct tsr_err *err)
{
    bool       over;
    tsr_status st = look(self, request, &over, err);
    *done = over;
    return st;
}

static tsr_status late(struct local *s, struct request *r, uint64_t deadline_us,
                       struct tsr_err *err)
{
    char     who[160] = "";
    size_t   n = 0;
    uint64_t got = 0, want = 0;
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        bool waits = false;
        for (uint32_t i = 0; i < r->n; i++) {
            const struct part *p = &r->part[i];
            if (p->done || p->peer != rank)
                continue;
            waits = true;
            got += p->at > sizeof p->head ? p->at - sizeof p->head : 0;
            want += p->bytes;
        }
        if (waits && n + 16 < sizeof who)
            n += (size_t)snprintf(who + n, sizeof who - n, "%s%u", n ? ", " : "", rank);
    }
    tsr_status st =
        tsr_fail(err, TSR_E_DEVICE,
                 "local: rank %u waited %llu us for rank %s (%llu of %llu bytes moved); it "
                 "is late or has died",
                 s->rank, (unsigned long long)deadline_us, who,
                 (unsigned long long)(got < want ? got : want), (unsigned long long)want);
    local_release_request(s, r);
    return st;
}

/* Nanoseconds until more of a message arrives, so that little remains to copy at the end. UINT64_MAX: no
 * message is held back. */
static uint64_t held_back(const struct local *s)
{
    uint64_t now = local_now_ns(), least = UINT64_MAX;
    for (uint32_t i = 0; i < s->ranks; i++) {
        const struct part *p = s->in[i].first;
        if (!p || p->at < sizeof p->head || i == s->rank)
            continue;
        uint64_t at = p->at - sizeof p->head, more = p->bytes > at ? p->bytes - at : 0;
        more = more < s->capacity / 2 ? more : s->capacity / 2;
        uint64_t step = s->pace.ns_per_byte > 0 ? (uint64_t)(LOOK_NS / s->pace.ns_per_byte) : 0;
        step = step > LOOK_BYTES ? step : LOOK_BYTES;
        more = more < step ? more : step;
        uint64_t ns = local_pace_left(&s->pace, p->start, at + more, now);
        least = ns < least ? ns : least;
    }
    return least;
}

static void nap(struct local_bell *b, uint32_t count, uint64_t us)
{
    struct timespec t = { (time_t)(us / 1000000u), (long)(us % 1000000u) * 1000 };
    atomic_store(&b->sleeping, 1);
    if (atomic_load(&b->count) == count)
        (void)syscall(SYS_futex, (void *)&b->count, FUTEX_WAIT, count, &t, NULL, 0);
    atomic_store(&b->sleeping, 0);
}

/* 1 + the CPU that this rank is on, which the others see; 0 where CPUs have no numbers. */
static uint32_t note_cpu(struct local *s)
{
    _Atomic uint32_t *seen = &local_bell_of(s->world, s->rank)->cpu;
    int               here = sched_getcpu();
    uint32_t          cpu = here < 0 ? 0 : (uint32_t)here + 1;
    if (atomic_load_explicit(seen, memory_order_relaxed) != cpu)
        atomic_store_explicit(seen, cpu, memory_order_relaxed);
    return cpu;
}

/* Whether another rank was last seen on the same CPU: it would not get on while this one spins. */
static bool shares_cpu(struct local *s)
{
    uint32_t cpu = note_cpu(s);
    bool     shares = cpu == 0;
    for (uint32_t i = 0; i < s->ranks && !shares; i++)
        shares = i != s->rank && atomic_load_explicit(&local_bell_of(s->world, i)->cpu,
                                                      memory_order_relaxed) == cpu;
    return shares;
}

tsr_status local_wait(void *self, void *request, uint64_t deadline_us, struct tsr_err *err)
{
    struct local      *s = self;
    struct request    *r = request;
    struct local_bell *b = local_bell_of(s->world, s->rank);
    uint64_t           start = now_us(), last = start;
    (void)note_cpu(s); /* also of a rank that never waits for long */
    for (unsigned round = 0;; round++) {
        uint32_t   count = atomic_load(&b->count);
        bool       over;
        tsr_status st = look(s, r, &over, err);
        if (over)
            return st;
        uint64_t now = now_us();
        start += now - last > PAUSE_US ? now - last : 0;
        last = now;
        uint64_t passed = now - start;
        if (passed >= deadline_us)
            return late(s, r, deadline_us, err);
        if (s->host->cancelled(s->host->ctx)) {
            local_release_request(s, r);
            return tsr_fail(err, TSR_E_CANCELLED, "local: stopped by the user");
        }
        uint64_t us = deadline_us - passed < NAP_US ? deadline_us - passed : NAP_US;
        if (s->pace.on) { /* a nap ends late: the last of the time is spent awake */
            uint64_t ns = held_back(s);
            if (ns < SPIN_NS) /* no yield: on a busy machine that costs a whole slice */
                continue;
            us = (ns - SPIN_NS) / 1000 < us ? (ns - SPIN_NS) / 1000 : us;
        }
        if (round < SPIN_ROUNDS || (passed < SPIN_US && !s->pace.on && !shares_cpu(s)))
            continue;
        if (us && atomic_load(&b->count) == count)
            nap(b, count, us);
    }
}
