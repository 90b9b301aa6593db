/* bench attention: one new token of each of some sequences against the keys and values that their caches hold, which no cache of the
 * processor holds, compared with the read peak.  The operation is that of engine/block.c. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/f16.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "plugin/choices.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIZES   8u
#define ROUND_S 0.025
#define PATTERN 256u /* positions that are stored; the others are copies of them */

/* Sequences of one length in caches of one type; an operation reads m of them, the next one others. */
struct caches {
    struct bench     *b;
    const char       *name;
    uint32_t          type; /* of values */
    uint64_t          heads, kv_heads, head_dim;
    uint64_t          positions, m, all; /* sequences of an operation, and all */
    uint64_t          each;              /* rows of a sequence */
    uint64_t          turn;
    struct tsr_tensor keys, values, q, out, spans;
};

static bool in_blocks(const struct caches *x)
{
    return x->keys.dtype == TSR_Q4_CHANNEL;
}

static tsr_status make(struct bench *b, uint32_t dtype, uint64_t rows, uint64_t cols,
                       struct tsr_tensor *t, struct tsr_err *err)
{
    uint64_t bytes;
    *t =
        (struct tsr_tensor){ .struct_size = sizeof *t, .dtype = dtype, .rows = rows, .cols = cols };
    /* rows of caches are multiples of 16 bytes, as in an engine */
    t->row_stride = (cols * tsr_dtype_size(dtype) + 15) / 16 * 16;
    if (!tsr_mul(rows, t->row_stride, &bytes))
        return tsr_fail(err, TSR_E_INPUT, "--positions: the caches are too large");
    return b->iface->buffer_alloc(b->self, bytes, &t->buffer, err);
}

static tsr_status make_cache(const struct caches *x, uint32_t dtype, struct tsr_tensor *t,
                             struct tsr_err *err)
{
    uint64_t tails = dtype == TSR_Q4_CHANNEL ? tsr_kv_tail_rows(x->head_dim) : 0;
    return make(x->b, dtype, x->all * (x->each + tails),
                x->kv_heads * tsr_kv_head_cols(dtype, x->head_dim), t, err);
}

/* Row of the tail of a sequence. */
static uint64_t tail_row(const struct caches *x, uint64_t sequence)
{
    return x->all * x->each + sequence * tsr_kv_tail_rows(x->head_dim);
}

static tsr_status fill_random(struct caches *x, const struct tsr_tensor *t, struct tsr_err *err)
{
    uint64_t s = 88172645463325252u;
    float   *v = tsr_new(t->cols, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, t->cols * sizeof *v, "activations");
    tsr_status st = TSR_OK;
    for (uint64_t r = 0; r < t->rows && st == TSR_OK; r++) {
        for (uint64_t i = 0; i < t->cols; i++) {
            s ^= s << 13, s ^= s >> 7, s ^= s << 17;
            v[i] = (float)(int32_t)(s >> 40) * 0x1p-23f - 1.0f; /* -1 to 1 */
        }
        st = x->b->iface->upload(x->b->self, t->buffer, r * t->row_stride, v, t->cols * 4, err);
    }
    free(v);
    return st;
}

/* KV_STORE of PATTERN positions of sequence 0, a block at a time. */
static tsr_status store_pattern(struct caches *x, const struct tsr_tensor *cache,
                                struct tsr_err *err)
{
    struct bench     *b = x->b;
    uint32_t          at[2 * TSR_KV_BLOCK];
    bool              blocks = cache->dtype == TSR_Q4_CHANNEL;
    struct tsr_tensor in, rows;
    TSR_TRY(make(b, TSR_F32, TSR_KV_BLOCK, x->kv_heads * x->head_dim, &in, err));
    tsr_status st = make(b, TSR_U32, blocks ? 2 : 1, TSR_KV_BLOCK, &rows, err);
    if (st == TSR_OK)
        st = fill_random(x, &in, err);
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_KV_STORE,
                         .out = cache,
                         .in = { &in, &rows },
                         .kv_heads = (uint32_t)x->kv_heads,
                         .head_dim = (uint32_t)x->head_dim };
    for (uint64_t p = 0; p < PATTERN && st == TSR_OK; p += TSR_KV_BLOCK) {
        for (uint32_t i = 0; i < TSR_KV_BLOCK; i++) {
            at[i] = (uint32_t)p + i;
            at[TSR_KV_BLOCK + i] = (uint32_t)(blocks ? tail_row(x, 0) : 0);
        }
        st = b->iface->upload(b->self, rows.buffer, 0, at, rows.rows * rows.row_stride, err);
        if (st == TSR_OK)
            st = b->iface->run(b->self, NULL, &op, err);
        if (st == TSR_OK)
            st = b->iface->sync(b->self, NULL, err);
    }
    b->iface->buffer_free(b->self, in.buffer);
    b->iface->buffer_free(b->self, rows.buffer);
    return st;
}

