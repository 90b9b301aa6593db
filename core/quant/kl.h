/* quant/kl.h - what each choice of a plan costs in quality, on one scale: KL divergence to the original model, in nats
 * per token, with an interval.
 *
 *   original once --> for each layer: pack it by every scheme --probed layers--> KL with that layer alone changed
 *                                                             --random plans --> KL of whole plans, for f(W)
 *   links: the hidden states of probed layers through a codec; KV types, sums, packed embedding and head: the whole
 *   model
 *
 * KL adds up over layers, nearly (docs/formats/indicators.md). A layer that is not probed takes its scheme's error
 * at the outputs of its linears times one factor, which the probed layers fit. Random plans check the sums, and give
 * the map f from a sum W to the KL that is measured.
 *
 * Half of an interval is Student's t at 95 % times the standard error over sequences, since tokens of a sequence depend on
 * each other.
 */
#ifndef TSR_QUANT_KL_H
#define TSR_QUANT_KL_H

#include "quant/calibrate.h"
#include "quant/scheme.h"

#include <jansson.h>

#define TSR_KL_CHOICES  16u /* most schemes, cache types, codecs; TSR_KL_PLANS: whole plans */
#define TSR_KL_PLANS    32u
#define TSR_KL_CHANNELS 8u /* most numbers of compensated channels */

struct tsr_kl_figure {
    double kl, half; /* nats per token; half the 95 % interval, NaN with one sequence */
};

struct tsr_quant_kl_options {
    uint32_t                 n_schemes, n_kv, n_links, n_sums, n_ends;
    const char              *scheme_text[TSR_KL_CHOICES]; /* "gptq:bits=4"; coarse ones first */
    struct tsr_quant_scheme *scheme[TSR_KL_CHOICES];
    /* channels of 1,024 that are compensated, of each scheme; the maps that the schemes were read from, and a folder that
     * does not exist, in which a scheme's model is packed meanwhile: both needed where n_k > 0 */
    uint32_t                      n_k, k[TSR_KL_CHANNELS];
    const struct tsr_config_node *scheme_map[TSR_KL_CHOICES];
    const char                   *folder;
    uint32_t                      kv[TSR_KL_CHOICES];       /* dtypes of tessera/kv_cache.h */
    const char *link[TSR_KL_CHOICES], *sum[TSR_KL_CHOICES]; /* codecs, "mx:block=16" */
    const char *end[TSR_KL_CHOICES]; /* of embedding and head, "rtn:bits=8" */
    uint32_t    ranks;               /* that share a sum, 2 or more */
    uint64_t    probes;              /* most layers that are probed, >= 1 */
    uint32_t    plans;               /* random whole plans, up to TSR_KL_PLANS */
    uint64_t    sequences;           /* of the calibration; 0: all */
    uint64_t    seed;
};

struct tsr_quant_kl_plan {
    uint8_t             *choice; /* [layers] scheme; n_schemes: the original; owned */
    double               w;      /* sum of the figures of its layers */
    struct tsr_kl_figure measured;
    bool fails; /* the sum is off by more than TSR_KL_OFF and by more than the interval */
};
#define TSR_KL_OFF 0.10 /* of the measured KL */

struct tsr_quant_kl {
    uint64_t              layers, sequences, seqlen, tokens;
    uint32_t              n_schemes, n_plans, n_points;
    double               *error;  /* [layers][schemes] squared error at the outputs; owned */
    struct tsr_kl_figure *figure; /* [layers][schemes]; owned */
    uint8_t              *probed; /* [layers]; owned */
    double factor[TSR_KL_CHOICES], spread[TSR_KL_CHOICES]; /* of KL by error; sd of its logarithm */
    struct tsr_kl_figure     kv[TSR_KL_CHOICES];
    struct tsr_kl_figure     link[TSR_KL_CHOICES]; /* of one boundary, the mean over probed ones */
    struct tsr_kl_figure     sum[TSR_KL_CHOICES];  /* of both sums in all layers */
    struct tsr_kl_figure     end[TSR_KL_CHOICES];  /* embedding and head both packed */
    struct tsr_kl_figure     left[TSR_KL_CHOICES][TSR_KL_CHANNELS]; /* shares of a scheme's KL */
    struct tsr_quant_kl_plan plan[TSR_KL_PLANS];
    double map_w[TSR_KL_PLANS + 1], map_kl[TSR_KL_PLANS + 1]; /* f, ascending in both, from 0 */
    double forwards, said_s, seconds; /* of the whole model; said before it ran */
};

/* Runs it all; says its cost in a log line before the probes run.  The model is an original one. TSR_E_INPUT for fewer than
 * 2 tokens in a sequence, a packed model, or a codec that must be calibrated.  [setup] */
tsr_status tsr_quant_kl_run(struct tsr_quant_kl *t, struct tsr_registry *r,
                            const struct tsr_model *m, struct tsr_quant_calibration *c,
                            const struct tsr_quant_kl_options *opt, struct tsr_err *err);
void       tsr_quant_kl_free(struct tsr_quant_kl *t);

/* TSR_E_INPUT for a codec that does not exist, or options that it does not have.  [setup] */
tsr_status tsr_quant_kl_codec(struct tsr_registry *r, const char *text, struct tsr_err *err);
/* The same for a quantizer of the ends.  [setup] */
tsr_status tsr_quant_kl_end(struct tsr_registry *r, const char *text, struct tsr_err *err);

/* The parts of it that need no model.  Fills factor and spread from the probed layers, and the figures of the others. [any] */
void tsr_quant_kl_fit(struct tsr_quant_kl *t);
/* Sums of plans, and the map: isotonic regression of the measured KL on W (pool adjacent violators). [any] */
void tsr_quant_kl_map(struct tsr_quant_kl *t);

/* tessera.indicators/2 (docs/formats/indicators.md) as JSON; new reference, NULL when out of memory. */
json_t *tsr_quant_kl_json(const struct tsr_quant_kl *t, const struct tsr_model *m,
                          const struct tsr_quant_calibration *c,
                          const struct tsr_quant_kl_options  *opt);

#endif
