/* format_ref.h - reference decoders of the plain packed layouts of tessera/format.h: plain
 * loops that a reader can check against docs/formats/.  Tests hold every other reader (the
 * core's, the backends' repacking) to them.
 */
#ifndef TSR_FORMAT_REF_H
#define TSR_FORMAT_REF_H

#include "tessera/format.h"

/* One row of cols weights as F32.  Returns TSR_E_UNSUPPORTED for a format that is none of
 * tessera.int/1 and tessera.float/1, or whose parameters they do not allow. */
tsr_status tsr_ref_decode_row(const struct tsr_format *f, uint64_t cols, const void *codes,
                              const void *meta, float *dst);

#endif