/* Bytes from `from` on, again and again up to `end`. */
static tsr_status repeat(struct bench *b, const struct tsr_tensor *t, uint64_t from, uint64_t bytes,
                         uint64_t end, struct tsr_err *err)
{
    uint8_t *p = tsr_new(bytes, 1);
    if (!p)
        return tsr_fail_nomem(err, bytes, "a part of a cache");
    tsr_status st = b->iface->download(b->self, t->buffer, from, p, bytes, err);
    for (uint64_t at = from; at < end && st == TSR_OK; at += bytes)
        st = b->iface->upload(b->self, t->buffer, at, p, end - at < bytes ? end - at : bytes, err);
    free(p);
    return st;
}

static tsr_status fill_cache(struct caches *x, const struct tsr_tensor *t, struct tsr_err *err)
{
    uint64_t row = t->row_stride, end = x->all * x->each * row;
    TSR_TRY(store_pattern(x, t, err));
    TSR_TRY(repeat(x->b, t, 0, PATTERN * row, end, err));
    if (t->dtype != TSR_Q4_CHANNEL)
        return TSR_OK;
    return repeat(x->b, t, end, tsr_kv_tail_rows(x->head_dim) * row, t->rows * row, err);
}

static tsr_status fill_spans(struct caches *x, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < x->all && st == TSR_OK; i++) {
        uint32_t span[3] = { (uint32_t)(i * x->each), (uint32_t)(x->positions - 1),
                             (uint32_t)(in_blocks(x) ? tail_row(x, i) : 0) };
        st = x->b->iface->upload(x->b->self, x->spans.buffer, i * x->spans.row_stride, span,
                                 x->spans.cols * 4, err);
    }
    return st;
}

/* Bytes of keys and values that an operation reads: keys of int4 in the newest block are F16. */
static double bytes_of(const struct caches *x)
{
    uint64_t own = in_blocks(x) ? (x->positions - 1) / TSR_KV_BLOCK * TSR_KV_BLOCK : x->positions;
    uint64_t tail = x->kv_heads * tsr_kv_head_bytes(TSR_F16, x->head_dim);
    uint64_t key = x->kv_heads * tsr_kv_head_bytes(x->keys.dtype, x->head_dim);
    uint64_t value = x->kv_heads * tsr_kv_head_bytes(x->type, x->head_dim);
    return (double)x->m * ((double)own * (double)key + (double)(x->positions - own) * (double)tail +
                           (double)x->positions * (double)value);
}

static tsr_status open_caches(struct caches *x, struct tsr_err *err)
{
    struct bench *b = x->b;
    x->keys.dtype = tsr_engine_key_type(x->type);
    x->each = tsr_engine_kv_rows(true, x->positions < PATTERN ? PATTERN : x->positions);
    uint64_t want = (uint64_t)((double)((uint64_t)b->o->mib << 20) / bytes_of(x)) + 1;
    x->all = want * x->m;
    uint64_t rows;
    if (!tsr_mul(x->all, x->each + tsr_kv_tail_rows(x->head_dim), &rows) || rows > UINT32_MAX)
        return tsr_fail(err, TSR_E_INPUT, "--mib: the caches have more than 2^32 rows");
    TSR_TRY(make_cache(x, x->keys.dtype, &x->keys, err));
    TSR_TRY(make_cache(x, x->type, &x->values, err));
    TSR_TRY(make(b, TSR_F32, x->m, x->heads * x->head_dim, &x->q, err));
    TSR_TRY(make(b, TSR_F32, x->m, x->heads * x->head_dim, &x->out, err));
    TSR_TRY(make(b, TSR_U32, x->all, in_blocks(x) ? 3 : 2, &x->spans, err));
    TSR_TRY(fill_cache(x, &x->keys, err));
    TSR_TRY(fill_cache(x, &x->values, err));
    TSR_TRY(fill_random(x, &x->q, err));
    return fill_spans(x, err);
}

static void close_caches(struct caches *x)
{
    struct tsr_tensor *all[] = { &x->keys, &x->values, &x->q, &x->out, &x->spans };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        x->b->iface->buffer_free(x->b->self, all[i]->buffer);
}

static tsr_status run_once(struct caches *x, struct tsr_err *err)
{
    struct bench     *b = x->b;
    struct tsr_tensor spans = x->spans;
    spans.offset = x->turn * x->m * spans.row_stride;
    spans.rows = x->m;
    x->turn = (x->turn + 1) % (x->all / x->m);
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_ATTENTION,
                         .out = &x->out,
                         .in = { &x->q, &x->keys, &x->values, &spans },
                         .heads = (uint32_t)x->heads,
                         .kv_heads = (uint32_t)x->kv_heads,
                         .head_dim = (uint32_t)x->head_dim,
                         .scale = (float)(1 / sqrt((double)x->head_dim)) };
    return b->iface->run(b->self, NULL, &op, err);
}

