/* linear.c - LINEAR and EMBED: preparation of the activations, and the choice of a kernel. */
#include "backend.h"

/* Offsets of the parts of prepared activations in scratch. */
struct places {
    uint64_t x, q, sa, found, total, ldx, ldq, blocks, per_segment;
};

static int take(uint64_t *total, uint64_t a, uint64_t b, uint64_t *place)
{
    uint64_t n;
    *place = *total;
    return !__builtin_mul_overflow(a, b, &n) && n < (UINT64_C(1) << 60) &&
           !__builtin_add_overflow(*total, (n + 255) / 256 * 256, total);
}

/* The actual act: a8 if the format has it, f32 where activations are not rounded. */
static uint32_t act_of(const struct tsr_cuda_weight *w, uint32_t act)
{
    if (act == TSR_ACT_A8 && !w->a8)
        return TSR_ACT_F32;
    return act;
}

static int find_places(const struct tsr_cuda_weight *w, uint32_t act, uint64_t tokens,
                       struct places *p)
{
    const struct k_weight *k = &w->k;
    int                    a8 = act == TSR_ACT_A8;
    *p = (struct places){ 0 };
    p->ldx = cuda_ceil(k->cols, 4) * 4;
    p->ldq = cuda_ceil(k->cols, K_STEP) * K_STEP;
    p->per_segment = cuda_ceil(k->segment, K_BLOCK);
    p->blocks = (k->segments - 1) * p->per_segment +
                cuda_ceil(k->cols - (uint64_t)(k->segments - 1) * k->segment, K_BLOCK);
    if (w->llm)
        p->blocks = 1;
    return take(&p->total, act == TSR_ACT_A16 ? tokens : 0, p->ldx * 4, &p->x) &&
           take(&p->total, a8 ? tokens : 0, p->ldq, &p->q) &&
           take(&p->total, a8 ? tokens : 0, p->blocks * 4, &p->sa) &&
           take(&p->total, a8 ? tokens : 0, 4, &p->found);
}

uint64_t tsr_cuda_linear_work(const struct tsr_cuda_weight *w, uint32_t act, uint64_t tokens)
{
    struct places p;
    uint64_t      few;
    if (!find_places(w, act_of(w, act), cuda_min(tokens, K_END_TOKENS), &p))
        return 0;
    few =
        2 * p.total; /* of two LINEARs with an ACT between, which are under way at the same time */
    if (!find_places(w, act_of(w, act), tokens, &p))
        return 0;
    return p.total > few ? p.total : few;
}

static struct k_quantize quantized_at(uint64_t work, const struct tsr_cuda_weight *w,
                                      const struct places *p, struct k_linear *a)
{
    a->q = work + p->q;
    a->ldq = p->ldq;
    a->sa = work + p->sa;
    a->found = work + p->found;
    a->blocks = (uint32_t)p->blocks;
    return (struct k_quantize){ .x = a->x,
                                .ldx = a->ldx,
                                .q = a->q,
                                .ldq = a->ldq,
                                .sa = a->sa,
                                .found = a->found,
                                .tokens = a->tokens,
                                .cols = (uint32_t)w->k.cols,
                                .segment = w->k.segment,
                                .blocks = a->blocks,
                                .per_segment = (uint32_t)p->per_segment,
                                .threshold = w->k.threshold };
}

/* x as int8 in the scratch, if it is not there from the LINEAR before (kept.c). */
static tsr_status quantize(struct tsr_cuda *c, void *stream, const struct tsr_cuda_weight *w,
                           struct k_linear *a, const struct places *p, struct tsr_err *err)
{
    enum tsr_cuda_kernel kernel = w->llm ? KERNEL_k_quantize_llm : KERNEL_k_quantize;
    struct k_quantize    q = quantized_at(c->kept.q.q - p->q, w, p, a); /* where it may be kept */
    uint64_t             work, grid = w->llm ? a->tokens : (uint64_t)a->tokens * a->blocks;
    if (!stream && tsr_cuda_kept_has(c, kernel, &q))
        return TSR_OK;
    const uint64_t before = stream ? 0 : tsr_cuda_read_before_act(c, a->x);
    tsr_status     st = tsr_cuda_work(c, before + p->total, &work, err);
    if (st != TSR_OK)
        return st;
    q = quantized_at(work + before, w, p, a);
    st = w->llm
             ? tsr_cuda_launch(c, stream, kernel, grid, 1, 1, 256, &q, sizeof q, err)
             : tsr_cuda_launch(c, stream, kernel, cuda_ceil(grid, 4), 1, 1, 128, &q, sizeof q, err);
    if (st == TSR_OK && !stream)
        tsr_cuda_kept_keep(c, kernel, &q);
    return st;
}

