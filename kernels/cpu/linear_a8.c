/* linear_a8.c - products of packed codes with int8 activations (product.h): quantizes the activations once, then runs
 * panels. */
#include "product.h"
#include "tile_many.h"
#include "tile_words.h"

#include <string.h>

struct inputs {
    struct tsr_cpu_inputs base;
    uint64_t              amx, ldq;
    const int8_t         *q, *qpack; /* as struct tsr_cpu_linear has them */
    const float          *sa;
    const int32_t        *sums, *starts;
};

/* While they are made. */
struct job {
    const struct tsr_cpu        *c;
    const struct tsr_cpu_weight *w;
    const float                 *x;
    uint64_t                     ldx, tokens, ldq;
    uint64_t                     per_chunk;
    int                          amx;
    tsr_cpu_pack_opposed        *opposed; /* else NULL */
    int8_t                      *q, *qpack;
    float                       *sa;
    int32_t                     *sums, *starts;
};

/* Tokens that share a tile. */
static uint64_t tile_of(const struct job *j)
{
    const struct tsr_cpu_kernels *k = j->c->k;
    return j->amx                                      ? AMX_TOKENS
           : j->tokens > cpu_tiles_few(k->tile8, j->w) ? CPU_TILE_MANY(k->tile8)
                                                       : k->tile8;
}

/* Codes, scales and sums per run of tokens [begin,end); of a tile together if there are tiles. */
static tsr_status quantize_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct job                  *j = arg;
    const struct tsr_cpu_weight *w = j->w;
    const uint64_t               tile = j->qpack ? tile_of(j) : j->tokens;
    for (uint64_t t = begin; t < end; t++) {
        uint64_t first = t - t % tile, m = cpu_min(tile, j->tokens - first);
        j->c->k->quantize(w, j->x + t * j->ldx, j->q + t * j->ldq, j->ldq,
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
    uint64_t    tile = tile_of(j), ldq = j->ldq, seg = j->w->seg;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t t = b * tile, m = cpu_min(tile, j->tokens - t), t0 = t - t % j->per_chunk;
        uint64_t chunk = cpu_min(j->per_chunk, j->tokens - t0);
        if (j->opposed)
            chunk = cpu_ceil(chunk, tile) * tile;
        if (j->amx)
            j->c->amx->pack(j->qpack + t * ldq, j->q + t * ldq, ldq, m);
        for (uint64_t k = 0; !j->amx && k < ldq; k += seg) {
            uint64_t      n = cpu_min(seg, ldq - k), at = t0 * ldq + k * chunk + (t - t0) * n;
            const int8_t *q = j->q + t * ldq + k;
            if (j->opposed)
                j->opposed(j->w, (struct tsr_cpu_opposed *)(void *)j->qpack + at / 4, q, ldq, k, n,
                           m, j->sums + t * j->w->nruns, j->starts + t * j->w->nruns);
            else
                j->c->k->pack_q(j->qpack + at, q, ldq, n, m);
        }
        if (j->w->affine && (j->amx || j->tokens > cpu_tiles_few(j->c->k->tile8, j->w)))
            widen_sums(j->sums + t * j->w->nruns, m * j->w->nruns);
    }
    return TSR_OK;
}

/* Offsets of the parts of the inputs. */
struct places {
    uint64_t head, q, qpack, sa, sums, starts, total, ldq;
};

/* The function that opposes the codes of T tokens, or NULL; and how many share a tile of them then, else 0. */
static tsr_cpu_pack_opposed *packs_of(const struct tsr_cpu_weight *w, uint64_t T)
{
    return cpu_wide(w, T) ? tsr_cpu_packs_opposed(cpu_of(w)->k) : NULL;
}

static uint64_t opposed_of(const struct tsr_cpu_weight *w, uint64_t T)
{
    return packs_of(w, T) ? CPU_TILE_MANY(cpu_of(w)->k->tile8) : 0;
}

static int find_places(const struct tsr_cpu_weight *w, uint64_t T, int tiled, uint64_t opposed,
                       struct places *p)
{
    /* the most that any tiles need; a CPU with AMX opposes none */
    uint64_t room = opposed ? opposed : AMX_TOKENS, end;
    uint64_t packed = tiled ? cpu_ceil(T, room) * room * (opposed ? 2 : 1) : 0;
    p->total = 0;
    (void)cpu_reserve(&p->total, 1, sizeof(struct inputs), &p->head);
    p->ldq = cpu_ceil(w->cols, PAD) * PAD;
    return packed >= (tiled ? T : 0) && cpu_reserve(&p->total, T, p->ldq, &p->q) &&
           cpu_reserve(&p->total, packed, p->ldq, &p->qpack) &&
           cpu_reserve(&p->total, T, w->nblocks * 4, &p->sa) &&
           cpu_reserve(&p->total, T, w->nruns * 4, &p->sums) &&
           cpu_reserve(&p->total, opposed ? T : 0, w->nruns * 4, &p->starts) &&
           /* AMX and opposed tiles read a tile of few tokens as if it were full */
           cpu_reserve(&p->total, tiled ? 1 : 0, 64, &end);
}

