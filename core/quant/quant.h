/* quant/quant.h - runs quantizer plugins over a model's linears and keeps the result.
 *
 * A scheme selects the plugin and options for each linear.  The result is an overlay: the model
 * stays unchanged, and the engine uses packed weights where they exist.
 */
#ifndef TSR_QUANT_QUANT_H
#define TSR_QUANT_QUANT_H

#include "base/err.h"
#include "model/packed_slice.h"
#include "plugin/registry.h"

/* A created quantizer. */
struct tsr_quantizer {
    const struct tsr_quantizer_v1 *iface;
    void                          *self;
    const char                    *name;
    struct tsr_quant_isolated     *isolated; /* NULL: its calls run in this process (isolate.h) */
    const struct tsr_plugin_found
               *found;   /* with options: what is stored with a plugin's own format, so */
    const void *options; /* that decoder.h finds it; borrowed.  NULL: that is stored as F32 */
};

/* False: quantize() gets tensors of this dtype as F32. */
bool tsr_quantizer_reads(const struct tsr_quantizer *q, uint32_t dtype);
/* The plan for a tensor like w (its data is not read) as quantize() would get it.
 * TSR_E_UNSUPPORTED with the reason. */
tsr_status tsr_quantizer_plan(const struct tsr_quantizer *q, const struct tsr_matrix *w,
                              struct tsr_quant_plan *plan, struct tsr_err *err);
/* Quantizes one matrix: plan, allocate, prepare, quantize rows in parallel on the registry's
 * pool, dequantize for the error.  stats may be NULL if the plan needs none. */
tsr_status tsr_quantize_matrix(struct tsr_registry *r, const struct tsr_quantizer *q,
                               const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                               struct tsr_model_packed **out, struct tsr_err *err);
/* The same inside an open prepare(): prepared is what iface->prepare() gave for the linears that
 * share these stats, or NULL.  The caller checks the need. */
tsr_status tsr_quantize_prepared(struct tsr_registry *r, const struct tsr_quantizer *q,
                                 const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                                 const void *prepared, struct tsr_model_packed **out,
                                 struct tsr_err *err);
/* True if q can quantize a part of a matrix like w without the rest.  It must need no statistics, and
 * promise the same bytes for any split of rows (whole units of its plan, deterministic) or for these
 * columns alone (columns_alone, in one of our layouts). */
bool tsr_quantizer_alone(const struct tsr_quantizer *q, const struct tsr_quant_plan *plan,
                         const struct tsr_matrix *w, const struct tsr_model_slice *s);
/* Quantizes one part: `part` contains only this part, whole has the shape of the matrix.  The result
 * equals the part that tsr_model_packed_slice() cuts from the whole; squared_error and report are its own. */
tsr_status tsr_quantize_part(struct tsr_registry *r, const struct tsr_quantizer *q,
                             const struct tsr_matrix *whole, const struct tsr_model_slice *s,
                             const struct tsr_matrix *part, struct tsr_model_packed **out,
                             struct tsr_err *err);
/* TSR_E_INPUT naming the first of `need` that stats (may be NULL) lacks or has for another number
 * of columns.  name is the linear. */
tsr_status tsr_quant_need_check(uint64_t need, const struct tsr_quant_stats *stats, uint64_t cols,
                                const char *plugin, const char *name, struct tsr_err *err);
/* What to collect for a plan's need: of TSR_NEED_IF_THERE what calibration can give. */
uint64_t tsr_quant_need_collect(uint64_t need);
/* stats with everything that is not needed set to NULL, as a quantizer is to see it. */
struct tsr_quant_stats tsr_quant_stats_for(uint64_t need, const struct tsr_quant_stats *stats);

/* ---- calibration -------------------------------------------------------- */

/* Statistics of the inputs of every linear, by site: linears that share an input share an entry.
 * The moments (absmax, mean, variance, mean |x|) of all layers are resident; Hessians and recorded
 * inputs are large and are requested layer by layer (calibrate.h). */
struct tsr_quant_calibration {
    uint64_t                 layers;
    uint64_t                 sites;    /* of a layer */
    struct tsr_quant_stats **site;     /* [layers][sites]; moments only; arrays owned; NULL when
                                        * all was deferred */
    uint8_t                **borrowed; /* [layers][sites] as in calibrate.h; NULL likewise */
    uint64_t                 sequences, seqlen, tokens;
    uint32_t                *ids;      /* [sequences][seqlen]: what was run; owned */
    char                     hash[48]; /* over model, tokens and options */
    struct tsr_plugin_run_on on;       /* that the model runs on */
    struct tsr_quant_calibration_source
          *source;                       /* calibrate.c's own; NULL: nothing but the moments */
    double run_seconds, hessian_seconds; /* spent so far: forward passes and moments, Hessians
                                          * and their eigenvalues */
};
void tsr_quant_calibration_destroy(struct tsr_quant_calibration *c);

#endif
