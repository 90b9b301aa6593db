#include "conformance/test_host.h"

#include "plugin/registry.h"
#include "tessera/linalg.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_WORKERS 64u

static pthread_mutex_t misuse_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 3, 4))) static void misused(struct tsr_conformance_test_host *h,
                                                          enum tsr_host_misuse              kind,
                                                          const char *fmt, ...)
{
    pthread_mutex_lock(&misuse_lock);
    if (!*h->misuse[kind]) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(h->misuse[kind], sizeof h->misuse[kind], fmt, ap);
        va_end(ap);
    }
    pthread_mutex_unlock(&misuse_lock);
}

/* ---- memory ------------------------------------------------------------------------ */

static void *host_alloc(void *ctx, uint64_t size, uint64_t align)
{
    struct tsr_conformance_test_host *h = ctx;
    uint64_t                          n = atomic_fetch_add(&h->allocs, 1) + 1;
    if (h->fail_alloc && n == h->fail_alloc)
        return NULL;
    if (align == 0 || (align & (align - 1)) != 0) {
        misused(h, TSR_CONFORMANCE_MISUSE_ALLOC,
                "alloc() of %llu bytes asks for an alignment of %llu", (unsigned long long)size,
                (unsigned long long)align);
        return NULL;
    }
    struct tsr_conformance_region *r =
        tsr_conformance_region_new("memory of host->alloc()", size, align, h->guard, h->fill);
    if (!r)
        return NULL;
    r->owner = h;
    atomic_fetch_add(&h->live, 1);
    atomic_fetch_add(&h->live_bytes, size);
    return r->user;
}

static void host_release(void *ctx, void *p, uint64_t size)
{
    struct tsr_conformance_test_host *h = ctx;
    if (!p)
        return;
    struct tsr_conformance_region *r = tsr_conformance_region_find(p);
    if (!r || r->owner != h) {
        misused(h, TSR_CONFORMANCE_MISUSE_RELEASE,
                "release() of %llu bytes at an address that alloc() did not give, or a second time",
                (unsigned long long)size);
        return;
    }
    if (r->bytes != size)
        misused(h, TSR_CONFORMANCE_MISUSE_RELEASE,
                "release() says %llu bytes of memory that was %llu", (unsigned long long)size,
                (unsigned long long)r->bytes);
    if (!tsr_conformance_region_intact(r))
        misused(h, TSR_CONFORMANCE_MISUSE_OVERRUN,
                "bytes outside memory of %llu bytes were written", (unsigned long long)r->bytes);
    atomic_fetch_sub(&h->live, 1);
    atomic_fetch_sub(&h->live_bytes, r->bytes);
    tsr_conformance_region_free(r);
}

void tsr_conformance_test_host_protect(struct tsr_conformance_test_host *h, bool read_only)
{
    tsr_conformance_regions_protect(h, read_only ? PROT_READ : PROT_READ | PROT_WRITE);
}

/* ---- log ---------------------------------------------------------------------------- */

static void host_log(void *ctx, int32_t level, const char *msg)
{
    struct tsr_conformance_test_host *h = ctx;
    atomic_fetch_add(&h->logged, 1);
    if (level < TSR_LOG_DEBUG || level > TSR_LOG_WARN)
        misused(h, TSR_CONFORMANCE_MISUSE_LOG, "log() with level %d, which does not exist", level);
    if (!msg)
        misused(h, TSR_CONFORMANCE_MISUSE_LOG, "log() of NULL");
    else if (!*msg)
        misused(h, TSR_CONFORMANCE_MISUSE_LOG, "log() of an empty line");
    else
        for (const unsigned char *p = (const unsigned char *)msg; *p; p++)
            if (*p < 0x20 || *p == 0x7f) {
                misused(h, TSR_CONFORMANCE_MISUSE_LOG,
                        "log() with control character 0x%02x at byte %llu of \"%.40s\"", *p,
                        (unsigned long long)(p - (const unsigned char *)msg), msg);
                break;
            }
}

/* ---- work --------------------------------------------------------------------------- */

struct loop {
    tsr_status (*body)(void *, uint64_t, uint64_t);
    void            *arg;
    uint64_t         n, grain, chunks;
    _Atomic uint64_t next;
    _Atomic int32_t  failed;
};

static _Thread_local bool inside; /* a loop: one inside it stays on its thread */

