/* pipeline/quantize.h - the quantize step for the verb that makes a job of it. */
#ifndef TSR_PIPELINE_QUANTIZE_H
#define TSR_PIPELINE_QUANTIZE_H

#include "pipeline/pipeline.h"
#include "quant/quantize.h"

struct tsr_quantize_keys {
    struct tsr_scheme_keys scheme; /* first: the scheme's own table fills it too */
    const char            *to, *plan;
};

/* What the quantize step of a checked job would take at most.  Loads the model as the job would,
 * and chooses the sequences of a calibrate step before it; writes nothing. */
tsr_status tsr_quantize_statement(struct tsr_job *job, struct tsr_quantize_memory *out,
                                  struct tsr_err *err);

/* The options of a calibrate step as calibration takes them, but for need and folder; *text is the
 * path in them, in fresh memory.  The model is loaded. */
tsr_status tsr_calibrate_step_options(struct tsr_job *job, const void *opts,
                                      struct tsr_calibrate_options *out, char **text,
                                      struct tsr_err *err);

#endif
