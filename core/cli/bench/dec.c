/* bench dec: the cost that compensation adds to its GEMV. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "compensate/residual.h"
#include "compensate/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16u /* numbers in --channels */

struct dec {
    char                                    format[24];
    struct bench_work                       w;
    const struct tsr_backend_compensate_v1 *table;
    struct tsr_compensate_residual          r;      /* shapes; codes of all copies */
    void                                  **handle; /* [w.n] */
    struct tsr_tensor                       list;
    float                                  *x, *top; /* [cols] */
    double                                 *call; /* [2 * w.n] seconds of calls, bare ones first */
    uint32_t                                k[MOST];
    uint32_t                                n_k;
};

static void dec_free(struct bench *b, struct dec *d)
{
    for (uint64_t i = 0; d->table && d->handle && i < d->w.n; i++)
        d->table->residual_free(b->self, d->handle[i]);
    free(d->handle);
    b->iface->buffer_free(b->self, d->list.buffer);
    tsr_compensate_residual_free(&d->r);
    free(d->x);
    free(d->top);
    free(d->call);
    bench_work_free(b, &d->w);
}

static tsr_status read_channels(const char *text, struct dec *d, struct tsr_err *err)
{
    for (const char *s = text;; s++) {
        char         *end;
        unsigned long v = *s >= '0' && *s <= '9' ? strtoul(s, &end, 10) : 0;
        if (v < 1 || v > TSR_COMPENSATE_CHUNK || d->n_k == MOST)
            return tsr_fail(
                err, TSR_E_INPUT,
                "--channels: '%.40s' is not a list of at most %u numbers from 1 to 1024", text,
                MOST);
        d->k[d->n_k++] = (uint32_t)v;
        s = end;
        if (*s == '\0')
            return TSR_OK;
        if (*s != ',')
            return tsr_fail(err, TSR_E_INPUT, "--channels: '%.40s': ',' was expected", s);
    }
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* An input with a heavy tail, the ranks of its magnitudes, and a list for the largest k. */
static tsr_status make_input(struct bench *b, struct dec *d, struct tsr_err *err)
{
    uint64_t n = (uint64_t)b->o->cols, x = 88172645463325252u, bytes = 4 * (1 + n);
    d->x = tsr_new(n, sizeof *d->x);
    d->top = tsr_new(n, sizeof *d->top);
    if (!d->x || !d->top)
        return tsr_fail_nomem(err, 8 * n, "activations");
    for (uint64_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        float u = (float)((double)(x >> 40) / (1 << 23) - 1.0);
        d->x[i] = u * u * u;
        d->top[i] = fabsf(d->x[i]);
    }
    qsort(d->top, n, sizeof *d->top, descending);
    TSR_TRY(b->iface->upload(b->self, d->w.in.buffer, 0, d->x, 4 * n, err));
    d->list = (struct tsr_tensor){ .struct_size = sizeof d->list,
                                   .dtype = TSR_U32,
                                   .rows = 1,
                                   .cols = 1 + n,
                                   .row_stride = bytes };
    return b->iface->buffer_alloc(b->self, bytes, &d->list.buffer, err);
}

/* As many residuals as there are weights, each in separate memory. */
static tsr_status make_residuals(struct bench *b, struct dec *d, struct tsr_err *err)
{
    uint64_t one, all;
    d->r = (struct tsr_compensate_residual){ .bits = (uint32_t)b->o->residual,
                                             .inputs = (uint64_t)b->o->cols,
                                             .outputs = (uint64_t)b->o->rows };
    d->r.stride = tsr_compensate_residual_stride(d->r.bits, d->r.outputs);
    if (!tsr_mul(d->r.inputs, d->r.stride, &one) || !tsr_mul(one, d->w.n, &all))
        return tsr_fail(err, TSR_E_INPUT, "--rows times --cols is too large");
    d->r.codes = bench_large_pages(all);
    d->r.scales = d->r.bits == 16 ? NULL : tsr_new(d->r.outputs, sizeof *d->r.scales);
    d->handle = tsr_new(d->w.n, sizeof *d->handle);
    d->call = tsr_new(2 * d->w.n, sizeof *d->call);
    if (!d->r.codes || (d->r.bits != 16 && !d->r.scales) || !d->handle || !d->call)
        return tsr_fail_nomem(err, all, "residuals");
    bench_fill_residuals(d->r.codes, all, d->r.scales, d->r.outputs, d->r.bits);
    for (uint64_t i = 0; i < d->w.n; i++) {
        struct tsr_residual_desc desc = { .struct_size = sizeof desc,
                                          .bits = d->r.bits,
                                          .name = "bench",
                                          .inputs = d->r.inputs,
                                          .outputs = d->r.outputs,
                                          .stride = d->r.stride,
                                          .codes = d->r.codes + i * one,
                                          .scales = d->r.scales };
        TSR_TRY(d->table->residual_load(b->self, &desc, &d->handle[i], err));
    }
    return TSR_OK;
}

static tsr_status choose(struct bench *b, const struct dec *d, uint32_t k, const float *floors,
                         struct tsr_err *err)
{
    struct tsr_select_op op = {
        .struct_size = sizeof op, .k = k, .x = &d->w.in, .floors = floors, .list = &d->list
    };
    return d->table->select(b->self, NULL, &op, err);
}

/* As an engine does it: in one go where the device does that. */
static tsr_status call(struct bench *b, const struct dec *d, uint64_t i, uint32_t k,
                       const float *floors, struct tsr_err *err)
{
    struct tsr_op        linear = bench_work_op(&d->w, i);
    struct tsr_select_op select = {
        .struct_size = sizeof select, .k = k, .x = &d->w.in, .floors = floors, .list = &d->list
    };
    struct tsr_compensate_op add = { .struct_size = sizeof add,
                                     .n = 1,
                                     .x = &d->w.in,
                                     .list = &d->list,
                                     .residual = { d->handle[i] },
                                     .out = { &d->w.out } };
    struct tsr_site_op       all = { .struct_size = sizeof all,
                                     .n = 1,
                                     .linear = { &linear },
                                     .select = k ? &select : NULL,
                                     .add = k ? &add : NULL };
    if (TSR_HAS(struct tsr_backend_compensate_v1, d->table, site)) {
        TSR_TRY(d->table->site(b->self, NULL, &all, err));
        return b->iface->sync(b->self, NULL, err);
    }
    TSR_TRY(b->iface->run(b->self, NULL, &linear, err));
    if (k) {
        TSR_TRY(d->table->select(b->self, NULL, &select, err));
        TSR_TRY(d->table->compensate(b->self, NULL, &add, err));
    }
    return b->iface->sync(b->self, NULL, err);
}

/* All weights twice, every other call bare, so that both see the same state of the memory: seconds of one
 * call, medians, which do not see those during which another program had a core. */
static tsr_status pass(struct bench *b, const struct dec *d, uint32_t k, const float *floors,
                       double *bare, double *with, struct tsr_err *err)
{
    uint64_t n = d->w.n;
    double   t = tsr_now_s();
    for (uint64_t i = 0; i < 2 * n; i++) {
        bool compensated = (i % n + i / n) % 2;
        TSR_TRY(call(b, d, i % n, compensated ? k : 0, floors, err));
        double now = tsr_now_s();
        d->call[i % n + (compensated ? n : 0)] = now - t;
        t = now;
    }
    *bare = bench_median(d->call, n);
    *with = bench_median(d->call + n, n);
    return TSR_OK;
}

static void name_row(const struct bench *b, const struct dec *d, struct bench_row *r,
                     const char *what, uint32_t k, const char *unit)
{
    *r = (struct bench_row){ .rows = (uint64_t)b->o->rows, .cols = (uint64_t)b->o->cols, .m = 1 };
    if (k)
        (void)snprintf(r->what, sizeof r->what, "%s-%u", what, k);
    else
        (void)snprintf(r->what, sizeof r->what, "%s", what);
    (void)snprintf(r->format, sizeof r->format, "%s", d->format);
    (void)snprintf(r->act, sizeof r->act, "%s", tsr_plugin_act_name(d->w.act));
    (void)snprintf(r->unit, sizeof r->unit, "%s", unit);
}

/* Rounds of probe, bare and compensated in turn, probe. */
static tsr_status measure(struct bench *b, const struct dec *d, uint32_t k, struct tsr_err *err)
{
    uint64_t n = (uint64_t)b->o->repeats, count = tsr_compensate_select_count(k, d->r.inputs);
    double   weights = (double)d->w.bytes;
    double   extra = (double)count * (double)d->r.stride + 2.0 * (double)d->r.outputs;
    double  *rate = tsr_new(6 * n, sizeof *rate);
    float    b0, b15, floors[TSR_COMPENSATE_BUCKETS];
    if (!rate)
        return tsr_fail_nomem(err, 6 * n * sizeof *rate, "rounds");
    double *share = rate + n, *probe = share + n, *slower = probe + n, *busy = slower + n,
           *excess = busy + n;
    if (!tsr_compensate_select_borders(d->top, d->r.inputs, k, &b0, &b15)) {
        free(rate);
        return tsr_fail(err, TSR_E_INPUT, "--channels: %u of 1024 is not one of %lld columns", k,
                        (long long)b->o->cols);
    }
    tsr_compensate_select_floors(b0, b15, floors);
    double     bare, dec;
    tsr_status st = pass(b, d, k, floors, &bare, &dec, err); /* touches all */
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        double before, after, cpu, t0;
        st = bench_measure(b, BENCH_READ, &before, err);
        cpu = bench_cpu_s();
        t0 = tsr_now_s();
        if (st == TSR_OK)
            st = pass(b, d, k, floors, &bare, &dec, err);
        busy[i] = (bench_cpu_s() - cpu) / ((tsr_now_s() - t0) * b->threads);
        if (st == TSR_OK)
            st = bench_measure(b, BENCH_READ, &after, err);
        if (st == TSR_OK && tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "stopped");
        if (st != TSR_OK)
            break;
        probe[i] = 0.5e-9 * (before + after);
        rate[i] = (weights + extra) / dec * 1e-9;
        share[i] = probe[i] > 0 ? rate[i] / probe[i] : 0;
        slower[i] = 100 * (dec / bare - 1);
        excess[i] = slower[i] / (100 * extra / weights);
    }
    struct bench_row row;
    if (st == TSR_OK) {
        name_row(b, d, &row, "dec", k, "GB/s");
        for (uint64_t i = 0; i < n; i++)
            row.best = fmax(row.best, rate[i]);
        row.value = bench_median(rate, n);
        row.share = bench_median(share, n);
        row.probe = bench_median(probe, n);
        row.busy = bench_median(busy, n);
        row.milliseconds = (weights + extra) / row.value * 1e-6;
        st = bench_add(b, &row, err);
    }
    if (st == TSR_OK) { /* for comparison, the bytes alone */
        double ms = row.milliseconds, busiest = row.busy;
        name_row(b, d, &row, "slower", k, "%");
        row.best = slower[0];
        for (uint64_t i = 0; i < n; i++)
            row.best = fmin(row.best, slower[i]);
        row.value = bench_median(slower, n);
        row.probe = 100 * extra / weights;
        row.share = bench_median(excess, n);
        row.busy = busiest;
        row.milliseconds = ms;
        st = bench_add(b, &row, err);
    }
    free(rate);
    return st;
}