static tsr_status round_rows(struct tsr_cuda *c, void *stream, struct k_linear *a, uint64_t cols,
                             uint64_t to, uint64_t ldx, struct tsr_err *err)
{
    struct k_rows r = {
        .out = to, .a = a->x, .out_stride = ldx, .a_stride = a->ldx, .n = cols, .rows = a->tokens
    };
    a->x = to;
    a->ldx = ldx;
    return tsr_cuda_launch(c, stream, KERNEL_k_round,
                           cuda_min(cuda_ceil(a->tokens * cols, 256), 65535), 1, 1, 256, &r,
                           sizeof r, err);
}

/* A kernel, and what a block of it takes. */
struct chosen {
    enum tsr_cuda_kernel kernel;
    uint64_t             rows, tokens;
    uint32_t             threads;
};

/* int8 on matrix units: integers with scales of F16, which go through the ring with their steps; tables; others. */
enum tile_set { SET_INT, SET_TABLE, SET_OTHER };

static enum tile_set set_of(const struct k_weight *w)
{
    if (w->kind != K_INT)
        return SET_TABLE;
    return !w->affine && w->regular == 1 && w->scale_kind == K_SCALE_F16 ? SET_INT : SET_OTHER;
}

/* Blocks of four panels and 128 tokens: for integers of 4 and 8 bits in groups of whole blocks of activations,
 * where rounds of blocks over the device take less time than those of panels by 32 tokens. A round of blocks takes
 * six times as long, measured on an H100 (docs/lab/gpu). */
#define BLOCK_ROWS   128u
#define BLOCK_TOKENS 128u
#define BLOCK_ROUND  6u
static int fills_blocks(const struct tsr_cuda *c, const struct k_weight *w, uint64_t tokens)
{
    const uint64_t units = c->api->units(c->device);
    const uint64_t panels = cuda_ceil(w->rows, K_PANEL) * cuda_ceil(tokens, 32);
    const uint64_t blocks = cuda_ceil(w->rows, BLOCK_ROWS) * cuda_ceil(tokens, BLOCK_TOKENS);
    return set_of(w) == SET_INT && (w->bits == 4 || w->bits == 8) && w->group % K_BLOCK == 0 &&
           tokens > 32 && c->api->shared(c->device) >= K_BLOCK_SHARED &&
           cuda_ceil(blocks, units) * BLOCK_ROUND <= cuda_ceil(panels, 2 * units);
}

/* Tokens of a block as 8 << size: no more than are there. Where panels are few, blocks of fewer tokens are more
 * blocks, until they fill half of the multiprocessors with 8 tokens each or all of them with 16. Measured on an H100
 * at 1024 x 4096 with 16, 32 and 64 tokens: 0.90, 0.76 and 0.82 of the time, 8 bits 0.91, 0.71 and 0.93; tables of
 * 4 bits on an H200 0.93, 0.79 and 0.83 (docs/lab/gpu). */
static int tile_size(const struct tsr_cuda *c, const struct k_weight *w, uint64_t tokens)
{
    const uint64_t units = c->api->units(c->device), panels = cuda_ceil(w->rows, K_PANEL);
    const int      few = set_of(w) != SET_OTHER;
    if (tokens <= 8 || c->api->shared(c->device) < K_TILE_SHARED ||
        (few && panels * cuda_ceil(tokens, 8) * 2 <= units))
        return 0;
    _Static_assert(K_TILE_MINIMUMS == 8 << 1, "what affine weights take");
    return tokens <= 16 || w->affine || (few && panels * cuda_ceil(tokens, 16) <= units) ? 1 : 2;
}

