#include "exact.h"

/* ---- queue ----------------------------------------------------------------- */

static struct ex_node *node_new(struct ex *x, const struct ex_node *from)
{
    uint64_t        size = sizeof *from + 2 * x->G * sizeof(double);
    struct ex_node *n = ex_new(x, 1, size);
    if (n && from)
        memcpy(n, from, size);
    return n;
}

/* Takes the node over. */
static void push(struct ex *x, struct ex_node *n)
{
    if (!n || !ex_grow(x, (void **)&x->heap, &x->heap_room, x->n_heap + 1, sizeof(void *))) {
        ex_free(x, n);
        return;
    }
    uint64_t i = x->n_heap++;
    for (; i > 0 && x->heap[(i - 1) / 2]->bound > n->bound; i = (i - 1) / 2)
        x->heap[i] = x->heap[(i - 1) / 2];
    x->heap[i] = n;
}

static struct ex_node *pop(struct ex *x)
{
    struct ex_node *top = x->heap[0], *n = x->heap[--x->n_heap];
    uint64_t        i = 0;
    for (;;) {
        uint64_t c = 2 * i + 1;
        if (c + 1 < x->n_heap && x->heap[c + 1]->bound < x->heap[c]->bound)
            c++;
        if (c >= x->n_heap || x->heap[c]->bound >= n->bound)
            break;
        x->heap[i] = x->heap[c];
        i = c;
    }
    x->heap[i] = n;
    return top;
}

/* ---- one node -------------------------------------------------------------- */

static void weigh(struct ex *x, const struct ex_model *m, double a, double b, double theta,
                  double link_pre, double link_dec)
{
    for (uint64_t k = 0; k < x->K; k++) {
        x->w.a[k] = a;
        x->w.b[k] = b;
    }
    x->w.theta = theta;
    x->w.link_pre = link_pre;
    x->w.link_dec = link_dec;
    ex_columns_price(x, m);
}

/* Potentials for ex_labels_run(), the node's own ones last. */
static void potentials(struct ex *x, const struct ex_node *n)
{
    struct ex_model *m = &x->models[n->model];
    ex_weights_set(x, m, n);
    weigh(x, m, 1, x->w.kap, x->theta, m->in_sum, m->in_sum * x->w.kap);
    ex_backward(x, m, x->bwd0);
    if (x->w_limit < INFINITY) {
        weigh(x, m, 0, 0, 1, 0, 0);
        ex_backward(x, m, x->bwdw);
    }
    if (m->f_limit < INFINITY) {
        weigh(x, m, 1, 0, 0, 1, 0);
        ex_backward(x, m, x->bwdf);
    }
    ex_weights_set(x, m, n);
    ex_columns_price(x, m);
    ex_columns_sort(x);
    (void)ex_forward(x, m);
    ex_backward(x, m, x->bwd);
}

/* Searches the node, whose multipliers were just climbed, for plans below most; true: there are none
 * but the incumbent. */
static bool finish(struct ex *x, struct ex_node *n, double most, struct ex_view *v)
{
    struct ex_model *m = &x->models[n->model];
    struct ex_view   ours;
    ex_weights_set(x, m, n);
    if (!x->fresh) {
        ex_relax(x, m);
        (void)ex_forward(x, m);
    }
    ex_backward(x, m, x->bwd);
    ex_around(x, m);
    if (!ex_columns_build(x, m, most - x->w.konst, n->limit))
        return false;

    double b = ex_climb(x, n, x->small ? 1 : 4, most, true, &ours);
    if (b >= fmin(most, x->target))
        return true;
    n->bound = fmax(n->bound, b);
    *v = ours;
    potentials(x, n);
    return ex_labels_run(x, m, most, n->limit);
}

static void done(struct ex *x, struct ex_node *n, double bound)
{
    x->closed = fmin(x->closed, fmax(bound, n->bound));
    ex_free(x, n);
}

/* Cuts the box where the bound's plan differs most from the sums that the multipliers weighted; false: no
 * significant difference. */
