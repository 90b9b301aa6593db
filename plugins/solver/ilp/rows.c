/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Columns and rows of the integer program. */
#include "model.h"

#include <math.h>
#include <stdio.h>

int ilp_column(struct ilp_model *m, int kind, double least, double most, const char *name,
               uint64_t i, uint64_t j, uint64_t q)
{
    char text[96];
    int  at = glp_add_cols(m->p, 1);
    (void)snprintf(text, sizeof text, name, (unsigned long long)i, (unsigned long long)j,
                   (unsigned long long)q);
    glp_set_col_name(m->p, at, text);
    if (kind == GLP_BV)
        glp_set_col_kind(m->p, at, GLP_BV);
    else
        glp_set_col_bnds(m->p, at, most < INFINITY ? GLP_DB : GLP_LO, least, most);
    return at;
}

void ilp_put(struct ilp_model *m, int col, double value)
{
    if (col == 0 || value == 0)
        return;
    m->len++;
    m->ind[m->len] = col;
    m->val[m->len] = value;
}

void ilp_finish(struct ilp_model *m, double lower, double upper, const char *name, uint64_t i,
                uint64_t j, uint64_t k)
{
    char text[96];
    int  row = glp_add_rows(m->p, 1);
    int  type = lower == upper       ? GLP_FX
                : lower == -INFINITY ? GLP_UP
                : upper == INFINITY  ? GLP_LO
                                     : GLP_DB;
    (void)snprintf(text, sizeof text, name, (unsigned long long)i, (unsigned long long)j,
                   (unsigned long long)k);
    glp_set_row_name(m->p, row, text);
    glp_set_row_bnds(m->p, row, type, lower, upper);
    glp_set_mat_row(m->p, row, m->len, m->ind, m->val);
    m->len = 0;
}

void ilp_put_on(struct ilp_model *m, uint64_t i, uint64_t j, double f)
{
    if (m->c.form == ILP_PAPER) {
        ilp_put(m, m->u[i * N_(m) + j], f);
        return;
    }
    for (uint64_t q = 0; q < Q_(m); q++)
        ilp_put(m, ilp_z(m, i, j, q), f);
}

double ilp_least_cost(const struct ilp_model *m, double pre, double dec, bool link)
{
    const struct plan_counts *n = &m->n;
    if (m->c.in->objective == TSR_OBJECTIVE_PAPER)
        return (n->mu_pre - link) * pre + ((n->mu_dec - 1) * n->steps + !link) * dec;
    double rounds = n->steps > 0 ? fmax(n->steps + n->mu_dec - 1, n->steps * n->mu_dec) : 0;
    return n->mu_pre * pre + rounds * dec;
}
