/* linear.c - LINEAR: prepares the activations once, then runs panels over the threads. */
#include "site.h"
#include "tile_many.h"
#include "tile_words.h"
#include "weight_extra.h"

#include <string.h>

#define PACK_COLS                                                                                  \
    64u /* of a tile at a time, so that its lines are written while they are in the first cache */

struct job {
    const struct tsr_cpu *c;
    struct tsr_cpu_linear a;
    uint64_t              group;     /* panels that go together */
    uint64_t              per_chunk; /* tokens that go through a panel together */
    int                   a8, amx;
    tsr_cpu_pack_words   *words; /* else NULL */
    float                *x16;   /* a16: rounded activations */
    float                *xpack;
    int8_t               *q, *qpack;
    float                *sa;
    int32_t              *sums;
};

static tsr_status round_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    for (uint64_t t = begin; t < end; t++)
        j->c->k->round_bf16(j->x16 + t * j->a.w->cols, j->a.x + t * j->a.ldx, j->a.w->cols);
    return TSR_OK;
}

static tsr_status pack_tiles(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    uint64_t    tile = j->c->k->tile, cols = j->a.w->cols;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t t0 = b * tile, m = cpu_min(tile, j->a.tokens - t0);
        float   *dst = j->xpack + t0 * cols;
        for (uint64_t k0 = 0; k0 < cols; k0 += PACK_COLS)
            for (uint64_t t = 0; t < m; t++) {
                const float *x = j->a.x + (t0 + t) * j->a.ldx;
                for (uint64_t k = k0; k < cpu_min(k0 + PACK_COLS, cols); k++)
                    dst[k * m + t] = x[k];
            }
    }
    return TSR_OK;
}

/* Tokens that share a tile. */
static uint64_t tile_of(const struct job *j)
{
    const struct tsr_cpu_kernels *k = j->c->k;
    if (!j->a8)
        return k->tile;
    return j->amx                                          ? AMX_TOKENS
           : j->a.tokens > cpu_tiles_few(k->tile8, j->a.w) ? CPU_TILE_MANY(k->tile8)
                                                           : k->tile8;
}

/* Codes, scales and sums per run of tokens [begin,end); of a tile together if there are tiles. */
static tsr_status quantize_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct job                  *j = arg;
    const struct tsr_cpu_weight *w = j->a.w;
    const uint64_t               tile = j->qpack ? tile_of(j) : j->a.tokens;
    for (uint64_t t = begin; t < end; t++) {
        uint64_t first = t - t % tile, m = cpu_min(tile, j->a.tokens - first);
        j->c->k->quantize(w, j->a.x + t * j->a.ldx, j->q + t * j->a.ldq, j->a.ldq,
                          j->sa + first * w->nblocks + t % tile,
                          j->sums + first * w->nruns + t % tile, m);
    }
    return TSR_OK;
}

/* Tiles take sums of affine weights as F32, in the same places. */
static void widen_sums(int32_t *sums, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float f = (float)sums[i];
        memcpy(&sums[i], &f, sizeof f);
    }
}

/* Tiles [begin,end), each by segments. */
static tsr_status pack_codes(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    uint64_t    tile = tile_of(j), ldq = j->a.ldq, seg = j->a.w->seg;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t t = b * tile, m = cpu_min(tile, j->a.tokens - t), t0 = t - t % j->per_chunk;
        uint64_t chunk = cpu_min(j->per_chunk, j->a.tokens - t0);
        if (j->words)
            chunk = cpu_ceil(chunk, tile) * tile;
        if (j->amx)
            j->c->amx->pack(j->qpack + t * ldq, j->q + t * ldq, ldq, m);
        for (uint64_t k = 0; !j->amx && k < ldq; k += seg) {
            uint64_t      n = cpu_min(seg, ldq - k), at = t0 * ldq + k * chunk + (t - t0) * n;
            const int8_t *q = j->q + t * ldq + k;
            if (j->words)
                j->words((int16_t *)(void *)j->qpack + at, q, ldq, n, m);
            else
                j->c->k->pack_q(j->qpack + at, q, ldq, n, m);
        }
        if (j->a.w->affine && (j->amx || j->a.tokens > cpu_tiles_few(j->c->k->tile8, j->a.w)))
            widen_sums(j->sums + t * j->a.w->nruns, m * j->a.w->nruns);
    }
    return TSR_OK;
}

