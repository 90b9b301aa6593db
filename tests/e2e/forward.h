/* forward.h - a forward pass of a Llama in double, by plain loops, from places of numbers in files; and what is
 * selected for compensation in it.  No code of the program is in it. */
#ifndef TESTS_E2E_FORWARD_H
#define TESTS_E2E_FORWARD_H

#include "residuals.h"

enum { QKV, OUT, GATE_UP, DOWN, SITES }; /* inputs of linears */
enum { Q, K, V, O, GATE, UP, DOWN_PROJ, LINEARS };

struct linear {
    uint64_t    rows, cols;
    float      *w;
    struct part part; /* no codes: it has no residuals */
};
struct layer {
    struct linear lin[LINEARS];
    float        *norm[2];
    float        *top[SITES], *meansq[SITES], *lost[SITES];
};
struct model {
    uint64_t      hidden, inter, layers, heads, kv_heads, vocab;
    double        eps, theta;
    struct layer *layer;
    float        *embed, *norm, *head;
};

/* What is compensated while tokens are read, and what is found out meanwhile. */
struct selection {
    char     way; /* d(ynamic), m(eansq), h(essian), e(xact), r(andom), 0: none */
    uint32_t k[SITES];
    uint64_t seed;
    uint64_t exact, common, close; /* close: of `exact`, those that rounding may change */
};

/* Called with every input of a linear. */
typedef void (*on_input)(void *ctx, uint64_t layer, int site, uint64_t position, const double *x,
                         uint64_t cols);

struct model *read_model(const char *path);
uint64_t      site_cols(const struct model *m, int site);
int           site_of(int linear);
/* Runs n tokens of one sequence; logits [n, vocab], or NULL. */
void forward(const struct model *m, const uint32_t *ids, uint64_t n, struct selection *s,
             double *logits, on_input tap, void *ctx);

/* Channels of an input that are taken, ascending; returns how many. */
uint64_t choose(const struct model *m, struct selection *s, uint64_t layer, int site,
                uint64_t position, const double *x, uint32_t *list);
/* The `count` largest by magnitude, ascending; of equal ones the first. */
void largest_channels(const double *x, uint64_t cols, uint64_t count, uint32_t *list);
/* Uniform in [0, 1) by Philox 4x32-10, key seed, counter (record, token). */
double uniform(uint64_t seed, uint64_t record, uint64_t token);

#endif
