/* attention.c - KV_STORE and ATTENTION: checks, scratch, and parts that fit into it. */
#include "../tensor/tensor.h"
#include "backend.h"

#define SCORE_KEYS  64u  /* positions of a block of k_scores */
#define VALUE_BLOCK 256u /* positions of a block of k_values */
#define WORK_MAX    (UINT64_C(256) << 20)

static tsr_status cache_view(struct tsr_view *v, const struct tsr_tensor *t,
                             const struct tsr_op *op, const char *name, const char *what,
                             struct tsr_err *err)
{
    struct tsr_tensor whole;
    uint64_t          cols;
    tsr_status        st = tsr_tensor_cache(t, op, name, what, &whole, &cols, err);
    return st != TSR_OK ? st : tsr_cuda_view(v, &whole, name, what, whole.dtype, 0, cols, err);
}

/* Whether a row comes twice: then the last token wins, and tokens go one by one. */
static int repeats(const uint32_t *row, uint64_t n)
{
    for (uint64_t t = 1; t < n; t++)
        if (row[t] <= row[t - 1])
            return 1;
    return 0;
}

tsr_status tsr_cuda_kv_store_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                                struct tsr_err *err)
{
    struct tsr_view cache, x, rows;
    const uint32_t *index;
    uint64_t        stride;
    tsr_status      st = tsr_tensor_heads(op, "KV_STORE", err);
    if (st != TSR_OK)
        return st;
    uint64_t n = (uint64_t)op->kv_heads * op->head_dim;
    if ((st = cache_view(&cache, op->out, op, "KV_STORE", "the cache", err)) != TSR_OK ||
        (st = tsr_cuda_view(&x, op->in[0], "KV_STORE", "in", TSR_F32, 0, n, err)) != TSR_OK ||
        (st = tsr_cuda_view(&rows, op->in[1], "KV_STORE", "rows", TSR_U32, 1, x.rows, err)) !=
            TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[0], 0, "KV_STORE", err)) != TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[1], 0, "KV_STORE", err)) != TSR_OK ||
        (st = tsr_cuda_indices(c, op->in[1], &index, &stride, err)) != TSR_OK)
        return st;
    for (uint64_t t = 0; t < x.rows; t++)
        if (index[t] >= cache.rows)
            return tsr_fail(err, TSR_E_INVAL, "KV_STORE: row %u of token %llu is not below %llu",
                            index[t], (unsigned long long)t, (unsigned long long)cache.rows);
    uint64_t part = repeats(index, x.rows) ? 1 : x.rows;
    for (uint64_t t = 0; t < x.rows; t += part) {
        struct k_kv_store a = { .cache = cache.p,
                                .x = x.p + t * x.stride,
                                .rows = rows.p + 4 * t,
                                .cache_stride = cache.stride,
                                .x_stride = x.stride,
                                .tokens = (uint32_t)part,
                                .kv_heads = op->kv_heads,
                                .head_dim = op->head_dim,
                                .dtype = op->out->dtype };
        st = tsr_cuda_launch(c, stream, KERNEL_k_kv_store, cuda_ceil(part * op->kv_heads, 4), 1, 1,
                             128, &a, sizeof a, err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

/* Every span inside the cache; the most scores, counted from a border of 16, and blocks of values. */
static tsr_status check_spans(const uint32_t *span, uint64_t stride, uint64_t tokens, uint64_t rows,
                              uint32_t window, uint64_t *scores, uint64_t *blocks,
                              struct tsr_err *err)
{
    *scores = *blocks = 0;
    for (uint64_t t = 0; t < tokens; t++, span += stride) {
        uint64_t row = span[0], p = span[1];
        if (row >= rows || p >= rows - row)
            return tsr_fail(err, TSR_E_INVAL,
                            "ATTENTION: token %llu at position %llu from cache row %llu is not "
                            "inside %llu rows",
                            (unsigned long long)t, (unsigned long long)p, (unsigned long long)row,
                            (unsigned long long)rows);
        uint64_t lo = window && p + 1 > window ? p + 1 - window : 0;
        uint64_t n = p + 1 - lo / 16 * 16, b = p / VALUE_BLOCK - lo / VALUE_BLOCK + 1;
        *scores = n > *scores ? n : *scores;
        *blocks = b > *blocks ? b : *blocks;
    }
    /* whole blocks, so that a sequence that grows keeps its launches for 256 tokens: blocks of threads
     * past a span have nothing to do */
    *scores = cuda_ceil(*scores, VALUE_BLOCK) * VALUE_BLOCK;
    return TSR_OK;
}

/* Bytes that a token takes; 0 on overflow. */
static uint64_t work_each(uint64_t scores, uint64_t blocks, uint32_t heads, uint32_t head_dim)
{
    uint64_t part, n;
    if (__builtin_mul_overflow(blocks, head_dim, &part) ||
        __builtin_add_overflow(part, scores + 1, &n) ||
        __builtin_mul_overflow(n, 4 * (uint64_t)heads, &n))
        return 0;
    return n;
}

/* Tokens that go at once. */
static uint64_t tokens_at_once(uint64_t tokens, uint64_t each)
{
    uint64_t n = WORK_MAX / each;
    n = n < 1 ? 1 : n > 65535 ? 65535 : n;
    return cuda_min(n, tokens);
}

uint64_t tsr_cuda_attention_work(uint64_t tokens, uint64_t positions, uint32_t heads,
                                 uint32_t head_dim)
{
    uint64_t each = work_each((positions / VALUE_BLOCK + 2) * VALUE_BLOCK,
                              positions / VALUE_BLOCK + 2, heads, head_dim),
             n;
    if (each == 0 || tokens == 0 || __builtin_mul_overflow(each, tokens_at_once(tokens, each), &n))
        return 0;
    return n + 512;
}

/* Tokens [t0, t0 + n) of the operation. */
static tsr_status attend(struct tsr_cuda *c, void *stream, struct k_attention *a, uint64_t t0,
                         uint64_t n, uint64_t scores, struct tsr_err *err)
{
    uint64_t   heads = a->heads, work;
    tsr_status st =
        tsr_cuda_work(c, n * work_each(scores, a->blocks, a->heads, a->head_dim) + 512, &work, err);
    if (st != TSR_OK)
        return st;
    a->first = (uint32_t)t0;
    a->tokens = (uint32_t)n;
    a->score_stride = scores;
    a->scores = work;
    a->den = (a->scores + n * heads * scores * 4 + 255) / 256 * 256;
    a->partial = (a->den + n * heads * 4 + 255) / 256 * 256;
    if ((st = tsr_cuda_launch(c, stream, KERNEL_k_scores, cuda_ceil(scores, SCORE_KEYS), heads, n,
                              128, a, sizeof *a, err)) != TSR_OK ||
        (st = tsr_cuda_launch(c, stream, KERNEL_k_softmax, heads, n, 1, 128, a, sizeof *a, err)) !=
            TSR_OK ||
        (st = tsr_cuda_launch(c, stream, KERNEL_k_values, a->blocks, heads, n, 128, a, sizeof *a,
                              err)) != TSR_OK)
        return st;
    return tsr_cuda_launch(c, stream, KERNEL_k_combine, heads, n, 1, 128, a, sizeof *a, err);
}

tsr_status tsr_cuda_attention_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                                 struct tsr_err *err)
{
    struct tsr_view out, q, k, v, spans, slopes = { 0 };
    const uint32_t *span;
    uint64_t        stride, scores, blocks, each;
    tsr_status      st = tsr_tensor_heads(op, "ATTENTION", err);
    if (st != TSR_OK)
        return st;
    if (op->heads == 0 || op->heads > 65535 || op->heads % op->kv_heads)
        return tsr_fail(err, TSR_E_INVAL, "ATTENTION: %u heads are no multiple of %u KV heads",
                        op->heads, op->kv_heads);
    uint64_t n = (uint64_t)op->heads * op->head_dim;
    if ((st = tsr_cuda_view(&out, op->out, "ATTENTION", "out", TSR_F32, 0, n, err)) != TSR_OK ||
        (st = tsr_cuda_view(&q, op->in[0], "ATTENTION", "q", TSR_F32, out.rows, n, err)) !=
            TSR_OK ||
        (st = cache_view(&k, op->in[1], op, "ATTENTION", "the K cache", err)) != TSR_OK ||
        (st = cache_view(&v, op->in[2], op, "ATTENTION", "the V cache", err)) != TSR_OK ||
        (st = tsr_cuda_view(&spans, op->in[3], "ATTENTION", "spans", TSR_U32, out.rows, 2, err)) !=
            TSR_OK)
        return st;
    for (int i = 0; i < 4; i++)
        if ((st = tsr_tensor_apart(op->out, op->in[i], 0, "ATTENTION", err)) != TSR_OK)
            return st;
    if (op->in[4] && ((st = tsr_cuda_view(&slopes, op->in[4], "ATTENTION", "slopes", TSR_F32, 1,
                                          op->heads, err)) != TSR_OK ||
                      (st = tsr_tensor_apart(op->out, op->in[4], 0, "ATTENTION", err)) != TSR_OK))
        return st;
    if (op->in[1]->dtype != op->in[2]->dtype)
        return tsr_fail(err, TSR_E_INVAL, "ATTENTION: K and V caches have dtypes %u and %u",
                        op->in[1]->dtype, op->in[2]->dtype);
    if ((st = tsr_cuda_indices(c, op->in[3], &span, &stride, err)) != TSR_OK ||
        (st = check_spans(span, stride, out.rows, cuda_min(k.rows, v.rows), op->window, &scores,
                          &blocks, err)) != TSR_OK)
        return st;
    each = work_each(scores, blocks, op->heads, op->head_dim);
    if (each == 0)
        return tsr_fail(err, TSR_E_NOMEM, "ATTENTION: the scores are larger than the memory");
    struct k_attention a = { .q = q.p,
                             .k = k.p,
                             .v = v.p,
                             .out = out.p,
                             .spans = spans.p,
                             .slopes = slopes.p,
                             .q_stride = q.stride,
                             .k_stride = k.stride,
                             .v_stride = v.stride,
                             .out_stride = out.stride,
                             .span_stride = spans.stride,
                             .dtype = op->in[1]->dtype,
                             .heads = op->heads,
                             .kv_heads = op->kv_heads,
                             .head_dim = op->head_dim,
                             .window = op->window,
                             .blocks = (uint32_t)blocks,
                             .scale = op->scale,
                             .softcap = op->softcap };
    uint64_t           part = tokens_at_once(out.rows, each);
    for (uint64_t t = 0; t < out.rows && st == TSR_OK; t += part)
        st = attend(c, stream, &a, t, cuda_min(part, out.rows - t), scores, err);
    return st;
}
