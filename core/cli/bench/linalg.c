/* bench syrk, bench cholesky, bench encode: the costs of calibration, GPTQ and quantized links. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tessera/linalg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct work {
    const struct tsr_linalg_v1 *lin;
    uint64_t                    n, m;
    float                      *x, *a, *c; /* x [m,n]; a, c [n,n]; of the host's memory */
};

static tsr_status matrix(const struct bench *b, uint64_t rows, uint64_t cols, float **p,
                         struct tsr_err *err)
{
    uint64_t bytes;
    if (!tsr_mul(rows, cols, &bytes) || !tsr_mul(bytes, 4, &bytes))
        return tsr_fail(err, TSR_E_INPUT, "--m times --rows is too large");
    *p = b->host->alloc(b->host->ctx, bytes, 64);
    if (!*p)
        return tsr_fail_nomem(err, bytes, "a matrix");
    for (uint64_t i = 0; i < rows * cols; i++)
        (*p)[i] = (float)((int64_t)((i * 7919) % 2001) - 1000) * 1e-3f;
    return TSR_OK;
}

static void work_free(const struct bench *b, struct work *w)
{
    b->host->release(b->host->ctx, w->x, w->m * w->n * 4);
    b->host->release(b->host->ctx, w->a, w->n * w->n * 4);
    b->host->release(b->host->ctx, w->c, w->n * w->n * 4);
}

/* A is diagonally dominant, so that it stays positive definite at every size. */
static tsr_status work_make(const struct bench *b, struct work *w, struct tsr_err *err)
{
    TSR_TRY(matrix(b, w->m, w->n, &w->x, err));
    TSR_TRY(matrix(b, w->n, w->n, &w->a, err));
    TSR_TRY(matrix(b, w->n, w->n, &w->c, err));
    for (uint64_t i = 0; i < w->n; i++)
        w->a[i * w->n + i] = (float)w->n;
    return TSR_OK;
}

static tsr_status syrk(struct work *w, struct tsr_err *err)
{
    return w->lin->syrk(w->lin->ctx, w->n, w->m, 1.0f, w->x, w->n, w->c, w->n, err);
}

static tsr_status cholesky(struct work *w, struct tsr_err *err)
{
    return w->lin->cholesky(w->lin->ctx, w->n, w->c, w->n, NULL, err);
}

/* probe, call, probe. */
static tsr_status one_round(struct bench *b, struct work *w, bool chol, double *seconds,
                            double *probe, double *clock, double *busy, struct tsr_err *err)
{
    double p, q;
    memcpy(w->c, w->a, w->n * w->n * 4);
    TSR_TRY(bench_measure(b, BENCH_CLOCK, clock, err));
    TSR_TRY(bench_measure(b, BENCH_FMA, &p, err));
    double cpu = bench_cpu_s(), t0 = tsr_now_s();
    TSR_TRY(chol ? cholesky(w, err) : syrk(w, err));
    *seconds = tsr_now_s() - t0;
    *busy = (bench_cpu_s() - cpu) / (*seconds * b->threads);
    TSR_TRY(bench_measure(b, BENCH_FMA, &q, err));
    *probe = fmax(p, q);
    TSR_TRY(bench_measure(b, BENCH_CLOCK, &p, err));
    *clock = fmax(*clock, p);
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

static tsr_status rounds(struct bench *b, struct work *w, bool chol, double flop,
                         struct tsr_err *err)
{
    uint64_t n = (uint64_t)b->o->repeats;
    double  *value = tsr_new(5 * n, sizeof *value);
    if (!value)
        return tsr_fail_nomem(err, 5 * n * sizeof *value, "rounds");
    double          *probe = value + n, *share = probe + n, *rate = share + n, *busy = rate + n;
    struct bench_row row = { .format = "f32",
                             .act = "-",
                             .unit = "GFLOP/s",
                             .rows = w->n,
                             .cols = w->n,
                             .m = chol ? 1 : w->m };
    (void)snprintf(row.what, sizeof row.what, "%s", chol ? "cholesky" : "syrk");
    double     s, clock;
    tsr_status st =
        one_round(b, w, chol, &s, probe, &clock, busy, err); /* the first touches pages */
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        st = one_round(b, w, chol, &s, &probe[i], &clock, &busy[i], err);
        if (st != TSR_OK)
            break;
        rate[i] = bench_instruction_rate(b, BENCH_FMA, probe[i], clock);
        value[i] = flop / s * 1e-9;
        probe[i] *= 2e-9;
        share[i] = probe[i] > 0 ? value[i] / probe[i] : 0;
        row.best = fmax(row.best, value[i]);
    }
    if (st == TSR_OK) {
        row.value = bench_median(value, n);
        row.probe = bench_median(probe, n);
        row.share = bench_median(share, n);
        row.each = row.share > 0 ? share : value;
        row.n_each = n;
        row.rate = bench_median(rate, n);
        row.busy = bench_median(busy, n);
        row.milliseconds = flop / row.value * 1e-6;
        st = bench_add(b, &row, err);
    }
    free(value);
    return st;
}

