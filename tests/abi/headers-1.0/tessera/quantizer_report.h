/* tessera/quantizer_report.h - optional table of a quantizer, "tessera.quantizer.report/1": what
 * a second-order quantizer knows about its own work, beside the packed bytes.
 *
 * A host that finds the table calls its quantize() in place of the quantizer's and adds up the
 * rows in ascending order, so that the sums do not depend on how rows were split.
 */
#ifndef TSR_QUANTIZER_REPORT_H
#define TSR_QUANTIZER_REPORT_H

#include "tessera/quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_QUANTIZER_REPORT "tessera.quantizer.report/1"

/* What prepare() did.  The host zeroes it and sets struct_size. */
struct tsr_quant_prepare_report {
    uint32_t struct_size;
    uint32_t reserved;
    double   damping; /* added to the Hessian's diagonal, in units of its mean */
    uint64_t retries; /* times that the damping had to be doubled          */
};

struct tsr_quantizer_report_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* quantize() of the same instance, the same bytes, and per row of the run: loss = e H e^T of
     * the error e = w - w^ under the Hessian as it was given, and rtn_loss, the same for rounding
     * to nearest with the same bits, groups and scales (NaN where that would be refused).  Either
     * may be NULL.  [any] */
    tsr_status (*quantize)(const void *self, const struct tsr_quant_job *job, double *loss,
                           double *rtn_loss, struct tsr_err *err);
    /* About what prepare() gave.  [any] */
    void (*prepared)(const void *self, const void *prepared, struct tsr_quant_prepare_report *out);
};

#ifdef __cplusplus
}
#endif
#endif
