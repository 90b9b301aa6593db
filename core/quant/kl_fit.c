/* Figures of layers that no probe saw, sums over whole plans, and the map from a sum to the measured KL. */
#include "quant/kl.h"

#include <math.h>
#include <stdlib.h>

#define TWICE 2.0 /* spreads of a factor in an interval of 95 % */

/* One factor for a scheme: KL over error, the mean and the spread of the logarithm. */
static void fit_scheme(struct tsr_quant_kl *t, uint32_t k)
{
    double   sum = 0, square = 0;
    uint64_t n = 0;
    for (uint64_t l = 0; l < t->layers; l++) {
        double kl = t->figure[l * t->n_schemes + k].kl, e = t->error[l * t->n_schemes + k];
        if (!t->probed[l] || !(kl > 0) || !(e > 0))
            continue;
        sum += log(kl / e);
        square += log(kl / e) * log(kl / e);
        n++;
    }
    double mean = n ? sum / (double)n : -INFINITY;
    t->factor[k] = exp(mean);
    t->spread[k] =
        n > 1 ? sqrt(fmax(square / (double)n - mean * mean, 0) * (double)n / (double)(n - 1))
              : (double)NAN;
}

void tsr_quant_kl_fit(struct tsr_quant_kl *t)
{
    for (uint32_t k = 0; k < t->n_schemes; k++) {
        fit_scheme(t, k);
        for (uint64_t l = 0; l < t->layers; l++) {
            struct tsr_kl_figure *f = &t->figure[l * t->n_schemes + k];
            if (t->probed[l])
                continue;
            f->kl = t->factor[k] * t->error[l * t->n_schemes + k];
            f->half = f->kl * (exp(TWICE * t->spread[k]) - 1);
        }
    }
}

struct point {
    double w, kl, n;
};

static int by_w(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return (x->w > y->w) - (x->w < y->w);
}

/* Neighbours whose means fall are put together until none does. */
static uint32_t pool(struct point *v, uint32_t n)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        v[m++] = v[i];
        while (m > 1 && v[m - 1].kl <= v[m - 2].kl) {
            struct point *a = &v[m - 2], *b = &v[m - 1];
            double        both = a->n + b->n;
            a->w = (a->w * a->n + b->w * b->n) / both;
            a->kl = (a->kl * a->n + b->kl * b->n) / both;
            a->n = both;
            m--;
        }
    }
    return m;
}

void tsr_quant_kl_map(struct tsr_quant_kl *t)
{
    struct point v[TSR_KL_PLANS];
    uint32_t     n = 0;
    for (uint32_t p = 0; p < t->n_plans; p++) {
        struct tsr_quant_kl_plan *plan = &t->plan[p];
        double                    half = plan->measured.half;
        plan->w = 0;
        for (uint64_t l = 0; l < t->layers; l++)
            if (plan->choice[l] < t->n_schemes) {
                const struct tsr_kl_figure *f = &t->figure[l * t->n_schemes + plan->choice[l]];
                plan->w += fmax(f->kl, 0);
                half += f->half;
            }
        double off = fabs(plan->w - plan->measured.kl);
        plan->fails = off > TSR_KL_OFF * plan->measured.kl && !(off <= half);
        if (plan->w > 0 && plan->measured.kl > 0)
            v[n++] = (struct point){ plan->w, plan->measured.kl, 1 };
    }
    qsort(v, n, sizeof *v, by_w);
    n = pool(v, n);
    t->map_w[0] = t->map_kl[0] = 0;
    t->n_points = 1;
    for (uint32_t i = 0; i < n; i++)
        if (v[i].w > t->map_w[t->n_points - 1]) {
            t->map_w[t->n_points] = v[i].w;
            t->map_kl[t->n_points++] = v[i].kl;
        }
}
