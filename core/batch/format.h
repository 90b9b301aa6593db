/* batch/format.h - "response_format" of a request: a JSON schema that its answer keeps. */
#ifndef TSR_BATCH_FORMAT_H
#define TSR_BATCH_FORMAT_H

#include "engine/sampler.h"

#include <jansson.h>

/* The samplers of a request with the body: those of every request, and in front of them the sampler `grammar` where
 * "response_format" is {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": ...}}.  The caller
 * drops the list.  TSR_E_INPUT: the format is none of these and not {"type": "text"}, or the schema is not one that
 * `grammar` keeps. */
tsr_status tsr_batch_format_read(struct tsr_engine_samplers     **list,
                                 struct tsr_engine_samplers      *every,
                                 struct tsr_engine_sampler_maker *maker, const json_t *body,
                                 struct tsr_err *err);

#endif
