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

/* The coefficients of (sum over i <= most of C(each, i) x^i)^ranks, up to x^total, into way[total + 1]: how many ways
 * there are to take experts of `ranks` ranks, at most `most` of each.  Scaled: one[] has the sum of its terms 1. */
static void count_ways(uint64_t each, uint32_t ranks, uint64_t most, uint64_t total, double *way,
                       double *next)
{
    for (uint64_t n = 0; n <= total; n++)
        way[n] = n == 0;
    for (uint32_t r = 0; r < ranks; r++) {
        for (uint64_t n = 0; n <= total; n++)
            next[n] = 0;
        for (uint64_t n = 0; n <= total; n++) {
            double term = ldexp(1, -(int)each); /* C(each, i) / 2^each */
            for (uint64_t i = 0; i <= most && n + i <= total; i++) {
                next[n + i] += way[n] * term;
                term *= (double)(each - i) / (double)(i + 1);
            }
        }
        for (uint64_t n = 0; n <= total; n++)
            way[n] = next[n];
    }
}

/* The mean, over all ways to reach n experts, of the most that are of one rank: the sum over m of the share of the ways
 * with more than m. */
static double busiest_of(uint64_t each, uint32_t ranks, uint64_t n, double *way, double *next)
{
    double sum = 0, all;
    count_ways(each, ranks, each, n, way, next);
    all = way[n];
    for (uint64_t m = 0; m < each && m < n; m++) {
        count_ways(each, ranks, m, n, way, next);
        sum += 1 - way[n] / all;
    }
    return sum;
}

#define MOST_COUNTED 1024u /* experts, whose ways a double can count */

double tsr_plan_shape_busiest(const struct tsr_plan_shape *s, double reached, uint32_t tp)
{
    uint64_t each = tp ? s->experts / tp : 0, n = (uint64_t)reached;
    double   part = reached - (double)n, *way;
    if (tp <= 1 || each == 0 || s->experts > MOST_COUNTED)
        return tp > 1 ? ceil(reached / tp) : reached;
    if (n >= s->experts)
        return (double)each;
    way = tsr_new(UINT64_C(2) * (s->experts + UINT64_C(1)), sizeof *way);
    if (!way)
        return (double)each;
    double low = busiest_of(each, tp, n, way, way + s->experts + 1);
    double high = part > 0 ? busiest_of(each, tp, n + 1, way, way + s->experts + 1) : low;
    free(way);
    return low + part * (high - low);
}
