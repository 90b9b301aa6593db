/* fuse.c - a launch that joins the one before it: both are then one launch with the same outputs, byte by byte.
 *
 * The queue asks for the last launch that waits and the next one. What is between two launches, the end of the
 * first, is missing in the fused one. There, a thread may read what another one wrote only inside a row (a block
 * of k_norm_step) or a head (a warp of k_heads_step). So two tensors of which one is written must be the same
 * view, or have no byte in common. Quantized activations lie in the scratch, where no tensor is. */
#include "fuse.h"

/* ---- ADD, NORM, ACT and the quantization ------------------------------------------------------ */

/* A block has a row. While half a warp adds the squares all others wait, so that blocks are small where there are
 * many rows; a few rows leave most multiprocessors idle, and large blocks get the rest of the work done sooner. */
#define FEW_ROWS 32u
static void launch_norm(struct tsr_cuda_fused *f)
{
    uint32_t rows = f->args.norm.norm.rows;
    launch_as(f, KERNEL_k_norm_step, rows, 1, rows <= FEW_ROWS ? K_STEP_THREADS : 256,
              sizeof f->args.norm);
}

static int add_norm(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_rows *add = first, *norm = next;
    struct view sum = out_of(add), a = input_of(add), b = second_of(add), x = input_of(norm),
                y = out_of(norm), gain = floats(norm->b, 0, 1, norm->n),
                bias = floats(norm->c, 0, 1, norm->n);
    if (!is_same(&sum, &x) || !is_same_or_apart(&y, &sum) || !is_same_or_apart(&y, &a) ||
        !is_same_or_apart(&y, &b) || !is_apart(&sum, &gain) || !is_apart(&sum, &bias))
        return 0;
    f->args.norm = (struct k_norm_step){ .add = *add, .norm = *norm };
    launch_norm(f);
    return 1;
}

/* Whether q takes whole rows of r's output. */
static int takes(const struct k_quantize *q, const struct k_rows *r)
{
    struct view x = floats(q->x, q->ldx, q->tokens, q->cols), y = out_of(r);
    return is_same(&x, &y);
}

static int norm_quantize(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_rows     *norm = first;
    const struct k_quantize *q = next;
    if (!takes(q, norm))
        return 0;
    f->args.norm = (struct k_norm_step){ .norm = *norm, .q = *q };
    launch_norm(f);
    return 1;
}

static int step_quantize(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_norm_step *step = first;
    const struct k_quantize  *q = next;
    if (step->q.q || !takes(q, &step->norm))
        return 0;
    f->args.norm = *step;
    f->args.norm.q = *q;
    launch_norm(f);
    return 1;
}

/* A sum over ranks, then the same bias for its rows one by one: the engine has an ADD for each. */
static int window_bias(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    struct k_window      *sum = &f->args.window.sum;
    const struct k_rows  *add = next;
    const struct k_window was = *(const struct k_window *)first;
    const struct view     x = floats(was.x, was.ldx, was.rows, was.cols);
    const struct view     row = floats(was.x + 4 * was.ldx * was.biased, 0, 1, was.cols);
    const struct view     a = input_of(add), b = second_of(add), out = out_of(add);
    uint32_t              grid[2];
    if (was.biased == was.rows || !is_same(&a, &row) || !is_same(&out, &row) || !is_apart(&b, &x) ||
        (was.biased && add->b != was.bias))
        return 0;
    *sum = was;
    sum->bias = add->b;
    sum->biased++;
    k_window_cells(sum, grid);
    launch_as(f, KERNEL_k_window_sum, grid[0], grid[1], 256, sizeof *sum);
    return 1;
}

/* A sum over ranks, then NORM of it or of its sum with another row.  Blocks wait for other ranks, so all of them must
 * be resident at once: one on each multiprocessor. */
static int window_step(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_window    *sum = first;
    const struct k_norm_step *step = next;
    const struct k_rows      *norm = &step->norm, *add = step->add.out ? &step->add : norm;
    const struct view         x = floats(sum->x, sum->ldx, sum->rows, sum->cols);
    const struct view         a = input_of(add), y = out_of(norm), h = out_of(add);
    const struct view b = step->add.out ? second_of(add) : x, gain = floats(norm->b, 0, 1, norm->n),
                      bias = floats(norm->c, 0, 1, norm->n);
    if (sum->rows > sum->resident || !(is_same(&a, &x) || (step->add.out && is_same(&b, &x))) ||
        !is_same_or_apart(&a, &x) || !is_same_or_apart(&b, &x) || !is_same_or_apart(&h, &x) ||
        !is_same_or_apart(&y, &x) || !is_apart(&gain, &x) || !is_apart(&bias, &x))
        return 0;
    f->args.window = (struct k_summed_step){ .sum = *sum, .step = *step };
    launch_as(f, KERNEL_k_window_step, sum->rows, 1, K_STEP_THREADS, sizeof f->args.window);
    return 1;
}

