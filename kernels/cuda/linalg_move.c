/* linalg_move.c - calls, and matrices of the host on the device: for one call, or held. */
#include "linalg_internal.h"

#include <string.h>

#define STAGING TSR_CUDA_STAGING

struct tsr_cuda_held {
    struct tsr_cuda_held *next;
    const float          *a;
    uint64_t              n, address, times;
};

/* ---- calls ------------------------------------------------------------------------------ */

tsr_status tsr_cuda_linalg_begin(struct tsr_cuda *c, struct tsr_err *err)
{
    (void)pthread_mutex_lock(&c->lock);
    tsr_cuda_kept_forget(c);
    return c->host->cancelled(c->host->ctx)
               ? tsr_fail(err, TSR_E_CANCELLED, "linear algebra: stopped")
               : TSR_OK;
}

tsr_status tsr_cuda_linalg_end(struct tsr_cuda *c, tsr_status st)
{
    (void)pthread_mutex_unlock(&c->lock);
    return st;
}

tsr_status tsr_cuda_linalg_check(const char *what, const void *p, uint64_t rows, uint64_t cols,
                                 uint64_t ld, struct tsr_err *err)
{
    uint64_t n;
    if (!p)
        return tsr_fail(err, TSR_E_INVAL, "%s is NULL", what);
    if (rows > 1 && ld < cols)
        return tsr_fail(err, TSR_E_INVAL, "%s has rows of %llu elements %llu apart", what, U(cols),
                        U(ld));
    /* so that no size made of these overflows */
    if (cols > INT32_MAX || rows > INT32_MAX || __builtin_mul_overflow(rows, ld, &n) ||
        n > PTRDIFF_MAX / 64)
        return tsr_fail(err, TSR_E_INVAL, "%s is %llu by %llu: too large", what, U(rows), U(cols));
    return TSR_OK;
}

/* One row may have any stride. */
static uint64_t stride(uint64_t rows, uint64_t cols, uint64_t ld)
{
    return rows == 1 ? cols : ld;
}

struct tsr_cuda_mat tsr_cuda_linalg_mat(const float *p, uint64_t rows, uint64_t cols, uint64_t ld,
                                        int write)
{
    return (struct tsr_cuda_mat){ .host = (float *)(uintptr_t)p,
                                  .rows = rows,
                                  .cols = cols,
                                  .ld = stride(rows, cols, ld),
                                  .write = write };
}

/* ---- held ranges ----------------------------------------------------------------------- */

static struct tsr_cuda_held *held_at(const struct tsr_cuda *c, const float *a, uint64_t n)
{
    struct tsr_cuda_held *h = c->linalg.held;
    uintptr_t             p = (uintptr_t)a;
    for (; h; h = h->next) {
        uintptr_t from = (uintptr_t)h->a, to = from + h->n * sizeof *a;
        if (p >= from && p < to && n <= (to - p) / sizeof *a)
            return h;
    }
    return NULL;
}

static int shares(const struct tsr_cuda *c, const float *a, uint64_t n)
{
    uintptr_t from = (uintptr_t)a, to = from + n * sizeof *a;
    for (const struct tsr_cuda_held *h = c->linalg.held; h; h = h->next)
        if (from < (uintptr_t)(h->a + h->n) && to > (uintptr_t)h->a)
            return 1;
    return 0;
}

static void forget(struct tsr_cuda *c, struct tsr_cuda_held *h)
{
    struct tsr_cuda_held **p = &c->linalg.held;
    while (*p != h)
        p = &(*p)->next;
    *p = h->next;
    c->api->release(c->device, h->address, TSR_CUDA_DEVICE);
    c->host->release(c->host->ctx, h, sizeof *h);
}

void tsr_cuda_drop_all(struct tsr_cuda *c)
{
    while (c->linalg.held)
        forget(c, c->linalg.held);
}

static tsr_status hold(struct tsr_cuda *c, const float *a, uint64_t n, struct tsr_err *err)
{
    const struct tsr_host *host = c->host;
    struct tsr_cuda_held  *h = held_at(c, a, n);
    if (h && h->a == a && h->n == n) {
        h->times++;
        return TSR_OK;
    }
    if (!a || n == 0 || n > PTRDIFF_MAX / sizeof *a || shares(c, a, n))
        return tsr_fail(err, TSR_E_INVAL,
                        a && n ? "hold: these floats are held in part already"
                               : "hold: there are no floats");
    h = host->alloc(host->ctx, sizeof *h, 16);
    if (!h)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a held matrix");
    *h = (struct tsr_cuda_held){ .next = c->linalg.held, .a = a, .n = n, .times = 1 };
    tsr_status st = c->api->alloc(c->device, n * sizeof *a, TSR_CUDA_DEVICE, &h->address, err);
    if (st != TSR_OK) {
        host->release(host->ctx, h, sizeof *h);
        return st;
    }
    c->linalg.held = h;
    st = c->api->put(c->device, h->address, a, n * sizeof *a, err);
    if (st != TSR_OK)
        forget(c, h);
    return st;
}

tsr_status tsr_cuda_hold(void *ctx, const float *a, uint64_t n, struct tsr_err *err)
{
    struct tsr_cuda *c = ctx;
    (void)pthread_mutex_lock(&c->lock);
    tsr_status st = hold(c, a, n, err);
    (void)pthread_mutex_unlock(&c->lock);
    return st;
}

