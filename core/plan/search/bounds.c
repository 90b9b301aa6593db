#include "plan/search/bounds.h"

#include <math.h>

void tsr_plan_bounds_put(struct tsr_plan_bounds *b, uint64_t i, double limit, double slope,
                         double value)
{
    if (isnan(value) || value == -INFINITY || b->used[i] == TSR_PLAN_BOUND_LINES)
        return;
    b->lines[i * TSR_PLAN_BOUND_LINES + b->used[i]++] =
        (struct tsr_plan_bound_line){ .limit = limit, .slope = slope, .value = value };
}

/* Less omega than this no plan has: the greatest limit without one. */
static double least_omega(const struct tsr_plan_bounds *b, uint64_t i)
{
    const struct tsr_plan_bound_line *v = b->lines + i * TSR_PLAN_BOUND_LINES;
    double                            least = 0;
    for (uint32_t k = 0; k < b->used[i]; k++)
        if (v[k].value == INFINITY && v[k].limit < INFINITY)
            least = fmax(least, v[k].limit);
    return least;
}

/* From one line. Omega is neither below `least` nor above the limit, nor is time negative. */
static double from_one(const struct tsr_plan_bound_line *l, double limit, double slope,
                       double least)
{
    if (slope >= l->slope)
        return l->value + (slope - l->slope) * least;
    return fmax(l->value - (l->slope - slope) * limit, l->value * (slope / l->slope));
}

/* Between two lines, of which one is less steep: a mean of both. */
static double from_two(const struct tsr_plan_bound_line *l, const struct tsr_plan_bound_line *m,
                       double slope)
{
    double part = (slope - l->slope) / (m->slope - l->slope);
    return (1 - part) * l->value + part * m->value;
}

double tsr_plan_bounds_get(const struct tsr_plan_bounds *b, uint64_t i, double limit, double slope)
{
    const struct tsr_plan_bound_line *v = b->lines + i * TSR_PLAN_BOUND_LINES;
    double                            most = -INFINITY, least = least_omega(b, i);
    for (uint32_t k = 0; k < b->used[i]; k++) {
        if (!(v[k].limit >= limit))
            continue;
        if (v[k].value == INFINITY)
            return INFINITY;
        most = fmax(most, from_one(&v[k], limit, slope, least));
        for (uint32_t j = 0; j < b->used[i] && v[k].slope < slope; j++)
            if (v[j].limit >= limit && v[j].slope > slope)
                most = fmax(most, from_two(&v[k], &v[j], slope));
    }
    return most;
}
