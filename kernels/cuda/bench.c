/* bench.c - the extension of bench.h. */
#include "bench.h"
#include "tessera/draft/peaks.h"

#include "backend.h"

static tsr_status run_in_turn(struct tsr_cuda *c, const struct tsr_op *op, uint64_t n,
                              uint64_t times, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < n * times && st == TSR_OK; i++) {
        tsr_cuda_kept_forget(c); /* each with all that it needs where it stands alone */
        st = tsr_cuda_run(c, NULL, &op[i % n], err);
    }
    return st == TSR_OK ? tsr_cuda_flush(c, err) : st;
}

static tsr_status time_ops(void *self, const struct tsr_op *op, uint64_t n, uint64_t times,
                           double *seconds, struct tsr_err *err)
{
    struct tsr_cuda *c = self;
    tsr_status       st = tsr_cuda_flush(c, err);
    if (st == TSR_OK)
        st = run_in_turn(c, op, n, times, err);
    if (st == TSR_OK)
        st = c->api->mark(c->device, 0, err);
    if (st == TSR_OK)
        st = run_in_turn(c, op, n, times, err);
    if (st == TSR_OK)
        st = c->api->mark(c->device, 1, err);
    if (st == TSR_OK)
        st = c->api->between(c->device, seconds, err);
    if (st == TSR_OK)
        *seconds /= n && times ? (double)(n * times) : 1.0;
    return st;
}

/* Copies of a weight, `step` bytes apart, in turn. */
static tsr_status matmuls(struct tsr_cuda *c, const struct tsr_cuda_matmul *m, uint64_t copies,
                          uint64_t step, uint64_t n, struct tsr_err *err)
{
    struct tsr_cuda_matmul one = *m;
    tsr_status             st = TSR_OK;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        one.w = m->w + i % copies * step;
        st = c->api->matmul(c->device, &one, err);
    }
    return st;
}

static tsr_status time_matmul(struct tsr_cuda *c, const struct tsr_cuda_matmul *m, uint64_t copies,
                              uint64_t step, uint64_t times, double *seconds, struct tsr_err *err)
{
    const uint64_t n = times > copies ? times : copies;
    tsr_status     st = matmuls(c, m, copies, step, n, err); /* chooses an algorithm */
    if (st == TSR_OK)
        st = c->api->mark(c->device, 0, err);
    if (st == TSR_OK)
        st = matmuls(c, m, copies, step, n, err);
    if (st == TSR_OK)
        st = c->api->mark(c->device, 1, err);
    if (st == TSR_OK)
        st = c->api->between(c->device, seconds, err);
    if (st == TSR_OK)
        *seconds /= (double)n;
    return st;
}

static int size_of(uint64_t a, uint64_t b, uint64_t *total, uint64_t *place)
{
    uint64_t n;
    *place = *total;
    return !__builtin_mul_overflow(a, b, &n) && n < (UINT64_C(1) << 50) &&
           !__builtin_add_overflow(*total, (2 * n + 255) / 256 * 256, total);
}

#define PATTERN (UINT64_C(1) << 20)

/* Small numbers of both signs in F16: zeros would cost a device less than numbers do. */
static tsr_status fill(struct tsr_cuda *c, uint64_t at, uint64_t bytes, struct tsr_err *err)
{
    const struct tsr_host *host = c->host;
    uint16_t              *p = host->alloc(host->ctx, PATTERN, 64);
    uint64_t               x = 1;
    tsr_status             st = TSR_OK;
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: numbers for a measurement");
    for (uint64_t i = 0; i < PATTERN / 2; i++) {
        x = x * UINT64_C(6364136223846793005) + 1;
        p[i] = (uint16_t)((x >> 48 & 0x83ffu) | 0x2c00u); /* 1/16 to 1/8 */
    }
    for (uint64_t i = 0; i < bytes && st == TSR_OK; i += PATTERN)
        st = c->api->put(c->device, at + i, p, cuda_min(PATTERN, bytes - i), err);
    host->release(host->ctx, p, PATTERN);
    return st;
}

