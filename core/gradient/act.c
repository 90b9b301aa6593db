/* The function of a feed-forward and its derivative. */
#include "gradient/internal.h"

#include "tessera/backend.h"

#include <math.h>

#define GRAIN 8u /* tokens */

/* func(x), and its derivative into *d. */
static double func_of(uint32_t func, double x, double *d)
{
    double s, u;
    switch (func) {
    case TSR_FUNC_SILU:
        s = 1.0 / (1.0 + exp(-x));
        *d = s * (1.0 + x * (1.0 - s));
        return x * s;
    case TSR_FUNC_GELU_TANH:
        u = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
        *d = 0.5 * (1.0 + u) +
             0.5 * x * (1.0 - u * u) * 0.7978845608028654 * (1.0 + 0.134145 * x * x);
        return 0.5 * x * (1.0 + u);
    case TSR_FUNC_GELU_ERF:
        s = 0.5 * (1.0 + erf(x * 0.7071067811865476));
        *d = s + x * 0.3989422804014327 * exp(-0.5 * x * x);
        return x * s;
    default: /* RELU; the others are refused */
        *d = x > 0.0 ? 1.0 : 0.0;
        return x > 0.0 ? x : 0.0;
    }
}

static tsr_status forward(void *arg, uint64_t begin, uint64_t end)
{
    const struct pass *p = arg;
    double             d;
    for (uint64_t i = begin * p->ffn; i < end * p->ffn; i++) {
        double y = func_of(p->hp->func, (double)p->gate[i], &d);
        p->act[i] = (float)(p->hp->gated ? y * (double)p->up[i] : y);
    }
    return TSR_OK;
}

static tsr_status backward(void *arg, uint64_t begin, uint64_t end)
{
    const struct pass *p = arg;
    for (uint64_t i = begin * p->ffn; i < end * p->ffn; i++) {
        double d, dy = (double)p->dact[i], up = p->hp->gated ? (double)p->up[i] : 1.0;
        double y = func_of(p->hp->func, (double)p->gate[i], &d);
        if (p->hp->gated)
            p->up[i] = (float)(dy * y);
        p->gate[i] = (float)(dy * up * d);
    }
    return TSR_OK;
}

tsr_status gradient_act(const struct pass *p)
{
    const struct tsr_host *host = p->job->host;
    return host->parallel_for(host->ctx, p->n, GRAIN, forward, (void *)(uintptr_t)p);
}

tsr_status gradient_act_back(const struct pass *p)
{
    const struct tsr_host *host = p->job->host;
    return host->parallel_for(host->ctx, p->n, GRAIN, backward, (void *)(uintptr_t)p);
}
