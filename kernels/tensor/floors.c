#include "floors.h"

#include <string.h>

/* The next float under v >= 0. */
static float under(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    u = v > 0 ? u - 1 : 0x80000001u;
    memcpy(&v, &u, sizeof u);
    return v;
}

tsr_status tsr_tensor_floors(float *below, const float *floors, struct tsr_err *err)
{
    for (uint32_t i = 0; i < TSR_COMPENSATE_BUCKETS; i++) {
        if (!(floors[i] >= 0) || (i && !(floors[i] <= floors[i - 1])))
            return tsr_fail(err, TSR_E_INVAL, "SELECT: floor %u is %g, which does not descend to 0",
                            i, (double)floors[i]);
        below[i] = under(floors[i]);
    }
    return floors[TSR_COMPENSATE_BUCKETS - 1] == 0
               ? TSR_OK
               : tsr_fail(err, TSR_E_INVAL, "SELECT: the last floor is %g instead of 0",
                          (double)floors[TSR_COMPENSATE_BUCKETS - 1]);
}
