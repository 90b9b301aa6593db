/* pipeline/steps/quantize.h - the quantize step for the verb that makes a job of it. */
#ifndef TSR_PIPELINE_STEPS_QUANTIZE_H
#define TSR_PIPELINE_STEPS_QUANTIZE_H

#include "pipeline/pipeline.h"
#include "quant/quantize.h"

struct tsr_step_quantize_keys {
    struct tsr_quant_scheme_keys scheme; /* first: the scheme's own table fills it too */
    const char                  *to, *plan, *imatrix;
};

/* The maximum memory of the last step of a checked job, a quantize step. Loads the model as the job would,
 * and chooses the sequences of a calibrate step before it; writes nothing. */
tsr_status tsr_step_quantize_statement(struct tsr_pipeline_job    *job,
                                       struct tsr_quantize_memory *out, struct tsr_err *err);

/* The options of a calibrate step as calibration takes them, but for need and folder; *text is the
 * path in them, in fresh memory.  The model is loaded. */
tsr_status tsr_step_calibrate_step_options(struct tsr_pipeline_job *job, const void *opts,
                                           struct tsr_quant_calibrate_options *out, char **text,
                                           struct tsr_err *err);

#endif
