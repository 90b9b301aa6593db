#include "exact.h"

#include <float.h>

/* The quality of plans: the table of omega as sums that are exact, and what is below its limit. */

/* The largest of n omegas. */
static double most_of(const double *w, uint64_t n, double most)
{
    for (uint64_t i = 0; i < n; i++)
        most = w[i] > most ? w[i] : most;
    return most;
}

/* A sum that no plan is above. */
static double largest_sum(const struct ex *x)
{
    const struct tsr_solver_instance *in = x->in;
    double                            sum = 0, option = 0;
    for (uint64_t l = 0; l < x->L; l++) {
        double kind = 0, link = 0;
        for (uint64_t k = 0; in->kind_omega && k < x->K; k++)
            kind = fmax(kind, in->kind_omega[k * x->L + l]);
        for (uint64_t v = 0; in->link_omega && v < x->V; v++)
            link = fmax(link, in->link_omega[v * x->L + l]);
        sum += most_of(in->omega + l * x->Q, x->Q, 0) + kind + link;
    }
    for (uint64_t o = 0; o < in->n_options; o++)
        if (TSR_HAS(struct tsr_solver_option, in->options[o], omega))
            option = fmax(option, in->options[o]->omega);
    return sum + option;
}

static bool take_tables(struct ex *x)
{
    const struct tsr_solver_instance *in = x->in;
    x->omega_kind = in->kind_omega ? x->L * x->Q : 0;
    if (!x->omega)
        x->omega = ex_new(x, (in->kind_omega ? x->K : 1) * x->L * x->Q, sizeof *x->omega);
    if (in->link_omega && !x->link_omega)
        x->link_omega = ex_new(x, x->V * x->L, sizeof *x->link_omega);
    return x->omega && (x->link_omega || !in->link_omega);
}

/* The omegas as multiples of one unit.  Only sums up to a cap matter: the limit, what alone costs as
 * much as a plan may, or the largest sum that there is.  The unit follows the cap, so an entry that no
 * plan can have does not make it coarse. */
bool ex_omega_init(struct ex *x)
{
    const struct tsr_solver_instance *in = x->in;
    double                            total = 0, limit = INFINITY;
    uint64_t                          kinds = in->kind_omega ? x->K : 1;
    if (!take_tables(x))
        return false;
    double largest = largest_sum(x);
    if (in->max_omega >= 0) /* with the tolerance of docs/formats/instance.md */
        limit = in->max_omega + 1e-9 * fmax(1, in->max_omega);
    double cap = fmin(limit, largest);
    if (in->theta > 0)
        cap = fmin(cap, x->dearest / in->theta);
    /* all sums are exact, of layers and of links */
    x->w_unit = ex_unit(fmin(largest, 2 * cap * (double)x->L) * (in->link_omega ? 2 : 1));
    for (uint64_t k = 0; k < kinds; k++)
        for (uint64_t i = 0; i < x->L * x->Q; i++) {
            double more = in->kind_omega ? in->kind_omega[k * x->L + i / x->Q] : 0;
            double w = ex_snap(in->omega[i] + more, cap, x->w_unit);
            x->omega[k * x->L * x->Q + i] = w;
            total += w;
        }
    for (uint64_t i = 0; in->link_omega && i < x->V * x->L; i++)
        x->link_omega[i] = ex_snap(in->link_omega[i], cap, x->w_unit);
    /* less what rounding may do: less than the tolerance up to 1,500 layers, so plans up to max_omega
     * itself stay.  A limit that every plan keeps to is none. */
    x->w_limit = limit < largest * (1 + 1e-9) ? limit - ((double)x->L + 1) * x->w_unit : INFINITY;
    x->w_scale = fmax(fmin(in->max_omega, largest), 1e-3 * total / (double)(x->Q * kinds));
    return true;
}

/* The item of the model for a layer with bits q; if its items lack q because another item costs no more,
 * that other item. */
static const struct ex_item *item_for(const struct ex *x, const struct ex_model *m, uint64_t k,
                                      uint64_t l, uint32_t q)
{
    uint64_t              c = x->in->layer_class[l], j = 0;
    const struct ex_item *it = m->items + (k * x->C + c) * x->Q;
    uint64_t              bytes = x->in->layer_bytes[c * x->Q + q];
    uint64_t              host = x->host_bytes ? x->host_bytes[c * x->Q + q] : 0;
    const double         *omega = ex_omega_of(x, k, l);
    /* 1e-12: the item's is rounded */
    double pre = x->in->options[m->option]->pre_ms[(k * x->C + c) * x->Q + q] * (1 + 1e-12);
    for (uint64_t i = 0; i < m->n_items[k * x->C + c]; i++) {
        if (it[i].q == q)
            return &it[i];
        if (it[i].mem <= bytes && it[i].host <= host && omega[it[i].q] <= omega[q] &&
            it[i].pre <= pre)
            j = i;
    }
    return &it[j];
}