static tsr_status panels(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    uint64_t    groups = cpu_ceil(j->a.w->panels, j->group);
    for (uint64_t i = begin; i < end; i++) {
        /* token chunks outside: their activations stay in a cache while the weights pass */
        uint64_t panel = i % groups * j->group, t0 = i / groups * j->per_chunk;
        uint64_t np = cpu_min(j->group, j->a.w->panels - panel);
        uint64_t t1 = cpu_min(t0 + j->per_chunk, j->a.tokens);
        if (j->amx)
            j->c->amx->linear(&j->a, panel, np, t0, t1);
        else if (j->a8)
            j->c->k->linear_a8(&j->a, panel, np, t0, t1);
        else
            j->c->k->linear(&j->a, panel, np, t0, t1);
    }
    return TSR_OK;
}

/* Adds n * size bytes, rounded up to 64, to *total; the old total is the place. */
static int reserve(uint64_t *total, uint64_t n, uint64_t size, uint64_t *place)
{
    uint64_t b;
    *place = *total;
    return !__builtin_mul_overflow(n, size, &b) && b < (UINT64_C(1) << 60) &&
           !__builtin_add_overflow(*total, (b + 63) / 64 * 64, total);
}

/* Offsets of the parts of prepared activations in scratch. */
struct places {
    uint64_t q, qpack, sa, sums; /* a8 */
    uint64_t x16, xpack;         /* f32, a16 */
    uint64_t total, ldq;
};

/* The tiles of T tokens have words: how many share one, else 0. */
static uint64_t words_of(const struct tsr_cpu *c, const struct tsr_cpu_weight *w, uint64_t T)
{
    return tsr_cpu_packs_words(c->k) && cpu_wide(w, T) ? CPU_TILE_MANY(c->k->tile8) : 0;
}

static int a8_places(const struct tsr_cpu_weight *w, uint64_t T, int tiled, uint64_t words,
                     struct places *p)
{
    /* the most that any tiles need; a CPU with AMX has none of words */
    uint64_t room = words ? words : AMX_TOKENS, end;
    uint64_t packed = tiled ? cpu_ceil(T, room) * room * (words ? 2 : 1) : 0;
    p->total = 0;
    p->ldq = cpu_ceil(w->cols, PAD) * PAD;
    return packed >= (tiled ? T : 0) && reserve(&p->total, T, p->ldq, &p->q) &&
           reserve(&p->total, packed, p->ldq, &p->qpack) &&
           reserve(&p->total, T, w->nblocks * 4, &p->sa) &&
           reserve(&p->total, T, w->nruns * 4, &p->sums) &&
           /* AMX and words read a tile of few tokens as if it were full */
           reserve(&p->total, tiled ? 1 : 0, 64, &end);
}

static int f32_places(const struct tsr_cpu_weight *w, uint64_t T, uint32_t act, int tiled,
                      struct places *p)
{
    p->total = 0;
    return reserve(&p->total, act == TSR_ACT_A16 ? T : 0, w->cols * 4, &p->x16) &&
           reserve(&p->total, tiled ? T : 0, w->cols * 4, &p->xpack);
}

/* Several tokens go through a panel together. */
static int is_tiled(const struct tsr_cpu_weight *w, int a8, uint64_t tokens)
{
    return a8 ? tokens > DIRECT_MAX && w->aligned : tokens > DIRECT_MAX || w->layout >= W_I8;
}

uint64_t tsr_cpu_linear_scratch(const struct tsr_cpu *c, const struct tsr_cpu_weight *w,
                                uint32_t asked, uint64_t tokens)
{
    struct places p;
    uint32_t      act = tsr_cpu_extra_act(w, asked);
    int           a8 = w->layout >= W_I8 && act == TSR_ACT_A8, tiled = is_tiled(w, a8, tokens);
    if (tsr_cpu_extra_runs(w, act))
        return tsr_cpu_extra_scratch(w, tokens);
    if (c->bf16 && w->layout == W_BF16 && tokens > DIRECT_MAX)
        return tokens * cpu_ceil(w->cols, 2) * 4;
    if (!(a8 ? a8_places(w, tokens, tiled, words_of(c, w, tokens), &p)
             : f32_places(w, tokens, act, tiled, &p)))
        return 0;
    return p.total;
}

