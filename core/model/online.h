/* model/online.h - which Hadamard transforms can run with a model, and how config.json names them
 * (docs/formats/rotated.md). */
#ifndef TSR_MODEL_ONLINE_H
#define TSR_MODEL_ONLINE_H

#include <stdbool.h>
#include <stdint.h>

/* The key of config.json with what runs with a rotated model, and its format. */
#define TSR_MODEL_ROTATION        "tessera_rotation"
#define TSR_MODEL_ROTATION_FORMAT "tessera.rotation/1"

/* Whether HADAMARD of tessera/backend.h takes runs of n columns. */
bool tsr_model_online_known(uint64_t n);
/* The columns of a run for inputs of `cols` columns: the largest that divides all segments of
 * docs/decisions/numerics.md, so that every rank of a group transforms its own columns; 1: there is none. */
uint64_t tsr_model_online_run(uint64_t cols);

#endif
