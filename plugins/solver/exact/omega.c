#include "exact.h"

#include <float.h>

/* The quality of plans: the table of omega as sums that are exact, and what is below its limit. */

/* The omegas as multiples of one unit.  Only sums up to a cap matter: the limit, what alone costs as
 * much as a plan may, or the largest sum that there is.  The unit follows the cap, so an entry that no
 * plan can have does not make it coarse. */
bool ex_omega_init(struct ex *x)
{
    const struct tsr_solver_instance *in = x->in;
    double                            largest = 0, total = 0, limit = INFINITY;
    if (!x->omega)
        x->omega = ex_new(x, x->L * x->Q, sizeof *x->omega);
    if (!x->omega)
        return false;
    for (uint64_t l = 0; l < x->L; l++) {
        double most = 0;
        for (uint64_t q = 0; q < x->Q; q++)
            most = fmax(most, in->omega[l * x->Q + q]);
        largest += most;
    }
    if (in->max_omega >= 0) /* with the tolerance of docs/formats/instance.md */
        limit = in->max_omega + 1e-9 * fmax(1, in->max_omega);
    double cap = fmin(limit, largest);
    if (in->theta > 0)
        cap = fmin(cap, x->dearest / in->theta);
    x->w_unit = ex_unit(fmin(largest, 2 * cap * (double)x->L)); /* all sums are exact */
    for (uint64_t i = 0; i < x->L * x->Q; i++) {
        x->omega[i] = ex_snap(in->omega[i], cap, x->w_unit);
        total += x->omega[i];
    }
    /* less what rounding may do: less than the tolerance up to 1,500 layers, so plans up to max_omega
     * itself stay.  A limit that every plan keeps to is none. */
    x->w_limit = limit < largest * (1 + 1e-9) ? limit - (double)x->L * x->w_unit : INFINITY;
    x->w_scale = fmax(fmin(in->max_omega, largest), 1e-3 * total / (double)x->Q);
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
    const double         *omega = x->omega + l * x->Q;
    for (uint64_t i = 0; i < m->n_items[k * x->C + c]; i++) {
        if (it[i].q == q)
            return &it[i];
        if (it[i].mem <= bytes && it[i].host <= host && omega[it[i].q] <= omega[q])
            j = i;
    }
    return &it[j];
}

double ex_omega_least(struct ex *x, uint64_t model)
{
    struct ex y = { .host = x->host,
                    .in = x->in,
                    .L = x->L,
                    .K = x->K,
                    .Q = x->Q,
                    .C = x->C,
                    .host_bytes = x->host_bytes,
                    .small = x->small,
                    .n_states = x->n_states,
                    .next = x->next,
                    .complete = x->complete,
                    .leads = x->leads,
                    .trails = x->trails,
                    .omega = x->omega,
                    .w_limit = INFINITY,
                    .theta = 1,
                    .dearest = INFINITY,
                    .omega_only = true,
                    .enough = fmin(x->w_limit, DBL_MAX), /* any plan */
                    .closed = INFINITY,
                    .best = INFINITY,
                    .end_us = x->end_us };
    y.target = x->w_limit + 1e-11 * fabs(x->w_limit) + 1e-300;
    y.models = ex_new(&y, 1, sizeof *y.models);
    y.n_models = y.models ? 1 : 0;
    uint32_t *bits = ex_new(&y, x->L, sizeof *bits);
    double    found = NAN;
    if (y.models && bits && ex_model_init(&y, y.models, x->models[model].option) &&
        ex_tables_init(&y)) {
        ex_search(&y);
        found = y.n_best && y.best <= x->w_limit ? y.best : y.late ? NAN : INFINITY;
    }
    for (uint64_t i = 0; bits && i < y.n_best && found < INFINITY; i++) {
        const struct ex_model *m = &x->models[model];
        struct ex_stage       *st = &x->trial[i];
        if (!ex_columns_bits(&y, y.models, &y.stages[i], bits))
            break;
        *st = y.stages[i];
        const double *t = m->end + (uint64_t)st->k * 4;
        st->pre = (st->s ? 0 : t[0]) + (st->e == x->L ? t[2] : 0);
        st->dec = (st->s ? 0 : t[1]) + (st->e == x->L ? t[3] : 0);
        st->w = 0;
        for (uint64_t l = st->s; l < st->e; l++) {
            const struct ex_item *it = item_for(x, m, st->k, l, bits[l]);
            st->pre += it->pre;
            st->dec += it->dec;
            st->w += x->omega[l * x->Q + it->q];
        }
    }
    if (y.status == TSR_OK && found < INFINITY)
        ex_incumbent(x, model, x->trial, y.n_best);
    if (x->status == TSR_OK)
        x->status = y.status;
    ex_free(&y, bits);
    ex_search_free(&y);
    return found;
}