/* What k_tile_zero.h takes: zero points, segments of whole blocks of activations, and groups of whole or half blocks. */
static int has_zero_runs(const struct tsr_cuda_weight *weight)
{
    const struct k_weight *w = &weight->k;
    return weight->zeros && !weight->far && set_of(w) == SET_INT && w->bits == 4 &&
           w->segment % K_BLOCK == 0 && w->cols % K_BLOCK == 0 &&
           (w->group % K_BLOCK == 0 || w->group == K_BLOCK / 2);
}

/* What k_tile_fine.h takes: symmetric integers of 4 bits in groups of a quarter block of activations. */
static int has_fine_runs(const struct tsr_cuda_weight *weight)
{
    const struct k_weight *w = &weight->k;
    return !weight->zeros && set_of(w) == SET_INT && w->bits == 4 && w->group == K_BLOCK / 4 &&
           w->segment <= K_CUT_BLOCKS * K_BLOCK;
}

/* What k_tile_cut.h takes: those of which k_tile_run.h does not take all segments, in groups of whole or half blocks, or with
 * one scale a row. */
static int has_cut_runs(const struct tsr_cuda_weight *weight)
{
    const struct k_weight *w = &weight->k;
    return !weight->zeros && set_of(w) == SET_INT && w->bits == 4 &&
           (w->segment % K_BLOCK || w->cols % K_BLOCK) && w->segment <= K_CUT_BLOCKS * K_BLOCK &&
           (w->groups == 1 || w->group == K_BLOCK || w->group == K_BLOCK / 2);
}

static struct chosen choose_tile(const struct tsr_cuda *c, const struct tsr_cuda_weight *weight,
                                 uint64_t tokens)
{
    const struct k_weight            *w = &weight->k;
    static const enum tsr_cuda_kernel by[3][3] = {
        { KERNEL_k_tile8_int, KERNEL_k_tile16_int, KERNEL_k_tile32_int },
        { KERNEL_k_tile8_table, KERNEL_k_tile16_table, KERNEL_k_tile32_table },
        { KERNEL_k_tile8_other, KERNEL_k_tile16_other, KERNEL_k_tile32_other },
    };
    const enum tile_set set = set_of(w);
    const int           size = tile_size(c, w, tokens);
    if (fills_blocks(c, w, tokens))
        return (struct chosen){ KERNEL_k_block_int, BLOCK_ROWS, BLOCK_TOKENS, 512 };
    if (size == 0 && has_zero_runs(weight))
        return (struct chosen){ KERNEL_k_tile8_zero, K_PANEL, 8, 256 };
    if (size == 0 && has_fine_runs(weight))
        return (struct chosen){ KERNEL_k_tile8_fine, K_PANEL, 8, 256 };
    if (size == 0 && has_cut_runs(weight))
        return (struct chosen){ KERNEL_k_tile8_cut, K_PANEL, 8, 256 };
    return (struct chosen){ by[set][size], K_PANEL, UINT64_C(8) << size, 256 };
}

static struct chosen choose_a8(const struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                               uint64_t tokens)
{
    if (w->llm)
        return (struct chosen){ KERNEL_k_llm_a8, K_PANEL, 4, 256 };
    if (w->k.digits == 1 && w->k.regular)
        return choose_tile(c, w, tokens);
    if (tokens > TSR_CUDA_FEW && w->k.regular)
        return (struct chosen){ KERNEL_k_gemm_digits, K_PANEL, K_GEMM, 256 };
    if (tokens > 1)
        return (struct chosen){ KERNEL_k_gemv4_digits, K_PANEL, 4, 256 };
    return (struct chosen){ KERNEL_k_gemv1_digits, K_PANEL, 1, 256 };
}

/* F32 activations: a weight is read once for the tokens of a block. A tile of 64 rows wants groups that
 * begin on halves of steps. Its block sums all segments one after the other, about three times as long as
 * a block of a panel for 16 tokens, whose warps share them: below a third of the units, panels are faster. */
