/* bench gemv and gemm: one LINEAR over weights that no cache holds, beside the probes. */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/f16.h"
#include "base/mem.h"
#include "quant/quant.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A format of the list: "bf16", "int4". */
struct kind {
    char              name[16];
    struct tsr_format f;
    bool              packed;
};

static tsr_status parse_kind(const char *s, size_t len, int64_t group, uint64_t cols,
                             struct kind *k, struct tsr_err *err)
{
    static const struct {
        const char *name;
        uint32_t    dtype;
    } floats[] = { { "f32", TSR_F32 }, { "f16", TSR_F16 }, { "bf16", TSR_BF16 } };
    *k = (struct kind){ .f = { .struct_size = sizeof k->f } };
    if (len < sizeof k->name) {
        memcpy(k->name, s, len);
        for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
            if (strcmp(k->name, floats[i].name) == 0) {
                k->f.id = TSR_FORMAT_FLOAT;
                k->f.dtype = floats[i].dtype;
                return TSR_OK;
            }
        if (len == 4 && memcmp(s, "int", 3) == 0 && s[3] >= '2' && s[3] <= '8') {
            k->packed = true;
            k->f.id = TSR_FORMAT_INT;
            k->f.bits = (uint32_t)(s[3] - '0');
            k->f.scale_dtype = TSR_F16;
            k->f.group = k->f.bits == 8 ? 0 : (uint64_t)group;
            return TSR_OK;
        }
        if (bench_format_parse(k->name, cols, &k->f)) {
            k->packed = true;
            return TSR_OK;
        }
    }
    return tsr_fail(
        err, TSR_E_INPUT,
        "--formats: '%.*s' is none of f32, f16, bf16, int2 to int8, lut2 to lut8, lut2o "
        "to lut8o, llm8, fp4_e2m1 and its kin, mxint2 to mxint8",
        (int)(len < 40 ? len : 40), s);
}

/* Random bytes that are sane weights of the format. */
static tsr_status fill(const struct kind *k, struct tsr_weight_desc *d, struct tsr_err *err)
{
    uint64_t rows = d->rows, cols = d->cols, x = 88172645463325252u, n = 0, m = 0;
    d->code_stride = tsr_format_code_bytes(&k->f, cols);
    d->meta_stride = tsr_format_meta_bytes(&k->f, cols);
    if (!tsr_mul(rows, d->code_stride, &n) || n == 0 || !tsr_mul(rows, d->meta_stride, &m))
        return tsr_fail(err, TSR_E_INPUT, "--rows times --cols is zero or too large");
    uint8_t *codes = tsr_new(n, 1), *meta = tsr_new(m, 1);
    d->codes = codes;
    d->meta = k->packed ? meta : NULL;
    if (!codes || !meta) {
        free(codes);
        free(meta);
        d->codes = NULL;
        return tsr_fail_nomem(err, n + m, "a weight");
    }
    for (uint64_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        codes[i] = (uint8_t)(x >> 32);
    }
    for (uint64_t i = 0; !k->packed && i < rows * cols; i++) { /* -0.02 to 0.02 */
        float    w = ((float)codes[i % n] - 127.5f) * 1.5e-4f;
        uint16_t h = k->f.dtype == TSR_F16 ? tsr_f32_f16(w) : tsr_f32_bf16(w);
        if (k->f.dtype == TSR_F32)
            memcpy(codes + 4 * i, &w, 4);
        else
            memcpy(codes + 2 * i, &h, 2);
    }
    const bool ints = strcmp(k->f.id, TSR_FORMAT_INT) == 0;
    if (k->packed && !ints)
        bench_format_fill(&k->f, rows, d->meta_stride, cols, meta);
    for (uint64_t i = 0; ints && i + 1 < m; i += 2) { /* F16 scales near 0.001 */
        uint16_t h = (uint16_t)(0x1400u + (i & 0xffu));
        memcpy(meta + i, &h, 2);
    }
    if (!k->packed)
        free(meta);
    return TSR_OK;
}

void bench_work_free(struct bench *b, struct bench_work *w)
{
    for (uint64_t i = 0; i < w->n; i++)
        b->iface->weight_free(b->self, w->weights[i]);
    free(w->weights);
    b->iface->buffer_free(b->self, w->in.buffer);
    b->iface->buffer_free(b->self, w->out.buffer);
}

static tsr_status tensor(struct bench *b, uint64_t rows, uint64_t cols, struct tsr_tensor *t,
                         struct tsr_err *err)
{
    uint64_t n;
    if (!tsr_mul(rows, cols, &n) || !tsr_mul(n, 4, &n))
        return tsr_fail(err, TSR_E_INPUT, "--m times --rows or --cols is too large");
    *t = (struct tsr_tensor){ .struct_size = sizeof *t,
                              .dtype = TSR_F32,
                              .rows = rows,
                              .cols = cols,
                              .row_stride = cols * 4 };
    TSR_TRY(b->iface->buffer_alloc(b->self, n, &t->buffer, err));
    float *x = tsr_new(cols, 4);
    if (!x)
        return tsr_fail_nomem(err, cols * 4, "activations");
    tsr_status st = TSR_OK;
    for (uint64_t r = 0; r < rows && st == TSR_OK; r++) {
        for (uint64_t i = 0; i < cols; i++)
            x[i] = (float)((int64_t)((i * 7919 + r * 104729) % 2001) - 1000) * 1e-3f;
        st = b->iface->upload(b->self, t->buffer, r * cols * 4, x, cols * 4, err);
    }
    free(x);
    return st;
}

