/* linear_extra.c - LINEAR under a8 for weights that are looked up, small floats and LLM.int8: prepares the
 * activations once, then runs panels over the threads. */
#include <string.h>

#include "weight_extra.h"

struct job {
    const struct tsr_cpu  *c;
    struct tsr_cpu_linear8 a;
    uint64_t               per_chunk;
    int                    amx;
    int8_t                *rows, *q; /* codes by token, and by tile */
    float                 *sa, *xt;
    int32_t               *sums;
    uint32_t              *found;
    uint64_t              *nfound;
};

uint32_t tsr_cpu_extra_act(const struct tsr_cpu_weight *w, uint32_t act)
{
    int none = w->extra.llm && w->cols > LLM_COLS_MAX;
    return none && act == TSR_ACT_A8 ? TSR_ACT_F32 : act;
}

int tsr_cpu_extra_runs(const struct tsr_cpu_weight *w, uint32_t act)
{
    return (w->layout >= W_TAB || w->extra.llm) && act == TSR_ACT_A8;
}

static tsr_status prepare_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct job                         *j = arg;
    const struct tsr_cpu_weight        *w = j->a.w;
    const struct tsr_cpu_extra_kernels *k = j->c->k->extra;
    for (uint64_t t = begin; t < end; t++) {
        const float *x = j->a.x + t * j->a.ldx;
        int8_t      *q = j->rows + t * j->a.ldq;
        if (w->extra.llm)
            j->nfound[t] = k->llm_prepare(x, w->cols, w->extra.threshold, q, j->a.ldq, j->sa + t,
                                          j->sums + t, j->found + t * w->cols);
        else
            k->table_prepare(w, x, q, j->a.ldq, j->sa + t, j->sums + t, j->a.tokens);
    }
    return TSR_OK;
}

static tsr_status pack_tiles(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    uint64_t    tile = j->amx ? AMX_TOKENS : j->c->k->tile8, ldq = j->a.ldq;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t t0 = b * tile, m = cpu_min(tile, j->a.tokens - t0);
        if (j->amx)
            j->c->amx->pack(j->q + t0 * ldq, j->rows + t0 * ldq, ldq, m);
        else
            j->c->k->pack_q(j->q + t0 * ldq, j->rows + t0 * ldq, ldq, ldq, m);
    }
    return TSR_OK;
}

/* Activations by columns, for outliers: chunks [begin,end). */
static tsr_status transpose(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    uint64_t    cols = j->a.w->cols;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t t0 = b * TOKENS_MAX, m = cpu_min(TOKENS_MAX, j->a.tokens - t0);
        float   *dst = j->xt + t0 * cols;
        for (uint64_t k0 = 0; k0 < cols; k0 += 16) /* both sides stay in the first cache */
            for (uint64_t t = 0; t < m; t++)
                for (uint64_t k = k0; k < cpu_min(k0 + 16, cols); k++)
                    dst[k * m + t] = j->a.x[(t0 + t) * j->a.ldx + k];
    }
    return TSR_OK;
}

