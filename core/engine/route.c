/* Routers: scores to experts and weights. */
#include "engine/route.h"

#include <math.h>

/* The exp() of docs/decisions/numerics.md for x <= 0, as kernels/cpu/k_math.h has it. */
float tsr_engine_exp_below_0(float x)
{
    static const float p[] = {
        0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f, 0.5f, 1.0f, 1.0f
    };
    float c = x > -105.0f ? x : -105.0f; /* NaN too: put back below */
    float n = rintf(c * 0x1.715476p+0f);
    float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e400p-1f, c));
    float y = 0x1.a01a02p-13f;
    for (unsigned i = 0; i < sizeof p / sizeof *p; i++)
        y = fmaf(y, r, p[i]);
    return isnan(x) ? x : ldexpf(y, (int)n);
}

/* The first of the largest values; NaN counts as the largest. */
static uint32_t largest(const float *v, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++)
        if (!isnan(v[at]) && !(v[i] <= v[at]))
            at = i;
    return at;
}

/* The k largest of v, which are replaced by -INFINITY, in their order. */
static void take_largest(float *v, uint32_t n, uint32_t k, uint32_t *chosen)
{
    for (uint32_t j = 0; j < k; j++) {
        chosen[j] = largest(v, n);
        v[chosen[j]] = -INFINITY;
    }
}

float tsr_engine_sigmoid(float x)
{
    float e = tsr_engine_exp_below_0(-fabsf(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

/* What a group's experts are worth together. */
static float group_score(const struct tsr_model_hparams *hp, const float *v, uint32_t n)
{
    uint32_t first = largest(v, n), second = first == 0 ? 1 : 0;
    if (hp->router_group_score == TSR_MODEL_GROUP_LARGEST)
        return v[first];
    for (uint32_t i = 0; i < n; i++)
        if (i != first && !isnan(v[second]) && !(v[i] <= v[second]))
            second = i;
    return v[first] + v[second];
}

/* Experts of the groups that are not chosen leave the choice. */
static void keep_groups(const struct tsr_model_hparams *hp, float *v)
{
    uint32_t groups = hp->router_groups, n = groups ? hp->experts / groups : 0;
    float   *score = v + hp->experts;
    for (uint32_t g = 0; g < groups; g++)
        score[g] = group_score(hp, v + (size_t)g * n, n);
    for (uint32_t k = 0; groups && k < hp->router_groups_used; k++)
        score[largest(score, groups)] = -INFINITY;
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t i = 0; i < n && score[g] > -INFINITY; i++)
            v[(size_t)g * n + i] = -INFINITY;
}

/* e^(scores - max) over all, or over the chosen only; the sum over these. */
static float exponents(const float *scores, const uint32_t *of, uint32_t n, float max, float *out)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = tsr_engine_exp_below_0(scores[of ? of[i] : i] - max);
        sum += out[i];
    }
    return sum;
}

/* Without a correction the scores choose as their softmax would. */
static void by_softmax(const struct tsr_model_hparams *hp, const float *scores,
                       const float *correction, uint32_t *chosen, float *weight, float *scratch)
{
    uint32_t n = hp->experts, k = hp->experts_used;
    float    total = 0, max = scores[largest(scores, n)]; /* also if its group is not chosen */
    float    sum = exponents(scores, NULL, n, max, scratch);
    for (uint32_t i = 0; i < n; i++)
        scratch[i] = correction ? scratch[i] / sum + correction[i] : scores[i];
    keep_groups(hp, scratch);
    take_largest(scratch, n, k, chosen);
    for (uint32_t j = 0; j < k; j++)
        total += weight[j] = tsr_engine_exp_below_0(scores[chosen[j]] - max) / sum;
    for (uint32_t j = 0; j < k && hp->router_normalize; j++)
        weight[j] /= total;
}

/* The sum that divides the weights is never 0, as in the reference. */
#define LEAST 1e-20f

