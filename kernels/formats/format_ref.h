/* format_ref.h - reference decoders of the plain packed layouts of tessera/format.h: plain
 * loops that a reader can check against docs/formats/.  Tests hold every other reader (the
 * core's, the backends' repacking) to them.
 */
#ifndef TSR_FORMAT_REF_H
#define TSR_FORMAT_REF_H

#include "tessera/format.h"

/* One row of cols weights as F32. Returns TSR_E_UNSUPPORTED for a format other than tessera.float/1,
 * int/1, int/2, lut/1, table/1 and mx/1, or with parameters that they do not allow; TSR_E_INVAL for a row of lut/1 whose
 * outlier columns do not ascend within the row. */
tsr_status tsr_ref_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                              const void *meta, float *dst);

#endif
