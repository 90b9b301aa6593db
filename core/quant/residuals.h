/* quant/residuals.h - the residuals of a packed model and the profiles of its sites, made from the original and a
 * calibration: format tessera.compensation/1, docs/formats/compensation.md.
 */
#ifndef TSR_QUANT_RESIDUALS_H
#define TSR_QUANT_RESIDUALS_H

#include "compensate/compensation.h"
#include "quant/calibrate.h"

struct tsr_quant_compensation_options {
    const char                         *folder;      /* of the packed model; the files go there */
    uint32_t                            bits;        /* 2, 4, 8 or 16 */
    const struct tsr_quant_calibration *calibration; /* its sequences are run */
};
struct tsr_quant_compensation_report {
    uint64_t linears, bytes, tokens;
    double   before,
        after; /* squared error of all packed linears, without and with all of the residuals */
};
/* m is the original, in memory or streamed; TSR_E_INPUT if the packed model was made from another one.  If
 * the process is killed, the folder is a packed model without residuals.  [setup] */
tsr_status tsr_quant_compensation_make(struct tsr_registry *r, const struct tsr_model *m,
                                       const struct tsr_quant_compensation_options *opt,
                                       struct tsr_quant_compensation_report        *report,
                                       struct tsr_err                              *err);

#endif