static tsr_status time_dense(void *self, uint64_t rows, uint64_t cols, uint64_t tokens,
                             uint64_t times, double *seconds, struct tsr_err *err)
{
    struct tsr_cuda *c = self;
    uint64_t         w, x, out, work, total = 0, at = 0, copies, step;
    if (!c->api->matmul)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s has no library for products", c->text);
    tsr_status st = c->api->matmul_find(c->device, err);
    if (st != TSR_OK)
        return st;
    if (!size_of(rows, cols, &total, &w) || !(step = total))
        return tsr_fail(err, TSR_E_NOMEM, "a product of this shape does not fit");
    copies = tsr_cuda_bench_copies(step);
    total = copies * step;
    if (!size_of(tokens, cols, &total, &x) || !size_of(tokens, rows, &total, &out) ||
        !size_of(1, UINT64_C(16) << 20, &total, &work))
        return tsr_fail(err, TSR_E_NOMEM, "a product of this shape does not fit");
    st = c->api->alloc(c->device, total, TSR_CUDA_DEVICE, &at, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cuda_matmul m = { .w = at + w,
                                 .x = at + x,
                                 .out = at + out,
                                 .ldw = cols,
                                 .ldx = cols,
                                 .ldo = rows,
                                 .rows = rows,
                                 .cols = cols,
                                 .tokens = tokens,
                                 .work = at + work,
                                 .work_bytes = total - work,
                                 .narrow_out = 1 };
    st = fill(c, at, out, err); /* w and x */
    if (st == TSR_OK)
        st = time_matmul(c, &m, copies, step, times, seconds, err);
    c->api->release(c->device, at, TSR_CUDA_DEVICE);
    return st;
}

static tsr_status copies_of(struct tsr_cuda *c, const struct k_rows *r, uint64_t times,
                            struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < times && st == TSR_OK; i++)
        st = tsr_cuda_launch(c, NULL, KERNEL_k_copy, r->n / 1024, 1, 1, 256, r, sizeof *r, err);
    return st == TSR_OK ? tsr_cuda_flush(c, err) : st;
}

static tsr_status time_copy(void *self, uint64_t bytes, uint64_t times, double *seconds,
                            struct tsr_err *err)
{
    struct tsr_cuda *c = self;
    uint64_t         at = 0;
    tsr_status       st = c->api->alloc(c->device, 2 * bytes, TSR_CUDA_DEVICE, &at, err);
    if (st != TSR_OK)
        return st;
    const struct k_rows r = { .out = at + bytes, .a = at, .n = bytes / 16 };
    st = copies_of(c, &r, times, err);
    if (st == TSR_OK)
        st = c->api->mark(c->device, 0, err);
    if (st == TSR_OK)
        st = copies_of(c, &r, times, err);
    if (st == TSR_OK)
        st = c->api->mark(c->device, 1, err);
    if (st == TSR_OK)
        st = c->api->between(c->device, seconds, err);
    if (st == TSR_OK)
        *seconds /= times ? (double)times : 1.0;
    c->api->release(c->device, at, TSR_CUDA_DEVICE);
    return st;
}

/* tessera.peaks/1: the best of a few rounds. */
static tsr_status copy_rate(void *self, uint64_t bytes, double *rate, struct tsr_err *err)
{
    *rate = 0;
    for (int round = 0; round < 3; round++) {
        double     seconds = 0;
        tsr_status st = time_copy(self, bytes, 4, &seconds, err);
        if (st != TSR_OK)
            return st;
        if (seconds > 0 && 2.0 * (double)bytes / seconds > *rate)
            *rate = 2.0 * (double)bytes / seconds;
    }
    return *rate > 0 ? TSR_OK : tsr_fail(err, TSR_E_DEVICE, "a copy took no time");
}

static double multiply_rate(const void *self)
{
    const struct tsr_cuda *c = self;
    return c->api->bf16_rate ? c->api->bf16_rate(c->device) : 0;
}

const struct tsr_peaks_v1 *tsr_cuda_peaks(void)
{
    static const struct tsr_peaks_v1 table = { .struct_size = sizeof table,
                                               .copy = copy_rate,
                                               .multiply = multiply_rate };
    return &table;
}

const struct tsr_cuda_bench_v1 *tsr_cuda_bench(void)
{
    static const struct tsr_cuda_bench_v1 table = {
        .struct_size = sizeof table, .ops = time_ops, .dense = time_dense, .copy = time_copy
    };
    return &table;
}
