/* attention.c - KV_STORE and ATTENTION: scratch, and parts that fit into it. */
#include "backend.h"

#define VALUE_BLOCK 256u /* positions of a block of k_values; k_scores takes half as many */
#define VALUE_COLS  128u /* columns of one */
#define QUERIES     16u  /* of a block of threads: tokens times heads */
#define WORK_MAX    (UINT64_C(256) << 20)

/* The kernels know F32, F16 and I8. */
static tsr_status check_type(uint32_t dtype, struct tsr_err *err)
{
    if (dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_I8)
        return TSR_OK;
    return tsr_fail(err, TSR_E_UNSUPPORTED,
                    "a KV cache of dtype %u; the kernels have F32, F16 and I8", dtype);
}

tsr_status tsr_cuda_kv_store_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                                const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct tsr_view cache = tsr_cuda_at(&parts->out), x = tsr_cuda_at(&parts->in[0]),
                    rows = tsr_cuda_at(&parts->in[1]);
    tsr_status ok = check_type(op->out->dtype, err);
    if (ok != TSR_OK)
        return ok;
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

/* The most blocks of 256 positions of a token.  With a window as many as it can touch, so that a growing sequence
 * keeps its launches for 256 tokens at least. */
static uint64_t count_blocks(const struct tsr_op_parts *p, uint32_t window)
{
    const uint32_t *span = p->index;
    uint64_t        blocks = 1, most = cuda_ceil(window, VALUE_BLOCK) + 1;
    for (uint64_t t = 0; t < p->out.rows; t++, span += p->index_stride)
        blocks = span[1] / VALUE_BLOCK + 1 > blocks ? span[1] / VALUE_BLOCK + 1 : blocks;
    return window && most < blocks ? most : blocks;
}

/* Bytes that a token takes: scores and the largest of them, denominators, sums of blocks; 0 on overflow. */
static uint64_t work_each(uint64_t blocks, uint32_t heads, uint32_t head_dim)
{
    uint64_t n;
    if (__builtin_mul_overflow(blocks, VALUE_BLOCK + 2 + (uint64_t)head_dim, &n) ||
        __builtin_add_overflow(n, 1, &n) || __builtin_mul_overflow(n, 4 * (uint64_t)heads, &n))
        return 0;
    return n;
}

/* The parts begin on 256 bytes. */
#define WORK_GAPS 1024u

/* Tokens that go at once. */
static uint64_t tokens_at_once(uint64_t tokens, uint64_t each)
{
    uint64_t n = WORK_MAX / each;
    n = n < 1 ? 1 : n > 65535 ? 65535 : n;
    return cuda_min(n, tokens);
}

/* Parts of tokens may have shorter sequences than the longest, and then more tokens: their bytes stay below the same
 * limit, not below those of the longest. */
uint64_t tsr_cuda_attention_work(uint64_t tokens, uint64_t positions, uint32_t heads,
                                 uint32_t head_dim)
{
    uint64_t each = work_each(cuda_ceil(positions, VALUE_BLOCK), heads, head_dim), all;
    if (each == 0 || tokens == 0)
        return 0;
    if (__builtin_mul_overflow(each, tokens, &all))
        all = UINT64_MAX;
    return cuda_min(all, each > WORK_MAX ? each : WORK_MAX) + WORK_GAPS;
}

/* Tokens that one block of threads takes: those of a prompt read its keys and values together.  Bytes of results do
 * not depend on it. */
static uint32_t tile_of(const struct tsr_op_parts *p, uint32_t share)
{
    const uint32_t tile = QUERIES / share;
    return tile > 1 && tsr_cuda_is_prompt(p) ? tile : 1;
}

/* How heads of rows are copied: by 16 bytes, by 4, or by elements where heads lie on other borders. */
static uint32_t copy_of(const struct tsr_view *rows, uint32_t dtype, uint32_t head_dim)
{
    uint64_t head = dtype == TSR_F32   ? 4 * (uint64_t)head_dim
                    : dtype == TSR_F16 ? 2 * (uint64_t)head_dim
                                       : head_dim + UINT64_C(4);
    uint64_t all = rows->p | rows->stride | head;
    return all % 16 == 0 && dtype != TSR_I8 ? 16 : all % 4 == 0 ? 4 : 1;
}

