/* bench experts: one token through the experts that it takes, compared in the same round with a GEMV and with a dense
 * feed-forward of the same bytes, and with the read peak.  The operations are those of engine/experts_token.c; `apart` runs the same products one
 * after the other. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tessera/draft/linears.h"

#include <math.h>
#include <stdlib.h>

#define MOST_USED BENCH_MOST_USED
#define ROUND_S   0.025 /* of each in a round */

enum { GEMV, DENSE, TOGETHER, APART, WAYS };
static const char *const way_names[WAYS] = { "gemv", "feed_forward", "experts", "apart" };

/* Feed-forwards, of which a token takes some. */
struct feeds {
    struct bench_work gate, down; /* gate: and up */
    uint64_t          used, all, turn;
};

struct layer {
    struct bench                        *b;
    struct feeds                         experts, dense;
    struct bench_work                    gemv;
    struct tsr_tensor                    weights, places, sum;
    const struct tsr_backend_linears_v1 *table; /* NULL: the backend has no such call */
    uint64_t                             turn;
};

/* Row r of a tensor. */
static struct tsr_tensor row_of(const struct tsr_tensor *t, uint64_t r, uint64_t n)
{
    struct tsr_tensor v = *t;
    v.offset += r * t->row_stride;
    v.rows = n;
    return v;
}

/* At least `bytes` of weights of a shape. */
static tsr_status make_work(struct bench *b, const char *format, uint64_t rows, uint64_t cols,
                            uint64_t m, uint64_t bytes, struct bench_work *w, struct tsr_err *err)
{
    const struct bench_options *o = b->o;
    struct bench_options        own = *o;
    own.rows = (int64_t)rows;
    own.cols = (int64_t)cols;
    b->o = &own;
    tsr_status st = bench_work_named(b, format, m, bytes, w, err);
    b->o = o;
    return st;
}

static tsr_status make_row(struct bench *b, uint32_t dtype, uint64_t n, const void *values,
                           struct tsr_tensor *t, struct tsr_err *err)
{
    *t = (struct tsr_tensor){
        .struct_size = sizeof *t, .dtype = dtype, .rows = 1, .cols = n, .row_stride = n * 4
    };
    TSR_TRY(b->iface->buffer_alloc(b->self, n * 4, &t->buffer, err));
    return values ? b->iface->upload(b->self, t->buffer, 0, values, n * 4, err) : TSR_OK;
}

static tsr_status make_feeds(struct bench *b, const char *format, uint64_t used, uint64_t ffn,
                             uint64_t hidden, struct feeds *f, struct tsr_err *err)
{
    uint64_t bytes = (uint64_t)b->o->mib << 20;
    *f = (struct feeds){ .used = used };
    TSR_TRY(make_work(b, format, ffn, hidden, 2 * used, bytes / 3 * 2, &f->gate, err));
    TSR_TRY(make_work(b, format, hidden, ffn, used, bytes / 3, &f->down, err));
    f->all = f->gate.n / 2 < f->down.n ? f->gate.n / 2 : f->down.n;
    return TSR_OK;
}

static tsr_status make_layer(struct bench *b, const char *format, struct layer *l,
                             struct tsr_err *err)
{
    uint64_t hidden = b->o->hidden ? (uint64_t)b->o->hidden : 2048;
    uint64_t ffn = b->o->ffn ? (uint64_t)b->o->ffn : 768, used = (uint64_t)b->o->used;
    float    weight[MOST_USED];
    uint32_t place[MOST_USED];
    *l = (struct layer){ .b = b };
    for (uint32_t i = 0; i < MOST_USED; i++) {
        weight[i] = 1 / (float)used;
        place[i] = i;
    }
    TSR_TRY(make_feeds(b, format, used, ffn, hidden, &l->experts, err));
    TSR_TRY(make_feeds(b, format, 1, used * ffn, hidden, &l->dense, err));
    TSR_TRY(
        make_work(b, format, 3 * used * ffn, hidden, 1, (uint64_t)b->o->mib << 20, &l->gemv, err));
    TSR_TRY(make_row(b, TSR_F32, used, weight, &l->weights, err));
    TSR_TRY(make_row(b, TSR_U32, used, place, &l->places, err));
    TSR_TRY(make_row(b, TSR_F32, hidden, NULL, &l->sum, err));
    l->table = b->iface->extension ? b->iface->extension(b->self, TSR_BACKEND_LINEARS) : NULL;
    return l->experts.all >= used
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "--mib %lld: %llu experts fit, a token takes %llu",
                          (long long)b->o->mib, (unsigned long long)l->experts.all,
                          (unsigned long long)used);
}

