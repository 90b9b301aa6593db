/* quant/held.h - keeps a matrix for many products or sums on the device of the linear algebra service; a
 * no-op if that is the CPU. */
#ifndef TSR_QUANT_HELD_H
#define TSR_QUANT_HELD_H

#include "base/err.h"
#include "tessera/plugin.h"

#include <stdbool.h>

struct tsr_linalg_v1;
struct tsr_quant_held {
    const struct tsr_linalg_v1 *linalg; /* NULL: nothing is held */
    const float                *a;
};

/* Holds [rows, cols] at a (NULL: nothing) as tessera/linalg.h says; *h is 0 before.  TSR_E_NOMEM,
 * TSR_E_DEVICE. */
tsr_status tsr_quant_held_begin(struct tsr_quant_held *h, const struct tsr_host *host,
                                const float *a, uint64_t rows, uint64_t cols, struct tsr_err *err);
/* Ends the hold, with fetch after copying the device's version to a; no-op if nothing is held.
 * TSR_E_DEVICE: a is undefined. */
tsr_status tsr_quant_held_end(struct tsr_quant_held *h, bool fetch, struct tsr_err *err);

#endif
