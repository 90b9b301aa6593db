/* attention.c - KV_STORE and ATTENTION: checks, and the loop over tokens and KV heads. */
#include "../tensor/tensor.h"
#include "backend.h"

#include <string.h>

static tsr_status cache_view(struct tsr_view *v, const struct tsr_tensor *t,
                             const struct tsr_op *op, const char *name, const char *what,
                             struct tsr_err *err)
{
    struct tsr_tensor whole;
    uint64_t          cols;
    tsr_status        st = tsr_tensor_cache(t, op, name, what, &whole, &cols, err);
    return st != TSR_OK ? st : tsr_cpu_view(v, &whole, name, what, whole.dtype, 0, cols, err);
}

static uint32_t u32_at(const struct tsr_view *v, uint64_t row, uint64_t i)
{
    uint32_t u;
    memcpy(&u, v->p + row * v->stride + 4 * i, 4);
    return u;
}

struct store {
    const struct tsr_cpu *c;
    const struct tsr_op  *op;
    struct tsr_view       cache, x, rows;
};

static tsr_status store_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct store *s = arg;
    for (uint64_t t = begin; t < end; t++)
        s->c->k->kv_store(s->cache.p + u32_at(&s->rows, 0, t) * s->cache.stride,
                          (const float *)(const void *)(s->x.p + t * s->x.stride),
                          s->op->out->dtype, s->op->kv_heads, s->op->head_dim);
    return TSR_OK;
}

tsr_status tsr_cpu_kv_store_op(struct tsr_cpu *c, const struct tsr_op *op, struct tsr_err *err)
{
    struct store s = { .c = c, .op = op };
    tsr_status   st = tsr_tensor_heads(op, "KV_STORE", err);
    if (st != TSR_OK)
        return st;
    uint64_t n = (uint64_t)op->kv_heads * op->head_dim;
    if ((st = cache_view(&s.cache, op->out, op, "KV_STORE", "the cache", err)) != TSR_OK ||
        (st = tsr_cpu_view(&s.x, op->in[0], "KV_STORE", "in", TSR_F32, 0, n, err)) != TSR_OK ||
        (st = tsr_cpu_view(&s.rows, op->in[1], "KV_STORE", "rows", TSR_U32, 1, s.x.rows, err)) !=
            TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[0], 0, "KV_STORE", err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "KV_STORE", err)) != TSR_OK)
        return st;
    uint32_t before = 0;
    int      rising = 1;
    for (uint64_t t = 0; t < s.x.rows; t++) {
        uint32_t row = u32_at(&s.rows, 0, t);
        if (row >= s.cache.rows)
            return tsr_fail(err, TSR_E_INVAL, "KV_STORE: row %u of token %llu is not below %llu",
                            row, (unsigned long long)t, (unsigned long long)s.cache.rows);
        rising &= t == 0 || row > before;
        before = row;
    }
    if (!rising) /* rows may repeat: the last token wins, so keep the order */
        return store_rows(&s, 0, s.x.rows);
    return tsr_cpu_for(c, s.x.rows, n * 8, store_rows, &s);
}

struct attend {
    const struct tsr_cpu    *c;
    struct tsr_cpu_attention a;
    float                   *scores;
    uint64_t                 per_chunk, scores_each;
};

static tsr_status attend_chunks(void *arg, uint64_t begin, uint64_t end)
{
    const struct attend *s = arg;
    float               *scores = s->scores + begin / s->per_chunk * s->scores_each;
    for (uint64_t i = begin; i < end; i++)
        s->c->k->attention(&s->a, i / s->a.kv_heads, (uint32_t)(i % s->a.kv_heads), scores);
    return TSR_OK;
}

/* Every span inside the cache; the most positions that one token attends to. */
static tsr_status check_spans(const struct tsr_view *spans, uint64_t tokens, uint64_t rows,
                              uint32_t window, uint64_t *most, uint64_t *sum, struct tsr_err *err)
{
    *most = *sum = 0;
    for (uint64_t t = 0; t < tokens; t++) {
        uint64_t row = u32_at(spans, t, 0), p = u32_at(spans, t, 1);
        if (row >= rows || p >= rows - row)
            return tsr_fail(err, TSR_E_INVAL,
                            "ATTENTION: token %llu at position %llu from cache "
                            "row %llu is not inside %llu rows",
                            (unsigned long long)t, (unsigned long long)p, (unsigned long long)row,
                            (unsigned long long)rows);
        uint64_t n = window && p + 1 > window ? window : p + 1;
        *most = n > *most ? n : *most;
        *sum += n;
    }
    return TSR_OK;
}

/* Chunks of a loop over tokens and heads; each has scores of its own. */
#define ATTEND_CHUNKS 64u

