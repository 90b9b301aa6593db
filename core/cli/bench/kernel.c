/* bench gemv and gemm: one LINEAR over weights that no cache holds, compared with the probes. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/f16.h"
#include "base/mem.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIZES 8u
struct sizes {
    uint64_t m[SIZES], most;
    uint32_t n;
};

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
        "--formats: '%.*s' is not one of f32, f16, bf16, int2 to int8, lut2 to lut8, lut2o "
        "to lut8o, llm8, fp4_e2m1 and its kin, mxint2 to mxint8",
        (int)(len < 40 ? len : 40), s);
}

/* Random bytes that are sane weights of the format. */
static tsr_status fill(const struct kind *k, struct tsr_weight_desc *d, struct tsr_err *err)
{
    uint64_t rows = d->rows, cols = d->cols, x = 88172645463325252u, n = 0, m = 0;
    d->code_stride = tsr_model_format_code_bytes(&k->f, cols);
    d->meta_stride = tsr_model_format_meta_bytes(&k->f, cols);
    if (!tsr_mul(rows, d->code_stride, &n) || n == 0 || !tsr_mul(rows, d->meta_stride, &m))
        return tsr_fail(err, TSR_E_INPUT, "--rows times --cols is zero or too large");
    uint8_t *codes = tsr_new(n, 1), *meta = tsr_new(m, 1);
    uint32_t no_number = k->f.element == TSR_MX_FP8_E4M3   ? 127 /* and above: infinite or NaN */
                         : k->f.element == TSR_MX_FP8_E5M2 ? 124
                                                           : 128;
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
        if ((codes[i] & 127u) >= no_number)
            codes[i] &= 63u;
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

/* At least `rotate` bytes of weights on the device, all equal in shape. */
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

struct tsr_op bench_work_op(const struct bench_work *w, uint64_t i)
{
    return (struct tsr_op){ .struct_size = sizeof(struct tsr_op),
                            .kind = TSR_OP_LINEAR,
                            .out = &w->out,
                            .in = { &w->in },
                            .weight = w->weights[i],
                            .act = w->act };
}

static tsr_status work_linear(struct bench *b, const struct bench_work *w, uint64_t i,
                              struct tsr_err *err)
{
    struct tsr_op op = bench_work_op(w, i);
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
            TSR_TRY(work_linear(b, w, i, err));
        TSR_TRY(b->iface->sync(b->self, NULL, err));
        dt = tsr_now_s() - t0;
    } while (dt < 0.025);
    r->seconds = dt / (double)calls;
    r->busy = (bench_cpu_s() - cpu) / (dt * b->threads);
    TSR_TRY(bench_measure(b, which, &r->after, err));
    if (which != BENCH_READ) { /* the clock of the slower of the two moments */
        double clock;
        TSR_TRY(bench_measure(b, BENCH_CLOCK, &clock, err));
        r->clock = fmax(r->clock, clock);
    }
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

/* One size of --m and its rounds. */
struct size {
    uint64_t         m;
    bool             fast; /* BF16 products */
    enum bench_probe which;
    double           unit; /* bytes, or operations (two for a multiply-add), a call */
    double          *value, *share, *probe, *rate; /* of each round */
    double          *busy, *times; /* times: tokens a second over the first size's */
};

static void one_size(struct size *s, struct bench *b, const struct bench_work *w,
                     const struct kind *k, uint64_t m, bool memory)
{
    s->m = m;
    s->fast = m > 4 && strcmp(k->name, "bf16") == 0 && bench_has_bf16(b);
    s->which = memory                              ? BENCH_READ
               : k->packed && w->act == TSR_ACT_A8 ? BENCH_DOT
               : s->fast                           ? BENCH_BF16
                                                   : BENCH_FMA;
    s->unit = memory ? (double)w->bytes : 2.0 * (double)m * (double)b->o->rows * (double)b->o->cols;
}

/* Round i of a size: `tokens` gets its tokens a second. */
static tsr_status size_round(struct bench *b, struct bench_work *w, struct size *s, uint64_t i,
                             double *tokens, struct tsr_err *err)
{
    bool         memory = s->which == BENCH_READ;
    struct round r;
    w->in.rows = w->out.rows = s->m;
    TSR_TRY(one_round(b, w, s->which, &r, err));
    s->value[i] = s->unit / r.seconds * 1e-9;
    /* memory: the mean of both moments; arithmetic: the machine's peak */
    double p = memory ? 0.5 * (r.before + r.after) : fmax(r.before, r.after);
    s->probe[i] = p * (memory ? 1 : 2) * 1e-9;
    s->share[i] = s->probe[i] > 0 ? s->value[i] / s->probe[i] : 0;
    s->busy[i] = r.busy;
    s->rate[i] = bench_instruction_rate(b, s->which, p, r.clock);
    *tokens = (double)s->m / r.seconds;
    return TSR_OK;
}

static tsr_status add_size(struct bench *b, const struct kind *k, const struct bench_work *w,
                           const struct size *s, uint64_t n, struct tsr_err *err)
{
    struct bench_row row = { .rows = (uint64_t)b->o->rows,
                             .cols = (uint64_t)b->o->cols,
                             .m = s->m };
    (void)snprintf(row.what, sizeof row.what, "%s", s->which == BENCH_READ ? "gemv" : "gemm");
    (void)snprintf(row.format, sizeof row.format, "%s", k->name);
    (void)snprintf(row.act, sizeof row.act, "%s", s->fast ? "bf16" : tsr_plugin_act_name(w->act));
    (void)snprintf(row.unit, sizeof row.unit, "%s",
                   s->which == BENCH_READ  ? "GB/s"
                   : s->which == BENCH_DOT ? "GOP/s"
                                           : "GFLOP/s");
    for (uint64_t i = 0; i < n; i++)
        row.best = fmax(row.best, s->value[i]);
    row.value = bench_median(s->value, n);
    row.share = bench_median(s->share, n);
    row.probe = bench_median(s->probe, n);
    row.rate = bench_median(s->rate, n);
    row.busy = bench_median(s->busy, n);
    row.times = bench_median(s->times, n);
    row.milliseconds = s->unit / row.value * 1e-6;
    return bench_add(b, &row, err);
}

/* The sizes in turn within each round, so that all of them see the same states of the memory. */
static tsr_status measure(struct bench *b, const struct kind *k, struct bench_work *w,
                          const struct sizes *m, bool memory, struct tsr_err *err)
{
    uint64_t    n = (uint64_t)b->o->repeats;
    struct size s[SIZES];
    double     *v = tsr_new(6 * n * m->n, sizeof *v), *at = v;
    if (!v)
        return tsr_fail_nomem(err, 6 * n * m->n * sizeof *v, "rounds");
    tsr_status st = TSR_OK;
    for (uint32_t j = 0; j < m->n && st == TSR_OK; j++) {
        one_size(&s[j], b, w, k, m->m[j], memory);
        s[j].value = at, s[j].share = at + n, s[j].probe = at + 2 * n, s[j].rate = at + 3 * n;
        s[j].busy = at + 4 * n, s[j].times = at + 5 * n, at += 6 * n;
        w->in.rows = w->out.rows = s[j].m;
        st = work_linear(b, w, 0, err);
    }
    for (uint64_t i = 0; i < n; i++) {
        double first = 1, tokens = 1;
        for (uint32_t j = 0; j < m->n && st == TSR_OK; j++) {
            st = size_round(b, w, &s[j], i, &tokens, err);
            first = j ? first : tokens;
            s[j].times[i] = tokens / first;
        }
    }
    for (uint32_t j = 0; j < m->n && st == TSR_OK; j++)
        st = add_size(b, k, w, &s[j], n, err);
    bool alone = m->n == 1, shared = st == TSR_OK && b->row[b->n_rows - m->n].busy < BENCH_BUSY;
    for (uint32_t j = 0; j < m->n && st == TSR_OK && (alone || shared); j++)
        b->row[b->n_rows - 1 - j].times = alone ? 0 : -1;
    free(v);
    return st;
}

/* Unpacked weights run as f32 under a8: returns the actual act. */
static uint32_t act_of(const struct bench *b, const struct kind *k)
{
    uint32_t act = b->o->act != BENCH_ACT_AUTO ? (uint32_t)b->o->act
                   : k->packed                 ? TSR_ACT_A8
                                               : TSR_ACT_F32;
    return act == TSR_ACT_A8 && !tsr_model_format_a8(&k->f, (uint64_t)b->o->cols) ? TSR_ACT_F32
                                                                                  : act;
}

tsr_status bench_work_named(struct bench *b, const char *format, uint64_t m, uint64_t rotate,
                            struct bench_work *w, struct tsr_err *err)
{
    struct kind k;
    TSR_TRY(parse_kind(format, strlen(format), b->o->group, (uint64_t)b->o->cols, &k, err));
    w->act = act_of(b, &k);
    return work_make(b, &k, m, rotate, w, err);
}

static tsr_status bench_kind(struct bench *b, const struct kind *k, const struct sizes *m,
                             bool memory, struct tsr_err *err)
{
    struct bench_work w = { .act = act_of(b, k) };
    tsr_status st = work_make(b, k, m->most, memory ? (uint64_t)b->o->mib << 20 : 0, &w, err);
    if (st == TSR_OK)
        st = measure(b, k, &w, m, memory, err);
    bench_work_free(b, &w);
    return st;
}

bool bench_next_format(const struct bench *b, const char *otherwise, const char **list,
                       char name[24])
{
    bool        bits = *b->o->bits != '\0';
    const char *s = *list;
    if (!s)
        s = bits ? b->o->bits : *b->o->formats ? b->o->formats : otherwise;
    else if (*s == ',')
        s++;
    else
        return false;
    size_t len = strcspn(s, ",");
    (void)snprintf(name, 24, "%s%.*s", bits ? "int" : "", (int)(len < 16 ? len : 16), s);
    *list = s + len;
    return true;
}

static tsr_status each_kind(struct bench *b, const struct sizes *m, bool memory,
                            struct tsr_err *err)
{
    const char *list = NULL;
    char        name[24];
    struct kind k;
    while (bench_next_format(b, "f32,f16,bf16,int8,int4", &list, name)) {
        TSR_TRY(parse_kind(name, strlen(name), b->o->group, (uint64_t)b->o->cols, &k, err));
        TSR_TRY(bench_kind(b, &k, m, memory, err));
    }
    return TSR_OK;
}

/* --m; where it is not given, `otherwise`. */
static tsr_status sizes(const struct bench *b, uint64_t otherwise, struct sizes *m,
                        struct tsr_err *err)
{
    *m = (struct sizes){ .m = { otherwise }, .n = 1 };
    if (*b->o->m)
        TSR_TRY(bench_tokens(b->o->m, m->m, SIZES, &m->n, err));
    for (uint32_t j = 0; j < m->n; j++)
        m->most = m->m[j] > m->most ? m->m[j] : m->most;
    return TSR_OK;
}

tsr_status bench_gemv(struct bench *b, struct tsr_err *err)
{
    struct sizes m;
    TSR_TRY(sizes(b, 1, &m, err));
    TSR_TRY(bench_prepare_read(b, err));
    return each_kind(b, &m, true, err);
}

tsr_status bench_gemm(struct bench *b, struct tsr_err *err)
{
    struct sizes m;
    TSR_TRY(sizes(b, 512, &m, err));
    return each_kind(b, &m, false, err);
}
