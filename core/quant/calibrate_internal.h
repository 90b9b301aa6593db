/* quant/calibrate_internal.h - shared by calibrate.c (which sequences, all layers), collect.c (one
 * layer) and calibrate_file.c (what is kept of one). */
#ifndef TSR_QUANT_CALIBRATE_INTERNAL_H
#define TSR_QUANT_CALIBRATE_INTERNAL_H

#include "quant/calibrate.h"
#include "tessera/linalg.h"

#define TSR_MOMENTS   (TSR_NEED_ABSMAX | TSR_NEED_MEAN | TSR_NEED_VARIANCE | TSR_NEED_MEAN_ABS)
#define TSR_COLLECTED (TSR_MOMENTS | TSR_NEED_HESSIAN | TSR_NEED_INPUTS | TSR_NEED_TOP)

/* What makes the statistics of a layer: hidden states of all sequences in front of layer `at`. */
struct tsr_calibration_source {
    struct tsr_registry        *registry;
    const struct tsr_model     *model;
    const struct tsr_linalg_v1 *linalg; /* found when first needed */
    struct tsr_stream          *stream; /* made when first needed */
    const struct tsr_overlay   *before; /* that brought h here; NULL: the original */
    float                      *h;      /* [sequences][seqlen, hidden] */
    float                      *after;  /* [seqlen, hidden], where h has to stay */
    uint64_t                    at;
    bool                        started;
    uint64_t                    keep;   /* sequences whose inputs are recorded */
    uint64_t                    want;   /* need of the options: collected with what is asked */
    char                       *folder; /* or NULL */
};

/* collect.c: statistics of one layer through the stream. */
tsr_status tsr_collect_layer(struct tsr_calibration *c, uint64_t layer, uint64_t need,
                             const struct tsr_overlay *before, struct tsr_layer_stats *out,
                             struct tsr_err *err);
/* Frees stream and hidden states: what is asked next starts again. */
void tsr_source_rest(struct tsr_calibration_source *s);
void tsr_source_free(struct tsr_calibration_source *s);
/* Frees what `need` does not name. */
void tsr_layer_stats_limit(struct tsr_layer_stats *s, uint64_t need);

/* calibrate_file.c: writes what s holds; reads what `need` names from a file that has all of
 * `must`.  *have: what a fitting file holds, 0 if there is none; out is untouched if that is not
 * all of must. */
tsr_status tsr_calibration_file_write(const struct tsr_calibration *c, uint64_t layer,
                                      const struct tsr_layer_stats *s, struct tsr_err *err);
tsr_status tsr_calibration_file_read(const struct tsr_calibration *c, uint64_t layer, uint64_t need,
                                     uint64_t must, uint64_t *have, struct tsr_layer_stats *out,
                                     struct tsr_err *err);

#endif
