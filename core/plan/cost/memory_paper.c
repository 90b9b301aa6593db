/* LLM-PQ's memory model as its code has it: two matrices in the feed-forward, attention without
 * grouped heads, KV and norms in F16, no scales.  Sizes are whole numbers far below 2^53. */
#include "plan/cost/memory_paper.h"

#include <math.h>

#define MIB     1048576.0
#define CONTEXT (430 * MIB)  /* of CUDA */
#define TORCH   (1500 * MIB) /* of its allocator */
#define SHARE   0.95

void tsr_plan_paper_layer(const struct tsr_plan_memory_job *j, uint64_t cls, uint32_t bits,
                          uint64_t *weights, uint64_t *kv)
{
    const struct tsr_plan_shape *s = j->shape;
    double                       h = (double)s->hidden, f = (double)s->ffn, b = (double)j->batch;
    (void)cls;
    double matrices = (4 * h * h + 2 * h * f) * 4 * bits / 32 + 2 * 2 * h;
    double cache = b * h * (double)(j->prompt + j->generate) * 2 * 2;
    *kv = (uint64_t)cache;
    *weights = (uint64_t)(ceil((matrices + cache) / MIB) * MIB) - *kv;
}

uint64_t tsr_plan_paper_ends(const struct tsr_plan_memory_job *j)
{
    const struct tsr_plan_shape *s = j->shape;
    double vocab = (double)s->vocab, h = (double)s->hidden, w = (double)s->embed_dim;
    double positions = s->positions.rows ? (double)s->max_positions : 0;
    double elements = 2 * vocab * w + positions * h + (s->embed_dim != s->hidden ? 2 * h * w : 0);
    return (uint64_t)(2 * elements + 4 * h);
}

uint64_t tsr_plan_paper_workspace(const struct tsr_plan_memory_job *j, uint64_t prefill_mb,
                                  bool first)
{
    double h = (double)j->shape->hidden, f = (double)j->shape->ffn, s = (double)j->prompt;
    double b = (double)prefill_mb, all = (double)j->batch, t = s + (double)j->generate;
    double pre = 2 * b * s * h + 8 * b * s * h + 4 * b * s * h + 2 * (b * s * s + b * s * h) +
                 2 * b * s * h + 2 * b * s * f + 2 * b * s * (h + f);
    double dec = 2 * all * h + 8 * all * h + 2 * (all * t + all * h) + 4 * all * t +
                 4 * all * t * h + 2 * all * h + 2 * all * f + 2 * all * (h + f);
    dec *= j->time_mult > 0 ? j->time_mult : 1;
    return (uint64_t)ceil(first ? fmax(pre, dec) : dec);
}

uint64_t tsr_plan_paper_capacity(const struct tsr_plan_profile *p)
{
    double total = (double)(p->paper_bytes ? p->paper_bytes : p->memory_bytes);
    return (uint64_t)fmax(SHARE * total - CONTEXT - TORCH, 0);
}
