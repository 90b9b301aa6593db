#include "exact.h"

/* The quantiles of relax.c are coarse where a layer has many candidates.  Here the prices of the stages of a
 * bound's plan are raised or lowered to where they bound these best, and kept for the kind: any price bounds
 * every stage. */

#define PASSES 2u  /* over memory, prefill and decode */
#define STEPS  12u /* tangents of one axis */

struct stage_of {
    struct ex             *x;
    const struct ex_model *m;
    uint64_t               k, s, e;
};

static double *axis_of(struct ex_price *p, int axis)
{
    return axis == 0 ? &p->mem : axis == 1 ? &p->pre : &p->dec;
}

/* The bound of a stage at a price, and its slope along an axis. */
static double bound_at(const struct stage_of *o, const struct ex_price *p, int axis, double *slope)
{
    const struct ex *x = o->x;
    double           v = ex_relax_constant(x, o->m, p, o->k, o->s, o->e), mem = 0, pre = 0, dec = 0;
    double           a = x->w.a[o->k] + p->pre, b = x->w.b[o->k] + p->dec;
    for (uint64_t l = o->s; l < o->e; l++) {
        uint32_t              n, at = 0;
        const struct ex_item *it = ex_items_of(x, o->m, o->k, l, &n);
        const double         *omega = ex_omega_of(x, o->k, l);
        double                least = INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            double c = a * it[i].pre + b * it[i].dec + p->mem * (double)it[i].mem +
                       x->w.theta * omega[it[i].q];
            at = c < least ? i : at;
            least = c < least ? c : least;
        }
        v += least;
        mem += (double)it[at].mem;
        pre += it[at].pre;
        dec += it[at].dec;
    }
    const double *t = o->m->end + o->k * 4;
    bool          first = o->s == 0, last = o->e == x->L;
    if (axis == 0)
        *slope = mem + (first ? (double)o->m->embed : 0) + (last ? (double)o->m->head : 0) -
                 (double)o->m->room[o->k];
    else if (axis == 1)
        *slope = pre + (first ? t[0] : 0) + (last ? t[2] : 0) - x->w.p_hi;
    else
        *slope = dec + (first ? t[1] : 0) + (last ? t[3] : 0) - x->w.d_hi;
    return v;
}

/* Moves one part of the price to where the bound is greatest: it is concave, so its tangents from both
 * sides meet above that. */
static double climb_axis(const struct stage_of *o, struct ex_price *p, int axis, double from)
{
    double *at = axis_of(p, axis), best = *at, lo = 0, hi = *at, slope_lo, slope_hi;
    *at = 0;
    double v_lo = bound_at(o, p, axis, &slope_lo), v_hi;
    if (v_lo > from) {
        from = v_lo;
        best = 0;
    }
    if (slope_lo <= 0)
        return from; /* at 0 */
    hi = hi > 0 ? hi : 1e-3 * fabs(from) / slope_lo;
    for (unsigned i = 0;; i++) {
        *at = hi;
        v_hi = bound_at(o, p, axis, &slope_hi);
        if (v_hi > from) {
            from = v_hi;
            best = hi;
        }
        if (slope_hi <= 0 || i == 40)
            break;
        lo = hi;
        v_lo = v_hi;
        slope_lo = slope_hi;
        hi *= 2;
    }
    for (unsigned i = 0; i < STEPS && slope_hi < 0 && slope_lo > 0; i++) {
        double slope, mid = (v_hi - v_lo + slope_lo * lo - slope_hi * hi) / (slope_lo - slope_hi);
        if (!(mid > lo && mid < hi))
            break;
        *at = mid;
        double v = bound_at(o, p, axis, &slope), top = v_lo + slope_lo * (mid - lo);
        if (v > from) {
            from = v;
            best = mid;
        }
        if (!(top - v > 1e-7 * fabs(v)))
            break;
        if (slope > 0) {
            lo = mid;
            v_lo = v;
            slope_lo = slope;
        } else {
            hi = mid;
            v_hi = v;
            slope_hi = slope;
        }
    }
    *at = best;
    return from;
}

bool ex_refine(struct ex *x, const struct ex_model *m, const struct ex_stage *st, double worth)
{
    struct stage_of o = { x, m, st->k, st->s, st->e };
    uint32_t        g = ex_relax_price(x, m, st->k, st->s, st->e);
    struct ex_price p = x->price[o.k * EX_PRICES + g];
    double          was = x->cost[EX_SEG(x, o.k, o.s, o.e)], v = was;
    for (unsigned pass = 0; pass < PASSES; pass++)
        for (int axis = 0; axis < 3; axis++)
            if (axis == 0 || (axis == 1 ? x->w.p_hi : x->w.d_hi) < INFINITY)
                v = climb_axis(&o, &p, axis, v);
    if (!(v - was > worth))
        return false;
    uint32_t *n = &x->n_finer[o.k];
    x->finer[o.k * EX_FINER + *n % EX_FINER] = p;
    *n = *n + 1 == 2 * EX_FINER ? EX_FINER : *n + 1;
    return true;
}
