/* tessera/quantizer_report.h - report: the losses of a quantization, in an optional table of a
 * quantizer.  Its id is "tessera.quantizer.report/1".
 *
 * A second-order quantizer implements it.  A host that finds the table calls its quantize() instead
 * of the one of struct tsr_quantizer_v1.  The host adds the rows in ascending order, so that the
 * sums do not depend on the split of the rows.
 *
 * Example: the summed loss of a run of rows.
 *
 *     static tsr_status run_loss(const struct tsr_quantizer_report_v1 *report, const void *self,
 *                                const struct tsr_quant_job *job, double *row_loss, double *sum,
 *                                struct tsr_err *err)
 *     {
 *         tsr_status st = report->quantize(self, job, row_loss, NULL, err);
 *         if (st != TSR_OK)
 *             return st;
 *         *sum = 0;
 *         for (uint64_t r = 0; r < job->src->rows; r++)
 *             *sum += row_loss[r];
 *         return TSR_OK;
 *     }
 */
#ifndef TSR_QUANTIZER_REPORT_H
#define TSR_QUANTIZER_REPORT_H

#include "tessera/quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_QUANTIZER_REPORT "tessera.quantizer.report/1"

/* The result of prepare().  The host zeroes it and sets struct_size. */
struct tsr_quant_prepare_report {
    uint32_t struct_size;
    uint32_t reserved;
    double   damping; /* added to the Hessian's diagonal, in units of its mean */
    uint64_t retries; /* how often the damping was doubled                 */
};

struct tsr_quantizer_report_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    /* Writes the bytes that quantize() of the instance writes, and two values for each row of the
     * run.  loss = e H e^T, for the error e = w - w^ and the given Hessian H.  rtn_loss is the loss
     * of rounding to nearest with equal bits, groups and scales; NaN: that would be refused.  Each
     * array may be NULL.  Errors are those of quantize().  [any] */
    tsr_status (*quantize)(const void *self, const struct tsr_quant_job *job, double *loss,
                           double *rtn_loss, struct tsr_err *err);
    /* Describes the result of prepare().  [any] */
    void (*prepared)(const void *self, const void *prepared, struct tsr_quant_prepare_report *out);
};

#ifdef __cplusplus
}
#endif
#endif