static tsr_status prepare_a8(struct tsr_cpu *c, struct job *j, int tiled, struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = j->a.w;
    uint64_t                     T = j->a.tokens;
    struct places                at;
    uint8_t                     *p;
    if (!a8_places(w, T, tiled, words_of(c, w, T), &at))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    tsr_status st = tsr_cpu_scratch(c, at.total, &p, err);
    if (st != TSR_OK)
        return st;
    j->a.ldq = at.ldq;
    j->a.q = j->q = (int8_t *)p + at.q;
    j->a.sa = j->sa = (float *)(void *)(p + at.sa);
    j->a.sums = j->sums = (int32_t *)(void *)(p + at.sums);
    if (tiled && words_of(c, w, T))
        j->words = tsr_cpu_packs_words(c->k);
    if (tiled)
        j->a.qpack = j->qpack = (int8_t *)p + at.qpack;
    st = tsr_cpu_for(c, T, w->cols * 4, quantize_rows, j);
    if (st != TSR_OK || !tiled)
        return st;
    uint64_t tile = tile_of(j);
    return tsr_cpu_for(c, cpu_ceil(T, tile), w->cols * tile, pack_codes, j);
}

static tsr_status prepare_f32(struct tsr_cpu *c, struct job *j, uint32_t act, int tiled,
                              struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = j->a.w;
    uint64_t                     T = j->a.tokens;
    struct places                at;
    uint8_t                     *p = NULL;
    if (!f32_places(w, T, act, tiled, &at))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    if (at.total == 0)
        return TSR_OK;
    tsr_status st = tsr_cpu_scratch(c, at.total, &p, err);
    if (st != TSR_OK)
        return st;
    if (act == TSR_ACT_A16) {
        j->x16 = (float *)(void *)(p + at.x16);
        st = tsr_cpu_for(c, T, w->cols * 4, round_rows, j);
        if (st != TSR_OK)
            return st;
        j->a.x = j->x16;
        j->a.ldx = w->cols;
    }
    if (tiled) {
        j->a.xpack = j->xpack = (float *)(void *)(p + at.xpack);
        st = tsr_cpu_for(c, cpu_ceil(T, c->k->tile), w->cols * c->k->tile * 4, pack_tiles, j);
    }
    return st;
}

static struct tsr_cpu_linear linear_of(const struct tsr_op *op, const struct tsr_op_parts *parts)
{
    struct tsr_view out = tsr_cpu_at(&parts->out), x = tsr_cpu_at(&parts->in[0]),
                    bias = tsr_cpu_at(&parts->in[1]);
    return (struct tsr_cpu_linear){ .w = op->weight,
                                    .tokens = out.rows,
                                    .x = (const float *)(const void *)x.p,
                                    .ldx = x.stride / 4,
                                    .bias = (const float *)(const void *)bias.p,
                                    .out = (float *)(void *)out.p,
                                    .ldo = out.stride / 4 };
}

tsr_status tsr_cpu_linear_view(const struct tsr_op *op, struct tsr_cpu_linear *a,
                               struct tsr_err *err)
{
    struct tsr_op_parts parts;
    if (op->kind != TSR_OP_LINEAR)
        return tsr_fail(err, TSR_E_INVAL, "LINEAR: the operation is %u", op->kind);
    tsr_status st = tsr_cpu_check(op, &parts, err);
    if (st == TSR_OK)
        *a = linear_of(op, &parts);
    return st;
}

/* ---- a few tokens, int8 ------------------------------------------------------------------------ */

int tsr_cpu_linear_single(const struct tsr_cpu_linear *a, uint32_t act)
{
    return a->tokens == 1 && cpu_packed(a->w->layout) && act == TSR_ACT_A8 && !a->w->extra.llm;
}

uint64_t tsr_cpu_linear_room(const struct tsr_cpu_linear *a)
{
    struct places p;
    return a8_places(a->w, 1, 0, 0, &p) ? p.total : UINT64_MAX / 8;
}

void tsr_cpu_linear_prepare(const struct tsr_cpu *c, struct tsr_cpu_linear *a, uint8_t *room)
{
    struct places at = { 0 };
    (void)a8_places(a->w, 1, 0, 0, &at);
    a->ldq = at.ldq;
    a->q = (int8_t *)room + at.q;
    a->sa = (float *)(void *)(room + at.sa);
    a->sums = (int32_t *)(void *)(room + at.sums);
    c->k->quantize(a->w, a->x, (int8_t *)room + at.q, at.ldq, (float *)(void *)(room + at.sa),
                   (int32_t *)(void *)(room + at.sums), 1);
}

