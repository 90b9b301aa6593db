/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Links of the integer program: flows between consecutive layers (strong), pairs of devices (paper).
 *
 * A flow has a column for each codec of links.  With several codecs the columns are binary: half of a link by one codec
 * and half by another would be faster than either.  Pairs have no layer, so they have one codec, without omega. */
#include "model.h"

#include "../common/parts.h"

#include <math.h>
#include <stdio.h>

#define V_(m) plan_links((m)->c.in)

static double link_ms(const struct ilp_model *m, uint64_t v, uint64_t j, uint64_t k, bool dec)
{
    return plan_link_ms(m->c.in, m->c.o, v, m->c.order[j], m->c.order[k], dec);
}

static bool is_link_possible(const struct ilp_model *m, uint64_t v, uint64_t j, uint64_t k)
{
    return ilp_least_cost(m, link_ms(m, v, j, k, false), link_ms(m, v, j, k, true), true) <=
           m->most;
}

static bool linked(const struct ilp_model *m, uint64_t j, uint64_t k)
{
    return link_ms(m, 0, j, k, false) > 0 || link_ms(m, 0, j, k, true) > 0;
}

static int *flow(const struct ilp_model *m, uint64_t i, uint64_t j, uint64_t k)
{
    return &m->t[((i * N_(m) + j) * N_(m) + k) * V_(m)];
}

/* All codecs of the flow from j to k after layer i, times f. */
static void put_flow(struct ilp_model *m, uint64_t i, uint64_t j, uint64_t k, double f)
{
    for (uint64_t v = 0; v < V_(m); v++)
        ilp_put(m, flow(m, i, j, k)[v], f);
}

static void add_flow(struct ilp_model *m, uint64_t i, uint64_t j, uint64_t k)
{
    int kind = V_(m) > 1 ? GLP_BV : GLP_CV;
    for (uint64_t v = 0; v < V_(m); v++) {
        char name[48] = "t_%llu_%llu_%llu"; /* a form of i, j and k */
        if (V_(m) > 1)
            (void)snprintf(name, sizeof name, "t%llu_%%llu_%%llu_%%llu", (unsigned long long)v);
        if (is_link_possible(m, v, j, k))
            flow(m, i, j, k)[v] = ilp_column(m, kind, 0, 1, name, i, j, k);
    }
}

void ilp_add_flows(struct ilp_model *m)
{
    uint64_t L = L_(m), N = N_(m);
    for (uint64_t i = 0; i + 1 < L; i++) {
        for (uint64_t j = 0; j < N; j++)
            for (uint64_t k = j + 1; k < N; k++)
                add_flow(m, i, j, k);
        for (uint64_t j = 0; j < N; j++) {
            for (uint64_t k = j + 1; k < N; k++)
                put_flow(m, i, j, k, 1);
            if (m->len == 0)
                continue;
            ilp_put_on(m, i, j, -1);
            ilp_finish(m, -INFINITY, 0, "leave_%llu_%llu", i, j, 0);
        }
        for (uint64_t k = 0; k < N; k++) {
            ilp_put_on(m, i + 1, k, 1);
            ilp_put_on(m, i, k, -1);
            for (uint64_t j = 0; j < k; j++)
                put_flow(m, i, j, k, -1);
            for (uint64_t j = k + 1; j < N; j++)
                put_flow(m, i, k, j, 1);
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
            if (is_link_possible(m, 0, j, k)) /* else the row forbids it */
                m->w[j * N + k] = ilp_column(m, GLP_CV, 0, 1, "w_%llu_%llu", j, k, 0);
            for (uint64_t i = 0; i + 1 < L_(m); i++) {
                ilp_put(m, m->w[j * N + k], 1);
                ilp_put_on(m, i, j, -1);
                ilp_put_on(m, i + 1, k, -1);
                ilp_finish(m, -1, INFINITY, "link_%llu_%llu_%llu", i, j, k);
            }
        }
}

/* The link from j to k by codec v, times f: a number of columns that add up to "k follows j". */
static void put_link(struct ilp_model *m, uint64_t v, uint64_t j, uint64_t k, double f)
{
    if (m->c.form == ILP_PAPER) {
        ilp_put(m, m->w[j * N_(m) + k], f);
        return;
    }
    for (uint64_t i = 0; i + 1 < L_(m); i++)
        ilp_put(m, flow(m, i, j, k)[v], f);
}

void ilp_put_links(struct ilp_model *m, bool dec, double f)
{
    for (uint64_t j = 0; m->links && j < N_(m); j++)
        for (uint64_t k = j + 1; k < N_(m); k++)
            for (uint64_t v = 0; v < V_(m); v++)
                put_link(m, v, j, k, f * link_ms(m, v, j, k, dec));
}

void ilp_put_link_omega(struct ilp_model *m, double f)
{
    for (uint64_t i = 0; m->links && m->c.form == ILP_STRONG && i + 1 < L_(m); i++)
        for (uint64_t j = 0; j < N_(m); j++)
            for (uint64_t k = j + 1; k < N_(m); k++)
                for (uint64_t v = 0; v < V_(m); v++)
                    ilp_put(m, flow(m, i, j, k)[v], f * plan_link_omega(m->c.in, v, i));
}

void ilp_add_link_maxima(struct ilp_model *m)
{
    for (uint64_t j = 0; j < N_(m); j++)
        for (uint64_t k = j + 1; k < N_(m); k++)
            for (int dec = 0; dec < 2; dec++) {
                for (uint64_t v = 0; v < V_(m); v++)
                    if (is_link_possible(m, v, j, k))
                        put_link(m, v, j, k, -link_ms(m, v, j, k, dec));
                if (m->len == 0)
                    continue;
                ilp_put(m, dec ? m->dec : m->pre, 1);
                ilp_finish(m, 0, INFINITY, dec ? "c7_dec_%llu_%llu" : "c7_pre_%llu_%llu", j, k, 0);
            }
}
