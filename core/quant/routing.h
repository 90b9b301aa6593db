/* quant/routing.h - how often each expert is taken, as a calibration counted it. */
#ifndef TSR_QUANT_ROUTING_H
#define TSR_QUANT_ROUTING_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads the counts of one layer from the statistics in `folder` (docs/formats/calibration.md): share [experts] is the part
 * of all tokens that each expert took, 0 for one that no token took.  A file that is missing, or that is of a layer with
 * other experts, is TSR_E_INPUT.  [setup] */
tsr_status tsr_quant_routing_read(const char *folder, uint64_t layer, uint32_t experts,
                                  uint32_t used, double *share, struct tsr_err *err);

#endif
