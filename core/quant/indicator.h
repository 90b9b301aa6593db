/* quant/indicator.h - sensitivity of a layer to quantization at a given bit width.
 *
 *   variance    D * S^2 * Var[X] / 4 (deterministic rounding) or D * S^2 * (E[X]^2 + Var[X]) / 6
 *               (stochastic), LLM-PQ Theorem 1: error variance of one output element
 *   hessian     lambda_max(H) * |Q(W) - W|^2, with the configured quantizer as Q
 *   random      uniform, falling with the bits within a layer
 *   measured    the true increase of the mean loss with only that layer quantized
 *
 * A layer's indicator is the sum over its linears.  16 bits means the original weights: 0 in every
 * table.  A linear of an expert counts by the tokens that take it: its variance times their share of all, its Hessian
 * over their inputs; one that no token of the calibration takes adds nothing.
 */
#ifndef TSR_QUANT_INDICATOR_H
#define TSR_QUANT_INDICATOR_H

#include "quant/calibrate.h"
#include "quant/scheme.h"

#include <jansson.h>

#define TSR_INDICATOR_BITS 8 /* most widths in a file */

/* ---- of one linear ------------------------------------------------------- */

enum tsr_indicator_step { TSR_QUANT_STEP_TENSOR, TSR_QUANT_STEP_ROW };

/* Extents of a matrix, in double: of the whole, and mean squares over rows. */
struct tsr_quant_extents {
    uint64_t rows, cols;
    double   range, absmax;               /* max - min, max |w| of the tensor */
    double   row_range_sq, row_absmax_sq; /* means over rows of the squares */
};
/* TSR_E_NUMERIC with row and column if a weight is not finite. */
tsr_status tsr_quant_extents_of(const struct tsr_matrix *w, struct tsr_quant_extents *e,
                                struct tsr_err *err);
/* The squared step of a grid of 2^bits levels: (max - min) / (2^bits - 1), symmetric
 * absmax / (2^(bits-1) - 1); by row: the mean of the rows' squares. */
double tsr_quant_extents_step_sq(const struct tsr_quant_extents *e, uint32_t bits,
                                 enum tsr_indicator_step step, bool symmetric);

/* Mean and population variance over all tokens and columns together, from the columns' mean and variance. */
void tsr_quant_stats_overall(const struct tsr_quant_stats *s, double *mean, double *variance);

/* D is the number of inputs. */
double tsr_quant_omega_variance(uint64_t d, double step_sq, double mean, double variance,
                                bool stochastic);
/* Values for ascending bits (n <= TSR_INDICATOR_BITS), falling: sorted uniform draws of (seed,
 * layer); 16 and above get 0. */
void tsr_quant_omega_random(uint64_t seed, uint64_t layer, const uint32_t *bits, uint32_t n,
                            double *omega);

/* Kendall's tau-b of two lists: 1 the same order, -1 the reverse; NaN when one is constant. */
double tsr_quant_kendall_tau(const double *a, const double *b, uint64_t n);

/* ---- of a model ----------------------------------------------------------- */

enum tsr_indicator {
    TSR_QUANT_IND_VARIANCE,
    TSR_QUANT_IND_VARIANCE_STOCHASTIC,
    TSR_QUANT_IND_HESSIAN,
    TSR_QUANT_IND_RANDOM,
    TSR_QUANT_IND_MEASURED,
    TSR_QUANT_INDICATORS
};
const char *tsr_quant_indicator_name(enum tsr_indicator i); /* "variance_stochastic" */

struct tsr_quant_indicator_options {
    uint32_t                  bits[TSR_INDICATOR_BITS]; /* ascending, 16 allowed as the last */
    uint32_t                  n_bits;
    struct tsr_quant_scheme **schemes; /* [n_bits], of each width; NULL for 16 */
    uint32_t                  kinds;   /* bit 1u << TSR_IND_* */
    enum tsr_indicator_step   step;    /* of the variance tables */
    bool                      symmetric;
    uint64_t                  seed;      /* random */
    uint64_t                  sequences; /* of the calibration, for measured; 0: all */
};

struct tsr_quant_indicators {
    uint64_t layers;
    uint32_t bits[TSR_INDICATOR_BITS], n_bits;
    uint32_t kinds;
    double  *omega[TSR_QUANT_INDICATORS]; /* [layers][n_bits], NULL: not made; owned */
    uint64_t experts;                     /* of a layer; 0: none */
    double  *expert
        [TSR_QUANT_INDICATORS]; /* [layers][experts][n_bits]: what each expert adds to its layer's omega; NULL:
                                               not known; owned */
    double   seconds[TSR_QUANT_INDICATORS]; /* statistics and work, in this run of the program */
    double   loss;                          /* mean loss of the original, measured only */
    uint64_t sequences, tokens;             /* that the loss is over */
};

/* Runs layer by layer.  Losses can fall too: measured may be negative. */
tsr_status tsr_quant_indicators_run(struct tsr_quant_indicators *out, struct tsr_registry *r,
                                    const struct tsr_model *m, struct tsr_quant_calibration *c,
                                    const struct tsr_quant_indicator_options *opt,
                                    struct tsr_err                           *err);
void       tsr_quant_indicators_free(struct tsr_quant_indicators *t);

/* tau of one table against measured over layers and widths (b < 0) or over the layers at width
 * index b; 16 bits are excluded.  NaN if there is nothing to rank. */
double tsr_quant_indicators_tau(const struct tsr_quant_indicators *t, enum tsr_indicator kind,
                                int b);

/* The file tessera.indicators/1 (docs/formats/indicators.md) as JSON; new reference, NULL when out
 * of memory. */
json_t *tsr_quant_indicators_json(const struct tsr_quant_indicators *t, const struct tsr_model *m,
                                  const struct tsr_quant_calibration       *c,
                                  const struct tsr_quant_indicator_options *opt,
                                  const json_t                             *quantizer);

#endif