/* At least `rotate` bytes of weights on the device, all alike. */
static tsr_status work_make(struct bench *b, const struct kind *k, uint64_t m, uint64_t rotate,
                            struct bench_work *w, struct tsr_err *err)
{
    struct tsr_weight_desc d = { .struct_size = sizeof d,
                                 .name = "bench",
                                 .format = &k->f,
                                 .rows = (uint64_t)b->o->rows,
                                 .cols = (uint64_t)b->o->cols,
                                 .segment = (uint64_t)b->o->segment };
    if (d.segment % 32 != 0 || (d.segment > 0 && (d.cols - 1) / d.segment >= 8))
        return tsr_fail(
            err, TSR_E_INPUT,
            "--segment %llu: give a multiple of 32 that cuts %llu columns into at most 8 "
            "segments, or 0",
            (unsigned long long)d.segment, (unsigned long long)d.cols);
    TSR_TRY(fill(k, &d, err));
    tsr_status st = TSR_OK;
    uint64_t   want = 1;
    w->weights = tsr_new(4096, sizeof *w->weights);
    if (!w->weights)
        st = tsr_fail_nomem(err, 4096 * sizeof *w->weights, "weights");
    while (st == TSR_OK && w->n < want) {
        st = b->iface->weight_load(b->self, &d, &w->weights[w->n], err);
        if (st != TSR_OK)
            break;
        w->bytes = b->iface->weight_bytes(b->self, w->weights[w->n++]);
        want = rotate / w->bytes + (rotate % w->bytes != 0);
        want = want < 1 ? 1 : want > 4096 ? 4096 : want;
    }
    free((void *)(uintptr_t)d.codes);
    free((void *)(uintptr_t)d.meta);
    if (st == TSR_OK)
        st = tensor(b, m, d.cols, &w->in, err);
    if (st == TSR_OK)
        st = tensor(b, m, d.rows, &w->out, err);
    return st;
}

tsr_status bench_work_linear(struct bench *b, const struct bench_work *w, uint64_t i,
                             struct tsr_err *err)
{
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &w->out,
                         .in = { &w->in },
                         .weight = w->weights[i],
                         .act = w->act };
    return b->iface->run(b->self, NULL, &op, err);
}

/* probe, kernel, probe; the kernel for about 25 ms, or once. */
struct round {
    double before, after, clock, seconds; /* seconds of one call */
    double busy;                          /* CPU time over threads times wall time */
};

