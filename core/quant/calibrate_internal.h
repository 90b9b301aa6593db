/* quant/calibrate_internal.h - shared by calibrate.c (which sequences, all layers), collect.c (one
 * layer), calibrate_hidden.c (hidden states) and calibrate_file.c (stored statistics of a layer). */
#ifndef TSR_QUANT_CALIBRATE_INTERNAL_H
#define TSR_QUANT_CALIBRATE_INTERNAL_H

#include "quant/calibrate.h"
#include "tessera/linalg.h"

#define TSR_MOMENTS   (TSR_NEED_ABSMAX | TSR_NEED_MEAN | TSR_NEED_VARIANCE | TSR_NEED_MEAN_ABS)
#define TSR_COLLECTED (TSR_MOMENTS | TSR_NEED_HESSIAN | TSR_NEED_INPUTS | TSR_NEED_TOP)

/* The state for the statistics of a layer: hidden states of all sequences before layer `at`. */
struct tsr_quant_calibration_source {
    struct tsr_registry            *registry;
    const struct tsr_model         *model;
    const struct tsr_linalg_v1     *linalg; /* found when first needed */
    struct tsr_stream              *stream; /* made when first needed */
    const struct tsr_model_overlay *before; /* that brought h here; NULL: the original */
    float                          *h;      /* [sequences][seqlen, hidden] */
    float                          *after;  /* [seqlen, hidden], if h must be kept */
    uint64_t                        at;
    bool                            started;
    float                          *original; /* as h, of the original model: TSR_NEED_CROSS */
    uint64_t                        original_at;
    bool                            original_started;
    uint64_t                        keep;   /* sequences whose inputs are recorded */
    uint64_t                        want;   /* need of the options: collected in addition to the
                                             * requested ones */
    char                           *folder; /* or NULL */
};

/* collect.c: statistics of one layer through the stream. */
tsr_status tsr_quant_collect_layer(struct tsr_quant_calibration *c, uint64_t layer, uint64_t need,
                                   const struct tsr_model_overlay *before,
                                   struct tsr_quant_layer_stats *out, struct tsr_err *err);
/* calibrate_hidden.c: makes the stream if there is none. */
tsr_status tsr_quant_source_stream(struct tsr_quant_calibration *c, struct tsr_err *err);
/* Hidden states h after the embedding; `before` is the overlay that they go through. */
tsr_status tsr_quant_source_start(struct tsr_quant_calibration   *c,
                                  const struct tsr_model_overlay *before, struct tsr_err *err);
/* h through layer `at`.  A failure leaves h half moved: the next call starts again. */
tsr_status tsr_quant_source_advance(struct tsr_quant_calibration *c, struct tsr_err *err);
/* `original` before `layer`, from the embedding if need be.  Opens other layers in the stream. */
tsr_status tsr_quant_source_original(struct tsr_quant_calibration *c, uint64_t layer,
                                     struct tsr_err *err);
/* Frees stream and hidden states: the next request starts again. */
void tsr_quant_source_rest(struct tsr_quant_calibration_source *s);
void tsr_quant_source_free(struct tsr_quant_calibration_source *s);
/* Frees what `need` does not name. */
void tsr_quant_layer_stats_limit(struct tsr_quant_layer_stats *s, uint64_t need);

/* calibrate_file.c: writes the content of s; reads what `need` names from a file that has all of
 * `must`.  *have: the content of a matching file, 0 if there is none; out is unchanged if that does
 * not include all of must. */
tsr_status tsr_quant_calibration_file_write(const struct tsr_quant_calibration *c, uint64_t layer,
                                            const struct tsr_quant_layer_stats *s,
                                            struct tsr_err                     *err);
tsr_status tsr_quant_calibration_file_read(const struct tsr_quant_calibration *c, uint64_t layer,
                                           uint64_t need, uint64_t must, uint64_t *have,
                                           struct tsr_quant_layer_stats *out, struct tsr_err *err);

/* calibrate_block.c: positions h before `layer` and records it; h does not move past the layer. */
tsr_status tsr_quant_calibration_record(struct tsr_quant_calibration *c, uint64_t layer,
                                        const struct tsr_model_overlay *before,
                                        struct tsr_quant_recording *r, struct tsr_err *err);

#endif