static bool split(struct ex *x, struct ex_node *n, const struct ex_view *v, double worth)
{
    struct ex_model *m = &x->models[n->model];
    /* a bound's plan may be out of the box */
    double p_lo = fmax(v->p_mean, n->p_lo), p_hi = fmin(v->p, n->p_hi);
    double d_lo = fmax(v->d_mean, n->d_lo), d_hi = fmin(v->d, n->d_hi);
    double by_p = (1 + n->lam) * m->a_max * (p_hi - p_lo), by_d = x->w.c * (d_hi - d_lo);
    if (m->forms == 2) {
        /* the bound counts on a mixture of forms; the plan may cost more by the one of its slowest stage */
        double over = (m->kap[1] - m->kap[0]) * v->r + (m->c_max[1] - m->c_max[0]) * d_hi;
        by_d = fmax(by_d, fmin(over, m->c_max[1] * (d_hi - d_lo)));
    }
    if (!(fmax(by_p, by_d) > worth))
        return false;
    struct ex_node *low = node_new(x, n), *high = node_new(x, n);
    if (!low || !high) {
        ex_free(x, low);
        ex_free(x, high);
        return true;
    }
    if (by_p > by_d)
        low->p_hi = high->p_lo = 0.5 * (p_lo + p_hi);
    else
        low->d_hi = high->d_lo = 0.5 * (d_lo + d_hi);
    low->settled = high->settled = false;
    low->cut = high->cut = ++x->cuts;
    push(x, low);
    push(x, high);
    return true;
}

#define FIRST_DELTA 0.01  /* with less, boxes without a plan of interest take more passes */
#define MANY_DELTA  0.004 /* with many candidates there are many columns, too */
#define FIRST_LIMIT 100000u
#define MOST_LIMIT  6400000u /* 80 bytes each */
/* After cuts that each raised the bound by less than this part of what is missing, a box is searched as it is,
 * with larger limits: its slices would take as long each. */
#define IDLE_CUTS 3u
#define IDLE_GAIN 0.1

/* Counts a cut that raised the bound of neither half much, b being this one's. */
static void count_idle(struct ex *x, struct ex_node *n, double b)
{
    if (b - n->bound > IDLE_GAIN * (x->target - n->bound)) {
        n->idle = 0;
        x->gained = n->cut;
    } else if (n->cut != x->gained) {
        n->idle++;
    }
}

/* The bound of all plans of a model as a line for the host, below what rounding may do.  by_limit: it is of plans within the limit on
 * omega alone. */
static void put_line(struct ex *x, const struct ex_node *n, double bound, bool by_limit)
{
    const struct ex_model  *m = &x->models[n->model];
    double                  limit = x->w_limit < INFINITY ? x->w_limit : 0;
    struct tsr_solver_line *line = x->lines ? x->lines + m->option : NULL;
    if (!line || (line->value - line->slope * limit > bound && line->value < INFINITY))
        return;
    line->slope = x->w_limit < INFINITY ? n->nu : 0;
    /* a bound has a price in place of the limit, and no entry of the tables is above the true one */
    line->limit = by_limit && x->in->max_omega >= 0 ? x->in->max_omega : INFINITY;
    double value = bound + line->slope * limit;
    line->value =
        value < INFINITY
            ? value - m->error - line->slope * ((double)x->L + 1) * x->w_unit - 1e-12 * fabs(value)
            : value;
}

static void process(struct ex *x, struct ex_node *n)
{
    struct ex_view v = x->view;
    x->nodes++;
    if (n != x->climbed || !n->settled) {
        bool cut = !n->settled;
        /* with many candidates a bound's plan is one of many: more steps until their cuts meet */
        unsigned steps = x->many ? 48 : 16;
        double   b = ex_climb(x, n, cut ? steps : 1, x->target, false, &v);
        if (n->cut == 0)
            put_line(x, n, b, false);
        if (cut)
            count_idle(x, n, b);
        n->bound = b > n->bound ? b : n->bound;
    }
    x->climbed = NULL; /* the tables will be of columns */
    if (n->bound >= x->target) {
        done(x, n, n->bound);
        return;
    }
    double   most = fmin(x->target, n->bound + n->delta * fabs(n->bound) + 1e-9);
    uint64_t spent = x->all_labels + x->all_paths;
    if (finish(x, n, most, &v)) {
        most = fmin(most, x->target);
        n->bound = fmax(n->bound, most);
        if (n->bound >= x->target) {
            done(x, n, n->bound);
            return;
        }
        /* larger strides if the last one was cheap */
        spent = x->all_labels + x->all_paths - spent;
        n->delta *= spent < n->limit / 10 ? 8 : 2;
        n->settled = true;
        push(x, n);
        return;
    }
    if (x->late || x->status != TSR_OK) {
        push(x, n);
        return;
    }
    bool idle = x->many && n->idle >= IDLE_CUTS && n->limit < MOST_LIMIT && most >= x->target;
    if (!idle && split(x, n, &v, 0.05 * (most - n->bound))) {
        ex_free(x, n);
        return;
    }
    if (n->limit < MOST_LIMIT)
        n->limit *= 4;
    else
        n->delta /= 8; /* less at once */
    n->settled = true;
    push(x, n);
}

