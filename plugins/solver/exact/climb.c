#include "exact.h"

/* The multipliers of a node: a concave function with one kink per plan, climbed with a proximal
 * bundle.  Every plan seen is a cut, value + gradient (y - its y); the next point is the best of the
 * cuts' minimum near the best point so far, found over weights of the cuts, two at a time. */

#define REFINED 6u /* rounds of finer prices at one point */
#define CUTS    UINT64_C(16)

struct bundle {
    uint64_t dim, n;
    double   base[CUTS], weight[CUTS]; /* base: a cut's value at 0 */
    double  *g;                        /* [CUTS][dim] */
    double  *at, *sum, *centre;
    double   top, t, scale;
    unsigned rounds; /* most moves of weight that a point is worth */
};

/* A stage's part of the devices of its pool: those of all its stages sum to at most 1. */
static double part_of(const struct ex *x, uint64_t k)
{
    return (double)x->takes[k] / (double)x->have[x->pool[k]];
}

void ex_weights_set(struct ex *x, const struct ex_model *m, const struct ex_node *n)
{
    struct ex_weights *w = &x->w;
    double             p = 0, d = 0;
    w->p_lo = n->p_lo;
    w->p_hi = n->p_hi;
    w->d_lo = n->d_lo;
    w->d_hi = n->d_hi;
    w->kap = m->kap[0];
    w->c = m->c_max[0];
    if (m->forms == 2) {
        w->kap = n->tau * m->kap[0] + (1 - n->tau) * m->kap[1];
        w->c = n->tau * m->c_max[0] + (1 - n->tau) * m->c_max[1];
    }
    w->link_pre = m->in_sum + n->lam;
    w->link_dec = m->in_sum * w->kap;
    for (uint64_t k = 0; k < x->K; k++) {
        const double *share = n->share + x->pool[k];
        w->a[k] = 1 + n->lam + m->a_max * share[0] * part_of(x, k);
        w->b[k] = w->kap + w->c * share[x->G] * part_of(x, k);
    }
    for (uint64_t g = 0; g < x->G; g++) {
        p += n->share[g];
        d += n->share[x->G + g];
    }
    w->theta = x->theta + n->nu;
    w->konst = m->a_max * fmax(0, 1 + n->lam - p) * n->p_lo + w->c * fmax(0, 1 - d) * n->d_lo +
               w->theta * m->omega;
    if (x->w_limit < INFINITY)
        w->konst -= n->nu * x->w_limit;
    if (m->f_limit < INFINITY)
        w->konst -= n->lam * m->f_limit;
}

/* The gradient at a plan, over shares, tau, nu x scale and lam; and what the plan says of the box. */
static void look(struct ex *x, const struct ex_model *m, const struct ex_node *n,
                 const struct ex_stage *st, uint64_t count, double scale, double *g,
                 struct ex_view *v)
{
    double   f = 0, r = 0, w = m->omega, p = 0, d = 0;
    uint64_t G = x->G;
    memset(v, 0, sizeof *v);
    memset(g, 0, (2 * G + 3) * sizeof *g);
    for (uint64_t i = 0; i < count; i++) {
        g[x->pool[st[i].k]] += st[i].pre * part_of(x, st[i].k);
        g[G + x->pool[st[i].k]] += st[i].dec * part_of(x, st[i].k);
        v->p = fmax(v->p, st[i].pre);
        v->d = fmax(v->d, st[i].dec);
        f += st[i].pre;
        r += st[i].dec;
        w += st[i].w;
        if (i + 1 < count) {
            const double *l = ex_link_ms(x, m, st[i + 1].link, st[i].k, st[i + 1].k);
            v->p = fmax(v->p, l[0]);
            v->d = fmax(v->d, l[1]);
            f += l[0];
            r += m->in_sum * l[1];
            w += ex_link_omega(x, st[i + 1].link, st[i].e - 1);
        }
    }
    for (uint64_t k = 0; k < G; k++) {
        v->p_mean += n->share[k] * g[k] / (1 + n->lam);
        v->d_mean += n->share[G + k] * g[G + k];
        p += n->share[k] / (1 + n->lam);
        d += n->share[G + k];
        g[k] = m->a_max * (g[k] - n->p_lo);
        g[G + k] = x->w.c * (g[G + k] - n->d_lo);
    }
    v->r = r;
    v->p_mean += fmax(0, 1 - p) * n->p_lo;
    v->d_mean += fmax(0, 1 - d) * n->d_lo;
    if (m->forms == 2)
        g[2 * G] = (m->kap[0] - m->kap[1]) * r + (m->c_max[0] - m->c_max[1]) * v->d_mean;
    if (x->w_limit < INFINITY)
        g[2 * G + 1] = (w - x->w_limit) * scale;
    if (m->f_limit < INFINITY)
        g[2 * G + 2] = f + m->a_max * n->p_lo - m->f_limit;
}