static int window_norm(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_norm_step step = { .norm = *(const struct k_rows *)next };
    return window_step(first, &step, f);
}

static int window_quantize(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_summed_step *w = first;
    const struct k_quantize    *q = next;
    if (w->step.q.q || !takes(q, &w->step.norm))
        return 0;
    f->args.window = *w;
    f->args.window.step.q = *q;
    launch_as(f, KERNEL_k_window_step, w->sum.rows, 1, K_STEP_THREADS, sizeof f->args.window);
    return 1;
}

static int act_quantize(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_rows     *act = first;
    const struct k_quantize *q = next;
    if (!takes(q, act))
        return 0;
    f->args.act = (struct k_act_step){ .act = *act, .q = *q };
    launch_as(f, KERNEL_k_act_step, cuda_ceil((uint64_t)q->tokens * q->blocks, 4), 1, 128,
              sizeof f->args.act);
    return 1;
}

/* Columns after which blocks of activations begin again as at the row's start, and how many blocks those are. */
static uint32_t period_of(const struct k_quantize *q, uint32_t *blocks)
{
    const int whole = q->segment % K_BLOCK == 0;
    *blocks = whole ? 1 : q->per_segment;
    return whole ? K_BLOCK : q->segment;
}

/* The end of attention and the quantization of its rows.  One reads the scratch where the other writes. */
static int combine_quantize(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    const struct k_attention *t = first;
    const struct k_quantize  *q = next;
    uint32_t                  blocks, dim = t->head_dim;
    const uint32_t            period = period_of(q, &blocks), unit = dim > period ? dim : period;
    const uint64_t            rows = (uint64_t)t->tokens * t->heads;
    const struct view y = { t->out, t->out_stride, t->tokens, 4 * (uint64_t)t->heads * dim };
    const struct view x = floats(q->x, q->ldx, q->tokens, q->cols);
    const struct view codes = { q->q, 0, 1, q->tokens * q->ldq };
    const struct view scales = floats(q->sa, 0, 1, (uint64_t)q->tokens * q->blocks);
    const struct view sums = floats(t->partial, 0, 1, rows * t->blocks * dim);
    const struct view dens = floats(t->den, 0, 1, rows);
    if (t->first || !is_same(&x, &y) || unit % dim || unit % period || unit > K_COMBINE ||
        !is_apart(&codes, &sums) || !is_apart(&codes, &dens) || !is_apart(&scales, &sums) ||
        !is_apart(&scales, &dens))
        return 0;
    f->args.combine = (struct k_combine_step){
        .attention = *t, .q = *q, .unit = unit, .blocks = unit / period * blocks
    };
    launch_as(f, KERNEL_k_combine_step, cuda_ceil(q->cols, unit), t->tokens, 128,
              sizeof f->args.combine);
    return 1;
}

/* ---- ROPE and KV_STORE -------------------------------------------------------------------------- */

#define READS 5

/* written[0]: of ROPE, [1]: of KV_STORE. */
struct touched {
    struct view written[2], read[READS];
};

static struct view heads_of(const struct k_kv_store *s)
{
    return (struct view){ s->x, s->x_stride, s->tokens, 4 * (uint64_t)s->kv_heads * s->head_dim };
}

static struct touched touched_by(const struct k_head_part *p)
{
    const struct k_rows     *r = &p->rope;
    const struct k_kv_store *s = &p->store;
    const uint32_t           half = r->rotary_dim / 2;
    return (struct touched){
        .written = { out_of(r), { s->cache, 0, 1, s->cache_bytes } },
        .read = { input_of(r),
                  floats(r->b, r->b_stride, r->rows, half),
                  floats(r->c, r->c_stride, r->rows, half),
                  heads_of(s),
                  { s->rows, 0, 1, 4 * (uint64_t)s->tokens } },
    };
}

static int is_unread(const struct view *written, const struct touched *t)
{
    for (int i = 0; i < READS; i++)
        if (!is_apart(written, &t->read[i]))
            return 0;
    return 1;
}

/* Whether two parts may run in any order. */
static int are_apart(const struct k_head_part *p, const struct k_head_part *q)
{
    struct touched a = touched_by(p), b = touched_by(q);
    for (int i = 0; i < 2; i++) {
        if (!is_unread(&a.written[i], &b) || !is_unread(&b.written[i], &a))
            return 0;
        for (int k = 0; k < 2; k++)
            if (!is_apart(&a.written[i], &b.written[k]))
                return 0;
    }
    return 1;
}

/* The heads that r has rotated are those that s stores.  Its cache is apart from them, as KV_STORE wants it. */
static int stores_what(const struct k_rows *r, const struct k_kv_store *s)
{
    struct view y = out_of(r), x = heads_of(s), cache = { s->cache, 0, 1, s->cache_bytes },
                rows = { s->rows, 0, 1, 4 * (uint64_t)s->tokens };
    struct k_head_part alone = { .rope = *r };
    struct touched     t = touched_by(&alone);
    return r->out && r->head_dim == s->head_dim && is_same(&y, &x) && is_apart(&rows, &y) &&
           is_unread(&cache, &t);
}