/* Queues one box for a model, all plans in it. */
static void root(struct ex *x, uint64_t model)
{
    struct ex_node  *n = node_new(x, NULL);
    struct ex_model *m = &x->models[model];
    x->climbed = n;
    if (!n)
        return;
    n->bound = 0;                          /* costs are not negative */
    n->p_hi = m->f_limit / (1 + m->a_max); /* the slowest stage is one of the sum, too */
    n->d_hi = INFINITY;
    n->tau = m->forms == 2 ? 0.5 : 1;
    n->delta = x->many ? MANY_DELTA : FIRST_DELTA;
    n->limit = FIRST_LIMIT;
    n->model = (uint32_t)model;
    for (uint64_t i = 0; i < 2 * x->G; i++)
        n->share[i] = 1.0 / (double)x->G;
    if (x->start) { /* what was best for the model before is near what is best for this one */
        n->tau = m->forms == 2 && x->start->tau < 1 ? x->start->tau : n->tau;
        n->nu = x->start->nu;
        n->lam = x->start->lam;
        memcpy(n->share, x->start->share, 2 * x->G * sizeof *n->share);
    }
    ex_least(x, m);
    double bound = ex_climb(x, n, 30, x->target, false, &x->view);
    n->bound = fmax(0, bound);
    put_line(x, n, bound, false);
    if (!x->start)
        x->start = node_new(x, n);
    else if (n->bound < INFINITY)
        memcpy(x->start, n, sizeof *n + 2 * x->G * sizeof(double));
    /* elsewhere another climb from there, with new cuts, is worth more than it takes */
    n->settled &= x->L * x->K <= 2 * (uint64_t)EX_SMALL;
    /* where some plan keeps to the limits, most models have one: of the others the search finds out */
    x->kept = x->kept || x->n_best;
    if (n->bound < x->target && m->unchecked && !x->kept) {
        x->kept = x->keeps_limits(x, model, &x->why);
        if (!x->kept) {
            n->bound = INFINITY;
            put_line(x, n, INFINITY, true);
        }
    }
    m->unchecked = false;
    if (n->bound >= x->target)
        done(x, n, n->bound);
    else
        push(x, n);
}

/* Queues the models: those that the host knows bounds of by these bounds, as most are then ruled out by the best plan of the first.
 * The host's lines are replaced by new ones. */
static void queue_models(struct ex *x)
{
    uint64_t i = 0;
    for (; i < x->n_models && !ex_stop(x); i++) {
        struct tsr_solver_line *line = x->lines ? x->lines + x->models[i].option : NULL;
        double bound = line ? line->value - line->slope * fmax(x->in->max_omega, 0) : -INFINITY;
        if (line)
            *line = (struct tsr_solver_line){ .value = -INFINITY };
        if (!(bound > 0)) {
            root(x, i);
            continue;
        }
        struct ex_node *n = node_new(x, NULL);
        if (!n)
            return;
        n->bound = bound;
        n->model = (uint32_t)i;
        n->waits = true;
        push(x, n);
    }
    if (i < x->n_models)
        x->closed = 0; /* the others are unknown; times are not negative */
}

void ex_search(struct ex *x)
{
    queue_models(x);
    while (x->n_heap && !ex_stop(x) && !(x->best <= x->enough)) {
        struct ex_node *n = pop(x);
        if (n->bound >= x->target)
            done(x, n, n->bound);
        else if (n->waits) {
            root(x, n->model);
            ex_free(x, n);
        } else {
            ex_least(x, &x->models[n->model]);
            process(x, n);
        }
    }
    while (x->n_heap) {
        struct ex_node *n = x->heap[--x->n_heap];
        done(x, n, n->bound);
    }
    ex_free(x, x->start);
    x->start = NULL;
}
