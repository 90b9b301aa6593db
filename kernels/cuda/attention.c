/* attention.c - KV_STORE and ATTENTION: scratch, and parts that fit into it. */
#include "backend.h"

#define SCORE_KEYS  64u  /* positions of a block of k_scores */
#define VALUE_BLOCK 256u /* positions of a block of k_values */
#define WORK_MAX    (UINT64_C(256) << 20)

tsr_status tsr_cuda_kv_store_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                                const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct tsr_view cache = tsr_cuda_at(&parts->out), x = tsr_cuda_at(&parts->in[0]),
                    rows = tsr_cuda_at(&parts->in[1]);
    uint64_t part = parts->rising ? x.rows : 1; /* the last token of a row wins, so one by one */
    for (uint64_t t = 0; t < x.rows; t += part) {
        struct k_kv_store a = { .cache = cache.p,
                                .x = x.p + t * x.stride,
                                .rows = rows.p + 4 * t,
                                .cache_stride = cache.stride,
                                .x_stride = x.stride,
                                .cache_bytes = cache.rows * cache.stride,
                                .tokens = (uint32_t)part,
                                .kv_heads = op->kv_heads,
                                .head_dim = op->head_dim,
                                .dtype = op->out->dtype };
        tsr_status        st =
            tsr_cuda_launch(c, stream, KERNEL_k_kv_store, cuda_ceil(part * op->kv_heads, 4), 1, 1,
                            128, &a, sizeof a, err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

/* The most scores, counted from a border of 16, and blocks of values of one token. */
static void count_scores(const struct tsr_op_parts *p, uint32_t window, uint64_t *scores,
                         uint64_t *blocks)
{
    const uint32_t *span = p->index;
    *scores = *blocks = 0;
    for (uint64_t t = 0; t < p->out.rows; t++, span += p->index_stride) {
        uint64_t at = span[1], lo = window && at + 1 > window ? at + 1 - window : 0;
        uint64_t n = at + 1 - lo / 16 * 16, b = at / VALUE_BLOCK - lo / VALUE_BLOCK + 1;
        *scores = n > *scores ? n : *scores;
        *blocks = b > *blocks ? b : *blocks;
    }
    /* whole blocks, so that a growing sequence keeps its launches for 256 tokens: blocks of threads past a
     * span have no work */
    *scores = cuda_ceil(*scores, VALUE_BLOCK) * VALUE_BLOCK;
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
                                 const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct tsr_view out = tsr_cuda_at(&parts->out), q = tsr_cuda_at(&parts->in[0]),
                    k = tsr_cuda_at(&parts->in[1]), v = tsr_cuda_at(&parts->in[2]),
                    spans = tsr_cuda_at(&parts->in[3]), slopes = tsr_cuda_at(&parts->in[4]);
    uint64_t   scores, blocks, each;
    tsr_status st = TSR_OK;
    count_scores(parts, op->window, &scores, &blocks);
    each = work_each(scores, blocks, op->heads, op->head_dim);
    if (each == 0)
        return tsr_fail(err, TSR_E_NOMEM, "ATTENTION: the scores are larger than the memory");
    struct k_attention a = { .q = q.p,
                             .k = k.p,
                             .v = v.p,
                             .out = out.p,
                             .spans = spans.p,
                             .slopes = slopes.p,
                             .sinks = slopes.rows > 1 ? slopes.p + slopes.stride : 0,
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
