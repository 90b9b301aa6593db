/* A cheap bound: every layer independently.
 *
 * A maximum over the stages is at least any weighted mean of them; multipliers of the memory of all
 * devices together and of max_omega are subtracted with their limits. The remainder is a sum over layers,
 * each at its best device and bit. Every choice of weights and multipliers gives a valid bound; the best
 * of some is taken. */
#include "plan.h"

#include "host.h"

#include <math.h>

struct relaxed {
    const struct tsr_solver_instance *in;
    const struct tsr_solver_option   *o;
    struct plan_counts                c;
    uint64_t                          devices; /* that can hold a layer, at most one per layer */
    double                            room;    /* bytes for layers on all devices */
    /* weights of the objective: of the sums and of the maxima */
    double sum_pre, sum_dec, max_pre, max_dec;
    bool   balanced; /* faster kinds weigh more in the mean */
    double share;    /* sum over the devices of 1 / time of a layer, or their number */
};

static bool fits(const struct relaxed *r, uint64_t k, uint64_t l, uint64_t q)
{
    return plan_can_run(r->in, r->o, k, l, q) &&
           plan_layer_bytes(r->in, l, q) <= plan_room(r->in, r->o, k) &&
           plan_host_bytes(r->in, l, q) <= plan_host_room(r->in, k);
}

static bool usable(const struct relaxed *r, uint64_t k, uint64_t l, uint64_t q)
{
    return fits(r, k, l, q) && r->in->omega[l * r->in->bits + q] <= plan_omega_limit(r->in);
}

/* What a typical layer costs in the bottleneck of kind k; INFINITY for a kind that holds none. */
static double pace(const struct relaxed *r, uint64_t k)
{
    double sum = 0;
    for (uint64_t l = 0; l < r->in->layers; l++) {
        double least = INFINITY;
        for (uint64_t q = 0; q < r->in->bits; q++) {
            uint64_t e = plan_entry(r->in, k, l, q);
            if (usable(r, k, l, q))
                least = fmin(least, r->max_pre * r->o->pre_ms[e] + r->max_dec * r->o->dec_ms[e]);
        }
        if (least < INFINITY)
            sum += least;
    }
    return sum > 0 ? sum : INFINITY;
}

static double weight(const struct relaxed *r, uint64_t k)
{
    return r->balanced ? 1 / pace(r, k) / r->share : 1 / (double)r->devices;
}

/* The bound for one pair of multipliers (per byte, per omega). */
static double value(const struct relaxed *r, const double *w, double per_byte, double per_omega)
{
    double sum = -per_byte * r->room;
    if (r->in->max_omega >= 0)
        sum -= per_omega * plan_omega_limit(r->in);
    for (uint64_t l = 0; l < r->in->layers; l++) {
        double least = INFINITY;
        for (uint64_t k = 0; k < r->in->n_kinds && k < 64; k++)
            for (uint64_t q = 0; q < r->in->bits; q++) {
                uint64_t e = plan_entry(r->in, k, l, q);
                if (!usable(r, k, l, q))
                    continue;
                double c = (r->sum_pre + r->max_pre * w[k]) * r->o->pre_ms[e] +
                           (r->sum_dec + r->max_dec * w[k]) * r->o->dec_ms[e] +
                           (r->in->theta + per_omega) * r->in->omega[l * r->in->bits + q] +
                           per_byte * (double)plan_layer_bytes(r->in, l, q);
                least = fmin(least, c);
            }
        sum += least;
    }
    return sum;
}

/* The largest value over one multiplier, by ternary search over its logarithm: the value is
 * concave in it. */
static double raise_one(const struct relaxed *r, const double *w, double *m, const double *other,
                        bool bytes, double around)
{
    double low = log(around) - 14, high = log(around) + 14, best;
#define VALUE(x) (bytes ? value(r, w, x, *other) : value(r, w, *other, x))
    for (int i = 0; i < 40; i++) {
        double a = low + (high - low) / 3, b = high - (high - low) / 3;
        if (VALUE(exp(a)) < VALUE(exp(b)))
            low = a;
        else
            high = b;
    }
    best = VALUE(0);
    *m = 0;
    if (VALUE(exp(low)) > best) {
        best = VALUE(exp(low));
        *m = exp(low);
    }
#undef VALUE
    return best;
}