int tsr_cpu_linear_alike(const struct tsr_cpu_weight *a, const struct tsr_cpu_weight *b)
{
    /* runs follow from columns, segment and group */
    return a->cols == b->cols && a->seg == b->seg && a->group == b->group &&
           (a->zeros != NULL) == (b->zeros != NULL) && (a->zeros || a->mid == b->mid);
}

void tsr_cpu_linear_share(struct tsr_cpu_linear *to, const struct tsr_cpu_linear *of)
{
    to->q = of->q;
    to->ldq = of->ldq;
    to->sa = of->sa;
    to->sums = of->sums;
}

static int in_pairs(const struct tsr_cpu_weight *w, uint64_t from)
{
    return w->aligned && w->panels >= from * 2;
}

uint64_t tsr_cpu_linear_units(const struct tsr_cpu_linear *a, uint64_t from)
{
    return in_pairs(a->w, from) ? cpu_ceil(a->w->panels, 2) : a->w->panels;
}

/* In pairs: the first half of the panels, each with its like in the second half. */
void tsr_cpu_linear_run(const struct tsr_cpu *c, const struct tsr_cpu_linear *a, uint64_t from,
                        uint64_t begin, uint64_t end)
{
    uint64_t half = a->w->panels / 2;
    if (!in_pairs(a->w, from)) {
        for (; begin < end; begin++)
            c->k->linear_a8(a, begin, 1, 0, a->tokens);
        return;
    }
    if (begin < half)
        c->k->pairs_a8(a, begin, half, cpu_min(end, half) - begin);
    if (end > half) /* the last of an odd number */
        c->k->linear_a8(a, 2 * half, 1, 0, a->tokens);
}

static tsr_status run_pairs(void *arg, uint64_t begin, uint64_t end)
{
    const struct job *j = arg;
    tsr_cpu_linear_run(j->c, &j->a, CPU_PAIRS_FROM, begin, end);
    return TSR_OK;
}

tsr_status tsr_cpu_linear_op(struct tsr_cpu *c, const struct tsr_op *op,
                             const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct job                   j = { .c = c, .a = linear_of(op, parts) };
    tsr_status                   st;
    const struct tsr_cpu_weight *w = j.a.w;
    uint64_t                     T = j.a.tokens;
    int                          packed = w->layout >= W_I8, tiled;
    uint32_t                     act = tsr_cpu_extra_act(w, op->act);
    if (tsr_cpu_extra_runs(w, act))
        return tsr_cpu_linear_extra(c, &j.a, err);
    if (c->bf16 && w->layout == W_BF16 && T > DIRECT_MAX)
        return tsr_cpu_linear_bf16(c, &j.a, err);
    j.a8 = packed && act == TSR_ACT_A8;
    tiled = is_tiled(w, j.a8, T);
    j.amx = c->amx && tiled && j.a8 && tsr_cpu_amx_takes(w, T);
    j.per_chunk = TOKENS_MAX / tile_of(&j) * tile_of(&j);
    if (j.a8) {
        st = prepare_a8(c, &j, tiled, err);
    } else {
        st = prepare_f32(c, &j, act == TSR_ACT_A16 ? TSR_ACT_A16 : TSR_ACT_F32, tiled, err);
    }
    if (st != TSR_OK)
        return st;
    if (j.a8 && T <= (w->layout < W_I4 ? 1 : c->k->pair_tokens) && in_pairs(w, CPU_PAIRS_FROM))
        return c->host->parallel_for(c->host->ctx, cpu_ceil(w->panels, 2), 1, run_pairs, &j);
    uint64_t chunks = cpu_ceil(T, j.per_chunk);
    /* groups of panels only where enough work is left for the threads */
    j.group = tiled && w->panels * chunks >= 32 * GROUP ? GROUP : 1;
    uint64_t work = w->panel_bytes + cpu_min(T, j.per_chunk) * w->cols * (PANEL / 8);
    return tsr_cpu_for(c, cpu_ceil(w->panels, j.group) * chunks, work * j.group, panels, &j);
}
