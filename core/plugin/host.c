#include "plugin/internal.h"

#include "base/arena.h"
#include "base/log.h"
#include "plugin/guard.h"
#include "tessera/threads.h"

#include <stdlib.h>
#include <string.h>

static _Atomic int cancel_flag, soft, asked;

void tsr_plugin_cancel(void)
{
    atomic_store(atomic_load(&soft) ? &asked : &cancel_flag, 1);
}

void tsr_plugin_cancel_softly(bool on)
{
    atomic_store(&asked, 0);
    atomic_store(&soft, on);
}

bool tsr_plugin_cancel_asked(void)
{
    return atomic_load_explicit(&asked, memory_order_relaxed) != 0;
}

bool tsr_plugin_cancelled(void)
{
    return atomic_load_explicit(&cancel_flag, memory_order_relaxed) != 0;
}

void tsr_plugin_cancel_reset(void)
{
    atomic_store(&cancel_flag, 0);
}

static void host_log(void *ctx, int32_t level, const char *msg)
{
    const struct tsr_plugin_host_ctx *c = ctx;
    if (level < TSR_LOG_DEBUG || level > TSR_LOG_WARN)
        level = TSR_LOG_WARN;
    tsr_logf(level, "%s%s%s", c->id ? c->id : "", c->id ? ": " : "", msg ? msg : "");
}

static void *place(uint64_t size, uint64_t align)
{
    void *p = tsr_arena_get(size, align);
    return p || posix_memalign(&p, align, size ? size : 1) == 0 ? p : NULL;
}

static void *host_alloc(void *ctx, uint64_t size, uint64_t align)
{
    struct tsr_plugin_host_ctx *c = ctx;
    if (align == 0 || (align & (align - 1)) != 0 || size > SIZE_MAX / 2 || align > SIZE_MAX / 2)
        return NULL;
    if (align < sizeof(void *))
        align = sizeof(void *);
    uint64_t limit = atomic_load_explicit(&c->account->limit, memory_order_relaxed);
    uint64_t now = atomic_fetch_add(&c->account->now, size) + size;
    void    *p = limit && now > limit ? NULL : place(size, align);
    if (!p) {
        atomic_fetch_sub(&c->account->now, size);
        return NULL;
    }
    uint64_t peak = atomic_load(&c->account->peak);
    while (now > peak && !atomic_compare_exchange_weak(&c->account->peak, &peak, now)) {
    }
    return p;
}

static void host_release(void *ctx, void *p, uint64_t size)
{
    struct tsr_plugin_host_ctx *c = ctx;
    if (!p)
        return;
    atomic_fetch_sub(&c->account->now, size);
    if (!tsr_arena_put(p, size))
        free(p);
}

static tsr_status host_parallel_for(void *ctx, uint64_t n, uint64_t grain,
                                    tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    const struct tsr_plugin_host_ctx *c = ctx;
    if (!body)
        return TSR_E_INVAL;
    struct tsr_plugin_guard_loop loop = { tsr_guard_current, body, arg };
    tsr_status st = tsr_pool_for(c->pool, n, grain, tsr_plugin_guard_chunk, &loop);
    if (st != TSR_OK && loop.g)
        loop.g->inner = st; /* may come back */
    return st;
}

static int32_t host_cancelled(void *ctx)
{
    (void)ctx;
    return tsr_plugin_cancelled();
}

static uint32_t host_threads(void *ctx)
{
    const struct tsr_plugin_host_ctx *c = ctx;
    return tsr_pool_threads(c->pool);
}

static const void *host_service(void *ctx, const char *id)
{
    static const struct tsr_threads_v1 threads = { .struct_size = sizeof threads,
                                                   .count = host_threads };
    const struct tsr_plugin_host_ctx  *c = ctx;
    if (id && strcmp(id, TSR_THREADS) == 0)
        return &threads;
    return c->services ? c->services->find(c->services, id) : NULL;
}

void tsr_plugin_host_init(struct tsr_plugin_host_ctx *c, struct tsr_pool *pool,
                          struct tsr_plugin_account *account, struct tsr_plugin_services *services,
                          const char *id)
{
    c->host = (struct tsr_host){
        .struct_size = sizeof c->host,
        .abi_major = TSR_ABI_MAJOR,
        .abi_minor = TSR_ABI_MINOR,
        .ctx = c,
        .log = host_log,
        .alloc = host_alloc,
        .release = host_release,
        .parallel_for = host_parallel_for,
        .cancelled = host_cancelled,
        .service = host_service,
    };
    c->pool = pool;
    c->account = account;
    c->services = services;
    c->id = id;
}
