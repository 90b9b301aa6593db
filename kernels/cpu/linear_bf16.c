/* linear_bf16.c - products under `numerics: fast` (product.h). */
#include "bf16.h"

#include "product.h"

struct inputs {
    struct tsr_cpu_inputs base;
    const uint32_t       *pairs;
};

/* While they are made. */
struct job {
    const struct tsr_cpu_weight *w;
    const float                 *x;
    uint64_t                     ldx, tokens;
    uint32_t                    *pairs;
};

static tsr_status pack_tiles(void *arg, uint64_t begin, uint64_t end)
{
    const struct job                  *j = arg;
    const struct tsr_cpu_bf16_kernels *k = cpu_of(j->w)->bf16;
    uint64_t                           tile = k->tile, pairs = cpu_ceil(j->w->cols, 2);
    for (uint64_t t = begin * tile; t < cpu_min(end * tile, j->tokens); t += tile)
        k->pack(j->pairs + t * pairs, j->x + t * j->ldx, j->ldx, cpu_min(tile, j->tokens - t),
                j->w->cols);
    return TSR_OK;
}

/* The place of the pairs. */
static int find_places(const struct tsr_cpu_weight *w, uint64_t n, uint64_t *pairs, uint64_t *bytes)
{
    uint64_t head;
    *bytes = 0;
    return cpu_reserve(bytes, 1, sizeof(struct inputs), &head) &&
           cpu_reserve(bytes, n, cpu_ceil(w->cols, 2) * 4, pairs);
}

static tsr_status input_bytes(const void *self, const struct tsr_kernel_weight *of, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err)
{
    uint64_t pairs = 0;
    (void)of;
    return find_places(self, n, &pairs, bytes)
               ? TSR_OK
               : tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
}

static tsr_status inputs(const void *self, const struct tsr_kernel_job *job, void *to,
                         struct tsr_err *err)
{
    const struct tsr_cpu_weight *w = self;
    const uint64_t               tile = cpu_of(w)->bf16->tile;
    struct inputs               *head = to;
    uint64_t                     pairs = 0, bytes;
    (void)err;
    (void)find_places(w, job->n, &pairs, &bytes);
    struct job j = { .w = w,
                     .x = job->in,
                     .ldx = job->in_stride,
                     .tokens = job->n,
                     .pairs = (uint32_t *)(void *)((uint8_t *)to + pairs) };
    *head = (struct inputs){ .base = { BF16_TOKENS / tile * tile, GROUP }, .pairs = j.pairs };
    return tsr_cpu_for(cpu_of(w), cpu_ceil(j.tokens, tile), w->cols * tile * 4, pack_tiles, &j);
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
                                       .bias = cpu_first_bias(job),
                                       .out = cpu_first_out(job),
                                       .ldo = job->out_stride };
    (void)err;
    for (uint64_t i = 0, np; i < p.n; i += np) {
        np = cpu_min(p.n - i, in->base.group);
        cpu_of(w)->bf16->linear(&a, in->pairs, p.panel + i, np, p.t0, p.t1);
    }
    return TSR_OK;
}

const struct tsr_quantizer_kernel_v1 tsr_cpu_kernel_fast = { TSR_CPU_KERNEL, .linear = linear,
                                                             .flags = TSR_KERNEL_ADDS,
                                                             .input_bytes = input_bytes,
                                                             .inputs = inputs };