tsr_status bench_linalg(struct bench *b, bool chol, struct tsr_err *err)
{
    struct work w = { .n = (uint64_t)b->o->rows, .m = 2048 };
    uint32_t    one;
    if (*b->o->m)
        TSR_TRY(bench_numbers("--m", b->o->m, &w.m, 1, &one, err));
    w.lin = b->iface->extension ? b->iface->extension(b->self, TSR_LINALG) : NULL;
    if (!w.lin)
        return tsr_fail(err, TSR_E_INPUT, "backend '%s' has no %s", b->o->backend, TSR_LINALG);
    if (chol)
        w.m = 1;
    double     n = (double)w.n;
    tsr_status st = work_make(b, &w, err);
    if (st == TSR_OK)
        st = rounds(b, &w, chol, chol ? n * n * n / 3 : n * (n + 1) * (double)w.m, err);
    work_free(b, &w);
    return st;
}

/* ---- encode ---------------------------------------------------------------- */

struct kind {
    const char       *name;
    struct tsr_format f;
};

#define MX(n, el, g)                                                                               \
    {                                                                                              \
        n,                                                                                         \
        {                                                                                          \
            .struct_size = sizeof(struct tsr_format), .id = TSR_FORMAT_MX, .element = el,          \
            .bits = 1 + (el >> 8) + (el & 255), .group = g, .scale_bits = 8                        \
        }                                                                                          \
    }
#define INT4(n, g)                                                                                 \
    {                                                                                              \
        n,                                                                                         \
        {                                                                                          \
            .struct_size = sizeof(struct tsr_format), .id = TSR_FORMAT_INT, .bits = 4, .group = g, \
            .scale_dtype = TSR_F16, .zero = TSR_ZERO_MID                                           \
        }                                                                                          \
    }
static const struct kind kinds[] = {
    MX("fp4_e2m1 8", TSR_MX_FP4_E2M1, 8),
    MX("fp4_e2m1 16", TSR_MX_FP4_E2M1, 16),
    MX("fp4_e2m1 32", TSR_MX_FP4_E2M1, 32),
    MX("fp4_e1m2 32", TSR_MX_FP4_E1M2, 32),
    MX("fp3_e1m1 32", TSR_MX_FP3_E1M1, 32),
    MX("fp5_e3m1 32", TSR_MX_FP5_E3M1, 32),
    MX("fp5_e2m2 32", TSR_MX_FP5_E2M2, 32),
    MX("fp5_e1m3 32", TSR_MX_FP5_E1M3, 32),
    MX("fp6_e3m2 32", TSR_MX_FP6_E3M2, 32),
    MX("fp6_e2m3 32", TSR_MX_FP6_E2M3, 32),
    MX("fp8_e4m3 32", TSR_MX_FP8_E4M3, 32),
    MX("fp8_e5m2 32", TSR_MX_FP8_E5M2, 32),
    MX("int3 mx 32", TSR_MX_INT(3), 32),
    MX("int4 mx 32", TSR_MX_INT(4), 32),
    MX("int5 mx 32", TSR_MX_INT(5), 32),
    MX("int8 mx 32", TSR_MX_INT(8), 32),
    INT4("int4 32", 32),
    INT4("int4 128", 128),
};

/* One core, whatever --threads says; also measures the clock. */
tsr_status bench_encode(struct bench *b, struct tsr_err *err)
{
    uint64_t n = (uint64_t)b->o->repeats;
    if (!b->probe || !TSR_HAS(struct tsr_probe_v1, b->probe, encode))
        return tsr_fail(err, TSR_E_INPUT, "backend '%s' has no encoder to measure", b->o->backend);
    double *value = tsr_new(4 * n, sizeof *value), *clock = value + n, *share = clock + n;
    if (!value)
        return tsr_fail_nomem(err, 4 * n * sizeof *value, "rounds");
    double    *busy = share + n;
    tsr_status st = TSR_OK;
    b->threads = 1;
    for (uint64_t k = 0; k < sizeof kinds / sizeof kinds[0] && st == TSR_OK; k++) {
        struct bench_row row = { .act = "-", .unit = "Gelem/s", .rows = 1, .cols = 4096, .m = 1 };
        (void)snprintf(row.what, sizeof row.what, "encode");
        (void)snprintf(row.format, sizeof row.format, "%s", kinds[k].name);
        for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
            struct tsr_probe_result r = { .struct_size = sizeof r };
            st = bench_measure(b, BENCH_CLOCK, &clock[i], err);
            double cpu = bench_cpu_s(), t0 = tsr_now_s();
            value[i] = 0; /* the best slice, as with other arithmetic probes */
            for (int slice = 0; slice < 8 && st == TSR_OK; slice++) {
                st = b->probe->encode(b->self, &kinds[k].f, 0.002, &r, err);
                value[i] = st == TSR_OK ? fmax(value[i], r.work / r.seconds * 1e-9) : 0;
            }
            busy[i] = (bench_cpu_s() - cpu) / (tsr_now_s() - t0);
            clock[i] *= 1e-9;
            share[i] = clock[i] > 0 ? value[i] / clock[i] : 0;
            row.best = fmax(row.best, value[i]);
        }
        if (st != TSR_OK)
            break;
        row.value = bench_median(value, n);
        row.probe = bench_median(clock, n);
        row.share = bench_median(share, n);
        row.each = row.share > 0 ? share : value;
        row.n_each = n;
        row.busy = bench_median(busy, n);
        row.milliseconds = 4096 / row.value * 1e-6;
        st = tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                                    : bench_add(b, &row, err);
    }
    free(value);
    return st;
}