static void free_layer(struct layer *l)
{
    bench_work_free(l->b, &l->experts.gate);
    bench_work_free(l->b, &l->experts.down);
    bench_work_free(l->b, &l->dense.gate);
    bench_work_free(l->b, &l->dense.down);
    bench_work_free(l->b, &l->gemv);
    l->b->iface->buffer_free(l->b->self, l->weights.buffer);
    l->b->iface->buffer_free(l->b->self, l->places.buffer);
    l->b->iface->buffer_free(l->b->self, l->sum.buffer);
}

static struct tsr_op act_of(struct tsr_tensor *gate, const struct tsr_tensor *up)
{
    return (struct tsr_op){ .struct_size = sizeof(struct tsr_op),
                            .kind = TSR_OP_ACT,
                            .out = gate,
                            .in = { gate, up },
                            .func = TSR_FUNC_SILU };
}

static tsr_status run_products(struct layer *l, bool together, const struct tsr_op *op, uint32_t n,
                               struct tsr_err *err)
{
    const struct tsr_op *list[2 * MOST_USED];
    struct bench        *b = l->b;
    for (uint32_t i = 0; i < n; i++)
        list[i] = &op[i];
    if (together && l->table)
        return l->table->linears(b->self, NULL, list, n, err);
    for (uint32_t i = 0; i < n; i++)
        TSR_TRY(b->iface->run(b->self, NULL, &op[i], err));
    return TSR_OK;
}

/* The operations of a token's experts: gate and up in turns, then what follows them. */
struct token {
    struct tsr_op     gates[2 * MOST_USED], act[MOST_USED], down[MOST_USED];
    struct tsr_tensor x, inner[2 * MOST_USED], out[MOST_USED];
};

/* Those of a token: spread over all, other ones than those of the token before. */
static void list_token(struct feeds *f, struct token *t)
{
    uint64_t turn = f->turn++, apart = f->all / f->used;
    t->x = row_of(&f->gate.in, 0, 1);
    for (uint64_t j = 0; j < f->used; j++) {
        uint64_t one = (turn + j * apart) % f->all;
        for (uint64_t i = 0; i < 2; i++) { /* rows of gate, then of up */
            struct tsr_op *op = &t->gates[2 * j + i];
            t->inner[2 * j + i] = row_of(&f->gate.out, i * f->used + j, 1);
            *op = bench_work_op(&f->gate, 2 * one + i);
            op->in[0] = &t->x;
            op->out = &t->inner[2 * j + i];
        }
        t->act[j] = act_of(&t->inner[2 * j], &t->inner[2 * j + 1]);
        t->out[j] = row_of(&f->down.out, j, 1);
        t->down[j] = bench_work_op(&f->down, one);
        t->down[j].in[0] = &t->inner[2 * j];
        t->down[j].out = &t->out[j];
    }
}

/* *done false: the backend does not do that. */
static tsr_status run_gated(struct layer *l, struct token *t, uint64_t n, bool *done,
                            struct tsr_err *err)
{
    struct tsr_gated_op g[MOST_USED];
    *done = false;
    if (!l->table || !TSR_HAS(struct tsr_backend_linears_v1, l->table, gated))
        return TSR_OK;
    for (uint64_t j = 0; j < n; j++)
        g[j] = (struct tsr_gated_op){ .struct_size = sizeof *g,
                                      .gate = &t->gates[2 * j],
                                      .up = &t->gates[2 * j + 1],
                                      .act = &t->act[j],
                                      .down = &t->down[j] };
    tsr_status st = l->table->gated(l->b->self, NULL, g, (uint32_t)n, err);
    *done = st != TSR_E_UNSUPPORTED;
    return *done ? st : TSR_OK;
}

/* gate and up of all, one ACT, down of all. */
static tsr_status run_lines(struct layer *l, const struct feeds *f, bool together, struct token *t,
                            struct tsr_err *err)
{
    struct tsr_tensor gate = row_of(&f->gate.out, 0, f->used),
                      up = row_of(&f->gate.out, f->used, f->used);
    struct tsr_op act = act_of(&gate, &up);
    TSR_TRY(run_products(l, together, t->gates, 2 * (uint32_t)f->used, err));
    TSR_TRY(l->b->iface->run(l->b->self, NULL, &act, err));
    return run_products(l, together, t->down, (uint32_t)f->used, err);
}

static tsr_status run_token(struct layer *l, int way, struct tsr_err *err)
{
    struct feeds *f = way == DENSE ? &l->dense : &l->experts;
    struct token  t;
    bool          done = false;
    list_token(f, &t);
    if (way == TOGETHER)
        TSR_TRY(run_gated(l, &t, f->used, &done, err));
    if (!done)
        TSR_TRY(run_lines(l, f, way != APART, &t, err));
    struct tsr_op mix = { .struct_size = sizeof mix,
                          .kind = TSR_OP_MIX,
                          .out = &l->sum,
                          .in = { &f->down.out, &l->weights, &l->places } };
    return way == DENSE ? TSR_OK : l->b->iface->run(l->b->self, NULL, &mix, err);
}

