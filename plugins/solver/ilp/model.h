/* SPDX-License-Identifier: GPL-3.0-or-later */
/* model.h - rows and columns of the integer program while it is built: rows.c makes them, model.c and links.c
 * say which. */
#ifndef TSR_SOLVER_ILP_MODEL_H
#define TSR_SOLVER_ILP_MODEL_H

#include "ilp.h"

#define L_(m) ((m)->c.in->layers)

#define N_(m) ((m)->c.devices)

#define Q_(m) ((m)->c.in->bits)

static inline int ilp_z(const struct ilp_model *m, uint64_t i, uint64_t j, uint64_t q)
{
    return m->z[(i * N_(m) + j) * Q_(m) + q];
}

int  ilp_column(struct ilp_model *m, int kind, double least, double most, const char *name,
                uint64_t i, uint64_t j, uint64_t q);
void ilp_put(struct ilp_model *m, int col, double value);
/* The row that was ilp_put together; lower and upper may be infinite. */
void ilp_finish(struct ilp_model *m, double lower, double upper, const char *name, uint64_t i,
                uint64_t j, uint64_t k);
/* "layer i is on device j", times f */
void ilp_put_on(struct ilp_model *m, uint64_t i, uint64_t j, double f);
/* Lower bound of a plan in which a stage or a link takes these times. */
double ilp_least_cost(const struct ilp_model *m, double pre, double dec, bool link);
/* y and u, and which layers are where (paper.c). */
void ilp_add_paper(struct ilp_model *m);
/* t[i][j][k] leaves device j at layer i; a path that arrives at a device and does not leave is there with
 * layer i + 1. */
void ilp_add_flows(struct ilp_model *m);
void ilp_add_pairs(struct ilp_model *m);
void ilp_put_links(struct ilp_model *m, bool dec, double f);
/* Omega of the codecs of links, times f. */
void ilp_put_link_omega(struct ilp_model *m, double f);
void ilp_add_link_maxima(struct ilp_model *m);

#endif