/* `part` as one of h: after the ROPE of its heads, or apart from all. */
static int join(struct k_heads_step *h, const struct k_head_part *part)
{
    uint32_t to = h->parts;
    for (uint32_t i = 0; i < h->parts && part->store.cache; i++)
        if (!h->part[i].store.cache && stores_what(&h->part[i].rope, &part->store))
            to = i;
    for (uint32_t i = 0; i < h->parts; i++)
        if (i != to && !are_apart(&h->part[i], part))
            return 0;
    if (to == K_HEAD_PARTS)
        return 0;
    if (to < h->parts)
        h->part[to].store = part->store;
    else
        h->part[h->parts++] = *part;
    return 1;
}

static int heads_step(struct k_heads_step *h, const struct k_head_part *next,
                      struct tsr_cuda_fused *f)
{
    uint64_t most = 0;
    if (!join(h, next))
        return 0;
    for (uint32_t i = 0; i < h->parts; i++) {
        const struct k_head_part *p = &h->part[i];
        uint64_t                  n = p->rope.out ? (uint64_t)p->rope.rows * p->rope.heads
                                                  : (uint64_t)p->store.tokens * p->store.kv_heads;
        most = n > most ? n : most;
    }
    f->args.heads = *h;
    launch_as(f, KERNEL_k_heads_step, cuda_ceil(most, 4), h->parts, 128, sizeof f->args.heads);
    return 1;
}

static struct k_head_part rope_part(const void *args)
{
    return (struct k_head_part){ .rope = *(const struct k_rows *)args };
}

static struct k_head_part store_part(const void *args)
{
    return (struct k_head_part){ .store = *(const struct k_kv_store *)args };
}

static int rope_rope(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    struct k_heads_step h = { .part = { rope_part(first) }, .parts = 1 };
    struct k_head_part  p = rope_part(next);
    return heads_step(&h, &p, f);
}

static int rope_store(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    struct k_heads_step h = { .part = { rope_part(first) }, .parts = 1 };
    struct k_head_part  p = store_part(next);
    return heads_step(&h, &p, f);
}

static int store_store(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    struct k_heads_step h = { .part = { store_part(first) }, .parts = 1 };
    struct k_head_part  p = store_part(next);
    return heads_step(&h, &p, f);
}

static int step_rope(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    struct k_heads_step h = *(const struct k_heads_step *)first;
    struct k_head_part  p = rope_part(next);
    return heads_step(&h, &p, f);
}

static int step_store(const void *first, const void *next, struct tsr_cuda_fused *f)
{
    struct k_heads_step h = *(const struct k_heads_step *)first;
    struct k_head_part  p = store_part(next);
    return heads_step(&h, &p, f);
}

/* ---- all of them ---------------------------------------------------------------------------------- */

int tsr_cuda_fuse(const struct tsr_cuda_launch *first, const struct tsr_cuda_launch *next,
                  struct tsr_cuda_fused *f)
{
    static const struct {
        enum tsr_cuda_kernel first, next;
        int (*fuse)(const void *first, const void *next, struct tsr_cuda_fused *f);
    } pairs[] = {
        { KERNEL_k_add, KERNEL_k_norm, add_norm },
        { KERNEL_k_norm, KERNEL_k_quantize, norm_quantize },
        { KERNEL_k_norm_step, KERNEL_k_quantize, step_quantize },
        { KERNEL_k_window_sum, KERNEL_k_add, window_bias },
        { KERNEL_k_window_sum, KERNEL_k_norm, window_norm },
        { KERNEL_k_window_sum, KERNEL_k_norm_step, window_step },
        { KERNEL_k_window_step, KERNEL_k_quantize, window_quantize },
        { KERNEL_k_act, KERNEL_k_quantize, act_quantize },
        { KERNEL_k_combine, KERNEL_k_quantize, combine_quantize },
        { KERNEL_k_rope, KERNEL_k_rope, rope_rope },
        { KERNEL_k_rope, KERNEL_k_kv_store, rope_store },
        { KERNEL_k_kv_store, KERNEL_k_kv_store, store_store },
        { KERNEL_k_heads_step, KERNEL_k_rope, step_rope },
        { KERNEL_k_heads_step, KERNEL_k_kv_store, step_store },
    };
    if (first->kernel == next->kernel && tsr_cuda_takes_some(first->kernel))
        return tsr_cuda_linear_linear(first, next, f);
    if (next->kernel == KERNEL_k_act_step && tsr_cuda_takes_some(first->kernel))
        return tsr_cuda_linear_act(first, next, f);
    for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].first == first->kernel && pairs[i].next == next->kernel)
            return pairs[i].fuse(first->args, next->args, f);
    return 0;
}