/* Microseconds of a selection from 4096 channels, on the calling thread. */
static tsr_status measure_select(struct bench *b, const struct dec *d, uint32_t k,
                                 struct tsr_err *err)
{
    uint64_t n = (uint64_t)b->o->repeats;
    double  *us = tsr_new(n, sizeof *us);
    float    b0 = 0, b15 = 0, floors[TSR_COMPENSATE_BUCKETS];
    if (!us)
        return tsr_fail_nomem(err, n * sizeof *us, "rounds");
    (void)tsr_compensate_select_borders(d->top, d->r.inputs, k, &b0, &b15);
    tsr_compensate_select_floors(b0, b15, floors);
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        uint64_t calls = 0;
        double   t0 = tsr_now_s(), dt;
        do {
            for (int c = 0; c < 64 && st == TSR_OK; c++, calls++)
                st = choose(b, d, k, floors, err);
            dt = tsr_now_s() - t0;
        } while (dt < 0.005 && st == TSR_OK);
        us[i] = dt / (double)calls * 1e6 * 4096 / (double)b->o->cols;
    }
    if (st == TSR_OK) {
        struct bench_row row;
        name_row(b, d, &row, "select", k, "us/4096");
        row.best = us[0];
        for (uint64_t i = 0; i < n; i++)
            row.best = fmin(row.best, us[i]);
        row.value = bench_median(us, n);
        row.busy = 1;
        row.milliseconds = row.value * 1e-3 * (double)b->o->cols / 4096;
        st = bench_add(b, &row, err);
    }
    free(us);
    return st;
}

