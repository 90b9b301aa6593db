/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Links of the integer program: flows between consecutive layers (strong), pairs of devices (paper). */
#include "model.h"

#include <math.h>

static double link_ms(const struct ilp_model *m, uint64_t j, uint64_t k, bool dec)
{
    uint64_t e = m->c.order[j] * m->c.in->n_kinds + m->c.order[k];
    return dec ? m->c.o->comm_dec_ms[e] : m->c.o->comm_pre_ms[e];
}

static bool is_link_possible(const struct ilp_model *m, uint64_t j, uint64_t k)
{
    return ilp_least_cost(m, link_ms(m, j, k, false), link_ms(m, j, k, true), true) <= m->most;
}

static bool linked(const struct ilp_model *m, uint64_t j, uint64_t k)
{
    return link_ms(m, j, k, false) > 0 || link_ms(m, j, k, true) > 0;
}

void ilp_add_flows(struct ilp_model *m)
{
    uint64_t L = L_(m), N = N_(m);
    for (uint64_t i = 0; i + 1 < L; i++) {
        for (uint64_t j = 0; j < N; j++)
            for (uint64_t k = j + 1; k < N; k++)
                m->t[(i * N + j) * N + k] =
                    is_link_possible(m, j, k)
                        ? ilp_column(m, GLP_CV, 0, 1, "t_%llu_%llu_%llu", i, j, k)
                        : 0;
        for (uint64_t j = 0; j < N; j++) {
            for (uint64_t k = j + 1; k < N; k++)
                ilp_put(m, m->t[(i * N + j) * N + k], 1);
            if (m->len == 0)
                continue;
            ilp_put_on(m, i, j, -1);
            ilp_finish(m, -INFINITY, 0, "leave_%llu_%llu", i, j, 0);
        }
        for (uint64_t k = 0; k < N; k++) {
            ilp_put_on(m, i + 1, k, 1);
            ilp_put_on(m, i, k, -1);
            for (uint64_t j = 0; j < k; j++)
                ilp_put(m, m->t[(i * N + j) * N + k], -1);
            for (uint64_t j = k + 1; j < N; j++)
                ilp_put(m, m->t[(i * N + k) * N + j], 1);
            ilp_finish(m, 0, 0, "arrive_%llu_%llu", i, k, 0);
        }
    }
}

void ilp_add_pairs(struct ilp_model *m)
{
    uint64_t N = N_(m);
    for (uint64_t j = 0; j < N; j++)
        for (uint64_t k = j + 1; k < N; k++) {
            if (!linked(m, j, k))
                continue;
            if (is_link_possible(m, j, k)) /* else the row forbids it */
                m->w[j * N + k] = ilp_column(m, GLP_CV, 0, 1, "w_%llu_%llu", j, k, 0);
            for (uint64_t i = 0; i + 1 < L_(m); i++) {
                ilp_put(m, m->w[j * N + k], 1);
                ilp_put_on(m, i, j, -1);
                ilp_put_on(m, i + 1, k, -1);
                ilp_finish(m, -1, INFINITY, "link_%llu_%llu_%llu", i, j, k);
            }
        }
}

/* The link from j to k, times f: a number of columns that add up to "k follows j". */
static void put_link(struct ilp_model *m, uint64_t j, uint64_t k, double f)
{
    uint64_t N = N_(m);
    if (m->c.form == ILP_PAPER) {
        ilp_put(m, m->w[j * N + k], f);
        return;
    }
    for (uint64_t i = 0; i + 1 < L_(m); i++)
        ilp_put(m, m->t[(i * N + j) * N + k], f);
}

void ilp_put_links(struct ilp_model *m, bool dec, double f)
{
    for (uint64_t j = 0; m->links && j < N_(m); j++)
        for (uint64_t k = j + 1; k < N_(m); k++)
            put_link(m, j, k, f * link_ms(m, j, k, dec));
}

void ilp_add_link_maxima(struct ilp_model *m)
{
    for (uint64_t j = 0; j < N_(m); j++)
        for (uint64_t k = j + 1; k < N_(m); k++)
            for (int dec = 0; dec < 2; dec++) {
                double ms = link_ms(m, j, k, dec);
                if (!(ms > 0) || !is_link_possible(m, j, k))
                    continue;
                put_link(m, j, k, -ms);
                ilp_put(m, dec ? m->dec : m->pre, 1);
                ilp_finish(m, 0, INFINITY, dec ? "c7_dec_%llu_%llu" : "c7_pre_%llu_%llu", j, k, 0);
            }
}
