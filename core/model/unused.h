/* model/unused.h - stored tensors that the model does not run, so that what is written from it has them again: those that
 * the family's `ignored` names, and layers after the last one.
 */
#ifndef TSR_MODEL_UNUSED_H
#define TSR_MODEL_UNUSED_H

#include "checkpoint/safetensors/safetensors.h"
#include "model/model.h"

typedef tsr_status (*tsr_model_unused_visit)(void *ctx, const struct tsr_safetensors *file,
                                             const struct tsr_safetensors_tensor *t,
                                             struct tsr_err                      *err);
/* Calls visit for each, by name.  None of a GGUF file or a prepacked one, and none of a model that another program
 * quantized (a log line says how many are left out).  [setup] */
tsr_status tsr_model_visit_unused(const struct tsr_model *m, tsr_model_unused_visit visit,
                                  void *ctx, struct tsr_err *err);
/* Bytes of an element; TSR_E_INPUT for less than one. */
tsr_status tsr_model_unused_size(const struct tsr_safetensors        *file,
                                 const struct tsr_safetensors_tensor *t, uint32_t *size,
                                 struct tsr_err *err);
/* Its bytes into a file in which it was declared. */
tsr_status tsr_model_unused_copy(const struct tsr_safetensors        *file,
                                 const struct tsr_safetensors_tensor *t, struct tsr_st_out *to,
                                 struct tsr_err *err);

#endif
