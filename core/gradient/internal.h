/* gradient/internal.h - what a pass over one layer holds, and its operations.  Each operation has a forward and a
 * backward function; rows are tokens.  d... is the derivative of the error with respect to ... */
#ifndef TSR_GRADIENT_INTERNAL_H
#define TSR_GRADIENT_INTERNAL_H

#include "gradient/gradient.h"

/* Activations of n tokens, rows one after the other. */
struct pass {
    const struct tsr_gradient_job  *job;
    const struct tsr_model_hparams *hp;
    const struct tsr_model_layer   *l;
    uint64_t                        n, hidden, wide, kv,
        ffn;               /* tokens; columns of h, of q and a, of k and v, of gate and up */
    float  *memory;        /* all below; owned */
    float  *x1, *x2;       /* [n, hidden]: outputs of the norms */
    float  *h2, *dh;       /* [n, hidden]: between the sub-layers; derivative of the residual */
    float  *y;             /* [n, hidden]: output of a sub-layer, derivative of a norm's output */
    float  *q0, *k0;       /* before their norms; q and k themselves where there are none */
    float  *q, *k, *v, *a; /* [n, wide], [n, kv], [n, kv], [n, wide]; q and k rotated */
    float  *dq, *dk, *dv, *da;
    float  *gate, *up, *act; /* [n, ffn]; gate is up where the family has none */
    float  *dact;            /* [n, ffn] */
    float  *turned;          /* [widest, n]: a derivative, columns as rows */
    float  *cosine, *sine;   /* [tokens, rope.dim / 2] */
    double *row;             /* [n]: squared differences of a row */
};

/* linear.c: y [n, rows] = x [n, cols] W^T + bias. */
tsr_status gradient_linear(const struct pass *p, enum tsr_linear_id id, const float *x, float *y,
                           struct tsr_err *err);
/* dx [n, cols] += dy W, unless dx is NULL; dw = dy^T x, if the job wants it. */
tsr_status gradient_linear_back(const struct pass *p, enum tsr_linear_id id, const float *x,
                                const float *dy, float *dx, struct tsr_err *err);

/* norm.c: y = norm(x) of `rows` rows of `cols`; y may be x. */
tsr_status gradient_norm(const struct pass *p, const struct tsr_model_norm *norm, const float *x,
                         uint64_t rows, uint64_t cols, float *y);
/* dx += d norm(x) / d x * dy, or = where `set`; dx may be dy then. */
tsr_status gradient_norm_back(const struct pass *p, const struct tsr_model_norm *norm,
                              const float *x, const float *dy, uint64_t rows, uint64_t cols,
                              bool set, float *dx);

/* rope.c: the angles of all positions, and rows turned by them in place; back: the other way. */
tsr_status gradient_rope_angles(const struct pass *p, struct tsr_err *err);
bool       gradient_rope_turns(const struct pass *p);
tsr_status gradient_rope(const struct pass *p, float *x, uint64_t heads, bool back);

/* attention.c: a from q, k, v; dq, dk, dv from da. */
tsr_status gradient_attention(const struct pass *p, struct tsr_err *err);
tsr_status gradient_attention_back(const struct pass *p, struct tsr_err *err);

/* act.c: act = func(gate) * up, or func(up). */
tsr_status gradient_act(const struct pass *p);
/* gate and up become their own derivatives, from dact. */
tsr_status gradient_act_back(const struct pass *p);

#endif
