/* quant/residuals.h - the residuals of a packed model and the profiles of its sites, made from the original and a
 * calibration: format tessera.compensation/1, docs/formats/compensation.md.
 */
#ifndef TSR_QUANT_RESIDUALS_H
#define TSR_QUANT_RESIDUALS_H

#include "compensate/compensation.h"
#include "quant/calibrate.h"

struct tsr_compensation_options {
    const char                   *folder;      /* of the packed model; the files go there */
    uint32_t                      bits;        /* 2, 4, 8 or 16 */
    const struct tsr_calibration *calibration; /* its sequences are run */
};
struct tsr_compensation_report {
    uint64_t linears, bytes, tokens;
    double   before,
        after; /* squared error of all packed linears, without and with all of the residuals */
};
/* m is the original, whole or streamed; TSR_E_INPUT where the packed model was made of another.  Killed at
 * any moment, the folder is a packed model without residuals.  [setup] */
tsr_status tsr_compensation_make(struct tsr_registry *r, const struct tsr_model *m,
                                 const struct tsr_compensation_options *opt,
                                 struct tsr_compensation_report *report, struct tsr_err *err);

#endif