/* Bytes of weights that a token reads. */
static uint64_t bytes_of(const struct layer *l, int way)
{
    const struct feeds *f = way == DENSE ? &l->dense : &l->experts;
    return way == GEMV ? l->gemv.bytes : f->used * (2 * f->gate.bytes + f->down.bytes);
}

static tsr_status run_once(struct layer *l, int way, struct tsr_err *err)
{
    if (way != GEMV)
        return run_token(l, way, err);
    struct tsr_op op = bench_work_op(&l->gemv, l->turn++ % l->gemv.n);
    return l->b->iface->run(l->b->self, NULL, &op, err);
}

/* Rates of every round. */
struct rounds {
    double *value[WAYS], *busy[WAYS], *share[WAYS], *times[WAYS], *probe;
};

/* probe, each way, probe */
static tsr_status one_round(struct layer *l, const struct rounds *r, uint64_t i,
                            struct tsr_err *err)
{
    struct bench *b = l->b;
    double        before, after;
    TSR_TRY(bench_measure(b, BENCH_READ, &before, err));
    for (int way = 0; way < WAYS; way++) {
        double   cpu = bench_cpu_s(), t0 = tsr_now_s(), dt;
        uint64_t bytes = 0;
        do {
            TSR_TRY(run_once(l, way, err));
            bytes += bytes_of(l, way);
            TSR_TRY(b->iface->sync(b->self, NULL, err));
            dt = tsr_now_s() - t0;
        } while (dt < ROUND_S);
        r->value[way][i] = (double)bytes / dt * 1e-9;
        r->busy[way][i] = (bench_cpu_s() - cpu) / (dt * b->threads);
    }
    TSR_TRY(bench_measure(b, BENCH_READ, &after, err));
    r->probe[i] = 0.5e-9 * (before + after);
    for (int way = 0; way < WAYS; way++) {
        r->share[way][i] = r->probe[i] > 0 ? r->value[way][i] / r->probe[i] : 0;
        r->times[way][i] = r->value[way][i] / r->value[GEMV][i];
    }
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

static tsr_status add_way(struct layer *l, const char *format, const struct rounds *r, int way,
                          uint64_t n, struct tsr_err *err)
{
    const struct bench_work *of = way == GEMV    ? &l->gemv
                                  : way == DENSE ? &l->dense.gate
                                                 : &l->experts.gate;
    struct bench_row row = { .rows = of->out.cols, .cols = of->in.cols, .m = 1, .unit = "GB/s" };
    (void)snprintf(row.what, sizeof row.what, "%s", way_names[way]);
    (void)snprintf(row.format, sizeof row.format, "%s", format);
    (void)snprintf(row.act, sizeof row.act, "%s", tsr_plugin_act_name(of->act));
    for (uint64_t i = 0; i < n; i++)
        row.best = fmax(row.best, r->value[way][i]);
    row.value = bench_median(r->value[way], n);
    row.share = bench_median(r->share[way], n);
    row.each = row.share > 0 ? r->share[way] : r->value[way];
    row.n_each = n;
    row.busy = bench_median(r->busy[way], n);
    row.times = bench_median(r->times[way], n);
    row.probe = r->probe[n / 2];
    row.milliseconds = (double)bytes_of(l, way) / row.value * 1e-6;
    return bench_add(l->b, &row, err);
}

static tsr_status measure(struct layer *l, const char *format, struct tsr_err *err)
{
    uint64_t      n = (uint64_t)l->b->o->repeats;
    struct rounds r;
    double       *v = tsr_new((4 * WAYS + 1) * n, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, (4 * WAYS + 1) * n * sizeof *v, "rounds");
    for (int way = 0; way < WAYS; way++) {
        double *own = v + (uint64_t)way * 4 * n;
        r.value[way] = own, r.busy[way] = own + n, r.share[way] = own + 2 * n;
        r.times[way] = own + 3 * n;
    }
    r.probe = v + UINT64_C(4) * WAYS * n;
    tsr_status st = TSR_OK;
    for (int way = 0; way < WAYS && st == TSR_OK; way++)
        st = run_once(l, way, err);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++)
        st = one_round(l, &r, i, err);
    (void)bench_median(r.probe, st == TSR_OK ? n : 0);
    for (int way = 0; way < WAYS && st == TSR_OK; way++)
        st = add_way(l, format, &r, way, n, err);
    free(v);
    return st;
}

tsr_status bench_experts(struct bench *b, struct tsr_err *err)
{
    const char *list = NULL;
    char        name[24];
    TSR_TRY(bench_prepare_read(b, err));
    while (bench_next_format(b, "int4", &list, name)) {
        struct layer l;
        tsr_status   st = make_layer(b, name, &l, err);
        if (st == TSR_OK)
            st = measure(&l, name, err);
        free_layer(&l);
        TSR_TRY(st);
    }
    return TSR_OK;
}
