/* plan/cost/fit.h - regressions over a profile's points; shared by fit.c and latency.c. */
#ifndef TSR_PLAN_COST_FIT_H
#define TSR_PLAN_COST_FIT_H

#include "plan/cost/profile.h"

/* What a layer's time depends on, in numbers; of one rank of a mesh. */
struct tsr_plan_work {
    double weights; /* in its linears, that a token multiplies with */
    double read;    /* that all tokens read: more, if they take different experts */
    double hidden;
    double attend; /* heads * head_dim */
    double kv;     /* numbers per token in K and V */
    double bytes;  /* that `read` weights are; 0: not known (a point) */
    double window; /* positions; 0: all */
    double state;  /* F32 numbers that a sequence keeps in place of K and V; 0: attention */
    double steps;  /* multiplications of a token with them */
};
/* The delta rule in place of attention. */
void tsr_plan_work_of_rule(const struct tsr_model_delta *d, struct tsr_plan_work *w);
void tsr_plan_work_of_point(const struct tsr_plan_point *p, struct tsr_plan_work *w);

/* Features of a layer: v, s, t as in latency.h. */
void tsr_plan_features(const struct tsr_plan_work *w, enum tsr_phase phase, double v, double s,
                       double t, double f[TSR_PLAN_FEATURES]);

/* One regression. */
struct tsr_plan_fit {
    const char          *kernel;
    enum tsr_phase       phase;
    uint64_t             knots[2]; /* tokens at once: more than [0], at most [1] */
    bool                 pooled;   /* over all shapes; else of the shape below */
    struct tsr_plan_work shape;
    double               c[TSR_PLAN_FEATURES];
    double               low[3], high[3]; /* v, s, t of its points */
    uint64_t             points;
    double               error; /* root mean square of relative errors */
};
struct tsr_plan_fits {
    struct tsr_plan_fit *v;
    uint64_t             n;
};

/* The regression for a layer, the nearest knots if none has its own; NULL: no point of the kernel. */
const struct tsr_plan_fit *tsr_plan_fit_find(const struct tsr_plan_fits *f, const char *kernel,
                                             enum tsr_phase phase, const struct tsr_plan_work *w,
                                             double tokens);
bool tsr_plan_fit_same_shape(const struct tsr_plan_work *a, const struct tsr_plan_work *b);

const struct tsr_plan_kernel_speed *tsr_plan_profile_kernel(const struct tsr_plan_profile *p,
                                                            const char *kernel, double tokens);
double tsr_plan_roofline_ms(const struct tsr_plan_profile *p, const struct tsr_plan_kernel_speed *k,
                            enum tsr_phase phase, const struct tsr_plan_work *w, double kv_bytes,
                            double v, double s, double t);

/* Non-negative least squares (Lawson and Hanson 1974): min |A x - b|, x >= 0.  a: [rows][cols] row
 * major, cols at most TSR_NNLS; not changed.  A column that is zero gets x 0.  *residual: |Ax-b|. */
#define TSR_NNLS 8
tsr_status tsr_plan_nnls(const double *a, const double *b, uint64_t rows, uint64_t cols, double *x,
                         double *residual, struct tsr_err *err);

/* The regressions of a profile, made by tsr_plan_profile_parse(). */
tsr_status tsr_plan_fits_create(struct tsr_plan_fits **f, const struct tsr_plan_profile *p,
                                struct tsr_err *err);
void       tsr_plan_fits_destroy(struct tsr_plan_fits *f);

#endif
