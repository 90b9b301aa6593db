/* Routers against the same rules in double, by sorting: which experts a token takes, and with what weights. */
#include "engine/route.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST      64
#define TOLERANCE 4e-6 /* scores differ by up to 40, rounded to float */

static uint64_t seed = 88172645463325252u;

/* Uniform in (-1, 1). */
static double noise(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) * 0x1p-52 - 1;
}

struct ranked {
    double   value;
    uint32_t at;
};

static int falling(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->at < y->at ? -1 : 1;
}

/* Indices of v, the largest first. */
static void rank(const double *v, uint32_t n, struct ranked *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct ranked){ v[i], i };
    qsort(out, n, sizeof *out, falling);
}

/* The weight of every expert, 0 for one that is not taken, as the reference's code has it. */
static void expected(const struct tsr_model_hparams *hp, const float *scores,
                     const float *correction, double *weight)
{
    bool          sigmoid = hp->router == TSR_MODEL_ROUTER_SIGMOID;
    uint32_t      n = hp->experts, groups = hp->router_groups ? hp->router_groups : 1;
    uint32_t      each = n / groups;
    double        p[MOST], choice[MOST], of_group[MOST], sum = 0, total = 0;
    struct ranked order[MOST];
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)scores[i]);
    for (uint32_t i = 0; i < n; i++) {
        p[i] = sigmoid ? 1 / (1 + exp(-(double)scores[i])) : exp((double)scores[i]) / sum;
        choice[i] = p[i] + (correction ? (double)correction[i] : 0);
        weight[i] = 0;
    }
    for (uint32_t g = 0; g < groups; g++) {
        rank(choice + g * each, each, order);
        of_group[g] = order[0].value +
                      (hp->router_group_score == TSR_MODEL_GROUP_TWO_LARGEST ? order[1].value : 0);
    }
    rank(of_group, groups, order);
    for (uint32_t k = hp->router_groups_used; k < hp->router_groups; k++)
        for (uint32_t i = 0; i < each; i++)
            choice[order[k].at * each + i] = -INFINITY;
    rank(choice, n, order);
    for (uint32_t j = 0; j < hp->experts_used; j++)
        total += p[order[j].at];
    for (uint32_t j = 0; j < hp->experts_used; j++)
        weight[order[j].at] = p[order[j].at] * (double)hp->router_scale /
                              (hp->router_normalize ? total + (sigmoid ? 1e-20 : 0) : 1);
}

static void check(const struct tsr_model_hparams *hp, const float *scores, const float *correction)
{
    float    weight[MOST], scratch[2 * MOST];
    uint32_t chosen[MOST];
    double   want[MOST];
    tsr_engine_route(hp, scores, correction, chosen, weight, scratch);
    expected(hp, scores, correction, want);
    for (uint32_t j = 0; j < hp->experts_used; j++) {
        assert_true(chosen[j] < hp->experts);
        assert_true(j == 0 || chosen[j] > chosen[j - 1]);
        if (!(want[chosen[j]] > 0))
            fail_msg("expert %u is taken and should not be", chosen[j]);
        if (!(fabs((double)weight[j] - want[chosen[j]]) <= TOLERANCE * want[chosen[j]]))
            fail_msg("expert %u weighs %.9g, not %.9g", chosen[j], (double)weight[j],
                     want[chosen[j]]);
    }
}

