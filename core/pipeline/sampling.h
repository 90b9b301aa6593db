/* pipeline/sampling.h - sampling that neither the command line nor the job states: the model's generation_config.json. */
#ifndef TSR_PIPELINE_SAMPLING_H
#define TSR_PIPELINE_SAMPLING_H

#include "engine/engine.h"
#include "pipeline/step.h"

/* Puts temperature, top_k, top_p, min_p and repetition_penalty of generation_config.json into s, except those that
 * node states; "do_sample": false is temperature 0.  The job's model is loaded.  TSR_E_INPUT: a value is none. */
tsr_status tsr_pipeline_sampling(struct tsr_pipeline_job *job, const struct tsr_config_node *node,
                                 struct tsr_engine_sampling *s, struct tsr_err *err);

#endif
