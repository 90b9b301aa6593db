/* quant/held.h - a matrix that many products read, or many sums go into, kept on the device of the linear
 * algebra service meanwhile; where that is the CPU, nothing happens. */
#ifndef TSR_QUANT_HELD_H
#define TSR_QUANT_HELD_H

#include "base/err.h"
#include "tessera/plugin.h"

#include <stdbool.h>

struct tsr_linalg_v1;
struct tsr_held {
    const struct tsr_linalg_v1 *linalg; /* NULL: nothing is held */
    const float                *a;
};

/* Holds [rows, cols] at a (NULL: nothing) as tessera/linalg.h says; *h is 0 before.  TSR_E_NOMEM,
 * TSR_E_DEVICE. */
tsr_status tsr_held_begin(struct tsr_held *h, const struct tsr_host *host, const float *a,
                          uint64_t rows, uint64_t cols, struct tsr_err *err);
/* Gives it back, with fetch after a has become what the device has; nothing where none is held.
 * TSR_E_DEVICE: a is garbage. */
tsr_status tsr_held_end(struct tsr_held *h, bool fetch, struct tsr_err *err);

#endif
