/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The integer program in two forms.
 *
 * Both have z[i][j][q]: layer i on the j-th device of the order with bit candidate q; one of them is 1
 * for each layer.  Embedding, head and their memory are with whichever device holds the first and
 * the last layer, so they are parts of the coefficients of z.
 *
 * paper: LLM-PQ (5) to (16) with y, u, z and the stage times as columns.  Corrected: (15) is
 * u[1][1] = u[L][N] = 1 and holds only where every device must be used; (16) as printed forbids two
 * layers in a row on one stage: with every device in use it is u[i][j] <= u[i-1][j] + u[i-1][j-1], else
 * u[i][j] + u[i-1][k] <= 1 for k > j, and a device may be passed over.
 *
 * strong: v[i][j] = 1 when layer i is on one of the devices 0..j.  v falls with i and grows with
 * j; that system has integral corners, so the relaxation is fractional only where bits, memory and
 * the maxima make it so.  The sum of z[i][j] over q is v[i][j] - v[i][j-1].  Links are flows between
 * consecutive layers.
 *
 * The objective: P and D are the maxima, T the decode time of `steady`, above both of its terms. */
#include "model.h"

#include "../common/host.h"
#include "../common/parts.h"

#include <limits.h>
#include <math.h>
#include <string.h>

bool ilp_size(const struct ilp_case *c, uint64_t *columns, uint64_t *entries)
{
    uint64_t ln, lnq, lnn;
    if (__builtin_mul_overflow(c->in->layers, c->devices, &ln) ||
        __builtin_mul_overflow(ln, c->in->bits, &lnq) ||
        __builtin_mul_overflow(ln, c->devices * plan_links(c->in), &lnn) || lnq > INT_MAX / 64 ||
        lnn > INT_MAX / 64)
        return false;
    *columns = lnq + ln + c->in->layers * c->in->bits + lnn;
    *entries = 8 * lnq + 3 * lnn;
    return true;
}

bool ilp_model_room(struct ilp_model *m, const struct tsr_solver_instance *in, uint64_t devices,
                    struct plan_arena *a)
{
    uint64_t        ln = in->layers * devices, cols = 0, entries = 0;
    struct ilp_case c = { .in = in, .devices = devices };
    if (!ilp_size(&c, &cols, &entries))
        return false;
    m->z = plan_take(a, ln * in->bits, sizeof *m->z);
    m->v = plan_take(a, ln, sizeof *m->v);
    m->u = plan_take(a, ln, sizeof *m->u);
    m->y = plan_take(a, in->layers * in->bits, sizeof *m->y);
    m->t = plan_take(a, ln * devices * plan_links(in), sizeof *m->t);
    m->w = plan_take(a, devices * devices, sizeof *m->w);
    m->stage_pre = plan_take(a, devices, sizeof *m->stage_pre);
    m->stage_dec = plan_take(a, devices, sizeof *m->stage_dec);
    m->ind = plan_take(a, cols + 2 * devices + 8, sizeof *m->ind);
    m->val = plan_take(a, cols + 2 * devices + 8, sizeof *m->val);
    return !a->failed;
}

/* ---- coefficients ---------------------------------------------------------------- */

/* The time that layer i adds to a device: its own, plus embedding or head. */
static double time_of(const struct ilp_model *m, uint64_t i, uint64_t j, uint64_t q, bool dec)
{
    const struct tsr_solver_option *o = m->c.o;
    uint64_t                        k = m->c.order[j], e = plan_entry(m->c.in, k, i, q);
    double                          ms = dec ? o->dec_ms[e] : o->pre_ms[e];
    if (i == 0)
        ms += dec ? o->embed_dec_ms[k] : o->embed_pre_ms[k];
    if (i + 1 == L_(m))
        ms += dec ? o->head_dec_ms[k] : o->head_pre_ms[k];
    return ms;
}

/* What layer i adds to omega on a device with q, and what is left of the limit for the layers and links. */
static double omega_of(const struct ilp_model *m, uint64_t i, uint64_t j, uint64_t q)
{
    return m->c.in->omega[i * Q_(m) + q] + plan_kind_omega(m->c.in, m->c.order[j], i);
}

static double omega_left(const struct ilp_model *m)
{
    return plan_omega_limit(m->c.in) - plan_option_omega(m->c.o);
}

