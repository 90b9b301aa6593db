#include "plan/search/bounds.h"

#include "base/mem.h"
#include "plan/search/lines.h"
#include "plan/search/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tsr_status tsr_plan_bounds_open(struct tsr_plan_bounds *b, const struct tsr_plan_problem *p,
                                struct tsr_err *err)
{
    *b = (struct tsr_plan_bounds){ .list = tsr_new(TSR_PLAN_SETTINGS, sizeof *b->list) };
    if (!b->list)
        return tsr_fail_nomem(err, TSR_PLAN_SETTINGS * sizeof *b->list, "settings of a plan");
    uint64_t n = b->n = tsr_plan_settings_of(p, b->list);
    b->used = tsr_new(n, sizeof *b->used);
    b->lines = tsr_new(n * TSR_PLAN_BOUND_LINES, sizeof *b->lines);
    b->options = tsr_new(2 * n, sizeof *b->options);
    if (!b->used || !b->lines || !b->options)
        return tsr_fail_nomem(err, n * TSR_PLAN_BOUND_LINES * sizeof *b->lines,
                              "bounds of settings");
    return TSR_OK;
}

void tsr_plan_bounds_close(struct tsr_plan_bounds *b)
{
    for (uint64_t i = 0; b->options && i < 2 * b->n; i++)
        tsr_plan_lines_free(&b->options[i]);
    free(b->options);
    free(b->lines);
    free(b->used);
    free(b->list);
    *b = (struct tsr_plan_bounds){ 0 };
}

static bool is_same(const struct tsr_plan_setting *s, const struct tsr_plan_setting *t)
{
    return s->concurrency == t->concurrency && s->chunk == t->chunk && s->kv == t->kv &&
           s->end == t->end && s->types == t->types && s->most_k == t->most_k;
}

void tsr_plan_bounds_take(struct tsr_plan_bounds *b, struct tsr_plan_bounds *from)
{
    for (uint64_t i = 0; i < b->n; i++)
        for (uint64_t j = 0; j < from->n; j++) {
            if (!is_same(&b->list[i], &from->list[j]))
                continue;
            b->used[i] = from->used[j];
            memcpy(b->lines + i * TSR_PLAN_BOUND_LINES, from->lines + j * TSR_PLAN_BOUND_LINES,
                   from->used[j] * sizeof *b->lines);
            for (uint64_t k = 0; k < 2; k++) {
                b->options[2 * i + k] = from->options[2 * j + k];
                from->options[2 * j + k] = (struct tsr_plan_lines){ 0 };
            }
            break;
        }
}

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
