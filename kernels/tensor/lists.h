/* lists.h - what a host gives error compensation, checked: lists of channels, and scales of residuals. */
#ifndef TSR_TENSOR_LISTS_H
#define TSR_TENSOR_LISTS_H

#include "tessera/plugin.h"

/* n lists of `words` words, each `stride` words after the one before: a count, then that many channels, ascending.
 * TSR_E_INVAL: a count that does not fit, a channel that is not below `channels`, or one that does not ascend.  [any] */
tsr_status tsr_tensor_lists(const uint32_t *p, uint64_t stride, uint64_t n, uint64_t words,
                            uint64_t channels, struct tsr_err *err);

/* n scales in F16 of the residual `name`.  TSR_E_INVAL: one is not finite.  [any] */
tsr_status tsr_tensor_scales(const uint16_t *scales, uint64_t n, const char *name,
                             struct tsr_err *err);

#endif
