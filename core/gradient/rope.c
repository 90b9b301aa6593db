/* Rotary positions.  A rotation is orthogonal, so the derivative turns the other way. */
#include "gradient/internal.h"

#include "base/mem.h"
#include "engine/rope.h"

#include <stdlib.h>

#define GRAIN 16u /* tokens */

struct turning {
    const struct pass *p;
    float             *x;
    uint64_t           heads;
    bool               back;
};

static const struct tsr_model_rope *rope_of(const struct pass *p)
{
    const uint8_t *of = p->hp->rope_of;
    return of && of[p->job->layer] == TSR_MODEL_ROPE_OF_SLIDING ? &p->hp->rope_sliding
                                                                : &p->hp->rope;
}

bool gradient_rope_turns(const struct pass *p)
{
    return p->hp->positions == TSR_MODEL_POSITIONS_ROPE &&
           !(p->hp->rope_of && p->hp->rope_of[p->job->layer] == TSR_MODEL_ROPE_OF_NONE);
}

tsr_status gradient_rope_angles(const struct pass *p, struct tsr_err *err)
{
    const struct tsr_model_rope *r = rope_of(p);
    uint64_t                     half = p->hp->rope.dim / 2;
    double                      *inv = tsr_new(half, sizeof *inv);
    if (!inv)
        return tsr_fail_nomem(err, half * sizeof *inv, "frequencies");
    tsr_engine_rope_frequencies(r, p->job->tokens, inv);
    for (uint64_t t = 0; t < p->job->tokens; t++)
        tsr_engine_rope_angles(r, inv, p->job->tokens, t, p->cosine + t * half, p->sine + t * half);
    free(inv);
    return TSR_OK;
}

/* Pair i of a head: columns i and i + half, or 2 i and 2 i + 1. */
static tsr_status turn(void *arg, uint64_t begin, uint64_t end)
{
    const struct turning *k = arg;
    const struct pass    *p = k->p;
    uint64_t              dim = p->hp->head_dim, half = p->hp->rope.dim / 2;
    uint64_t step = p->hp->rope_adjacent ? 2 : 1, other = p->hp->rope_adjacent ? 1 : half;
    for (uint64_t i = begin; i < end; i++) {
        const float *cosine = p->cosine + i % p->job->tokens * half;
        const float *sine = p->sine + i % p->job->tokens * half;
        for (uint64_t h = 0; h < k->heads; h++) {
            float *x = k->x + (i * k->heads + h) * dim;
            for (uint64_t c = 0; c < half; c++) {
                float *a = x + c * step, *b = a + other, u = *a, v = *b;
                float  s = k->back ? -sine[c] : sine[c];
                *a = u * cosine[c] - v * s;
                *b = v * cosine[c] + u * s;
            }
        }
    }
    return TSR_OK;
}

tsr_status gradient_rope(const struct pass *p, float *x, uint64_t heads, bool back)
{
    const struct tsr_host *host = p->job->host;
    struct turning         k = { .p = p, .x = x, .heads = heads, .back = back };
    return gradient_rope_turns(p) ? host->parallel_for(host->ctx, p->n, GRAIN, turn, &k) : TSR_OK;
}