/* Scores of one token and KV head. */
static uint64_t scores_of(uint64_t share, uint64_t positions)
{
    return share * ((positions + 47) / 16 * 16);
}

uint64_t tsr_cpu_attention_scratch(uint64_t tokens, uint64_t positions, uint32_t heads,
                                   uint32_t kv_heads)
{
    uint64_t tasks, bytes;
    if (__builtin_mul_overflow(tokens, kv_heads, &tasks) || tasks == 0)
        return 0;
    uint64_t chunks = cpu_ceil(tasks, cpu_ceil(tasks, ATTEND_CHUNKS));
    return __builtin_mul_overflow(scores_of(heads / kv_heads, positions), 4 * chunks, &bytes)
               ? 0
               : bytes;
}

tsr_status tsr_cpu_attention_op(struct tsr_cpu *c, const struct tsr_op *op, struct tsr_err *err)
{
    struct tsr_view out, q, k, v, spans, slopes = { 0 };
    tsr_status      st = tsr_tensor_heads(op, "ATTENTION", err);
    if (st != TSR_OK)
        return st;
    if (op->heads == 0 || op->heads > 65536 || op->heads % op->kv_heads)
        return tsr_fail(err, TSR_E_INVAL, "ATTENTION: %u heads are no multiple of %u KV heads",
                        op->heads, op->kv_heads);
    uint64_t n = (uint64_t)op->heads * op->head_dim, most, sum;
    if ((st = tsr_cpu_view(&out, op->out, "ATTENTION", "out", TSR_F32, 0, n, err)) != TSR_OK ||
        (st = tsr_cpu_view(&q, op->in[0], "ATTENTION", "q", TSR_F32, out.rows, n, err)) != TSR_OK ||
        (st = cache_view(&k, op->in[1], op, "ATTENTION", "the K cache", err)) != TSR_OK ||
        (st = cache_view(&v, op->in[2], op, "ATTENTION", "the V cache", err)) != TSR_OK ||
        (st = tsr_cpu_view(&spans, op->in[3], "ATTENTION", "spans", TSR_U32, out.rows, 2, err)) !=
            TSR_OK)
        return st;
    for (int i = 0; i < 4; i++)
        if ((st = tsr_tensor_apart(op->out, op->in[i], 0, "ATTENTION", err)) != TSR_OK)
            return st;
    if (op->in[4] && ((st = tsr_cpu_view(&slopes, op->in[4], "ATTENTION", "slopes", TSR_F32, 1,
                                         op->heads, err)) != TSR_OK ||
                      (st = tsr_tensor_apart(op->out, op->in[4], 0, "ATTENTION", err)) != TSR_OK))
        return st;
    if (op->in[1]->dtype != op->in[2]->dtype)
        return tsr_fail(err, TSR_E_INVAL, "ATTENTION: K and V caches have dtypes %u and %u",
                        op->in[1]->dtype, op->in[2]->dtype);
    st = check_spans(&spans, out.rows, cpu_min(k.rows, v.rows), op->window, &most, &sum, err);
    if (st != TSR_OK)
        return st;
    struct attend s = { .c = c };
    s.a = (struct tsr_cpu_attention){ .q = q.p,
                                      .k = k.p,
                                      .v = v.p,
                                      .out = out.p,
                                      .spans = spans.p,
                                      .q_stride = q.stride,
                                      .k_stride = k.stride,
                                      .v_stride = v.stride,
                                      .out_stride = out.stride,
                                      .span_stride = spans.stride,
                                      .slopes = (const float *)(const void *)slopes.p,
                                      .dtype = op->in[1]->dtype,
                                      .heads = op->heads,
                                      .kv_heads = op->kv_heads,
                                      .head_dim = op->head_dim,
                                      .window = op->window,
                                      .scale = op->scale,
                                      .softcap = op->softcap };
    uint64_t tasks = out.rows * op->kv_heads, share = op->heads / op->kv_heads, bytes;
    uint64_t work = sum / out.rows * op->head_dim * share * 2 + 64;
    s.per_chunk = cpu_ceil(tasks, ATTEND_CHUNKS);
    if (tasks * work < 65536) /* not worth a loop over threads */
        s.per_chunk = tasks;
    s.scores_each = scores_of(share, most);
    uint8_t *p;
    if (__builtin_mul_overflow(s.scores_each, 4 * cpu_ceil(tasks, s.per_chunk), &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "ATTENTION: the scores are larger than the memory");
    if ((st = tsr_cpu_scratch(c, bytes, &p, err)) != TSR_OK)
        return st;
    s.scores = (float *)(void *)p;
    if (s.per_chunk == tasks)
        return attend_chunks(&s, 0, tasks);
    return c->host->parallel_for(c->host->ctx, tasks, s.per_chunk, attend_chunks, &s);
}
