/* base/f16.h - rows of numbers of any dtype, and what dtypes are called; the conversions are tessera/f16.h. */
#ifndef TSR_BASE_F16_H
#define TSR_BASE_F16_H

#include "tessera/f16.h"

/* n elements of a dtype of plugin.h (F32, F16, BF16) widened to F32.  src need
 * not be aligned. */
void tsr_widen(float *dst, const void *src, uint32_t dtype, uint64_t n);

/* Bytes of one element; 0 for an unknown dtype.  "F32", "BF16", ...; "?" for an unknown dtype. */
uint64_t    tsr_dtype_size(uint32_t dtype);
const char *tsr_dtype_name(uint32_t dtype);

#endif
