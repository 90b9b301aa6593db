/* attention.c - KV_STORE and ATTENTION: scratch, and the loop over tokens and KV heads. */
#include "backend.h"
#include "tessera/kv_cache.h"

struct store {
    struct tsr_cpu      *c;
    const struct tsr_op *op;
    struct tsr_view      cache, x;
    const uint32_t      *rows;
    uint64_t             rows_stride;
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

/* Token t of TSR_Q4_CHANNEL. */
static uint8_t *tail_of(const struct store *s, uint64_t t)
{
    return s->cache.p + s->rows[s->rows_stride + t] * s->cache.stride;
}

static tsr_status store_tails(void *arg, uint64_t begin, uint64_t end)
{
    const struct store *s = arg;
    uint64_t            row = s->op->kv_heads * tsr_kv_head_bytes(TSR_F16, s->op->head_dim);
    for (uint64_t t = begin; t < end; t++)
        s->c->k->kv_store(tail_of(s, t) + s->rows[t] % TSR_KV_BLOCK * row,
                          (const float *)(const void *)(s->x.p + t * s->x.stride), TSR_F16,
                          s->op->kv_heads, s->op->head_dim);
    return TSR_OK;
}

/* Blocks whose last key is among these tokens. */
static tsr_status store_blocks(void *arg, uint64_t begin, uint64_t end)
{
    const struct store *s = arg;
    for (uint64_t t = begin; t < end; t++)
        if (s->rows[t] % TSR_KV_BLOCK == TSR_KV_BLOCK - 1)
            s->c->k->kv_block(s->cache.p + (s->rows[t] - (TSR_KV_BLOCK - 1)) * s->cache.stride,
                              tail_of(s, t), s->op->kv_heads, s->op->head_dim);
    return TSR_OK;
}

static tsr_status store_keys(struct store *s, bool rising)
{
    struct tsr_cpu *c = s->c;
    if (!rising) {
        (void)store_tails(s, 0, s->x.rows);
        return store_blocks(s, 0, s->x.rows);
    }
    tsr_status st = tsr_cpu_for(c, s->x.rows, s->x.cols * 8, store_tails, s);
    return st != TSR_OK ? st : tsr_cpu_for(c, s->x.rows, s->x.cols * 8, store_blocks, s);
}

tsr_status tsr_cpu_kv_store_op(struct tsr_cpu *c, const struct tsr_op *op,
                               const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct store s = { .c = c,
                       .op = op,
                       .cache = tsr_cpu_at(&parts->out),
                       .x = tsr_cpu_at(&parts->in[0]),
                       .rows = parts->index,
                       .rows_stride = parts->index_stride };
    (void)err;
    if (op->out->dtype == TSR_Q4_CHANNEL)
        return store_keys(&s, parts->rising);
    if (!parts->rising) /* rows may repeat: the last token wins, so keep the order */
        return store_rows(&s, 0, s.x.rows);
    return tsr_cpu_for(c, s.x.rows, s.x.cols * 8, store_rows, &s);
}

struct attend {
    const struct tsr_cpu    *c;
    struct tsr_cpu_attention a;
    float                   *scores;
    uint64_t                 tokens, per_tile; /* tokens of a task; 1: no tiles */
    uint64_t                 per_chunk, scores_each;
    uint64_t                 together; /* KV heads of a token alone that a thread reads at once */
};

static tsr_status attend_chunks(void *arg, uint64_t begin, uint64_t end)
{
    const struct attend *s = arg;
    float               *scores = s->scores + begin / s->per_chunk * s->scores_each;
    for (uint64_t i = begin, n; i < end; i += n) {
        uint64_t t = i / s->a.kv_heads * s->per_tile, left = s->tokens - t;
        uint32_t head = (uint32_t)(i % s->a.kv_heads);
        n = s->per_tile > 1 ? 1 : s->a.kv_heads - head;
        n = n < s->together ? n : s->together;
        n = n < end - i ? n : end - i;
        if (s->per_tile == 1)
            s->c->k->attention(&s->a, t, head, n, scores);
        else
            s->c->k->attention_tile(&s->a, t, left < s->per_tile ? left : s->per_tile, head,
                                    scores);
    }
    return TSR_OK;
}

/* The most positions that one token attends to, those of all, how many tokens follow their predecessor in one
 * sequence, and the last position of all. */
static void count_positions(const struct tsr_op_parts *p, uint32_t window, uint64_t *most,
                            uint64_t *sum, uint64_t *follow, uint64_t *last_of_all)
{
    const uint32_t *span = p->index, *last = NULL;
    *most = *sum = *follow = *last_of_all = 0;
    for (uint64_t t = 0; t < p->out.rows; t++, last = span, span += p->index_stride) {
        uint64_t n = (uint64_t)span[1] + 1;
        *last_of_all = span[1] > *last_of_all ? span[1] : *last_of_all;
        *follow += last && span[0] == last[0] && span[1] == last[1] + 1;
        n = window && n > window ? window : n;
        *most = n > *most ? n : *most;
        *sum += n;
    }
}

/* Chunks of a loop over tokens and heads; each has separate scores. */
#define ATTEND_CHUNKS 64u
/* Scores of a tile, so that they stay in the L2 cache with the keys. */
#define TILE_SCORES 131072u

/* KV heads that a thread reads at once.  Those of a position lie one after the other, so that memory is read in longer
 * pieces. */
#define TOGETHER 8u

/* Scores of one token and KV head, and its sums. */
static uint64_t scores_of(uint64_t share, uint64_t positions, uint64_t head_dim)
{
    return share * CPU_ATTENTION_SCRATCH(positions, head_dim);
}

/* Tokens of a tile; 1: too few queries would share what is widened. */
static uint64_t tile_of(uint64_t share, uint64_t positions)
{
    uint64_t queries = CPU_TILE_QUERIES;
    while (queries > 1 && positions > TILE_SCORES / queries)
        queries /= 2;
    uint64_t tokens = queries / share;
    /* a token alone reads a key once for four heads */
    return tokens < 2 || queries < (share < 4 ? 4 : 16) ? 1 : tokens;
}

/* A tile has sums in registers, but for tokens that it takes one by one. */
static uint64_t tile_scores(uint64_t share, uint64_t positions, uint64_t head_dim)
{
    uint64_t tile = tile_of(share, positions) * share * ((positions + 47) / 16 * 16),
             alone = scores_of(share, positions, head_dim);
    return tile > alone ? tile : alone;
}

/* Scores of a task: never fewer than for fewer positions, whose tiles may be larger. */
static uint64_t task_scores(uint64_t share, uint64_t positions, uint64_t head_dim)
{
    const uint64_t first = TILE_SCORES / CPU_TILE_QUERIES; /* positions with the largest tiles */
    uint64_t       n = tile_scores(share, positions, head_dim),
             less = tile_scores(share, first, head_dim);
    return positions > first && less > n ? less : n;
}

/* Multiply-adds of a chunk of tiles, at least: short prompts of small models need few scores then. */
#define TILE_WORK (UINT64_C(1) << 20)

/* Tokens alone: KV heads that have room for scores and sums at once.  As much memory as the scores of ATTEND_CHUNKS
 * heads, so that short caches have fewer chunks, and enough for one thread. */
static uint64_t heads_at_once(uint64_t tasks, uint64_t positions, uint64_t head_dim)
{
    uint64_t scores = (positions + 47) / 16 * 16,
             n = cpu_min(tasks, ATTEND_CHUNKS) * scores /
                 CPU_ATTENTION_SCRATCH(positions, head_dim),
             least = cpu_min(tasks, TOGETHER);
    return n > least ? n : least;
}

/* Tasks in a chunk of them: whole groups of `together`, which is at most `at_once`. */
static uint64_t chunk_alone(uint64_t tasks, uint64_t at_once, uint64_t together)
{
    return cpu_ceil(cpu_ceil(tasks, at_once / together), together) * together;
}

/* Tasks in a chunk of tiles.  They depend on the longest token alone, so that a plan can count them. */
static uint64_t chunk_of(uint64_t tasks, uint64_t tile, uint64_t positions, uint64_t queries_dim)
{
    uint64_t each = cpu_ceil(tasks, ATTEND_CHUNKS), work;
    if (__builtin_mul_overflow(2 * tile * positions, queries_dim, &work))
        return each;
    uint64_t least = cpu_ceil(TILE_WORK, work ? work : 1);
    least = least < tasks ? least : tasks;
    return each > least ? each : least;
}

/* It does not depend on whose tokens they are: enough for tiles, and for tokens alone. */
uint64_t tsr_cpu_attention_scratch(uint64_t tokens, uint64_t positions, uint32_t heads,
                                   uint32_t kv_heads, uint32_t head_dim)
{
    uint64_t tasks, tiles, alone, share = heads / kv_heads, tile;
    if (__builtin_mul_overflow(tokens, kv_heads, &tasks) || tasks == 0)
        return 0;
    if (__builtin_mul_overflow(scores_of(share, positions, head_dim),
                               4 * heads_at_once(tasks, positions, head_dim), &alone))
        return 0;
    tile = tile_of(share, positions);
    if (tokens == 1 || tile == 1)
        return alone;
    tasks = cpu_ceil(tokens, tile) * kv_heads;
    uint64_t chunks = cpu_ceil(tasks, chunk_of(tasks, tile, positions, share * head_dim));
    if (__builtin_mul_overflow(task_scores(share, positions, head_dim), 4 * chunks, &tiles))
        return 0;
    return tiles > alone ? tiles : alone;
}

/* As many as leave work for all threads.  Half of that for keys in blocks, whose heads are long pieces of memory: two chunks
 * of a thread were faster there. */
static uint64_t together(const struct tsr_host *h, uint64_t tasks, uint64_t at_once,
                         uint64_t kv_heads, bool blocks)
{
    uint64_t n = cpu_min(tasks, blocks ? at_once / 2 : at_once) / tsr_cpu_threads(h);
    n = cpu_min(cpu_min(n, kv_heads), TOGETHER);
    return n ? n : 1;
}

tsr_status tsr_cpu_attention_op(struct tsr_cpu *c, const struct tsr_op *op,
                                const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct tsr_view out = tsr_cpu_at(&parts->out), q = tsr_cpu_at(&parts->in[0]),
                    k = tsr_cpu_at(&parts->in[1]), v = tsr_cpu_at(&parts->in[2]),
                    spans = tsr_cpu_at(&parts->in[3]), slopes = tsr_cpu_at(&parts->in[4]);
    uint64_t   most, sum, follow, last;
    tsr_status st;
    count_positions(parts, op->window, &most, &sum, &follow, &last);
    struct attend s = { .c = c, .tokens = out.rows, .per_tile = 1 };
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
    uint64_t share = op->heads / op->kv_heads, bytes;
    if (follow > out.rows / 2 && op->head_dim <= CPU_TILE_DIM && s.a.dtype != TSR_Q4_CHANNEL)
        s.per_tile = tile_of(share, most);
    if (s.per_tile > 1 &&
        last >= most) { /* a window: each token of a tile sees one position more */
        uint64_t more = most + s.per_tile + 15;
        most = more < last + 1 ? more : last + 1;
        s.per_tile = tile_of(share, most);
    }
    uint64_t       tasks = cpu_ceil(out.rows, s.per_tile) * op->kv_heads;
    uint64_t       work = sum / out.rows * s.per_tile * op->head_dim * share * 2 + 64;
    const uint64_t at_once = heads_at_once(tasks, most, op->head_dim);
    s.together = together(c->host, tasks, at_once, op->kv_heads, s.a.dtype == TSR_Q4_CHANNEL);
    s.per_chunk = s.per_tile == 1 ? chunk_alone(tasks, at_once, s.together)
                                  : chunk_of(tasks, s.per_tile, most, share * op->head_dim);
    if (tasks * work < 65536) /* not worth a loop over threads */
        s.per_chunk = tasks;
    s.scores_each = s.per_tile == 1 ? s.together * scores_of(share, most, op->head_dim)
                                    : task_scores(share, most, op->head_dim);
    uint8_t *p;
    bytes = s.per_chunk == tasks
                ? 4 * s.scores_each
                : tsr_cpu_attention_scratch(out.rows, most, op->heads, op->kv_heads, op->head_dim);
    if (bytes == 0)
        return tsr_fail(err, TSR_E_NOMEM, "ATTENTION: the scores are larger than the memory");
    if ((st = tsr_cpu_scratch(c, bytes, &p, err)) != TSR_OK)
        return st;
    s.scores = (float *)(void *)p;
    if (s.per_chunk == tasks)
        return attend_chunks(&s, 0, tasks);
    return c->host->parallel_for(c->host->ctx, tasks, s.per_chunk, attend_chunks, &s);
}