#define TILE_ROWS 64u
static struct chosen choose_f32(const struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                                const struct k_linear *a)
{
    const uint64_t each = a->tokens <= 32 ? 32 : 64;
    if (a->tokens == 1)
        return (struct chosen){ KERNEL_k_gemv1, K_PANEL, 1, 256 };
    if (a->tokens <= 4)
        return (struct chosen){ KERNEL_k_gemv4, K_PANEL, 4, 256 };
    if (a->tokens > 16 && (!w->k.regular || w->k.outliers || !a->vector))
        return (struct chosen){ KERNEL_k_gemm, K_PANEL, K_GEMM, 256 };
    if (a->tokens > 16 && cuda_ceil(w->k.rows, TILE_ROWS) * cuda_ceil(a->tokens, each) * 3 >=
                              c->api->units(c->device))
        return (struct chosen){ each == 32 ? KERNEL_k_gemm32 : KERNEL_k_gemm64, TILE_ROWS, each,
                                128 };
    if (a->tokens <= 8)
        return (struct chosen){ KERNEL_k_gemv8, K_PANEL, 8, 256 };
    return (struct chosen){ KERNEL_k_gemv16, K_PANEL, 16, 256 };
}

static tsr_status run(struct tsr_cuda *c, void *stream, const struct tsr_cuda_weight *w,
                      struct k_linear *a, uint32_t act, struct tsr_err *err)
{
    struct places at;
    uint64_t      work = 0;
    tsr_status    st;
    if (!find_places(w, act, a->tokens, &at))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    if (act == TSR_ACT_A16 &&
        ((st = tsr_cuda_work(c, at.total, &work, err)) != TSR_OK ||
         (st = round_rows(c, stream, a, w->k.cols, work + at.x, at.ldx, err)) != TSR_OK))
        return st;
    if (act == TSR_ACT_A8 && (st = quantize(c, stream, w, a, &at, err)) != TSR_OK)
        return st;
    a->vector = a->x % 16 == 0 && (a->ldx % 4 == 0 || a->tokens == 1);
    const struct chosen k = act == TSR_ACT_A8 ? choose_a8(c, w, a->tokens) : choose_f32(c, w, a);
    if (tsr_cuda_takes_some(k.kernel)) {
        const struct k_linears one = {
            .each = { *a }, .first = { 0, UINT32_MAX, UINT32_MAX }, .n = 1, .done = c->done
        };
        return tsr_cuda_launch(c, stream, k.kernel, cuda_ceil(w->k.rows, k.rows),
                               cuda_ceil(a->tokens, k.tokens), 1, k.threads, &one, sizeof one, err);
    }
    return tsr_cuda_launch(c, stream, k.kernel, cuda_ceil(w->k.rows, k.rows),
                           cuda_ceil(a->tokens, k.tokens), 1, k.threads, a, sizeof *a, err);
}

tsr_status tsr_cuda_linear_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                              const struct tsr_op_parts *parts, struct tsr_err *err)
{
    const struct tsr_cuda_weight *w = op->weight;
    struct tsr_view               out = tsr_cuda_at(&parts->out), x = tsr_cuda_at(&parts->in[0]),
                    bias = tsr_cuda_at(&parts->in[1]);
    tsr_status st;
    /* the grid's second axis ends at 65535: more tokens go in parts */
    for (uint64_t t = 0; t < out.rows; t += 65535) {
        struct k_linear a = { .w = w->k,
                              .x = x.p + t * x.stride,
                              .ldx = x.stride / 4,
                              .out = out.p + t * out.stride,
                              .ldo = out.stride / 4,
                              .bias = bias.p,
                              .tokens = (uint32_t)cuda_min(65535, out.rows - t) };
        st = TSR_E_UNSUPPORTED;
        if (!stream && tsr_cuda_is_fast(c, w, op->act, a.tokens))
            st = tsr_cuda_linear_fast(c, w, &a, op->act, err);
        if (st == TSR_E_UNSUPPORTED)
            st = run(c, stream, w, &a, act_of(w, op->act), err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

tsr_status tsr_cuda_embed_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                             const struct tsr_op_parts *parts, struct tsr_err *err)
{
    const struct tsr_cuda_weight *w = op->weight;
    struct tsr_view               out = tsr_cuda_at(&parts->out), ids = tsr_cuda_at(&parts->in[0]);
    struct k_embed                a = { .w = w->k,
                                        .ids = ids.p,
                                        .out = out.p,
                                        .ldo = out.stride / 4,
                                        .tokens = (uint32_t)out.rows,
                                        .scale = op->scale };
    /* a few tokens leave most multiprocessors idle */
    return tsr_cuda_launch(c, stream, KERNEL_k_embed, out.rows,
                           cuda_min(cuda_ceil(w->k.cols, 256), 64), 1, 256, &a, sizeof a, err);
}
