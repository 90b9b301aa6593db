/* linear_bf16.c - LINEAR under `numerics: fast`. */
#include "bf16.h"

#include "backend.h"

struct job {
    const struct tsr_cpu        *c;
    const struct tsr_cpu_linear *a;
    uint32_t                    *pairs;
    uint64_t                     group, per_chunk;
};

static tsr_status pack_tiles(void *arg, uint64_t begin, uint64_t end)
{
    const struct job            *j = arg;
    const struct tsr_cpu_linear *a = j->a;
    uint64_t                     tile = j->c->bf16->tile, pairs = cpu_ceil(a->w->cols, 2);
    for (uint64_t t = begin * tile; t < cpu_min(end * tile, a->tokens); t += tile)
        j->c->bf16->pack(j->pairs + t * pairs, a->x + t * a->ldx, a->ldx,
                         cpu_min(tile, a->tokens - t), a->w->cols);
    return TSR_OK;
}

static tsr_status panels(void *arg, uint64_t begin, uint64_t end)
{
    const struct job            *j = arg;
    const struct tsr_cpu_linear *a = j->a;
    uint64_t                     groups = cpu_ceil(a->w->panels, j->group);
    for (uint64_t i = begin; i < end; i++) {
        uint64_t panel = i % groups * j->group, t0 = i / groups * j->per_chunk;
        j->c->bf16->linear(a, j->pairs, panel, cpu_min(j->group, a->w->panels - panel), t0,
                           cpu_min(t0 + j->per_chunk, a->tokens));
    }
    return TSR_OK;
}

tsr_status tsr_cpu_linear_bf16(struct tsr_cpu *c, const struct tsr_cpu_linear *a,
                               struct tsr_err *err)
{
    struct job j = { .c = c, .a = a, .group = GROUP };
    uint64_t   cols = a->w->cols, tile = c->bf16->tile, bytes;
    uint8_t   *p;
    if (__builtin_mul_overflow(a->tokens, cpu_ceil(cols, 2) * 4, &bytes))
        return tsr_fail(err, TSR_E_NOMEM, "LINEAR: the activations are larger than the memory");
    tsr_status st = tsr_cpu_scratch(c, bytes, &p, err);
    if (st != TSR_OK)
        return st;
    j.pairs = (uint32_t *)(void *)p;
    j.per_chunk = BF16_TOKENS / tile * tile;
    st = tsr_cpu_for(c, cpu_ceil(a->tokens, tile), cols * tile * 4, pack_tiles, &j);
    if (st != TSR_OK)
        return st;
    uint64_t chunks = cpu_ceil(a->tokens, j.per_chunk);
    if (a->w->panels * chunks < 32 * GROUP) /* leave enough work for the threads */
        j.group = 1;
    uint64_t work = cpu_min(a->tokens, j.per_chunk) * cols * (PANEL / 16) * j.group;
    return tsr_cpu_for(c, cpu_ceil(a->w->panels, j.group) * chunks, work, panels, &j);
}