static tsr_status open_dec(struct bench *b, struct dec *d, struct tsr_err *err)
{
    d->table = b->iface->extension ? b->iface->extension(b->self, TSR_BACKEND_COMPENSATE) : NULL;
    if (!d->table)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s does not compensate (" TSR_BACKEND_COMPENSATE ")", b->device);
    TSR_TRY(bench_prepare_read(b, err));
    TSR_TRY(bench_work_named(b, d->format, 1, (uint64_t)b->o->mib << 20, &d->w, err));
    TSR_TRY(make_input(b, d, err));
    return make_residuals(b, d, err);
}

/* All channels of one format. */
static tsr_status bench_format(struct bench *b, struct dec *d, struct tsr_err *err)
{
    tsr_status st = open_dec(b, d, err);
    for (uint32_t i = 0; i < d->n_k && st == TSR_OK; i++)
        st = measure(b, d, d->k[i], err);
    for (uint32_t i = 0; i < d->n_k && st == TSR_OK; i++)
        st = measure_select(b, d, d->k[i], err);
    dec_free(b, d);
    return st;
}

tsr_status bench_dec(struct bench *b, const char *model, struct tsr_err *err)
{
    struct dec  d = { .n_k = 0 };
    const char *list = NULL;
    if (!tsr_compensate_residual_bits_known((uint32_t)b->o->residual))
        return tsr_fail(err, TSR_E_INPUT, "--residual %lld: write 2, 4, 8 or 16",
                        (long long)b->o->residual);
    TSR_TRY(read_channels(b->o->channels, &d, err));
    if (model || *b->o->shape)
        return bench_dec_model(b, model, d.k, d.n_k, err);
    while (bench_next_format(b, "int3,int4", &list, d.format)) {
        struct dec one = d;
        TSR_TRY(bench_format(b, &one, err));
    }
    return TSR_OK;
}