/* A plan of y, a search for one model of x, as the incumbent of x. */
static void take_plan(struct ex *x, uint64_t model, struct ex *y, uint32_t *bits)
{
    const struct ex_model *m = &x->models[model];
    for (uint64_t i = 0; i < y->n_best; i++) {
        struct ex_stage *st = &x->trial[i];
        if (!ex_incumbent_bits(y, &y->stages[i], bits))
            return;
        *st = y->stages[i];
        const double *t = m->end + (uint64_t)st->k * 4;
        st->pre = (st->s ? 0 : t[0]) + (st->e == x->L ? t[2] : 0);
        st->dec = (st->s ? 0 : t[1]) + (st->e == x->L ? t[3] : 0);
        st->w = 0;
        for (uint64_t l = st->s; l < st->e; l++) {
            const struct ex_item *it = item_for(x, m, st->k, l, bits[l]);
            x->fit[l] = it->q;
            st->pre += it->pre;
            st->dec += it->dec;
            st->w += ex_omega_of(x, st->k, l)[it->q];
        }
    }
    ex_incumbent(x, model, x->trial, y->n_best, x->fit);
}

double ex_aim_within(struct ex *x, uint64_t model, enum ex_aim aim)
{
    bool      first = aim == EX_FIRST;
    double    limit = first ? x->models[model].f_limit : x->w_limit, found = NAN;
    struct ex y = { .host = x->host,
                    .blocks = x->blocks,
                    .in = x->in,
                    .L = x->L,
                    .K = x->K,
                    .Q = x->Q,
                    .C = x->C,
                    .V = x->V,
                    .G = x->G,
                    .pool = x->pool,
                    .takes = x->takes,
                    .have = x->have,
                    .host_bytes = x->host_bytes,
                    .small = x->small,
                    .many = x->many,
                    .n_states = x->n_states,
                    .next = x->next,
                    .complete = x->complete,
                    .leads = x->leads,
                    .trails = x->trails,
                    .omega = x->omega,
                    .omega_kind = x->omega_kind,
                    .link_omega = x->link_omega,
                    .w_limit = first ? x->w_limit : INFINITY,
                    .w_scale = x->w_scale,
                    .w_unit = x->w_unit,
                    .f_limit = INFINITY,
                    .theta = first ? 0 : 1,
                    .dearest = first ? limit : INFINITY,
                    .aim = aim,
                    .enough = fmin(limit, DBL_MAX), /* any plan */
                    .closed = INFINITY,
                    .best = INFINITY,
                    .end_us = x->end_us };
    y.target = limit + 1e-11 * fabs(limit) + 1e-300;
    y.models = ex_new(&y, 1, sizeof *y.models);
    y.n_models = y.models ? 1 : 0;
    uint32_t *bits = ex_new(&y, x->L, sizeof *bits);
    if (y.models && bits && ex_model_init(&y, y.models, x->models[model].option) &&
        ex_tables_init(&y)) {
        ex_search(&y);
        found = y.n_best && y.best <= limit ? y.best : y.late ? NAN : INFINITY;
    }
    if (bits && y.status == TSR_OK && found < INFINITY)
        take_plan(x, model, &y, bits);
    if (x->status == TSR_OK)
        x->status = y.status;
    ex_free(&y, bits);
    ex_search_free(&y);
    return found;
}

bool ex_keeps_limits(struct ex *x, uint64_t model, const char **why)
{
    if ((x->w_limit < INFINITY || x->host_bytes) && ex_aim_within(x, model, EX_OMEGA) == INFINITY) {
        if (x->w_limit < INFINITY)
            *why = "max_omega is below the least sum of omega of any plan that fits";
        return false;
    }
    if (x->f_limit < INFINITY && ex_aim_within(x, model, EX_FIRST) == INFINITY) {
        *why = "max_first_ms is below the least time until all prompts are done of any plan that "
               "fits";
        return false;
    }
    return true;
}
