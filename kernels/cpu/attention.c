/* attention.c - KV_STORE and ATTENTION: scratch, and the loop over tokens and KV heads. */
#include "backend.h"

struct store {
    const struct tsr_cpu *c;
    const struct tsr_op  *op;
    struct tsr_view       cache, x;
    const uint32_t       *rows;
};

static tsr_status store_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct store *s = arg;
    for (uint64_t t = begin; t < end; t++)
        s->c->k->kv_store(s->cache.p + s->rows[t] * s->cache.stride,
                          (const float *)(const void *)(s->x.p + t * s->x.stride),
                          s->op->out->dtype, s->op->kv_heads, s->op->head_dim);
    return TSR_OK;
}

tsr_status tsr_cpu_kv_store_op(struct tsr_cpu *c, const struct tsr_op *op,
                               const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct store s = { .c = c,
                       .op = op,
                       .cache = tsr_cpu_at(&parts->out),
                       .x = tsr_cpu_at(&parts->in[0]),
                       .rows = parts->index };
    (void)err;
    if (!parts->rising) /* rows may repeat: the last token wins, so keep the order */
        return store_rows(&s, 0, s.x.rows);
    return tsr_cpu_for(c, s.x.rows, s.x.cols * 8, store_rows, &s);
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

/* The most positions that one token attends to, and those of all. */
static void count_positions(const struct tsr_op_parts *p, uint32_t window, uint64_t *most,
                            uint64_t *sum)
{
    const uint32_t *span = p->index;
    *most = *sum = 0;
    for (uint64_t t = 0; t < p->out.rows; t++, span += p->index_stride) {
        uint64_t n = (uint64_t)span[1] + 1;
        n = window && n > window ? window : n;
        *most = n > *most ? n : *most;
        *sum += n;
    }
}

/* Chunks of a loop over tokens and heads; each has separate scores. */
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

tsr_status tsr_cpu_attention_op(struct tsr_cpu *c, const struct tsr_op *op,
                                const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct tsr_view out = tsr_cpu_at(&parts->out), q = tsr_cpu_at(&parts->in[0]),
                    k = tsr_cpu_at(&parts->in[1]), v = tsr_cpu_at(&parts->in[2]),
                    spans = tsr_cpu_at(&parts->in[3]), slopes = tsr_cpu_at(&parts->in[4]);
    uint64_t   most, sum;
    tsr_status st;
    count_positions(parts, op->window, &most, &sum);
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
    if (slopes.rows > 1)
        s.a.sinks = (const float *)(const void *)(slopes.p + slopes.stride);
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
