/* SPDX-License-Identifier: GPL-3.0-or-later */
/* GLPK at work on one integer program.
 *
 * GLPK knows no cancel and aborts where it is wrong: its terminal hook is called every 50 ms of a
 * simplex run, its callback in every node, and both leave through longjmp(); so does its error hook.
 * glp_free_env() then gives back all that it holds.
 *
 * What GLPK says is taken with its tolerances: an integral point of a relaxation is checked in exact
 * arithmetic before it counts, one that memory or max_omega forbids is cut off by a row, and its
 * bounds are believed to one part in a million. */
#include "ilp.h"

#include "../common/host.h"
#include "../common/parts.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define TRUST 1e-6 /* of a bound: GLPK's reduced costs and activities are good to 1e-7 */

/* ---- what interrupts GLPK ----------------------------------------------------- */

static bool over(struct ilp_search *s)
{
    return plan_over(s->clock) || (s->end_us && plan_now_us() > s->end_us);
}

static int on_line(void *info, const char *line)
{
    struct ilp_search *s = info;
    size_t             n = 0;
    for (const char *p = line; *p && n + 1 < sizeof s->said; p++)
        if ((unsigned char)*p >= 0x20)
            s->said[n++] = *p;
    if (n > 0)
        s->said[n] = '\0';
    if (!s->writing && over(s)) {
        s->stopped = true;
        longjmp(s->jump, 1);
    }
    return 1; /* nothing reaches the terminal */
}

_Noreturn static void on_error(void *info)
{
    struct ilp_search *s = info;
    longjmp(s->jump, 2);
}

static void enter(struct ilp_search *s)
{
    s->said[0] = '\0';
    glp_error_hook(on_error, s);
    glp_term_hook(on_line, s);
    glp_mem_limit((int)s->opts->memory);
}

static void leave(struct ilp_search *s)
{
    s->m.p = NULL;
    (void)glp_free_env();
}

static int time_left_ms(const struct ilp_search *s)
{
    uint64_t end = s->clock->end_us, now = plan_now_us();
    if (s->end_us && (!end || s->end_us < end))
        end = s->end_us;
    if (!end)
        return INT_MAX;
    uint64_t left = end > now ? (end - now) / 1000 : 0;
    return left < INT_MAX ? (int)left + 1 : INT_MAX;
}

/* ---- points of the relaxation ---------------------------------------------------- */

/* The codec of the link from device j to k after layer i; false unless one of the columns is 1. */
static bool read_link(const struct ilp_model *m, glp_prob *p, uint64_t i, uint64_t j, uint64_t k,
                      uint32_t *codec)
{
    uint64_t V = plan_links(m->c.in), found = 0;
    *codec = 0;
    for (uint64_t v = 0; V > 1 && v < V; v++) {
        int    col = m->t[((i * m->c.devices + j) * m->c.devices + k) * V + v];
        double x = col ? glp_get_col_prim(p, col) : 0;
        if (x > 1e-5 && x < 1 - 1e-5)
            return false;
        if (x > 0.5) {
            found++;
            *codec = (uint32_t)v;
        }
    }
    return V == 1 || found == 1;
}

/* The plan that the values of z say, and those of codecs, into s->try; false unless they are integral. */
static bool read_plan(struct ilp_search *s, glp_prob *p)
{
    const struct ilp_model     *m = &s->m;
    struct tsr_solver_solution *x = s->try;
    uint64_t                    L = m->c.in->layers, N = m->c.devices, Q = m->c.in->bits, at = N;
    x->stages = 0;
    x->option = m->c.option;
    for (uint64_t i = 0; i < L; i++) {
        uint64_t found = 0, j = 0, q = 0;
        for (uint64_t jq = 0; jq < N * Q; jq++) {
            int    col = m->z[i * N * Q + jq];
            double v = col ? glp_get_col_prim(p, col) : 0;
            if (v > 1e-5 && v < 1 - 1e-5)
                return false;
            if (v > 0.5) {
                found++;
                j = jq / Q;
                q = jq % Q;
            }
        }
        if (found != 1 || (at < N && j < at))
            return false;
        if (j != at) {
            if (i > 0 && !read_link(m, p, i - 1, at, j, &x->stage_link[x->stages - 1]))
                return false;
            x->stage_kind[x->stages] = m->c.order[j];
            x->stage_first[x->stages] = i;
            x->stage_count[x->stages++] = 0;
            at = j;
        }
        x->stage_count[x->stages - 1]++;
        x->layer_bits[i] = (uint32_t)q;
    }
    return true;
}

