/* rotate/online.h - the transforms that run with a rotated model: R3 and R4 of SpinQuant and QuaRot.  Plain Hadamard matrices
 * in runs of columns, whatever `kind` the folded matrices have: a random one takes n^2 operations for each token. */
#ifndef TSR_ROTATE_ONLINE_H
#define TSR_ROTATE_ONLINE_H

#include "model/model.h"
#include "rotate/sites.h"

#include <jansson.h>

/* Runs of fewer columns spread no outlier. */
#define TSR_ROTATE_LEAST 16u

/* The columns of the runs that `sites` (TSR_ROTATE_KEYS, TSR_ROTATE_DOWN) give this model.  TSR_E_INPUT with the reason if it
 * has no such sites or no matrix is known. */
tsr_status tsr_rotate_online(const struct tsr_model *m, uint32_t sites, struct tsr_model_online *to,
                             struct tsr_err *err);
/* The run that the columns of this linear's weights are transformed in; 0: none. */
uint32_t tsr_rotate_run(const struct tsr_model_online *o, enum tsr_linear_id id);
/* Says so in config.json, and hides the names of the model from programs that would run it without the transforms. */
tsr_status tsr_rotate_config(const struct tsr_model_online *o, json_t *config, struct tsr_err *err);

#endif
