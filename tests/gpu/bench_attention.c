/* bench_attention.c - times of ATTENTION: decode of many sequences and of one, prompts, these also under numerics: fast; beside
 * the copy of bench.c.
 * Operations read other sequences in turn, so that no cache holds what they read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_attention.h"

#define SEQUENCES 16u
#define ROUNDS    4 /* the best of them counts */

struct shape {
    const char *name;
    uint32_t    dtype, sequences; /* of an operation */
    uint32_t    tokens;           /* of a sequence */
    uint32_t    positions;        /* after the last token */
};

static const struct shape shapes[] = {
    { "decode", TSR_F16, 16, 1, 4096 },  { "decode", TSR_F16, 1, 1, 4096 },
    { "prompt", TSR_F16, 1, 512, 512 },  { "decode", TSR_I8, 16, 1, 4096 },
    { "prompt", TSR_F16, 1, 512, 1024 }, { "prompt", TSR_I8, 1, 512, 1024 },
    { "prompt", TSR_F16, 1, 2048, 4096 }
};

/* The whole is SEQUENCES sequences; an operation has some of them. */
struct room {
    const struct attention_bench *b;
    const struct pair_device     *d;
    uint32_t                      heads, kv_heads, head_dim, positions;
    uint64_t                      row; /* bytes of the cache */
    struct tsr_tensor             k, v, q, out, spans[SEQUENCES];
};

static bool tensor(const struct room *r, struct tsr_tensor *t, uint32_t dtype, uint64_t rows,
                   uint64_t cols, uint64_t stride, const void *data, uint64_t repeat)
{
    const struct pair_device *d = r->d;
    *t = (struct tsr_tensor){
        .struct_size = sizeof *t, .dtype = dtype, .rows = rows, .cols = cols, .row_stride = stride
    };
    bool ok = d->t->buffer_alloc(d->self, rows * stride, &t->buffer, r->b->err) == TSR_OK;
    for (uint64_t i = 0; ok && data && i < rows; i += repeat)
        ok = d->t->upload(d->self, t->buffer, i * stride, data, repeat * stride, r->b->err) ==
             TSR_OK;
    return ok;
}

/* `rows` rows of a cache with numbers of a middling size; scales of 1/128. */
static uint8_t *cache_rows(const struct room *r, uint32_t dtype, uint64_t rows)
{
    uint8_t *x = malloc(rows * r->row);
    uint64_t s = 88172645463325252u;
    for (uint64_t i = 0; x && i < rows * r->row; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        x[i] = (uint8_t)(dtype == TSR_F16 && i % 2 ? (s & 0x83u) | 0x2cu : s);
    }
    for (uint64_t i = 0; x && dtype == TSR_I8 && i < rows * r->kv_heads; i++)
        memcpy(x + i * (r->head_dim + 4u), &(float){ 1.0f / 128 }, 4);
    return x;
}

static bool spans_of(struct room *r, const struct shape *s, uint32_t first, struct tsr_tensor *t)
{
    const uint32_t n = s->sequences * s->tokens;
    uint32_t      *x = malloc(n * 2 * sizeof *x);
    if (!x)
        return tsr_fail(r->b->err, TSR_E_NOMEM, "out of memory: spans to measure with") == TSR_OK;
    for (uint32_t i = 0; i < n; i++) {
        x[2 * i] = (first + i / s->tokens) * r->positions;
        x[2 * i + 1] = r->positions - s->tokens + i % s->tokens;
    }
    bool ok = tensor(r, t, TSR_U32, n, 2, 8, x, n);
    free(x);
    return ok;
}