/* The device that follows stage n in the order of the current plan, from the columns that are 1. */
static uint64_t device_of(const struct ilp_search *s, glp_prob *p, uint64_t layer)
{
    const struct ilp_model *m = &s->m;
    uint64_t                N = m->c.devices, Q = m->c.in->bits;
    for (uint64_t jq = 0; jq < N * Q; jq++) {
        int col = m->z[layer * N * Q + jq];
        if (col && glp_get_col_prim(p, col) > 0.5)
            return jq / Q;
    }
    return N;
}

static uint64_t stage_bytes(const struct ilp_search *s, uint64_t n)
{
    const struct tsr_solver_instance *in = s->m.c.in;
    const struct tsr_solver_solution *x = s->try;
    uint64_t                          bytes = plan_add(n == 0 ? plan_embed_bytes(in, s->m.c.o) : 0,
                              n + 1 == x->stages ? plan_head_bytes(in, s->m.c.o) : 0);
    for (uint64_t i = x->stage_first[n]; i < x->stage_first[n] + x->stage_count[n]; i++)
        bytes = plan_add(bytes, plan_layer_bytes(in, i, x->layer_bits[i]));
    return bytes;
}

/* Not all of the choices of layers first..end-1 at once, nor of the codecs between them. */
static void cut_off(struct ilp_search *s, glp_prob *p, uint64_t first, uint64_t end)
{
    struct ilp_model *m = &s->m;
    uint64_t          N = m->c.devices, Q = m->c.in->bits;
    int               row = glp_add_rows(p, 1), n = 0;
    for (uint64_t i = first; i < end; i++) {
        uint64_t j = device_of(s, p, i);
        m->ind[++n] = m->z[(i * N + j) * Q + s->try->layer_bits[i]];
        m->val[n] = 1;
        uint64_t V = plan_links(m->c.in), k = i + 1 < end ? device_of(s, p, i + 1) : j;
        for (uint64_t v = 0; V > 1 && k != j && v < V; v++) {
            int col = m->t[((i * N + j) * N + k) * V + v];
            if (col && glp_get_col_prim(p, col) > 0.5) {
                m->ind[++n] = col;
                m->val[n] = 1;
            }
        }
    }
    glp_set_row_bnds(p, row, GLP_UP, 0, (double)n - 1);
    glp_set_mat_row(p, row, n, m->ind, m->val);
}

/* An integral point: a plan, or one that only GLPK's tolerance lets through. */
static void look_at(struct ilp_search *s, glp_prob *p)
{
    const struct ilp_case            *c = &s->m.c;
    const struct tsr_solver_solution *x = s->try;
    double                            cost = INFINITY;
    if (!read_plan(s, p))
        return;
    if (plan_cost(c->in, x, &cost)) {
        if (cost < s->cost) {
            s->cost = cost;
            plan_copy(s->best, x, c->in);
        }
        return;
    }
    for (uint64_t n = 0; n < x->stages; n++)
        if (stage_bytes(s, n) > plan_room(c->in, c->o, x->stage_kind[n]) ||
            !plan_host_fits_stage(c->in, x, n)) {
            cut_off(s, p, x->stage_first[n], x->stage_first[n] + x->stage_count[n]);
            return;
        }
    cut_off(s, p, 0, c->in->layers);
}

/* strong: the most fractional of the borders; where none is, GLPK's own choice. */
static void branch(const struct ilp_search *s, glp_tree *tree)
{
    const struct ilp_model *m = &s->m;
    double                  most = 1e-6;
    int                     at = 0;
    for (uint64_t e = 0; e < m->c.in->layers * m->c.devices; e++)
        if (m->v[e] && glp_ios_can_branch(tree, m->v[e])) {
            double v = glp_get_col_prim(glp_ios_get_prob(tree), m->v[e]);
            double far = fmin(v, 1 - v);
            if (far > most) {
                most = far;
                at = m->v[e];
            }
        }
    if (at)
        glp_ios_branch_upon(tree, at, GLP_NO_BRNCH);
}

