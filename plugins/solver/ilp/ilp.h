/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ilp.h - the integer program of one device order and one micro-batch option, and its solution. */
#ifndef TSR_SOLVER_ILP_H
#define TSR_SOLVER_ILP_H

#include "../common/plan.h"

#include <glpk.h>
#include <setjmp.h>

#define ILP_STRONG 0
#define ILP_PAPER  1

struct ilp_opts {
    int64_t form, memory;
    double  time;
    const char *export;
    int32_t cuts, start;
};

/* A pipeline order and an option.  Devices may stay empty unless in->allow_unused is 0. */
struct ilp_case {
    const struct tsr_solver_instance *in;
    const struct tsr_solver_option   *o;
    const uint32_t                   *order; /* [devices] kinds */
    uint64_t                          devices, option;
    uint32_t                          form;
};

/* Columns by meaning; 0: none. i layer, j device in the order, q bit candidate. */
struct ilp_model {
    struct ilp_case    c;
    struct plan_counts n;
    glp_prob          *p;
    double             most;     /* plans that cost more are left out; INFINITY: none */
    int               *z;        /* [L][N][Q] layer i is on j with q           */
    int               *v;        /* [L][N], strong: layer i is on 0..j         */
    int               *u;        /* [L][N], paper: layer i is on j             */
    int               *y;        /* [L][Q], paper                              */
    int               *t;        /* [L][N][N][V], strong with links: i on j, i + 1 on k, codec v */
    int               *w;        /* [N][N], paper with links: k follows j      */
    int                pre, dec; /* the maxima                          */
    int                decode;   /* `steady`: the time of all decode steps */
    int               *stage_pre, *stage_dec; /* [N], paper             */
    bool               links;
    int               *ind; /* a row at work */
    double            *val;
    int                len;
};

/* What the search of one case knows. */
struct ilp_search {
    struct ilp_model            m;
    struct plan_clock          *clock;
    const struct ilp_opts      *opts;
    struct tsr_solver_solution *try, *best; /* room for a plan; the best of all cases */
    double                      cost;       /* of *best; INFINITY: none yet */
    double                      bound;      /* of this case, proved */
    uint64_t                    end_us;     /* of this case; 0: none */
    bool                        done;       /* nothing below cost * (1 - gap / 2) is left */
    bool                        stopped;    /* GLPK was left by a jump */
    bool                        writing;    /* a file: time does not stop it */
    char                        said[200];  /* GLPK's last line */
    jmp_buf                     jump;
};

/* Columns and entries that the model would have, as GLPK counts them; false beyond its integers. */
bool ilp_size(const struct ilp_case *c, uint64_t *columns, uint64_t *entries);
/* Room for the tables of a model of that many layers and devices; false without memory. */
bool ilp_model_room(struct ilp_model *m, const struct tsr_solver_instance *in, uint64_t devices,
                    struct plan_arena *a);
/* Makes m->p for m->c.  GLPK's failures leave through its error hook. */
void ilp_build(struct ilp_model *m);
/* The objective is at most `limit`. */
void ilp_limit(struct ilp_model *m, double limit);

/* Solves s->m.c; s->cost and *s->best are better afterwards where the case has a better plan.
 * s->bound is a lower bound of the case. */
void ilp_solve(struct ilp_search *s);
/* Writes the case as CPLEX-LP; false with s->said set. */
bool ilp_write(struct ilp_search *s, const char *path);

#endif
