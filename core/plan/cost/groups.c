/* Groups of a layer's experts, by how much they suffer or how often tokens take them. */
#include "base/mem.h"
#include "plan/cost/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_experts(const struct tsr_plan_shape *s, uint64_t layer)
{
    return s->layer[s->layer_class[layer]].router.rows != 0;
}

/* The share of all tokens that an expert takes: measured, or that of any. */
static double frequency(const struct tsr_plan_shape *s, uint64_t layer, uint64_t expert)
{
    return s->routing ? s->routing[layer * s->experts + expert]
                      : (double)s->experts_used / (double)s->experts;
}

static uint32_t group_at(const struct tsr_plan_shape *s, uint64_t layer, uint64_t expert)
{
    return s->groups > 1 ? s->group_of[layer * s->experts + expert] : 0;
}

/* Whether layers have as many experts in each group. */
static bool same_sizes(const uint64_t a[TSR_PLAN_GROUPS], const uint64_t b[TSR_PLAN_GROUPS])
{
    return memcmp(a, b, TSR_PLAN_GROUPS * sizeof *a) == 0;
}

/* The class of a layer that is like `cls` but has these groups, from those that were made of it: from[]. */
static uint32_t class_of(struct tsr_plan_shape *s, uint32_t *from, uint32_t cls,
                         const uint64_t sizes[TSR_PLAN_GROUPS])
{
    uint64_t k = 0;
    for (; k < s->classes; k++)
        if (from[k] == cls && (s->layer[k].group[0] == UINT64_MAX || /* no layer of it yet */
                               same_sizes(s->layer[k].group, sizes)))
            break;
    if (k == s->classes) {
        s->layer[k] = s->layer[cls];
        from[k] = cls;
        s->classes++;
    }
    memcpy(s->layer[k].group, sizes, TSR_PLAN_GROUPS * sizeof *sizes);
    return (uint32_t)k;
}

tsr_status tsr_plan_shape_put_groups(struct tsr_plan_shape *s, uint8_t *of, struct tsr_err *err)
{
    uint32_t *from = tsr_new(s->layers, sizeof *from);
    if (!from) {
        free(of);
        return tsr_fail_nomem(err, s->layers * sizeof *from, "groups of experts");
    }
    free(s->group_of);
    s->group_of = of;
    s->groups = 1;
    for (uint64_t c = 0; c < s->classes; c++) {
        from[c] = (uint32_t)c;
        s->layer[c].group[0] = UINT64_MAX;
    }
    for (uint64_t l = 0; l < s->layers; l++) {
        uint64_t sizes[TSR_PLAN_GROUPS] = { 0 };
        for (uint64_t e = 0; e < s->experts && has_experts(s, l); e++) {
            uint32_t g = of[l * s->experts + e];
            sizes[g]++;
            s->groups = g >= s->groups ? g + 1 : s->groups;
        }
        s->layer_class[l] = class_of(s, from, s->layer_class[l], sizes);
    }
    free(from);
    return TSR_OK;
}

/* Whether expert a comes before b: it suffers more, if that is measured; else more tokens take it; else it is lower. */
static bool before(const struct tsr_plan_shape *s, uint64_t layer, uint64_t a, uint64_t b)
{
    double f = frequency(s, layer, a), g = frequency(s, layer, b);
    double x = s->suffers ? s->suffers[layer * s->experts + a] : 0,
           y = s->suffers ? s->suffers[layer * s->experts + b] : 0;
    if (x > y || x < y)
        return x > y;
    return f > g || (!(f < g) && a < b);
}

/* How many experts of the layer come before this one. */
static uint64_t rank_of(const struct tsr_plan_shape *s, uint64_t layer, uint64_t expert)
{
    uint64_t n = 0;
    for (uint64_t e = 0; e < s->experts; e++)
        n += before(s, layer, e, expert);
    return n;
}

tsr_status tsr_plan_shape_group(struct tsr_plan_shape *s, uint32_t n, struct tsr_err *err)
{
    uint64_t all;
    if (!s->experts)
        return tsr_fail(err, TSR_E_INPUT, "%s: has no experts; leave 'expert_groups' out", s->name);
    if (!s->routing)
        return tsr_fail(err, TSR_E_INPUT,
                        "expert_groups: how often experts are taken is not known; put the step "
                        "'calibrate' before 'plan', or give 'routing: FOLDER'");
    if (n > TSR_PLAN_GROUPS || n > s->experts)
        return tsr_fail(err, TSR_E_INPUT,
                        "expert_groups: %u of %u experts; at most %u are possible", n, s->experts,
                        s->experts < TSR_PLAN_GROUPS ? s->experts : TSR_PLAN_GROUPS);
    uint8_t *of = tsr_mul(s->layers, s->experts, &all) ? tsr_new(all, 1) : NULL;
    if (!of)
        return tsr_fail_nomem(err, s->layers * s->experts, "groups of experts");
    for (uint64_t l = 0; l < s->layers; l++)
        for (uint64_t e = 0; e < s->experts && has_experts(s, l); e++)
            of[l * s->experts + e] = (uint8_t)(rank_of(s, l, e) * n / s->experts);
    return tsr_plan_shape_put_groups(s, of, err);
}

double tsr_plan_shape_group_reached(const struct tsr_plan_shape *s, uint64_t cls, uint32_t group,
                                    double tokens)
{
    double   sum = 0;
    uint64_t layers = 0;
    if (s->groups <= 1)
        return group == 0 ? tsr_plan_shape_reached(s, cls, tokens) : 0;
    for (uint64_t l = 0; l < s->layers; l++) {
        if (s->layer_class[l] != cls || !has_experts(s, l))
            continue;
        layers++;
        for (uint64_t e = 0; e < s->experts; e++)
            if (group_at(s, l, e) == group)
                sum += 1 - pow(1 - frequency(s, l, e), tokens);
    }
    return layers ? sum / (double)layers : 0;
}

double tsr_plan_shape_layer_taken(const struct tsr_plan_shape *s, uint64_t layer, uint32_t group)
{
    double sum = 0;
    for (uint64_t e = 0; e < s->experts; e++)
        if (group_at(s, layer, e) == group)
            sum += frequency(s, layer, e);
    return sum / (double)s->experts_used;
}

double tsr_plan_shape_group_taken(const struct tsr_plan_shape *s, uint64_t cls, uint32_t group)
{
    double   sum = 0;
    uint64_t layers = 0;
    for (uint64_t l = 0; l < s->layers; l++)
        if (s->layer_class[l] == cls) {
            layers++;
            sum += tsr_plan_shape_layer_taken(s, l, group);
        }
    return layers ? sum / (double)layers : 0;
}
