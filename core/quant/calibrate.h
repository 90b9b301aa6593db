/* quant/calibrate.h - runs a model over text and keeps statistics of every linear's inputs. */
#ifndef TSR_QUANT_CALIBRATE_H
#define TSR_QUANT_CALIBRATE_H

#include "engine/stream.h"
#include "quant/quant.h"
#include "tokenizer/tokenizer.h"

#define TSR_INPUT_ROWS 2048 /* default number recorded per site */

/* In addition to TSR_NEED_*, only for the host: the largest eigenvalue of the Hessian, of sums in
 * double (gram.h).  The needs of plugins are lower bits. */
#define TSR_NEED_TOP (UINT64_C(1) << 63)
/* Likewise: the inputs and outputs of the layer as a whole, for quantizers that pack blocks (tune.h). */
#define TSR_NEED_BLOCK       (UINT64_C(1) << 62)
#define TSR_BORROWED_DAMPING 0.1

struct tsr_quant_calibrate_options {
    const char *text; /* path */
    uint64_t    samples, seqlen, seed;
    uint64_t    input_rows; /* most recorded rows of a site (TSR_NEED_INPUTS); 0: TSR_INPUT_ROWS */
    uint64_t need; /* TSR_NEED_* of later tsr_quant_calibration_layer() calls: Hessians and inputs
                      among them go to `folder` in the same pass */
    const char *folder; /* one file per layer is kept here and read again when it is of the same
                           model, text and options (docs/formats/calibration.md); NULL: none */
    struct tsr_plugin_run_on on;
    bool defer; /* only choose the sequences: no pass over the model, no resident moments,
                           everything comes from tsr_quant_calibration_layer() when asked */
};

/* The file is tokenized as a whole (with the tokenizer's special tokens); `samples` runs of
 * `seqlen` tokens are taken from it at places that the seed draws, and run through the model in
 * F32, layer by layer: one layer's weights are on the device at a time, the hidden states of all
 * runs are in host memory (4 * samples * seqlen * hidden bytes; a log line at -v says how much).
 * Sums are in double in token order, so that the result is a function of model, text and options
 * alone.  A text with fewer than seqlen tokens is TSR_E_INPUT.  Registry and model must outlive
 * the calibration.  [setup] */
tsr_status tsr_quant_calibrate(struct tsr_quant_calibration **c, struct tsr_registry *r,
                               const struct tsr_model *m, const struct tsr_tokenizer *t,
                               const struct tsr_quant_calibrate_options *opt, struct tsr_err *err);

/* The sequences of `like` through another model with as many layers and sites, such as a rotated one: nothing is read from or
 * stored in files.  A calibration from an importance matrix has no sequences: TSR_E_INPUT. */
tsr_status tsr_quant_calibrate_like(struct tsr_quant_calibration      **c,
                                    const struct tsr_quant_calibration *like,
                                    const struct tsr_model *m, struct tsr_err *err);

/* Inputs of a layer as a whole, and what the original layer makes of the same tokens in the original model.  The
 * inputs are those after the quantized layers where `before` is given, else the original ones; they are the first
 * whole sequences that fit into input_rows, at least one.  Arrays [sequences * tokens, hidden], owned. */
struct tsr_quant_recording {
    uint64_t sequences, tokens, hidden; /* sequences 0: nothing is recorded */
    float   *in, *out;
};
void tsr_quant_recording_free(struct tsr_quant_recording *r);

/* Statistics of the inputs of all sites of one layer; arrays owned.  cols 0: the layer lacks the site. */
struct tsr_quant_layer_stats {
    uint64_t                   sites;    /* hparams.sites */
    struct tsr_quant_stats    *site;     /* [sites] */
    double                    *top;      /* [sites]; TSR_NEED_TOP; NaN if not requested */
    uint8_t                   *borrowed; /* [sites]; 1: of an expert that no token took */
    uint64_t                   sequence; /* rows of `inputs` that are one sequence, in order */
    struct tsr_quant_recording block;    /* TSR_NEED_BLOCK */
};
tsr_status tsr_quant_layer_stats_new(struct tsr_quant_layer_stats *s, uint64_t sites,
                                     uint64_t sequence, struct tsr_err *err);
