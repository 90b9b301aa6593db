/* linear_extra.c - products under a8 with weights that are looked up, small floats and LLM.int8 (product.h): prepares the
 * activations once, then runs panels. */
#include "product.h"
#include "weight_extra.h"

#include <string.h>

struct inputs {
    struct tsr_cpu_inputs  base;
    uint64_t               amx;
    struct tsr_cpu_linear8 a; /* what the kernels take, but weight, input, bias and output */
};

/* While they are made. */
struct job {
    const struct tsr_cpu  *c;
    struct tsr_cpu_linear8 a;
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

/* Offsets of the parts of prepared activations in scratch. */
struct places {
    uint64_t head, rows, q, sa, sums, xt, found, nfound, total, ldq;
};

static int find_places(const struct tsr_cpu_weight *w, uint64_t T, struct places *p)
{
    uint64_t llm = w->extra.llm ? T : 0;
    p->total = 0;
    (void)cpu_reserve(&p->total, 1, sizeof(struct inputs), &p->head);
    p->ldq = cpu_ceil(w->cols, 32) * 32;
    uint64_t packed = cpu_ceil(T, AMX_TOKENS) * AMX_TOKENS; /* the most of any tile */
    return packed >= T && cpu_reserve(&p->total, T, p->ldq, &p->rows) &&
           cpu_reserve(&p->total, T > 1 ? packed : 0, p->ldq, &p->q) &&
           cpu_reserve(&p->total, T, (llm ? 1 : w->nblocks) * 4, &p->sa) &&
           cpu_reserve(&p->total, T,
                       (llm                  ? 1
                        : w->layout == W_FPX ? 0
                                             : w->nruns) *
                           4,
                       &p->sums) &&
           cpu_reserve(&p->total, w->extra.outliers ? T : 0, w->cols * 4, &p->xt) &&
           cpu_reserve(&p->total, llm, w->cols * 4, &p->found) &&
           cpu_reserve(&p->total, llm, 8, &p->nfound);
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

static tsr_status input_bytes(const void *self, const struct tsr_kernel_weight *of, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err)
{
    struct places p = { 0 };
    (void)of;
    if (!find_places(self, n, &p))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    *bytes = p.total;
    return TSR_OK;
}

static tsr_status inputs(const void *self, const struct tsr_kernel_job *job, void *to,
                         struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = self;
    struct inputs               *head = to;
    struct places                at = { 0 };
    struct job                   j = { .c = cpu_of(w),
                                       .amx = cpu_of(w)->amx && tsr_cpu_amx_takes_digits(w, job->n),
                                       .a = { .w = w,
                                              .tokens = job->n,
                                              .x = job->in,
                                              .ldx = job->in_stride,
                                              .permute = cpu_of(w)->permute } };
    (void)err;
    (void)find_places(w, job->n, &at);
    tsr_status st = prepare_at(cpu_of(w), &j, &at, to);
    /* chunks of the transposed activations are TOKENS_MAX, which every tile divides */
    *head = (struct inputs){ .base = { TOKENS_MAX, 1 }, .amx = (uint64_t)j.amx, .a = j.a };
    return st;
}

static int alike(const void *self, const struct tsr_kernel_weight *w, const void *other,
                 const struct tsr_kernel_weight *its, uint64_t n)
{
    const struct tsr_cpu_weight *a = self, *b = other;
    (void)w;
    (void)its;
    return n == 1 && a->layout == b->layout && !a->extra.outliers && !b->extra.outliers &&
           a->cols == b->cols && a->seg == b->seg && a->group == b->group;
}

static struct tsr_cpu_linear8 linear8_of(const void *self, const struct tsr_kernel_job *job)
{
    struct tsr_cpu_linear8 a = ((const struct inputs *)job->inputs)->a;
    a.w = self;
    a.x = cpu_first_in(job);
    a.ldx = job->in_stride;
    a.bias = cpu_first_bias(job);
    a.out = cpu_first_out(job);
    a.ldo = job->out_stride;
    return a;
}

static tsr_status linear_llm(const void *self, const struct tsr_kernel_job *job,
                             struct tsr_err *err)
{
    const struct tsr_cpu_linear8 a = linear8_of(self, job);
    const struct tsr_cpu_part    p = cpu_part(job);
    (void)err;
    for (uint64_t i = 0; i < p.n; i++)
        cpu_of(a.w)->k->extra->llm_a8(&a, p.panel + i, p.t0, p.t1);
    return TSR_OK;
}

static tsr_status linear_tables(const void *self, const struct tsr_kernel_job *job,
                                struct tsr_err *err)
{
    const struct tsr_cpu_linear8 a = linear8_of(self, job);
    const struct tsr_cpu_part    p = cpu_part(job);
    (void)err;
    for (uint64_t i = 0; i < p.n; i++)
        cpu_of(a.w)->k->extra->table_a8(&a, p.panel + i, p.t0, p.t1);
    return TSR_OK;
}

static tsr_status linear_digits(const void *self, const struct tsr_kernel_job *job,
                                struct tsr_err *err)
{
    const struct tsr_cpu_linear8 a = linear8_of(self, job);
    const struct tsr_cpu_part    p = cpu_part(job);
    (void)err;
    for (uint64_t i = 0; i < p.n; i++)
        if (((const struct inputs *)job->inputs)->amx)
            cpu_of(a.w)->amx->digits->linear(&a, p.panel + i, p.t0, p.t1);
        else
            cpu_of(a.w)->k->extra->digits_a8(&a, p.panel + i, p.t0, p.t1);
    return TSR_OK;
}

const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_llm = { TSR_CPU_KERNEL, .linear = linear_llm,
                                                            .flags = TSR_KERNEL_ADDS,
                                                            .input_bytes = input_bytes,
                                                            .inputs = inputs };

const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_tables = {
    TSR_CPU_KERNEL,   .linear = linear_tables, .flags = TSR_KERNEL_ADDS, .input_bytes = input_bytes,
    .inputs = inputs, .alike = alike
};

const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_digits = {
    TSR_CPU_KERNEL,   .linear = linear_digits, .flags = TSR_KERNEL_ADDS, .input_bytes = input_bytes,
    .inputs = inputs, .alike = alike
};
