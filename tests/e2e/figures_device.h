/* figures_device.h - a device profile's points, knots and roofline, and the regressions that the program prints, as the tests
 * read them: lines of words, made from the file by awk and from JSON by jq (figures-profile.sh).
 *
 * DEVICE: "peak B/s", "overhead ms ms", "knot PHASE N", "kernel K above ops compute read compute read bytes convert",
 * "point K PHASE hidden ffn heads kv_heads head_dim gated v s t ms". */
#ifndef TESTS_E2E_FIGURES_DEVICE_H
#define TESTS_E2E_FIGURES_DEVICE_H

#include "figures.h"

#define FEATURES 5
#define MOST     4096
#define PREFILL  0
#define DECODE   1

struct layer {
    real weights, hidden, attend, kv;
};
struct point {
    char         kernel[32];
    int          phase;
    struct layer w;
    real         v, s, t, ms;
};
struct kernel {
    char name[32];
    real above, ops, compute[2], read[2], bytes, convert;
};
struct fit {
    char         kernel[32];
    int          phase;
    bool         pooled;
    struct layer w;
    real         more, up_to, points, error, c[FEATURES];
};
extern struct point  point[MOST];
extern struct kernel kernel[64];
extern struct fit    fit[MOST];
extern int           points, kernels, fits, knots[2];
extern real          knot[2][8], peak, overhead[2];

void read_device(const char *path);
void read_regressions(const char *path);
void read_lines(const char *path, void (*parse)(const char *line));
/* "K PHASE hidden ffn heads kv_heads head_dim gated v s t"; how much of the line it was in *used. */
bool parse_layer(const char *line, struct point *p, int *used);

real tokens_of(const struct point *p); /* at once */
void features(const struct point *p, real f[FEATURES]);
real evaluate(const struct fit *f, const struct point *p);
bool is_same(real a, real b); /* no warning of floats that are compared */
bool same_shape(const struct layer *a, const struct layer *b);
bool belongs(const struct fit *f, const struct point *p);

#endif