/* peak, operations, peak */
static tsr_status one_round(struct caches *x, double *seconds, double *probe, double *busy,
                            struct tsr_err *err)
{
    struct bench *b = x->b;
    double        before, after, dt;
    uint64_t      calls = 0;
    TSR_TRY(bench_measure(b, BENCH_READ, &before, err));
    double cpu = bench_cpu_s(), t0 = tsr_now_s();
    do {
        TSR_TRY(run_once(x, err));
        TSR_TRY(b->iface->sync(b->self, NULL, err));
        calls++;
        dt = tsr_now_s() - t0;
    } while (dt < ROUND_S);
    *seconds = dt / (double)calls;
    *busy = (bench_cpu_s() - cpu) / (dt * b->threads);
    TSR_TRY(bench_measure(b, BENCH_READ, &after, err));
    *probe = 0.5 * (before + after);
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

static tsr_status rounds(struct caches *x, struct tsr_err *err)
{
    struct bench    *b = x->b;
    uint64_t         n = (uint64_t)b->o->repeats;
    double           bytes = bytes_of(x), seconds, *value = tsr_new(4 * n, sizeof *value);
    struct bench_row row = { .what = "attention",
                             .act = "-",
                             .unit = "GB/s",
                             .rows = x->positions,
                             .cols = x->kv_heads * x->head_dim,
                             .m = x->m };
    if (!value)
        return tsr_fail_nomem(err, 4 * n * sizeof *value, "rounds");
    double *probe = value + n, *share = probe + n, *busy = share + n;
    (void)snprintf(row.format, sizeof row.format, "%s", x->name);
    tsr_status st = run_once(x, err); /* allocates */
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        st = one_round(x, &seconds, &probe[i], &busy[i], err);
        if (st != TSR_OK)
            break;
        value[i] = bytes / seconds * 1e-9;
        probe[i] *= 1e-9;
        share[i] = probe[i] > 0 ? value[i] / probe[i] : 0;
        row.best = fmax(row.best, value[i]);
    }
    if (st == TSR_OK) {
        row.value = bench_median(value, n);
        row.share = bench_median(share, n);
        row.each = row.share > 0 ? share : value;
        row.n_each = n;
        row.probe = bench_median(probe, n);
        row.busy = bench_median(busy, n);
        row.milliseconds = bytes / row.value * 1e-6;
        st = bench_add(b, &row, err);
    }
    free(value);
    return st;
}

static tsr_status one_type(struct bench *b, const char *name, const uint64_t *positions, uint32_t n,
                           const uint64_t *m, uint32_t n_m, struct tsr_err *err)
{
    static const uint32_t types[] = { TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4 };
    size_t                k = 0, all = sizeof types / sizeof *types;
    while (k < all && strcmp(name, tsr_plugin_kv_name(types[k])) != 0)
        k++;
    if (k == all)
        return tsr_fail(err, TSR_E_INPUT,
                        "--formats: '%s' is not one of f32, f16, int8, fp8, int4, the types of a "
                        "cache",
                        name);
    for (uint32_t i = 0; i < n * n_m; i++) {
        const struct bench_options *o = b->o;
        struct caches               x = { .b = b,
                                          .name = name,
                                          .type = types[k],
                                          .heads = o->heads ? (uint64_t)o->heads : 32,
                                          .kv_heads = o->kv_heads ? (uint64_t)o->kv_heads : 8,
                                          .head_dim = (uint64_t)o->head_dim,
                                          .positions = positions[i / n_m],
                                          .m = m[i % n_m] };
        if (x.heads % x.kv_heads)
            return tsr_fail(err, TSR_E_INPUT, "--heads: %llu is not a multiple of %llu KV heads",
                            (unsigned long long)x.heads, (unsigned long long)x.kv_heads);
        struct bench_options own = *o;
        own.group = (int64_t)(x.heads / x.kv_heads);
        b->o = &own;
        tsr_status st = open_caches(&x, err);
        if (st == TSR_OK)
            st = rounds(&x, err);
        close_caches(&x);
        b->o = o;
        TSR_TRY(st);
    }
    return TSR_OK;
}

tsr_status bench_attention(struct bench *b, struct tsr_err *err)
{
    uint64_t    positions[SIZES], m[SIZES] = { 1, 16 };
    uint32_t    n, n_m = 2;
    const char *list = NULL;
    char        name[24];
    TSR_TRY(bench_numbers("--positions", b->o->positions, positions, SIZES, &n, err));
    if (*b->o->m)
        TSR_TRY(bench_numbers("--m", b->o->m, m, SIZES, &n_m, err));
    TSR_TRY(bench_prepare_read(b, err));
    while (bench_next_format(b, "f16,int8,fp8,int4", &list, name))
        TSR_TRY(one_type(b, name, positions, n, m, n_m, err));
    return TSR_OK;
}
