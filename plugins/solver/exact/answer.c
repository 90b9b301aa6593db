/* The answer: the incumbent as a solution, what is proved about it, or why there is none. */
#include "exact.h"

#include <stdio.h>

/* The most bytes that a pool, or a kind without pools, has for layers. */
static double room_of(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                      uint64_t g)
{
    double most = 0;
    for (uint64_t k = 0; k < in->n_kinds; k++)
        if ((in->n_pools ? in->kinds[k]->pool : k) == g &&
            in->kinds[k]->capacity_bytes > o->workspace_bytes[k]) {
            double each = (double)(in->kinds[k]->capacity_bytes - o->workspace_bytes[k]);
            /* of a pool: by what a device of it would have, for kinds of it go together */
            most = fmax(most, in->n_pools
                                  ? each / (double)in->kinds[k]->takes * (double)in->pool_devices[g]
                                  : each * (double)in->kinds[k]->count);
        }
    return most;
}

/* The first of the usual reasons that holds for every option. */
static void reason(const struct ex *x, const char *fallback, char *out, uint64_t cap)
{
    const struct tsr_solver_instance *in = x->in;
    bool                              no_kind = true, no_room = true;
    for (uint64_t o = 0; o < in->n_options; o++) {
        const struct tsr_solver_option *op = in->options[o];
        double need = (double)in->embed_bytes + (double)in->head_bytes, room = 0;
        bool   all_run = true;
        if (TSR_HAS(struct tsr_solver_option, op, embed_bytes))
            need += (double)op->embed_bytes;
        if (TSR_HAS(struct tsr_solver_option, op, head_bytes))
            need += (double)op->head_bytes;
        for (uint64_t g = 0; g < (in->n_pools ? in->n_pools : x->K); g++)
            room += room_of(in, op, g);
        for (uint64_t l = 0; l < x->L; l++) {
            double   least = INFINITY;
            uint64_t c = in->layer_class[l];
            for (uint64_t k = 0; k < x->K; k++)
                for (uint64_t q = 0; q < x->Q; q++) {
                    uint64_t e = (k * x->C + c) * x->Q + q;
                    double   b = (double)in->layer_bytes[c * x->Q + q];
                    if (!isnan(op->pre_ms[e]) && !isnan(op->dec_ms[e]) &&
                        b + (double)op->workspace_bytes[k] <= (double)in->kinds[k]->capacity_bytes)
                        least = fmin(least, b);
                }
            all_run &= least < INFINITY;
            need += least;
        }
        no_kind &= !all_run;
        no_room &= need > room;
    }
    (void)snprintf(out, cap, "%s",
                   no_kind   ? "a layer fits on no device in any bit that it can run"
                   : no_room ? "the smallest layers need more memory than all devices have"
                             : fallback);
}

/* The incumbent's stages and bits; its objective from the tables, as the host adds up. */
static bool put_plan(struct ex *x, struct tsr_solver_solution *out)
{
    const struct tsr_solver_instance *in = x->in;
    const struct ex_model            *m = &x->models[x->best_model];
    const struct tsr_solver_option   *o = in->options[m->option];
    double                            sum = 0, r = 0, p = 0, d = 0, w = 0;
    if (TSR_HAS(struct tsr_solver_option, o, omega))
        w = o->omega;
    out->option = m->option;
    out->stages = x->n_best;
    for (uint64_t i = 0; i < x->n_best; i++) {
        const struct ex_stage *st = &x->stages[i];
        bool                   first = i == 0, last = i + 1 == x->n_best;
        uint64_t               k = st->k;
        out->stage_kind[i] = st->k;
        out->stage_first[i] = st->s;
        out->stage_count[i] = st->e - st->s;
        if (!ex_incumbent_bits(x, st, out->layer_bits))
            return false;
        double pre = (first ? o->embed_pre_ms[k] : 0) + (last ? o->head_pre_ms[k] : 0);
        double dec = (first ? o->embed_dec_ms[k] : 0) + (last ? o->head_dec_ms[k] : 0);
        for (uint64_t l = st->s; l < st->e; l++) {
            uint64_t e = (k * x->C + in->layer_class[l]) * x->Q + out->layer_bits[l];
            pre += o->pre_ms[e];
            dec += o->dec_ms[e];
            w += in->omega[l * x->Q + out->layer_bits[l]];
            w += in->kind_omega ? in->kind_omega[k * x->L + l] : 0;
        }
        sum += pre;
        r += dec;
        p = fmax(p, pre);
        d = fmax(d, dec);
        if (last)
            break;
        uint32_t codec = x->stages[i + 1].link;
        uint64_t link = (codec * x->K + k) * x->K + x->stages[i + 1].k;
        if (x->V > 1)
            out->stage_link[i] = codec;
        if (in->link_omega)
            w += in->link_omega[codec * x->L + st->e - 1];
        p = fmax(p, o->comm_pre_ms[link]);
        d = fmax(d, o->comm_dec_ms[link]);
        sum += m->in_sum * o->comm_pre_ms[link];
        r += m->in_sum * o->comm_dec_ms[link];
    }
    out->objective = ex_objective(x, m, sum + in->theta * w, r, p, d);
    return true;
}

void ex_put_infeasible(struct ex *x, struct tsr_solver_solution *out, const char *why)
{
    out->status = TSR_SOLVED_INFEASIBLE;
    out->bound = -INFINITY;
    reason(x, why, out->reason, out->reason_cap);
}

/* 1e-10: sums of 53 bits cannot prove more. */
double ex_most_gap(const struct tsr_solver_instance *in)
{
    return fmax(in->gap, 1e-10);
}

double ex_error_of(const struct ex *x)
{
    double most = 0;
    for (uint64_t i = 0; i < x->n_models; i++)
        most = fmax(most, x->models[i].error);
    return most;
}

double ex_proved(const struct ex *x)
{
    /* 1e-12: weights of sums, in another order */
    return x->closed < INFINITY ? x->closed - ex_error_of(x) - 1e-12 * fabs(x->closed) : x->closed;
}

bool ex_answer(struct ex *x, struct tsr_solver_solution *out)
{
    const struct tsr_solver_instance *in = x->in;
    if (x->n_best == 0) {
        out->status = TSR_SOLVED_UNKNOWN;
        /* may be above the cutoff; an answer has a number */
        out->bound = x->closed < INFINITY ? ex_proved(x) : in->cutoff;
        return true;
    }
    if (!put_plan(x, out))
        return false;
    out->bound = fmin(ex_proved(x), out->objective);
    out->status = out->objective - out->bound <= ex_most_gap(in) * fabs(out->objective)
                      ? TSR_SOLVED_OPTIMAL
                      : TSR_SOLVED_FEASIBLE;
    return true;
}
