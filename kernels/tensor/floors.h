/* floors.h - the floors of the buckets that error compensation selects channels by. */
#ifndef TSR_TENSOR_FLOORS_H
#define TSR_TENSOR_FLOORS_H

#include "tessera/draft/compensate.h"

/* below [TSR_COMPENSATE_BUCKETS]: the next float under each floor, so that a magnitude above it is in the bucket.
 * TSR_E_INVAL: the floors do not descend to 0, or one is NaN.  [any] */
tsr_status tsr_tensor_floors(float *below, const float *floors, struct tsr_err *err);

#endif