static tsr_status panels(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    uint64_t    n = j->a.w->panels;
    for (uint64_t i = begin; i < end; i++) {
        uint64_t t0 = i / n * j->per_chunk, t1 = cpu_min(t0 + j->per_chunk, j->a.tokens);
        if (j->a.w->extra.llm)
            j->c->k->extra->llm_a8(&j->a, i % n, t0, t1);
        else if (j->amx)
            j->c->amx->digits->linear(&j->a, i % n, t0, t1);
        else if (j->a.w->layout == W_FPX)
            j->c->k->extra->digits_a8(&j->a, i % n, t0, t1);
        else
            j->c->k->extra->table_a8(&j->a, i % n, t0, t1);
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
    uint64_t rows, q, sa, sums, xt, found, nfound, total, ldq;
};

static int find_places(const struct tsr_cpu_weight *w, uint64_t T, struct places *p)
{
    uint64_t llm = w->extra.llm ? T : 0;
    p->total = 0;
    p->ldq = cpu_ceil(w->cols, 32) * 32;
    uint64_t packed = cpu_ceil(T, AMX_TOKENS) * AMX_TOKENS; /* the most of any tile */
    return packed >= T && reserve(&p->total, T, p->ldq, &p->rows) &&
           reserve(&p->total, T > 1 ? packed : 0, p->ldq, &p->q) &&
           reserve(&p->total, T, (llm ? 1 : w->nblocks) * 4, &p->sa) &&
           reserve(&p->total, T,
                   (llm                  ? 1
                    : w->layout == W_FPX ? 0
                                         : w->nruns) *
                       4,
                   &p->sums) &&
           reserve(&p->total, w->extra.outliers ? T : 0, w->cols * 4, &p->xt) &&
           reserve(&p->total, llm, w->cols * 4, &p->found) &&
           reserve(&p->total, llm, 8, &p->nfound);
}

uint64_t tsr_cpu_extra_scratch(const struct tsr_cpu_weight *w, uint64_t tokens)
{
    struct places p;
    return find_places(w, tokens, &p) ? p.total : 0;
}

/* Activations at p, which has room for the places. */
static tsr_status prepare_at(const struct tsr_cpu *c, struct job *j, const struct places *at,
                             uint8_t *p)
{
    const struct tsr_cpu_weight *w = j->a.w;
    uint64_t                     T = j->a.tokens, tile = j->amx ? AMX_TOKENS : c->k->tile8;
    tsr_status                   st;
    j->a.ldq = at->ldq;
    j->rows = (int8_t *)p + at->rows;
    j->a.q = j->q = (int8_t *)p + at->q;
    j->a.sa = j->sa = (float *)(void *)(p + at->sa);
    j->a.sums = j->sums = (int32_t *)(void *)(p + at->sums);
    j->a.found = j->found = (uint32_t *)(void *)(p + at->found);
    j->a.nfound = j->nfound = (uint64_t *)(void *)(p + at->nfound);
    if (T == 1) /* a tile of one token is its row */
        j->a.q = j->q = j->rows;
    if ((st = tsr_cpu_for(c, T, w->cols * 4, prepare_rows, j)) != TSR_OK ||
        (T > 1 &&
         (st = tsr_cpu_for(c, cpu_ceil(T, tile), w->cols * tile, pack_tiles, j)) != TSR_OK) ||
        !w->extra.outliers)
        return st;
    j->a.xt = j->xt = (float *)(void *)(p + at->xt);
    return tsr_cpu_for(c, cpu_ceil(T, TOKENS_MAX), w->cols * TOKENS_MAX * 4, transpose, j);
}

/* chunks of the transposed activations are TOKENS_MAX, which every tile divides */
static struct job job_of(const struct tsr_cpu *c, const struct tsr_cpu_linear *a)
{
    return (struct job){ .c = c,
                         .per_chunk = TOKENS_MAX,
                         .amx = c->amx && tsr_cpu_amx_takes_digits(a->w, a->tokens),
                         .a = { .w = a->w,
                                .tokens = a->tokens,
                                .x = a->x,
                                .ldx = a->ldx,
                                .bias = a->bias,
                                .out = a->out,
                                .ldo = a->ldo,
                                .permute = c->permute } };
}

int tsr_cpu_extra_single(const struct tsr_cpu_linear *a, uint32_t act)
{
    return a->tokens == 1 && tsr_cpu_extra_runs(a->w, tsr_cpu_extra_act(a->w, act));
}

struct tsr_cpu_linear8 tsr_cpu_extra_prepare(const struct tsr_cpu        *c,
                                             const struct tsr_cpu_linear *a, uint8_t *room)
{
    struct job    j = job_of(c, a);
    struct places at = { 0 };
    (void)find_places(a->w, 1, &at);
    (void)prepare_at(c, &j, &at, room); /* one token: no loop over threads, which may fail */
    return j.a;
}

void tsr_cpu_extra_run(const struct tsr_cpu *c, const struct tsr_cpu_linear8 *a, uint64_t begin,
                       uint64_t end)
{
    struct job j = { .c = c, .a = *a, .per_chunk = TOKENS_MAX };
    (void)panels(&j, begin, end);
}

tsr_status tsr_cpu_linear_extra(struct tsr_cpu *c, const struct tsr_cpu_linear *a,
                                struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = a->w;
    struct job                   j = job_of(c, a);
    struct places                at;
    uint8_t                     *p;
    if (!find_places(w, a->tokens, &at))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    tsr_status st = tsr_cpu_scratch(c, at.total, &p, err);
    if (st == TSR_OK)
        st = prepare_at(c, &j, &at, p);
    if (st != TSR_OK)
        return st;
    uint64_t work = w->panel_bytes + cpu_min(a->tokens, TOKENS_MAX) * w->cols * (PANEL / 8);
    return tsr_cpu_for(c, w->panels * cpu_ceil(a->tokens, TOKENS_MAX), work, panels, &j);
}