void       tsr_quant_layer_stats_free(struct tsr_quant_layer_stats *s);

/* Computes what `need` (TSR_NEED_*, TSR_NEED_TOP, TSR_NEED_BLOCK) names of one layer; the rest of each site is NULL.
 *
 *   before NULL     inputs of the original model; stored files are used if they match
 *   before given    preceding layers run from the overlay (layers it lacks: original),
 *                   the layer itself is the original; nothing is stored.  Until the next call
 *                   only layers from this one on may change in it
 *
 * hessian is 2 * mean over sequences of X^T X, F32, [cols, cols]; top is its largest eigenvalue in
 * double, and needs no hessian.  inputs are the first whole sequences that fit into input_rows, at
 * least one; row i belongs to sequence i / sequence; experts have none.
 *
 * An expert's site counts the tokens that the router gave it.  An expert that got none borrows: its statistics are of the
 * layer's inputs in the first sequence, as if it got them all, and TSR_BORROWED_DAMPING of the mean of its Hessian's
 * diagonal is added to that diagonal (docs/formats/calibration.md).  Requesting layers in ascending order costs one
 * pass over the model in total; going back, or to another overlay, restarts at the embedding.
 * TSR_NEED_CROSS needs `before`, else TSR_E_INPUT; the hidden states of the original model are then kept next to
 * those of the overlay, and experts have none.  TSR_NEED_SENSITIVITY is TSR_E_INPUT: it needs gradients.  [setup] */
tsr_status tsr_quant_calibration_layer(struct tsr_quant_calibration *c, uint64_t layer,
                                       uint64_t need, const struct tsr_model_overlay *before,
                                       struct tsr_quant_layer_stats *out, struct tsr_err *err);

/* The calibration's stream (sequences of at most seqlen tokens) with the original of one layer
 * open, to run parts of it.  Borrowed until the next call on c; the linears that the caller sets
 * in it are forgotten then.  [setup] */
tsr_status tsr_quant_calibration_stream(struct tsr_quant_calibration *c, uint64_t layer,
                                        struct tsr_stream **s, struct tsr_err *err);

/* Where its files are, with the model's routing counts among them (routing.h); NULL: nowhere. */
const char *tsr_quant_calibration_folder(const struct tsr_quant_calibration *c);

/* Bytes that a calibration takes in addition to the model: hidden states, device, and one layer's
 * statistics for this need.  An upper bound, known before anything runs. */
tsr_status tsr_quant_calibration_memory(const struct tsr_model                   *m,
                                        const struct tsr_quant_calibrate_options *opt,
                                        uint64_t need, uint64_t *bytes, struct tsr_err *err);

/* The sums for the statistics of one site; for tests and for other ways to add inputs. */
struct tsr_quant_moments {
    uint64_t cols, rows;
    double  *sum, *square, *magnitude;
    float   *absmax;
};
tsr_status tsr_quant_moments_create(struct tsr_quant_moments *s, uint64_t cols,
                                    struct tsr_err *err);
/* Adds n rows; columns in parallel.  A value that is not finite is TSR_E_NUMERIC with its place. */
tsr_status tsr_quant_moments_add(struct tsr_quant_moments *s, struct tsr_pool *pool, const float *x,
                                 uint64_t n, struct tsr_err *err);
/* Fills stats with fresh arrays.  s->rows must not be 0. */
tsr_status tsr_quant_moments_finish(const struct tsr_quant_moments *s,
                                    struct tsr_quant_stats *stats, struct tsr_err *err);
void       tsr_quant_moments_free(struct tsr_quant_moments *s);

#endif