static uint64_t bytes_of(const struct ilp_model *m, uint64_t i, uint64_t q)
{
    uint64_t bytes = plan_layer_bytes(m->c.in, i, q);
    if (i == 0)
        bytes = plan_add(bytes, plan_embed_bytes(m->c.in, m->c.o));
    return i + 1 == L_(m) ? plan_add(bytes, plan_head_bytes(m->c.in, m->c.o)) : bytes;
}

static void put_stage(struct ilp_model *m, uint64_t j, bool dec, double f)
{
    for (uint64_t i = 0; i < L_(m); i++)
        for (uint64_t q = 0; q < Q_(m); q++)
            if (ilp_z(m, i, j, q))
                ilp_put(m, ilp_z(m, i, j, q), f * time_of(m, i, j, q, dec));
}

/* Whether a plan that matters can have layer i on j with q.  A ilp_column that cannot be 1 is left out: a
 * coefficient a million times the others would take the digits that GLPK's tolerances leave them. */
static bool is_possible(const struct ilp_model *m, uint64_t i, uint64_t j, uint64_t q)
{
    const struct tsr_solver_instance *in = m->c.in;
    double                            omega = omega_of(m, i, j, q);
    return plan_can_run(in, m->c.o, m->c.order[j], i, q) &&
           bytes_of(m, i, q) <= plan_room(in, m->c.o, m->c.order[j]) &&
           plan_host_bytes(in, i, q) <= plan_host_room(in, m->c.order[j]) &&
           omega <= omega_left(m) &&
           ilp_least_cost(m, time_of(m, i, j, q, false), time_of(m, i, j, q, true), false) +
                   in->theta * (omega + plan_option_omega(m->c.o)) <=
               m->most;
}

/* ---- parts ------------------------------------------------------------------------ */

static void add_z(struct ilp_model *m)
{
    for (uint64_t i = 0; i < L_(m); i++)
        for (uint64_t j = 0; j < N_(m); j++)
            for (uint64_t q = 0; q < Q_(m); q++) {
                m->z[(i * N_(m) + j) * Q_(m) + q] =
                    is_possible(m, i, j, q)
                        ? ilp_column(m, GLP_BV, 0, 1, "z_%llu_%llu_%llu", i, j, q)
                        : 0;
            }
}

static void add_strong(struct ilp_model *m)
{
    uint64_t L = L_(m), N = N_(m);
    for (uint64_t i = 0; i < L; i++)
        for (uint64_t j = 0; j + 1 < N; j++)
            m->v[i * N + j] = ilp_column(m, GLP_BV, 0, 1, "v_%llu_%llu", i, j, 0);
    for (uint64_t i = 0; i < L; i++)
        for (uint64_t j = 0; j < N; j++) {
            ilp_put_on(m, i, j, 1);
            if (j + 1 < N)
                ilp_put(m, m->v[i * N + j], -1);
            if (j > 0)
                ilp_put(m, m->v[i * N + j - 1], 1);
            ilp_finish(m, j + 1 < N ? 0 : 1, j + 1 < N ? 0 : 1, "on_%llu_%llu", i, j, 0);
        }
    for (uint64_t i = 0; i + 1 < L; i++)
        for (uint64_t j = 0; j + 1 < N; j++) {
            ilp_put(m, m->v[i * N + j], 1);
            ilp_put(m, m->v[(i + 1) * N + j], -1);
            ilp_finish(m, 0, INFINITY, "order_%llu_%llu", i, j, 0);
        }
}

/* Rows of bytes, as those of omega and of prefill, in units of their limits: GLPK's cuts use coefficients unscaled, and with
 * coefficients of 10^9 bytes they cut off plans. */