static void by_sigmoid(const struct tsr_model_hparams *hp, const float *scores,
                       const float *correction, uint32_t *chosen, float *weight, float *scratch)
{
    uint32_t n = hp->experts, k = hp->experts_used;
    float    total = 0;
    for (uint32_t i = 0; i < n; i++)
        scratch[i] = tsr_engine_sigmoid(scores[i]) + (correction ? correction[i] : 0);
    keep_groups(hp, scratch);
    take_largest(scratch, n, k, chosen);
    for (uint32_t j = 0; j < k; j++)
        total += weight[j] = tsr_engine_sigmoid(scores[chosen[j]]);
    for (uint32_t j = 0; j < k && hp->router_normalize; j++)
        weight[j] /= total + LEAST;
}

static void by_chosen(const struct tsr_model_hparams *hp, const float *scores, uint32_t *chosen,
                      float *weight, float *scratch)
{
    for (uint32_t i = 0; i < hp->experts; i++)
        scratch[i] = scores[i];
    take_largest(scratch, hp->experts, hp->experts_used, chosen);
    float sum = exponents(scores, chosen, hp->experts_used, scores[chosen[0]], weight);
    for (uint32_t j = 0; j < hp->experts_used; j++)
        weight[j] /= sum;
}

/* One after the other: the largest score of those that are left, weighed by a softmax over the scores that are within a
 * share of 2 router_jitter of it (Phi-3.5-MoE, "sparse mixer"). */
static void by_threshold(const struct tsr_model_hparams *hp, const float *scores, uint32_t *chosen,
                         float *weight, float *scratch)
{
    float most = 2 * hp->router_jitter;
    for (uint32_t i = 0; i < hp->experts; i++)
        scratch[i] = scores[i];
    for (uint32_t j = 0; j < hp->experts_used; j++) {
        uint32_t at = chosen[j] = largest(scratch, hp->experts);
        float    max = scratch[at], sum = 0;
        for (uint32_t i = 0; i < hp->experts; i++) {
            float size = fabsf(scores[i]) > max ? fabsf(scores[i]) : max;
            if (scratch[i] > -INFINITY && !((max - scores[i]) / size > most))
                sum += tsr_engine_exp_below_0(scores[i] - max);
        }
        weight[j] = 1 / sum; /* e^0 over the sum */
        scratch[at] = -INFINITY;
    }
}

void tsr_engine_route(const struct tsr_model_hparams *hp, const float *scores,
                      const float *correction, uint32_t *chosen, float *weight, float *scratch)
{
    if (hp->router == TSR_MODEL_ROUTER_SOFTMAX)
        by_softmax(hp, scores, correction, chosen, weight, scratch);
    else if (hp->router == TSR_MODEL_ROUTER_CHOSEN)
        by_chosen(hp, scores, chosen, weight, scratch);
    else if (hp->router == TSR_MODEL_ROUTER_SIGMOID)
        by_sigmoid(hp, scores, correction, chosen, weight, scratch);
    else
        by_threshold(hp, scores, chosen, weight, scratch);
    for (uint32_t j = 0; j < hp->experts_used && hp->router_scale != 1; j++)
        weight[j] *= hp->router_scale;
    for (uint32_t j = 1; j < hp->experts_used; j++) /* few: sorted by insertion */
        for (uint32_t i = j; i > 0 && chosen[i] < chosen[i - 1]; i--) {
            uint32_t c = chosen[i];
            float    w = weight[i];
            chosen[i] = chosen[i - 1];
            weight[i] = weight[i - 1];
            chosen[i - 1] = c;
            weight[i - 1] = w;
        }
}

/* Numbers that look drawn: the finalizer of splitmix64. */
static uint64_t scramble(uint64_t n)
{
    n = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
    return n ^ n >> 31;
}

void tsr_engine_route_spread(const struct tsr_model_hparams *hp, uint64_t n, uint32_t *chosen,
                             float *weight)
{
    /* `used` places at equal distances on a ring; those that begin again at its front come first */
    uint32_t step = hp->experts / hp->experts_used, used = hp->experts_used, turned = 0;
    uint32_t first = (uint32_t)(scramble(n) % hp->experts);
    while (turned < used && first + (used - 1 - turned) * (uint64_t)step >= hp->experts)
        turned++;
    for (uint32_t j = 0; j < used; j++) {
        uint32_t k = j < turned ? used - turned + j : j - turned;
        chosen[j] = (uint32_t)((first + (uint64_t)k * step) % hp->experts);
        weight[j] = 1.0f / (float)used;
    }
}
