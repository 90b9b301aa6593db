/* plan/fit.h - regressions over a profile's points; shared by fit.c and latency.c. */
#ifndef TSR_PLAN_FIT_H
#define TSR_PLAN_FIT_H

#include "plan/latency.h"

/* What a layer's time depends on, in numbers; of one rank of a mesh. */
struct tsr_work {
    double weights; /* in its linears */
    double hidden;
    double attend; /* heads * head_dim */
    double kv;     /* numbers per token in K and V */
    double bytes;  /* that its weights are read as; 0: not known (a point) */
    double window; /* positions; 0: all */
};
void tsr_work_of_point(const struct tsr_point *p, struct tsr_work *w);

/* Features of a layer: v, s, t as in latency.h. */
void tsr_features(const struct tsr_work *w, enum tsr_phase phase, double v, double s, double t,
                  double f[TSR_FEATURES]);

/* One regression. */
struct tsr_fit {
    const char     *kernel;
    enum tsr_phase  phase;
    uint64_t        knots[2]; /* tokens at once: more than [0], at most [1] */
    bool            pooled;   /* over all shapes; else of the shape below */
    struct tsr_work shape;
    double          c[TSR_FEATURES];
    double          low[3], high[3]; /* v, s, t of its points */
    uint64_t        points;
    double          error; /* root mean square of relative errors */
};
struct tsr_fits {
    struct tsr_fit *v;
    uint64_t        n;
};

/* The regression for a layer, the nearest knots if none has its own; NULL: no point of the kernel. */
const struct tsr_fit *tsr_fit_find(const struct tsr_fits *f, const char *kernel,
                                   enum tsr_phase phase, const struct tsr_work *w, double tokens);
bool                  tsr_fit_same_shape(const struct tsr_work *a, const struct tsr_work *b);

const struct tsr_kernel_speed *tsr_profile_kernel(const struct tsr_profile *p, const char *kernel,
                                                  double tokens);
/* The roofline as coefficients of the features (their sum is at least the roofline), and itself. */
void   tsr_roofline_features(const struct tsr_profile *p, const struct tsr_kernel_speed *k,
                             enum tsr_phase phase, const struct tsr_work *w, double kv_bytes,
                             double c[TSR_FEATURES]);
double tsr_roofline_ms(const struct tsr_profile *p, const struct tsr_kernel_speed *k,
                       enum tsr_phase phase, const struct tsr_work *w, double kv_bytes, double v,
                       double s, double t);

#endif