/* To the nearest point with no negative share and a sum of at most `most`.  Comparisons, as fmax() would
 * be a call: this is the inner loop of small problems. */
static void to_simplex(double *y, uint64_t n, double most)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        y[i] = y[i] > 0 ? y[i] : 0;
        sum += y[i];
    }
    for (uint64_t round = 0; round < n && sum > most * (1 + 1e-12); round++) {
        double active = 0;
        for (uint64_t i = 0; i < n; i++)
            active += y[i] > 0;
        double less = (sum - most) / active;
        sum = 0;
        for (uint64_t i = 0; i < n; i++) {
            y[i] = y[i] > less ? y[i] - less : 0;
            sum += y[i];
        }
    }
}

/* y within shares, the mixture of forms and two prices, where there are these: see struct ex_node. */
static void project(double *y, uint64_t G, uint64_t dim)
{
    for (uint64_t i = 2 * G + 1; i < dim; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
    to_simplex(y, G, dim > 2 * G + 2 ? 1 + y[2 * G + 2] : 1);
    to_simplex(y + G, G, 1);
    if (dim > 2 * G)
        y[2 * G] = y[2 * G] > 1 ? 1 : y[2 * G] > 0 ? y[2 * G] : 0;
}

static double dot(const double *a, const double *b, uint64_t n)
{
    double s = 0;
    for (uint64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

/* Puts the next point into b->at; returns the value that the cuts predict there. */
static double next_point(struct bundle *b, uint64_t G)
{
    double total = 0, low = INFINITY;
    for (uint64_t i = 0; i < b->n; i++)
        total += b->weight[i];
    for (uint64_t i = 0; i < b->n; i++)
        b->weight[i] = total > 0 ? b->weight[i] / total : i + 1 == b->n;
    for (unsigned round = 0; round < b->rounds; round++) {
        uint64_t lo = 0, hi = b->n;
        double   least = INFINITY, most = -INFINITY;
        memset(b->sum, 0, b->dim * sizeof *b->sum);
        for (uint64_t i = 0; i < b->n; i++) {
            for (uint64_t j = 0; b->weight[i] > 0 && j < b->dim; j++)
                b->sum[j] += b->weight[i] * b->g[i * b->dim + j];
        }
        for (uint64_t j = 0; j < b->dim; j++)
            b->at[j] = b->centre[j] + b->t * b->sum[j];
        project(b->at, G, b->dim);
        for (uint64_t i = 0; i < b->n; i++) {
            double v = b->base[i] + dot(b->g + i * b->dim, b->at, b->dim);
            if (v < least) {
                least = v;
                lo = i;
            }
            if (v > most && b->weight[i] > 0) {
                most = v;
                hi = i;
            }
        }
        low = least;
        double bend = 0;
        for (uint64_t j = 0; hi < b->n && j < b->dim; j++) {
            double diff = b->g[lo * b->dim + j] - b->g[hi * b->dim + j];
            bend += diff * diff;
        }
        if (!(most - least > 1e-7 * fabs(least)) || !(bend > 0))
            break;
        double step = fmin(b->weight[hi], (most - least) / (b->t * bend));
        b->weight[hi] -= step;
        b->weight[lo] += step;
    }
    return low;
}

/* The same, with more rounds where the weights are not yet those of the best point: the cuts' minimum
 * there is never below the best value so far.  Only with the price of a limit: its gradients change by
 * orders of magnitude between plans.  Shares alone need no more, and more rounds take longer. */
static double sure_point(struct bundle *b, uint64_t G)
{
    double promise = next_point(b, G);
    for (unsigned more = 0; more < 16 && b->dim > 2 * G + 1 && !(promise >= b->top); more++)
        promise = next_point(b, G);
    return promise;
}

static void add_cut(struct bundle *b, double value, const double *y, const double *g)
{
    uint64_t at = b->n;
    if (at == CUTS) {
        at = 0;
        for (uint64_t i = 1; i < CUTS; i++)
            if (b->weight[i] < b->weight[at])
                at = i;
    } else {
        b->n++;
    }
    b->base[at] = value - dot(g, y, b->dim);
    b->weight[at] = 0;
    memcpy(b->g + at * b->dim, g, b->dim * sizeof *g);
}

static void to_node(const struct bundle *b, const double *y, struct ex_node *n, uint64_t G)
{
    memcpy(n->share, y, 2 * G * sizeof *y);
    n->tau = y[2 * G];
    n->nu = y[2 * G + 1] * b->scale;
    n->lam = y[2 * G + 2];
}

/* Value and gradient at the node's multipliers. */
static double evaluate(struct ex *x, struct ex_node *n, double scale, double *most, bool columns,
                       double *g, struct ex_view *v)
{
    struct ex_model *m = &x->models[n->model];
    ex_weights_set(x, m, n);
    if (columns)
        ex_columns_price(x, m);
    else
        ex_relax(x, m);
    double value = ex_forward(x, m) + x->w.konst;
    if (!(value < INFINITY))
        return INFINITY;
    uint64_t count = ex_walk(x, m, x->trial);
    for (unsigned round = 0; !columns && x->many && round < REFINED && value < *most; round++) {
        bool finer = false;
        for (uint64_t j = 0; j < count; j++)
            finer |= ex_refine(x, m, &x->trial[j], 2e-6 * fabs(value));
        if (!finer)
            break;
        ex_relax(x, m);
        value = ex_forward(x, m) + x->w.konst;
        if (!(value < INFINITY))
            return INFINITY;
        count = ex_walk(x, m, x->trial);
    }
    bool fits = !columns; /* a plan near the bound's */
    for (uint64_t j = 0; j < count && fits; j++)
        fits = ex_relax_fit(x, m, &x->trial[j]);
    if (fits) {
        ex_incumbent(x, n->model, x->trial, count, x->fit);
        *most = fmin(*most, x->target);
    }
    if (!columns && count && x->many && x->aim == EX_OBJECTIVE &&
        x->polished < (x->all_labels + x->all_paths) / 4) {
        ex_polish(x, m, x->trial, count, x->all_labels + x->all_paths);
        *most = fmin(*most, x->target);
    }
    for (uint64_t j = 0; j < count; j++)
        if (columns)
            ex_columns_stage(x, &x->trial[j]);
        else
            ex_relax_stage(x, m, &x->trial[j]);
    if (columns) {
        ex_incumbent(x, n->model, x->trial, count, NULL);
        *most = fmin(*most, x->target);
        ex_backward(x, m, x->bwd);
        ex_around(x, m);
        ex_columns_filter(x, *most - x->w.konst);
    }
    look(x, m, n, x->trial, count, scale, g, v);
    return value;
}

double ex_climb(struct ex *x, struct ex_node *n, unsigned steps, double most, bool columns,
                struct ex_view *v)
{
    uint64_t               G = x->G;
    const struct ex_model *m = &x->models[n->model];
    /* the mixture and the prices stay if there is no choice */
    uint64_t dim = 2 * G + (m->f_limit < INFINITY ? 3 : x->w_limit < INFINITY ? 2 : m->forms - 1);
    double  *p = x->bundle;
    struct bundle b = { .dim = dim, .scale = 1, .rounds = x->small ? 12 : 60 };
    b.g = p;
    b.at = p + CUTS * (2 * G + 3);
    b.sum = b.at + 2 * G + 3;
    b.centre = b.sum + 2 * G + 3;
    double *g = b.centre + 2 * G + 3;
    if (x->w_limit < INFINITY)
        b.scale = (x->target < INFINITY ? fabs(x->target) : 1) / fmax(x->w_scale, 1e-300);
    memcpy(b.centre, n->share, 2 * G * sizeof *b.centre);
    b.centre[2 * G] = n->tau;
    b.centre[2 * G + 1] = n->nu / b.scale;
    b.centre[2 * G + 2] = n->lam;
    memcpy(b.at, b.centre, (2 * G + 3) * sizeof *b.at);
    b.top = evaluate(x, n, b.scale, &most, columns, g, v);
    if (!(b.top < INFINITY))
        return INFINITY;
    add_cut(&b, b.top, b.centre, g);
    x->fresh = !columns;
    b.t = 1e-4 * fabs(b.top) / fmax(dot(g, g, dim), 1e-300);
    double longest = 1e8 * b.t;
    for (unsigned i = 1; i < steps && b.top < most; i++) {
        struct ex_view now;
        double         promise = sure_point(&b, G);
        double         wish = 0.003 * fabs(b.top);
        if (x->small && most < INFINITY)
            wish = fmax(wish, 0.5 * (most - b.top)); /* half of the way to the best plan */
        /* short steps promise little; cuts that promise little far away are the end */
        for (double less = -INFINITY; promise - b.top < wish && promise > less && b.t < longest;) {
            less = promise + 1e-9 * fabs(promise); /* no more by that: the cuts' maximum */
            b.t *= 3;
            promise = sure_point(&b, G);
        }
        if (!(promise - b.top > 2e-5 * fabs(b.top))) {
            n->settled = true;
            break;
        }
        to_node(&b, b.at, n, G);
        double value = evaluate(x, n, b.scale, &most, columns, g, &now);
        if (!(value < INFINITY))
            return INFINITY;
        add_cut(&b, value, b.at, g);
        x->fresh = !columns && value > b.top;
        if (value > b.top) {
            b.t *= value - b.top > 0.5 * (promise - b.top) ? 2 : 1;
            b.top = value;
            memcpy(b.centre, b.at, dim * sizeof *b.at);
            *v = now;
        } else {
            b.t *= 0.4;
        }
    }
    to_node(&b, b.centre, n, G);
    return b.top;
}

uint64_t ex_bundle_size(uint64_t G)
{
    return (CUTS + 4) * (2 * G + 3);
}
