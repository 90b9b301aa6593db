/* The best plan so far, and what a better one must be below. */
#include "exact.h"

#include <math.h>
#include <string.h>

void ex_incumbent(struct ex *x, uint64_t model, const struct ex_stage *st, uint64_t n,
                  const uint32_t *bits)
{
    double v = ex_value(x, &x->models[model], st, n);
    if (!(v < x->best))
        return;
    x->best = v;
    x->best_model = model;
    x->n_best = n;
    memcpy(x->stages, st, n * sizeof *st);
    x->has_bits = bits != NULL;
    if (bits)
        memcpy(x->bits, bits, x->L * sizeof *bits);
    /* nine tenths of the gap: the rest is for the rounding of others.  1e-11: ours */
    double gap = 0.9 * x->in->gap > 1e-11 && x->aim == EX_OBJECTIVE ? 0.9 * x->in->gap : 1e-11;
    x->target = v - gap * fabs(v);
}

bool ex_incumbent_bits(struct ex *x, const struct ex_stage *st, uint32_t *bits)
{
    if (!x->has_bits)
        return ex_columns_bits(x, &x->models[x->best_model], st, bits);
    memcpy(bits + st->s, x->bits + st->s, (st->e - st->s) * sizeof *bits);
    return true;
}