/* Several tokens go through a panel together. */
static int is_tiled(const struct tsr_cpu_weight *w, uint64_t tokens)
{
    return tokens > DIRECT_MAX && w->aligned;
}

static tsr_status input_bytes(const void *self, const struct tsr_kernel_weight *of, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = self;
    struct places                p = { 0 };
    (void)of;
    if (!find_places(w, n, is_tiled(w, n), opposed_of(w, n), &p))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    *bytes = p.total;
    return TSR_OK;
}

static tsr_status inputs(const void *self, const struct tsr_kernel_job *job, void *to,
                         struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = self;
    const struct tsr_cpu        *c = cpu_of(w);
    const uint64_t               T = job->n;
    const int                    tiled = is_tiled(w, T);
    struct inputs               *head = to;
    struct places                at = { 0 };
    uint8_t                     *p = to;
    (void)err;
    (void)find_places(w, T, tiled, opposed_of(w, T), &at);
    struct job     j = { .c = c,
                         .w = w,
                         .x = job->in,
                         .ldx = job->in_stride,
                         .tokens = T,
                         .ldq = at.ldq,
                         .amx = c->amx && tiled && tsr_cpu_amx_takes(w, T),
                         .opposed = tiled ? packs_of(w, T) : NULL,
                         .q = (int8_t *)p + at.q,
                         .qpack = tiled ? (int8_t *)p + at.qpack : NULL,
                         .sa = (float *)(void *)(p + at.sa),
                         .sums = (int32_t *)(void *)(p + at.sums),
                         .starts = (int32_t *)(void *)(p + at.starts) };
    const uint64_t tile = tile_of(&j);
    j.per_chunk = TOKENS_MAX / tile * tile;
    *head = (struct inputs){ .base = { j.per_chunk, tiled ? GROUP : 1 },
                             .amx = (uint64_t)j.amx,
                             .ldq = j.ldq,
                             .q = j.q,
                             .qpack = j.qpack,
                             .sa = j.sa,
                             .sums = j.sums,
                             .starts = j.opposed ? j.starts : NULL };
    tsr_status st = tsr_cpu_for(c, T, w->cols * 4, quantize_rows, &j);
    return st == TSR_OK && tiled ? tsr_cpu_for(c, cpu_ceil(T, tile), w->cols * tile, pack_codes, &j)
                                 : st;
}

static int alike(const void *self, const struct tsr_kernel_weight *w, const void *other,
                 const struct tsr_kernel_weight *its, uint64_t n)
{
    const struct tsr_cpu_weight *a = self, *b = other;
    (void)w;
    (void)its;
    /* runs follow from columns, segment and group; what tiles there are depends on more */
    return n == 1 && a->cols == b->cols && a->seg == b->seg && a->group == b->group &&
           (a->zeros != NULL) == (b->zeros != NULL) && (a->zeros || a->mid == b->mid);
}

static tsr_status linear(const void *self, const struct tsr_kernel_job *job, struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = self;
    const struct inputs         *in = job->inputs;
    const struct tsr_cpu_part    p = cpu_part(job);
    const struct tsr_cpu_linear  a = { .w = w,
                                       .tokens = job->tokens,
                                       .x = cpu_first_in(job),
                                       .ldx = job->in_stride,
                                       .q = in->q,
                                       .ldq = in->ldq,
                                       .qpack = in->qpack,
                                       .sa = in->sa,
                                       .sums = in->sums,
                                       .starts = in->starts,
                                       .bias = cpu_first_bias(job),
                                       .out = cpu_first_out(job),
                                       .ldo = job->out_stride };
    (void)err;
    if (job->weight->apart) {
        cpu_of(w)->k->pairs_a8(&a, p.panel, job->weight->apart / PANEL, p.n);
        return TSR_OK;
    }
    for (uint64_t i = 0, np; i < p.n; i += np) {
        np = cpu_min(p.n - i, in->base.group);
        if (in->amx)
            cpu_of(w)->amx->linear(&a, p.panel + i, np, p.t0, p.t1);
        else
            cpu_of(w)->k->linear_a8(&a, p.panel + i, np, p.t0, p.t1);
    }
    return TSR_OK;
}

const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_integers = { TSR_CPU_KERNEL,
                                                                 .linear = linear,
                                                                 .flags = TSR_KERNEL_ADDS |
                                                                          TSR_KERNEL_PAIRS,
                                                                 .input_bytes = input_bytes,
                                                                 .inputs = inputs,
                                                                 .alike = alike };