static tsr_status one_round(struct bench *b, const struct bench_work *w, enum bench_probe which,
                            struct round *r, struct tsr_err *err)
{
    double   t0, dt;
    uint64_t calls = 0;
    r->clock = 0;
    if (which != BENCH_READ)
        TSR_TRY(bench_measure(b, BENCH_CLOCK, &r->clock, err));
    TSR_TRY(bench_measure(b, which, &r->before, err));
    double cpu = bench_cpu_s();
    t0 = tsr_now_s();
    do {
        for (uint64_t i = 0; i < w->n; i++, calls++)
            TSR_TRY(bench_work_linear(b, w, i, err));
        TSR_TRY(b->iface->sync(b->self, NULL, err));
        dt = tsr_now_s() - t0;
    } while (dt < 0.025);
    r->seconds = dt / (double)calls;
    r->busy = (bench_cpu_s() - cpu) / (dt * b->threads);
    TSR_TRY(bench_measure(b, which, &r->after, err));
    if (which != BENCH_READ) { /* the slower machine of the two moments had this clock */
        double clock;
        TSR_TRY(bench_measure(b, BENCH_CLOCK, &clock, err));
        r->clock = fmax(r->clock, clock);
    }
    return tsr_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

static tsr_status measure(struct bench *b, const struct kind *k, struct bench_work *w, uint64_t m,
                          const char *what, bool memory, struct tsr_err *err)
{
    uint64_t         n = (uint64_t)b->o->repeats;
    bool             fast = m > 4 && strcmp(k->name, "bf16") == 0 && bench_has_bf16(b);
    enum bench_probe which = memory                              ? BENCH_READ
                             : k->packed && w->act == TSR_ACT_A8 ? BENCH_DOT
                             : fast                              ? BENCH_BF16
                                                                 : BENCH_FMA;
    /* bytes a call for GEMV; operations (two for a multiply-add) a call for GEMM */
    double unit =
        memory ? (double)w->bytes : 2.0 * (double)m * (double)b->o->rows * (double)b->o->cols;
    double  probe_unit = memory ? 1 : 2;
    double *value = tsr_new(5 * n, sizeof *value), *share = value + n, *probe = share + n;
    if (!value)
        return tsr_fail_nomem(err, 5 * n * sizeof *value, "rounds");
    double    *rate = probe + n, *busy = rate + n;
    tsr_status st = bench_work_linear(b, w, 0, err);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        struct round r;
        st = one_round(b, w, which, &r, err);
        if (st != TSR_OK)
            break;
        value[i] = unit / r.seconds * 1e-9;
        /* memory: both moments count; arithmetic: what the machine can do at all */
        double p = memory ? 0.5 * (r.before + r.after) : fmax(r.before, r.after);
        probe[i] = p * probe_unit * 1e-9;
        share[i] = probe[i] > 0 ? value[i] / probe[i] : 0;
        busy[i] = r.busy;
        rate[i] = bench_instruction_rate(b, which, p, r.clock);
    }
    if (st == TSR_OK) {
        struct bench_row row = { .rows = (uint64_t)b->o->rows,
                                 .cols = (uint64_t)b->o->cols,
                                 .m = m };
        (void)snprintf(row.what, sizeof row.what, "%s", what);
        (void)snprintf(row.format, sizeof row.format, "%s", k->name);
        (void)snprintf(row.act, sizeof row.act, "%s",
                       fast                    ? "bf16"
                       : w->act == TSR_ACT_A8  ? "a8"
                       : w->act == TSR_ACT_A16 ? "a16"
                                               : "f32");
        (void)snprintf(row.unit, sizeof row.unit, "%s",
                       memory               ? "GB/s"
                       : which == BENCH_DOT ? "GOP/s"
                                            : "GFLOP/s");
        for (uint64_t i = 0; i < n; i++)
            row.best = fmax(row.best, value[i]);
        row.value = bench_median(value, n);
        row.share = bench_median(share, n);
        row.probe = bench_median(probe, n);
        row.rate = bench_median(rate, n);
        row.busy = bench_median(busy, n);
        row.milliseconds = unit / row.value * 1e-6;
        st = bench_add(b, &row, err);
    }
    free(value);
    return st;
}

tsr_status bench_work_named(struct bench *b, const char *format, uint64_t m, uint64_t rotate,
                            struct bench_work *w, struct tsr_err *err)
{
    struct kind k;
    TSR_TRY(parse_kind(format, strlen(format), b->o->group, (uint64_t)b->o->cols, &k, err));
    w->act = b->o->act != BENCH_ACT_AUTO ? (uint32_t)b->o->act
             : k.packed                  ? TSR_ACT_A8
                                         : TSR_ACT_F32;
    if (w->act == TSR_ACT_A8 && !tsr_format_a8(&k.f, (uint64_t)b->o->cols))
        w->act = TSR_ACT_F32;
    return work_make(b, &k, m, rotate, w, err);
}

static tsr_status bench_kind(struct bench *b, const struct kind *k, uint64_t m, bool memory,
                             struct tsr_err *err)
{
    struct bench_work w = { 0 };
    w.act = b->o->act != BENCH_ACT_AUTO ? (uint32_t)b->o->act
            : k->packed                 ? TSR_ACT_A8
                                        : TSR_ACT_F32;
    /* weights without an int8 form run as f32 under a8: say what runs */
    if (w.act == TSR_ACT_A8 && !tsr_format_a8(&k->f, (uint64_t)b->o->cols))
        w.act = TSR_ACT_F32;
    tsr_status st = work_make(b, k, m, memory ? (uint64_t)b->o->mib << 20 : 0, &w, err);
    if (st == TSR_OK)
        st = measure(b, k, &w, m, memory ? "gemv" : "gemm", memory, err);
    bench_work_free(b, &w);
    return st;
}

/* Every format of --bits, or else of --formats. */
static tsr_status each_kind(struct bench *b, uint64_t m, bool memory, struct tsr_err *err)
{
    bool        bits = *b->o->bits != '\0';
    const char *s = bits ? b->o->bits : b->o->formats;
    for (;;) {
        size_t      len = strcspn(s, ",");
        char        name[24];
        struct kind k;
        (void)snprintf(name, sizeof name, "%s%.*s", bits ? "int" : "", (int)(len < 16 ? len : 16),
                       s);
        TSR_TRY(parse_kind(name, strlen(name), b->o->group, (uint64_t)b->o->cols, &k, err));
        TSR_TRY(bench_kind(b, &k, m, memory, err));
        if (!s[len])
            return TSR_OK;
        s += len + 1;
    }
}

tsr_status bench_gemv(struct bench *b, struct tsr_err *err)
{
    TSR_TRY(bench_prepare_read(b, err));
    return each_kind(b, b->o->m ? (uint64_t)b->o->m : 1, true, err);
}

tsr_status bench_gemm(struct bench *b, struct tsr_err *err)
{
    return each_kind(b, b->o->m ? (uint64_t)b->o->m : 512, false, err);
}