static void add_memory(struct ilp_model *m)
{
    for (uint64_t j = 0; j < N_(m); j++) {
        double room = fmax(1, (double)plan_room(m->c.in, m->c.o, m->c.order[j]));
        for (uint64_t i = 0; i < L_(m); i++)
            for (uint64_t q = 0; q < Q_(m); q++)
                ilp_put(m, ilp_z(m, i, j, q), (double)bytes_of(m, i, q) / room);
        if (m->len)
            ilp_finish(m, -INFINITY, 1, j == 0 ? "c13" : "c12_%llu", j, 0, 0);
    }
    for (uint64_t j = 0; j < N_(m); j++) {
        double room = fmax(1, (double)plan_host_room(m->c.in, m->c.order[j]));
        for (uint64_t i = 0; i < L_(m); i++)
            for (uint64_t q = 0; q < Q_(m); q++)
                ilp_put(m, ilp_z(m, i, j, q), (double)plan_host_bytes(m->c.in, i, q) / room);
        if (m->len)
            ilp_finish(m, -INFINITY, 1, "host_%llu", j, 0, 0);
    }
}

/* The most that a plan can have of omega in layers and links. */
static double largest_omega(const struct ilp_model *m)
{
    double largest = 0;
    for (uint64_t i = 0; i < L_(m); i++) {
        double most = 0, link = 0;
        for (uint64_t j = 0; j < N_(m); j++)
            for (uint64_t q = 0; q < Q_(m); q++)
                most = fmax(most, omega_of(m, i, j, q));
        for (uint64_t v = 0; v < plan_links(m->c.in); v++)
            link = fmax(link, plan_link_omega(m->c.in, v, i));
        largest += most + link;
    }
    return largest;
}

static void add_omega(struct ilp_model *m)
{
    double limit = omega_left(m);
    if (!(limit > 0) || !(limit < largest_omega(m) * (1 + 1e-9)))
        return; /* no layer may have any omega, see is_possible(); or every plan meets it */
    for (uint64_t i = 0; i < L_(m); i++)
        for (uint64_t j = 0; j < N_(m); j++)
            for (uint64_t q = 0; q < Q_(m); q++)
                ilp_put(m, ilp_z(m, i, j, q), omega_of(m, i, j, q) / limit);
    ilp_put_link_omega(m, 1 / limit);
    if (m->len)
        ilp_finish(m, -INFINITY, 1, "max_omega", 0, 0, 0);
}

/* Every device holds a layer. */
static void add_use_all(struct ilp_model *m)
{
    for (uint64_t j = 0; !m->c.in->allow_unused && j < N_(m); j++) {
        for (uint64_t i = 0; i < L_(m); i++)
            ilp_put_on(m, i, j, 1);
        ilp_finish(m, 1, INFINITY, "use_%llu", j, 0, 0);
    }
}

/* ---- times and the objective ---------------------------------------------------------- */

static void add_maxima(struct ilp_model *m)
{
    m->pre = ilp_column(m, GLP_CV, 0, INFINITY, "P", 0, 0, 0);
    m->dec = ilp_column(m, GLP_CV, 0, INFINITY, "D", 0, 0, 0);
    for (uint64_t j = 0; j < N_(m); j++)
        for (int dec = 0; dec < 2; dec++) {
            int *own = dec ? m->stage_dec : m->stage_pre, max = dec ? m->dec : m->pre;
            if (m->c.form == ILP_PAPER) {
                own[j] =
                    ilp_column(m, GLP_CV, 0, INFINITY, dec ? "T_dec_%llu" : "T_pre_%llu", j, 0, 0);
                put_stage(m, j, dec, 1);
                ilp_put(m, own[j], -1);
                ilp_finish(m, 0, 0, dec ? "c8_dec_%llu" : "c8_pre_%llu", j, 0, 0);
                ilp_put(m, own[j], -1);
            } else {
                put_stage(m, j, dec, -1);
            }
            ilp_put(m, max, 1);
            ilp_finish(m, 0, INFINITY, dec ? "c6_%llu" : "c5_%llu", j, 0, 0);
        }
}

/* Sum of the decode times of all stages, times f, into the row at work. */
static void put_sum(struct ilp_model *m, bool dec, double f)
{
    for (uint64_t j = 0; j < N_(m); j++)
        if (m->c.form == ILP_PAPER)
            ilp_put(m, dec ? m->stage_dec[j] : m->stage_pre[j], f);
        else
            put_stage(m, j, dec, f);
}

/* All prompts are done within max_first_ms. */
static void add_first(struct ilp_model *m)
{
    double limit = plan_first_limit(m->c.in);
    if (!(limit < INFINITY))
        return;
    put_sum(m, false, 1 / limit);
    ilp_put_links(m, false, 1 / limit);
    ilp_put(m, m->pre, (m->n.mu_pre - 1) / limit);
    ilp_finish(m, -INFINITY, 1, "max_first", 0, 0, 0);
}

