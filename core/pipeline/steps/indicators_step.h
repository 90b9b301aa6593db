/* pipeline/steps/indicators_step.h - the step `indicators`: its keys, and what its two measures share.
 *
 *   indicators.c         keys, and tables by bit width (tessera.indicators/1)
 *   indicators_widths.c  schemes of 'bits'
 *   indicators_kl.c      measure: kl, figures by scheme (tessera.indicators/2)
 */
#ifndef TSR_PIPELINE_STEPS_INDICATORS_STEP_H
#define TSR_PIPELINE_STEPS_INDICATORS_STEP_H

#include "pipeline/step.h"
#include "quant/indicator.h"

#define TSR_STEP_INDICATORS_FILE "indicators.json" /* in the job folder */
enum { TSR_STEP_MEASURE_TABLES, TSR_STEP_MEASURE_KL };

struct indicators_options {
    const char                   *text, *bits, *kv, *compensate;
    int64_t                       samples, seqlen, seed, sequences, step, measure, probes, plans;
    double                        budget;
    int32_t                       symmetric, hessian, measured;
    const struct tsr_config_node *quantize, *schemes, *codecs, *sums, *ends;
};

/* The schemes of all widths: the user's map with `bits` added. */
struct indicator_widths {
    uint32_t                 bits[TSR_INDICATOR_BITS], n;
    char                     text[TSR_INDICATOR_BITS][8];
    struct tsr_config_node   map[TSR_INDICATOR_BITS], key, value[TSR_INDICATOR_BITS];
    struct tsr_config_node   use_key, use_value;
    struct tsr_config_node **lists[TSR_INDICATOR_BITS];
    struct tsr_quant_scheme *scheme[TSR_INDICATOR_BITS];
};

/* Errors go to d. w, zeroed, must not move while its schemes live.  [setup] */
tsr_status tsr_step_widths_read(struct indicator_widths *w, struct tsr_pipeline_job *job,
                                const struct indicators_options *o,
                                const struct tsr_config_node *node, struct tsr_diag *d,
                                struct tsr_err *err);
/* Reads the widths of a step that its check has passed; close also frees w. */
tsr_status tsr_step_widths_open(struct indicator_widths **w, struct tsr_pipeline_job *job,
                                const struct indicators_options *o,
                                const struct tsr_config_node *node, struct tsr_err *err);
void       tsr_step_widths_close(struct indicator_widths *w); /* NULL is allowed */

/* measure: kl.  Errors of keys go to d. */
tsr_status tsr_step_kl_check(struct tsr_pipeline_job *job, const struct indicators_options *o,
                             const struct tsr_config_node *node, struct tsr_diag *d,
                             struct tsr_err *err);
/* Its keys without it. */
void       tsr_step_kl_none(const struct indicators_options *o, struct tsr_diag *d);
tsr_status tsr_step_kl_need(struct tsr_pipeline_job *job, const struct indicators_options *o,
                            const struct tsr_config_node *node, uint64_t *need,
                            struct tsr_err *err);
/* The contents of the file; new reference. */
tsr_status tsr_step_kl_run(struct tsr_pipeline_job *job, const struct indicators_options *o,
                           const struct tsr_config_node *node, struct tsr_quant_calibration *c,
                           uint64_t seed, json_t **out, struct tsr_err *err);
void       tsr_step_kl_print(const json_t *r, FILE *to);

#endif
