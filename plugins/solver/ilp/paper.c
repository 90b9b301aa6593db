/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Where layers are in LLM-PQ's form: constraints (9) to (11), (15) and (16), corrected as model.c says. */
#include "model.h"

#include <math.h>

void ilp_add_paper(struct ilp_model *m)
{
    uint64_t L = L_(m), N = N_(m), Q = Q_(m);
    for (uint64_t i = 0; i < L; i++)
        for (uint64_t q = 0; q < Q; q++)
            m->y[i * Q + q] = ilp_column(m, GLP_BV, 0, 1, "y_%llu_%llu", i, q, 0);
    for (uint64_t i = 0; i < L; i++)
        for (uint64_t j = 0; j < N; j++)
            m->u[i * N + j] = ilp_column(m, GLP_BV, 0, 1, "u_%llu_%llu", i, j, 0);
    for (uint64_t i = 0; i < L; i++) {
        for (uint64_t j = 0; j < N; j++)
            for (uint64_t q = 0; q < Q; q++)
                ilp_put(m, ilp_z(m, i, j, q), 1);
        ilp_finish(m, 1, 1, "c9_%llu", i, 0, 0);
        for (uint64_t q = 0; q < Q; q++) {
            for (uint64_t j = 0; j < N; j++)
                ilp_put(m, ilp_z(m, i, j, q), 1);
            ilp_put(m, m->y[i * Q + q], -1);
            ilp_finish(m, 0, 0, "c10_%llu_%llu", i, q, 0);
        }
        for (uint64_t j = 0; j < N; j++) {
            for (uint64_t q = 0; q < Q; q++)
                ilp_put(m, ilp_z(m, i, j, q), 1);
            ilp_put(m, m->u[i * N + j], -1);
            ilp_finish(m, 0, 0, "c11_%llu_%llu", i, j, 0);
        }
        for (uint64_t q = 0; q < Q; q++)
            ilp_put(m, m->y[i * Q + q], 1);
        ilp_finish(m, 1, 1, "bits_%llu", i, 0, 0);
        for (uint64_t j = 0; j < N; j++)
            ilp_put(m, m->u[i * N + j], 1);
        ilp_finish(m, 1, 1, "device_%llu", i, 0, 0);
    }
    for (uint64_t i = 1; i < L; i++)
        for (uint64_t j = 0; j < N; j++)
            for (uint64_t k = j + 1; m->c.in->allow_unused && k < N; k++) {
                ilp_put_on(m, i, j, 1);
                ilp_put_on(m, i - 1, k, 1);
                ilp_finish(m, -INFINITY, 1, "c16_%llu_%llu_%llu", i, j, k);
            }
    if (m->c.in->allow_unused)
        return;
    ilp_put_on(m, 0, 0, 1);
    ilp_finish(m, 1, 1, "c15_first", 0, 0, 0);
    ilp_put_on(m, L - 1, N - 1, 1);
    ilp_finish(m, 1, 1, "c15_last", 0, 0, 0);
    for (uint64_t i = 1; i < L; i++)
        for (uint64_t j = 0; j < N; j++) {
            ilp_put_on(m, i, j, 1);
            ilp_put_on(m, i - 1, j, -1);
            if (j > 0)
                ilp_put_on(m, i - 1, j - 1, -1);
            ilp_finish(m, -INFINITY, 0, "c16_%llu_%llu", i, j, 0);
        }
}
