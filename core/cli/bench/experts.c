/* bench experts: one token through the experts that it takes, compared in the same round with a dense GEMV of the same
 * bytes and with the read peak.  The products are those of engine/experts_run.c: gate and up of all experts, then down
 * of all; `apart` runs the same products one after the other. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tessera/draft/linears.h"

#include <math.h>
#include <stdlib.h>

#define MOST_USED BENCH_MOST_USED
#define ROUND_S   0.025 /* of each in a round */

enum { DENSE, TOGETHER, APART, WAYS };
static const char *const way_names[WAYS] = { "gemv", "experts", "apart" };

struct layer {
    struct bench                        *b;
    struct bench_work                    gate, down, dense; /* gate: and up */
    struct tsr_tensor                    weights, places, sum;
    uint64_t                             used, experts;
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

static tsr_status make_layer(struct bench *b, const char *format, struct layer *l,
                             struct tsr_err *err)
{
    uint64_t hidden = b->o->hidden ? (uint64_t)b->o->hidden : 2048;
    uint64_t ffn = b->o->ffn ? (uint64_t)b->o->ffn : 768, bytes = (uint64_t)b->o->mib << 20;
    float    weight[MOST_USED];
    uint32_t place[MOST_USED];
    *l = (struct layer){ .b = b, .used = (uint64_t)b->o->used };
    for (uint32_t i = 0; i < MOST_USED; i++) {
        weight[i] = 1 / (float)l->used;
        place[i] = i;
    }
    TSR_TRY(make_work(b, format, ffn, hidden, 2 * l->used, bytes / 3 * 2, &l->gate, err));
    TSR_TRY(make_work(b, format, hidden, ffn, l->used, bytes / 3, &l->down, err));
    TSR_TRY(make_work(b, format, 3 * l->used * ffn, hidden, 1, bytes, &l->dense, err));
    TSR_TRY(make_row(b, TSR_F32, l->used, weight, &l->weights, err));
    TSR_TRY(make_row(b, TSR_U32, l->used, place, &l->places, err));
    TSR_TRY(make_row(b, TSR_F32, hidden, NULL, &l->sum, err));
    l->experts = l->gate.n / 2 < l->down.n ? l->gate.n / 2 : l->down.n;
    l->table = b->iface->extension ? b->iface->extension(b->self, TSR_BACKEND_LINEARS) : NULL;
    return l->experts >= l->used
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT, "--mib %lld: %llu experts fit, a token takes %llu",
                          (long long)b->o->mib, (unsigned long long)l->experts,
                          (unsigned long long)l->used);
}

static void free_layer(struct layer *l)
{
    bench_work_free(l->b, &l->gate);
    bench_work_free(l->b, &l->down);
    bench_work_free(l->b, &l->dense);
    l->b->iface->buffer_free(l->b->self, l->weights.buffer);
    l->b->iface->buffer_free(l->b->self, l->places.buffer);
    l->b->iface->buffer_free(l->b->self, l->sum.buffer);
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

/* A token's experts: spread over all, other ones than those of the token before. */
static tsr_status run_token(struct layer *l, bool together, struct tsr_err *err)
{
    struct tsr_op     op[2 * MOST_USED];
    struct tsr_tensor in[MOST_USED], out[2 * MOST_USED], x = row_of(&l->gate.in, 0, 1);
    struct tsr_tensor gate = row_of(&l->gate.out, 0, l->used),
                      up = row_of(&l->gate.out, l->used, l->used);
    uint64_t turn = l->turn++, apart = l->experts / l->used;
    for (uint64_t j = 0; j < 2 * l->used; j++) {
        uint64_t expert = (turn + j % l->used * apart) % l->experts;
        out[j] = row_of(&l->gate.out, j, 1);
        op[j] = bench_work_op(&l->gate, 2 * expert + j / l->used);
        op[j].in[0] = &x;
        op[j].out = &out[j];
    }
    TSR_TRY(run_products(l, together, op, 2 * (uint32_t)l->used, err));
    struct tsr_op act = { .struct_size = sizeof act,
                          .kind = TSR_OP_ACT,
                          .out = &gate,
                          .in = { &gate, &up },
                          .func = TSR_FUNC_SILU };
    TSR_TRY(l->b->iface->run(l->b->self, NULL, &act, err));
    for (uint64_t j = 0; j < l->used; j++) {
        in[j] = row_of(&l->gate.out, j, 1);
        out[j] = row_of(&l->down.out, j, 1);
        op[j] = bench_work_op(&l->down, (turn + j * apart) % l->experts);
        op[j].in[0] = &in[j];
        op[j].out = &out[j];
    }
    TSR_TRY(run_products(l, together, op, (uint32_t)l->used, err));
    struct tsr_op mix = { .struct_size = sizeof mix,
                          .kind = TSR_OP_MIX,
                          .out = &l->sum,
                          .in = { &l->down.out, &l->weights, &l->places } };
    return l->b->iface->run(l->b->self, NULL, &mix, err);
}

static tsr_status run_once(struct layer *l, int way, uint64_t *bytes, struct tsr_err *err)
{
    if (way != DENSE) {
        *bytes += l->used * (2 * l->gate.bytes + l->down.bytes);
        return run_token(l, way == TOGETHER, err);
    }
    struct tsr_op op = bench_work_op(&l->dense, l->turn++ % l->dense.n);
    *bytes += l->dense.bytes;
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
            TSR_TRY(run_once(l, way, &bytes, err));
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
        r->times[way][i] = r->value[way][i] / r->value[DENSE][i];
    }
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

static tsr_status add_way(struct layer *l, const char *format, const struct rounds *r, int way,
                          uint64_t n, struct tsr_err *err)
{
    const struct bench_work *of = way == DENSE ? &l->dense : &l->gate;
    struct bench_row row = { .rows = of->out.cols, .cols = of->in.cols, .m = 1, .unit = "GB/s" };
    uint64_t bytes = way == DENSE ? l->dense.bytes : l->used * (2 * l->gate.bytes + l->down.bytes);
    (void)snprintf(row.what, sizeof row.what, "%s", way_names[way]);
    (void)snprintf(row.format, sizeof row.format, "%s", format);
    (void)snprintf(row.act, sizeof row.act, "%s", tsr_plugin_act_name(of->act));
    for (uint64_t i = 0; i < n; i++)
        row.best = fmax(row.best, r->value[way][i]);
    row.value = bench_median(r->value[way], n);
    row.share = bench_median(r->share[way], n);
    row.busy = bench_median(r->busy[way], n);
    row.times = bench_median(r->times[way], n);
    row.probe = r->probe[n / 2];
    row.milliseconds = (double)bytes / row.value * 1e-6;
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
    uint64_t   none = 0;
    tsr_status st = TSR_OK;
    for (int way = 0; way < WAYS && st == TSR_OK; way++)
        st = run_once(l, way, &none, err);
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