static void add_decode(struct ilp_model *m)
{
    const struct plan_counts *n = &m->n;
    if (m->c.in->objective != TSR_OBJECTIVE_STEADY || m->c.in->tokens == 1)
        return;
    m->decode = ilp_column(m, GLP_CV, 0, INFINITY, "T", 0, 0, 0);
    for (int term = 0; term < 2; term++) {
        double sum = term == 0 ? n->steps : 1;
        double max = term == 0 ? n->mu_dec - 1 : n->steps * n->mu_dec - 1;
        put_sum(m, true, -sum);
        ilp_put_links(m, true, -sum);
        ilp_put(m, m->dec, -max);
        ilp_put(m, m->decode, 1);
        ilp_finish(m, 0, INFINITY, "steady_%llu", (uint64_t)term, 0, 0);
    }
}

static void add_objective(struct ilp_model *m)
{
    const struct tsr_solver_instance *in = m->c.in;
    bool                              paper = in->objective == TSR_OBJECTIVE_PAPER;
#define OBJECTIVE(col, f) glp_set_obj_coef(m->p, col, glp_get_obj_coef(m->p, col) + (f))
    OBJECTIVE(m->pre, m->n.mu_pre - 1);
    if (paper)
        OBJECTIVE(m->dec, (m->n.mu_dec - 1) * m->n.steps);
    if (m->decode)
        OBJECTIVE(m->decode, 1);
    for (uint64_t i = 0; i < L_(m); i++)
        for (uint64_t j = 0; j < N_(m); j++)
            for (uint64_t q = 0; q < Q_(m); q++)
                if (ilp_z(m, i, j, q))
                    OBJECTIVE(ilp_z(m, i, j, q), in->theta * omega_of(m, i, j, q));
    ilp_put_link_omega(m, in->theta);
    for (int e = 1; e <= m->len; e++)
        OBJECTIVE(m->ind[e], m->val[e]);
    m->len = 0;
    OBJECTIVE(0, in->theta * plan_option_omega(m->c.o));
    for (int dec = 0; dec < (paper ? 2 : 1); dec++) {
        put_sum(m, dec, 1);
        if (!paper)
            ilp_put_links(m, dec, 1);
        for (int e = 1; e <= m->len; e++)
            OBJECTIVE(m->ind[e], m->val[e]);
        m->len = 0;
    }
#undef OBJECTIVE
}

void ilp_build(struct ilp_model *m)
{
    uint64_t L = L_(m), N = N_(m);
    memset(m->v, 0, L * N * sizeof *m->v);
    memset(m->u, 0, L * N * sizeof *m->u);
    memset(m->t, 0, L * N * N * plan_links(m->c.in) * sizeof *m->t);
    memset(m->w, 0, N * N * sizeof *m->w);
    m->decode = m->len = 0;
    m->n = plan_counts(m->c.in, m->c.o);
    m->links = N > 1 && (plan_has_links(m->c.in, m->c.o) || plan_has_link_omega(m->c.in));
    m->p = glp_create_prob();
    glp_set_obj_dir(m->p, GLP_MIN);
    glp_set_obj_name(m->p, "ms");
    add_z(m);
    if (m->c.form == ILP_PAPER)
        ilp_add_paper(m);
    else
        add_strong(m);
    add_use_all(m);
    add_memory(m);
    add_maxima(m);
    if (m->links && m->c.form == ILP_PAPER)
        ilp_add_pairs(m);
    else if (m->links)
        ilp_add_flows(m);
    if (m->links)
        ilp_add_link_maxima(m);
    add_omega(m);
    add_first(m);
    add_decode(m);
    add_objective(m);
}

void ilp_limit(struct ilp_model *m, double limit)
{
    for (int col = 1; col <= glp_get_num_cols(m->p); col++)
        ilp_put(m, col, glp_get_obj_coef(m->p, col));
    if (m->len)
        ilp_finish(m, -INFINITY, limit - glp_get_obj_coef(m->p, 0), "limit", 0, 0, 0);
}
