/* How many experts of a layer the tokens of a step reach. */
#include "quant/routing.h"
#include "base/mem.h"
#include "plan/cost/shape.h"

#include <math.h>
#include <stdlib.h>

static bool has_experts(const struct tsr_plan_shape *s, uint64_t cls)
{
    return s->experts && s->layer[cls].router.rows;
}

tsr_status tsr_plan_shape_measured(struct tsr_plan_shape *s, const char *folder,
                                   struct tsr_err *err)
{
    if (!s->experts)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: routing frequencies are of models with experts; leave 'routing' out",
                        s->name);
    uint64_t n;
    double  *share = tsr_mul(s->layers, s->experts, &n) ? tsr_new(n, sizeof *share) : NULL;
    if (!share)
        return tsr_fail_nomem(err, s->layers * s->experts * sizeof *share, "routing frequencies");
    tsr_status st = TSR_OK;
    for (uint64_t l = 0; l < s->layers && st == TSR_OK; l++)
        if (has_experts(s, s->layer_class[l]))
            st = tsr_quant_routing_read(folder, l, s->experts, s->experts_used,
                                        share + l * s->experts, err);
    if (st != TSR_OK) {
        free(share);
        return st;
    }
    free(s->routing);
    s->routing = share;
    return TSR_OK;
}

/* Each token takes any k of E with the same chance: E (1 - (1 - k/E)^tokens). */
static double reached_alike(const struct tsr_plan_shape *s, double tokens)
{
    double e = s->experts;
    return e * (1 - pow(1 - s->experts_used / e, tokens));
}

/* Expert i is taken by the share f_i of the tokens: the sum over i of 1 - (1 - f_i)^tokens, on average over the layers of
 * the class. */
static double reached_measured(const struct tsr_plan_shape *s, uint64_t cls, double tokens)
{
    double   sum = 0;
    uint64_t layers = 0;
    for (uint64_t l = 0; l < s->layers; l++) {
        if (s->layer_class[l] != cls)
            continue;
        layers++;
        for (uint32_t i = 0; i < s->experts; i++)
            sum += 1 - pow(1 - s->routing[l * s->experts + i], tokens);
    }
    return sum / (double)layers;
}

double tsr_plan_shape_reached(const struct tsr_plan_shape *s, uint64_t cls, double tokens)
{
    if (!has_experts(s, cls))
        return 0;
    return s->routing ? reached_measured(s, cls, tokens) : reached_alike(s, tokens);
}

double tsr_plan_shape_used(const struct tsr_plan_shape *s, const struct tsr_plan_shape_matrix *m)
{
    return m->count > 1 ? s->experts_used : 1;
}
