/* checkpoint/contents.h - the contents of a folder that is not a model: for the error message, and to find the
 * one model in a job folder.
 */
#ifndef TSR_CHECKPOINT_CONTENTS_H
#define TSR_CHECKPOINT_CONTENTS_H

#include "base/err.h"

#include <stdbool.h>

/* TSR_E_INPUT: what the folder contains instead of safetensors, and what to do.  [setup] */
tsr_status tsr_checkpoint_contents_absent(const char *folder, struct tsr_err *err);
/* TSR_OK if safetensors or their index exist, else the error above. */
tsr_status tsr_checkpoint_contents_weights(const char *folder, struct tsr_err *err);
/* The path of the one model inside a folder that is not a model, as in a job folder; NULL when there is
 * none, or more than one.  Fresh memory. */
char *tsr_checkpoint_contents_only_model(const char *folder);
/* Whether config.json is there, but weights in no format, whole or in part, and no model inside.  [setup] */
tsr_status tsr_checkpoint_contents_config_alone(const char *folder, bool *yes, struct tsr_err *err);

#endif
