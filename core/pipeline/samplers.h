/* pipeline/samplers.h - the key `samplers` of steps that generate: plugins that see the logits before the draw.
 *
 *   samplers: [min_p, {use: grammar, schema: '{"type": "object"}'}]
 */
#ifndef TSR_PIPELINE_SAMPLERS_H
#define TSR_PIPELINE_SAMPLERS_H

#include "engine/sampler.h"
#include "pipeline/step.h"

#define TSR_PIPELINE_SAMPLERS_OPTION(S, k)                                                         \
    {                                                                                              \
        .name = "samplers",                                                                        \
        .help = "Plugins that change the logits before the draw, in this order: names, or "        \
                "{use: NAME, ...} with options.",                                                  \
        .type = TSR_OPT_NODE, .offset = TSR_FIELD(S, k, const struct tsr_config_node *)            \
    }

struct tsr_pipeline_samplers {
    struct tsr_engine_sampler_maker maker; /* for requests with a format */
    struct tsr_engine_samplers     *list;  /* NULL: none */
};

/* Names, options and what create() says of them.  node may be NULL.  TSR_E_NOMEM or a failure of a plugin. */
tsr_status tsr_pipeline_samplers_check(struct tsr_pipeline_job      *job,
                                       const struct tsr_config_node *node, struct tsr_diag *d,
                                       struct tsr_err *err);
/* The list, for the job's model and tokenizer, which are loaded and outlive it.  close() is allowed after a failure. */
tsr_status tsr_pipeline_samplers_open(struct tsr_pipeline_samplers *s, struct tsr_pipeline_job *job,
                                      const struct tsr_config_node *node, struct tsr_err *err);
void       tsr_pipeline_samplers_close(struct tsr_pipeline_samplers *s);

#endif