/* Tokens [t0, t0 + n) of the operation. */
static tsr_status attend(struct tsr_cuda *c, void *stream, struct k_attention *a, uint64_t t0,
                         uint64_t n, struct tsr_err *err)
{
    uint64_t heads = a->heads, work, y = (uint64_t)a->kv_heads * a->chunks;
    uint64_t tiles = cuda_ceil(n, a->tile), queries = (uint64_t)a->tile * a->share;
    uint64_t slices = cuda_ceil(a->head_dim, VALUE_COLS);
    uint64_t x = cuda_ceil(queries, 2) + a->blocks * slices;
    /* few threads for the device, or rows that are cheap to widen: an H100 takes 121 us instead of 130 for 16 sequences of
     * 4096 positions in F16, but 136 instead of 130 in int8 */
    int wide = a->dtype == TSR_F16 || x * y * tiles < 8 * (uint64_t)c->api->units(c->device);
    enum tsr_cuda_kernel values = queries > 8   ? KERNEL_k_values16
                                  : queries > 4 ? KERNEL_k_values8
                                  : wide        ? KERNEL_k_values4_wide
                                                : KERNEL_k_values4;
    tsr_status           st =
        tsr_cuda_work(c, n * work_each(a->blocks, a->heads, a->head_dim) + WORK_GAPS, &work, err);
    if (st != TSR_OK)
        return st;
    a->first = (uint32_t)t0;
    a->tokens = (uint32_t)n;
    a->scores = work;
    a->tops = (a->scores + n * heads * a->blocks * VALUE_BLOCK * 4 + 255) / 256 * 256;
    a->den = (a->tops + n * heads * a->blocks * 2 * 4 + 255) / 256 * 256;
    a->partial = (a->den + n * heads * 4 + 255) / 256 * 256;
    a->first_blocks = (uint32_t)cuda_ceil(queries, 2);
    st = tsr_cuda_launch(c, stream, KERNEL_k_scores, 2 * (uint64_t)a->blocks, y, tiles, 128, a,
                         sizeof *a, err);
    if (st == TSR_OK)
        st = tsr_cuda_launch(c, stream, values, x, y, tiles, values == KERNEL_k_values4 ? 64 : 128,
                             a, sizeof *a, err);
    return st == TSR_OK
               ? tsr_cuda_launch(c, stream, KERNEL_k_combine, heads, n, 1, 128, a, sizeof *a, err)
               : st;
}

tsr_status tsr_cuda_attention_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                                 const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct tsr_view out = tsr_cuda_at(&parts->out), q = tsr_cuda_at(&parts->in[0]),
                    k = tsr_cuda_at(&parts->in[1]), v = tsr_cuda_at(&parts->in[2]),
                    spans = tsr_cuda_at(&parts->in[3]), slopes = tsr_cuda_at(&parts->in[4]);
    uint32_t   group = op->heads / op->kv_heads, chunks = (uint32_t)cuda_ceil(group, QUERIES);
    uint32_t   share = (uint32_t)cuda_ceil(group, chunks);
    uint64_t   blocks = count_blocks(parts, op->window), each;
    tsr_status st = check_type(op->in[1]->dtype, err);
    if (st != TSR_OK)
        return st;
    each = work_each(blocks, op->heads, op->head_dim);
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
                             .tile = tile_of(parts, share),
                             .chunks = chunks,
                             .share = share,
                             .q_copy = copy_of(&q, TSR_F32, op->head_dim),
                             .k_copy = copy_of(&k, op->in[1]->dtype, op->head_dim),
                             .v_copy = copy_of(&v, op->in[1]->dtype, op->head_dim),
                             .scale = op->scale,
                             .softcap = op->softcap };
    if (tsr_cuda_is_flash(c, &a, parts))
        return tsr_cuda_flash(c, stream, &a, out.rows, err);
    uint64_t part = tokens_at_once(out.rows, each);
    if (part < out.rows && part > a.tile)
        part -= part % a.tile;
    for (uint64_t t = 0; t < out.rows && st == TSR_OK; t += part)
        st = attend(c, stream, &a, t, cuda_min(part, out.rows - t), err);
    return st;
}