static bool make(struct room *r, const struct shape *s, uint64_t *n)
{
    const uint64_t rows = (uint64_t)SEQUENCES * r->positions,
                   wide = (uint64_t)r->heads * r->head_dim;
    const uint64_t tokens = (uint64_t)s->sequences * s->tokens;
    uint8_t       *x = cache_rows(r, s->dtype, r->positions);
    float         *q = malloc(wide * sizeof *q);
    for (uint64_t i = 0; q && i < wide; i++)
        q[i] = (float)(i % 37) / 37 - 0.5f;
    bool ok = x && q;
    if (!ok)
        (void)tsr_fail(r->b->err, TSR_E_NOMEM, "out of memory: a cache to measure with");
    const uint64_t cols = s->dtype == TSR_I8 ? r->row : r->row / 2;
    ok = ok && tensor(r, &r->k, s->dtype, rows, cols, r->row, x, r->positions) &&
         tensor(r, &r->v, s->dtype, rows, cols, r->row, x, r->positions) &&
         tensor(r, &r->q, TSR_F32, tokens, wide, 4 * wide, q, 1) &&
         tensor(r, &r->out, TSR_F32, tokens, wide, 4 * wide, NULL, 1);
    free(x);
    free(q);
    for (*n = 0; ok && *n < SEQUENCES / s->sequences; *n += ok)
        ok = spans_of(r, s, (uint32_t)*n * s->sequences, &r->spans[*n]);
    return ok;
}

static void drop(struct room *r)
{
    const struct pair_device *d = r->d;
    struct tsr_tensor        *t[] = { &r->k, &r->v, &r->q, &r->out };
    for (unsigned i = 0; i < sizeof t / sizeof *t; i++)
        d->t->buffer_free(d->self, t[i]->buffer);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        d->t->buffer_free(d->self, r->spans[i].buffer);
}

static double seconds(const struct room *r, uint64_t n)
{
    struct tsr_op op[SEQUENCES];
    double        best = -1, one;
    for (uint64_t i = 0; i < n; i++)
        op[i] = (struct tsr_op){ .struct_size = sizeof op[i],
                                 .kind = TSR_OP_ATTENTION,
                                 .out = &r->out,
                                 .in = { &r->q, &r->k, &r->v, &r->spans[i] },
                                 .heads = r->heads,
                                 .kv_heads = r->kv_heads,
                                 .head_dim = r->head_dim,
                                 .scale = 0.088f };
    for (int i = 0; i <= ROUNDS; i++) { /* the first warms up */
        if (r->b->by->ops(r->d->self, op, n, (9 + n) / n, &one, r->b->err) != TSR_OK)
            return -1;
        best = i > 0 && (best < 0 || one < best) ? one : best;
    }
    return best;
}

/* One line of JSON; bytes are those of the keys and values, each once. */
static bool one(const struct attention_bench *b, const struct shape *s, bool fast)
{
    struct shape of = *s;
    struct room  r = {
         .b = b, .d = fast ? b->fast : b->d, .heads = 32, .kv_heads = 8, .head_dim = 128
    };
    uint64_t n = 0;
    if (b->small) {
        r.heads = 4;
        r.kv_heads = 2;
        r.head_dim = 16;
        of.tokens = s->tokens > 12 ? 12 : s->tokens;
        of.positions = of.tokens + 7;
    }
    r.positions = of.positions;
    s = &of;
    r.row = (uint64_t)r.kv_heads * (s->dtype == TSR_I8 ? r.head_dim + 4u : 2 * r.head_dim);
    double t = make(&r, s, &n) ? seconds(&r, n) : -1;
    drop(&r);
    if (!(t > 0))
        return false;
    double bytes = 2.0 * s->sequences * r.positions * (double)r.row;
    double pairs = s->sequences * (double)s->tokens * (r.positions - (s->tokens - 1) / 2.0);
    (void)printf(
        "{\"attention\": \"%s\", \"numerics\": \"%s\", \"cache\": \"%s\", \"sequences\": %u, "
        "\"tokens\": %u, "
        "\"positions\": %u, \"heads\": %u, \"kv_heads\": %u, \"head_dim\": %u, \"us\": %.2f, "
        "\"gb_per_s\": %.6g, \"of_copy\": %.4g, \"gflop_per_s\": %.6g}\n",
        s->name, fast ? "fast" : "exact", s->dtype == TSR_I8 ? "int8" : "F16", s->sequences,
        s->tokens, r.positions, r.heads, r.kv_heads, r.head_dim, t * 1e6, bytes / t / 1e9,
        bytes / t / b->copy, 4.0 * r.heads * r.head_dim * pairs / t / 1e9);
    return fflush(stdout) == 0;
}

bool pair_bench_attention(const struct attention_bench *b)
{
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!one(b, &shapes[i], false) || (shapes[i].tokens > 1 && !one(b, &shapes[i], true)))
            return false;
    return true;
}
