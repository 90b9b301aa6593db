/* The best plan so far, and what a better one must be below. */
#include "exact.h"

#include <math.h>
#include <string.h>

void ex_incumbent(struct ex *x, uint64_t model, const struct ex_stage *st, uint64_t n)
{
    double v = ex_value(x, &x->models[model], st, n);
    if (!(v < x->best))
        return;
    x->best = v;
    x->best_model = model;
    x->n_best = n;
    memcpy(x->stages, st, n * sizeof *st);
    /* nine tenths of the gap: the rest is for the rounding of others.  1e-11: ours */
    double gap = 0.9 * x->in->gap > 1e-11 && x->aim == EX_OBJECTIVE ? 0.9 * x->in->gap : 1e-11;
    x->target = v - gap * fabs(v);
}