static double best_multipliers(struct relaxed *r)
{
    double w[64] = { 0 }, bytes = 0, omega = 0;
    r->share = 0;
    for (uint64_t k = 0; r->balanced && k < r->in->n_kinds; k++)
        r->share += (double)r->in->kinds[k]->count / pace(r, k);
    if (r->balanced && !(r->share > 0 && r->share < INFINITY))
        return -INFINITY;
    for (uint64_t k = 0; k < r->in->n_kinds && k < 64; k++)
        w[k] = weight(r, k);
    double best = value(r, w, 0, 0), least = fmax(best, 1e-3);
    for (int round = 0; round < 2; round++) {
        if (r->room > 0)
            best = fmax(best, raise_one(r, w, &bytes, &omega, true, least / r->room));
        if (!(r->in->max_omega >= 0))
            break;
        best = fmax(best, raise_one(r, w, &omega, &bytes, false,
                                    least / fmax(plan_omega_limit(r->in), 1e-9)));
    }
    return best;
}

static double best_weights(struct relaxed *r)
{
    const struct plan_counts *c = &r->c;
    bool                      paper = r->in->objective == TSR_OBJECTIVE_PAPER;
    double                    best = -INFINITY;
    r->sum_pre = 1;
    r->max_pre = c->mu_pre - 1;
    /* both terms of the decode time of `steady` are bounds of it */
    for (int term = 0; term < (paper || r->in->tokens == 1 ? 1 : 2); term++) {
        r->sum_dec = paper ? 1 : r->in->tokens == 1 ? 0 : term == 0 ? c->steps : 1;
        r->max_dec = paper                ? (c->mu_dec - 1) * c->steps
                     : r->in->tokens == 1 ? 0
                     : term == 0          ? c->mu_dec - 1
                                          : c->steps * c->mu_dec - 1;
        for (int b = 0; b < 2; b++) {
            r->balanced = b == 1;
            best = fmax(best, best_multipliers(r));
        }
    }
    return best;
}

/* Why no plan exists, as far as single layers and sums show. */
static const char *impossible(const struct relaxed *r)
{
    const struct tsr_solver_instance *in = r->in;
    uint64_t                          bytes = plan_add(in->embed_bytes, in->head_bytes), room = 0;
    double                            omega = 0;
    for (uint64_t k = 0; k < in->n_kinds; k++)
        for (uint32_t i = 0; i < in->kinds[k]->count; i++)
            room = plan_add(room, plan_room(in, r->o, k));
    for (uint64_t l = 0; l < in->layers; l++) {
        uint64_t lb = UINT64_MAX;
        double   lw = INFINITY;
        for (uint64_t k = 0; k < in->n_kinds; k++)
            for (uint64_t q = 0; q < in->bits; q++)
                if (fits(r, k, l, q)) {
                    uint64_t need = plan_layer_bytes(in, l, q);
                    lb = need < lb ? need : lb;
                    lw = fmin(lw, in->omega[l * in->bits + q]);
                }
        if (lb == UINT64_MAX)
            return "a layer fits on no device in any bit that it can run";
        bytes = plan_add(bytes, lb);
        omega += lw;
    }
    if (bytes > room)
        return "the smallest layers need more memory than all devices have";
    /* 1e-12: the sum above and a plan's are rounded differently */
    if (omega > plan_omega_limit(in) * (1 + 1e-12))
        return "max_omega is below the smallest possible sum of omega";
    return NULL;
}

double plan_bound(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                  const char **why)
{
    struct relaxed r = { .in = in, .o = o, .c = plan_counts(in, o) };
    uint64_t       devices = plan_devices(in);
    if (!in->allow_unused && devices > in->layers) {
        *why = "more devices than layers, and all must be used";
        return INFINITY;
    }
    const char *reason = impossible(&r);
    if (reason) {
        *why = reason;
        return INFINITY;
    }
    for (uint64_t k = 0; k < in->n_kinds; k++)
        r.room += (double)in->kinds[k]->count * (double)plan_room(in, o, k);
    r.room -= (double)in->embed_bytes + (double)in->head_bytes;
    r.room *= 1 + 1e-12;
    r.devices = devices < in->layers ? devices : in->layers;
    if (in->n_kinds > 64)
        return 0; /* times and omega are not negative */
    /* 1e-9: sums of a few hundred thousand numbers in another order */
    double v = best_weights(&r);
    return fmax(0, v - 1e-9 * fabs(v));
}

double plan_bound_all(const struct tsr_solver_instance *in, const char **why)
{
    double least = INFINITY;
    for (uint64_t i = 0; i < in->n_options; i++)
        least = fmin(least, plan_bound(in, in->options[i], why));
    return least;
}
