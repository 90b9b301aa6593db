#include "plan/search/widths.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* best[l][t]: the smallest sum of the first l layers with exactly t bits; pick[l][t]: the width of
 * layer l - 1 there. */
struct table {
    double  *best;
    uint8_t *pick;
    uint64_t stride; /* total + 1 */
};

static void fill(const struct table *t, const double *cost, uint64_t layers, const uint32_t *bits,
                 uint32_t n)
{
    for (uint64_t i = 0; i < (layers + 1) * t->stride; i++)
        t->best[i] = INFINITY;
    t->best[0] = 0;
    for (uint64_t l = 0; l < layers; l++)
        for (uint64_t used = 0; used < t->stride; used++) {
            double so_far = t->best[l * t->stride + used];
            for (uint32_t b = 0; b < n && isfinite(so_far); b++) {
                uint64_t then = used + bits[b];
                double   c = cost[l * n + b];
                if (then >= t->stride || !isfinite(c))
                    continue;
                uint64_t at = (l + 1) * t->stride + then;
                if (so_far + c < t->best[at]) {
                    t->best[at] = so_far + c;
                    t->pick[at] = (uint8_t)b;
                }
            }
        }
}

static tsr_status walk_back(const struct table *t, uint64_t layers, const uint32_t *bits,
                            uint32_t *chosen, double *sum, struct tsr_err *err)
{
    uint64_t end = 0;
    double   best = INFINITY;
    for (uint64_t used = 0; used < t->stride; used++)
        if (t->best[layers * t->stride + used] < best) {
            best = t->best[layers * t->stride + used];
            end = used;
        }
    if (!isfinite(best))
        return tsr_fail(err, TSR_E_INFEASIBLE,
                        "no choice of widths for %llu layers has at most %llu bits in sum",
                        (unsigned long long)layers, (unsigned long long)(t->stride - 1));
    *sum = best;
    for (uint64_t l = layers; l-- > 0;) {
        chosen[l] = t->pick[(l + 1) * t->stride + end];
        end -= bits[chosen[l]];
    }
    return TSR_OK;
}

tsr_status tsr_plan_widths_choose(const double *cost, uint64_t layers, const uint32_t *bits,
                                  uint32_t n, uint64_t total, uint32_t *chosen, double *sum,
                                  struct tsr_err *err)
{
    uint64_t     cells;
    uint64_t     most = 64;
    struct table t = { .stride = 0 };
    /* more than every layer's most is as good as that */
    if (n == 0 || n > TSR_WIDTHS || !tsr_mul(layers, most, &most))
        return tsr_fail(err, TSR_E_INVAL, "%u widths for %llu layers", n,
                        (unsigned long long)layers);
    t.stride = (total < most ? total : most) + 1;
    if (!tsr_mul(layers + 1, t.stride, &cells))
        return tsr_fail_nomem(err, UINT64_MAX, "a table of widths");
    t.best = tsr_new(cells, sizeof *t.best);
    t.pick = tsr_new(cells, 1);
    tsr_status st = t.best && t.pick ? TSR_OK : tsr_fail_nomem(err, cells * 9, "a table of widths");
    if (st == TSR_OK) {
        fill(&t, cost, layers, bits, n);
        st = walk_back(&t, layers, bits, chosen, sum, err);
    }
    free(t.best);
    free(t.pick);
    return st;
}