static void *work(void *p)
{
    struct loop *l = p;
    bool         was = inside;
    inside = true;
    for (uint64_t i; (i = atomic_fetch_add(&l->next, 1)) < l->chunks;) {
        if (atomic_load(&l->failed) != TSR_OK)
            break;
        uint64_t   begin = i * l->grain, left = l->n - begin;
        tsr_status st = l->body(l->arg, begin, begin + (left < l->grain ? left : l->grain));
        int32_t    none = TSR_OK;
        if (st != TSR_OK)
            (void)atomic_compare_exchange_strong(&l->failed, &none, st);
    }
    inside = was;
    return NULL;
}

static tsr_status host_parallel_for(void *ctx, uint64_t n, uint64_t grain,
                                    tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    const struct tsr_conformance_test_host *h = ctx;
    if (!body)
        return TSR_E_INVAL;
    if (grain == 0)
        grain = 1;
    struct loop l = {
        .body = body, .arg = arg, .n = n, .grain = grain, .chunks = n / grain + (n % grain != 0)
    };
    pthread_t threads[MAX_WORKERS];
    uint32_t  started = 0, want = inside || h->workers < 2 ? 0 : h->workers - 1;
    while (started < want && started < MAX_WORKERS &&
           pthread_create(&threads[started], NULL, work, &l) == 0)
        started++;
    /* The first part is another thread's, so that parts do run on several however busy the machine
     * is. */
    while (started && l.chunks && atomic_load(&l.next) == 0)
        (void)sched_yield();
    (void)work(&l);
    while (started)
        (void)pthread_join(threads[--started], NULL);
    return atomic_load(&l.failed);
}

/* ---- time --------------------------------------------------------------------------- */

static uint64_t used_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void tsr_conformance_test_host_start(struct tsr_conformance_test_host *h)
{
    h->started_ns = used_ns();
    h->stopped_ns = 0;
}

void tsr_conformance_test_host_stop(struct tsr_conformance_test_host *h)
{
    h->stopped_ns = used_ns();
}

double tsr_conformance_test_host_late_ms(const struct tsr_conformance_test_host *h)
{
    if (!h->started_ns || !h->cancel_after_ms)
        return 0.0;
    uint64_t now = h->stopped_ns ? h->stopped_ns : used_ns();
    double   since = (double)(now - h->started_ns) / 1e6 - (double)h->cancel_after_ms;
    return since > 0.0 ? since : 0.0;
}

static int32_t host_cancelled(void *ctx)
{
    struct tsr_conformance_test_host *h = ctx;
    atomic_fetch_add(&h->asked, 1);
    if (atomic_load(&h->cancel))
        return 1;
    return h->cancel_after_ms && h->started_ns &&
           used_ns() - h->started_ns >= h->cancel_after_ms * 1000000u;
}

/* ---- services ------------------------------------------------------------------------ */

static pthread_mutex_t      service_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tsr_registry *service_registry;

/* The real ones, from the installed backend: made at first use and never freed, in a process
 * that ends with its rule. */
static const void *host_service(void *ctx, const char *id)
{
    const struct tsr_conformance_test_host *h = ctx;
    if (h->no_services || !id || strcmp(id, TSR_LINALG) != 0)
        return NULL;
    const void *table = NULL;
    pthread_mutex_lock(&service_lock);
    if (!service_registry)
        (void)tsr_plugin_registry_create(&service_registry, NULL, NULL);
    if (service_registry) {
        const struct tsr_host *real = tsr_plugin_registry_host(service_registry);
        table = real->service(real->ctx, id);
    }
    pthread_mutex_unlock(&service_lock);
    return table;
}

void tsr_conformance_test_host_init(struct tsr_conformance_test_host *h, uint32_t workers)
{
    memset(h, 0, sizeof *h);
    h->table = (struct tsr_host){
        .struct_size = sizeof h->table,
        .abi_major = TSR_ABI_MAJOR,
        .abi_minor = TSR_ABI_MINOR,
        .ctx = h,
        .log = host_log,
        .alloc = host_alloc,
        .release = host_release,
        .parallel_for = host_parallel_for,
        .cancelled = host_cancelled,
        .service = host_service,
    };
    h->give = &h->table;
    h->fill = 0xA5;
    h->workers = workers;
}
