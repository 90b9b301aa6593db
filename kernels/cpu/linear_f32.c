/* linear_f32.c - products with F32 activations (product.h): of act f32 as they are, of a16 rounded to BF16; packed by
 * tiles for many tokens. */
#include "product.h"

#define PACK_COLS                                                                                  \
    64u /* of a tile at a time, so that its lines are written while they are in the first cache */

struct inputs {
    struct tsr_cpu_inputs base;
    const float          *x16;   /* [tokens][cols], or NULL: x as it is */
    const float          *xpack; /* as struct tsr_cpu_linear has it */
};

/* While they are made. */
struct job {
    const struct tsr_cpu        *c;
    const struct tsr_cpu_weight *w;
    const float                 *x;
    uint64_t                     ldx, tokens;
    float                       *x16, *xpack;
};

static tsr_status round_rows(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    for (uint64_t t = begin; t < end; t++)
        j->c->k->round_bf16(j->x16 + t * j->w->cols, j->x + t * j->ldx, j->w->cols);
    return TSR_OK;
}

static tsr_status pack_tiles(void *arg, uint64_t begin, uint64_t end)
{
    struct job *j = arg;
    uint64_t    tile = j->c->k->tile, cols = j->w->cols;
    for (uint64_t b = begin; b < end; b++) {
        uint64_t t0 = b * tile, m = cpu_min(tile, j->tokens - t0);
        float   *dst = j->xpack + t0 * cols;
        for (uint64_t k0 = 0; k0 < cols; k0 += PACK_COLS)
            for (uint64_t t = 0; t < m; t++) {
                const float *x = j->x + (t0 + t) * j->ldx;
                for (uint64_t k = k0; k < cpu_min(k0 + PACK_COLS, cols); k++)
                    dst[k * m + t] = x[k];
            }
    }
    return TSR_OK;
}

/* Offsets of the parts of the inputs. */
struct places {
    uint64_t head, x16, xpack, total;
};

/* Several tokens go through a panel together. */
static int is_tiled(const struct tsr_cpu_weight *w, uint64_t tokens)
{
    return tokens > DIRECT_MAX || w->layout >= W_I8;
}

static tsr_status find_places(const struct tsr_cpu_weight *w, uint64_t T, int rounded,
                              struct places *p, struct tsr_err *err)
{
    p->total = 0;
    (void)cpu_reserve(&p->total, 1, sizeof(struct inputs), &p->head);
    return cpu_reserve(&p->total, rounded ? T : 0, w->cols * 4, &p->x16) &&
                   cpu_reserve(&p->total, is_tiled(w, T) ? T : 0, w->cols * 4, &p->xpack)
               ? TSR_OK
               : tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
}

static tsr_status bytes_of(const struct tsr_cpu_weight *w, uint64_t n, int rounded, uint64_t *bytes,
                           struct tsr_err *err)
{
    struct places p = { 0 };
    tsr_status    st = find_places(w, n, rounded, &p, err);
    if (st == TSR_OK)
        *bytes = p.total;
    return st;
}

static tsr_status make(const struct tsr_cpu_weight *w, const struct tsr_kernel_job *job,
                       int rounded, uint8_t *p, struct tsr_err *err)
{
    const struct tsr_cpu *c = cpu_of(w);
    const uint64_t        T = job->n, tile = c->k->tile;
    const int             tiled = is_tiled(w, T);
    struct inputs        *head = (struct inputs *)(void *)p;
    struct places         at = { 0 };
    tsr_status            st = find_places(w, T, rounded, &at, err);
    if (st != TSR_OK)
        return st;
    struct job j = { .c = c, .w = w, .x = job->in, .ldx = job->in_stride, .tokens = T };
    if (rounded) {
        j.x16 = (float *)(void *)(p + at.x16);
        if ((st = tsr_cpu_for(c, T, w->cols * 4, round_rows, &j)) != TSR_OK)
            return st;
        j.x = j.x16;
        j.ldx = w->cols;
    }
    if (tiled) {
        j.xpack = (float *)(void *)(p + at.xpack);
        st = tsr_cpu_for(c, cpu_ceil(T, tile), w->cols * tile * 4, pack_tiles, &j);
    }
    *head = (struct inputs){ .base = { TOKENS_MAX / tile * tile, tiled ? GROUP : 1 },
                             .x16 = j.x16,
                             .xpack = j.xpack };
    return st;
}

static tsr_status linear(const void *self, const struct tsr_kernel_job *job, struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = self;
    const struct inputs         *in = job->inputs;
    const struct tsr_cpu_part    p = cpu_part(job);
    const struct tsr_cpu_linear  a = { .w = w,
                                       .tokens = job->tokens,
                                       .x = in->x16 ? in->x16 : cpu_first_in(job),
                                       .ldx = in->x16 ? w->cols : job->in_stride,
                                       .xpack = in->xpack,
                                       .bias = cpu_first_bias(job),
                                       .out = cpu_first_out(job),
                                       .ldo = job->out_stride };
    (void)err;
    for (uint64_t i = 0, np; i < p.n; i += np) {
        np = cpu_min(p.n - i, in->base.group);
        cpu_of(w)->k->linear(&a, p.panel + i, np, p.t0, p.t1);
    }
    return TSR_OK;
}

static tsr_status plain_bytes(const void *self, const struct tsr_kernel_weight *of, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err)
{
    (void)of;
    return bytes_of(self, n, 0, bytes, err);
}

static tsr_status plain_inputs(const void *self, const struct tsr_kernel_job *job, void *to,
                               struct tsr_err *err)
{
    return make(self, job, 0, to, err);
}

static tsr_status rounded_bytes(const void *self, const struct tsr_kernel_weight *of, uint64_t n,
                                uint64_t *bytes, struct tsr_err *err)
{
    (void)of;
    return bytes_of(self, n, 1, bytes, err);
}

static tsr_status rounded_inputs(const void *self, const struct tsr_kernel_job *job, void *to,
                                 struct tsr_err *err)
{
    return make(self, job, 1, to, err);
}

const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_floats = { TSR_CPU_KERNEL, .linear = linear,
                                                               .flags = TSR_KERNEL_ADDS,
                                                               .input_bytes = plain_bytes,
                                                               .inputs = plain_inputs };

const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_rounded = { TSR_CPU_KERNEL, .linear = linear,
                                                                .flags = TSR_KERNEL_ADDS,
                                                                .input_bytes = rounded_bytes,
                                                                .inputs = rounded_inputs };
