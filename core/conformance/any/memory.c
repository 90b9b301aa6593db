/* A component's use of allocated memory. */
#include "conformance/any/any.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_FAILING 64u /* allocations that are made to fail, spread over all of an exercise */

static void fresh(struct tsr_conformance_case *c)
{
    tsr_conformance_test_host_init(c->host, 1);
}

void tsr_any_each_alloc(struct tsr_conformance_case *c,
                        void (*f)(struct tsr_conformance_case *c, const char *what))
{
    (void)c->kind->exercise(c, false, NULL);
    uint64_t n = atomic_load(&c->host->allocs);
    uint64_t step = n / MAX_FAILING + 1;
    for (uint64_t i = 1 + (step > 1 ? c->seed % step : 0); i <= n; i += step) {
        char what[80];
        fresh(c);
        c->host->fail_alloc = i;
        (void)snprintf(what, sizeof what, "allocation %llu of %llu", (unsigned long long)i,
                       (unsigned long long)n);
        f(c, what);
    }
    fresh(c);
}

static uint64_t usual_live; /* after a run without failures */

static void failing(struct tsr_conformance_case *c, const char *what)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = c->kind->exercise(c, false, &e.err);
    if (st < 0 && st >= TSR_E_CANCELLED && st != TSR_E_NOMEM)
        tsr_conformance_rule_fail(c, "where %s fails it answers %s instead of TSR_E_NOMEM: %s",
                                  what, tsr_conformance_status_name(st), e.text);
    uint64_t live = atomic_load(&c->host->live);
    if (live > usual_live)
        tsr_conformance_rule_fail(c, "where %s fails, %llu others (%llu bytes) are never released",
                                  what, (unsigned long long)(live - usual_live),
                                  (unsigned long long)atomic_load(&c->host->live_bytes));
}

void tsr_any_alloc_fails(struct tsr_conformance_case *c)
{
    (void)c->kind->exercise(c, false, NULL);
    usual_live = atomic_load(&c->host->live);
    if (atomic_load(&c->host->allocs) == 0)
        tsr_conformance_rule_skip(c, "it asks for no memory");
    fresh(c);
    tsr_any_each_alloc(c, failing);
}

void tsr_any_leaks(struct tsr_conformance_case *c)
{
    (void)c->kind->exercise(c, false, NULL);
    uint64_t live = atomic_load(&c->host->live);
    if (live)
        tsr_conformance_rule_fail(
            c, "%llu of %llu allocations (%llu bytes) are not released by destroy()",
            (unsigned long long)live, (unsigned long long)atomic_load(&c->host->allocs),
            (unsigned long long)atomic_load(&c->host->live_bytes));
}

/* ---- growth ------------------------------------------------------------------------------ */

/* Lives, or as many as the seconds allow: to open a GPU takes a third of a second. */
#define WARM         100
#define WARM_SECONDS 6
#define LIVES        1000
#define LIFE_SECONDS 20
/* A plugin with a private malloc() may keep a cache: 64 bytes for each of 1000 lives are more than one. Fewer lives
 * may leave as much: a driver of CUDA 13.0 leaves 853 bytes for each context. A sanitizer counts its heap itself. It
 * keeps freed memory for a while, so that its pages show nothing. */
#define HEAP_GROWTH ((uint64_t)LIVES * 64)
#define PAGE_GROWTH (UINT64_C(4) << 20)

/* Live bytes of a sanitizer's heap, if the process has one. NOLINTNEXTLINE(bugprone-reserved-identifier): its name */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static uint64_t resident(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return 0;
    unsigned long long size = 0, pages = 0;
    FILE              *f = fopen("/proc/self/statm", "r");
    if (f) {
        char line[128];
        if (fgets(line, sizeof line, f)) {
            char *next;
            size = strtoull(line, &next, 10);
            pages = strtoull(next, NULL, 10);
        }
        (void)fclose(f);
    }
    return size ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t heap(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 m = mallinfo2();
    return (uint64_t)m.uordblks + (uint64_t)m.hblkhd;
}

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* How many they were. */
static uint64_t live(struct tsr_conformance_case *c, uint64_t lives, double for_seconds)
{
    const double end = seconds() + for_seconds;
    uint64_t     n = 0;
    for (; n < lives && seconds() < end; n++) {
        void      *self = NULL;
        tsr_status st = c->kind->make(c, &self, NULL);
        if (st != TSR_OK)
            tsr_conformance_rule_skip(c, "create() answers %s", tsr_conformance_status_name(st));
        c->kind->unmake(c, self);
    }
    return n;
}

void tsr_any_growth(struct tsr_conformance_case *c)
{
    (void)live(c, WARM, WARM_SECONDS);
    uint64_t pages = resident(), bytes = heap(), released = atomic_load(&c->host->live_bytes);
    uint64_t lives = live(c, LIVES, LIFE_SECONDS);
    /* the rule `leaks` covers memory from alloc() */
    if (atomic_load(&c->host->live_bytes) > released)
        return;
    uint64_t more = heap() > bytes ? heap() - bytes : 0;
    uint64_t more_pages = resident() > pages ? resident() - pages : 0;
    if (more > HEAP_GROWTH || more_pages > PAGE_GROWTH)
        tsr_conformance_rule_fail(
            c,
            "%llu times create() and destroy() left %llu bytes on the heap and made the "
            "process %llu bytes larger",
            (unsigned long long)lives, (unsigned long long)more, (unsigned long long)more_pages);
}

/* ---- the right use of alloc() -------------------------------------------------------------- */

void tsr_any_releases(struct tsr_conformance_case *c)
{
    (void)c->kind->exercise(c, false, NULL);
    if (*c->host->misuse[TSR_CONFORMANCE_MISUSE_ALLOC])
        tsr_conformance_rule_fail(c, "%s", c->host->misuse[TSR_CONFORMANCE_MISUSE_ALLOC]);
    if (*c->host->misuse[TSR_CONFORMANCE_MISUSE_RELEASE])
        tsr_conformance_rule_fail(c, "%s", c->host->misuse[TSR_CONFORMANCE_MISUSE_RELEASE]);
}

void tsr_any_memory_guarded(struct tsr_conformance_case *c)
{
    c->host->guard = true;
    (void)c->kind->exercise(c, false, NULL);
    if (*c->host->misuse[TSR_CONFORMANCE_MISUSE_OVERRUN])
        tsr_conformance_rule_fail(c, "%s", c->host->misuse[TSR_CONFORMANCE_MISUSE_OVERRUN]);
}