static void routers(void **state)
{
    static const struct tsr_model_hparams of[] = {
        { .experts = 6, .experts_used = 2, .router_scale = 1 },
        { .experts = 64, .experts_used = 6, .router_scale = 16 },
        { .experts = 8, .experts_used = 3, .router_scale = 1, .router_normalize = true },
        { .experts = 16,
          .experts_used = 6,
          .router_scale = 16,
          .router_groups = 4,
          .router_groups_used = 2 },
        { .experts = 60,
          .experts_used = 5,
          .router_scale = 1,
          .router_groups = 12,
          .router_groups_used = 1 },
        { .router = TSR_MODEL_ROUTER_SIGMOID, .experts = 8, .experts_used = 8, .router_scale = 1 },
        { .router = TSR_MODEL_ROUTER_SIGMOID,
          .experts = 8,
          .experts_used = 3,
          .router_scale = 2.5f,
          .router_normalize = true,
          .router_groups = 4,
          .router_groups_used = 2,
          .router_group_score = TSR_MODEL_GROUP_TWO_LARGEST },
        { .router = TSR_MODEL_ROUTER_SIGMOID,
          .experts = 64,
          .experts_used = 8,
          .router_scale = 2.5f,
          .router_normalize = true,
          .router_groups = 8,
          .router_groups_used = 4,
          .router_group_score = TSR_MODEL_GROUP_TWO_LARGEST },
        { .router = TSR_MODEL_ROUTER_SIGMOID,
          .experts = 32,
          .experts_used = 4,
          .router_scale = 1,
          .router_groups = 8,
          .router_groups_used = 3 },
    };
    float scores[MOST], correction[MOST];
    (void)state;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++)
        for (int round = 0; round < 2000; round++) {
            double spread = round % 4 == 3 ? 20 : 4;
            for (uint32_t i = 0; i < of[k].experts; i++) {
                scores[i] = (float)(spread * noise());
                correction[i] = (float)(0.3 * noise());
            }
            if (spread > 5 && of[k].router == TSR_MODEL_ROUTER_SIGMOID)
                continue; /* many sigmoids are 1 in float and not in double */
            check(&of[k], scores, NULL);
            if (of[k].router == TSR_MODEL_ROUTER_SIGMOID)
                check(&of[k], scores, correction);
        }
}

/* Equal values: the lower group, and in it the lower expert. */
static void ties(void **state)
{
    struct tsr_model_hparams hp = { .router = TSR_MODEL_ROUTER_SIGMOID,
                                    .experts = 8,
                                    .experts_used = 3,
                                    .router_scale = 1,
                                    .router_groups = 4,
                                    .router_groups_used = 2,
                                    .router_group_score = TSR_MODEL_GROUP_TWO_LARGEST };
    const float              scores[8] = { 0 };
    float                    weight[8], scratch[16];
    uint32_t                 chosen[8];
    (void)state;
    for (int softmax = 0; softmax < 2; softmax++) {
        hp.router = softmax ? TSR_MODEL_ROUTER_SOFTMAX : TSR_MODEL_ROUTER_SIGMOID;
        tsr_engine_route(&hp, scores, NULL, chosen, weight, scratch);
        for (uint32_t j = 0; j < 3; j++) {
            assert_int_equal(chosen[j], j);
            assert_true(weight[j] == (softmax ? 0.125f : 0.5f));
        }
    }
}

static void not_a_number(void **state)
{
    struct tsr_model_hparams hp = { .router = TSR_MODEL_ROUTER_SIGMOID,
                                    .experts = 8,
                                    .experts_used = 2,
                                    .router_scale = 2.5f,
                                    .router_normalize = true,
                                    .router_groups = 4,
                                    .router_groups_used = 2 };
    float                    scores[8] = { 1, 2, 3, 4, 5, 6, NAN, 8 }, weight[8], scratch[16];
    uint32_t                 chosen[8];
    (void)state;
    for (int softmax = 0; softmax < 2; softmax++) {
        hp.router = softmax ? TSR_MODEL_ROUTER_SOFTMAX : TSR_MODEL_ROUTER_SIGMOID;
        tsr_engine_route(&hp, scores, NULL, chosen, weight, scratch);
        assert_true(isnan(weight[0]) && isnan(weight[1]));
        assert_true(chosen[0] < 8 && chosen[1] < 8);
    }
}

static void sigmoid(void **state)
{
    (void)state;
    for (int i = -2000; i <= 2000; i++) {
        double x = (double)(float)(i * 0.043), want = 1 / (1 + exp(-x));
        if (!(fabs((double)tsr_engine_sigmoid((float)x) - want) <= 1e-6 * want))
            fail_msg("sigmoid(%g) is %g, not %g", x, (double)tsr_engine_sigmoid((float)x), want);
    }
    assert_true(tsr_engine_sigmoid(0) == 0.5f);
    assert_true(isnan(tsr_engine_sigmoid(NAN)));
    assert_true(tsr_engine_sigmoid(INFINITY) == 1 && tsr_engine_sigmoid(-INFINITY) < 1e-40f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routers),
        cmocka_unit_test(ties),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(sigmoid),
    };
    return cmocka_run_group_tests_name("route", tests, NULL, NULL);
}
