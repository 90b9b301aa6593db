/* bench gemv and gemm: one LINEAR over weights that no cache holds, compared with the probes. */
#include "cli/bench/bench.h"

#include "base/clock.h"
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
                     const struct bench_format *k, uint64_t m, bool memory)
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

static tsr_status add_size(struct bench *b, const struct bench_format *k,
                           const struct bench_work *w, const struct size *s, uint64_t n,
                           struct tsr_err *err)
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
    row.each = row.share > 0 ? s->share : s->value;
    row.n_each = n;
    row.probe = bench_median(s->probe, n);
    row.rate = bench_median(s->rate, n);
    row.busy = bench_median(s->busy, n);
    row.times = bench_median(s->times, n);
    row.milliseconds = s->unit / row.value * 1e-6;
    return bench_add(b, &row, err);
}

/* The sizes in turn within each round, so that all of them see the same states of the memory. */
static tsr_status measure(struct bench *b, const struct bench_format *k, struct bench_work *w,
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

static tsr_status bench_kind(struct bench *b, const struct bench_format *k, const struct sizes *m,
                             bool memory, struct tsr_err *err)
{
    struct bench_work w = { .act = bench_format_act(b, k) };
    tsr_status st = bench_work_make(b, k, m->most, memory ? (uint64_t)b->o->mib << 20 : 0, &w, err);
    if (st == TSR_OK)
        st = measure(b, k, &w, m, memory, err);
    bench_work_free(b, &w);
    return st;
}

static tsr_status each_kind(struct bench *b, const struct sizes *m, bool memory,
                            struct tsr_err *err)
{
    const char         *list = NULL;
    char                name[24];
    struct bench_format k;
    while (bench_next_format(b, "f32,f16,bf16,int8,int4", &list, name)) {
        TSR_TRY(bench_format_of(name, strlen(name), b->o->group, (uint64_t)b->o->cols, &k, err));
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
        TSR_TRY(bench_numbers("--m", b->o->m, m->m, SIZES, &m->n, err));
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