tsr_status tsr_cuda_drop(void *ctx, const float *a, int32_t fetch, struct tsr_err *err)
{
    struct tsr_cuda *c = ctx;
    tsr_status       st = TSR_OK;
    (void)pthread_mutex_lock(&c->lock);
    struct tsr_cuda_held *h = held_at(c, a, 1);
    if (!h || h->a != a)
        st = tsr_fail(err, TSR_E_INVAL, "drop: no held floats begin here");
    else if (fetch)
        st = c->api->get(c->device, (float *)(uintptr_t)a, h->address, h->n * sizeof *a, err);
    if (h && h->a == a && --h->times == 0)
        forget(c, h);
    (void)pthread_mutex_unlock(&c->lock);
    return st;
}

/* Between n floats of the host and the device's, all in one held range. */
static tsr_status part(struct tsr_cuda *c, float *a, uint64_t n, int back, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    if (n == 0)
        return st;
    (void)pthread_mutex_lock(&c->lock);
    const struct tsr_cuda_held *h = held_at(c, a, n);
    uint64_t                    at = h ? (uint64_t)(a - h->a) * sizeof *a : 0;
    if (!h)
        st = tsr_fail(err, TSR_E_INVAL, "%s: these floats are not held", back ? "fetch" : "push");
    else if (back)
        st = c->api->get(c->device, a, h->address + at, n * sizeof *a, err);
    else
        st = c->api->put(c->device, h->address + at, a, n * sizeof *a, err);
    (void)pthread_mutex_unlock(&c->lock);
    return st;
}

tsr_status tsr_cuda_fetch(void *ctx, float *a, uint64_t n, struct tsr_err *err)
{
    return part(ctx, a, n, 1, err);
}

tsr_status tsr_cuda_push(void *ctx, const float *a, uint64_t n, struct tsr_err *err)
{
    return part(ctx, (float *)(uintptr_t)a, n, 0, err);
}

/* ---- rows ------------------------------------------------------------------------------- */

static tsr_status staging(struct tsr_cuda *c, struct tsr_err *err)
{
    if (!c->linalg.staging)
        c->linalg.staging = c->host->alloc(c->host->ctx, STAGING, 64);
    return c->linalg.staging
               ? TSR_OK
               : tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for rows of a matrix",
                          (unsigned long long)STAGING);
}

/* Between rows with stride ld on the host and stride cols on the device. */
static tsr_status move_rows(struct tsr_cuda *c, const struct tsr_cuda_mat *m, int back,
                            struct tsr_err *err)
{
    const uint64_t row = m->cols * sizeof *m->host;
    const uint64_t whole = m->ld == m->cols || m->rows == 1 ? m->rows : row >= STAGING ? 1 : 0;
    tsr_status     st = whole ? TSR_OK : staging(c, err);
    for (uint64_t r = 0; r < m->rows && st == TSR_OK;) {
        uint64_t n = cuda_min(whole ? whole : STAGING / row, m->rows - r), to = m->p + r * row;
        float   *host = m->host + r * m->ld;
        uint8_t *from = whole ? (uint8_t *)host : c->linalg.staging;
        for (uint64_t i = 0; i < n && !whole && !back; i++)
            memcpy(from + i * row, host + i * m->ld, row);
        st = back ? c->api->get(c->device, from, to, n * row, err)
                  : c->api->put(c->device, to, from, n * row, err);
        for (uint64_t i = 0; i < n && !whole && back && st == TSR_OK; i++)
            memcpy(host + i * m->ld, from + i * row, row);
        r += n;
    }
    return st;
}

tsr_status tsr_cuda_bring(struct tsr_cuda *c, struct tsr_cuda_mat *m, int n, uint64_t extra,
                          uint64_t *more, struct tsr_err *err)
{
    uint64_t   at[3], total = 0, work = 0;
    tsr_status st = tsr_cuda_flush(c, err); /* an operation may use the scratch */
    if (st != TSR_OK)
        return st;
    for (int i = 0; i < n; i++) {
        struct tsr_cuda_held *h = held_at(c, m[i].host, (m[i].rows - 1) * m[i].ld + m[i].cols);
        m[i].held = h != NULL;
        m[i].dld = h ? m[i].ld : m[i].cols;
        m[i].p = h ? h->address + (uint64_t)((const char *)m[i].host - (const char *)h->a) : 0;
        at[i] = total;
        total += h ? 0 : cuda_ceil(m[i].rows * m[i].cols * sizeof(float), 256) * 256;
    }
    if (total + extra)
        st = tsr_cuda_work(c, total + extra, &work, err);
    for (int i = 0; i < n && st == TSR_OK; i++)
        if (!m[i].held) {
            m[i].p = work + at[i];
            st = move_rows(c, &m[i], 0, err);
        }
    if (more)
        *more = work + total;
    return st;
}

tsr_status tsr_cuda_take(struct tsr_cuda *c, const struct tsr_cuda_mat *m, int n,
                         struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (int i = 0; i < n && st == TSR_OK; i++)
        if (m[i].write && !m[i].held)
            st = move_rows(c, &m[i], 1, err);
    return st;
}