static void on_node(glp_tree *tree, void *info)
{
    struct ilp_search *s = info;
    int                best = glp_ios_best_node(tree);
    if (best) {
        double v = glp_ios_node_bound(tree, best);
        if (v > s->bound && v < DBL_MAX)
            s->bound = v;
    }
    if (over(s)) {
        s->stopped = true;
        glp_ios_terminate(tree);
        return;
    }
    if (glp_ios_reason(tree) == GLP_IROWGEN)
        look_at(s, glp_ios_get_prob(tree));
    else if (glp_ios_reason(tree) == GLP_IBRANCH && s->m.c.form == ILP_STRONG)
        branch(s, tree);
}

/* ---- one case ------------------------------------------------------------------------ */

/* True when the relaxation was solved; the bound is its objective, or the limit when no point is
 * left. */
static bool relax(struct ilp_search *s, double limit)
{
    glp_smcp how;
    glp_init_smcp(&how);
    how.msg_lev = GLP_MSG_ON;
    how.out_frq = 50;
    how.meth = GLP_DUALP;
    how.tm_lim = time_left_ms(s);
    glp_scale_prob(s->m.p, GLP_SF_AUTO);
    glp_adv_basis(s->m.p, 0);
    int rc = glp_simplex(s->m.p, &how);
    if (rc == 0 && glp_get_status(s->m.p) == GLP_OPT) {
        s->bound = fmax(s->bound, glp_get_obj_val(s->m.p));
        return true;
    }
    s->stopped |= rc == GLP_ETMLIM;
    if (rc == 0 &&
        (glp_get_status(s->m.p) == GLP_NOFEAS || glp_get_prim_stat(s->m.p) == GLP_NOFEAS)) {
        s->bound = limit;
        s->done = true;
    }
    return false;
}

static void branch_and_bound(struct ilp_search *s, double limit, double gap)
{
    glp_iocp how;
    glp_init_iocp(&how);
    how.msg_lev = GLP_MSG_ON;
    how.cb_func = on_node;
    how.cb_info = s;
    how.tm_lim = time_left_ms(s);
    how.mip_gap = gap;
    how.bt_tech = GLP_BT_BLB;
    how.br_tech = GLP_BR_DTH;
    how.sr_heur = GLP_OFF; /* its points are not checked by the callback */
    if (s->opts->cuts) {
        how.mir_cuts = GLP_ON;
        how.cov_cuts = GLP_ON;
        how.gmi_cuts = GLP_ON;
    }
    double before = s->cost;
    int    rc = glp_intopt(s->m.p, &how), status = glp_mip_status(s->m.p);
    s->stopped |= rc == GLP_ETMLIM;
    if (s->stopped)
        return;
    if (rc == GLP_EMIPGAP) /* its best point may be better than ours by a tolerance, no more */
        s->done = true;
    if (rc == 0 && status == GLP_NOFEAS) {
        s->bound = fmax(s->bound, limit);
        s->done = true;
    }
    if (rc == 0 && status == GLP_OPT) {
        s->bound = fmax(s->bound, glp_mip_obj_val(s->m.p));
        s->done = true;
    }
    /* a point that was not accepted proves nothing */
    if (s->done && status != GLP_NOFEAS && !(s->cost < before))
        s->done = false;
}

void ilp_solve(struct ilp_search *s)
{
    const struct tsr_solver_instance *in = s->m.c.in;
    double gap = in->gap / 2, least = s->bound, mine = fmin(s->cost, in->cutoff);
    double limit = mine < INFINITY ? mine * (1 - gap) : INFINITY;
    s->done = s->stopped = false;
    if (s->bound >= limit) {
        s->done = true;
        return;
    }
    if (setjmp(s->jump) == 0) {
        enter(s);
        s->m.most = limit;
        ilp_build(&s->m);
        if (limit < INFINITY)
            ilp_limit(&s->m, limit);
        if (relax(s, limit))
            branch_and_bound(s, limit, gap);
    }
    leave(s);
    s->bound = fmin(s->bound, fmin(limit, s->cost));
    if (s->bound > -INFINITY && s->bound < INFINITY)
        s->bound -= TRUST * fabs(s->bound);
    s->bound = fmax(s->bound, least); /* that one is proved apart from GLPK */
}

bool ilp_write(struct ilp_search *s, const char *path)
{
    volatile bool ok = false;
    s->writing = true; /* half a file is of no use to anybody */
    if (setjmp(s->jump) == 0) {
        enter(s);
        s->m.most = INFINITY;
        ilp_build(&s->m);
        ok = glp_write_lp(s->m.p, NULL, path) == 0;
    }
    leave(s);
    s->writing = false;
    return ok;
}
